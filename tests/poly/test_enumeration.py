"""What is proved against what is enumerated, on random programs and random rewrites of them."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from itertools import product

import pytest

from tensorir.ir.affine import Conj, Fact, Lin, Region, lin
from tensorir.ir.dtype import FLOAT32
from tensorir.ir.expr import Axis, Const, Ref, Var
from tensorir.ir.statement import Access, Array, Index, May, Statement
from tensorir.poly import legality, tree
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.tree import At, Loop, Seq, Tree
from tests.poly import enumeration as en
from tests.poly.programs import SUM, nest, replaced, split

N, M = Var("N"), Var("M")
SMALL = [dict(zip((N, M), v)) for v in ((0, 2), (1, 1), (2, 3), (3, 2), (4, 4))]


class Draw:
    """One random program."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.arrays = (
            Array("X", FLOAT32, (lin(N) + 3,), "temp"),
            Array("Y", FLOAT32, (lin(N) + 2, lin(M) + 2), "output"),
        )
        self.stmts = [self.stmt(f"S{k}") for k in range(r.choice((1, 1, 2, 2, 3)))]
        self.roots = {
            s.name: tuple(Axis(f"{s.name}_{a.name}") for a in s.iters) for s in self.stmts
        }

    def expr(self, iters: tuple[Axis, ...]) -> Lin:
        e = Lin({}, self.r.choice((0, 0, 0, 1, -1)))
        for a in iters:
            e = e + Lin({a: self.r.choice((0, 0, 1, 1, 1, -1, 2))})
        return e // 2 if self.r.random() < 0.1 else e % 3 if self.r.random() < 0.06 else e

    def index(self, iters: tuple[Axis, ...]) -> Index:
        if self.r.random() < 0.05:
            low = self.expr(iters) if self.r.random() < 0.5 else None
            high = None if low is None else low + self.r.randint(0, 2)
            return May(Ref(1, FLOAT32), low, high)
        return self.expr(iters)

    def access(self, iters: tuple[Axis, ...]) -> Access:
        array = self.r.choice(self.arrays)
        guard: Region = ((),)
        if self.r.random() < 0.15:
            guard = tuple((("ge", self.expr(iters)),) for _ in range(self.r.randint(1, 2)))
        return Access(array, tuple(self.index(iters) for _ in array.shape), guard)

    def domain(self, iters: tuple[Axis, ...]) -> Region:
        out: list[Fact] = []
        for k, a in enumerate(iters):
            high = self.r.choice(
                (lin(N) - 1, lin(M) - 1, lin(2), *([lin(iters[k - 1])] if k else []))
            )
            out += [("ge", lin(a)), ("ge", high - lin(a))]
        if self.r.random() < 0.1:
            out.append(("eq", self.expr(iters) % 2))
        whole: Conj = tuple(out)
        if self.r.random() < 0.1:
            e = self.expr(iters)
            return ((*whole, ("ge", e)), (*whole, ("ge", -e - 2)))
        return (whole,)

    def stmt(self, name: str) -> Statement:
        iters = tuple(Axis(n) for n in "abc"[: self.r.randint(1, 3)])
        write = self.access(iters)
        reads = tuple(self.access(iters) for _ in range(self.r.randint(0, 2)))
        role, combiner = "compute", None
        if self.r.random() < 0.4 and write.exact:
            role, combiner, reads = "update", SUM, (replace(write), *reads)
        body = Ref(0, FLOAT32) if reads else Const(0.0, FLOAT32)
        return Statement(
            name,
            write.array.name,
            iters,
            self.domain(iters),
            (write,),
            reads,
            (body,),
            role,
            combiner,
        )  # type: ignore[arg-type]

    def program(self) -> Program:
        shared = self.r.randint(0, min(len(s.iters) for s in self.stmts))
        outer = tuple(Axis(f"s{k}") for k in range(shared))
        for s in self.stmts:
            self.roots[s.name] = (*outer, *self.roots[s.name][shared:])
        items = [nest(self.roots[s.name][shared:], At(s.name)) for s in self.stmts]
        t = nest(outer, tree.seq(items))
        outside = outer[: self.r.randint(0, shared)] if self.r.random() < 0.4 else ()
        ps = {s.name: Placement.fresh(s, self.roots[s.name]) for s in self.stmts}
        context: Conj = (("ge", lin(N)), ("ge", lin(M)))
        return Program(
            t, ps, {self.arrays[0]: Buffer("global", outside)}, self.arrays, (N, M), context
        )


