"""What online refuses, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.errors.saying import matmul, said, without_place

Refused = Callable[[], tir.Schedule]
Body = Callable[[tir.Expr, tir.Expr, tir.Expr], tir.Expr]


def rows(
    body: Body,
    *,
    placed: bool = True,
    tiles: tuple[int, int] = (4, 4),
    first: str = "max",
    start: float = 0.0,
) -> tir.Schedule:
    """A row's maximum m, and l, the sum of `body(x, m, w)`; keys in tiles `ko` and `jo`."""
    A, W = tir.placeholder((4, 16), name="A"), tir.placeholder((16,), name="W")
    k, j = tir.reduce_axis(16, name="k"), tir.reduce_axis(16, name="j")
    reduce = getattr(tir, first)
    m = tir.compute((4,), lambda i: reduce(A[i, k], axis=k), name="m")
    sums = tir.compute(
        (4,), lambda i: tir.sum(body(A[i, j], m[i], W[j]), axis=j, init=start), name="l"
    )
    B = tir.compute((4,), lambda i: m[i] + sums[i], name="B")
    s = tir.schedule(B)
    if placed:
        s = s.compute_at("l", "B.i").compute_at("m", "B.i")
    return s.split("k", tiles[0]).split("j", tiles[1])


def plain(x: tir.Expr, m: tir.Expr, w: tir.Expr) -> tir.Expr:
    return tir.exp(x - m) * w


def refused(body: Body, **keywords: object) -> Refused:
    return lambda: rows(body, **keywords).online("jo", ("m", "l"))  # type: ignore[arg-type]


def powers_used_twice() -> tir.Schedule:
    A = tir.placeholder((4, 16), name="A")
    k, j = tir.reduce_axis(16, name="k"), tir.reduce_axis(16, name="j")
    m = tir.compute((4,), lambda i: tir.max(A[i, k], axis=k), name="m")
    p = tir.compute((4, 16), lambda i, x: tir.exp(A[i, x] - m[i]), name="p")
    sums = tir.compute((4,), lambda i: tir.sum(p[i, j], axis=j), name="l")
    B = tir.compute((4, 16), lambda i, c: p[i, c] / sums[i], name="B")
    s = tir.schedule(B)
    for stage in ("l", "p", "m"):
        s = s.compute_at(stage, "B.i")
    return s.online("j", ("m", "l"))


def sum_of_sums() -> tir.Schedule:
    A = tir.placeholder((4, 16), name="A")
    k, j, r = (tir.reduce_axis(16, name=x) for x in "kjr")
    m = tir.compute((4,), lambda i: tir.max(A[i, k], axis=k), name="m")
    sums = tir.compute((4,), lambda i: tir.sum(tir.exp(A[i, j] - m[i]), axis=j), name="l")
    o = tir.compute((4,), lambda i: tir.sum(tir.exp(A[i, r] - m[i]) * sums[i], axis=r), name="o")
    B = tir.compute((4,), lambda i: o[i] / sums[i], name="B")
    s = tir.schedule(B)
    for stage in ("o", "l", "m"):
        s = s.compute_at(stage, "B.i")
    return s.online("r", ("m", "l", "o"))


CASES: dict[str, Refused] = {
    "one_stage": lambda: rows(plain).online("jo", ("l",)),
    "a_string": lambda: rows(plain).online("jo", "l"),
    "twice": lambda: rows(plain).online("jo", ("m", "m")),
    "no_reduction": lambda: rows(plain).online("jo", ("m", "B")),
    "not_outermost": lambda: rows(plain).online("ji", ("m", "l")),
    "apart": refused(plain, placed=False),
    "marked": lambda: rows(plain).unroll("ko").online("jo", ("m", "l")),
    "partials": lambda: rows(plain).rfactor("ji").online("l.ji", ("m", "l")),
    "no_axis": lambda: matmul(8, 8, 8).online("r", ("C", "C")),
    "first_of_another_kind": refused(plain, first="sum"),
    "itself": refused(lambda x, m, w: (x - m) * w),
    "wrong_sign": refused(lambda x, m, w: tir.exp(m - x)),
    "two_powers": refused(lambda x, m, w: tir.exp(x - m) * tir.exp(x - m)),
    "added": refused(lambda x, m, w: tir.exp(x - m) + w),
    "other": refused(lambda x, m, w: tir.exp(w - m)),
    "chosen": refused(lambda x, m, w: tir.select(m > 0.0, tir.exp(x - m), w)),
    "independent": refused(lambda x, m, w: x * w),
    "start": refused(plain, start=1.0),
    "other_tiles": refused(plain, tiles=(4, 8)),
    "init_inside": lambda: rows(plain).init_at("l", "jo").online("jo", ("m", "l")),
    "then_factored": lambda: rows(plain).online("jo", ("m", "l")).rfactor("jo"),
    "then_vectorized": lambda: rows(plain).online("jo", ("m", "l")).vector_reduce("ji", 4),
    "then_cached_in_parts": lambda: (
        rows(plain).online("jo", ("m", "l")).cache_write("l", at="jo", init="identity")
    ),
    "powers_used_twice": powers_used_twice,
    "sum_of_sums": sum_of_sums,
}

