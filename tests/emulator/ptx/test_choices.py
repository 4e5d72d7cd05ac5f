"""Comparisons, choices, moves and tests of values."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import (
    bits_of,
    entry,
    floats,
    integers,
    on_lanes,
    operation,
    values_of,
)

COUNT = 256
COMPARE: dict[str, Callable[..., bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge,
}  # fmt: skip
SAME = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def holds(name: str, word: str, arrays: list[np.ndarray]) -> np.ndarray:
    body = f"setp.{name}.{word} %p0, %a, %b; selp.b32 %d0, 1, 0, %p0;"
    return on_lanes(body, arrays, [np.uint32])[0].astype(bool)


@pytest.mark.parametrize("word", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers(word: str) -> None:
    dtype = np.dtype(word.replace("s", "int").replace("u", "uint"))
    a, b = integers(dtype, COUNT, 1), integers(dtype, COUNT, 2)
    for name, compare in COMPARE.items():
        np.testing.assert_array_equal(holds(name, word, [a, b]), compare(a, b))
    if word[0] == "u":
        for name, other in SAME.items():
            np.testing.assert_array_equal(holds(name, word, [a, b]), COMPARE[other](a, b))


@pytest.mark.parametrize("word", ["f16", "bf16", "f32", "f64"])
def test_floats_ordered_and_not(word: str) -> None:
    a, b = (bits_of(floats(word, COUNT, k), word) for k in (1, 2))
    b = np.where(np.arange(COUNT) % 3 == 0, a, b)
    u, v = values_of(a, word), values_of(b, word)
    missing = np.isnan(u) | np.isnan(v)
    for name, compare in COMPARE.items():
        np.testing.assert_array_equal(holds(name, word, [a, b]), compare(u, v) & ~missing)
        np.testing.assert_array_equal(holds(name + "u", word, [a, b]), compare(u, v) | missing)
    np.testing.assert_array_equal(holds("num", word, [a, b]), ~missing)
    np.testing.assert_array_equal(holds("nan", word, [a, b]), missing)


def test_flushed_before_comparing() -> None:
    tiny = np.array([1e-40, -1e-40, 1e-38, 2e-38] * 8, np.float32)
    zero = np.zeros(32, np.float32)
    np.testing.assert_array_equal(holds("gt", "f32", [tiny, zero]), tiny > 0)
    np.testing.assert_array_equal(holds("gt.ftz", "f32", [tiny, zero]), tiny > np.float32(1.5e-38))


def test_two_results_and_a_predicate_between() -> None:
    a, b = integers(np.int32, COUNT, 1), integers(np.int32, COUNT, 2)
    body = """
        setp.lt.s32 %p0, %a, 0;
        setp.lt.and.s32 %p1|%p2, %a, %b, %p0;
        setp.eq.or.s32 %p3|%p4, %a, %b, !%p0;
        setp.ne.xor.s32 %p0|%p5, %a, %b, %p0;
        selp.b32 %d0, 1, 0, %p1; selp.b32 %d1, 1, 0, %p2; selp.b32 %d2, 1, 0, %p3;
        selp.b32 %d3, 1, 0, %p4; selp.b32 %d4, 1, 0, %p0; selp.b32 %d5, 1, 0, %p5;"""
    found = [f.astype(bool) for f in on_lanes(body, [a, b], [np.uint32] * 6)]
    p = a < 0
    wanted = [(a < b) & p, ~(a < b) & p, (a == b) | ~p, (a != b) | ~p, (a != b) ^ p, (a == b) ^ p]
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(f, w)


@pytest.mark.parametrize("word", ["f16", "bf16"])
def test_pairs(word: str) -> None:
    a, b = (bits_of(floats(word, 2 * COUNT, k), word) for k in (1, 2))
    body = f"""
        setp.ltu.{word}x2 %p0|%p1, %a, %b;
        selp.b32 %d0, 1, 0, %p0; selp.b32 %d1, 1, 0, %p1;
        set.ltu.{word}x2.{word}x2 %d2, %a, %b;"""
    low, high, both = on_lanes(body, [a.view(np.uint32), b.view(np.uint32)], [np.uint32] * 3)
    u, v = values_of(a, word), values_of(b, word)
    wanted = (u < v) | np.isnan(u) | np.isnan(v)
    np.testing.assert_array_equal(low, wanted[::2])
    np.testing.assert_array_equal(high, wanted[1::2])
    np.testing.assert_array_equal(values_of(both.view(np.uint16), word), wanted.astype(float))


def test_set() -> None:
    a, b = integers(np.int32, COUNT, 1), integers(np.int32, COUNT, 2)
    body = "set.lt.u32.s32 %d0, %a, %b; set.lt.f32.s32 %d1, %a, %b;"
    full, one = on_lanes(body, [a, b], [np.uint32, np.float32])
    np.testing.assert_array_equal(full, np.where(a < b, np.uint32(0xFFFFFFFF), np.uint32(0)))
    np.testing.assert_array_equal(one, (a < b).astype(np.float32))


def test_choices() -> None:
    a, b = integers(np.int32, COUNT, 1), integers(np.int32, COUNT, 2)
    c = integers(np.int32, COUNT, 3)
    f = floats("f32", COUNT, 4).astype(np.float32)
    body = "slct.b32.s32 %d0, %a, %b, %c; slct.b32.f32 %d1, %a, %b, %e;"
    whole, real = on_lanes(body, [a, b, c, f], [np.int32, np.int32])
    np.testing.assert_array_equal(whole, np.where(c >= 0, a, b))
    np.testing.assert_array_equal(real, np.where(f >= 0, a, b))
    flushed = operation("slct.ftz.b32.f32", [a[:2], b[:2], np.full(2, -1e-40, "f4")], np.int32)
    np.testing.assert_array_equal(flushed, a[:2])


def test_apart_and_together() -> None:
    a = integers(np.uint64, COUNT, 1)
    body = """
        mov.b64 {%t1, %t2}, %a; mov.b64 %d0, {%t2, %t1};
        mov.b64 {_, %d1}, %a;
        mov.b32 {%h1, %h2}, %t1; mov.b32 %d2, {%h2, %h1};
        mov.b64 {%h1, %h2, %h3, %h4}, %a; mov.b64 %d3, {%h4, %h3, %h2, %h1};"""
    declared = ".reg .b16 %h<5>;" + body
    found = on_lanes(declared, [a], [np.uint64, np.uint32, np.uint32, np.uint64])
    half = np.uint64(32)
    np.testing.assert_array_equal(found[0], (a >> half) | (a << half))
    np.testing.assert_array_equal(found[1], (a >> half).astype(np.uint32))
    low = a.astype(np.uint32)
    np.testing.assert_array_equal(found[2], (low >> np.uint32(16)) | (low << np.uint32(16)))
    np.testing.assert_array_equal(
        found[3], a.view(np.uint16).reshape(-1, 4)[:, ::-1].copy().view(np.uint64).ravel()
    )


@pytest.mark.parametrize("word", ["f32", "f64"])
def test_kinds_of_numbers(word: str) -> None:
    bits = bits_of(floats(word, COUNT, 1), word)
    v = values_of(bits, word)
    low = {"f32": 2.0**-126, "f64": 2.0**-1022}[word]
    normal = np.isfinite(v) & (abs(v) >= low)
    wanted = {"finite": np.isfinite(v), "infinite": np.isinf(v), "number": ~np.isnan(v),
              "notanumber": np.isnan(v), "normal": normal,
              "subnormal": np.isfinite(v) & ~normal & (v != 0)}  # fmt: skip
    for name, w in wanted.items():
        body = f"testp.{name}.{word} %p0, %a; selp.b32 %d0, 1, 0, %p0;"
        np.testing.assert_array_equal(on_lanes(body, [bits], [np.uint32])[0], w)


def test_spaces_of_generic_addresses() -> None:
    body = """
        .shared .align 4 .b8 s[16]; .local .align 4 .b8 l[16];
        cvta.shared.u64 %w1, s; cvta.local.u64 %w2, l; cvta.to.shared.u64 %w3, %w1;
        isspacep.shared %p0, %w1; isspacep.local %p1, %w2; isspacep.global %p2, %at0;
        isspacep.global %p3, %w1; isspacep.shared::cta %p4, %w2;
        selp.b32 %d0, 1, 0, %p0; selp.b32 %t0, 2, 0, %p1; or.b32 %d0, %d0, %t0;
        selp.b32 %t0, 4, 0, %p2; or.b32 %d0, %d0, %t0;
        selp.b32 %t0, 8, 0, %p3; or.b32 %d0, %d0, %t0;
        selp.b32 %t0, 16, 0, %p4; or.b32 %d0, %d0, %t0;
        st.b32 [%w1], 5; st.b32 [%w2], 6; st.shared.b32 [%w3+4], 7;
        ld.shared.b32 %d1, [s]; ld.local.b32 %d2, [l]; ld.b32 %d3, [%w1+4];"""
    found = on_lanes(body, [np.zeros(1, np.uint32)], [np.uint32] * 4)
    assert [int(f[0]) for f in found] == [7, 5, 6, 7]


@pytest.mark.parametrize("line", [
    "setp.lo.s32 %p1, %r1, %r2", "setp.lt.b32 %p1, %r1, %r2", "setp.ltx.f32 %p1, %r1, %r2",
    "setp.lt.nand.s32 %p1, %r1, %r2, %p2", "setp.eq.f16x2 %p1, %r1, %r2",
    "mov.u32 {%h1, %h2}, %r1", "testp.odd.f32 %p1, %r1",
])  # fmt: skip
def test_unknown_forms(line: str) -> None:
    with pytest.raises(UnsupportedError, match=line.split()[0]):
        run(entry([], line + ";"), block=32)
