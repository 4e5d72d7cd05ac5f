"""One call from an operator and shapes to a kernel, for those who do not want to schedule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schedules.inputs import Inputs, fail
from schedules.registry import schedule_for
from tensorir import ops
from tensorir.codegen import targets
from tensorir.ir.language import var
from tensorir.ir.target import Target
from tensorir.ir.tensor import Tensor
from tensorir.ops.registry import Operator, operator, operators
from tensorir.runtime.build import build as build_schedule
from tensorir.runtime.kernel import Kernel
from tensorir.support.calls import not_taken
from tensorir.support.errors import ArgumentError, ArgumentTypeError, TensorIRError
from tensorir.support.names import hint
from tensorir.support.tracebacks import theirs, user_api

__all__ = ["build", "declare"]

_NOT_OPERATORS = ("Input", "Operator", "operator", "operators", "register")
_EXAMPLE = 'schedules.build("matmul", (64, 32), (32, 48))'


@user_api
def build(
    op: str | Callable[..., Any],
    *inputs: Any,
    target: str | Target | None = None,
    dtypes: Any = None,
    **attributes: Any,
) -> Kernel:
    """A kernel of an operator, scheduled by the library.

    Parameters
    ----------
    op
        The name of an operator ("softmax", "conv2d"), a function of :mod:`tensorir.ops`, or any
        function from tensors to a tensor or a tuple of them.
    *inputs
        For each input its shape, or an array whose shape and type it has; a list of those where
        the operator takes a list of tensors. An integer is the shape of a vector, except that
        integers alone are the sizes of an operator (m, n, k of a matmul). Extents may be sizes
        made by `tir.var`.
    target
        The processor, or a GPU ("cuda", "emulator"); this processor by default.
    dtypes
        Type of the inputs given by their shapes, float32 by default; a tuple has one for each.
    **attributes
        Go to the operator (`axis=0`, `stride=2`); an array among them is an input too.

    Returns
    -------
    Kernel
        Takes the inputs in this order, those among the attributes last, then the results.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        There is no such operator or target, or the operator does not take these inputs.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(6, dtype="float32").reshape(2, 3)
    >>> relu = build("relu", x)
    >>> relu(x - 2)
    array([[0., 0., 0.],
           [1., 2., 3.]], dtype=float32)
    >>> build("matmul", x, (3, 2))(x, x.T.copy())
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    where = targets.resolve(target)
    results, sources = declare(op, *inputs, dtypes=dtypes, **attributes)
    s = schedule_for(*results, target=where)
    read = [a.name for a in s.program.arrays if a.role == "input"]
    for t in sources:
        if t.name not in read:
            fail(f"{t.name!r} is not read", why="each input of a kernel takes part in its results.")
    made = [a.name for a in s.program.arrays if a.role == "output"]
    return build_schedule(s, target=where, args=[*(t.name for t in sources), *made])


