"""The dot products of x86: what each computes, and what it is called.

Sums of groups of neighbours: four bytes, two 16-bit integers, two bfloat16. In each the first
factor is one group, repeated in every lane, and the second has a group for each lane.
"""

from __future__ import annotations

from functools import cache

from tensorir.ir.build import cast
from tensorir.ir.intrinsic import Intrinsic, declare
from tensorir.ir.language import compute, placeholder, reduce_axis
from tensorir.ir.reductions import sum as total
from tensorir.ir.tensor import Tensor

# An instruction of 16-bit floats treats subnormals as zero and rounds after each product.
_BF16 = {
    "order": "each pair before the lane",
    "rounding": "nearest even",
    "subnormals": "flushed",
}


@cache
def x86() -> dict[str, Intrinsic]:
    """Every one by name; two sizes of each."""
    made: list[Intrinsic] = []
    for bits in (512, 256):
        lanes = bits // 32
        wide = "avx512f" if bits == 512 else "avx512vl"
        vnni: tuple[str, ...] = (f"avx512vnni {wide}",)
        if bits == 256:
            vnni = (*vnni, "avxvnni")
        made += [
            _dot(
                f"avx512vnni.vpdpbusd.{bits}", lanes, 4, "uint8", "int8", "int32",
                f"llvm.x86.avx512.vpdpbusd.{bits}", vnni, {}, accumulates=True,
            ),
            _dot(
                f"avx512vnni.vpdpwssd.{bits}", lanes, 2, "int16", "int16", "int32",
                f"llvm.x86.avx512.vpdpwssd.{bits}", vnni, {}, accumulates=True,
            ),
            _dot(
                f"avx512bf16.vdpbf16ps.{bits}", lanes, 2, "bfloat16", "bfloat16", "float32",
                f"llvm.x86.avx512bf16.dpbf16ps.{bits}", (f"avx512bf16 {wide}",), _BF16,
                accumulates=True,
            ),
        ]  # fmt: skip
    made += [
        _dot(
            "avx512bw.vpmaddwd.512", 16, 2, "int16", "int16", "int32",
            "llvm.x86.avx512.pmaddw.d.512", ("avx512bw",), {}, accumulates=False,
        ),
        _dot(
            "avx2.vpmaddwd.256", 8, 2, "int16", "int16", "int32",
            "llvm.x86.avx2.pmadd.wd", ("avx2",), {}, accumulates=False,
        ),
        _dot(
            "avxvnniint8.vpdpbssd.256", 8, 4, "int8", "int8", "int32",
            "llvm.x86.avx2.vpdpbssd.256", ("avxvnniint8",), {}, accumulates=True,
        ),
    ]  # fmt: skip
    return {x.name: x for x in made}


def _dot(
    name: str,
    lanes: int,
    group: int,
    left: str,
    right: str,
    result: str,
    llvm: str,
    features: tuple[str, ...],
    numerics: dict[str, str],
    *,
    accumulates: bool,
) -> Intrinsic:
    a = placeholder((group,), left, name="a")
    b = placeholder((lanes, group), right, name="b")
    k = reduce_axis(group, name="k")
    c = compute(
        (lanes,),
        lambda i: total(cast(a[k], result) * cast(b[i, k], result), axis=k, dtype=result),
        name="c",
    )
    operands: list[tuple[Tensor, tuple[str, ...]]] = [(a, ("i", "k")), (b, ("i", "k"))]
    if accumulates:
        operands.insert(0, (c, ("i",)))
    return declare(name, c, operands, llvm, features, numerics)
