"""`online`: a max and the sums that follow it in one pass, against the plain order and numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tensorir as tir

ROWS, KEYS = 6, 37
INF = float("inf")
Body = Callable[[tir.Expr, tir.Expr], tir.Expr]


def guarded(x: tir.Expr, m: tir.Expr) -> tir.Expr:
    return tir.select(m == -INF, 0.0, tir.exp(x - m))


BODIES: dict[str, Body] = {
    "exp": lambda x, m: tir.exp(x - m),
    "exp2": lambda x, m: tir.exp2(x - m),
    "scaled": lambda x, m: tir.exp((x - m) * 0.25),
    "guarded": guarded,
    "product": lambda x, m: 3.0 * tir.exp(x - m) / 2.0,
    "negative": lambda x, m: -tir.exp(x - m),
}


def statistics(
    body: Body, *, rows: object = ROWS, keys: object = KEYS, tile: int = 8, low: bool = False
) -> tir.Schedule:
    """A max (or min) and a sum of powers for each row, the keys in tiles, not yet in one pass."""
    A = tir.placeholder((rows, keys), name="A")
    k, j = tir.reduce_axis(keys, name="k"), tir.reduce_axis(keys, name="j")
    best = tir.min if low else tir.max
    start = INF if low else -INF
    m = tir.compute((rows,), lambda i: best(A[i, k], axis=k, init=start), name="m")
    sums = tir.compute((rows,), lambda i: tir.sum(body(A[i, j], m[i]), axis=j), name="l")
    B = tir.compute((rows,), lambda i: m[i] + sums[i], name="B")
    s = tir.schedule(B).compute_at("l", "B.i").compute_at("m", "B.i")
    return s.split("k", tile).split("j", tile)


def data(seed: int = 0, rows: int = ROWS, keys: int = KEYS) -> np.ndarray:
    """Rows that grow, fall, start with nothing, are nothing, hold an infinity, and a NaN."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rows, keys)).astype("float32") * 20
    kinds: list[Callable[[np.ndarray], object]] = [
        lambda x: x.sort(),
        lambda x: x[::-1].sort(),
        lambda x: x.__setitem__(slice(0, 17), -np.inf),
        lambda x: x.fill(-np.inf),
        lambda x: x.__setitem__(20, np.inf),
        lambda x: x.__setitem__(9, np.nan),
        lambda x: x.__setitem__(slice(3, None), -200),
        lambda x: x.__setitem__(slice(0, 36), -200),
    ]
    for row, x in enumerate(a):
        kinds[row % len(kinds)](x)
    return a


