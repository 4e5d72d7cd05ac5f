"""How shared memory is laid out so that the threads of a warp meet no bank twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensorir.ir.statement import Array
from tensorir.ir.stmt import Rows, Swizzle
from tensorir.schedule import resolve
from tensorir.schedule.primitive import Draft, primitive

if TYPE_CHECKING:
    from tensorir.schedule.schedule import Schedule

__all__ = ["pad", "storage_align", "swizzle"]

MOST_BITS = 5


@primitive
def pad(s: Schedule, buffer: object, by: int) -> Draft:
    """Rows of a shared buffer some elements further apart than they are long.

    Needs a buffer in shared memory; a row is its last storage dimension. Threads that read a
    column then meet different banks. Rows that are read 16 bytes at a time stay whole multiples
    of them where `by` is one. Others call it padding, `storage_align` (TVM).

    Parameters
    ----------
    buffer : str or Tensor
        A buffer in shared memory.
    by : int
        Elements that are left free after each row.

    Raises
    ------
    ScheduleError
        The buffer is not in shared memory, or is swizzled.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((32, 32), name="A")
    >>> B = tir.compute((32, 32), lambda i, j: A[j, i] * 2.0, name="B")
    >>> s = tir.schedule(B).cache_read("A", "shared", name="As")
    >>> print(s.loops())
    alloc As: float32 in shared
    for As.j in 0..32
      for As.i in 0..32
        As[As.j, As.i] = A[As.j, As.i]
    for i in 0..32
      for j in 0..32
        B[i, j] = As[j, i] * 2.0
    >>> print(s.pad("As", 1).loops().splitlines()[0])
    alloc As: float32 in shared, rows + 1
    """
    array = _shared(s, buffer, "pad")
    more = resolve.positive(by, "by", primitive="pad")
    if s.program.buffers[array].swizzle is not None:
        resolve.fail(f"pad: {array.name} is swizzled already", why="one of both is enough.")
    return _changed(s, array, rows=Rows(by=more))


@primitive
def storage_align(s: Schedule, buffer: object, factor: int, offset: int = 0) -> Draft:
    """Rows of a shared buffer a multiple of `factor` elements apart, and `offset` more.

    Needs a buffer in shared memory; a row is its last storage dimension. With 32 banks of four
    bytes, `storage_align(buffer, 32, 1)` lets a column of 32-bit elements lie in all of them.
    Others call it `storage_align` (TVM), `align_storage` (Halide).

    Parameters
    ----------
    buffer : str or Tensor
        A buffer in shared memory.
    factor, offset : int
        The distance of rows is the least that leaves `offset` when divided by `factor`.

    Raises
    ------
    ScheduleError
        The buffer is not in shared memory, or is swizzled; an offset that is not below `factor`.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((32, 32), name="A")
    >>> B = tir.compute((32, 32), lambda i, j: A[j, i] * 2.0, name="B")
    >>> s = tir.schedule(B).cache_read("A", "shared", name="As")
    >>> print(s.loops().splitlines()[0])
    alloc As: float32 in shared
    >>> print(s.storage_align("As", 32, 1).loops().splitlines()[0])
    alloc As: float32 in shared, rows of 1 modulo 32
    """
    what = "storage_align"
    array = _shared(s, buffer, what)
    by = resolve.positive(factor, "factor", primitive=what)
    rest = resolve.positive(offset, "offset", primitive=what) if offset != 0 else 0
    if rest >= by:
        resolve.fail(f"{what}: offset {rest} is not below factor {by}")
    if s.program.buffers[array].swizzle is not None:
        resolve.fail(f"{what}: {array.name} is swizzled already", why="one of both is enough.")
    return _changed(s, array, rows=Rows(0, by, rest))


@primitive
def swizzle(
    s: Schedule, buffer: object, bits: int = 3, base: int | None = None, shift: int = 3
) -> Draft:
    """Pieces of each row of a shared buffer in an order that the number of the row turns.

    Needs a buffer in shared memory. Of the number of an element in storage, `bits` bits from bit
    `base` on are xored with those `shift` higher: by default pieces of 16 bytes, in rows of eight
    of them. A column of pieces, as `ldmatrix` reads it, then lies in all banks, and no room is
    lost. Others call it `Swizzle` (CuTe), `make_swizzled_layout` (TileLang).

    Parameters
    ----------
    buffer : str or Tensor
        A buffer in shared memory.
    bits, base, shift : int
        How many bits, from which on, and how far up the bits are that turn them.

    Raises
    ------
    ScheduleError
        The buffer is not in shared memory, or is padded; bits that overlap.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((64, 64), "float16", name="A")
    >>> B = tir.compute((64, 64), lambda i, j: A[j, i] + A[i, j], name="B")
    >>> s = tir.schedule(B).cache_read("A", "shared", name="As")
    >>> print(s.loops().splitlines()[0])
    alloc As: float16 in shared
    >>> print(s.swizzle("As").loops().splitlines()[0])
    alloc As: float16 in shared, swizzle 3, 3, 3
    """
    what = "swizzle"
    array = _shared(s, buffer, what)
    number = resolve.positive(bits, "bits", primitive=what)
    up = resolve.positive(shift, "shift", primitive=what)
    if base is None:
        first = (16 // array.dtype.bytes).bit_length() - 1
    else:
        first = resolve.positive(base, "base", primitive=what) if base != 0 else 0
    if number > MOST_BITS or up > 2 * MOST_BITS or first > 2 * MOST_BITS:
        resolve.fail(f"{what}: {number} bits from {first} on, {up} higher, are more than there are")
    if up < number:
        resolve.fail(
            f"{what}: {number} bits overlap with those {up} higher",
            why="what is turned must not turn itself.",
        )
    if s.program.buffers[array].rows is not None:
        resolve.fail(f"{what}: {array.name} is padded already", why="one of both is enough.")
    return _changed(s, array, swizzle=Swizzle(number, first, up))


def _shared(s: Schedule, buffer: object, what: str) -> Array:
    array = resolve.array(s, buffer, primitive=what)
    kept = s.program.buffers.get(array)
    if kept is None or kept.scope != "shared":
        where = "the caller's memory" if kept is None else f"{kept.scope} memory"
        resolve.fail(
            f"{what}: {array.name} is in {where}",
            why="banks are those of shared memory.",
        )
    return array


def _changed(
    s: Schedule, array: Array, *, rows: Rows | None = None, swizzle: Swizzle | None = None
) -> Draft:
    buffer = replace(s.program.buffers[array], rows=rows, swizzle=swizzle)
    return Draft(s.program.change(buffers={**s.program.buffers, array: buffer}))
