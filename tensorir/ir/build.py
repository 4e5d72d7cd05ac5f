"""Building scalar expressions: which operations there are, their types, and constant folding.

Types follow numpy. Python's own scalars are weak: they take the type of what they meet, and an
integer that does not fit there is refused. Folding follows the numeric contract to the letter
(:mod:`tensorir.ir.numerics`); what a checked kernel would refuse, such as a division by zero, is
left for the kernel to do.
"""

from __future__ import annotations

import numpy as np

from tensorir.ir import numerics
from tensorir.ir.dtype import BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINTS, DType, promote
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import FALSE, TRUE, Const, Expr, Op
from tensorir.ir.index import conditions, to_lin
from tensorir.ir.ops import MATHS, OPS, OpInfo
from tensorir.ir.tensor import Tensor, scalar
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import user_api

# -- constants and conversions


@user_api
def const(value: object, dtype: object = None) -> Const:
    """A constant.

    Parameters
    ----------
    value
        A Python or numpy bool, integer or float.
    dtype
        Its type; by default what numpy gives the value: bool, int64 or float64 for Python's own.

    Raises
    ------
    ArgumentError
        For an integer that its type cannot hold.
    ArgumentTypeError
        For something that is no number, or a float asked for as an integer.

    Examples
    --------
    >>> const(3), const(0.1, "float32"), const(3).dtype
    (3, 0.1, int64)
    >>> const(300, "uint8")
    Traceback (most recent call last):
        ...
    tensorir.ArgumentError: 300 does not fit in uint8, which holds 0 to 255
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    given = type(value).__module__ != "builtins" and hasattr(value, "dtype")
    to = as_dtype(dtype) if dtype is not None else None
    if isinstance(value, bool | np.bool_):
        return _bool_const(bool(value), to or BOOL)
    if isinstance(value, int | np.integer):
        return _int_const(int(value), to or (as_dtype(value.dtype) if given else INT64))  # type: ignore[union-attr]
    if isinstance(value, float | np.generic):
        own = as_dtype(value.dtype) if isinstance(value, np.generic) else FLOAT64
        return _float_const(float(value), to or own)
    raise ArgumentTypeError(f"expected a number, not {type(value).__name__} {value!r:.60}")


def _bool_const(value: bool, to: DType) -> Const:
    if to.kind == "bool":
        return TRUE if value else FALSE
    return Const(float(value), to) if to.is_float else Const(int(value), to)


def _int_const(value: int, to: DType) -> Const:
    if to.is_float:
        return Const(numerics.round_to(value, to), to)
    if to.kind == "bool":
        if value in (0, 1):
            return TRUE if value else FALSE
        raise ArgumentError(f"{value} does not fit in bool, which holds 0 and 1")
    low, high = numerics.limits(to)
    if not low <= value <= high:
        raise ArgumentError(f"{value} does not fit in {to}, which holds {low} to {high}")
    return Const(value, to)


def _float_const(value: float, to: DType) -> Const:
    if not to.is_float:
        raise ArgumentTypeError(
            f"{value!r} is a float and {to} holds none: convert with "
            f"tir.cast({value!r}, {to.name!r})"
        )
    return Const(numerics.round_to(value, to), to)


def is_scalar(x: object) -> bool:
    """Whether `x` is a Python or numpy number rather than an expression."""
    return isinstance(x, bool | int | float | np.generic) or (
        isinstance(x, np.ndarray) and x.ndim == 0
    )


def as_expr(x: object) -> Expr:
    """`x` as an expression: an expression, a number, or a tensor of rank 0.

    Examples
    --------
    >>> as_expr(2.5)
    2.5
    """
    if isinstance(x, Expr):
        return x
    if is_scalar(x):
        return const(x)
    if isinstance(x, Tensor):
        return scalar(x)
    raise ArgumentTypeError(
        f"expected a scalar expression or a number, not {type(x).__name__} {x!r:.60}"
    )


def _weak(x: object, other: DType) -> Expr:
    """A Python scalar beside a value of type `other`."""
    if isinstance(x, bool):
        return const(x)
    if isinstance(x, int):
        return const(x, INT64 if other.kind == "bool" else other)
    return const(x, other if other.is_float else FLOAT64)


def _is_weak(x: object) -> bool:
    return isinstance(x, bool | int | float) and not isinstance(x, np.generic)


def _operands(*xs: object) -> list[Expr]:
    """Expressions, Python scalars typed by the strong operands beside them."""
    strong = [as_expr(x) for x in xs if not _is_weak(x)]
    if not strong:
        kinds = [const(x).dtype for x in xs]
        common = kinds[0]
        for k in kinds[1:]:
            common = promote(common, k)
        return [const(x, None if isinstance(x, bool) else common) for x in xs]
    common = strong[0].dtype
    for e in strong[1:]:
        common = promote(common, e.dtype)
    it = iter(strong)
    return [_weak(x, common) if _is_weak(x) else next(it) for x in xs]


def _common(es: list[Expr]) -> DType:
    common = es[0].dtype
    for e in es[1:]:
        common = promote(common, e.dtype)
    return common


@user_api
def cast(e: object, dtype: object) -> Expr:
    """`e` converted to `dtype`: to nearest even; float to integer saturates and NaN gives 0.

    Examples
    --------
    >>> cast(-1, "uint8"), cast(3.7, "int32"), cast(float("nan"), "int8")
    (255, 3, 0)
    """
    to = as_dtype(dtype)
    x = as_expr(e)
    if x.dtype == to:
        return x
    return make("cast", (x,), to)


@user_api
def reinterpret(e: object, dtype: object) -> Expr:
    """The bits of `e` read as `dtype`, which has as many.

    Examples
    --------
    >>> reinterpret(const(1.0, "float32"), "int32")
    1065353216
    """
    to = as_dtype(dtype)
    x = as_expr(e)
    if x.dtype == to:
        return x
    if x.dtype.bits != to.bits:
        raise ArgumentTypeError(
            f"reinterpret needs types of equal size: {x.dtype} has {x.dtype.bits} bits, "
            f"{to} has {to.bits}"
        )
    return make("reinterpret", (x,), to)


# -- operations


def make(name: str, args: tuple[Expr, ...], dtype: DType) -> Expr:
    """The operation, folded if its arguments are constants. Types are the caller's business."""
    if all(isinstance(a, Const) for a in args):
        folded = numerics.fold(name, args, dtype)  # type: ignore[arg-type]
        if folded is not None:
            return Const(folded, dtype)
    if dtype.kind != "float" or name in ("select", "if_then_else"):
        simpler = _identity(name, args, dtype)
        if simpler is not None:
            return simpler
    return Op(name, args, dtype)


