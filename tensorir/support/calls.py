"""Calls that a function does not take: a name or a number of arguments that it has not."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence

from tensorir.support.diagnostics import caller
from tensorir.support.errors import ArgumentTypeError
from tensorir.support.names import hint

__all__ = ["not_taken"]

_NO_RECEIVER = ("self", "s")


def not_taken(
    name: str,
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    beside: Iterable[str] = (),
) -> ArgumentTypeError | None:
    """Return the error for a call that a signature does not take, or None where it does.

    Parameters
    ----------
    name : str
        What the user called.
    signature : inspect.Signature
        What it takes. A first parameter called `self` or `s` is not shown.
    args, kwargs
        The arguments that came.
    beside : iterable of str
        Other names that the user may have meant: those of a function which hands the rest on.

    Examples
    --------
    >>> def undo(self, steps=1): ...
    >>> print(not_taken("undo", inspect.signature(undo), (None,), {"step": 2}))
    undo(steps=1) has no argument 'step'; did you mean 'steps'?
    """
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        reason = str(error)
    else:
        return None
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in _NO_RECEIVER:
        reason = reason.replace(f"'{parameters[0].name}'", "the schedule")
        parameters = parameters[1:]
    known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    shown = _without_annotations(parameters)
    site = caller()
    details = f"\n  {site}" if site is not None else ""
    for k in kwargs:
        if k not in known:
            text = f"{name}{shown} has no argument {k!r}{hint(k, [*known, *beside])}"
            return ArgumentTypeError(text, details=details)
    return ArgumentTypeError(f"{name}{shown}: {reason}", details=details)


def _without_annotations(parameters: Iterable[inspect.Parameter]) -> str:
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(bare))
