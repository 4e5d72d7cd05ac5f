"""Products of matrices and vectors, and einsum.

Types follow numpy: the product of two types is their common type, in which it also accumulates
(halves in float32, rounded once). `dtype=` names another one, into which elements are converted
before they are multiplied: `dtype="int32"` for products of int8. Products of bools are any and and.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorir.ir import reductions
from tensorir.ir.affine import Lin
from tensorir.ir.build import binary, cast
from tensorir.ir.dtype import DType, promote
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Expr
from tensorir.ir.language import compute, reduce_axis
from tensorir.ir.tensor import Tensor, shape_text
from tensorir.ops.shapes import broadcast, dim, dims, need_same, shape, tensor
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.tracebacks import user_api


def product_sum(
    factors: Sequence[Expr], axes: Any, dtype: object, common: DType, where: Expr | None = None
) -> Expr:
    """The sum over `axes` of the product of the factors, by the type rules of this module."""
    if common.kind == "bool" and dtype is None:
        held = factors[0]
        for f in factors[1:]:
            held = binary("and", held, f)
        return reductions.any(held, axis=axes, where=where) if axes else held
    to = common if dtype is None else as_dtype(dtype)
    total = cast(factors[0], to)
    for f in factors[1:]:
        total = binary("mul", total, cast(f, to))
    if not axes:
        return total
    if dtype is None and to.is_float and to.bits == 16:
        return reductions.sum(total, axis=axes, where=where)
    return reductions.sum(total, axis=axes, where=where, dtype=to)


def _common(tensors: Sequence[Tensor]) -> DType:
    d = tensors[0].dtype
    for t in tensors[1:]:
        d = promote(d, t.dtype)
    return d


@user_api
def matmul(
    a: Tensor,
    b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: object = None,
    name: str = "matmul",
) -> Tensor:
    """The product of matrices; of vectors and of batches as numpy's `@`.

    Parameters
    ----------
    a
        `(..., m, k)`, or `(..., k, m)` with `transpose_a`, or a vector `(k,)`.
    b
        `(..., k, n)`, or `(..., n, k)` with `transpose_b`, or a vector `(k,)`.
    transpose_a, transpose_b
        Whether the last two dimensions are the other way round.
    dtype
        Type of the products, the sum and the result.
    name
        What the result is called.

    Returns
    -------
    `(..., m, n)`, with leading dimensions broadcast, and without those that vectors lack.

    Raises
    ------
    ArgumentError
        If the inner extents differ, or an operand has rank 0.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a, b = placeholder((8, 4, 5), name="a"), placeholder((6, 5), name="b")
    >>> matmul(a, b, transpose_b=True)
    matmul: float32[8, 4, 6]
    """
    x, y = tensor(a, "a of matmul"), tensor(b, "b of matmul")
    for t, n in ((x, "a"), (y, "b")):
        if t.ndim == 0:
            raise ArgumentError(f"{n} of matmul is a scalar: use ops.multiply")
    for t, turned, n in ((x, transpose_a, "a"), (y, transpose_b, "b")):
        if turned and t.ndim == 1:
            raise ArgumentError(f"transpose_{n} of matmul: {n} is a vector, {shape(t)}")
    rows = None if x.ndim == 1 else x.extents[-1 if transpose_a else -2]
    columns = None if y.ndim == 1 else y.extents[-2 if transpose_b else -1]
    inner = x.extents[-2 if transpose_a else -1]
    other = y.extents[-1 if transpose_b or y.ndim == 1 else -2]
    need_same(inner, other, f"the inner extents of matmul of {shape(x)} and {shape(y)}")
    batch = broadcast([x.extents[:-2], y.extents[:-2]], "the batches of matmul")
    tail = [e for e in (rows, columns) if e is not None]
    common = _common((x, y))

    def body(*index: Any) -> Expr:
        lead, own = index[: len(batch)], list(index[len(batch) :])
        i = own.pop(0) if rows is not None else None
        j = own.pop(0) if columns is not None else None
        r = reduce_axis(dim(inner), name="k")
        left = _place(x, lead, i, r, transpose_a)
        right = _place(y, lead, r, j, transpose_b)
        return product_sum((left, right), (r,), dtype, common)

    titles = [f"b{k}" if len(batch) > 1 else "b" for k in range(len(batch))]
    titles += [n for n, e in (("i", rows), ("j", columns)) if e is not None]
    made: Tensor = compute(dims([*batch, *tail]), body, name=name, axes=titles)
    return made


def _place(t: Tensor, lead: Sequence[Any], row: Any, column: Any, turned: bool) -> Expr:
    if t.ndim == 1:
        return t[column if row is None else row]
    pair = (column, row) if turned else (row, column)
    own = lead[len(lead) - (t.ndim - 2) :]
    one = Lin({}, 1)
    fixed = tuple(0 if e == one else i for e, i in zip(t.extents[:-2], own, strict=True))
    return t[(*fixed, *pair)]


@user_api
def gemv(
    a: Tensor, x: Tensor, *, transpose: bool = False, dtype: object = None, name: str = "gemv"
) -> Tensor:
    """The product of a matrix `(m, n)` (transposed: `(n, m)`) and a vector `(n,)`: `(m,)`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> gemv(placeholder((4, 5), name="a"), placeholder((5,), name="x"))
    gemv: float32[4]
    """
    m, v = tensor(a, "a of gemv", 2), tensor(x, "x of gemv", 1)
    rows, inner = m.extents[::-1] if transpose else m.extents
    need_same(inner, v.extents[0], f"the inner extents of gemv of {shape(m)} and {shape(v)}")

    def body(i: Any) -> Expr:
        r = reduce_axis(dim(inner), name="k")
        left = m[r, i] if transpose else m[i, r]
        return product_sum((left, v[r]), (r,), dtype, _common((m, v)))

    made: Tensor = compute((dim(rows),), body, name=name)
    return made


@user_api
def dot(x: Tensor, y: Tensor, *, dtype: object = None, name: str = "dot") -> Tensor:
    """The sum of the products of two vectors.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> dot(placeholder((4,), name="x"), placeholder((4,), name="y"))
    dot: float32[]
    """
    a, b = tensor(x, "x of dot", 1), tensor(y, "y of dot", 1)
    need_same(a.extents[0], b.extents[0], "the extents of dot")

    def body() -> Expr:
        r = reduce_axis(dim(a.extents[0]), name="k")
        return product_sum((a[r], b[r]), (r,), dtype, _common((a, b)))

    made: Tensor = compute((), body, name=name)
    return made


@user_api
def outer(x: Tensor, y: Tensor, *, dtype: object = None, name: str = "outer") -> Tensor:
    """Each element of one vector times each of another: `(m, n)`.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> outer(placeholder((4,), name="x"), placeholder((3,), name="y"))
    outer: float32[4, 3]
    """
    a, b = tensor(x, "x of outer", 1), tensor(y, "y of outer", 1)
    common = _common((a, b))
    made: Tensor = compute(
        dims((a.extents[0], b.extents[0])),
        lambda i, j: product_sum((a[i], b[j]), (), dtype, common),
        name=name,
    )
    return made


# -- einsum


@user_api
def einsum(
    subscripts: str, *operands: Tensor, dtype: object = None, name: str = "einsum"
) -> Tensor:
    """A sum of products by subscripts, as numpy's: one expression with one reduction.

    Letters that the result lacks are summed over, in the order of their first appearance. A letter
    twice in one operand takes its diagonal. `...` stands for leading dimensions that broadcast, and
    an extent of 1 fits any other. Without `->` the result has the letters that appear once, sorted.
    All operands are multiplied at each point: for a chain of matrices use several calls.

    Raises
    ------
    ArgumentError
        For subscripts that are malformed or do not fit the operands.

    Examples
    --------
    >>> from tensorir.ir.language import placeholder
    >>> a, b = placeholder((8, 4, 5), name="a"), placeholder((8, 5, 6), name="b")
    >>> einsum("bik,bkj->bij", a, b)
    einsum: float32[8, 4, 6]
    >>> einsum("bik,bkj->bik", a)
    Traceback (most recent call last):
        ...
    tensorir.ArgumentError: einsum 'bik,bkj->bik' names 2 operands, but 1 is given
    """
    if not isinstance(subscripts, str):
        raise ArgumentTypeError(f"subscripts of einsum must be a string, not {subscripts!r:.60}")
    tensors = [tensor(t, f"operand {k} of einsum") for k, t in enumerate(operands)]
    inputs, output = _parse(subscripts, tensors)
    extents = _extents(subscripts, inputs, tensors)
    for label in output:
        if label not in extents:
            raise ArgumentError(f"einsum {subscripts!r}: {label!r} of the result is in no operand")
    summed = [label for label in extents if label not in output]
    one = Lin({}, 1)

    def body(*index: Any) -> Expr:
        axes = tuple(reduce_axis(dim(extents[c]), name=_title(c)) for c in summed)
        place: dict[str, Any] = dict(zip((*output, *summed), (*index, *axes), strict=True))
        factors = [
            t[tuple(0 if e == one else place[c] for e, c in zip(t.extents, labels, strict=True))]
            for t, labels in zip(tensors, inputs, strict=True)
        ]
        return product_sum(factors, axes, dtype, _common(tensors))

    shape_of = dims([extents[c] for c in output])
    made: Tensor = compute(shape_of, body, name=name, axes=[_title(c) for c in output])
    return made


def _title(label: str) -> str:
    """A name for an axis: the letter, or for a dimension of `...` its number."""
    return label if label.isalpha() else f"e{label}"


def _parse(text: str, tensors: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand and of the result; those of `...` are numbers from the right."""
    compact = text.replace(" ", "")
    left, arrow, right = compact.partition("->")
    parts = left.split(",")
    if len(parts) != len(tensors):
        verb = "is" if len(tensors) == 1 else "are"
        raise ArgumentError(
            f"einsum {text!r} names {len(parts)} operands, but {len(tensors)} {verb} given"
        )
    inputs = [_labels(text, p, t) for p, t in zip(parts, tensors, strict=True)]
    most = max((sum(not c.isalpha() for c in labels) for labels in inputs), default=0)
    rest = [str(k) for k in range(most - 1, -1, -1)]
    if not arrow:
        letters = [c for labels in inputs for c in labels if c.isalpha()]
        return inputs, rest + sorted(c for c in set(letters) if letters.count(c) == 1)
    before, dots, after = right.partition("...")
    _check_letters(text, before + after)
    output = [*before, *(rest if dots else []), *after]
    if len(set(output)) < len(output):
        raise ArgumentError(f"einsum {text!r}: the result names a letter twice")
    return inputs, output


