"""The polyhedral program of a declaration: its statements, in the order in which it was written."""

from __future__ import annotations

from tensorir.ir.affine import Conj, Lin, Region
from tensorir.ir.build import cast
from tensorir.ir.expr import Axis, Expr, Op, Reduce, Ref, Var
from tensorir.ir.index import conditions
from tensorir.ir.printer import expr_text
from tensorir.ir.reducers import init_values, update_bodies
from tensorir.ir.statement import Access, Array, Statement, StatementRole
from tensorir.ir.tensor import Compute, Tensor
from tensorir.ir.visit import loads, nodes, reductions
from tensorir.poly.extract import ALWAYS, Extractor, axis_facts, both
from tensorir.poly.model import Buffer, Placement, Program
from tensorir.poly.sound import require_sound
from tensorir.poly.tree import At, Tree, nest, seq
from tensorir.support.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from tensorir.support.names import fresh


def program(outputs: tuple[Tensor, ...]) -> Program:
    """The program that computes `outputs`, each stage in loops of its own, in dependence order.

    Parameters
    ----------
    outputs
        Tensors to compute; what they read is computed before them, placeholders are inputs.

    Raises
    ------
    ArgumentError
        For no outputs, an output that is a placeholder, or two sizes of one name.
    """
    if not outputs:
        raise ArgumentError("nothing to schedule: give at least one computed tensor")
    for t in outputs:
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(f"expected a tensor, got {type(t).__name__} {t!r}")
        if t.op is None:
            raise ArgumentError(f"{t.name} is a placeholder: there is nothing to compute")
    computes, inputs = _stages(outputs)
    wanted = list(dict.fromkeys(outputs))
    arrays = _arrays(computes, inputs, wanted)
    sizes = _sizes(computes, inputs)
    builder = _Builder(arrays, sizes)
    nests = [builder.stage(c) for c in computes]
    context: Conj = tuple(("ge", Lin({v: 1})) for v in sizes)
    order = [arrays[t] for t in inputs] + [arrays[t] for t in wanted]
    temps = [a for a in (*arrays.values(), *builder.temporaries) if a.role == "temp"]
    made = Program(
        seq(nests),
        builder.placements,
        {a: Buffer() for a in temps},
        (*order, *temps),
        sizes,
        context,
    )
    return require_sound(made, builder.started)


def _stages(outputs: tuple[Tensor, ...]) -> tuple[list[Compute], list[Tensor]]:
    """Computes in dependence order, and placeholders in the order of first appearance."""
    computes: dict[Compute, None] = {}
    inputs: dict[Tensor, None] = {}

    def visit(t: Tensor) -> None:
        if t.op is None:
            inputs.setdefault(t)
            return
        if t.op in computes:
            return
        for load in loads(t.op.bodies):
            visit(load.tensor)
        computes.setdefault(t.op)

    for t in outputs:
        visit(t)
    return list(computes), list(inputs)


def _arrays(
    computes: list[Compute], inputs: list[Tensor], wanted: list[Tensor]
) -> dict[Tensor, Array]:
    made: dict[Tensor, Array] = {}
    taken: set[str] = set()

    def make(t: Tensor, role: str) -> None:
        name = t.name if t.name not in taken else fresh(t.name, taken)
        taken.add(name)
        made[t] = Array(name, t.dtype, t.extents, role)  # type: ignore[arg-type]

    for t in inputs:
        make(t, "input")
    for t in wanted:
        make(t, "output")
    for c in computes:
        for t in c.outputs:
            if t not in made:
                make(t, "temp")
    return made


def _sizes(computes: list[Compute], inputs: list[Tensor]) -> tuple[Var, ...]:
    found: dict[Var, None] = {}

    def look(e: Lin) -> None:
        for a in e.atoms():
            if isinstance(a, Var):
                found.setdefault(a)

    for t in (*inputs, *(o for c in computes for o in c.outputs)):
        for extent in t.extents:
            look(extent)
    for c in computes:
        for a in (*c.axes, *(x for r in reductions(c.bodies) for x in r.axes)):
            for bound in (a.lower, a.upper):
                if bound is not None:
                    look(bound)
        for e in nodes(*c.bodies, *((c.where,) if c.where is not None else ())):
            if isinstance(e, Var):
                found.setdefault(e)
    by_name: dict[str, Var] = {}
    for v in found:
        if by_name.setdefault(v.name, v) is not v:
            raise ArgumentError(
                f"two different sizes are called {v.name!r}: make one tir.var({v.name!r}) and use "
                "it in both places, or give them different names"
            )
    return tuple(found)


