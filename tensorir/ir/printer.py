"""Text of expressions, statements and loops. Deterministic; registered with `support.display`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tensorir.ir.affine import Fact, Lin, floordiv
from tensorir.ir.expr import Axis, Const, Expr, Load, Op, Reduce, Ref, Var
from tensorir.ir.statement import Access, May, Statement
from tensorir.ir.stmt import Alloc, Block, Bound, For, If, Node, Run, Storage
from tensorir.ir.tensor import Compute, Tensor
from tensorir.support import display
from tensorir.support.names import fresh

Namer = Callable[[Axis | Var], str]
# Python's: a number for each operator, higher binds tighter.
_BINARY = {
    "or": ("|", 3), "xor": ("^", 4), "and": ("&", 5), "shl": ("<<", 6), "shr": (">>", 6),
    "add": ("+", 7), "sub": ("-", 7), "mul": ("*", 8), "div": ("/", 8), "floordiv": ("//", 8),
    "floormod": ("%", 8), "eq": ("==", 2), "ne": ("!=", 2), "lt": ("<", 2), "le": ("<=", 2),
    "gt": (">", 2), "ge": (">=", 2), "pow": ("**", 10),
}  # fmt: skip
_COMPARISON, _UNARY, _ATOM = 2, 9, 11
_LONGEST = 20_000


def expr_text(e: Expr, name: Namer | None = None, refs: Sequence[str] | None = None) -> str:
    """An expression as Python would write it.

    Parameters
    ----------
    name
        Gives each axis and size its text; their own names by default.
    refs
        The text of each read of a statement, for `Ref`; `$0`, `$1`, ... by default.

    Examples
    --------
    >>> n = Var("n")
    >>> expr_text((n + 1) * 2 % 3), expr_text(-(n - (1 - n)))
    ('(n + 1) * 2 % 3', '-(n - (1 - n))')
    """
    return _Text(name, refs).at(e)[0]


class _Text:
    def __init__(self, name: Namer | None, refs: Sequence[str] | None) -> None:
        self.name, self.refs = name, refs
        self.done: dict[int, tuple[str, int]] = {}

    def at(self, e: Expr) -> tuple[str, int]:
        if id(e) not in self.done:
            text, level = self._at(e)
            # shared parts can make a text exponentially long
            self.done[id(e)] = (text, level) if len(text) <= _LONGEST else ("(...)", _ATOM)
        return self.done[id(e)]

    def inside(self, e: Expr, level: int) -> str:
        text, own = self.at(e)
        return text if own >= level else f"({text})"

    def _at(self, e: Expr) -> tuple[str, int]:
        if isinstance(e, Const):
            text = const_text(e)
            return text, _UNARY if text.startswith("-") else _ATOM
        if isinstance(e, Axis | Var):
            text = self.name(e) if self.name else e.name
            return text, _ATOM if text.isidentifier() else 7
        if isinstance(e, Ref):
            text = f"${e.slot}" if self.refs is None else self.refs[e.slot]
            return text, _ATOM
        if isinstance(e, Load):
            return f"{e.tensor.name}[{self.list(e.index) or '()'}]", _ATOM
        if isinstance(e, Reduce):
            return self.reduction(e), _ATOM
        assert isinstance(e, Op)
        return self.op(e)

    def list(self, es: Sequence[Expr]) -> str:
        return ", ".join(self.at(x)[0] for x in es)

    def op(self, e: Op) -> tuple[str, int]:
        if e.name in _BINARY:
            symbol, level = _BINARY[e.name]
            left, right = e.args
            # comparisons do not chain, and ** groups to the right
            tight = level + 1 if level == _COMPARISON or e.name == "pow" else level
            text = f"{self.inside(left, tight)} {symbol} {self.inside(right, level + 1)}"
            return text, level
        if e.name in ("neg", "not"):
            symbol = "-" if e.name == "neg" else "~"
            return symbol + self.inside(e.args[0], _UNARY), _UNARY
        if e.name == "cast":
            return f"{e.dtype}({self.at(e.args[0])[0]})", _ATOM
        if e.name == "reinterpret":
            return f"reinterpret({self.at(e.args[0])[0]}, {e.dtype})", _ATOM
        return f"{e.name}({self.list(e.args)})", _ATOM

    def reduction(self, e: Reduce) -> str:
        axes = [self.at(a)[0] for a in e.axes]
        parts = [self.at(s)[0] for s in e.sources]
        parts.append(f"axis={axes[0]}" if len(axes) == 1 else f"axis=({', '.join(axes)})")
        if e.where is not None:
            parts.append(f"where={self.at(e.where)[0]}")
        if e.init is not None:
            text = self.list(e.init)
            parts.append(f"init={text}" if len(e.init) == 1 else f"init=({text})")
        return f"{e.reducer.name}({', '.join(parts)})" + (
            f"[{e.component}]" if len(e.state) > 1 else ""
        )


def const_text(e: Const) -> str:
    """The shortest text that gives the constant back in its type."""
    if not e.dtype.is_float:
        return str(e.value)
    value = float(e.value)
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if e.dtype.name in ("float32", "float16"):
        return str(e.dtype.numpy.type(value))
    return repr(value)


# -- tensors


def tensor_text(t: Tensor) -> str:
    """`A: float32[M, K]`.

    Examples
    --------
    >>> from tensorir.ir.dtype import dtype
    >>> tensor_text(Tensor("A", dtype("int8"), (Lin({Var("n"): 1}), Lin(const=4))))
    'A: int8[n, 4]'
    """
    return f"{t.name}: {t.dtype}[{', '.join(e.text() for e in t.extents)}]"


def compute_text(c: Compute) -> str:
    """`C[i, j] = sum(A[i, k] * B[k, j], axis=k)`, a line for each output."""
    index = ", ".join(a.name for a in c.axes) or "()"
    names = [t.name for t in c.outputs] or [c.name] * len(c.bodies)
    where = f"  where {c.where}" if c.where is not None else ""
    lines = [f"{n}[{index}] = {b}{where}" for n, b in zip(names, c.bodies, strict=True)]
    return "\n".join(lines)


# -- statements


def statement_text(
    stmt: Statement,
    args: Sequence[Lin] | Mapping[Axis, Lin] | None = None,
    name: Namer | None = None,
) -> str:
    """A statement as an assignment: `C[i, j] = fma(A[i, k], B[k, j], C[i, j])`.

    Parameters
    ----------
    args
        What its iterators are, in order or by iterator; themselves by default.
    name
        Gives each axis and size its text; their own names by default.
    """
    if stmt.role == "wait":
        return f"wait for copies, all but {stmt.in_flight} groups"
    if stmt.synchronises:
        return "end of a group of copies" if stmt.role == "commit" else "barrier"
    env: dict[Axis | Var, Lin] = {}
    if isinstance(args, Mapping):
        env.update(args.items())
    elif args is not None:
        env.update(zip(stmt.iters, args, strict=False))  # a broken nest prints too

    def call(a: Axis | Var) -> str:
        if a in env:
            return env[a].text(name)
        return name(a) if name else a.name

    refs = [""] * len(stmt.reads)
    for k in stmt.read_order:
        refs[k] = _access_text(stmt.reads[k], env, call, name, refs)
    cells = [_access_text(w, env, call, name, refs) for w in stmt.writes]
    end = "  # atomic" if stmt.atomic else ""
    return f"{', '.join(cells)} = {', '.join(expr_text(b, call, refs) for b in stmt.bodies)}{end}"


def _access_text(
    a: Access,
    env: Mapping[Axis | Var, Lin],
    call: Namer,
    name: Namer | None,
    refs: Sequence[str],
) -> str:
    parts = [
        expr_text(i.value, call, refs) if isinstance(i, May) else i.subst(env).text(name)
        for i in a.index
    ]
    return f"{a.array.name}[{', '.join(parts) or '()'}]"


def value_text(value: object) -> str:
    """A number as it reads in a message: numpy scalars without their type."""
    return str(value.item()) if isinstance(value, np.generic) else str(value)


# -- loops


def loops_text(node: Node, name: Namer | None = None) -> str:
    """A loop nest as text, one line for each loop, guard and statement.

    `for i in 0..M:  # parallel` runs i from 0 while it is below M. Where two axes in scope share
    a name the inner one is numbered.

    Examples
    --------
    >>> n, i = Var("n"), Axis("i")
    >>> print(loops_text(For(i, ((1, Lin()),), ((1, Lin({n: 1}, -1)),), Block(()), "parallel")))
    for i in 0..n:  # parallel
      pass
    """
    return "\n".join(_lines(node, name or unique_names(node)))


def unique_names(node: Node) -> Namer:
    """Names for the axes of a nest: their own, numbered where an axis outside has the same."""
    names: dict[Axis | Var, str] = {}

    def walk(x: Node, taken: frozenset[str]) -> None:
        if isinstance(x, Block):
            for i in x.items:
                walk(i, taken)
        elif isinstance(x, For):
            names.setdefault(x.axis, fresh(x.axis.name, taken))
            walk(x.body, taken | {names[x.axis]})
        elif isinstance(x, If):
            walk(x.body, taken)
            if x.other is not None:
                walk(x.other, taken)
        elif isinstance(x, Alloc):
            walk(x.body, taken)

    walk(node, frozenset(sizes(node)))
    return lambda a: names.get(a, a.name)


def sizes(node: Node) -> Iterator[str]:
    """Names of the symbolic sizes that the bounds of a nest mention; may repeat."""
    if isinstance(node, Block):
        for i in node.items:
            yield from sizes(i)
    elif isinstance(node, For):
        for _, e in (*node.lower, *node.upper):
            yield from (a.name for a in e.atoms() if isinstance(a, Var))
        yield from sizes(node.body)
    elif isinstance(node, If):
        yield from sizes(node.body)
        if node.other is not None:
            yield from sizes(node.other)
    elif isinstance(node, Alloc):
        yield from sizes(node.body)


def _lines(node: Node, name: Namer, indent: str = "") -> list[str]:
    if isinstance(node, Block):
        return [x for i in node.items for x in _lines(i, name, indent)] or [f"{indent}pass"]
    if isinstance(node, For):
        return [indent + for_text(node, name), *_lines(node.body, name, indent + "  ")]
    if isinstance(node, If):
        conds = " and ".join(condition_text(f, name) for f in node.conds) or "True"
        lines = [f"{indent}if {conds}:", *_lines(node.body, name, indent + "  ")]
        if node.other is not None:
            lines += [f"{indent}else:", *_lines(node.other, name, indent + "  ")]
        return lines
    if isinstance(node, Alloc):
        return [indent + alloc_text(node.buffer, name), *_lines(node.body, name, indent)]
    return _run_lines(node, name, indent)


def for_text(node: For, name: Namer) -> str:
    """The line of a loop: `for i in 0..8:  # unroll`."""
    low, high = ("min", "max") if node.hull else ("max", "min")
    first = _joined(low, [_lower(b) for b in node.lower], name)
    end = _joined(high, [_upper(b) for b in node.upper], name)
    kind = kind_text(node)
    return f"for {name(node.axis)} in {first}..{end}:" + (f"  # {kind}" if kind else "")


def kind_text(node: For) -> str:
    """What a loop is marked as: `parallel`, `vectorize 16`, `bind blockIdx.x`; empty if serial."""
    if node.intrinsic is not None:
        return f"tensorize {node.intrinsic.name}"
    if node.kind == "serial":
        return ""
    if node.kind == "vectorize" and node.width is not None:
        return f"vectorize {node.width}"
    if node.bind is None:
        return node.kind
    return f"bind {node.bind}" + (", combined" if node.width is not None else "")


def _lower(b: Bound) -> Lin:
    return floordiv(b[1] + (b[0] - 1), b[0])


def _upper(b: Bound) -> Lin:
    return floordiv(b[1] + b[0], b[0])


def _joined(how: str, bounds: list[Lin], name: Namer) -> str:
    # compact, so that the two dots stand out: 4*io..4*io+4
    texts = [b.text(name).replace(" + ", "+").replace(" - ", "-") for b in bounds]
    texts = list(dict.fromkeys(texts))
    return texts[0] if len(texts) == 1 else f"{how}({', '.join(texts)})"


def condition_text(fact: Fact, name: Namer | None = None) -> str:
    """A fact as people write it: `i + 1 <= n` and not `-i + n - 1 >= 0`.

    Examples
    --------
    >>> n, i = Var("n"), Axis("i")
    >>> condition_text(("ge", Lin({n: 1, i: -1}, -1))), condition_text(("eq", Lin({i: 1}, -3)))
    ('i < n', 'i == 3')
    """
    kind, e = fact
    plus = Lin({a: v for a, v in e.terms.items() if v > 0})
    minus = Lin({a: -v for a, v in e.terms.items() if v < 0})
    if not plus.terms and not minus.terms:
        return str(e.const == 0 if kind == "eq" else e.const >= 0)
    if kind == "eq":
        left, right = (plus, minus - e.const) if plus.terms else (minus, plus + e.const)
        return f"{left.text(name)} == {right.text(name)}"
    if not minus.terms:
        return f"{plus.text(name)} >= {-e.const}"
    if e.const == -1:
        return f"{minus.text(name)} < {plus.text(name)}"
    if not plus.terms:
        return f"{minus.text(name)} <= {e.const}"
    return f"{minus.text(name)} <= {(plus + e.const).text(name)}"


def alloc_text(s: Storage, name: Namer) -> str:
    """The line of a private buffer: `alloc A_packed: float32[64, 16]  # arena`."""
    where = s.scope if s.register is None else "registers"
    shape = ", ".join(e.text(name) for e in s.shape)
    return f"alloc {s.array.name}: {s.array.dtype}[{shape}]  # {where}"


def _run_lines(node: Run, name: Namer, indent: str) -> list[str]:
    text = statement_text(node.statement, node.args, name)
    if node.read_conds:
        loads = " and ".join(condition_text(("ge", c), name) for c in node.read_conds)
        text += f"  # loads if {loads}"
    if not node.conds:
        return [indent + text]
    conds = " and ".join(condition_text(("ge", c), name) for c in node.conds)
    return [f"{indent}if {conds}:", f"{indent}  {text}"]


display.register(Expr, text=expr_text)
display.register(Tensor, text=tensor_text)
display.register(Compute, text=compute_text)
display.register(Statement, text=statement_text)
for _kind in (Block, For, If, Alloc, Run):
    display.register(_kind, text=loops_text)
