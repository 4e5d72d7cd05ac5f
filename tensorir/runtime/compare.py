"""Is the result right: against a reference, within what rounding explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorir.codegen.source import Argument
from tensorir.ir.dtype import BFLOAT16, DType
from tensorir.runtime.arguments import sizes_of
from tensorir.runtime.buffer import AnyArray, view
from tensorir.runtime.timer import evaluate
from tensorir.support.errors import ArgumentError, ArgumentTypeError, CallValueError, KernelError
from tensorir.support.tracebacks import theirs

if TYPE_CHECKING:
    from tensorir.runtime.kernel import PlainKernel

__all__ = ["Comparison", "Difference", "check"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The worst element of one output.

    Attributes
    ----------
    name
        Of the output.
    index
        Of the worst element.
    got, expected
        Both values there.
    relative
        Their difference, relative to the larger of the reference there and its root mean square.
    tolerance
        The largest relative difference allowed.
    wrong, elements
        How many elements differ by more, of how many.
    """

    name: str
    index: tuple[int, ...]
    got: Any
    expected: Any
    relative: float
    tolerance: float
    wrong: int
    elements: int

    def __str__(self) -> str:
        if self.elements == 0:
            return f"{self.name}: no elements"
        if self.tolerance == 0:
            return f"{self.name}: equal, all {self.elements:,} elements"
        return (
            f"{self.name}: within {self.relative:.2g} of the reference (allowed "
            f"{self.tolerance:.2g}), all {self.elements:,} elements"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """That a kernel's results agree with a reference; `outputs` has the worst element of each."""

    outputs: tuple[Difference, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.outputs))

    __repr__ = __str__


def check(
    kernel: PlainKernel, inputs: Sequence[Any], against: Callable[..., Any], tol: float | None
) -> Comparison:
    """Compare a kernel with a function; see `Kernel.check`."""
    if not callable(against):
        raise ArgumentTypeError(f"against={against!r:.60}: expected a function of the inputs")
    if tol is not None and (isinstance(tol, bool) or not isinstance(tol, int | float)):
        raise ArgumentTypeError(f"tol={tol!r:.60}: expected a number")
    if tol is not None and not tol >= 0:
        raise ArgumentError(f"tol={tol!r}: expected a number >= 0")
    outputs = [a for a in kernel.arguments if a.role == "output"]
    got = _tuple(kernel(*inputs))
    with theirs():
        expected = _tuple(against(*inputs))
    if len(expected) != len(outputs):
        raise CallValueError(
            f"{kernel.name}() has {len(outputs)} outputs, the reference gave {len(expected)}"
        )
    length = _reduction_length(kernel, inputs, outputs)
    differences = []
    for argument, x, reference in zip(outputs, got, expected, strict=True):
        difference = _difference(kernel, argument, x, reference, tol, length)
        if difference.wrong:
            raise _differs(kernel.name, difference)
        differences.append(difference)
    return Comparison(tuple(differences))


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _reduction_length(
    kernel: PlainKernel, inputs: Sequence[Any], outputs: Sequence[Argument]
) -> float:
    """Operations for each element of the outputs: how many roundings one result has seen."""
    sizes = sizes_of(kernel.source, inputs, kernel.name)
    cells = sum(prod(max(0, e.evaluate(sizes)) for e in a.shape) for a in outputs)
    return max(1.0, evaluate(kernel.source.operations, sizes) / max(1, cells))


def _epsilon(dtype: DType) -> float:
    return 2.0**-7 if dtype == BFLOAT16 else float(np.finfo(dtype.name).eps)


def _difference(
    kernel: PlainKernel,
    argument: Argument,
    x: Any,
    reference: Any,
    tol: float | None,
    length: float,
) -> Difference:
    what = f"{kernel.name}(): output {argument.name}"
    got = view(x, what)
    want = view(reference, "the reference") if _is_array(reference) else np.asarray(reference)
    if got.shape != want.shape:
        raise CallValueError(f"{what} has shape {got.shape}, the reference {want.shape}")
    if tol is None:
        tol = _tolerance(argument.dtype, want, length)
    if got.size == 0:
        return Difference(argument.name, (), None, None, 0.0, tol, 0, 0)
    errors = _errors(got, want, exact=tol == 0)
    at = int(np.argmax(errors))
    index = tuple(int(i) for i in np.unravel_index(at, got.shape))
    wrong = int(np.count_nonzero(errors > tol))
    worst = float(errors.reshape(-1)[at])
    return Difference(argument.name, index, got[index], want[index], worst, tol, wrong, got.size)


def _is_array(value: object) -> bool:
    return hasattr(value, "__dlpack__") or hasattr(value, "__array__")


def _tolerance(dtype: DType, want: AnyArray, length: float) -> float:
    """Rounding errors of a sum grow like the root of its length; eight more for functions."""
    if not dtype.is_float:
        return 0.0
    epsilon = max(_epsilon(dtype), 2.0**-10 if want.dtype == np.float16 else 0.0)
    if want.dtype == np.float32:
        epsilon = max(epsilon, 2.0**-23)
    return epsilon * (8 + 4 * sqrt(length))


def _errors(got: AnyArray, want: AnyArray, *, exact: bool) -> AnyArray:
    """Relative difference of each element; 0 for equal ones, infinite for a NaN on one side."""
    if exact or got.dtype.kind in "biu":
        same = (got == want) | ((got != got) & (want != want))
        return np.where(same, 0.0, np.inf)
    with np.errstate(all="ignore"):
        x, y = got.astype(np.float64), want.astype(np.float64)
        finite = y[np.isfinite(y)]
        scale = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
        error = np.abs(x - y) / np.maximum(np.abs(y), scale)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def _differs(name: str, d: Difference) -> KernelError:
    place = f"{d.name}[{', '.join(map(str, d.index))}]" if d.index else d.name
    share = 100 * d.wrong / d.elements
    lines = [f"  wrong  {d.wrong:,} of {d.elements:,} elements ({share:.3g} %)"]
    if d.tolerance:
        lines.insert(0, f"  worst  relative difference {d.relative:.3g}, allowed {d.tolerance:.3g}")
    return KernelError(
        f"{name}() gives {place} = {d.got}, the reference {d.expected}", details="\n".join(lines)
    )
