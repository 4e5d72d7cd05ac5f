"""Parameters of a schedule: declared with the values that a search may try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensorir.support.errors import ArgumentError
from tensorir.support.names import hint


@dataclass(frozen=True, slots=True)
class Param:
    """A choice that a schedule leaves open.

    Parameters
    ----------
    name
        The keyword of the schedule function that it sets.
    values
        What it may be, smallest first.
    default
        What it is where nobody says; one of `values`.
    """

    name: str
    values: tuple[int, ...]
    default: int


def resolve_params(declared: tuple[Param, ...], given: Mapping[str, int]) -> dict[str, int]:
    """Every declared parameter with its value, those in `given` taken from there.

    Raises
    ------
    ArgumentError
        For a name that is not declared, or a value that is neither declared nor a positive integer.
    """
    names = [p.name for p in declared]
    values = {p.name: p.values for p in declared}
    for name, value in given.items():
        if name not in names:
            raise ArgumentError(
                f"no parameter {name!r}{hint(name, names)}; there are {', '.join(names)}"
            )
        fits = isinstance(value, int | np.integer) and (value >= 1 or value in values[name])
        if isinstance(value, bool) or not fits:
            raise ArgumentError(f"{name}={value!r:.60}: expected a positive integer")
    return {p.name: int(given.get(p.name, p.default)) for p in declared}
