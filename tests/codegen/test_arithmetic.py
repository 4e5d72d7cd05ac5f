"""Every operation in every type, scalar, in vectors and in masked tails, against the contract."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import tensorir as tir
from tensorir.ir import build, numerics
from tensorir.ir.dtype import ALL, BOOL, DType, dtype
from tensorir.ir.numerics import limits
from tests.codegen.machine import call, source_of

FLOATS = [d for d in ALL if d.is_float]
INTS = [d for d in ALL if d.is_integer]
RNG = np.random.default_rng(7)


def values(d: DType) -> np.ndarray:
    """Values at which something may go wrong, and some others."""
    if d == BOOL:
        return np.array([True, False, True, True, False, False, True])
    if d.is_integer:
        low, high = limits(d)
        some = [low, low + 1, -3, -2, -1, 0, 1, 2, 3, 7, d.bits - 1, d.bits, high - 1, high]
        kept = [v for v in some if low <= v <= high]
        return np.array(kept, d.numpy)
    with np.errstate(all="ignore"):
        some = [0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.3, -7.25, 1e-3, 65504.0, -65520.0, 1e38,
                math.inf, -math.inf, math.nan, 6e-8, 1e-40, 257.0, 1 + 2**-8]  # fmt: skip
        more = RNG.standard_normal(12)
        return np.concatenate([np.array(some), more]).astype(d.numpy)


def pairs(d: DType) -> tuple[np.ndarray, np.ndarray]:
    v = values(d)
    grid = list(itertools.product(range(len(v)), repeat=2))
    return v[[a for a, _ in grid]], v[[b for _, b in grid]]


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    if dtype(got.dtype).is_float:
        with np.errstate(all="ignore"):
            a, b = got.astype(np.float64), want.astype(np.float64)
        nan = np.isnan(a) & np.isnan(b)
        bad = ~nan & ((a != b) | (np.signbit(a) != np.signbit(b)))
    else:
        bad = got != want
    assert not bad.any(), (np.nonzero(bad)[0][:5], got[bad][:5], want[bad][:5])


def check(function, inputs: list[np.ndarray], want: np.ndarray, *, signs: bool = True) -> None:
    """The same from scalar code, vectors with a masked tail, and vectors of another width."""
    n = len(inputs[0])
    tensors = [tir.placeholder((n,), dtype(x.dtype), name=f"X{k}") for k, x in enumerate(inputs)]
    out = tir.compute((n,), lambda i: function(*(t[i] for t in tensors)), name="Y")
    for width in (0, 4, 16):
        s = tir.schedule(out)
        if width and n > 1:
            s = s.vectorize("i", width)
        found = call(source_of(s), inputs)
        assert found.status == 0
        got = found.out
        if not signs and dtype(got.dtype).is_float:
            with np.errstate(all="ignore"):
                zero = dtype(got.dtype).numpy.type(0)
                got, w = np.where(got == zero, zero, got), np.where(want == zero, zero, want)
            same(got, w)
        else:
            same(got, want)


BINARY_FLOAT = ["add", "sub", "mul", "div", "min", "max", "fmin", "fmax", "copysign"]
BINARY_INT = ["add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max",
              "and", "or", "xor", "shl", "shr"]  # fmt: skip
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY_FLOAT)
def test_binary_float(name: str, d: DType) -> None:
    a, b = pairs(d)
    with np.errstate(all="ignore"):
        want = numerics.apply(name, (a, b), d)
    signs = name[-3:] not in ("min", "max")
    check(lambda x, y: build.binary(name, x, y), [a, b], want, signs=signs)


@pytest.mark.parametrize("d", INTS, ids=str)
@pytest.mark.parametrize("name", BINARY_INT)
def test_binary_integer(name: str, d: DType) -> None:
    a, b = pairs(d)
    with np.errstate(all="ignore"):
        want = numerics.apply(name, (a, b), d)
    check(lambda x, y: build.binary(name, x, y), [a, b], want)


@pytest.mark.parametrize("d", [x for x in ALL if x != BOOL], ids=str)
@pytest.mark.parametrize("name", COMPARE)
def test_comparison(name: str, d: DType) -> None:
    a, b = pairs(d)
    with np.errstate(all="ignore"):
        want = numerics.apply(name, (a, b), BOOL)
    check(lambda x, y: build.compare(name, x, y), [a, b], want)


@pytest.mark.parametrize("name", ["and", "or", "xor", "eq", "ne", "lt", "ge"])
def test_logic(name: str) -> None:
    a, b = pairs(BOOL)
    want = {
        "and": a & b, "or": a | b, "xor": a ^ b, "eq": a == b, "ne": a != b, "lt": a < b,
        "ge": a >= b,
    }[name]  # fmt: skip
    check(lambda x, y: build.binary(name, x, y), [a, b], want)
    check(lambda x, y: ~x, [a, b], ~a)


UNARY_FLOAT = ["neg", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt"]


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("name", [*UNARY_FLOAT, "isnan", "isinf", "isfinite"])
def test_unary_float(name: str, d: DType) -> None:
    a = values(d)
    with np.errstate(all="ignore"):
        want = numerics.apply(name, (a,), BOOL if name.startswith("is") else d)
    check(lambda x: build.unary(name, x), [a], want)


@pytest.mark.parametrize("d", INTS, ids=str)
@pytest.mark.parametrize("name", ["neg", "abs", "sign", "not", "popcount", "clz"])
def test_unary_integer(name: str, d: DType) -> None:
    a = values(d)
    want = a if (name, d.kind) == ("abs", "uint") else numerics.apply(name, (a,), d)
    check(lambda x: build.unary(name, x), [a], want)


@pytest.mark.parametrize("to", ALL, ids=str)
@pytest.mark.parametrize("of", ALL, ids=str)
def test_cast(of: DType, to: DType) -> None:
    a = values(of)
    if of.bits == 64 and of.is_integer:
        a = np.concatenate([a, RNG.integers(*limits(of), 100, dtype=of.numpy)])
        a = np.concatenate([a, a >> 9, (1 << RNG.integers(0, 62, 64)).astype(of.numpy) + 1])
    if of.bits == 64 and of.is_float:
        a = np.concatenate([a, RNG.integers(0, 1 << 63, 500).view(np.float64)])
        near = RNG.integers(0, 1 << 16, 500).astype(np.uint32) << 16 | 0x8000
        a = np.concatenate([a, near.view(np.float32).astype(np.float64) * (1 + 2.0**-40)])
    with np.errstate(all="ignore"):
        want = numerics.convert(a, to)
    check(lambda x: build.cast(x, to), [a], want)


@pytest.mark.parametrize("d", FLOATS, ids=str)
def test_fma_rounds_once(d: DType) -> None:
    with np.errstate(all="ignore"):
        a, b, c = (
            np.concatenate([values(d), RNG.standard_normal(400).astype(d.numpy)]) for _ in range(3)
        )
        b, c = RNG.permutation(b), RNG.permutation(c) * d.numpy.type(2.0**-7)
        want = numerics.fma(a, b, c)
    check(build.fma, [a, b, c], want)


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_ldexp(d: DType, target: str) -> None:
    x = np.tile(values(d), 12)
    n = RNG.integers(-320, 320, len(x)).astype(np.int32)
    n[:8] = [-(2**31), 2**31 - 1, 0, 1, -1, 1100, -1100, 2000]
    with np.errstate(all="ignore"):
        want = numerics.apply("ldexp", (x, n), d)
    X = tir.placeholder(x.shape, d, name="X")
    N = tir.placeholder(x.shape, "int32", name="N")
    out = tir.compute(x.shape, lambda i: build.binary("ldexp", X[i], N[i]), name="Y")
    s = tir.schedule(out).vectorize("i", 8)
    same(call(source_of(s, target), [x, n]).out, want)


def test_reinterpret() -> None:
    a = values(dtype("float32"))
    check(lambda x: build.reinterpret(x, "int32"), [a], a.view(np.int32))
    b = values(dtype("bfloat16"))
    check(lambda x: build.reinterpret(x, "uint16"), [b], b.view(np.uint16))
    c = values(dtype("float16"))
    check(lambda x: build.reinterpret(x, "int16"), [c], c.view(np.int16))


@pytest.mark.parametrize("d", [x for x in INTS if x.bits in (8, 32, 64)], ids=str)
def test_division_by_constants(d: DType) -> None:
    a = values(d)
    low, _ = limits(d)
    for k in [v for v in (1, 2, 3, 8, 10, 100, -1, -2, -3, -8, low) if v != 0 and v >= low]:
        b = np.full_like(a, k)
        for name in ("floordiv", "floormod", "truncdiv", "truncmod"):
            want = numerics.apply(name, (a, b), d)
            n = len(a)
            X = tir.placeholder((n,), d, name="X")
            y = tir.compute((n,), lambda i: build.binary(name, X[i], build.const(k, d)), name="Y")
            same(call(source_of(tir.schedule(y).vectorize("i", 8)), [a]).out, want)


@pytest.mark.parametrize("wide", ["int16", "int32", "int64"])
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_one_lane_of_a_narrowing_store_writes_one_element(wide: str, target: str) -> None:
    # LLVM 22.1 writes it in the type before the cut where the mask is a constant with one lane
    n, width = 17, 16
    x = np.arange(n).astype(wide)
    room = np.full(n + 16, -51, np.int8)
    X = tir.placeholder((n,), wide, name="X")
    Y = tir.compute((n,), lambda i: tir.cast(X[i] + 1, "int8"), name="Y")
    tir.build(tir.schedule(Y).vectorize("i", width), target=target)(x, room[:n])
    assert room.tolist() == [*range(1, n + 1), *[-51] * 16]