def _value(e: Expr) -> bool | int | float | None:
    return e.value if isinstance(e, Const) else None


def _identity(name: str, args: tuple[Expr, ...], dtype: DType) -> Expr | None:
    """A simpler form of an operation on integers or bools, exact in every case."""
    if name in ("select", "if_then_else"):
        taken = _value(args[0])
        if taken is not None:
            return args[1] if taken else args[2]
        return args[1] if args[1] is args[2] else None
    if dtype.kind == "bool":
        return _logic(name, args)
    if len(args) == 2 and args[0].dtype == dtype:
        return _integer_identity(name, args[0], args[1], dtype)
    return None


def _logic(name: str, args: tuple[Expr, ...]) -> Expr | None:
    if name == "not" and isinstance(args[0], Op) and args[0].name == "not":
        return args[0].args[0]
    if name not in ("and", "or"):
        return None
    for x, other in ((args[0], args[1]), (args[1], args[0])):
        value = _value(x)
        if value is not None:
            return other if value == (name == "and") else x
    return args[0] if args[0] is args[1] else None


def _integer_identity(name: str, a: Expr, b: Expr, dtype: DType) -> Expr | None:
    va, vb = _value(a), _value(b)
    if name == "add":
        if vb == 0 or va == 0:
            return a if vb == 0 else b
        if va is not None:
            return make("add", (b, a), dtype)
        if vb is not None and isinstance(a, Op) and a.name in ("add", "sub"):
            inner = _value(a.args[1])
            if inner is not None:
                total = int(vb) + (int(inner) if a.name == "add" else -int(inner))
                return _offset(a.args[0], total, dtype)
    elif name == "sub" and vb is not None:
        if vb == 0:
            return a
        if isinstance(a, Op) and a.name in ("add", "sub") and _value(a.args[1]) is not None:
            return _offset(a, -int(vb), dtype)
    elif name == "mul":
        if va == 0 or vb == 0:
            return Const(0, dtype)
        if va == 1 or vb == 1:
            return b if va == 1 else a
    elif name in ("floordiv", "truncdiv") and vb == 1:
        return a
    elif name in ("floormod", "truncmod") and vb == 1:
        return Const(0, dtype)
    elif (name in ("shl", "shr") and vb == 0) or (name in ("min", "max") and a is b):
        return a
    return None


