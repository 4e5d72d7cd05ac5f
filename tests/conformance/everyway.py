"""One computation under six schedules: as declared, split, vectorised, parallel, at random, ours.

Outputs lie between unreadable pages and hold 0xCD before the call; inputs lie so too.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

import schedules
import tensorir as tir
from tensorir.poly import tree
from tensorir.schedule.resolve import reference
from tensorir.support.errors import InternalError, TensorIRError
from tests.properties.memory import guarded
from tests.properties.moves import random_schedule

Array = np.ndarray
FILL = 0xCD


def everyway(*outputs: tir.Tensor) -> Iterator[tuple[str, tir.Schedule]]:
    """The schedules, each with what it is called."""
    s = tir.schedule(*outputs)
    yield "as declared", s
    yield "split by 3", _each(s, lambda s, a: s.split(a, 3))
    yield "vectorised", _inner(s)
    yield "parallel", _outer(s)
    rng = Random(zlib.crc32(outputs[0].name.encode()))
    yield "at random", random_schedule(s, rng, 5, Counter())
    yield "the library's", schedules.schedule_for(*outputs)


def same(
    outputs: tir.Tensor | Sequence[tir.Tensor],
    inputs: dict[str, Any],
    expect: Any,
    *,
    close: float = 0.0,
    where: Any = None,
    evaluate: bool = True,
) -> None:
    """Every schedule, and `tir.evaluate`, gives `expect`, bit for bit or to `close`.

    Parameters
    ----------
    inputs
        By the name of the placeholder.
    expect
        An array, or one for each output.
    close
        Relative to the largest expected value; without it only what reassociates may round
        otherwise.
    where
        Which cells are computed; the others must stay as they were.
    """
    outs = (outputs,) if isinstance(outputs, tir.Tensor) else tuple(outputs)
    wanted = [np.asarray(e) for e in (expect if isinstance(expect, tuple) else (expect,))]
    if evaluate:
        kernel = tir.build(tir.schedule(*outs))
        given = [inputs[a.name] for a in kernel.arguments if a.role == "input"]
        meant = tir.evaluate(outs, *given)
        for m, w in zip(meant, wanted, strict=True):
            mask = np.ones(w.shape, bool) if where is None else where
            agree(m[mask], w[mask], close, "tir.evaluate")
    for name, s in everyway(*outs):
        got = call(tir.build(s), inputs, [w.shape for w in wanted])
        loose = 1e-5 if any(x.reassociates for x in s.trace) else 0.0
        said = f"{name}:\n{s.trace.to_python()}\n{s}"
        for g, w in zip(got, wanted, strict=True):
            if where is not None:
                assert (g[~where].view(np.uint8) == FILL).all(), (
                    f"touched more than its own\n{said}"
                )
                g, w = g[where], w[where]
            agree(g, w, max(close, loose), said)


def call(
    kernel: tir.Kernel, inputs: dict[str, Any], shapes: Sequence[tuple[int, ...]]
) -> list[Array]:
    """Call a kernel on copies that end at an unreadable page, and begin at one, over 0xCD."""
    results = []
    for at_end in (True, False):
        given = [
            guarded(np.ascontiguousarray(x), at_end=at_end) if np.ndim(x) else x
            for x in (inputs[a.name] for a in kernel.arguments if a.role == "input")
        ]
        outs = [a for a in kernel.arguments if a.role == "output"]
        room = []
        for a, shape in zip(outs, shapes, strict=True):
            r = np.zeros(shape, a.dtype.numpy)
            r.view(np.uint8).fill(FILL) if r.ndim else r.fill(0)
            room.append(guarded(r, at_end=at_end))
        kernel(*given, out=tuple(room) if len(room) > 1 else room[0])
        results.append(room)
    for a, b in zip(*results, strict=True):
        assert a.tobytes() == b.tobytes(), "a second call gave another answer"
    return results[0]


def agree(got: Array, want: Array, close: float, said: str) -> None:
    """Equal values (NaN equals NaN), or within `close` of the largest."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, said
    want = want.astype(got.dtype)
    if close:
        a, b = got.astype(np.float64), want.astype(np.float64)
        scale = float(np.abs(b[np.isfinite(b)]).max(initial=0)) or 1.0
        assert np.allclose(a, b, rtol=0, atol=close * scale, equal_nan=True), f"{a}\n{b}\n{said}"
        return
    wrong = ~((got == want) | ((got != got) & (want != want)))
    assert not wrong.any(), f"{got[wrong][:8]} instead of {want[wrong][:8]}\n{said}"


def attempt(s: tir.Schedule, step: Callable[[tir.Schedule], tir.Schedule]) -> tir.Schedule:
    """`s` after a step; `s` itself where the library refuses it."""
    try:
        return step(s)
    except InternalError:
        raise
    except TensorIRError:
        return s


def _each(s: tir.Schedule, step: Callable[[tir.Schedule, str], tir.Schedule]) -> tir.Schedule:
    for name in [reference(s.program, a) for a in s.axes]:
        s = attempt(s, lambda s, name=name: step(s, name))
    return s


def _inner(s: tir.Schedule) -> tir.Schedule:
    """Each innermost loop in vectors of 8, or where it carries something the next one out."""
    for stmt in tree.stmts(s.program.tree):
        for loop in reversed(tree.loops_of(s.program.tree, stmt)):
            if loop.kind != "serial":
                break
            name = reference(s.program, loop.axis)
            new = attempt(s, lambda s, name=name: s.vectorize(name, width=8))
            if new is not s:
                s = new
                break
    return s


def _outer(s: tir.Schedule) -> tir.Schedule:
    tops = s.program.tree.items if isinstance(s.program.tree, tree.Seq) else (s.program.tree,)
    for t in tops:
        if isinstance(t, tree.Loop):
            name = reference(s.program, t.axis)
            s = attempt(s, lambda s, name=name: s.parallel(name))
    return s
