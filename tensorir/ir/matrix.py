"""Products of matrices that a warp makes in one instruction: tiles, and which lane has what.

A tile is `C[16, 8] += A[16, depth] * B[depth, 8]`. Its cells are dealt out to the 32 lanes of a
warp as the PTX ISA says ("Matrix Fragments for mma.m16n8k*"): with `g = lane // 4` and
`t = lane % 4`, a lane has rows `g` and `g + 8` of C at columns `2*t` and `2*t + 1`. As loops these
are the lanes, around `r` in 0..2 (row `8*r + lane//4`) and `c` in 0..2 (column `2*(lane%4) + c`),
around the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tensorir.ir.intrinsic import Numerics

__all__ = ["LANES", "MatrixIntrinsic", "matrix_intrinsics"]

LANES = 32


@dataclass(frozen=True, slots=True, eq=False)
class MatrixIntrinsic:
    """An instruction of a warp that adds the product of two tiles to a third.

    Attributes
    ----------
    name
        What schedules call it.
    operand, result
        Types of what is multiplied and of what is added to.
    depth
        Products in a sum: 16 bytes of each operand, twice.
    llvm
        LLVM's name of the function that is called.
    register
        Its type of a register of an operand.
    features
        What the target must have: one of these sets.
    numerics
        Where it computes otherwise than a sum of products one by one.
    """

    name: str
    operand: str
    result: str
    depth: int
    llvm: str
    register: str
    features: tuple[tuple[str, ...], ...]
    numerics: Numerics

    @property
    def per(self) -> int:
        """Elements in a register of 32 bits."""
        return self.depth // 8


@cache
def matrix_intrinsics() -> dict[str, MatrixIntrinsic]:
    """Every one by name."""
    summed = Numerics("products in any order", "nearest even, perhaps towards zero")
    cut = Numerics("products in any order", "10 bits of each factor")
    exact = Numerics()
    rows = (
        ("f16", "float16", "float32", 16, "m16n8k16.row.col.f32.f32", "<2 x half>", summed),
        ("bf16", "bfloat16", "float32", 16, "m16n8k16.row.col.bf16", "i32", summed),
        ("tf32", "float32", "float32", 8, "m16n8k8.row.col.tf32", "i32", cut),
        ("s8", "int8", "int32", 32, "m16n8k32.row.col.s8", "i32", exact),
    )
    made = [
        MatrixIntrinsic(
            f"mma.m16n8k{depth}.{kind}", operand, result, depth, f"llvm.nvvm.mma.{form}",
            register, (("sm_80",),), numerics,
        )
        for kind, operand, result, depth, form, register, numerics in rows
    ]  # fmt: skip
    return {x.name: x for x in made}