def _offset(e: Expr, by: int, dtype: DType) -> Expr:
    """`e + by`, with what `e` already adds gathered; written as a difference if it is negative."""
    if isinstance(e, Op) and e.name in ("add", "sub"):
        inner = _value(e.args[1])
        if inner is not None:
            by += int(inner) if e.name == "add" else -int(inner)
            e = e.args[0]
    by = numerics.wrap(by, dtype)
    if by == 0:
        return e
    low, _ = numerics.limits(dtype)
    if by < 0 and by != low:
        return Op("sub", (e, Const(-by, dtype)), dtype)
    return Op("add", (e, Const(by, dtype)), dtype)


def binary(name: str, a: object, b: object) -> Expr:
    """The operation `name` of two values, by the type rules of :data:`OPS`.

    Raises
    ------
    ArgumentTypeError
        Where the operation is not defined for these types.

    Examples
    --------
    >>> from tensorir.ir.expr import Var
    >>> n = Var("n")
    >>> binary("add", n, 1), binary("div", n, 2).dtype, binary("floordiv", -7, 2)
    (n + 1, float64, -4)
    """
    info = OPS[name]
    if info.rule == "compare":
        return compare(name, a, b)
    x, y = _operands(a, b)
    if name == "pow":
        return _power(x, y)
    if name == "ldexp":
        return _ldexp(x, y)
    common = promote(x.dtype, y.dtype)
    if info.rule == "number":
        if common.kind == "bool" and name in ("min", "max", "fmin", "fmax"):
            return make("and" if name.endswith("min") else "or", (x, y), BOOL)
        _refuse_bool(name, common)
        if not common.is_float and name in ("fmin", "fmax"):
            name = name[1:]
    elif info.rule == "integer":
        if not common.is_integer:
            raise ArgumentTypeError(_integers_only(name, x, y))
    elif info.rule == "bits":
        if common.is_float:
            raise ArgumentTypeError(
                f"{_spelled(name)} needs integers or conditions, not {x.dtype} and {y.dtype}"
            )
    elif info.rule == "divide":
        common = common if common.is_float else FLOAT64
    else:
        common = float_for(common)
    return make(name, (cast(x, common), cast(y, common)), common)


def float_for(d: DType) -> DType:
    """The float type in which numpy computes a maths function of values of type `d`."""
    if d.is_float:
        return d
    return FLOAT16 if d.bits <= 8 else FLOAT32 if d.bits <= 16 else FLOAT64


def _spelled(name: str) -> str:
    return OPS[name].symbol or name


def _refuse_bool(name: str, d: DType) -> None:
    if d.kind == "bool":
        raise ArgumentTypeError(
            f"{_spelled(name)} needs numbers, not bool: convert a condition with "
            "tir.cast(cond, 'int32'), or combine conditions with & | ^"
        )


