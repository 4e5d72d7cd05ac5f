"""Every exception and warning that may reach a user.

Errors of the user's derive from `TensorIRError`; those about wrong arguments also from
`ValueError` or `TypeError`, so that code which knows nothing of this library can handle them.
A fault of ours is an `InternalError`, raised through `internal`, which saves a reproducer.

The first line of an error is complete in itself and is its `str`; the picture, the reason and
the suggestions below it (`support.diagnostics`) are notes, which Python prints after it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BoundsError",
    "CacheError",
    "CallTypeError",
    "CallValueError",
    "CompileError",
    "IllegalSchedule",
    "InternalError",
    "KernelError",
    "ScheduleError",
    "TensorIRError",
    "TensorIRWarning",
    "UnsupportedError",
    "full_text",
    "internal",
    "silence",
    "warn",
]


class TensorIRError(Exception):
    """Base of every error that this library raises.

    Parameters
    ----------
    message : str
        One line, complete in itself.
    details : str
        What stands below it: the place, the reason, what to try. Becomes a note.

    Examples
    --------
    >>> error = TensorIRError("no axis 'q'", details="  try  s.split('i', 8)")
    >>> str(error), error.__notes__
    ("no axis 'q'", ["  try  s.split('i', 8)"])
    """

    def __init__(self, message: str = "", *, details: str = "") -> None:
        # what it quotes, such as a schedule given in place of a tensor, may have several lines
        super().__init__(" ".join(filter(None, map(str.strip, message.splitlines()))))
        if details:
            self.add_note(details)


class ArgumentError(TensorIRError, ValueError):
    """An argument has a value that is not allowed."""


class ArgumentTypeError(TensorIRError, TypeError):
    """An argument has a type that is not allowed."""


class ScheduleError(ArgumentError):
    """A request to a schedule is malformed: an unknown axis, a name in use, a bad factor."""


class IllegalSchedule(TensorIRError):
    """A well-formed request to a schedule that would change the result, or was not proved.

    Parameters
    ----------
    primitive : str or None
        The name of the primitive that was refused.
    witness : object
        Two instances that would clash, the cell, and the sizes; None where the proof ran out of
        its budget.
    suggestions : iterable of str
        Lines that can be pasted, each applied and accepted before it was offered.
    distance : object
        The named distance of the dependence that stands in the way, if it has one.
    """

    def __init__(
        self,
        message: str = "",
        *,
        primitive: str | None = None,
        witness: object = None,
        suggestions: Iterable[str] = (),
        distance: object = None,
        details: str = "",
    ) -> None:
        super().__init__(message, details=details)
        self.primitive = primitive
        self.witness = witness
        self.suggestions = tuple(suggestions)
        self.distance = distance


class BoundsError(TensorIRError, ValueError):
    """An access outside its tensor, with the instance that makes it.

    Parameters
    ----------
    witness : object
        Where it was found for the declaration: the sizes, the instance and the index, by name.
    """

    def __init__(self, message: str = "", *, witness: object = None, details: str = "") -> None:
        super().__init__(message, details=details)
        self.witness = witness


class UnsupportedError(TensorIRError, NotImplementedError):
    """What was asked for is meaningful, but this version or target cannot do it."""


class CallValueError(TensorIRError, ValueError):
    """A kernel was called with an array of the wrong shape, layout, or device."""


class CallTypeError(TensorIRError, TypeError):
    """A kernel was called with the wrong kind or number of arguments, or a wrong dtype."""


class KernelError(TensorIRError, RuntimeError):
    """A check that a kernel makes while it runs has failed."""


class CompileError(TensorIRError, RuntimeError):
    """The compiler of the target refused the code, or is missing."""


class CacheError(TensorIRError, OSError):
    """A cache or a saved kernel cannot be used."""


class InternalError(TensorIRError, RuntimeError):
    """A fault of this library. `reproducer` is the path of the saved report, or None."""

    def __init__(
        self, message: str = "", *, reproducer: str | None = None, details: str = ""
    ) -> None:
        super().__init__(message, details=details)
        self.reproducer = reproducer


def internal(message: str, *, state: str = "", cause: BaseException | None = None) -> InternalError:
    """Return an `InternalError` whose reproducer has been saved: ``raise internal(...)``.

    Parameters
    ----------
    message : str
        What was found to be wrong, in one line.
    state : str
        Text that lets the fault be seen again: a program, a trace, loops.
    cause : BaseException or None
        The exception that led here; its traceback goes to the file.

    Returns
    -------
    InternalError
    """
    from tensorir.support import reproducer

    path = reproducer.save(message, state=state, cause=cause)
    details = "  This is a fault of tensorir, not of your program."
    if path is not None:
        details += f"\n  saved  {path}\n         please send this file with a report"
    return InternalError(message, reproducer=path, details=details)


def full_text(error: BaseException) -> str:
    """Return class, message, and notes of an error, as Python prints them.

    Examples
    --------
    >>> print(full_text(ArgumentError("factor is 0", details="  try  factor=8")))
    ArgumentError: factor is 0
      try  factor=8
    """
    if not isinstance(error, BaseException):
        raise ArgumentTypeError(f"full_text: expected an exception, not {error!r:.60}")
    name = type(error).__name__
    message = str(error)
    first = f"{name}: {message}" if message else name
    return "\n".join([first, *getattr(error, "__notes__", ())])


class TensorIRWarning(UserWarning):
    """A warning with an id by which it can be silenced.

    Examples
    --------
    >>> TensorIRWarning("serial", "no OpenMP runtime was found")
    TensorIRWarning('no OpenMP runtime was found [silence("serial")]')
    """

    def __init__(self, id: str, text: str) -> None:
        super().__init__(f'{text} [silence("{id}")]')
        self.id = id
        self.text = text

    def __reduce__(self) -> tuple[type[TensorIRWarning], tuple[str, str]]:
        return type(self), (self.id, self.text)


def warn(id: str, text: str) -> None:
    """Warn at the user's line, unless this id is silenced.

    Parameters
    ----------
    id : str
        Words joined by hyphens; part of the public surface.
    text : str
        One sentence: what happens, and what it costs.
    """
    from tensorir.support.diagnostics import user_depth
    from tensorir.support.knobs import knobs

    if id in knobs.silenced:
        return
    warnings.warn(TensorIRWarning(id, text), stacklevel=user_depth())


#: The ids of all warnings.
WARNINGS = ("cache", "copy", "no-effect", "serial", "validate-skipped")


def silence(*ids: str) -> None:
    """Switch warnings off by id, for this process.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        There is no warning with that id; the message lists those there are.

    Examples
    --------
    >>> from tensorir.support.knobs import knobs
    >>> with knobs.override():
    ...     silence("serial")
    ...     warn("serial", "this is not shown")
    """
    from tensorir.support.knobs import knobs
    from tensorir.support.names import hint

    for id in ids:
        if not isinstance(id, str):
            raise ArgumentTypeError(f"the id of a warning is a string, not {id!r:.60}")
        if id not in WARNINGS:
            known = ", ".join(WARNINGS)
            raise ArgumentError(f"no warning {id!r:.60}; there are {known}{hint(id, WARNINGS)}")
    added = [id for id in ids if id not in knobs.silenced]
    knobs.silenced = (*knobs.silenced, *added)


def _show_as_public() -> None:
    """Make tracebacks print ``tensorir.IllegalSchedule``, the name that users import."""
    for name in __all__:
        value = globals()[name]
        if isinstance(value, type):
            value.__module__ = "tensorir"


_show_as_public()