TEXTS: dict[str, str] = {
    "one_stage": """\
ScheduleError: online: at least two stages are needed, not 1

  why  a max, and the sums that use it.
""",
    "a_string": """\
ArgumentTypeError: online: stages is a sequence of stages, not 'l'""",
    "twice": """\
ScheduleError: online: m is given twice""",
    "no_reduction": """\
ScheduleError: online: B is not a reduction""",
    "not_outermost": """\
ScheduleError: online: 'ji' is not the outermost reduction loop of m or l

  try  s.online("jo", ("m", "l"))   is one
""",
    "apart": """\
ScheduleError: online: 'ko' of m and 'jo' of l are not side by side

  why  only reduction loops in one body become one: place the stages at one loop, and move the
       reduction loops outside the others there.
  try  s.compute_at("l", "B.i").compute_at("m", "B.i") computes them in one loop
""",
    "marked": """\
ScheduleError: online: 'ko' is marked unroll

  why  what one iteration rescales comes from the one before it.
""",
    "partials": """\
IllegalSchedule: online: l does not depend on m

  why  l[i] + l_rf[ji, i]: it needs no rescaling, and may run by itself.
""",
    "no_axis": """\
ScheduleError: online: no axis 'r'

  why  the axes are i, j and k.
""",
    "first_of_another_kind": """\
IllegalSchedule: online: m is the first stage, and its reducer is sum

  why  later stages follow a max or a min: then no power of the difference overflows.
""",
    "itself": """\
IllegalSchedule: online: l does not factor as h(x) * g(m): fma(A[i, j] - m[i], W[j], l[i])

  why  A[i, j] - m[i] is no product of a part without m and a power.
""",
    "wrong_sign": """\
IllegalSchedule: online: l does not factor as h(x) * g(m): l[i] + exp(m[i] - A[i, j])

  why  the power of m[i] - A[i, j] is not one of x - m.
""",
    "two_powers": """\
IllegalSchedule: online: l does not factor as h(x) * g(m): fma(exp(A[i, j] - m[i]), exp(A[i, j] - m[i]), l[i])

  why  two factors of it depend on m, and only one may.
""",
    "added": """\
IllegalSchedule: online: l does not factor as h(x) * g(m): l[i] + (exp(A[i, j] - m[i]) + W[j])

  why  exp(A[i, j] - m[i]) + W[j] is no product of a part without m and a power.
""",
    "other": """\
IllegalSchedule: online: l does not factor as h(x) * g(m): l[i] + exp(W[j] - m[i])

  why  W[j] is not what m compares, A[i, k]; a power of their difference might overflow before m has
       grown.
""",
    "chosen": """\
IllegalSchedule: online: l does not factor as h(x) * g(m): l[i] + select(m[i] > 0.0, exp(A[i, j] - m[i]), W[j])

  why  select(m[i] > 0.0, exp(A[i, j] - m[i]), W[j]) is no choice between 0 and a power.
""",
    "independent": """\
IllegalSchedule: online: l does not depend on m

  why  fma(A[i, j], W[j], l[i]): it needs no rescaling, and may run by itself.
""",
    "start": """\
IllegalSchedule: online: l starts at 1.0

  why  what a sum starts from would be rescaled as well; it must be 0.
""",
    "other_tiles": """\
IllegalSchedule: online: an iteration of 'jo' does not take in l what one of 'ko' compares in m

  why  iterations become one, and what a sum takes must be compared by then: split the loops alike,
       under the same conditions.
""",
    "init_inside": """\
ScheduleError: online: l.init uses l inside 'jo'

  why  what a loop has so far is used by nothing but its own update.
""",
    "then_factored": """\
ScheduleError: rfactor: 'jo' is a loop of m and of l""",
    "then_vectorized": """\
ScheduleError: rfactor: l.rescale uses l before the partial results are combined

  why  give at= a loop inside which both happen.
""",
    "then_cached_in_parts": """\
ScheduleError: cache_write: init="identity" would hide from l.rescale what l has so far

  why  l.rescale uses all of it, inside the same loop. init="load" keeps it.
""",
    "powers_used_twice": """\
IllegalSchedule: online: p depends on m while that changes, and B uses it too

  why  its cells never hold the final value; compute them again from the final one.
""",
    "sum_of_sums": """\
IllegalSchedule: online: o uses l, which changes with it

  why  only the first of the stages may be used by the others.
""",
}


@pytest.mark.parametrize("case", CASES)
def test_refusal(case: str) -> None:
    with pytest.raises(tir.TensorIRError) as error:
        CASES[case]()
    assert without_place(said(error.value)) == TEXTS[case]
