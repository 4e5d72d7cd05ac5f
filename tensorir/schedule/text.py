"""A schedule as text: its loop nest with exact bounds, and the difference of two.

    for io in 0..4  # parallel
      for ii in 0..min(8, n - 8*io)
        B[8*io + ii] = A[8*io + ii] + 1.0

A range does not include its end. A comment tells how a loop runs; a guard stands where the loops
alone do not say which instances there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorir.ir.affine import Conj, Lin, Region, floordiv
from tensorir.ir.expr import Axis, Var
from tensorir.ir.printer import condition_text, statement_text
from tensorir.ir.statement import Array
from tensorir.ir.stmt import Bound
from tensorir.poly import hints, ranges, tree
from tensorir.poly.isl import BudgetExceeded
from tensorir.poly.model import Buffer, LayoutDim, Program
from tensorir.poly.ranges import NestBounds, Span
from tensorir.poly.tree import Loop, Seq, Tree
from tensorir.schedule import resolve
from tensorir.support import display

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

Namer = Callable[[Axis | Var], str]

__all__ = ["Difference", "Line", "accepted", "diff", "lines", "loops"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a nest, and the loop or the statement that it shows.

    `version` marks the test of sizes above a copy of the nest that `specialize` asked for.
    """

    text: str
    axis: Axis | None = None
    stmt: str | None = None
    version: bool = False


def loops(program: Program) -> str:
    """The whole nest."""
    return "\n".join(x.text for x in lines(program))


def lines(program: Program) -> list[Line]:
    """The nest line by line, outer before inner; all its versions, in the order of the tests."""
    if not program.specializations:
        return _nest(program)
    out: list[Line] = []
    general = program.change(specializations=())
    for conj in program.specializations:
        conds = " and ".join(condition_text(f) for f in conj)
        out.append(Line(f"{'else ' if out else ''}if {conds}", version=True))
        out += _indented(general.change(context=(*program.context, *conj)))
    return [*out, Line("else", version=True), *_indented(general)]


def _indented(program: Program) -> Iterator[Line]:
    for x in _nest(program):
        yield Line(f"  {x.text}", x.axis, x.stmt)


def _nest(program: Program) -> list[Line]:
    try:
        bounds = ranges.nest_bounds(program)
    except BudgetExceeded:
        bounds = None
    shown = _Shown(program, bounds)
    out = [Line(shown.alloc(a)) for a in shown.kept(None)]
    return [*out, *shown.go(program.tree, 0)]


class _Shown:
    def __init__(self, program: Program, bounds: NestBounds | None) -> None:
        self.program, self.bounds = program, bounds
        self.names: dict[Axis | Var, str] = {
            x.axis: resolve.reference(program, x.axis) for x in tree.loops(program.tree)
        }

    def name(self, a: Axis | Var) -> str:
        return self.names.get(a, a.name)

    def go(self, t: Tree, depth: int) -> Iterator[Line]:
        indent = "  " * depth
        if isinstance(t, Seq):
            for x in t.items:
                yield from self.go(x, depth)
        elif isinstance(t, Loop):
            yield Line(f"{indent}for {self.name(t.axis)} in {self.range(t)}{kind(t)}", t.axis)
            for a in self.kept(t.axis):
                yield Line(f"{indent}  {self.alloc(a)}")
            yield from self.go(t.body, depth + 1)
        else:
            yield from self.statement(t.stmt, indent)

    def statement(self, name: str, indent: str) -> Iterator[Line]:
        p = self.program.placements[name]
        text = statement_text(p.stmt, p.index, self.name)
        for array, above in self.program.streaming:
            if any(w.array is array for w in p.stmt.writes):
                text += f"  # streaming above {above:,} bytes" if above else "  # streaming"
        ahead = ", ".join(self.ahead(name))
        if ahead:
            text += f"  # prefetch {ahead}"
        guard: Region = ((),)
        if self.bounds is not None:
            if name not in self.bounds.guards:
                yield Line(f"{indent}{text}  # never runs", None, name)
                return
            guard = self.bounds.guards[name]
        if guard != ((),):
            yield Line(f"{indent}if {self.condition(guard)}")
            indent += "  "
        yield Line(f"{indent}{text}", None, name)

    def ahead(self, name: str) -> Iterator[str]:
        """The cells that a statement asks for ahead of time."""
        index = dict[Axis | Var, Lin](self.program.placements[name].index.items())
        for p in self.program.prefetches:
            if p.stmt == name:
                for x in hints.ahead(self.program, p):
                    cell = (e.subst(index).text(self.name) for e in x.affine)
                    yield f"{p.array.name}[{', '.join(cell)}]"

    def condition(self, region: Region) -> str:
        parts = [" and ".join(self.fact(c)) for c in region]
        return parts[0] if len(parts) == 1 else " or ".join(f"({p})" for p in parts)

    def fact(self, conj: Conj) -> list[str]:
        return [condition_text(f, self.name) for f in conj] or ["True"]

    def range(self, t: Loop) -> str:
        span = self.bounds.loops.get(t.axis) if self.bounds is not None else None
        if span is None:
            return "?" if self.bounds is None else "0..0"
        return range_text(span, self.name)

    def kept(self, at: Axis | None) -> list[Array]:
        """The buffers that exist once for each point of the loop `at` and those outside it."""
        if at is None:
            return [a for a, b in self.program.buffers.items() if _told(b)]
        found = []
        for a, b in self.program.buffers.items():
            outside = set(b.outside)
            if at in outside:
                inside = tree.find(self.program.tree, at)
                assert inside is not None
                if not any(x.axis in outside for x in tree.loops(inside.body)):
                    found.append(a)
        return found

    def alloc(self, a: Array) -> str:
        buffer = self.program.buffers[a]
        stored = ""
        if buffer.layout is not None:
            stored = f" as {storage_text(buffer.layout, len(a.shape))}"
        more = f", {a.shape[0]} tiles in turn" if buffer.turns else ""
        if buffer.rows is not None:
            r = buffer.rows
            more += f", rows + {r.by}" if r.by else f", rows of {r.offset} modulo {r.factor}"
        if buffer.swizzle is not None:
            w = buffer.swizzle
            more += f", swizzle {w.bits}, {w.base}, {w.shift}"
        return f"alloc {a.name}: {a.dtype} in {buffer.scope}{stored}{more}"


