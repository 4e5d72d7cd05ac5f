"""Every option of the library, in one place: `knobs`.

Each is a typed field with a default and an environment variable ``TENSORIR_<NAME>``, read when
the field is first asked for. Assignments are checked; `knobs.override` sets some for a block.

Examples
--------
>>> with knobs.override(num_threads=2, checked=True):
...     knobs.num_threads, knobs.checked
(2, True)
>>> knobs.num_thread = 2
Traceback (most recent call last):
    ...
tensorir.support.knobs.UnknownKnob: there is no knob 'num_thread'; did you mean 'num_threads'?
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, overload

from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.names import hint

__all__ = ["Knob", "Knobs", "UnknownKnob", "knobs"]

T = TypeVar("T")

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


class UnknownKnob(ArgumentError, AttributeError):
    """A name that is no knob; an `AttributeError` too, so that `hasattr` works."""


class Knob(Generic[T]):
    """One option: its default, how it is read from text, which values it takes, what it does."""

    def __init__(
        self,
        default: T,
        parse: Callable[[str], T],
        accept: Callable[[object], T],
        doc: str,
    ) -> None:
        self.default = default
        self.parse = parse
        self.accept = accept
        self.__doc__ = doc
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def variable(self) -> str:
        """The environment variable of this knob."""
        return f"TENSORIR_{self.name.upper()}"

    @overload
    def __get__(self, owner: None, cls: type) -> Knob[T]: ...
    @overload
    def __get__(self, owner: Knobs, cls: type) -> T: ...
    def __get__(self, owner: Knobs | None, cls: type) -> T | Knob[T]:
        if owner is None:
            return self
        values = owner._values
        if self.name not in values:
            values[self.name] = self._initial()
        value: T = values[self.name]
        return value

    def __set__(self, owner: Knobs, value: T) -> None:
        owner._set({**owner._values, self.name: self.check(value)})

    def check(self, value: object) -> T:
        """Return the value in its normal form, or raise naming the knob."""
        try:
            return self.accept(value)
        except ValueError as problem:
            raise ArgumentError(f"knob {self.name}: {problem}") from None
        except TypeError as problem:
            raise ArgumentTypeError(f"knob {self.name}: {problem}") from None

    def _initial(self) -> T:
        given = os.environ.get(self.variable)
        if given is None:
            return self.default
        try:
            return self.accept(self.parse(given))
        except (ValueError, TypeError) as problem:
            text = f"environment variable {self.variable}={given!r}: {problem}"
            raise ArgumentError(text) from None


def _parse_flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError("expected 1 or 0")
    return word in _TRUE


def _accept_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected True or False, not {value!r}")
    return value


def _flag(default: bool, doc: str) -> Knob[bool]:
    return Knob(default, _parse_flag, _accept_flag, doc)


def _parse_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected an integer") from None


def _accept_integer(value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected an integer, not {value!r}")
    number = int(value.__index__())
    if not low <= number <= high:
        raise ValueError(f"expected {low} to {high}, not {number}")
    return number


def _integer(default: int, low: int, high: int, doc: str) -> Knob[int]:
    return Knob(default, _parse_integer, lambda value: _accept_integer(value, low, high), doc)


def _optional_integer(low: int, high: int, doc: str) -> Knob[int | None]:
    def accept(value: object) -> int | None:
        return None if value is None else _accept_integer(value, low, high)

    def parse(text: str) -> int | None:
        return _parse_integer(text) if text.strip() else None

    return Knob(None, parse, accept, doc)


def _accept_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {value!r}")
    return value


def _optional_text(doc: str) -> Knob[str | None]:
    def accept(value: object) -> str | None:
        return None if value is None else _accept_text(value)

    return Knob(None, lambda text: text or None, accept, doc)


def _optional_path(doc: str) -> Knob[str | None]:
    def accept(value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str | os.PathLike):
            raise TypeError(f"expected a path, not {value!r}")
        path = os.fspath(value)
        if not isinstance(path, str) or not path or "\0" in path:
            raise ValueError(f"expected a path, not {path!r}")
        return os.path.abspath(os.path.expanduser(path))

    return Knob(None, lambda text: text or None, accept, doc)


def _choice(default: str, allowed: tuple[str, ...], doc: str) -> Knob[str]:
    def accept(value: object) -> str:
        word = _accept_text(value)
        if word not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}, not {word!r}")
        return word

    return Knob(default, str.strip, accept, doc)


def _words(doc: str) -> Knob[tuple[str, ...]]:
    def accept(value: object) -> tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, tuple | list):
            raise TypeError(f"expected a tuple of strings, not {value!r}")
        return tuple(_accept_text(word) for word in value)

    def parse(text: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in text.split(",") if word.strip())

    return Knob((), parse, accept, doc)


class Knobs:
    """The options. One object, `knobs`, holds those in force."""

    __slots__ = ("_values", "_watchers")

    target = _optional_text(
        "What `build` compiles for where no target is named; None is this machine's CPU."
    )
    validate = _flag(False, "Whether `build` also checks each schedule by enumerating instances.")
    checked = _flag(
        False, "Whether kernels raise on division by zero and on shifts by the width or more."
    )
    index_check = _choice(
        "raise",
        ("raise", "clamp", "off"),
        "What a kernel does with a loaded index out of range: raise, clamp it, or trust it.",
    )
    num_threads = _optional_integer(
        1, 4096, "How many threads a parallel loop uses; None is what the OpenMP runtime decides."
    )
    parallel_threshold = _integer(
        100_000,
        0,
        1 << 62,
        "Work of a parallel loop, in scalar operations, below which it runs in one thread. "
        "Kernels keep what it was when they were built.",
    )
    isl_operations = _integer(
        500_000,
        1_000,
        1 << 40,
        "isl operations that one question may cost; past it the answer is 'could not prove it'.",
    )
    cache_enabled = _flag(True, "Whether compiled objects are kept on disk.")
    cache_dir = _optional_path("Folder of the disk cache; None is the user's cache folder.")
    cache_size = _integer(
        1 << 30, 0, 1 << 50, "Bytes that the disk cache may hold before its oldest entries go."
    )
    full_tracebacks = _flag(False, "Whether errors keep the frames inside this library.")
    silenced = _words("Ids of warnings that are not shown; the variable takes them with commas.")

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_watchers", [])

    _values: dict[str, Any]
    _watchers: list[tuple[str, Callable[[], object]]]

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.names():
            raise self._unknown(name)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._unknown(name)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all knobs, in the order in which they are documented."""
        return tuple(name for name, value in vars(cls).items() if isinstance(value, Knob))

    @contextmanager
    def override(self, **changes: object) -> Iterator[Knobs]:
        """Set some knobs for a block; all return to what they were at its end.

        Parameters
        ----------
        **changes
            Names and values of knobs. All are checked before any is set.

        Raises
        ------
        ArgumentError
            For a name that is no knob, or a value that the knob does not take.
        """
        checked: Mapping[str, object] = {
            name: self._knob(name).check(value) for name, value in changes.items()
        }
        before = self._values
        self._set({**before, **checked})
        try:
            yield self
        finally:
            self._set(before)

    def watch(self, name: str, changed: Callable[[], object]) -> None:
        """Call a function after each change of a knob, for code that cannot afford to ask it."""
        self._watchers.append((self._knob(name).name, changed))

    def describe(self) -> str:
        """Return a table of all knobs: name, value in force, variable, and what it does."""
        lines = []
        for name in self.names():
            knob = self._knob(name)
            lines.append(f"{name} = {getattr(self, name)!r}  ({knob.variable})")
            lines.append(f"    {knob.__doc__}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.names())
        return f"Knobs({values})"

    def _set(self, values: dict[str, Any]) -> None:
        before = self._values
        object.__setattr__(self, "_values", values)
        for name, changed in self._watchers:
            if before.get(name, self) != values.get(name, self):
                changed()

    def _knob(self, name: str) -> Knob[Any]:
        if name not in self.names():
            raise self._unknown(name)
        knob: Knob[Any] = vars(type(self))[name]
        return knob

    def _unknown(self, name: str) -> UnknownKnob:
        return UnknownKnob(f"there is no knob {name!r}{hint(name, self.names())}")


knobs = Knobs()
