"""How partial results combine: the algebra of a reduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorir.ir.dtype import DType
from tensorir.ir.expr import Expr

Combine = Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
Identity = Callable[[tuple[DType, ...]], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Reducer:
    """A way to combine two states, each a tuple of `arity` scalars.

    Parameters
    ----------
    name
        What prints: `sum`, `argmax`, or the user's.
    arity
        Scalars in a state.
    combine
        `combine(a, b)` with `a` the state so far and `b` the next; returns the new state.
    identity
        The state that changes nothing, for given element types; None where there is none.
    associative, commutative
        What the algebra allows. Only these let a schedule regroup or reorder a reduction.
    exact
        Whether regrouping never changes the result (integers, min, max, any, all).
    empty
        What reducing nothing gives: `"identity"`, or `"error"` (max, min, argmax, argmin).
    """

    name: str
    arity: int
    combine: Combine
    identity: Identity | None
    associative: bool
    commutative: bool
    exact: bool
    empty: str = "identity"

    def __repr__(self) -> str:
        return self.name
