"""The meaning of a declaration, computed in numpy: slow, simple, independent of the compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.arguments import bind, shape_of
from tensorir.ir import numerics
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Const, Expr, Load, Op, Reduce, Ref, Var
from tensorir.ir.reducers import init_values, update_bodies
from tensorir.ir.tensor import Compute, Tensor
from tensorir.ir.visit import loads, reductions
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    BoundsError,
    CallValueError,
)
from tensorir.support.tracebacks import user_api

Array = NDArray[Any]


def _not_a_tensor(value: object) -> ArgumentTypeError:
    """What is said of a schedule, a kernel, or anything else in place of a tensor."""
    outputs = [t.name for t in getattr(value, "outputs", ()) if isinstance(t, Tensor)]
    return Message(
        f"evaluate: expected tensors, not a {type(value).__name__}",
        caller(),
        why="what is declared is evaluated; no schedule changes it." if outputs else "",
        tries=[(f"tir.evaluate({name}, ...)", "") for name in outputs],
    ).error(ArgumentTypeError)


@user_api
def evaluate(
    outputs: Tensor | Sequence[Tensor],
    *arrays: Any,
    sizes: Mapping[Any, int] | None = None,
) -> Any:
    """Compute tensors from their declaration.

    Reductions run in declared order, one element after the other; fma is rounded once; elements
    outside a tensor's domain are 0.

    Parameters
    ----------
    outputs
        A computed tensor, or a sequence of them.
    *arrays
        The inputs, in the order of their first appearance in the expressions.
    sizes
        Values of symbolic sizes that the shapes of the arrays do not tell, by size or by name.

    Returns
    -------
    numpy.ndarray, or a tuple of them if `outputs` is a sequence.

    Raises
    ------
    CallTypeError, CallValueError
        For arrays of the wrong number, dtype or shape, and for reducing nothing with max and kin.
    BoundsError
        For a read outside a tensor, or of an element that nothing computes.

    Examples
    --------
    >>> from tensorir.ir.language import compute, placeholder, reduce_axis, var
    >>> from tensorir.ir.reductions import sum
    >>> n = var("n"); A = placeholder((n, 3), "int32", name="A"); k = reduce_axis(3, name="k")
    >>> B = compute((n,), lambda i: sum(A[i, k], axis=k), name="B")
    >>> evaluate(B, np.arange(6, dtype="int32").reshape(2, 3))
    array([ 3, 12])
    """
    single = isinstance(outputs, Tensor)
    wanted = tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)
    for t in wanted:
        if not isinstance(t, Tensor):
            raise _not_a_tensor(t)
        if t.op is None:
            raise ArgumentError(f"{t.name} is a placeholder: there is nothing to compute")
    computes, inputs = stages(wanted)
    values, env = bind(inputs, computes, arrays, sizes)
    results: dict[Tensor, _Value] = {t: _Value(a, None) for t, a in values.items()}
    with np.errstate(all="ignore"):
        for c in computes:
            results |= _Stage(c, env, results).run()
    out = tuple(results[t].array for t in wanted)
    return out[0] if single else out


def stages(wanted: Sequence[Tensor]) -> tuple[list[Compute], list[Tensor]]:
    """Computations in dependence order, and placeholders in order of first appearance."""
    computes: dict[Compute, None] = {}
    inputs: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(wanted)]
    while stack:
        t, done = stack.pop()
        if t.op is None:
            inputs.setdefault(t)
        elif done:
            computes.setdefault(t.op)
        elif t.op not in computes:
            stack.append((t, True))
            stack += [(x.tensor, False) for x in reversed(loads(t.op.bodies))]
    return list(computes), list(inputs)


class _Value:
    """A tensor's elements, and which of them exist (None: all)."""

    def __init__(self, array: Array, written: Array | None) -> None:
        self.array, self.written = array, written


