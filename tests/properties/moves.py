"""Random schedules through the public primitives."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import tensorir as tir
from tensorir.poly import tree
from tensorir.schedule.resolve import reference
from tensorir.support.errors import IllegalSchedule, InternalError, TensorIRError

FACTORS = (2, 3, 4, 5, 8)


Request = tuple[str, tuple[object, ...], dict[str, object]]


def request(s: tir.Schedule, rng: Random, name: str | None = None) -> Request:
    """A random request, sensible or not; for the primitive `name` if that is given."""
    axes = [reference(s.program, a) for a in s.axes]
    pick = lambda: rng.choice(axes)  # noqa: E731
    stage = rng.choice(s.stages)
    arrays = [a.name for a in s.program.arrays]
    name = name or rng.choice(
        ["split"] * 4 + ["reorder"] * 4 + ["vectorize"] * 3 + ["unroll"] * 2 + ["parallel"] * 2
        + ["tile", "fuse", "compute_at", "compute_at", "compute_inline", "compute_root"]
        + ["reverse_compute_at", "reverse_compute_at", "specialize", "sliding", "reuse", "atomic"]
        + ["cache_read", "cache_write", "cache_read", "cache_write", "transform_layout"]
        + ["set_scope", "rfactor", "vector_reduce", "decompose_reduction", "init_at"]
        + ["partition", "partition", "peel", "reverse", "shift", "skew", "transpose_lanes"]
        + ["fission", "merge", "unroll_and_jam", "non_temporal", "prefetch", "online"]
        + ["retype", "retype", "pad_reduction", "pad_reduction", "tensorize"]
    )  # fmt: skip
    f, g = rng.choice(FACTORS), rng.choice(FACTORS)
    if name == "split":
        return name, (pick(), f), {"tail": rng.choice(["auto", "auto", "cut", "guard"])}
    if name == "reorder":
        return name, tuple(rng.sample(axes, min(len(axes), rng.randint(2, 4)))), {}
    if name == "vectorize":
        return name, (pick(),), {"width": rng.choice([2, 4, 8, 16])}
    if name in ("unroll", "parallel", "rfactor"):
        return name, (pick(),), {}
    if name == "tile":
        return name, (pick(), pick(), f, g), {}
    if name == "fuse":
        return name, (pick(), pick()), {}
    if name in ("compute_at", "reverse_compute_at", "decompose_reduction", "init_at"):
        return name, (stage, pick()), {}
    if name == "sliding":
        kept = {"storage": rng.choice(["sliding", "folded"])}
        return "compute_at", (stage, pick()), kept
    if name == "specialize":
        sizes = [v.name for v in s.program.sizes] or ["n"]
        n, m = rng.choice(sizes), rng.choice(sizes)
        value = rng.choice([1, 7, 16])
        texts = [f"{n} % {f} == 0", f"{n} == {value}", f"{n} <= {g}", f"{n} >= {m}"]
        return name, tuple(rng.sample(texts, rng.choice([1, 2]))), {}
    if name == "partition":
        at = rng.choice([f, *(f"{v.name} - {g}" for v in s.program.sizes), f"{pick()} + {g}"])
        return name, (pick(), at), {}
    if name == "peel":
        ends = [{"first": f}, {"last": g}, {"first": 1, "last": 1}]
        return name, (pick(),), rng.choice(ends)
    if name == "fission":
        return name, (pick(), rng.choice(list(s.program.placements))), {}
    if name == "merge":
        return name, _neighbours(s, rng) or (pick(), pick()), {}
    if name == "unroll_and_jam":
        return name, (pick(), f), {}
    if name == "online":
        return name, (*_followers(s, rng),), {}
    if name == "reverse":
        return name, (pick(),), {}
    if name == "shift":
        return name, (pick(), rng.choice([-f, g, pick()])), {}
    if name in ("skew", "transpose_lanes"):
        return name, (pick(), pick(), rng.choice([1, 2, -1] if name == "skew" else [2, 4])), {}
    if name == "reuse":
        return name, (rng.choice(arrays), rng.choice(arrays)), {}
    if name in ("compute_inline", "compute_root", "atomic"):
        return name, (stage,), {}
    if name == "cache_read":
        return name, (rng.choice(arrays), rng.choice(["global", "local"])), {"at": pick()}
    if name == "cache_write":
        init = rng.choice([{}, {}, {"init": "identity"}])
        return name, (rng.choice(arrays), rng.choice(["local", "global"])), {"at": pick(), **init}
    if name == "transform_layout":
        maps = [
            lambda *i: i[::-1],
            lambda *i: (i[0] // 4, *i[1:], i[0] % 4),
            lambda *i: (i[-1] // 4, *i[:-1], i[-1] % 4),
        ]
        return name, (rng.choice(arrays), rng.choice(maps)), {}
    if name == "non_temporal":
        return name, (stage,), {"above": rng.choice([0, 0, 1000])}
    if name == "prefetch":
        return name, (rng.choice(arrays), pick(), rng.choice([1, 2, 8])), {}
    if name == "retype":
        to = rng.choice(["int16", "int32", "int64", "uint8", "float32", "float64"])
        return name, (stage, rng.choice(arrays), to, rng.choice([0, 0, 1, 128])), {}
    if name == "pad_reduction":
        return name, (pick(), f), {}
    if name == "tensorize":
        return name, (pick(), rng.choice(["avx2.vpmaddwd.256", "avx512vnni.vpdpbusd.512"])), {}
    if name == "set_scope":
        return name, (rng.choice(arrays), rng.choice(["local", "global"])), {}
    return name, (pick(),), {"width": rng.choice([4, 8]), "accumulators": rng.choice([1, 2])}


def random_schedule(s: tir.Schedule, rng: Random, steps: int, counts: Counter[str]) -> tir.Schedule:
    """`s` after up to `steps` accepted random steps; only the library's own refusals may occur."""
    tries = 0
    done = 0
    while done < steps and tries < 6 * steps:
        tries += 1
        name, args, kwargs = request(s, rng)
        try:
            s = getattr(s, name)(*args, **kwargs)
        except InternalError:
            raise
        except IllegalSchedule:
            counts[f"{name} illegal"] += 1
            continue
        except TensorIRError:
            counts[f"{name} malformed"] += 1
            continue
        counts[f"{name} done"] += 1
        done += 1
    return s


