"""The slow call: everything that the machine-code wrapper leaves to Python.

Binds arguments, converts or refuses arrays, reads the sizes off their dimensions, tests for
overlap, runs the kernel, and hands the results back. Every mistake in a call ends here, with the
argument, what came, and what was expected.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorir.codegen.source import Argument, KernelSource
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.runtime import layout
from tensorir.runtime.buffer import (
    AnyArray,
    byte_range,
    give_back,
    is_plain,
    overlaps_itself,
    view,
)
from tensorir.runtime.call import solvable, variables
from tensorir.support.errors import CallTypeError, CallValueError, KernelError, internal, warn
from tensorir.support.tracebacks import user_api

__all__ = ["Callee", "Copies", "Where", "bind", "failure", "raise_failed", "require_rank",
           "result_of", "signature_text", "sizes_by_shape", "sizes_of", "slow_call"]  # fmt: skip

LINE = 64
_WARN_ABOVE = 1_000_000


class Copies:
    """How often, and how many bytes, calls copied because an array was not plain."""

    __slots__ = ("bytes", "calls", "warned")

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.warned = False

    def __repr__(self) -> str:
        parts = (f"{name}: {n} times, {self.bytes[name]:,} B" for name, n in self.calls.items())
        return f"Copies({'; '.join(parts)})"

    def count(self, kernel: str, name: str, size: int) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        self.bytes[name] = self.bytes.get(name, 0) + size
        if size <= _WARN_ABOVE or self.warned:
            return
        self.warned = True
        warn(
            "copy",
            f"{kernel}(): argument {name} is not laid out in C order, aligned and native-endian, "
            f"so each call copies {size / 1e6:.1f} MB; np.ascontiguousarray once is faster",
        )


class Callee(Protocol):
    """What the slow call needs of a kernel."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> KernelSource: ...
    @property
    def copies(self) -> Copies: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def run(self, pointers: list[int], sizes: list[int]) -> tuple[int, list[int]]: ...