class _Builder:
    """Collects statements and placements, stage by stage."""

    def __init__(self, arrays: dict[Tensor, Array], sizes: tuple[Var, ...]) -> None:
        self.arrays, self.sizes = arrays, sizes
        self.placements: dict[str, Placement] = {}
        self.temporaries: list[Array] = []
        self.started: set[str] = set()  # stages whose reduction was given its init=
        self._used: set[Axis] = set()

    def _loop(self, declared: Axis) -> Axis:
        """The loop axis of a declared one: itself, or a copy where another stage has it."""
        if declared not in self._used:
            self._used.add(declared)
            return declared
        return Axis(declared.name, declared.lower, declared.upper, reduce=declared.reduce)

    def stage(self, c: Compute) -> Tree:
        outputs = tuple(self.arrays[t] for t in c.outputs)
        domain = both((axis_facts(c.axes),), _domain_condition(c))
        found = reductions(c.bodies)
        loops = tuple(map(self._loop, c.axes))
        name = outputs[0].name
        if not found:
            cell = tuple(Lin({a: 1}) for a in c.axes)
            ex = Extractor(self.arrays)
            bodies = tuple(ex.body(b) for b in c.bodies)
            writes = tuple(Access(o, cell) for o in outputs)
            self._add(name, name, c.axes, domain, writes, ex, bodies, "compute", loops)
            return nest(loops, At(name))
        return self._reduction(c, found, outputs, domain, loops, name)

    def _reduction(
        self,
        c: Compute,
        found: list[Reduce],
        outputs: tuple[Array, ...],
        domain: Region,
        loops: tuple[Axis, ...],
        name: str,
    ) -> Tree:
        red = found[0]
        if red.init is not None:
            self.started.add(name)
        cell = tuple(Lin({a: 1}) for a in c.axes)
        state, finish = self._state(c, red, outputs, name)
        writes = tuple(Access(a, cell) for a in state)
        # init
        ex = Extractor(self.arrays)
        starts = tuple(ex.body(v) for v in init_values(red))
        self._add(f"{name}.init", name, c.axes, domain, writes, ex, starts, "init", loops)
        # update
        where = conditions(red.where) if red.where is not None else ALWAYS
        inner = both(both(domain, (axis_facts(red.axes),)), where if where is not None else ALWAYS)
        ex = Extractor(self.arrays)
        accumulators = tuple(ex.read(a, cell) for a in state)
        stepped = update_bodies(red, accumulators, masked=where is None)
        bodies = tuple(ex.body(b) for b in stepped)
        rloops = tuple(map(self._loop, red.axes))
        self._add(
            name, name, (*c.axes, *red.axes), inner, writes, ex, bodies, "update",
            (*loops, *rloops), red,
        )  # fmt: skip
        items: list[Tree] = [At(f"{name}.init"), nest(rloops, At(name))]
        # finish
        if finish:
            ex = Extractor(self.arrays)
            results = tuple(ex.read(a, cell) for a in state)
            out = tuple(ex.body(_replace_reduce(b, results)) for b in c.bodies)
            done = tuple(Access(o, cell) for o in outputs)
            self._add(f"{name}.finish", name, c.axes, domain, done, ex, out, "finish", loops)
            items.append(At(f"{name}.finish"))
        return nest(loops, seq(items))

    def _state(
        self, c: Compute, red: Reduce, outputs: tuple[Array, ...], name: str
    ) -> tuple[tuple[Array, ...], bool]:
        """The arrays of the accumulator, and whether a finish must copy them out."""
        bare = len(c.bodies) == len(red.state) and all(
            isinstance(b, Reduce) and b.component == k and b.dtype == d
            for k, (b, d) in enumerate(zip(c.bodies, red.state, strict=True))
        )
        if bare:
            return outputs, False
        suffix = [""] if len(red.state) == 1 else [str(k) for k in range(len(red.state))]
        made = tuple(
            Array(f"{name}.acc{x}", d, outputs[0].shape, "temp")
            for x, d in zip(suffix, red.state, strict=True)
        )
        self.temporaries += made
        return made, True

    def _add(
        self,
        name: str,
        stage: str,
        iters: tuple[Axis, ...],
        domain: Region,
        writes: tuple[Access, ...],
        ex: Extractor,
        bodies: tuple[Expr, ...],
        role: StatementRole,
        loops: tuple[Axis, ...],
        red: Reduce | None = None,
    ) -> None:
        combiner = red.reducer if red is not None else None
        stmt = Statement(
            name, stage, iters, domain, writes, tuple(ex.reads), bodies, role, combiner
        )
        self.placements[name] = Placement.fresh(stmt, loops)


def _domain_condition(c: Compute) -> Region:
    if c.where is None:
        return ALWAYS
    region = conditions(c.where)
    if region is None:
        raise UnsupportedError(
            f"the domain of {c.outputs[0].name}, where={expr_text(c.where)}, is not affine: only "
            "comparisons of sums of axes, sizes and constants can shape a domain; for a condition "
            "on data use tir.select or tir.if_then_else in the body"
        )
    return region


def _replace_reduce(e: Expr, results: tuple[Ref, ...]) -> Expr:
    """`e` with each component of its reduction replaced by the accumulator that holds it."""
    if isinstance(e, Reduce):
        return cast(results[e.component], e.dtype)
    if isinstance(e, Op):
        return Op(e.name, tuple(_replace_reduce(a, results) for a in e.args), e.dtype)
    return e
