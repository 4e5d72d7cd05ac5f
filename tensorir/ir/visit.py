"""Walks over expressions: all nodes once, and rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tensorir.ir.expr import Expr, Load, Op, Reduce, children


def nodes(*roots: Expr) -> Iterator[Expr]:
    """Every node in the expressions once, a parent before its children, in written order.

    Examples
    --------
    >>> from tensorir.ir.expr import Var
    >>> n = Var("n")
    >>> [str(e) for e in nodes(n * 2 + n)]
    ['n * 2 + n', 'n * 2', 'n', '2']
    """
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        yield e
        stack.extend(reversed(children(e)))


def rewrite(e: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """`e` with nodes replaced, children first; `change` returns None to keep a node.

    Nodes are rebuilt as they are: nothing is folded and no type changes.

    Examples
    --------
    >>> from tensorir.ir.expr import Var
    >>> n, m = Var("n"), Var("m")
    >>> rewrite(n * 2 + n, lambda x: m if x is n else None)
    m * 2 + m
    """
    done: dict[int, Expr] = {}

    def walk(x: Expr) -> Expr:
        if id(x) not in done:
            new = rebuild(x, tuple(walk(c) for c in children(x)))
            changed = change(new)
            done[id(x)] = new if changed is None else changed
        return done[id(x)]

    return walk(e)


def rebuild(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """`e` with other children, in the order of :func:`tensorir.ir.expr.children`."""
    if all(a is b for a, b in zip(new, children(e), strict=True)):
        return e
    if isinstance(e, Op):
        return Op(e.name, new, e.dtype)
    if isinstance(e, Load):
        return Load(e.tensor, new)
    assert isinstance(e, Reduce)
    n = len(e.sources)
    sources, rest = new[:n], list(new[n:])
    where = rest.pop(0) if e.where is not None else None
    init = tuple(rest) if e.init is not None else None
    return Reduce(e.reducer, sources, e.axes, where, init, e.state, e.component, e.dtype)


def reductions(roots: Iterable[Expr]) -> list[Reduce]:
    """The reductions in the expressions, each once, in written order."""
    return [e for e in nodes(*roots) if isinstance(e, Reduce)]


def loads(roots: Iterable[Expr]) -> list[Load]:
    """The loads in the expressions, each once, in written order."""
    return [e for e in nodes(*roots) if isinstance(e, Load)]