PRIMITIVES = (
    "split", "reorder", "vectorize", "unroll", "parallel", "tile", "fuse", "compute_at",
    "compute_inline", "compute_root", "cache_read", "cache_write", "transform_layout", "set_scope",
    "rfactor", "vector_reduce", "decompose_reduction", "init_at", "reverse_compute_at",
    "partition", "peel", "reverse", "shift", "skew", "transpose_lanes", "fission", "merge",
    "unroll_and_jam", "non_temporal", "prefetch", "online",
    "specialize", "sliding", "reuse", "atomic", "retype", "pad_reduction", "tensorize",
)  # fmt: skip


def stubborn_schedule(
    s: tir.Schedule, rng: Random, steps: int, counts: Counter[str], tries: int = 12
) -> tir.Schedule:
    """As `random_schedule`, but each primitive is drawn alike and tried until it is accepted.

    So placements, fusions and caches, which need fitting arguments, come as often as splits.
    """
    done = 0
    for _ in range(2 * steps):
        primitive = rng.choice(PRIMITIVES)
        for _ in range(tries):
            name, args, kwargs = request(s, rng, primitive)
            pair = _nested(s, rng) if name in ("fuse", "tile") and rng.random() < 0.8 else None
            if pair is not None:
                args = (*pair, *args[2:])
            try:
                s = getattr(s, name)(*args, **kwargs)
            except InternalError:
                raise
            except TensorIRError:
                continue
            counts[f"{name} done"] += 1
            done += 1
            break
        if done == steps:
            break
    return s


def _nested(s: tir.Schedule, rng: Random) -> tuple[str, str] | None:
    """Two loops, one directly inside the other."""
    pairs = [
        (x.axis, x.body.axis) for x in tree.loops(s.program.tree) if isinstance(x.body, tree.Loop)
    ]
    if not pairs:
        return None
    outer, inner = rng.choice(pairs)
    return reference(s.program, outer), reference(s.program, inner)


def _neighbours(s: tir.Schedule, rng: Random) -> tuple[str, str] | None:
    """Two loops, one directly after the other in one body."""
    pairs = []
    bodies = [s.program.tree, *(x.body for x in tree.loops(s.program.tree))]
    for body in bodies:
        items = body.items if isinstance(body, tree.Seq) else ()
        for a, b in pairwise(items):
            if isinstance(a, tree.Loop) and isinstance(b, tree.Loop):
                pairs.append((reference(s.program, a.axis), reference(s.program, b.axis)))
    return rng.choice(pairs) if pairs else None


def _followers(s: tir.Schedule, rng: Random) -> tuple[str, tuple[str, ...]]:
    """A loop and several reductions, in the order in which they run, for `online`."""
    program = s.program
    updates = [x for x in program.statements if x.role == "update"]
    stages = list(dict.fromkeys(x.stage for x in updates)) or [s.stages[0]]
    count = rng.choice([2, len(stages), len(stages)])
    chosen = [x.name for x in updates if x.stage == stages[:count][-1]]
    around = tree.axes_of(program.tree, chosen[0]) if chosen else s.axes
    inner = [a for a in around if a.reduce] or list(s.axes)
    return reference(program, inner[0]), tuple(stages[:count])