def rewritten(r: random.Random, p: Program, forward: dict[str, en.Forward]) -> Program:
    """A random tree with the same instances; `forward` learns how new axes follow from old ones."""
    for step in range(r.randint(1, 3)):
        loop = r.choice(list(tree.loops(p.tree)))
        kind = r.choice(
            ("reorder", "reorder", "split", "reverse", "shift", "skew", "swap", "fission")
        )
        under = tree.stmts(loop)
        a = loop.axis
        outside = {x for b in p.buffers.values() for x in b.outside}
        if kind == "reorder" or kind == "skew":
            chain = [loop]
            while isinstance(chain[-1].body, Loop):
                chain.append(chain[-1].body)
            if len(chain) < 2:
                continue
            if kind == "reorder":
                order = chain[:]
                r.shuffle(order)
                body: Tree = chain[-1].body
                for x in reversed(order):
                    body = replace(x, body=body)
                p = p.change(tree=tree.rewrite(p.tree, a, lambda _: body))
                continue
            inner = chain[1].axis
            if inner in outside:
                continue
            new, f = Axis(f"w{step}"), r.choice((1, -1, 2))
            p = replaced(p, inner, new, Lin({new: 1, a: -f}))
            for n in under:
                forward[n][new] = lambda env, a=a, i=inner, f=f: env[i] + f * env[a]
        elif a in outside:
            continue
        elif kind == "split":
            f = r.choice((2, 3))
            p, (o, i) = split(p, a, f, f"o{step} i{step}")
            for n in under:
                forward[n][o] = lambda env, a=a, f=f: env[a] // f
                forward[n][i] = lambda env, a=a, f=f: env[a] % f
        elif kind in ("reverse", "shift"):
            new, c = Axis(f"v{step}"), r.choice((-1, 1, 2))
            value = Lin({new: -1}) if kind == "reverse" else Lin({new: 1}, -c)
            p = replaced(p, a, new, value)
            for n in under:
                if kind == "reverse":
                    forward[n][new] = lambda env, a=a: -env[a]
                else:
                    forward[n][new] = lambda env, a=a, c=c: env[a] + c
        elif isinstance(loop.body, Seq):
            items = list(loop.body.items)
            if kind == "swap":
                r.shuffle(items)
                p = p.change(
                    tree=tree.rewrite(p.tree, a, lambda x: replace(x, body=Seq(tuple(items))))
                )
            else:
                new = Axis(f"f{step}")
                late = [n for x in items[1:] for n in tree.stmts(x)]
                known: Conj = (("eq", Lin({a: 1, new: -1})),)
                ps = {
                    n: pl.replace_axis(a, (new,), Lin({new: 1}), known) if n in late else pl
                    for n, pl in p.placements.items()
                }
                for n in late:
                    forward[n][new] = lambda env, a=a: env[a]
                halves = tree.seq([Loop(a, items[0]), Loop(new, tree.seq(items[1:]))])
                p = p.change(tree=tree.rewrite(p.tree, a, lambda x: halves), placements=ps)
    return p


def smaller(sizes: dict[str, int]) -> list[dict[Var, int]]:
    """Sizes that come before these, outermost first."""
    values = [sizes["N"], sizes["M"]]
    return [
        {N: n, M: m} for n, m in product(range(values[0] + 1), range(4)) if [n, m] < values
    ]  # fmt: skip


def instances(w: legality.Witness) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((x.stmt, tuple(x.at.values())) for x in (w.source, w.sink))


def check_turned(
    violation: legality.Violation, old: Program, new: Program, forward: dict[str, en.Forward]
) -> None:
    """The witness is true, and the first of its statement pair at the smallest sizes."""
    w = legality.witness(new, violation)
    assert w is not None

    def found(at: dict[Var, int], *only: tuple[str, tuple[int, ...]]) -> list[en.Pair]:
        o, n = en.World(old, at, {}, {"-": []}), en.World(new, at, forward, {"-": []})
        o, n = (
            (o.only(*only), n.only(*only))
            if only
            else (en.World(old, at), en.World(new, at, forward))
        )
        return [
            c for c in en.turned(o, n)
            if (c[0], c[2]) == (w.source.stmt, w.sink.stmt) and c[4] is w.array
        ]  # fmt: skip

    at = {v: w.sizes[v.name] for v in (N, M)}
    source, sink = instances(w)
    [pair] = [c for c in found(at, source, sink) if (c[1], c[3]) == (source[1], sink[1])]
    assert w.kind in pair[5]
    if max(at.values()) > 3:
        return
    assert (source[1], sink[1]) == min((c[1], c[3]) for c in found(at))
    for before in smaller(w.sizes):
        assert not found(before), (before, w)


def run(seed: int) -> tuple[int, int]:
    r = random.Random(seed)
    old = Draw(r).program()
    forward: dict[str, en.Forward] = {n: {} for n in old.placements}
    new = rewritten(r, old, forward)
    names = list(old.placements)
    refused = 0

    def worlds(at: dict[Var, int]) -> tuple[en.World, en.World]:
        return en.World(old, at), en.World(new, at, forward)

    began = time.perf_counter()
    violation = legality.turned(old, new, names)
    loops = list(tree.loops(new.tree))
    lanes = r.random() < 0.5
    carried = [legality.carried(new, x.axis, lanes=lanes) for x in loops]
    assert time.perf_counter() - began < 2
    pairs = [worlds(at) for at in SMALL]
    if violation is None:
        for o, n in pairs:
            assert not en.turned(o, n), (o.sizes, en.turned(o, n)[0])
    else:
        refused += 1
        check_turned(violation, old, new, forward)
    for loop, found in zip(loops, carried):
        if found is None:
            for _, n in pairs:
                clash = en.carried(n, loop.axis, lanes)
                assert not clash, (loop.axis, lanes, n.sizes, clash[0])
        else:
            refused += 1
            check_carried(found, new, forward, loop.axis, lanes)
    return refused, 1 + len(loops)


def check_carried(
    found: legality.Violation, p: Program, forward: dict[str, en.Forward], axis: Axis, lanes: bool
) -> None:
    """The witness of a carried conflict is one that enumeration finds too."""
    w = legality.witness(p, found)
    assert w is not None
    at = {v: w.sizes[v.name] for v in (N, M)}
    source, sink = instances(w)
    world = en.World(p, at, forward, {"-": []}).only(source, sink)
    pairs = [c[:5] for c in en.carried(world, axis, lanes)]
    assert (*source, *sink, w.array) in pairs, w
    assert w.distance[axis.name] > 0


COUNT = int(os.environ.get("TENSORIR_TEST_PROGRAMS", "60"))
START = int(os.environ.get("TENSORIR_TEST_SEED", "0"))


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block: int) -> None:
    """No false accept, and every refusal shows a true and smallest witness."""
    refused = asked = 0
    for seed in range(START + block * COUNT // 4, START + (block + 1) * COUNT // 4):
        print("seed", seed)
        r, n = run(seed)
        refused, asked = refused + r, asked + n
    assert 0 < refused < asked
