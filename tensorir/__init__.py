"""Declare tensor operators, schedule them by hand, and get kernels: proved, fast, inspectable.

Start with :func:`placeholder`, :func:`compute` and :func:`schedule`; then :func:`build`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorir.codegen.targets import target
from tensorir.emulator.reference import evaluate
from tensorir.inspect.help import help
from tensorir.ir.build import cast, const, fma, if_then_else, reinterpret, select
from tensorir.ir.dtype import DType, dtype
from tensorir.ir.expr import Axis, Expr
from tensorir.ir.intrinsic import intrinsic
from tensorir.ir.language import compute, placeholder, reduce_axis, var
from tensorir.ir.maths import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cbrt,
    ceil,
    clz,
    copysign,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floordiv,
    floormod,
    fmax,
    fmin,
    hypot,
    isfinite,
    isinf,
    isnan,
    ldexp,
    log,
    log1p,
    log2,
    log10,
    maximum,
    minimum,
    popcount,
    pow,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tensorir.ir.reductions import all, any, argmax, argmin, max, min, prod, reducer, sum
from tensorir.ir.target import Target
from tensorir.ir.tensor import Tensor
from tensorir.runtime.build import build
from tensorir.runtime.device_arrays import to_device
from tensorir.runtime.files import load
from tensorir.runtime.kernel import Kernel
from tensorir.runtime.threads import num_threads
from tensorir.runtime.timer import compare
from tensorir.schedule.schedule import Schedule, schedule
from tensorir.schedule.trace import Trace, replay
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    BoundsError,
    CacheError,
    CallTypeError,
    CallValueError,
    CompileError,
    IllegalSchedule,
    InternalError,
    KernelError,
    ScheduleError,
    TensorIRError,
    TensorIRWarning,
    UnsupportedError,
)
from tensorir.support.knobs import knobs
from tensorir.support.public import full_text, silence

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Axis",
    "BoundsError",
    "CacheError",
    "CallTypeError",
    "CallValueError",
    "CompileError",
    "DType",
    "Expr",
    "IllegalSchedule",
    "InternalError",
    "Kernel",
    "KernelError",
    "Schedule",
    "ScheduleError",
    "Target",
    "Tensor",
    "TensorIRError",
    "TensorIRWarning",
    "Trace",
    "UnsupportedError",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "build",
    "cast",
    "cbrt",
    "ceil",
    "clz",
    "compare",
    "compute",
    "const",
    "copysign",
    "cos",
    "cosh",
    "dtype",
    "erf",
    "evaluate",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmax",
    "fmin",
    "full_text",
    "help",
    "hypot",
    "if_then_else",
    "intrinsic",
    "isfinite",
    "isinf",
    "isnan",
    "knobs",
    "ldexp",
    "load",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "maximum",
    "min",
    "minimum",
    "num_threads",
    "placeholder",
    "popcount",
    "pow",
    "prod",
    "reduce_axis",
    "reducer",
    "reinterpret",
    "replay",
    "round",
    "rsqrt",
    "schedule",
    "select",
    "sigmoid",
    "sign",
    "silence",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "target",
    "to_device",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]

if TYPE_CHECKING:
    from tensorir import ops as ops
else:

    def __getattr__(name):
        """The operators, imported when they are first asked for; a hint for what is not there."""
        import importlib

        from tensorir.support.names import hint

        if name == "ops":
            return importlib.import_module("tensorir.ops")
        raise AttributeError(f"module 'tensorir' has no attribute {name!r}{hint(name, __all__)}")
