"""What a user sees of a traceback: their own frames, and no exception but ours.

`user_api` goes on every public entry point. An error of ours leaves it without our frames; a call
with arguments that the function does not take is the user's error; any other exception that began
in our code leaves it as an `InternalError` with a reproducer; an exception that began in a
function which the user gave us leaves it untouched.
"""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

from tensorir.support.diagnostics import is_own
from tensorir.support.errors import InternalError, TensorIRError, internal

__all__ = ["theirs", "user_api"]

P = ParamSpec("P")
R = TypeVar("R")

_LIBRARIES = (
    "numpy",
    "ml_dtypes",
    "islpy",
    "llvmlite",
    "cuda",
    "sympy",
    "platformdirs",
    "filelock",
)
_THEIRS = "_raised_by_a_function_of_the_user"
_STDLIB = sysconfig.get_paths()["stdlib"]


def user_api(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function fit for users: trimmed tracebacks, and only this library's exceptions.

    KeyboardInterrupt, SystemExit, MemoryError, and warnings that are made errors pass. Costs
    about 0.1 µs a call.

    Parameters
    ----------
    function : callable
        A public function or method. If its first argument has a method ``_reproducer_()``, the
        text which that returns goes into the reproducer of a fault.
    """

    @functools.wraps(function)
    def public(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except TensorIRError as error:
            _trim(error)
            raise
        except (MemoryError, Warning):
            raise
        except Exception as error:
            if _is_users(error):
                raise
            refused = _not_taken(function, args, kwargs, error)
            if refused is not None:
                raise refused from None
            raise _fault(function, args, kwargs, error) from error

    return public


@contextmanager
def theirs() -> Iterator[None]:
    """Around a call of the user's function: what it raises is theirs, also where no frame tells.

    None does where it is called with the wrong arguments, or is a function written in C.
    """
    try:
        yield
    except Exception as error:
        error.__dict__[_THEIRS] = True
        raise


def _not_taken(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    error: Exception,
) -> TensorIRError | None:
    """Return the user's error where a user called a function with what it does not take."""
    if not isinstance(error, TypeError) or is_own(sys._getframe(2)):
        return None
    from tensorir.support.calls import not_taken

    return not_taken(function.__name__, inspect.signature(function), args, kwargs)


def _trim(error: TensorIRError) -> None:
    """Drop our frames. A bare ``raise`` after this does not add the decorator's frame again."""
    from tensorir.support.knobs import knobs

    if knobs.full_tracebacks or isinstance(error, InternalError):
        return
    kept: TracebackType | None = None
    for entry in reversed(list(_entries(error.__traceback__))):
        if _is_users_frame(entry.tb_frame):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = kept
    error.__suppress_context__ = True


def _fault(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    error: Exception,
) -> InternalError:
    name = function.__qualname__
    message = f"{name} failed with {type(error).__name__}: {error}"
    first_line = message.splitlines()[0]
    return internal(first_line, state=_state(name, args, kwargs), cause=error)


def _state(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    lines = [f"call: {name}"]
    tell = getattr(args[0], "_reproducer_", None) if args else None
    if callable(tell):
        lines.append(_safely(tell))
    for position, value in enumerate(args):
        lines.append(f"argument {position}: {_safely(functools.partial(repr, value))}")
    for key, value in kwargs.items():
        lines.append(f"argument {key}: {_safely(functools.partial(repr, value))}")
    return "\n".join(lines)


def _safely(tell: Callable[[], object]) -> str:
    """Return what an object says of itself, even when that fails too."""
    try:
        return str(tell())[:100_000]
    except Exception as error:
        return f"<no text: {type(error).__name__}: {error}>"


def _is_users(error: Exception) -> bool:
    """Return whether an exception came out of a function that the user handed to us."""
    frames = (entry.tb_frame for entry in _entries(error.__traceback__))
    return _THEIRS in error.__dict__ or any(map(_is_users_frame, frames))


def _is_users_frame(frame: FrameType) -> bool:
    if is_own(frame):
        return False
    module = frame.f_globals.get("__name__")
    root = module.partition(".")[0] if isinstance(module, str) else ""
    file = frame.f_code.co_filename
    if root in _LIBRARIES or file.startswith("<frozen"):
        return False
    in_stdlib = root in sys.stdlib_module_names and root != "__main__"
    return not (in_stdlib and (file.startswith((_STDLIB, "<string>"))))


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the entries of a traceback, outermost first."""
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