class _Stage:
    """One computation, over all its points at once."""

    def __init__(
        self, op: Compute, sizes: Mapping[Var, int], results: Mapping[Tensor, _Value]
    ) -> None:
        self.op, self.sizes, self.results = op, sizes, results
        self.shape = shape_of(op.outputs[0], sizes)
        self.point: dict[Axis, Array] = {}
        for k, (a, n) in enumerate(zip(op.axes, self.shape, strict=True)):
            dims = [1] * len(self.shape)
            dims[k] = n
            self.point[a] = np.arange(n, dtype=np.int64).reshape(dims)

    def run(self) -> dict[Tensor, _Value]:
        everywhere = np.ones(self.shape, np.bool_)
        active = everywhere
        if self.op.where is not None:
            active = everywhere & _Scope(self, everywhere).value(self.op.where)
        found = reductions(self.op.bodies)
        state = self.reduce(found[0], active) if found else ()
        scope = _Scope(self, active, reduced=state)
        out: dict[Tensor, _Value] = {}
        for t, body in zip(self.op.outputs, self.op.bodies, strict=True):
            value = np.broadcast_to(scope.value(body), self.shape)
            array = np.where(active, value, value.dtype.type(0)).astype(t.dtype.numpy, copy=False)
            out[t] = _Value(array, None if self.op.where is None else active)
        return out

    def reduce(self, r: Reduce, active: Array) -> tuple[Array, ...]:
        """The state of a reduction after all its elements."""
        start = _Scope(self, active)
        state = [np.array(np.broadcast_to(start.value(v), self.shape)) for v in init_values(r)]
        step = update_bodies(r, tuple(Ref(k, d) for k, d in enumerate(r.state)))
        met = np.zeros(self.shape, np.bool_)

        def walk(depth: int, here: Array) -> None:
            if depth == len(r.axes):
                met[...] |= here
                scope = _Scope(self, here, refs=tuple(state))
                new = [scope.value(b) for b in step]
                state[:] = [np.where(here, n, old) for n, old in zip(new, state, strict=True)]
                return
            a = r.axes[depth]
            assert a.lower is not None and a.upper is not None
            low = np.broadcast_to(self.affine(a.lower), self.shape)
            high = np.broadcast_to(self.affine(a.upper), self.shape)
            if not here.any():
                return
            for x in range(int(low[here].min()), int(high[here].max())):
                self.point[a] = np.asarray(x, np.int64)
                inside = here & (low <= x) & (x < high)
                if inside.any():
                    walk(depth + 1, inside)
            self.point.pop(a, None)

        walk(0, active)
        self.refuse_empty(r, active & ~met)
        return tuple(state)

    def refuse_empty(self, r: Reduce, empty: Array) -> None:
        if r.reducer.empty != "error" or r.init is not None or not empty.any():
            return
        at = _first(empty)
        place = self.place(at)
        axes = ", ".join(a.name for a in r.axes)
        raise CallValueError(
            f"{r.reducer.name} over {axes} has no elements{f' at {place}' if place else ''}: "
            "give init= the value it should have"
        )

    def affine(self, e: Lin) -> Array:
        total: Array = np.asarray(e.const, np.int64)
        for atom, factor in e.terms.items():
            if isinstance(atom, tuple):
                inner = self.affine(atom[1])
                value = inner // atom[2] if atom[0] == "//" else inner % atom[2]
            elif isinstance(atom, Var):
                value = np.asarray(self.sizes[atom], np.int64)
            else:
                value = self.point[atom]
            total = total + value * factor
        return total

    def place(self, at: tuple[int, ...]) -> str:
        """`i=3, k=0`: the instance at a point of the domain."""
        parts = []
        for a, values in self.point.items():
            full = np.broadcast_to(values, self.shape)
            parts.append(f"{a.name}={int(full[at])}")
        return ", ".join(parts)


def _first(mask: Array) -> tuple[int, ...]:
    return tuple(int(x) for x in np.argwhere(mask)[0])


class _Scope:
    """Values of expressions at the active points; elsewhere they are anything."""

    def __init__(
        self,
        stage: _Stage,
        active: Array,
        refs: tuple[Array, ...] = (),
        reduced: tuple[Array, ...] = (),
    ) -> None:
        self.stage, self.active, self.refs, self.reduced = stage, active, refs, reduced
        self.memo: dict[int, Array] = {}

    def value(self, e: Expr) -> Array:
        if id(e) not in self.memo:
            self.memo[id(e)] = self._value(e)
        return self.memo[id(e)]

    def _value(self, e: Expr) -> Array:
        if isinstance(e, Const):
            return np.asarray(e.value, e.dtype.numpy)
        if isinstance(e, Axis):
            return self.stage.point[e]
        if isinstance(e, Var):
            return np.asarray(self.stage.sizes[e], np.int64)
        if isinstance(e, Ref):
            return self.refs[e.slot]
        if isinstance(e, Reduce):
            return numerics.convert(self.reduced[e.component], e.dtype)
        if isinstance(e, Load):
            return self.load(e)
        assert isinstance(e, Op)
        if e.name == "if_then_else":
            return self.guarded(e)
        return numerics.apply(e.name, [self.value(a) for a in e.args], e.dtype)

    def guarded(self, e: Op) -> Array:
        """Each arm evaluated only where it is taken."""
        cond = np.broadcast_to(self.value(e.args[0]), self.stage.shape)
        arms = [
            _Scope(self.stage, self.active & taken, self.refs, self.reduced).value(arm)
            for taken, arm in ((cond, e.args[1]), (~cond, e.args[2]))
        ]
        return np.where(cond, *arms)

    def load(self, e: Load) -> Array:
        source = self.stage.results[e.tensor]
        shape = source.array.shape
        index = [self.value(i) for i in e.index]
        inside: Array = np.asarray(True)
        for i, n in zip(index, shape, strict=True):
            inside = inside & (i >= 0) & (i < n)
        outside = self.active & ~inside
        if outside.any():
            self.refuse(e, index, outside, f"{e.tensor.name} has shape {shape}")
        if source.array.size == 0:
            return np.zeros((), e.dtype.numpy)
        safe = tuple(np.clip(i, 0, n - 1) for i, n in zip(index, shape, strict=True))
        if source.written is not None:
            missing = self.active & ~source.written[safe]
            if missing.any():
                self.refuse(e, index, missing, "nothing computes that element")
        return np.asarray(source.array[safe])

    def refuse(self, e: Load, index: list[Array], where: Array, why: str) -> None:
        at = _first(where)
        cell = [int(np.broadcast_to(i, self.stage.shape)[at]) for i in index]
        place = self.stage.place(at)
        raise BoundsError(
            f"{self.stage.op.name} reads {e} with index {tuple(cell)}"
            f"{f' at {place}' if place else ''}, but {why}"
        )


__all__ = ["evaluate"]
