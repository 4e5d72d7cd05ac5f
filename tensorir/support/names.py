"""Names of axes, tensors and sizes: which are allowed, which are free, which was meant."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Container, Iterable

from tensorir.support.errors import ArgumentError, ArgumentTypeError

__all__ = ["check_name", "did_you_mean", "fresh", "hint"]

_LONGEST = 80
_COUNTED = re.compile(r"^(.*?)_?(\d+)$")


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is closest to a name, or None where none is close.

    Examples
    --------
    >>> did_you_mean("ko", ["io", "k_o", "jo"])
    'k_o'
    >>> did_you_mean("Io", ["io", "jo"])
    'io'
    >>> did_you_mean("alpha", ["i", "j"])
    """
    known = sorted(set(candidates))
    for candidate in known:
        if candidate.lower() == name.lower():
            return candidate
    matches = difflib.get_close_matches(name[:_LONGEST], known, n=1, cutoff=0.6)
    return matches[0] if matches else None


def hint(name: str, candidates: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the end of a message, or nothing.

    Examples
    --------
    >>> hint("factr", ["factor", "into"]), hint("alpha", ["i"])
    ("; did you mean 'factor'?", '')
    """
    meant = did_you_mean(name, candidates)
    return f"; did you mean {meant!r}?" if meant is not None else ""


def check_name(name: object, what: str = "name") -> str:
    """Return a name that may be given to an axis, a tensor or a size; refuse any other.

    A name is an identifier, in the letters of any script, of at most 80 characters, that is no
    Python keyword and does not begin with an underscore.

    Parameters
    ----------
    name : object
        What the user gave.
    what : str
        What is being named, for the message.

    Raises
    ------
    ArgumentTypeError
        The name is not a string.
    ArgumentError
        It is one that is not allowed.

    Examples
    --------
    >>> check_name("io"), check_name("größe")
    ('io', 'größe')
    >>> check_name("2d", "axis name")
    Traceback (most recent call last):
        ...
    tensorir.ArgumentError: axis name '2d' is not an identifier, such as 'io' or 'A_packed'
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{what} must be a string, not {type(name).__name__} {name!r:.60}")
    if not name:
        raise ArgumentError(f"{what} is empty")
    if len(name) > _LONGEST:
        raise ArgumentError(f"{what} {name[:20] + '...'!r} is longer than {_LONGEST} characters")
    if not name.isidentifier():
        raise ArgumentError(f"{what} {name!r} is not an identifier, such as 'io' or 'A_packed'")
    if name.startswith("_"):
        raise ArgumentError(f"{what} {name!r} begins with an underscore; those are the library's")
    if keyword.iskeyword(name):
        raise ArgumentError(f"{what} {name!r} is a Python keyword")
    return str(name)


def fresh(name: str, taken: Container[str]) -> str:
    """Return the name, or the name with the first number that makes it free.

    Examples
    --------
    >>> fresh("C", {"A"}), fresh("C", {"C", "C_1"}), fresh("C_1", {"C_1"})
    ('C', 'C_2', 'C_2')
    """
    if name not in taken:
        return name
    counted = _COUNTED.match(name)
    stem = counted.group(1) if counted and counted.group(1) else name
    number = int(counted.group(2)) + 1 if counted and counted.group(1) else 1
    while f"{stem}_{number}" in taken:
        number += 1
    return f"{stem}_{number}"
