"""What tensorize, retype, pad_reduction and declared instructions refuse, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import said
from tests.errors.test_reductions import without_place

Refused = Callable[[], object]
BYTES = "avx512vnni.vpdpbusd.512"


def product(n: object = 70, k: object = 30) -> tir.Schedule:
    A, B = tir.placeholder((37, k), "int8", name="A"), tir.placeholder((k, n), "int8", name="B")
    r = tir.reduce_axis(k, name="k")
    C = tir.compute(
        (37, n),
        lambda i, j: tir.sum(
            tir.cast(A[i, r], "int32") * tir.cast(B[r, j], "int32"), axis=r, dtype="int32"
        ),
        name="C",
    )
    return tir.schedule(C)


def tiled(s: tir.Schedule) -> tir.Schedule:
    s = s.split("j", 16, into=("jo", "ji")).split("k", 4, into=("ko", "kg"))
    return s.reorder("i", "jo", "ko", "ji", "kg")


def packed(s: tir.Schedule) -> tir.Schedule:
    s = tiled(s).cache_read("B", name="P")
    return s.transform_layout("P", lambda k, j: (j // 16, k // 4, j % 16, k % 4))


def taken() -> tir.Schedule:
    A, places = tir.placeholder((9,), name="A"), tir.placeholder((5,), "int32", name="I")
    return tir.schedule(tir.compute((5,), lambda i: A[places[i]], name="T"))


def roots() -> tir.Schedule:
    a = tir.placeholder((8,), name="a")
    c = tir.compute((8,), lambda i: tir.sqrt(a[i]), name="c")
    tir.intrinsic("test.root", c, [(a, ("i",))], llvm="llvm.sqrt.v8f32", features="avx2")
    n = tir.var("n")
    E = tir.placeholder((n, 16), name="E")
    return tir.schedule(tir.compute((n, 16), lambda i, j: tir.sqrt(E[i, j]), name="F"))


def declared(over: tuple[str, ...] = ("i",), **more: object) -> object:
    a = tir.placeholder((8,), name="a")
    c = tir.compute((8,), lambda i: tir.sqrt(a[i]), name="c")
    return tir.intrinsic("test.again", c, [(a, over)], llvm="llvm.sqrt.v8f32", **more)


CASES: dict[str, tuple[Refused, str]] = {
    "another_meaning": (
        lambda: roots().split("j", 8).tensorize("ji", "avx2.vpmaddwd.256"),
        """\
ScheduleError: tensorize: the nest under 'ji' is not what avx2.vpmaddwd.256 computes

  the nest                                    avx2.vpmaddwd.256
  for ji in 0..8                              for i in 0..8
    F[i, 8*jo + ji] = sqrt(E[i, 8*jo + ji])     for k in 0..2
  F: float32, E: float32                          c[i] = c[i] + int32(a[k]) * int32(b[i, k])
                                              a: int16[2], b: int16[8, 2], c: int32[8]

  why  the expressions differ, or the types of what they read (see retype).
""",
    ),
    "another_type": (
        lambda: tiled(product(64, 32)).tensorize("ji", BYTES),
        """\
ScheduleError: tensorize: the nest under 'ji' is not what avx512vnni.vpdpbusd.512 computes

  the nest
  for ji in 0..16
    for kg in 0..4
      C[i, 16*jo + ji] = C[i, 16*jo + ji] + int32(A[i, 4*ko + kg]) * int32(B[4*ko + kg, 16*jo + ji])
  C: int32, A: int8, B: int8

  avx512vnni.vpdpbusd.512
  for i in 0..16
    for k in 0..4
      c[i] = c[i] + int32(a[k]) * int32(b[i, k])
  c: int32[16], a: uint8[4], b: int8[16, 4]

  why  the expressions differ, or the types of what they read (see retype).
""",
    ),
    "another_layout": (
        lambda: tiled(product(64, 32).retype("C", "A", "uint8", 128)).tensorize("ji", BYTES),
        """\
ScheduleError: tensorize: the nest under 'ji' is not what avx512vnni.vpdpbusd.512 computes

  the nest
  for ji in 0..16
    for kg in 0..4
      C[i, 16*jo + ji] = C[i, 16*jo + ji] + int32(A_uint8[i, 4*ko + kg]) * int32(B[4*ko + kg, 16*jo + ji])
  C: int32, A_uint8: uint8, B: int8

  avx512vnni.vpdpbusd.512
  for i in 0..16
    for k in 0..4
      c[i] = c[i] + int32(a[k]) * int32(b[i, k])
  c: int32[16], a: uint8[4], b: int8[16, 4]

  why  B moves by one element along 'ji', b by 4: transform_layout gives a buffer another layout.
""",
    ),
    "side_by_side": (
        lambda: roots().split("i", 8).reorder("io", "j", "ii").tensorize("ii", "test.root"),
        """\
ScheduleError: tensorize: the nest under 'ii' is not what test.root computes

  the nest                                    test.root
  for ii in 0..min(8, n - 8*io)               for i in 0..8
    F[8*io + ii, j] = sqrt(E[8*io + ii, j])     c[i] = sqrt(a[i])
  F: float32, E: float32                      a: float32[8], c: float32[8]

  why  E moves by 16 elements along 'ii', a by 1: transform_layout gives a buffer another layout.
""",
    ),
    "another_tile": (
        lambda: packed(product(64, 32).retype("C", "A", "uint8", 128)).tensorize("ko", BYTES),
        """\
