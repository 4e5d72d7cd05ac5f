"""The operators by name, each with its numpy reference and the inputs that it takes.

Tests and benchmarks draw on it: a name and a few sizes give a declaration, random inputs, and what
the result should be.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.language import placeholder
from tensorir.ir.tensor import Tensor
from tensorir.ops.shapes import integer
from tensorir.support.calls import not_taken
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int32", "int8", "uint8", "int64")
NUMBERS = (*FLOATS, *INTEGERS)


@dataclass(frozen=True, slots=True)
class Input:
    """An input of an operator: its shape, its type (None: that of the call), and its values.

    Random values lie in `low` to `high`, the end excluded for integers.
    """

    shape: tuple[int, ...]
    dtype: str | None = None
    low: float = -1.0
    high: float = 1.0


Rule = Callable[..., "tuple[Input, ...]"]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator with what is needed to try it.

    Attributes
    ----------
    name
        What it is called.
    function
        Takes tensors and parameters, and returns a tensor or a tuple of them.
    reference
        The same in numpy, on arrays.
    sizes
        Names of the sizes that fix its shapes; a last one `*shape` stands for any number.
    inputs
        From sizes to the inputs.
    dtypes
        Types that it takes, the usual one first.
    parameters
        Parameters with which it is tried.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    sizes: tuple[str, ...]
    inputs: Rule
    dtypes: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def _inputs(self, sizes: tuple[int, ...]) -> tuple[Input, ...]:
        given = tuple(integer(v, f"size of {self.name}", 0) for v in sizes)
        free = bool(self.sizes) and self.sizes[-1].startswith("*")
        if len(given) != len(self.sizes) and not (free and len(given) >= len(self.sizes) - 1):
            wanted = " ".join(self.sizes) if self.sizes else "no sizes"
            raise ArgumentError(f"{self.name} takes the sizes {wanted}, not {len(given)} of them")
        return self.inputs(*given)

    def _keywords(
        self, called: Callable[..., Any], args: tuple[Any, ...], parameters: object
    ) -> dict[str, Any]:
        """The keywords of a call, once it is clear that the function takes it."""
        if not isinstance(parameters, Mapping | None):
            raise ArgumentTypeError(
                f"parameters of {self.name} must be a dictionary, not {parameters!r:.60}"
            )
        found = {**self.parameters, **(parameters or {})}
        wrong = not_taken(self.name, inspect.signature(called), args, found)
        if wrong is not None:
            raise wrong
        return found

    def _dtype(self, dtype: object) -> str:
        name = self.dtypes[0] if dtype is None else as_dtype(dtype).name
        if name not in self.dtypes:
            raise ArgumentTypeError(f"{self.name} takes {', '.join(self.dtypes)}, not {name}")
        return name

    @user_api
    def declare(
        self, *sizes: int, dtype: object = None, parameters: Mapping[str, Any] | None = None
    ) -> tuple[Tensor | tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The result and the placeholders that it is computed from.

        Parameters
        ----------
        *sizes
            As many as `sizes` names.
        dtype
            Type of the inputs; the usual one by default.
        parameters
            In place of, or beside, those with which it is tried.

        Raises
        ------
        ArgumentError
            For another number of sizes.
        ArgumentTypeError
            For a type that it does not take.

        Examples
        --------
        >>> operator("matmul").declare(4, 5, 6)
        (matmul: float32[4, 5], (x0: float32[4, 6], x1: float32[6, 5]))
        """
        name = self._dtype(dtype)
        made = tuple(
            placeholder(x.shape, x.dtype or name, name=f"x{k}")
            for k, x in enumerate(self._inputs(sizes))
        )
        return self.function(*made, **self._keywords(self.function, made, parameters)), made

    @user_api
    def arrays(
        self, *sizes: int, dtype: object = None, seed: int = 0
    ) -> tuple[NDArray[np.generic], ...]:
        """Random inputs for these sizes."""
        name = self._dtype(dtype)
        rng = np.random.default_rng(integer(seed, "seed", 0))
        return tuple(_random(rng, x, x.dtype or name) for x in self._inputs(sizes))

    @user_api
    def expected(self, *arrays: Any, parameters: Mapping[str, Any] | None = None) -> Any:
        """The result by numpy, from arrays.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            There are too few or too many of them, or their shapes do not fit.
        """
        keywords = self._keywords(self.reference, arrays, parameters)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of nothing
            try:
                return self.reference(*arrays, **keywords)
            except (TypeError, ValueError, IndexError) as error:
                what = f"the reference of {self.name} does not take these arrays: {error}"
                raise ArgumentError(what) from error


def _random(rng: np.random.Generator, x: Input, name: str) -> NDArray[np.generic]:
    d = as_dtype(name)
    if d.kind == "bool":
        return rng.integers(0, 2, x.shape).astype(bool)
    if d.is_float:
        return rng.uniform(x.low, x.high, x.shape).astype(d.numpy)
    low, high = int(x.low), int(x.high)
    if (low, high) == (-1, 1):
        low, high = -9, 10
    return rng.integers(max(low, 0) if d.kind == "uint" else low, max(high, 1), x.shape).astype(
        d.numpy
    )


_OPERATORS: dict[str, Operator] = {}


@user_api
def register(
    name: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    sizes: tuple[str, ...],
    inputs: Rule,
    dtypes: tuple[str, ...] = FLOATS,
    **parameters: Any,
) -> None:
    """Add an operator: its function, its numpy reference, and the rule for its inputs.

    Parameters
    ----------
    name
        What it is called; a second one of a name is refused.
    function, reference
        On tensors and on arrays, with the same parameters.
    sizes
        Names of the sizes that fix its shapes; a last one `*shape` stands for any number.
    inputs
        From sizes to a tuple of :class:`Input`.
    dtypes
        Types that it takes, the usual one first.
    **parameters
        Parameters with which it is tried.
    """
    if name in _OPERATORS:
        raise ArgumentError(f"there is an operator {name!r} already")
    _OPERATORS[name] = Operator(name, function, reference, sizes, inputs, dtypes, parameters)


def _load() -> None:
    """The references: only tests and benchmarks need them, so they are imported late."""
    import tensorir.ops.reference  # noqa: F401


@user_api
def operator(name: str) -> Operator:
    """The operator called `name`.

    Raises
    ------
    ArgumentError
        If there is none; the message offers the nearest name.

    Examples
    --------
    >>> operator("matmul").sizes
    ('m', 'n', 'k')
    >>> operator("matmull")
    Traceback (most recent call last):
        ...
    tensorir.ArgumentError: no operator 'matmull'; did you mean 'matmul'?
    """
    _load()
    found = _OPERATORS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ArgumentError(f"no operator {name!r:.60}{hint(str(name), _OPERATORS)}")
    return found


@user_api
def operators() -> tuple[str, ...]:
    """The names of all operators, sorted.

    Examples
    --------
    >>> [n for n in operators() if n.startswith("conv2d")]
    ['conv2d', 'conv2d_nhwc', 'conv2d_transpose']
    """
    _load()
    return tuple(sorted(_OPERATORS))