def _integers_only(name: str, x: Expr, y: Expr) -> str:
    text = f"{_spelled(name)} needs integers, not {x.dtype} and {y.dtype}"
    if name == "floordiv" and _common([x, y]).is_float:
        return f"{text}: write tir.floor(a / b)"
    if name == "floormod" and _common([x, y]).is_float:
        return f"{text}: write a - tir.floor(a / b) * b"
    return text


def _power(x: Expr, y: Expr) -> Expr:
    common = promote(x.dtype, y.dtype)
    exponent = _value(y)
    if exponent == 2:
        _refuse_bool("pow", x.dtype)
        base = cast(x, common)
        return make("mul", (base, base), common)
    if common.is_float:
        return make("pow", (cast(x, common), cast(y, common)), common)
    if not isinstance(exponent, int) or exponent < 0 or common.kind == "bool":
        raise ArgumentTypeError(
            "** of integers needs a constant exponent of at least 0; for others convert the base: "
            "tir.cast(x, 'float64') ** y"
        )
    result: Expr = Const(1, common)
    base = cast(x, common)
    while exponent:
        if exponent & 1:
            result = make("mul", (result, base), common)
        exponent >>= 1
        if exponent:
            base = make("mul", (base, base), common)
    return result


def _ldexp(x: Expr, n: Expr) -> Expr:
    to = float_for(x.dtype)
    if n.dtype.is_float and isinstance(n, Const) and float(n.value).is_integer():
        n = Const(int(n.value), INT64)
    if not n.dtype.is_integer:
        raise ArgumentTypeError(f"the exponent of ldexp is an integer, not {n.dtype}")
    # beyond the range of int32 every result is 0 or inf, as at its ends
    return make("ldexp", (cast(x, to), _clamp32(n)), to)


def _clamp32(n: Expr) -> Expr:
    if n.dtype == INT32:
        return n
    low, high = numerics.limits(INT32)
    if n.dtype.bits > 32 or n.dtype.name == "uint32":
        n = binary("min", n, high)
        n = binary("max", n, low) if n.dtype.kind == "int" else n
    return cast(n, INT32)


def unary(name: str, a: object) -> Expr:
    """The operation `name` of one value, by the type rules of :data:`OPS`.

    Examples
    --------
    >>> unary("neg", const(-128, "int8")), unary("exp", const(1, "int32")).dtype
    (-128, float64)
    """
    x = as_expr(a)
    d = x.dtype
    rule = OPS[name].rule
    if rule == "test":
        if not d.is_float:
            return TRUE if name == "isfinite" else FALSE
        return make(name, (x,), BOOL)
    if rule == "bits":
        if d.is_float:
            raise ArgumentTypeError(f"~ needs an integer or a condition, not {d}")
        return make(name, (x,), d)
    if rule == "count":
        if not d.is_integer:
            raise ArgumentTypeError(f"{name} needs an integer, not {d}")
        return make(name, (x,), d)
    if rule == "float":
        to = float_for(d)
        return make(name, (cast(x, to),), to)
    _refuse_bool(name, d)
    unchanged = ("floor", "ceil", "round", "trunc", *(("abs",) if d.kind == "uint" else ()))
    return x if not d.is_float and name in unchanged else make(name, (x,), d)


_MIRROR = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def compare(name: str, a: object, b: object) -> Expr:
    """The condition `a <name> b`, exact also between signed and unsigned integers.

    Examples
    --------
    >>> from tensorir.ir.expr import Var
    >>> compare("lt", Var("n"), 4)
    n < 4
    """
    if a is None or b is None:
        raise ArgumentTypeError("an expression cannot be compared to None: test it with `is None`")
    x, y = _operands(a, b)
    if x.dtype.kind == y.dtype.kind == "bool":
        return _compare_bools(name, x, y)
    common = promote(x.dtype, y.dtype)
    if common.is_float and x.dtype.is_integer and y.dtype.is_integer:
        if x.dtype.kind == "uint":
            return compare(_MIRROR[name], y, x)
        return _compare_mixed(name, x, y)
    return make(name, (cast(x, common), cast(y, common)), BOOL)


