"""What code is made for: a processor, its vectors, registers, caches and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorir.ir.dtype import DType
from tensorir.support.tracebacks import user_api


@dataclass(frozen=True, slots=True)
class Target:
    """A processor to compile for. Get one from :func:`tensorir.codegen.cpu.target`.

    Attributes
    ----------
    kind
        "cpu", or "cuda".
    name
        What the user wrote: "native", or the name of a processor.
    triple
        LLVM's name of architecture, system and ABI.
    cpu, tune
        LLVM's names of the instruction set and of the processor whose timing is assumed.
    features
        LLVM's feature list ("+avx2,+fma,-xop"); names every feature that code may use.
    vector_bytes, vector_registers
        Width of a vector register in bytes (64, 32 or 16), and how many there are.
    l1, l2, l3
        Cache sizes in bytes: data cache and second level of one core, last level.
    threads
        How many threads a parallel loop may assume.

    Examples
    --------
    >>> from tensorir.codegen.cpu import target
    >>> from tensorir.ir.dtype import dtype
    >>> t = target("x86-64-v3")
    >>> t.vector_bytes, t.lanes(dtype("float32")), t.has("fma"), t.has("avx512f")
    (32, 8, True, False)
    """

    kind: Literal["cpu", "cuda"]
    name: str
    triple: str
    cpu: str
    tune: str
    features: str
    vector_bytes: int
    vector_registers: int
    l1: int
    l2: int
    l3: int
    threads: int

    @user_api
    def lanes(self, dtype: DType) -> int:
        """How many elements of `dtype` one vector register holds."""
        return self.vector_bytes // dtype.bytes

    @user_api
    def has(self, feature: str) -> bool:
        """Whether code may use `feature`, by LLVM's name ("fma", "avx512vnni").

        Of a GPU a feature is the architecture from which on there is what is asked for: "sm_80".
        """
        if self.kind == "cuda" and feature.startswith("sm_"):
            own, least = (int(x.removeprefix("sm_").rstrip("a")) for x in (self.cpu, feature))
            return own >= least
        return f"+{feature}" in self.features.split(",")

    @property
    def has_fma(self) -> bool:
        """Whether one instruction multiplies and adds with one rounding."""
        return self.has("fma") or not self.is_x86

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    def __str__(self) -> str:
        return self.name if self.name == self.tune else f"{self.name} ({self.tune})"