def same(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", BODIES)
def test_extremes(name: str) -> None:
    s = statistics(BODIES[name], rows=8)
    a = data(rows=8)
    same(tir.build(s.online("jo", ("m", "l")))(a), tir.build(s)(a))


@pytest.mark.parametrize("tile", [1, 5, 37, 64])
def test_tiles(tile: int) -> None:
    s = statistics(BODIES["exp"], rows=8, tile=tile)
    a = data(1, rows=8)
    same(tir.build(s.online("jo", ("m", "l")))(a), tir.build(s)(a))


def test_a_min() -> None:
    s = statistics(lambda x, m: tir.exp(m - x), rows=8, low=True)
    a = -data(2, rows=8)
    same(tir.build(s.online("ko", ("m", "l")))(a), tir.build(s)(a))


def test_sizes_of_the_call() -> None:
    s = statistics(BODIES["exp"], rows=tir.var("n"), keys=tir.var("t"))
    kernel, plain = tir.build(s.online("jo", ("m", "l"))), tir.build(s)
    for rows, keys in ((8, 37), (8, 40), (3, 1), (1, 8), (0, 5)):
        a = data(rows + keys, rows, max(keys, 37))[:, :keys].copy()
        same(kernel(a), plain(a))


def test_random_rows_against_float64() -> None:
    s = statistics(BODIES["exp"], rows=64, keys=300, tile=16)
    kernel = tir.build(s.online("jo", ("m", "l")))
    rng = np.random.default_rng(5)
    a = (rng.standard_normal((64, 300)) * rng.uniform(0, 90, (64, 1))).astype("float32")
    wide = a.astype("float64")
    m = wide.max(1)
    same(kernel(a), m + np.exp(wide - m[:, None]).sum(1))


def weighted(rows: int = 8, keys: int = KEYS, width: int = 3) -> tir.Schedule:
    """A max, the powers, their sum, and a product with weights: attention but for the scores."""
    A, V = tir.placeholder((rows, keys), name="A"), tir.placeholder((keys, width), name="V")
    k, j, r = (tir.reduce_axis(keys, name=x) for x in "kjr")
    m = tir.compute((rows,), lambda i: tir.max(A[i, k], axis=k), name="m")
    p = tir.compute((rows, keys), lambda i, x: tir.exp(A[i, x] - m[i]), name="p")
    sums = tir.compute((rows,), lambda i: tir.sum(p[i, j], axis=j), name="l")
    o = tir.compute((rows, width), lambda i, c: tir.sum(p[i, r] * V[r, c], axis=r), name="o")
    B = tir.compute((rows, width), lambda i, c: o[i, c] / sums[i], name="B")
    s = tir.schedule(B)
    for stage in ("l", "o", "p", "m"):
        s = s.compute_at(stage, "B.i")
    return s.split("k", 8).split("j", 8).split("r", 8, into=("ro", "ri")).reorder("ro", "o.c", "ri")


LOOPS = """\
for i in 0..8
  alloc m: float32 in global
  alloc o: float32 in global
  alloc l: float32 in global
  l[i] = 0.0
  m[i] = -inf
  for o.init.o.c in 0..3
    o[i, o.init.o.c] = 0.0
  for ro in 0..5
    alloc p: float32 in global
    alloc m_old: float32 in global
    alloc m_factor: float32 in global
    m_old[i] = m[i]
    for ki in 0..min(8, 37 - 8*ro)
      m[i] = max(m[i], A[i, 8*ro + ki])
    m_factor[i] = select(m_old[i] == m[i], 1.0, exp(m_old[i] - m[i]))
    for x in 0..min(8, 37 - 8*ro)
      p[i, 8*ro + x] = select(m[i] == -inf, 0.0, exp(A[i, 8*ro + x] - m[i]))
    l[i] = l[i] * m_factor[i]
    for ji in 0..min(8, 37 - 8*ro)
      l[i] = l[i] + p[i, 8*ro + ji]
    for o.rescale.c in 0..3
      o[i, o.rescale.c] = o[i, o.rescale.c] * m_factor[i]
    for o.c in 0..3
      for ri in 0..min(8, 37 - 8*ro)
        o[i, o.c] = fma(p[i, 8*ro + ri], V[8*ro + ri, o.c], o[i, o.c])
  l[i] = select(m[i] == -inf, nan, l[i])
  for o.nothing.c in 0..3
    o[i, o.nothing.c] = select(m[i] == -inf, nan, o[i, o.nothing.c])
  for c in 0..3
    B[i, c] = o[i, c] / l[i]"""


def test_three_stages_and_powers_between() -> None:
    plain = weighted()
    s = plain.online("ro", ("m", "l", "o"))
    assert str(s.loops()) == LOOPS
    a, v = data(3, rows=8), np.random.default_rng(3).standard_normal((KEYS, 3)).astype("float32")
    np.testing.assert_allclose(
        tir.build(s)(a, v), tir.build(plain)(a, v), rtol=1e-5, atol=1e-5, equal_nan=True
    )
    tir.build(s, validate=True)


def test_weights_that_are_no_numbers() -> None:
    plain = weighted()
    a = data(4, rows=8)
    kernel, slow = tir.build(plain.online("ro", ("m", "l", "o"))), tir.build(plain)
    for bad in (np.nan, np.inf):
        v = np.ones((KEYS, 3), "float32")
        v[1, 0], v[30, 1] = bad, bad
        assert (np.isnan(kernel(a, v)) == np.isnan(slow(a, v))).all()


def test_the_proof_is_told() -> None:
    s = weighted().online("ro", ("m", "l", "o"))
    assert s.step is not None
    assert s.step.reassociates
    assert s.step.notes == (
        "m compares A[i, k]",
        "l sums h * exp(A[i, x] - m[i]), so g(m) = exp(-m): what it has is multiplied by "
        "exp(m_old - m)",
        "o sums h * exp(A[i, x] - m[i]), so g(m) = exp(-m): what it has is multiplied by "
        "exp(m_old - m)",
    )


def test_the_trace_replays() -> None:
    s = weighted().online("ro", ("m", "l", "o"))
    assert s.step is not None
    assert s.step.text == 'online("ro", ("m", "l", "o"))'
    again = tir.replay(s.at(0), tir.Trace.from_json(s.trace.to_json()))
    assert str(again.loops()) == LOOPS


def test_more_steps_follow() -> None:
    plain = weighted()
    s = plain.online("ro", ("m", "l", "o")).parallel("i").vectorize("o.c", width=4)
    s = s.cache_write("o", "local", at="i")
    a, v = data(6, rows=8), np.random.default_rng(6).standard_normal((KEYS, 3)).astype("float32")
    np.testing.assert_allclose(
        tir.build(s)(a, v), tir.build(plain)(a, v), rtol=1e-5, atol=1e-5, equal_nan=True
    )
    assert not s.check("parallel", "ro")


def test_rows_of_a_triangle() -> None:
    n = 20
    A = tir.placeholder((n, n), name="A")
    k, j = tir.reduce_axis(n, name="k"), tir.reduce_axis(n, name="j")
    m = tir.compute((n,), lambda i: tir.max(A[i, k], axis=k, where=k < i, init=-INF), name="m")
    sums = tir.compute(
        (n,), lambda i: tir.sum(tir.exp(A[i, j] - m[i]), axis=j, where=j < i), name="l"
    )
    B = tir.compute((n,), lambda i: m[i] + sums[i], name="B")
    plain = tir.schedule(B).split("B.i", 4)
    plain = plain.compute_at("l", "io").compute_at("m", "io").split("k", 8).split("j", 8)
    plain = plain.reorder("ko", "m.i", "ki").reorder("jo", "l.i", "ji")
    s = plain.online("jo", ("m", "l"))
    assert "for jo in 0..(io//2 + 1)" in str(s.loops())
    # the first row compares nothing, and sums nothing
    assert "for l.nothing.i in max(0, 1 - 4*io)..4" in str(s.loops())
    a = data(7, n, KEYS)[:, :n].copy()
    same(tir.build(s)(a), tir.build(plain)(a))