def _compare_bools(name: str, x: Expr, y: Expr) -> Expr:
    if name in ("eq", "ne"):
        differ = make("xor", (x, y), BOOL)
        return differ if name == "ne" else make("not", (differ,), BOOL)
    return make(name, (cast(x, UINTS[8]), cast(y, UINTS[8])), BOOL)


def _compare_mixed(name: str, signed: Expr, unsigned: Expr) -> Expr:
    """A signed integer against an unsigned one that no signed type holds."""
    to = unsigned.dtype
    negative = make("lt", (signed, Const(0, signed.dtype)), BOOL)
    rest = make(name, (cast(signed, to), unsigned), BOOL)
    if name in ("lt", "le", "ne"):
        return make("or", (negative, rest), BOOL)
    return make("and", (make("not", (negative,), BOOL), rest), BOOL)


def condition(x: object, what: str = "a condition") -> Expr:
    """`x` as a bool expression, or an error that calls it `what`."""
    if isinstance(x, bool | np.bool_):
        return TRUE if x else FALSE
    e = as_expr(x)
    if e.dtype.kind != "bool":
        raise ArgumentTypeError(f"{what} must be bool, not {e.dtype}: write {e} != 0")
    return e


def _choice(name: str, cond: object, yes: object, no: object) -> Expr:
    c = condition(cond, f"the condition of {name}")
    a, b = _operands(yes, no)
    common = promote(a.dtype, b.dtype)
    return make(name, (c, cast(a, common), cast(b, common)), common)


@user_api
def select(cond: object, yes: object, no: object) -> Expr:
    """`yes` where `cond` holds, else `no`; both are evaluated, so both must be safe to load.

    Examples
    --------
    >>> from tensorir.ir.expr import Var
    >>> select(Var("n") > 4, 1, 0)
    select(n > 4, 1, 0)
    """
    return _choice("select", cond, yes, no)


@user_api
def if_then_else(cond: object, yes: object, no: object) -> Expr:
    """`yes` where `cond` holds, else `no`; only what the taken one needs is loaded.

    Examples
    --------
    >>> from tensorir.ir.tensor import Tensor
    >>> from tensorir.ir.language import placeholder, var
    >>> n = var("n"); A = placeholder((4,), name="A")
    >>> if_then_else(n < 4, A[n], 0)
    if_then_else(n < 4, A[n], 0.0)
    """
    return _choice("if_then_else", cond, yes, no)


@user_api
def fma(a: object, b: object, c: object) -> Expr:
    """`a * b + c`, rounded once for floats.

    Examples
    --------
    >>> fma(2, 3, 4)
    10
    """
    xs = _operands(a, b, c)
    common = _common(xs)
    _refuse_bool("fma", common)
    x, y, z = (cast(e, common) for e in xs)
    if not common.is_float:
        return make("add", (make("mul", (x, y), common), z), common)
    return make("fma", (x, y, z), common)


# what numpy calls an operation, where a numpy scalar stands left of an expression
_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "floormod", "power": "pow", "bitwise_and": "and",
    "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "shl", "right_shift": "shr",
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge",
}  # fmt: skip


def from_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[object, ...], options: dict[str, object]
) -> Expr:
    """The operation of `np.float32(2) * e`: numpy asks the expression for it.

    Examples
    --------
    >>> from tensorir.ir.expr import Var
    >>> np.int64(2) * Var("n")
    2 * n
    """
    name = _UFUNCS.get(ufunc.__name__)
    if name is None or method != "__call__" or options:
        raise ArgumentTypeError(
            f"np.{ufunc.__name__} does not take tensor expressions: use the functions of tensorir, "
            "such as tir.exp"
        )
    return binary(name, *inputs)


__all__ = [
    "MATHS",
    "OPS",
    "OpInfo",
    "as_expr",
    "binary",
    "cast",
    "compare",
    "condition",
    "conditions",
    "const",
    "float_for",
    "fma",
    "from_ufunc",
    "if_then_else",
    "is_scalar",
    "make",
    "reinterpret",
    "select",
    "to_lin",
    "unary",
]