class Shaped(Protocol):
    """An array, as far as its sizes go."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class _Size(NamedTuple):
    value: int
    origin: str  # the argument that gave it


@user_api
def slow_call(kernel: Callee, /, *args: Any, **kwargs: Any) -> Any:
    """Call a kernel with any arguments: what `kernel(*args, **kwargs)` means."""
    source, name = kernel.source, kernel.name
    values = bind(source, name, args, kwargs)
    if any(type(value) is not np.ndarray for value in values if value is not None):
        return _foreign_call(kernel, values)
    for argument, array in zip(source.arguments, values, strict=True):
        if array is not None:
            _require_kind(argument, array, name)
    sizes = _sizes(source, values, name)
    arrays = [
        _fresh(argument, sizes, name) if array is None else array
        for argument, array in zip(source.arguments, values, strict=True)
    ]
    for argument, array in zip(source.arguments, arrays, strict=True):
        if argument.role == "output":
            _require_output(argument, array, name)
    _require_apart(source, values, name)
    plain = [
        array if is_plain(array) else _copy(kernel, argument, array)
        for argument, array in zip(source.arguments, arrays, strict=True)
    ]
    status, info = kernel.run(
        [a.ctypes.data for a in plain], [sizes[v].value for v in source.sizes]
    )
    if status:
        raise failure(kernel, status, info)
    for argument, array, used in zip(source.arguments, arrays, plain, strict=True):
        if argument.role == "output" and used is not array:
            array[...] = used
    return result_of(arrays, source)


def result_of(values: list[Any], source: KernelSource) -> Any:
    pairs = zip(source.arguments, values, strict=True)
    outputs = [value for argument, value in pairs if argument.role == "output"]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _foreign_call(kernel: Callee, values: list[Any]) -> Any:
    """The same call with a numpy array on the memory of each value, and the results back."""
    source, name = kernel.source, kernel.name
    arrays = _views(source, values, name)
    made = kernel(*(array for array in arrays if array is not None))
    results = iter(made if isinstance(made, tuple) else (made,))
    like = next(value for value in values if value is not None)
    finals = list(values)
    for k, argument in enumerate(source.arguments):
        if argument.role == "output":
            result = next(results)
            if finals[k] is None:
                finals[k] = give_back(result, like, Where(argument, name))
    return result_of(finals, source)


def _views(source: KernelSource, values: list[Any], name: str) -> list[AnyArray | None]:
    return [
        None
        if value is None
        else view(value, Where(argument, name), output=argument.role == "output")
        for argument, value in zip(source.arguments, values, strict=True)
    ]


class Where(NamedTuple):
    """How messages name an argument; text only when one is written."""

    argument: Argument
    kernel: str

    def __str__(self) -> str:
        kind = "argument" if self.argument.role == "input" else "output"
        return f"{self.kernel}(): {kind} {self.argument.name}"


# -- binding
def bind(
    source: KernelSource, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """One value for each argument; None for outputs that are to be made."""
    strange = [key for key in kwargs if key != "out"]
    if strange:
        raise CallTypeError(
            f"{name}() got an unexpected keyword argument {strange[0]!r}; arrays are given by "
            "position, outputs also as out=",
            details=f"  call  {signature_text(source, name)}",
        )
    out = kwargs.get("out")
    inputs = [k for k, a in enumerate(source.arguments) if a.role == "input"]
    outputs = [k for k, a in enumerate(source.arguments) if a.role == "output"]
    if len(args) == len(source.arguments):
        if out is not None:
            raise CallTypeError(f"{name}() got its outputs twice: by position and as out=")
        return [_not_none(a, value, name) for a, value in zip(source.arguments, args, strict=True)]
    if len(args) != len(inputs):
        raise _wrong_number(source, name, len(args), len(inputs), len(outputs))
    values: list[Any] = [None] * len(source.arguments)
    for k, value in zip(inputs, args, strict=True):
        values[k] = _not_none(source.arguments[k], value, name)
    if out is None:
        return values
    given = list(out) if isinstance(out, tuple | list) else [out]
    if len(given) != len(outputs):
        names = ", ".join(source.arguments[k].name for k in outputs)
        raise CallTypeError(
            f"{name}() has {_count(len(outputs), 'output')} ({names}), "
            f"out= has {_count(len(given), 'array')}"
        )
    for k, value in zip(outputs, given, strict=True):
        values[k] = _not_none(source.arguments[k], value, name)
    return values


def _not_none(argument: Argument, value: Any, name: str) -> Any:
    if value is None:
        raise CallTypeError(f"{Where(argument, name)} is None, not an array")
    return value


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _wrong_number(
    source: KernelSource, name: str, came: int, inputs: int, outputs: int
) -> CallTypeError:
    takes = f"{_count(inputs, 'input')}, or with outputs {_count(inputs + outputs, 'array')}"
    return CallTypeError(
        f"{name}() takes {takes}; {came} came",
        details=f"  call  {signature_text(source, name)}",
    )


def signature_text(source: KernelSource, name: str) -> str:
    """`matmul(A: float32[m, k], B: float32[k, n], out=C: float32[m, n])`."""
    parts = []
    for a in source.arguments:
        shape = ", ".join(e.text() for e in a.shape)
        prefix = "out=" if a.role == "output" else ""
        parts.append(f"{prefix}{a.name}: {a.dtype.name}[{shape}]")
    return f"{name}({', '.join(parts)})"


def sizes_of(source: KernelSource, args: Sequence[Any], name: str) -> dict[Axis | Var, int]:
    """The sizes that a call with these arrays, all or the inputs, would have."""
    arrays = _views(source, bind(source, name, tuple(args), {}), name)
    for argument, array in zip(source.arguments, arrays, strict=True):
        if array is not None:
            _require_kind(argument, array, name)
    return sizes_by_shape(source, arrays, name)


# -- single arrays
def _require_kind(argument: Argument, array: AnyArray, name: str) -> None:
    """The element type, in any byte order, and the rank."""
    came, expected = array.dtype, argument.dtype.numpy
    if came != expected and came.newbyteorder("=") != expected:
        hint = "" if argument.role == "output" else f'  try  x.astype("{argument.dtype.name}")'
        raise CallTypeError(
            f"{Where(argument, name)} is {came.name}, expected {argument.dtype.name}",
            details=hint,
        )
    require_rank(argument, array.shape, name)


def require_rank(argument: Argument, shape: tuple[int, ...], name: str) -> None:
    """Refuse another number of dimensions than the argument has."""
    if len(shape) != len(argument.shape):
        raise CallValueError(
            f"{Where(argument, name)} has {_count(len(shape), 'dimension')}, shape "
            f"{_shape(shape)}, expected {_extents(argument.shape)}"
        )


def _shape(shape: tuple[int, ...]) -> str:
    return str(shape)


def _extents(shape: tuple[Lin, ...]) -> str:
    inner = ", ".join(e.text() for e in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def _require_output(argument: Argument, array: AnyArray, name: str) -> None:
    what = str(Where(argument, name))
    if not array.flags.writeable:
        raise CallValueError(f"{what} is read-only")
    if not array.dtype.isnative:
        raise CallTypeError(
            f"{what} is not in this machine's byte order",
            details=f'  try  np.empty(shape, "{argument.dtype.name}")',
        )
    if not array.flags.aligned:
        raise CallValueError(
            f"{what} is not aligned to its {argument.dtype.bytes}-byte elements",
            details=f'  try  np.empty(shape, "{argument.dtype.name}")',
        )
    if overlaps_itself(array):
        raise CallValueError(f"{what} is a view in which several cells share memory")


def _fresh(argument: Argument, sizes: dict[Var, _Size], name: str) -> AnyArray:
    shape = tuple(_evaluate(e, sizes) for e in argument.shape)
    if any(n < 0 for n in shape):
        known = _known(argument.shape, sizes)
        raise CallValueError(f"{Where(argument, name)} would have shape {_shape(shape)}{known}")
    try:
        return _at_a_line(shape, argument)
    except (MemoryError, ValueError, OverflowError):
        raise CallValueError(
            f"{Where(argument, name)} of shape {_shape(shape)} does not fit in memory"
        ) from None


def _at_a_line(shape: tuple[int, ...], argument: Argument) -> AnyArray:
    """A new array; a large one begins at a cache line: no store of a vector then crosses one."""
    make = np.zeros if argument.partial else np.empty
    dtype = argument.dtype.numpy
    size = prod(shape) * argument.dtype.bytes
    if size < layout.LARGE:
        return make(shape, dtype)
    raw = make(size + LINE, np.uint8)
    first = -raw.ctypes.data % LINE
    whole: AnyArray = raw[first : first + size].view(dtype).reshape(shape)
    return whole


def _copy(kernel: Callee, argument: Argument, array: AnyArray) -> AnyArray:
    """A plain array with the same contents, or for an output, room for them."""
    try:
        if argument.role == "input":
            plain = np.array(array, dtype=argument.dtype.numpy, order="C", copy=True)
        else:
            plain = np.empty(array.shape, array.dtype)
            if argument.partial:  # cells that the kernel leaves alone must keep their values
                plain[...] = array
    except (MemoryError, ValueError):
        raise CallValueError(
            f"{Where(argument, kernel.name)} of shape {_shape(array.shape)} has to be copied, and "
            "the copy does not fit in memory"
        ) from None
    kernel.copies.count(kernel.name, argument.name, plain.nbytes)
    return plain


# -- arrays together
def sizes_by_shape(
    source: KernelSource, arrays: Sequence[Shaped | None], name: str
) -> dict[Axis | Var, int]:
    """The sizes that arrays, of which only the shapes count, give."""
    return {v: size.value for v, size in _sizes(source, arrays, name).items()}


def _sizes(source: KernelSource, arrays: Sequence[Shaped | None], name: str) -> dict[Var, _Size]:
    """Every size, read off dimensions; all other dimensions must agree."""
    sizes: dict[Var, _Size] = {}
    pairs = list(zip(source.arguments, arrays, strict=True))
    given = [
        (a, v) for role in ("input", "output") for a, v in pairs if v is not None and a.role == role
    ]
    for argument, v in given:
        for dim, extent in zip(v.shape, argument.shape, strict=True):
            variable = solvable(extent)
            if variable is not None and variable not in sizes:
                value = _solve(extent, variable, dim, argument, v, name)
                sizes[variable] = _Size(value, argument.name)
    missing = [s.name for s in source.sizes if s not in sizes]
    if missing:
        raise CallValueError(
            f"{name}(): size {missing[0]} cannot be read off a dimension of the arrays given",
            details=f"  call  {signature_text(source, name)}",
        )
    for argument, v in given:
        expected = tuple(_evaluate(e, sizes) for e in argument.shape)
        if v.shape != expected:
            raise CallValueError(
                f"{Where(argument, name)} has shape {_shape(v.shape)}, expected "
                f"{_expected(argument, expected, sizes)}"
            )
    return sizes


def _expected(argument: Argument, expected: tuple[int, ...], sizes: dict[Var, _Size]) -> str:
    if all(e.is_const for e in argument.shape):
        return _shape(expected)
    return f"{_extents(argument.shape)} = {_shape(expected)}{_known(argument.shape, sizes)}"


def _known(shape: tuple[Lin, ...], sizes: dict[Var, _Size]) -> str:
    used = dict.fromkeys(v for e in shape for v in variables(e) if isinstance(v, Var))
    parts = [f"{v.name} = {sizes[v].value} (from {sizes[v].origin})" for v in used]
    return f", where {', '.join(parts)}" if parts else ""


def _solve(
    extent: Lin, variable: Var, dim: int, argument: Argument, array: Shaped, name: str
) -> int:
    value, rest = divmod(dim - extent.const, extent.coef(variable))
    if rest == 0 and value >= 0:
        return value
    trouble = f"no {variable.name} gives {dim}" if rest else f"{variable.name} would be {value}"
    raise CallValueError(
        f"{Where(argument, name)} has shape {_shape(array.shape)}, expected "
        f"{_extents(argument.shape)}: {trouble}"
    )


def _evaluate(e: Lin, sizes: dict[Var, _Size]) -> int:
    env: dict[Axis | Var, int] = {v: size.value for v, size in sizes.items()}
    return e.evaluate(env)


def _require_apart(source: KernelSource, arrays: list[AnyArray | None], name: str) -> None:
    ranges = [None if array is None else byte_range(array) for array in arrays]
    for i, output in enumerate(source.arguments):
        if output.role != "output" or ranges[i] is None:
            continue
        for j, other in enumerate(source.arguments):
            if j == i or (other.role == "output" and j < i):
                continue
            if not _meet(ranges[i], ranges[j]) or _same_in_place(source, arrays, i, j):
                continue
            kind = "argument" if other.role == "input" else "output"
            raise CallValueError(
                f"{name}(): output {output.name} shares memory with {kind} {other.name}",
                details="  try  a copy of one of them: x.copy()",
            )


def _meet(a: tuple[int, int] | None, b: tuple[int, int] | None) -> bool:
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]


def _same_in_place(source: KernelSource, arrays: list[AnyArray | None], i: int, j: int) -> bool:
    output, other = source.arguments[i], source.arguments[j]
    x, y = arrays[i], arrays[j]
    if x is None or y is None or other.name not in output.in_place:
        return False
    if (output.shape, output.dtype) != (other.shape, other.dtype):
        return False
    return (x.ctypes.data, x.shape, x.strides) == (y.ctypes.data, y.shape, y.strides)


# -- a check in the kernel failed
def failure(kernel: Callee, status: int, info: list[int]) -> Exception:
    checks = kernel.source.checks
    if not 1 <= status <= len(checks):
        return internal(f"{kernel.name}() returned the unknown status {status}", state=str(info))
    message = checks[status - 1].message
    for k, value in enumerate(info):
        message = message.replace(f"{{{k}}}", str(value))
    return KernelError(f"{kernel.name}(): {message}")


@user_api
def raise_failed(kernel: Callee, status: int, info: int) -> None:
    """What the wrapper calls for a status that is not 0; `info` is the address of four i64."""
    raise failure(kernel, status, list((ctypes.c_int64 * 4).from_address(info)))
