"""R5: wrong names, types, factors and stale handles end in this library's own errors, soon."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir.support.errors import InternalError, TensorIRError
from tensorir.support.knobs import knobs
from tests.properties.moves import request

LIMIT = 2.0
PARTS, CALLS = 4, 250

PRIMITIVES = [
    "split", "tile", "fuse", "reorder", "unroll", "vectorize", "parallel", "compute_at",
    "compute_inline", "compute_root", "decompose_reduction", "init_at", "cache_read", "cache_write",
    "transform_layout", "set_scope", "rfactor", "vector_reduce", "retype", "pad_reduction",
    "tensorize",
]  # fmt: skip
QUESTIONS = ["undo", "at", "diff", "check", "explain"]
KEYWORDS = [
    "into", "tail", "factor", "parts", "width", "scope", "at", "init", "map", "accumulators",
    "recompute", "nonsense",
]  # fmt: skip


def program() -> tuple[tir.Schedule, tir.Tensor]:
    n = tir.var("n")
    A, B = tir.placeholder((n, 8), name="A"), tir.placeholder((8, 12), name="B")
    k = tir.reduce_axis(8, name="k")
    C = tir.compute((n, 12), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = tir.compute((n, 12), lambda i, j: tir.maximum(C[i, j], 0.0), name="D")
    return tir.schedule(D), D


class Noise:
    """Random values, sensible and not, of one program and of others."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.s, self.D = program()
        other, self.other = program()
        self.stale = other.axes
        self.elder = self.s.axes

    def name(self) -> Any:
        return self.rng.choice([
            "C.i", "C.j", "k", "D.i", "D.j", "C.init.i", "C", "D", "A", "B", "i", "io", "C.io",
            "ii", "", " ", "q", "C.", ".i", "C.i.i", "C..i", "α", "λ_1", "і", "i\u0301", "💥",
            "x" * 5000, "def",
            "_i", "1i", "i\n", "i\x00j", "C.init", "C.init.k", "__class__", "axes", "%s",
            "{i}",
        ])  # fmt: skip

    def odd(self) -> Any:
        rng = self.rng
        return rng.choice([
            lambda: 0, lambda: -1, lambda: 1, lambda: 2, lambda: 3, lambda: 7, lambda: 2**70,
            lambda: -(2**70), lambda: True, lambda: False, lambda: "3", lambda: math.nan,
            lambda: math.inf, lambda: 1.5, lambda: 4.0, lambda: None, lambda: object(), list,
            dict, lambda: (), lambda: b"i", lambda: np.int64(4), lambda: np.array(3),
            lambda: np.zeros((2, 2)), lambda: np.float32(2), lambda: ..., lambda: slice(0, 3),
            lambda: rng.choice(self.stale), lambda: rng.choice(self.elder), lambda: self.other,
            lambda: self.D, lambda: self.s, lambda: tir.var("m"), lambda: tir.const(3, "int32"),
            lambda: (lambda i, j: (j, i)), lambda: (lambda: 1 / 0), lambda: int, lambda: {"i": 3},
            lambda: ("a", "b"), lambda: ("a", "a"), lambda: ["io", "ii"], lambda: 1 + 2j,
            lambda: 2**31, lambda: 2**63, lambda: 65_537, lambda: "local", lambda: "shared",
            lambda: "guard", lambda: "identity", lambda: {1, 2}, lambda: NotImplemented,
        ])()  # fmt: skip

    def value(self) -> Any:
        return self.name() if self.rng.random() < 0.5 else self.odd()


def primitive(x: Noise) -> Callable[[], Any]:
    """A primitive: a sensible request with one wrong part, or wrong in most."""
    rng, s = x.rng, x.s
    args: list[Any]
    if rng.random() < 0.7:
        name, given, options = request(s, rng)
        args, kwargs = list(given), dict(options)
        if args and rng.random() < 0.6:
            args[rng.randrange(len(args))] = x.value()
        elif rng.random() < 0.5:
            kwargs[rng.choice(KEYWORDS)] = x.value()
    else:
        name = rng.choice(PRIMITIVES)
        args = [x.value() for _ in range(rng.randint(0, 5))]
        kwargs = {k: x.value() for k in rng.sample(KEYWORDS, rng.choice([0, 0, 1, 2]))}

    def act() -> None:
        made = getattr(s, name)(*args, **kwargs)
        if isinstance(made, tir.Schedule) and made.next_number < 6:
            x.s = made  # goes on from there, with axes that are stale by then

    act.text = f"{name}{tuple(args)!r:.300} {kwargs!r:.300}"  # type: ignore[attr-defined]
    return act