def storage_text(layout: tuple[LayoutDim, ...], n: int) -> str:
    """Where a cell `i0, i1, ..` of a buffer lies in its storage: ``(i1 // 16, i0, i1 % 16)``."""
    names = [f"i{d}" for d in range(n)]
    parts = [names[d] if kind is None else f"{names[d]} {kind} {c}" for d, kind, c in layout]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _told(b: Buffer) -> bool:
    """Whether a buffer that exists once is worth a line: it is not as it was declared."""
    return not b.outside and (b.scope != "global" or b.layout is not None)


def kind(t: Loop) -> str:
    """`  # parallel`, `  # vectorize 8`, or nothing for a serial loop."""
    if t.intrinsic is not None:
        return f"  # tensorize {t.intrinsic.name}"
    if t.kind == "serial":
        return ""
    if t.kind == "bind" and t.width is not None:
        return f"  # bind {t.bind}, combined"
    detail = t.bind if t.kind == "bind" else t.width if t.kind == "vectorize" else None
    return f"  # {t.kind}" if detail is None else f"  # {t.kind} {detail}"


def range_text(span: Span, name: Namer | None = None) -> str:
    """`0..min(8, n - 8*io)`."""
    low = [bound_text(e, name) for e in _constants_first(ceil_of(b) for b in span.lower)]
    high = [bound_text(e, name) for e in _constants_first(end_of(b) for b in span.upper)]
    words = ("min", "max") if span.hull else ("max", "min")
    return f"{_one(low, words[0])}..{_one(high, words[1])}"


def _one(texts: list[str], word: str) -> str:
    texts = list(dict.fromkeys(texts))
    if len(texts) > 1:
        return f"{word}({', '.join(texts)})"
    return f"({texts[0]})" if " " in texts[0] and texts[0][0] != "(" else texts[0]


def _constants_first(bounds: Iterable[Lin]) -> list[Lin]:
    return sorted(bounds, key=lambda e: not e.is_const)


def bound_text(e: Lin, name: Namer | None = None) -> str:
    """As people write it: what is taken away comes last, `64 - 6*io`, `(n + 5)//6 - 16*ic`."""
    if next(iter(e.terms.values()), 0) >= 0:
        return e.text(name)
    kept = Lin({a: v for a, v in e.terms.items() if v > 0})
    taken = Lin({a: v for a, v in e.terms.items() if v < 0})
    if not kept.terms and e.const <= 0:
        return e.text(name)
    start = (kept + e.const).text(name)
    return f"{start} + {taken.text(name)}".replace("+ -", "- ")


def ceil_of(bound: Bound) -> Lin:
    """ceil(e / c)."""
    c, e = bound
    return floordiv(e + (c - 1), c)


def end_of(bound: Bound) -> Lin:
    """floor(e / c) + 1: the end of a range that includes it."""
    c, e = bound
    return floordiv(e + c, c)


# -- two schedules


class Difference(display.Text):
    """What changed from one schedule to another: unified text, side by side in a notebook."""

    old: Schedule
    new: Schedule

    def _repr_html_(self) -> str:
        return display.html(self)


def diff(old: Schedule, new: Schedule) -> Difference:
    """The loops of both, with what went and what came; "" where they are the same."""
    a, b = (loops(s.program).splitlines() for s in (old, new))
    most = max(len(a), len(b))
    found = difflib.unified_diff(a, b, title(old), title(new), n=most, lineterm="")
    out = Difference("\n".join(x for x in found if not x.startswith("@@")))
    out.old, out.new = old, new
    return out


def title(s: Schedule) -> str:
    """`step 3: unroll("ii")`, or `declaration`."""
    return f"step {s.step}" if s.step is not None else "declaration"


def accepted(before: Schedule, after: Schedule) -> str:
    """What an allowed step does: a sentence, its notes, and the loops that change."""
    steps = []
    s: Schedule | None = after
    while s is not None and s is not before:
        if s.step is not None:
            steps.append(s.step)
        s = s.parent
    steps.reverse()
    rounding = any(x.reassociates for x in steps)
    ends = (
        "may change the rounding of a reduction" if rounding else "keeps every result bit for bit"
    )
    out = [f"{'; '.join(x.text for x in steps)} is allowed, and {ends}."]
    out += [f"  {n}" for x in steps for n in x.notes]
    return "\n".join([*out, "", diff(before, after) or loops(after.program)])
