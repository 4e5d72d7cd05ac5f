"""The operations on scalars: a table of what each takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rule = Literal[
    "number", "float", "integer", "bits", "divide", "compare", "choice", "convert", "test", "count"
]


MATHS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos",
    "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid",
    "erf",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpInfo:
    """What an operation takes and gives.

    `rule` names the types: `number` (not bool), `float` (integers become floats), `integer`,
    `bits` (integer or bool), `divide`, `compare` and `test` (give bool), `choice`, `convert`,
    `count` (integer in, the same out). `symbol` is its spelling as an operator.
    """

    arity: int
    rule: Rule
    symbol: str | None = None


def _table() -> dict[str, OpInfo]:
    table: dict[str, OpInfo] = {}
    for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*")):
        table[name] = OpInfo(2, "number", symbol)
    table["div"] = OpInfo(2, "divide", "/")
    for name, symbol in (("floordiv", "//"), ("floormod", "%")):
        table[name] = OpInfo(2, "integer", symbol)
    for name in ("truncdiv", "truncmod"):
        table[name] = OpInfo(2, "integer")
    for name in ("shl", "shr"):
        table[name] = OpInfo(2, "integer", {"shl": "<<", "shr": ">>"}[name])
    for name in ("min", "max", "fmin", "fmax"):
        table[name] = OpInfo(2, "number")
    for name, symbol in (("and", "&"), ("or", "|"), ("xor", "^")):
        table[name] = OpInfo(2, "bits", symbol)
    symbols = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for name, symbol in symbols.items():
        table[name] = OpInfo(2, "compare", symbol)
    table["not"] = OpInfo(1, "bits", "~")
    table["neg"] = OpInfo(1, "number", "-")
    for name in ("abs", "sign", "floor", "ceil", "round", "trunc"):
        table[name] = OpInfo(1, "number")
    for name in ("select", "if_then_else"):
        table[name] = OpInfo(3, "choice")
    for name in ("cast", "reinterpret"):
        table[name] = OpInfo(1, "convert")
    table["fma"] = OpInfo(3, "number")
    for name in ("pow", "atan2", "copysign", "hypot"):
        table[name] = OpInfo(2, "float", "**" if name == "pow" else None)
    table["ldexp"] = OpInfo(2, "float")
    for name in MATHS:
        table[name] = OpInfo(1, "float")
    for name in ("isnan", "isinf", "isfinite"):
        table[name] = OpInfo(1, "test")
    for name in ("popcount", "clz"):
        table[name] = OpInfo(1, "count")
    return table


OPS: dict[str, OpInfo] = _table()
