"""What divides an address: pointers are sums, and followed back to where their array begins."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from tensorir.codegen.address import Home
from tensorir.codegen.types import BITS
from tensorir.codegen.values import Emitter

ARGUMENT = 16
"""Bytes at multiples of which every array of a call begins, on a GPU."""
WIDEST = 16
"""Bytes of the widest access of a thread of a GPU."""


def multiple(em: Emitter, home: Home, at: str, known: Mapping[str, int]) -> int:
    """A number of bytes that divides the distance of `at` from where the array begins; 0 of 0.

    `known` are divisors of integers that are names, in elements.
    """
    size = BITS[home.memory] // 8
    found = dict(known)

    def of(x: int | str) -> int:
        """A divisor of an integer, 0 of 0."""
        if isinstance(x, int):
            return x
        if x not in found:
            found[x] = divisor(x)
        return found[x]

    def divisor(x: str) -> int:
        form, *args = em.made.get(x, ("",))
        if form.startswith("add i64"):
            return gcd(of(args[0]), of(args[1]))
        if form.startswith("mul i64"):
            return of(args[0]) * of(args[1])
        if form.startswith("select i1") and ", i64 {2}" in form:
            return gcd(of(args[1]), of(args[2]))
        if form.startswith("xor i64"):
            return gcd(of(args[0]), of(args[1]))
        if form.startswith("shl i64 {0}, "):
            return of(args[0]) << int(form.rpartition(" ")[2])
        return 1

    total = 0
    while at != home.pointer:
        form, *args = em.made.get(at, ("",))
        if not form.startswith(f"getelementptr {home.memory},"):
            return 1
        at, total = str(args[0]), gcd(total, size * of(args[1]))
    return total


def of_vector(em: Emitter, home: Home, at: str) -> int:
    """The alignment with which a vector at `at` is accessed.

    A processor takes any at the speed of the aligned ones; a GPU has wide accesses only for
    addresses that are known to be multiples of their size.
    """
    return within(em, home, at, min(WIDEST, em.width * home.align))


def within(em: Emitter, home: Home, at: str, most: int) -> int:
    """The largest power of two of at most `most` bytes that is known to divide an address.

    Neighbours that are read one by one become one wide access where the first says that it may.
    """
    if em.device is None:
        return home.align
    # buffers of the kernel's own begin at larger multiples
    return max(home.align, gcd(ARGUMENT, multiple(em, home, at, {}), most))


__all__ = ["ARGUMENT", "WIDEST", "multiple", "of_vector", "within"]
