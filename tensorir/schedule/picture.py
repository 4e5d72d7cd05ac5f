"""The sentences and the marked loop nest of a refusal, from its witness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorir.ir.expr import Axis
from tensorir.ir.statement import Access
from tensorir.poly import tree
from tensorir.poly.legality import Instance, Violation, Witness
from tensorir.poly.model import Program
from tensorir.poly.relation import point_map
from tensorir.poly.tree import Loop
from tensorir.schedule import resolve, text
from tensorir.support.diagnostics import Mark

__all__ = ["cell_text", "headline", "instance_text", "nest", "why"]

_TURNED = {
    "flow": "would run {sink} before {source}, which writes the {cell} it reads.",
    "anti": "would run {sink} before {source}, which reads the {cell} it overwrites.",
    "output": "would run {sink} before {source}, but both write {cell} and the last one counts.",
}
_RACE = {
    "flow": "the first writes the {cell} that the other reads.",
    "anti": "the first reads the {cell} that the other writes.",
    "output": "both write {cell}.",
}


def instance_text(x: Instance) -> str:
    """`S[2, 0]`."""
    return f"{x.stmt}[{', '.join(str(v) for v in x.at.values())}]"


def cell_text(w: Witness) -> str:
    """`A[1, 1]`."""
    return f"{w.array.name}[{', '.join(str(v) for v in w.cell)}]"


def headline(request: str, w: Witness | None, violation: Violation, marked: Loop | None) -> str:
    """One sentence, complete in itself."""
    if w is None:
        return f"{request} would change the order of accesses to {violation.array.name}."
    parts = {
        "sink": instance_text(w.sink),
        "source": instance_text(w.source),
        "cell": cell_text(w),
    }
    if marked is None:
        return f"{request} {_TURNED[w.kind].format(**parts)}"
    reason = "both accumulate into {cell}." if violation.exempt else _RACE[w.kind]
    pair = f"{parts['source']} and {parts['sink']}"
    how = f"run {pair} in one vector" if marked.kind == "vectorize" else f"let {pair} race"
    own = request.startswith(("parallel(", "vectorize(", "bind("))
    where = "" if own else f" in the {marked.kind} loop {marked.axis.name!r}"
    return f"{request} would {how}{where}: {reason.format(**parts)}"


def nest(
    program: Program,
    w: Witness | None,
    violation: Violation,
    asked: Sequence[tuple[Loop, str]],
) -> tuple[list[str], list[Mark]]:
    """The lines of the loop nest before the step, and the remarks on them."""
    around = _relevant(program, violation)
    found = [x for x in text.lines(program.change(specializations=())) if _shown(x, around)]
    outdent = min((_indent(x.text) for x in found), default=0)
    told = (violation.source, violation.sink)
    lines: list[str] = []
    marks: list[Mark] = []
    for k, line in enumerate(found):
        shown = line.text[outdent:]
        if line.stmt in told:
            indent = _indent(shown)
            shown = f"{shown[:indent]}{line.stmt}: {shown[indent:]}"
        lines.append(shown)
        marks += [Mark(k, remark) for loop, remark in asked if line.axis is loop.axis]
        if w is not None and line.stmt == w.sink.stmt:
            start, end = _place(program, shown, w, violation)
            marks.append(Mark(k, remark_on(program, w, violation), start, end))
    return lines, marks


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _shown(line: text.Line, around: tuple[set[Axis], set[str]]) -> bool:
    if line.axis is not None:
        return line.axis in around[0]
    return line.stmt is None or line.stmt in around[1]


def _relevant(program: Program, v: Violation) -> tuple[set[Axis], set[str]]:
    """The loops around both statements of a violation and all that runs in these."""
    names = {n for n in (v.source, v.sink) if n in program.placements}
    top = {a for n in names for a in tree.axes_of(program.tree, n)[:1]}
    inside: set[str] = set(names)
    for x in tree.loops(program.tree):
        if x.axis in top:
            inside.update(tree.stmts(x))
    axes = {a for n in inside for a in tree.axes_of(program.tree, n)}
    return axes, inside


def remark_on(program: Program, w: Witness, v: Violation) -> str:
    """`flow dependence, distance (i: +1, j: -1), first seen at N = 3`."""
    seen = ", ".join(f"{n} = {x}" for n, x in w.sizes.items())
    distance = distance_text(program, w)
    parts = ["accumulates" if v.exempt else f"{w.kind} dependence"]
    if distance:
        parts.append(f"distance ({distance})")
    if seen:
        parts.append(f"first seen at {seen}")
    return ", ".join(parts)


def distance_text(program: Program, w: Witness) -> str:
    """The distance along the loops around both, as they were before the step."""
    distance = _distance(program, w) or w.distance
    return ", ".join(f"{n}: {x:+d}" if x else f"{n}: 0" for n, x in distance.items())


def _distance(program: Program, w: Witness) -> dict[str, int] | None:
    """In the loops of `program`; None where it does not have these instances."""
    ends = []
    for x in (w.source, w.sink):
        p = program.placements.get(x.stmt)
        if p is None or p.stmt.role == "copy" or len(x.at) != len(p.stmt.iters):
            return None
        values: dict[Any, int] = dict(zip(p.stmt.iters, x.at.values(), strict=True))
        values |= {v: w.sizes[v.name] for v in program.sizes}
        ends.append(point_map(p, values, program.sizes))
    axes, _ = tree.common(program.tree, w.source.stmt, w.sink.stmt)
    return {a.name: ends[1][a] - ends[0][a] for a in axes}


def _place(program: Program, line: str, w: Witness, v: Violation) -> tuple[int, int]:
    """Where in the line of the sink stands the access that clashes."""
    p = program.placements[w.sink.stmt]
    names = {x.axis: resolve.reference(program, x.axis) for x in tree.loops(program.tree)}
    reading = w.kind == "flow" and not v.exempt
    accesses = p.stmt.reads if reading else p.stmt.writes
    equals = line.index(" = ") if " = " in line else len(line)
    for a in _first_hit(accesses, w, p.stmt.iters):
        shown = _access_text(a, p.index, lambda x: names.get(x, x.name))
        start = line.find(shown, equals if reading else 0)
        if start >= 0:
            return start, start + len(shown)
    return _indent(line), len(line)


def _first_hit(accesses: Sequence[Access], w: Witness, iters: Sequence[Axis]) -> list[Access]:
    """The accesses of the array, first those that touch the cell."""
    own = [a for a in accesses if a.array is w.array]
    values: dict[Any, int] = {}
    if len(w.sink.at) == len(iters):
        values = dict(zip(iters, w.sink.at.values(), strict=True))

    def hits(a: Access) -> bool:
        try:
            return tuple(e.evaluate(values) for e in a.affine) == tuple(w.cell)
        except (AssertionError, KeyError):
            return False

    return sorted(own, key=lambda a: not hits(a))


def _access_text(a: Access, index: Any, name: Any) -> str:
    if not a.exact:
        return f"{a.array.name}["
    return f"{a.array.name}[{', '.join(e.subst(index).text(name) for e in a.affine) or '()'}]"


def why(program: Program, w: Witness | None, v: Violation, marked: Loop | None) -> str:
    """The reason, in a sentence or two. `program` is the one that was refused."""
    if marked is not None:
        if v.exempt:
            return (
                "the order of a reduction is free, but two points must not update one cell "
                "at the same time."
            )
        at_once = "lanes go in lock step" if marked.kind == "vectorize" else "threads do not wait"
        return f"{at_once}: nothing orders two points of {marked.axis.name!r}."
    if w is None:
        return "no sizes that the schedule allows show it, but it could not be excluded."
    first = _first_distance(w)
    who = {
        "flow": "the reader would come before the writer",
        "anti": "the writer would come before the reader",
        "output": "the earlier value would stay",
    }[w.kind]
    return f"after the change {first}: {who}." if first else f"after the change {who}."


def _first_distance(w: Witness) -> str:
    for n, x in w.distance.items():
        if x:
            return f"the first distance is {n}: {x:+d}"
    return ""