ScheduleError: tensorize: the nest under 'ko' is not what avx512vnni.vpdpbusd.512 computes

  the nest
  for ko in 0..8
    for ji in 0..16
      for kg in 0..4
        C[i, 16*jo + ji] = C[i, 16*jo + ji] + int32(A_uint8[i, 4*ko + kg]) * int32(P[4*ko + kg, 16*jo + ji])
  C: int32, A_uint8: uint8, P: int8

  avx512vnni.vpdpbusd.512
  for i in 0..16
    for k in 0..4
      c[i] = c[i] + int32(a[k]) * int32(b[i, k])
  c: int32[16], a: uint8[4], b: int8[16, 4]

  why  the tile is 16 x 4, the lanes outside what is summed.
""",
    ),
    "not_full_summed": (
        lambda: packed(product(64, 30).retype("C", "A", "uint8", 128)).tensorize("ji", BYTES),
        """\
ScheduleError: tensorize: the last tile is not full along 'kg', which has fewer than 4 points there

  why  the instruction takes whole groups: pad_reduction, before the split, fills the last one with
       zeros.
""",
    ),
    "not_full_lanes": (
        lambda: packed(product(70, 32).retype("C", "A", "uint8", 128)).tensorize("ji", BYTES),
        """\
ScheduleError: tensorize: the last tile is not full along 'ji', which has fewer than 16 points there

  why  its lanes past the end would write cells that others own: cache_write first keeps the tile in
       a buffer.
""",
    ),
    "not_constant": (
        lambda: roots().tensorize("i", "test.root"),
        """\
ScheduleError: tensorize: the extent of 'i' is not a constant

  why  test.root takes a tile of 8.
  try  s.split("i", 8)              tiles of it
""",
    ),
    "several_statements": (
        lambda: product().tensorize("j", BYTES),
        """\
ScheduleError: tensorize: 'j' is around several statements: C.init, C

  why  an instruction replaces one; decompose_reduction takes an init out.
""",
    ),
    "marked": (
        lambda: roots().vectorize("j").tensorize("i", "test.root"),
        """\
ScheduleError: tensorize: 'j' is marked already: vectorize
""",
    ),
    "unknown": (
        lambda: roots().tensorize("j", "avx512vnni.vpdpbus.512"),
        """\
ScheduleError: tensorize: no instruction 'avx512vnni.vpdpbus.512'; did you mean 'avx512vnni.vpdpbusd.512'?

  why  there are avx512vnni.vpdpbusd.512, avx512vnni.vpdpwssd.512, avx512bf16.vdpbf16ps.512,
       avx512vnni.vpdpbusd.256, avx512vnni.vpdpwssd.256, avx512bf16.vdpbf16ps.256,
       avx512bw.vpmaddwd.512, avx2.vpmaddwd.256, avxvnniint8.vpdpbssd.256, and those that
       tir.intrinsic declared.
""",
    ),
    "no_name": (
        lambda: roots().tensorize("j", 3),
        """\
ArgumentTypeError: tensorize: an instruction is named by a string, not 3
""",
    ),
    "feature": (
        lambda: tir.build(roots().split("j", 8).tensorize("ji", "test.root"), target="x86-64-v2"),
        """\
UnsupportedError: tensorize: test.root needs avx2, which target x86-64-v2 (generic) does not have
  try  a schedule for this target, without that instruction
""",
    ),
    "retype_range": (
        lambda: product().retype("C", "A", "uint8"),
        """\
ScheduleError: retype: uint8 does not hold every number of A

  why  int8 goes from -128 to 127, uint8 from 0 to 255.
""",
    ),
    "retype_float_by": (
        lambda: product().retype("C", "A", "float32", 2),
        """\
ScheduleError: retype: by= moves integers into integers, not int8 into float32
""",
    ),
    "retype_not_converted": (
        lambda: roots().retype("F", "E", "float64"),
        """\
ScheduleError: retype: F computes with E as float32

  why  only a tensor that is converted at once may be read in another type.
""",
    ),
    "retype_place": (
        lambda: taken().retype("T", "I", "int64"),
        """\
ScheduleError: retype: T takes a place in A from I

  why  only a tensor whose values are converted may be read in another type.
""",
    ),
    "retype_sum_range": (
        lambda: product().retype("C", "C", "int16"),
        """\
ScheduleError: retype: int16 does not hold every sum of C

  why  it has 30 terms from -16256 to 16384; int16 goes from -32768 to 32767.
""",
    ),
    "retype_placed": (
        lambda: product().split("j", 8).cache_read("A", at="jo").retype("C", "A_cache", "int16"),
        """\
ScheduleError: retype: A_cache exists only inside loops

  why  retype comes before compute_at and cache_read.
""",
    ),
    "pad_split": (
        lambda: product().split("k", 4).pad_reduction("ko", 4),
        """\
ScheduleError: pad_reduction: 'ko' is not a reduction loop as it was declared

  why  it comes before split and other steps on that loop.
""",
    ),
    "pad_no_reduction": (
        lambda: product().pad_reduction("j", 4),
        """\
ScheduleError: pad_reduction: 'j' is not around one reduction alone
""",
    ),
    "declared_twice": (
        lambda: tir.intrinsic(BYTES, None, [], llvm="x"),  # type: ignore[arg-type]
        """\
ArgumentError: intrinsic: 'avx512vnni.vpdpbusd.512' is declared by the library; choose another name
""",
    ),
    "declared_axis": (
        lambda: declared(("q",)),
        """\
ArgumentError: intrinsic test.again: no axis 'q'; there are i
""",
    ),
    "declared_numerics": (
        lambda: declared(numerics={"ordr": "any"}),
        """\
ArgumentError: intrinsic test.again: numerics has no 'ordr'; did you mean 'order'?
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    ask, text = CASES[name]
    with pytest.raises(tir.TensorIRError) as refused:
        ask()
    assert without_place(said(refused.value)).rstrip("\n") == text.rstrip("\n")
