"""Vectors to vectors: squares transposed, several vectors woven into one sequence.

Where the target has shuffles within 128 bits that are one cheap instruction each, a transpose is
made of those and of exchanges of whole 128-bit parts, without tables of indices.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.codegen.types import BITS
from tensorir.codegen.values import Emitter

PART_BITS = 128


def shuffle(em: Emitter, ty: str, a: str, b: str, order: Sequence[int]) -> str:
    """Elements of `a` (from 0) and `b` (from their width) in a given order, -1 for any."""
    lanes = ", ".join("i32 poison" if x < 0 else f"i32 {x}" for x in order)
    v = f"<{em.width} x {ty}>"
    return em.op(f"shufflevector {v} {{0}}, {v} {{1}}, <{len(order)} x i32> <{lanes}>", a, b)


def transpose(em: Emitter, ty: str, rows: Sequence[str]) -> list[str]:
    """A square of as many vectors as lanes, rows for columns, in log2 steps of two sources.

    Within parts of 128 bits a step weaves two rows, element by element; across parts it takes the
    even parts of two rows, or the odd ones. Each step turns the bits of a lane's number by one
    place through a bit of the row's; after all of them the two numbers have changed places.
    """
    w = em.width
    part = max(1, min(w, PART_BITS // BITS[ty]))
    within = part.bit_length() - 1
    out = list(rows)
    for bit in (*range(within - 1, -1, -1), *range(within, w.bit_length() - 1)):
        low, high = _woven(w, part) if bit < within else _exchanged(w, part)
        for i in range(w):
            if not i & (1 << bit):
                a, b = out[i], out[i | 1 << bit]
                out[i] = shuffle(em, ty, a, b, low)
                out[i | 1 << bit] = shuffle(em, ty, a, b, high)
    return out


def _woven(w: int, part: int) -> tuple[list[int], list[int]]:
    """In each part: the lower halves of two vectors, element by element, and the upper halves."""
    low, high = (
        [first + start + k // 2 + (w if k % 2 else 0) for first in range(0, w, part)
         for k in range(part)]
        for start in (0, part // 2)
    )  # fmt: skip
    return low, high


def _exchanged(w: int, part: int) -> tuple[list[int], list[int]]:
    """The even parts of a first and a second vector, and the odd ones."""
    low, high = (
        [first + k for first in range(start, 2 * w, 2 * part) for k in range(part)]
        for start in (0, part)
    )
    return low, high


def interleave(em: Emitter, ty: str, parts: Sequence[str]) -> list[str]:
    """`s` vectors as one sequence that takes an element of each in turn, cut into vectors."""
    w, s = em.width, len(parts)
    out = []
    for o in range(s):
        result: str | None = None
        have: set[int] = set()
        for i in range(s):
            lanes = {k: (o * w + k) // s for k in range(w) if (o * w + k) % s == i}
            if not lanes:
                continue
            if result is None:
                order = [lanes.get(k, -1) for k in range(w)]
                result = shuffle(em, ty, parts[i], "poison", order)
            else:
                order = [k if k in have else w + lanes[k] if k in lanes else -1 for k in range(w)]
                result = shuffle(em, ty, result, parts[i], order)
            have |= set(lanes)
        assert result is not None
        out.append(result)
    return out