def question(x: Noise) -> Callable[[], Any]:
    rng, name = x.rng, x.rng.choice(QUESTIONS)
    args = [x.value() for _ in range(rng.randint(1, 3))]
    if name in ("undo", "at", "diff"):
        args = args[:1]
    if name in ("check", "explain") and rng.random() < 0.7:
        args[0] = rng.choice(PRIMITIVES)
    s = x.s
    return _named(lambda: getattr(s, name)(*args), f"{name}{tuple(args)!r:.300}")


def language(x: Noise) -> Callable[[], Any]:
    rng = x.rng
    a, b, c = x.value(), x.value(), x.value()
    A = tir.placeholder((4, 4), name="A")
    k = tir.reduce_axis(4, name="k")
    unary = rng.choice(["exp", "sqrt", "abs", "floor", "isnan", "popcount", "sigmoid"])
    pair = rng.choice(["maximum", "minimum", "truncdiv", "floormod", "pow", "hypot", "fmax"])
    fold = rng.choice(["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"])
    operator = rng.choice([
        lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x // y, lambda x, y: x % y,
        lambda x, y: x << y, lambda x, y: x & y, lambda x, y: x < y, lambda x, y: x**y,
    ])  # fmt: skip
    return rng.choice([
        _named(lambda: tir.var(a), f"var {a!r:.80}"),
        _named(lambda: tir.placeholder(a, name="P"), f"placeholder shape {a!r:.80}"),
        _named(lambda: tir.placeholder((a, b), name="P"), f"placeholder {a!r:.80} {b!r:.80}"),
        _named(lambda: tir.placeholder((4,), a, name="P"), f"placeholder dtype {a!r:.80}"),
        _named(lambda: tir.placeholder((4,), name=a), f"placeholder name {a!r:.80}"),
        _named(lambda: tir.dtype(a), f"dtype {a!r:.80}"),
        _named(lambda: tir.reduce_axis(a, name="r"), f"reduce_axis {a!r:.80}"),
        _named(lambda: tir.reduce_axis((a, b), name="r"), f"reduce_axis {a!r:.80} {b!r:.80}"),
        _named(lambda: tir.reduce_axis(4, name=a), f"reduce_axis name {a!r:.80}"),
        _named(lambda: tir.cast(a, b), f"cast {a!r:.80} {b!r:.80}"),
        _named(lambda: tir.const(a, b), f"const {a!r:.80} {b!r:.80}"),
        _named(lambda: tir.select(a, b, c), f"select {a!r:.80} {b!r:.80} {c!r:.80}"),
        _named(lambda: tir.if_then_else(a, b, c), f"if_then_else {a!r:.80} {b!r:.80} {c!r:.80}"),
        _named(lambda: getattr(tir, unary)(a), f"{unary} {a!r:.80}"),
        _named(lambda: getattr(tir, pair)(a, b), f"{pair} {a!r:.80} {b!r:.80}"),
        _named(lambda: getattr(tir, fold)(a, axis=k), f"{fold} {a!r:.80}"),
        _named(lambda: getattr(tir, fold)(A[k, 0], axis=a), f"{fold} axis {a!r:.80}"),
        _named(lambda: tir.sum(A[k, 0], axis=k, where=a, init=b), f"sum where {a!r:.80} {b!r:.80}"),
        _named(lambda: A[a, b], f"index {a!r:.80} {b!r:.80}"),
        _named(lambda: A[a], f"index {a!r:.80}"),
        _named(lambda: operator(A[0, 0], a), f"operator {a!r:.80}"),
        _named(lambda: tir.compute(a, lambda i: A[0, i], name="Q"), f"compute shape {a!r:.80}"),
        _named(lambda: tir.compute((4,), lambda i: a, name="Q"), f"compute body {a!r:.80}"),
        _named(lambda: tir.compute((4,), a, name="Q"), f"compute fn {a!r:.80}"),
        _named(lambda: tir.compute((4,), lambda i: i, name=a), f"compute name {a!r:.80}"),
        _named(lambda: tir.compute((4,), lambda i: i, name="Q", where=a), f"where {a!r:.80}"),
        _named(lambda: tir.compute((4,), lambda i: i, name="Q", axes=a), f"axes {a!r:.80}"),
        _named(lambda: tir.reducer(a, b, name="u"), f"reducer {a!r:.80} {b!r:.80}"),
    ])  # fmt: skip