def _labels(text: str, part: str, t: Tensor) -> list[str]:
    before, dots, after = part.partition("...")
    _check_letters(text, before + after)
    free = t.ndim - len(before) - len(after)
    if free < 0 or (free and not dots):
        raise ArgumentError(
            f"einsum {text!r}: {part!r} names {len(before) + len(after)} dimensions, but "
            f"{t.name} has the shape {shape_text(t.extents)}"
        )
    return [*before, *(str(k) for k in range(free - 1, -1, -1)), *after]


def _check_letters(text: str, letters: str) -> None:
    for c in letters:
        if not (c.isascii() and c.isalpha()):
            raise ArgumentError(f"einsum {text!r}: subscripts are letters, not {c!r}")


def _extents(
    text: str, inputs: Sequence[Sequence[str]], tensors: Sequence[Tensor]
) -> dict[str, Lin]:
    found: dict[str, Lin] = {}
    one = Lin({}, 1)
    for labels, t in zip(inputs, tensors, strict=True):
        for label, e in zip(labels, t.extents, strict=True):
            known = found.setdefault(label, e)
            if known == one:
                found[label] = e
            elif e not in (known, one):
                what = repr(label) if label.isalpha() else "a dimension of '...'"
                raise ArgumentError(
                    f"einsum {text!r}: {what} is {known} in one place and {e} in {t.name}"
                )
    return found
