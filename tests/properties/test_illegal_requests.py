"""R2 and R3: random requests on random nests, against the brute-force enumerator."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import IllegalSchedule, InternalError, TensorIRError
from tests.conformance.nests import made
from tests.properties.enumerate import Loop, World, ask, draw, merged

EACH = 5
PARTS, REQUESTS = 4, 250


def run(seed: int, requests: int) -> tuple[Counter[str], list[str], list[str]]:
    """Counts, refusals of what is legal, and refusals whose witness does not hold."""
    counts: Counter[str] = Counter()
    false_refusals: list[str] = []
    unproved: list[str] = []
    while counts["requests"] < requests:
        rng = Random(seed)
        nest = draw(rng)
        depth = nest.loops.count(",") + 1
        world, s = World(nest, (1, 2, 4, 6) if depth < 3 else (1, 2, 4, 5)), made(nest)
        for _ in range(EACH):
            what, args = ask(world, rng)
            said = f"seed {seed}: {what}{args} on {nest}, loops {world.names()}"
            loops = world.after((what, args))
            wrong = next(world.violations(loops), None)
            try:
                after = _apply(s, what, args)
            except IllegalSchedule as refusal:
                counts["requests"] += 1
                counts["refused"] += 1
                proved = _proved(world, loops, what, refusal)
                if wrong is None and not proved:  # not even at the sizes of the witness
                    false_refusals.append(f"{said}: {refusal}")
                elif not proved:
                    unproved.append(f"{said}: {refusal} {refusal.witness}")
                continue
            except InternalError:
                raise
            except TensorIRError:
                counts["malformed"] += 1  # a loop that is marked already
                continue
            counts["requests"] += 1
            counts["accepted"] += 1
            if wrong is not None:
                raise AssertionError(f"accepted, but it is illegal: {said}: {wrong}\n{after}")
            if what == "vectorize" and len(after.axes) == len(s.axes):
                loops = merged(loops, str(args[0]))
            s, world.loops = after, loops
        seed += 1
    return counts, false_refusals, unproved


def _apply(s: Schedule, what: str, args: tuple[object, ...]) -> Schedule:
    if what == "vectorize":
        return s.vectorize(args[0], width=args[1])
    return getattr(s, what)(*args)


def _proved(world: World, loops: list[Loop], what: str, refusal: IllegalSchedule) -> bool:
    """Whether a refusal names the primitive, a loop, and a pair that the enumerator confirms."""
    w = refusal.witness
    if refusal.primitive != what or w is None:
        return False
    if not any(x.name in str(refusal) for x in (*loops, *world.loops)):
        return False
    n = w.sizes.get("N", 1)
    a, b = ({**point} for _, point in (w.source, w.sink))
    return world.confirms(loops, n, a, b, (w.array.name, tuple(w.cell)))


def check(seed: int, requests: int) -> None:
    counts, false_refusals, unproved = run(seed, requests)
    print(dict(counts))
    for line in (*false_refusals, *unproved):
        print(line)
    assert counts["refused"] > requests // 8
    assert counts["accepted"] > requests // 4
    assert len(false_refusals) <= 0.02 * counts["requests"], "\n".join(false_refusals)
    assert len(unproved) <= 0.05 * counts["refused"], "\n".join(unproved)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_requests_are_judged_as_by_enumeration(part: int) -> None:
    check(10_000 * part, REQUESTS)


@pytest.mark.full
@pytest.mark.parametrize("part", range(20))
def test_many_more_random_requests(part: int) -> None:
    check(1_000_000 + 10_000 * part, 250)