def entry(x: Noise) -> Callable[[], Any]:
    a, b = x.value(), x.value()
    A = tir.placeholder((4,), name="A")
    B = tir.compute((4,), lambda i: A[i] + 1, name="B")
    s = tir.schedule(B)
    return x.rng.choice([
        _named(lambda: tir.schedule(a), f"schedule {a!r:.80}"),
        _named(lambda: tir.build(s, **{x.rng.choice(KEYWORDS): a}), f"build keyword {a!r:.80}"),
        _named(lambda: tir.build(s, a), f"build second {a!r:.80}"),
        _named(lambda: s.undo(**{x.rng.choice(KEYWORDS): a}), f"undo keyword {a!r:.80}"),
        _named(lambda: tir.schedule(B, a), f"schedule B {a!r:.80}"),
        _named(lambda: tir.build(a), f"build {a!r:.80}"),
        _named(lambda: tir.build(s, target=a), f"build target {a!r:.80}"),
        _named(lambda: tir.build(s, args=a), f"build args {a!r:.80}"),
        _named(lambda: tir.build(s, args=[a, b]), f"build args {a!r:.80} {b!r:.80}"),
        _named(lambda: tir.build(s, validate=a, checked=b), f"build {a!r:.80} {b!r:.80}"),
        _named(lambda: tir.build(s, index_check=a), f"build index_check {a!r:.80}"),
        _named(lambda: tir.build(s)(a), f"call {a!r:.80}"),
        _named(lambda: tir.build(s)(np.zeros(4, "f4"), out=a), f"call out {a!r:.80}"),
        _named(lambda: tir.build(s)(a, b), f"call {a!r:.80} {b!r:.80}"),
        _named(lambda: tir.evaluate(B, a), f"evaluate {a!r:.80}"),
        _named(lambda: tir.evaluate(a, np.zeros(4, "f4")), f"evaluate {a!r:.80}"),
        _named(lambda: tir.replay(s, a), f"replay {a!r:.80}"),
        _named(lambda: tir.replay(a, s.trace), f"replay {a!r:.80}"),
        _named(lambda: tir.Trace.from_json(a), f"from_json {a!r:.80}"),
        _named(lambda: tir.target(a), f"target {a!r:.80}"),
        _named(lambda: tir.num_threads(a), f"num_threads {a!r:.80}"),
        _named(lambda: tir.load(a), f"load {a!r:.80}"),
        _named(lambda: tir.silence(a), f"silence {a!r:.80}"),
    ])  # fmt: skip


def _named(act: Callable[[], Any], text: str) -> Callable[[], Any]:
    act.text = text  # type: ignore[attr-defined]
    return act


def run(seed: int, calls: int) -> tuple[Counter[str], list[str]]:
    """Counts of how calls end, and those that ended wrongly."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    rng = Random(seed)
    noise = Noise(rng)
    for _ in range(calls):
        if rng.random() < 0.04:
            noise = Noise(rng)
        kind = rng.choice([primitive, primitive, primitive, question, language, language, entry])
        act = kind(noise)
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                act()
            counts["succeeded"] += 1
        except InternalError as error:
            wrong.append(f"{act.text}: {type(error).__name__}: {error}")
        except TensorIRError as error:
            counts[type(error).__name__] += 1
            if not str(error).strip():
                wrong.append(f"{act.text}: an empty message")
        except Exception as error:
            if "ZeroDivisionError" != type(error).__name__:  # of the caller's own lambda
                wrong.append(f"{act.text}: {type(error).__name__}: {error}")
        took = time.perf_counter() - start
        if took > LIMIT:
            wrong.append(f"{act.text}: {took:.1f} s")
    return counts, wrong


@pytest.mark.parametrize("part", range(PARTS))
def test_calls_end_in_errors_of_this_library(part: int) -> None:
    with knobs.override():
        counts, wrong = run(part, CALLS)
    print(f"seed {part}", dict(counts))
    assert not wrong, f"seed {part}: {len(wrong)} wrong\n" + "\n".join(wrong[:20])
    assert counts["succeeded"] > CALLS // 50


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_many_more_calls(part: int) -> None:
    with knobs.override():
        _, wrong = run(1000 + part, 1000)
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])
