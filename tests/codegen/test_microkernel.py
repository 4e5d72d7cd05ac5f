"""What the innermost loop of the matmul compiles to: nothing but loads and fma, in registers."""

from __future__ import annotations

import re

import pytest

import tensorir as tir
from schedules.cpu import matmul
from tensorir.codegen import cpu
from tests.codegen.machine import assembly_of, source_of


def declare(m: object, n: object, k: object) -> tir.Tensor:
    A, B = tir.placeholder((m, k), name="A"), tir.placeholder((k, n), name="B")
    r = tir.reduce_axis(k, name="k")
    return tir.compute((m, n), lambda i, j: tir.sum(A[i, r] * B[r, j], axis=r), name="C")


def loops(assembly: str) -> list[str]:
    """Bodies of the loops that are one basic block."""
    found = []
    for block in re.split(r"\n(?=\.LBB\w+:)", assembly):
        label = block.split(":")[0]
        back = re.search(rf"\n\tj\w+\t{re.escape(label)}\n", block)
        if back:
            found.append(block[: back.end()])
    return found


@pytest.mark.parametrize("sizes", ["constant", "symbolic"])
def test_avx512(sizes: str) -> None:
    target = cpu.target("znver4")
    shape = (1024, 1024, 1024) if sizes == "constant" else tuple(tir.var(x) for x in "MNK")
    s = matmul(tir.schedule(declare(*shape)), target, mr=6, nv=4, kc=512, ku=1, ask=0)
    inner = [b for b in loops(assembly_of(source_of(s, "znver4"))) if b.count("vfmadd") == 24]
    assert inner
    for body in inner:
        assert body.count("vbroadcastss") == 6
        assert len(re.findall(r"vmovups\t-?\d*\(", body)) == 4
        assert "%rsp" not in body
        assert len(body.splitlines()) < 55


def test_avx2() -> None:
    target = cpu.target("haswell")
    s = matmul(tir.schedule(declare(512, 512, 512)), target)
    source = source_of(s, "haswell")
    inner = [b for b in loops(assembly_of(source)) if b.count("vfmadd") >= 8]
    assert inner
    assert all("%rsp" not in b for b in inner)
    assert "%zmm" not in assembly_of(source)
