"""R2: facts of legality with known answers, each transformation asked of the schedule itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import IllegalSchedule
from tests.conformance.nests import build

FACTS = json.loads((Path(__file__).parent / "legality.json").read_text())


def _order(s: Schedule, names: str) -> Schedule:
    return s.reorder(*names.split(","))


def _tile(s: Schedule, loops: list[str], factor: int) -> Schedule:
    for x in loops:
        s = s.split(x, factor, into=(f"{x}o", f"{x}p"))
    return s.reorder(*(f"{x}o" for x in loops), *(f"{x}p" for x in loops))


def _sink(s: Schedule, loops: list[str], x: str, factor: int) -> Schedule:
    s = s.split(x, factor, into=(f"{x}o", f"{x}p"))
    return s.reorder(*(f"{y}o" if y == x else y for y in loops), f"{x}p")


def _swap(s: Schedule, loops: list[str], factor: int) -> Schedule:
    (x,) = loops
    return s.split(x, factor, into=("o", "n")).reorder("n", "o")


def _skewed(s: Schedule, loops: list[str], x: str, by: str, then: str) -> Schedule:
    s = s.skew(x, by=by)
    if then.startswith("then tile both by "):
        return _tile(s, [y for y in loops if y in (x, by)], int(then.rpartition(" ")[2]))
    order, _, wavefront = then.removeprefix("then ").partition(", parallel ")
    s = _order(s, order.removeprefix("order "))
    return s.parallel(wavefront.split()[0]) if wavefront else s


FORMS: list[tuple[str, Callable[..., Schedule]]] = [
    (r"order (.*)", lambda s, loops, m: _order(s, m[1])),
    (r"parallel (\w+)", lambda s, loops, m: s.parallel(m[1])),
    (r"vectorize (\w+) by (\d+)", lambda s, loops, m: s.vectorize(m[1], width=int(m[2]))),
    (r"tile all by (\d+)", lambda s, loops, m: _tile(s, loops, int(m[1]))),
    (
        r"tile (\w+),(\w+) by (\d+) \(outer loops kept\)",
        lambda s, loops, m: _tile(s, [m[1], m[2]], int(m[3])),
    ),
    (
        r"split (\w+) by (\d+) and sink the inner part innermost",
        lambda s, loops, m: _sink(s, loops, m[1], int(m[2])),
    ),
    (r"reverse (\w+)", lambda s, loops, m: s.reverse(m[1])),
    (
        r"skew (\w+)\+=(\w+), (.*)",
        lambda s, loops, m: _skewed(s, loops, m[1], m[2], m[3]),
    ),
    (r"split by (\d+) and swap outer/inner", lambda s, loops, m: _swap(s, loops, int(m[1]))),
]


def apply(fact: dict[str, object]) -> Schedule:
    s, loops = build(str(fact["nest"])), str(fact["loops"]).split(",")
    for pattern, act in FORMS:
        match = re.fullmatch(pattern, str(fact["transform"]))
        if match:
            return act(s, loops, match)
    raise AssertionError(fact["transform"])


@pytest.mark.parametrize(
    "fact", FACTS, ids=[f"{x['nest']}-{x['transform']}".replace(" ", "_") for x in FACTS]
)
def test_fact(fact: dict[str, object]) -> None:
    transform = str(fact["transform"])
    moves_order = "parallel" not in transform and not transform.startswith("vectorize")
    key = "legal_if_reassociation_allowed" if moves_order else "legal"
    legal = fact[key]
    if fact["nest"] == "trisolv_update":
        legal = fact["legal"]  # it reads its accumulator elsewhere: not a reduction
    if legal:
        apply(fact)
        return
    with pytest.raises(IllegalSchedule) as refusal:
        apply(fact)
    assert refusal.value.witness is not None
