"""Scaled dot product attention, and rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorir.ir import maths, reductions
from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast, compare, if_then_else, select
from tensorir.ir.dtype import promote
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute, reduce_axis
from tensorir.ir.tensor import Tensor
from tensorir.ops.shapes import (
    at,
    broadcast,
    dim,
    dims,
    floating,
    integer,
    need_same,
    one_of,
    shape,
    static,
    tensor,
    wide,
)
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import user_api

NOTHING = -math.inf
LOG2E = 1.4426950408889634


@user_api
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    offset: int = 0,
    scale: float | None = None,
    name: str = "attention",
) -> Tensor:
    """`softmax(query @ key.T * scale + mask) @ value`.

    Stages: `<name>_scores` (in units of log(2)), `<name>_max`, `<name>_exp` (powers of two of the
    difference), `<name>_sum`, and the result, which divides once at the end. A query whose keys
    are all masked gives 0.

    Parameters
    ----------
    query
        `(..., h, s, d)`, or `(s, d)`.
    key
        `(..., g, t, d)`: `g` heads, each for `h // g` heads of the query.
    value
        `(..., g, t, e)`.
    mask
        Broadcasts to `(..., h, s, t)`. Bools say which keys take part; floats are added.
    causal
        Whether query i sees the keys up to i + `offset` only.
    offset
        How many keys lie before the first query: `t - s` where both end together.
    scale
        By default `1 / sqrt(d)`.
    name
        What the result is called.

    Returns
    -------
    `(..., h, s, e)`.

    Raises
    ------
    ArgumentError
        For shapes that do not fit.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> q, k = placeholder((1, 8, 16, 64), name="q"), placeholder((1, 2, 32, 64), name="k")
    >>> v = placeholder((1, 2, 32, 48), name="v")
    >>> attention(q, k, v, causal=True, offset=16)
    attention: float32[1, 8, 16, 48]
    """
    q, k, v = (
        floating(t, f"{n} of attention")
        for t, n in ((query, "query"), (key, "key"), (value, "value"))
    )
    share = _heads(q, k, v)
    move = integer(offset, "offset of attention")
    lead, rows, columns = q.extents[:-2], q.extents[-2], k.extents[-2]
    full = (*lead, rows, columns)
    m = _mask(mask, full)
    common = promote(promote(q.dtype, k.dtype), v.dtype)
    inner = wide(common)
    factor = _scale(scale, q)

    def head(index: Sequence[Any]) -> tuple[Any, ...]:
        """The batch and head of a key, from those of a query."""
        if not index:
            return ()
        return (*index[:-1], index[-1] // share if share > 1 else index[-1])

    def seen(i: Any, j: Any) -> Expr | None:
        return j <= i + move if causal else None

    def score(*index: Any) -> Expr:
        batch, i, j = index[:-2], index[-2], index[-1]
        r = reduce_axis(dim(q.extents[-1]), name="r")
        e = binary("mul", cast(q[(*batch, i, r)], inner), cast(k[(*head(batch), j, r)], inner))
        total: Expr = reductions.sum(e, axis=r, where=seen(i, j)) * factor
        if m is not None and m.dtype.kind != "bool":
            total = total + cast(at(m, index), inner) * LOG2E
        if m is not None and m.dtype.kind == "bool":
            total = select(at(m, index), total, NOTHING)
        allowed = seen(i, j)
        return total if allowed is None else select(allowed, total, NOTHING)

    titles = [f"b{n}" for n in range(len(lead) - 1)] + ["h"] * bool(lead)
    made: Tensor = compute(dims(full), score, name=f"{name}_scores", axes=(*titles, "i", "j"))

    def over_keys(fn: Any, title: str) -> Tensor:
        def body(*index: Any) -> Expr:
            j = reduce_axis(dim(columns), name="j")
            result: Expr = fn(index, j, seen(index[-1], j))
            return result

        out: Tensor = compute(dims(full[:-1]), body, name=title, axes=(*titles, "i"))
        return out

    top = over_keys(
        lambda index, j, where: reductions.max(
            made[(*index, j)], axis=j, where=where, init=NOTHING
        ), f"{name}_max",
    )  # fmt: skip

    def power(*index: Any) -> Expr:
        high = top[index[:-1]]
        e = maths.exp2(made[index] - high)
        return select(compare("eq", high, NOTHING), 0.0, e)

    powers: Tensor = compute(dims(full), power, name=f"{name}_exp", axes=(*titles, "i", "j"))
    total = over_keys(
        lambda index, j, where: reductions.sum(powers[(*index, j)], axis=j, where=where),
        f"{name}_sum",
    )

    def result(*index: Any) -> Expr:
        batch, i, c = index[:-2], index[-2], index[-1]
        j = reduce_axis(dim(columns), name="j")
        e = binary("mul", powers[(*batch, i, j)], cast(v[(*head(batch), j, c)], inner))
        mixed = reductions.sum(e, axis=j, where=seen(i, j))
        all_of = total[(*batch, i)]
        return cast(select(compare("eq", all_of, 0.0), 0.0, mixed / all_of), common)

    out: Tensor = compute(
        dims((*lead, rows, v.extents[-1])), result, name=name, axes=(*titles, "i", "c")
    )
    return out


def _heads(q: Tensor, k: Tensor, v: Tensor) -> int:
    """How many heads of the query share one of the key; checks all shapes."""
    if q.ndim < 2 or not q.ndim == k.ndim == v.ndim:
        raise ArgumentError(
            "query, key and value of attention must have equal ranks of at least 2; their shapes "
            f"are {shape(q)}, {shape(k)} and {shape(v)}"
        )
    need_same(q.extents[-1], k.extents[-1], "the last extents of query and key of attention")
    need_same(k.extents[-2], v.extents[-2], "the numbers of keys and values of attention")
    for t, n in ((k, "key"), (v, "value")):
        for d in range(q.ndim - 3):
            need_same(q.extents[d], t.extents[d], f"extents {d} of query and {n} of attention")
    if q.ndim < 3:
        return 1
    need_same(k.extents[-3], v.extents[-3], "the heads of key and value of attention")
    if q.extents[-3] == k.extents[-3]:
        return 1
    (heads,), (groups,) = (static(t, (t.ndim - 3,), "attention in groups") for t in (q, k))
    if groups == 0 or heads % groups:
        raise ArgumentError(
            f"{heads} heads of the query of attention are no multiple of {groups} of the key"
        )
    return heads // groups


def _mask(mask: object, full: tuple[Lin, ...]) -> Tensor | None:
    if mask is None:
        return None
    m = tensor(mask, "mask of attention")
    if m.dtype.is_integer:
        raise ArgumentTypeError(
            f"mask of attention is {m.dtype}: it must be bool (which keys take part) or float "
            "(what is added)"
        )
    if broadcast([m.extents, full], "mask and scores of attention") != full:
        raise ArgumentError(f"mask of attention has the shape {shape(m)}: more than the scores")
    return m


def _scale(scale: float | None, q: Tensor) -> Any:
    """What turns a product into a power of two: `scale / log(2)`."""
    if scale is not None:
        return float(scale) * LOG2E
    last = q.extents[-1]
    if last.is_const:
        return LOG2E / math.sqrt(max(last.const, 1))
    return cast(LOG2E / maths.sqrt(cast(dim(last), "float64")), wide(q.dtype))


@user_api
def rotary(
    x: Tensor,
    cosines: Tensor,
    sines: Tensor,
    *,
    style: str = "halves",
    name: str = "rotary",
) -> Tensor:
    """Pairs of elements turned by an angle of their position (Su et al., 2021).

    Parameters
    ----------
    x
        `(..., s, d)` with an even constant `d`.
    cosines, sines
        `(s, d // 2)`, of the angle of each position and pair.
    style
        Which elements are a pair: `halves`, r and r + d // 2; or `interleaved`, 2r and 2r + 1.
    name
        What the result is called.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> x = placeholder((1, 8, 16, 64), name="x")
    >>> c, s = placeholder((16, 32), name="c"), placeholder((16, 32), name="s")
    >>> rotary(x, c, s)
    rotary: float32[1, 8, 16, 64]
    """
    t = floating(x, "x of rotary")
    c, s = floating(cosines, "cosines of rotary", 2), floating(sines, "sines of rotary", 2)
    one_of(style, ("halves", "interleaved"), "style of rotary")
    if t.ndim < 2:
        raise ArgumentError(f"x of rotary must be (..., s, d), but its shape is {shape(t)}")
    (width,) = static(t, (t.ndim - 1,), "rotary")
    if width % 2:
        raise ArgumentError(f"rotary turns pairs: the last extent is {width}, which is odd")
    half = width // 2
    for a, n in ((c, "cosines"), (s, "sines")):
        need_same(a.extents[0], t.extents[-2], f"the positions of {n} and x of rotary")
        need_same(a.extents[1], Lin({}, half), f"the pairs of {n} and x of rotary")
    inner = wide(t.dtype)

    def element(*index: Any) -> Expr:
        lead, p, d = index[:-2], index[-2], index[-1]

        def load(r: Any) -> Expr:
            return cast(t[(*lead, p, r)], inner)

        def turned(own: Any, other: Any, pair: Any, sign: float) -> Expr:
            shift = load(other) * cast(s[p, pair], inner) * sign
            return load(own) * cast(c[p, pair], inner) + shift

        if style == "halves":
            low, high = turned(d, d + half, d, -1.0), turned(d, d - half, d - half, 1.0)
            return cast(if_then_else(d < half, low, high), t.dtype)
        low, high = turned(d, d + 1, d // 2, -1.0), turned(d, d - 1, d // 2, 1.0)
        return cast(if_then_else(compare("eq", d % 2, 0), low, high), t.dtype)

    titles = [f"b{n}" for n in range(t.ndim - 2)]
    made: Tensor = compute(dims(t.extents), element, name=name, axes=(*titles, "i", "d"))
    return made