def declare(
    op: str | Callable[..., Any], *inputs: Any, dtypes: Any = None, **attributes: Any
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The results of what :func:`build` is given, and its inputs in the order of the kernel.

    Examples
    --------
    >>> declare("matmul", 4, 5, 6)
    ((matmul: float32[4, 5],), (a: float32[4, 6], b: float32[6, 5]))
    """
    called = _called(op)
    given = inputs
    if inputs and called.operator is not None and all(_is_int(x) for x in inputs):
        sizes = tuple(map(int, inputs))
        called, given, dtypes = _by_sizes(called, called.operator, sizes, dtypes)
    elif called.operator is not None and not _takes(called.function, given, attributes):
        # such as einsum with its subscripts as an attribute
        other = called.operator.function
        called = replace(called, function=other) if _takes(other, given, attributes) else called
    made = Inputs(called.name, _parameters(called.function), dtypes)
    positional = [made.positional(k, x) for k, x in enumerate(given)]
    keywords = {k: made.keyword(k, x) for k, x in attributes.items()}
    made.finish()
    keywords = {**called.fixed, **keywords}
    signature = inspect.signature(called.function)
    wrong = not_taken(called.name, signature, positional, keywords, ("target", "dtypes"))
    if wrong is not None:
        fail(str(wrong), tries=_tries(called), cls=type(wrong))
    return _results(called, positional, keywords), tuple(made.made)


@dataclass(frozen=True, slots=True)
class _Called:
    """A function, its operator where it is one, and the attributes that its name implies."""

    name: str
    function: Callable[..., Any]
    operator: Operator | None
    fixed: Mapping[str, Any]


def _called(op: str | Callable[..., Any]) -> _Called:
    if callable(op):
        name = getattr(op, "__name__", type(op).__name__)
        known = name in operators() and getattr(ops, name, None) is op
        return _Called(name, op, operator(name) if known else None, {})
    if not isinstance(op, str):
        fail(
            f"expected the name of an operator or a function of tensors, not {op!r:.60}",
            tries=[(_EXAMPLE, "")],
            cls=ArgumentTypeError,
        )
    names = operators()
    public = getattr(ops, op) if op in ops.__all__ and op not in _NOT_OPERATORS else None
    if op in names:
        found = operator(op)
        # a variant such as conv2d_nhwc is made by its parameters
        fixed = {} if public is not None else found.parameters
        return _Called(op, public or found.function, found, fixed)
    if public is not None:
        return _Called(op, public, None, {})
    fail(
        f"there is no operator {op!r:.60}{hint(op, names)}",
        why="their names are those of tensorir.ops.operators().",
        tries=[("schedules.build(function, (64, 32))", "takes any function of tensors")],
    )


def _by_sizes(
    called: _Called, known: Operator, sizes: tuple[int, ...], dtypes: Any
) -> tuple[_Called, tuple[Any, ...], Any]:
    """The operator with the parameters with which it is tried, and its inputs of these sizes."""
    try:
        _, sources = known.declare(*sizes, dtype=dtypes)
    except TensorIRError as error:
        fail(str(error), tries=_tries(called), cls=type(error))
    tried = replace(called, function=known.function, fixed=known.parameters)
    return tried, tuple(t.shape for t in sources), tuple(t.dtype for t in sources)


def _is_int(x: object) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def _takes(
    function: Callable[..., Any], inputs: Sequence[Any], keywords: Mapping[str, Any]
) -> bool:
    try:
        inspect.signature(function).bind(*inputs, **keywords)
    except TypeError:
        return False
    return True


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's positional parameters."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind in kinds)


def _tries(called: _Called) -> list[tuple[str, str]]:
    """How the operator is called: by shapes, and by sizes."""
    if called.operator is None:
        return []
    sizes = called.operator.sizes
    shapes = called.operator.inputs(*(var(n.removeprefix("*")) for n in sizes))
    texts = [f"({', '.join(map(str, x.shape))}{',' * (len(x.shape) == 1)})" for x in shapes]
    by_shape = ", ".join("shape" if x == "(shape,)" else x for x in texts)
    return [
        (f"schedules.build({called.name!r}, {by_shape})", "by shapes"),
        (f"schedules.build({called.name!r}, {', '.join(sizes)})", "by sizes"),
    ]


def _results(
    called: _Called, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Tensor, ...]:
    """What the function computes."""
    module = getattr(called.function, "__module__", None) or ""  # None where it was exec'ed
    if module.partition(".")[0] == "tensorir":
        try:
            found = called.function(*positional, **keywords)
        except (ArgumentError, ArgumentTypeError) as error:
            fail(str(error), tries=_tries(called), cls=type(error))
    else:
        with theirs():
            found = called.function(*positional, **keywords)
    results = tuple(found) if isinstance(found, tuple | list) else (found,)
    for t in results:
        if not isinstance(t, Tensor):
            fail(
                f"{called.name} returned {type(t).__name__} {t!r:.60}, not a tensor",
                tries=[("tir.compute(shape, lambda i, j: ...)", "makes one")],
                cls=ArgumentTypeError,
            )
        if t.op is None:
            fail(f"{called.name} returned its input {t.name!r}: there is nothing to compute")
    if not results:
        fail(f"{called.name} returned no tensor")
    return results
