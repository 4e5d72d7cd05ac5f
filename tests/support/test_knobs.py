from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tensorir.support.errors import ArgumentError, ArgumentTypeError, TensorIRError
from tensorir.support.knobs import Knobs, knobs


def test_every_knob_is_documented_and_its_default_is_allowed() -> None:
    for name in Knobs.names():
        knob = getattr(Knobs, name)
        assert knob.__doc__ and knob.__doc__.endswith("."), name
        assert knob.check(knob.default) == knob.default, name
        assert f"({knob.variable})" in knobs.describe()


BAD = [
    ("checked", 1, ArgumentTypeError, "knob checked: expected True or False, not 1"),
    ("num_threads", 0, ArgumentError, "knob num_threads: expected 1 to 4096, not 0"),
    ("num_threads", True, ArgumentTypeError, "knob num_threads: expected an integer, not True"),
    ("num_threads", 2.5, ArgumentTypeError, "knob num_threads: expected an integer, not 2.5"),
    ("num_threads", 2**70, ArgumentError, f"knob num_threads: expected 1 to 4096, not {2**70}"),
    (
        "index_check",
        "wrap",
        ArgumentError,
        "knob index_check: expected one of raise, clamp, off, not 'wrap'",
    ),
    ("index_check", None, ArgumentTypeError, "knob index_check: expected a string, not None"),
    ("cache_dir", 3, ArgumentTypeError, "knob cache_dir: expected a path, not 3"),
    ("cache_dir", "a\0b", ArgumentError, "knob cache_dir: expected a path, not 'a\\x00b'"),
    ("cache_dir", b"x", ArgumentTypeError, "knob cache_dir: expected a path, not b'x'"),
    ("target", 3, ArgumentTypeError, "knob target: expected a string, not 3"),
    ("silenced", "x", ArgumentTypeError, "knob silenced: expected a tuple of strings, not 'x'"),
    ("silenced", (3,), ArgumentTypeError, "knob silenced: expected a string, not 3"),
]


@pytest.mark.parametrize(("name", "value", "cls", "text"), BAD)
def test_wrong_value(name: str, value: object, cls: type[Exception], text: str) -> None:
    before = getattr(knobs, name)
    with pytest.raises(cls) as caught:
        setattr(knobs, name, value)
    assert str(caught.value) == text
    with pytest.raises(cls), knobs.override(**{name: value}):
        pass
    assert getattr(knobs, name) == before


def test_unknown_name() -> None:
    text = "there is no knob 'chekced'; did you mean 'checked'?"
    with pytest.raises(ArgumentError) as caught:
        knobs.chekced = True  # type: ignore[attr-defined]
    assert str(caught.value) == text
    with pytest.raises(ArgumentError) as caught:
        knobs.chekced  # noqa: B018
    assert str(caught.value) == text
    with pytest.raises(ArgumentError) as caught, knobs.override(chekced=True):
        pass
    assert str(caught.value) == text
    assert not hasattr(knobs, "chekced")


def test_override_is_all_or_nothing_and_ends() -> None:
    with pytest.raises(TensorIRError), knobs.override(checked=True, num_threads=0):
        pass
    assert knobs.checked is False
    with pytest.raises(RuntimeError), knobs.override(checked=True) as inside:
        assert inside is knobs and knobs.checked
        knobs.validate = True
        raise RuntimeError
    assert (knobs.checked, knobs.validate) == (False, False)


READ = [
    ("checked", "1", True),
    ("checked", "Off", False),
    ("checked", "", False),
    ("num_threads", "3", 3),
    ("num_threads", "", None),
    ("index_check", "clamp", "clamp"),
    ("cache_dir", "relative dir", str(Path("relative dir").absolute())),
    ("cache_dir", "", None),
    ("target", "x86-64-v3", "x86-64-v3"),
    ("silenced", "a, b,,", ("a", "b")),
]


@pytest.mark.parametrize(("name", "text", "value"), READ)
def test_environment(name: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TENSORIR_{name.upper()}", text)
    assert getattr(Knobs(), name) == value


WRONG = [
    ("checked", "maybe", "expected 1 or 0"),
    ("num_threads", "many", "expected an integer"),
    ("num_threads", "0", "expected 1 to 4096, not 0"),
    ("index_check", "x", "expected one of raise, clamp, off, not 'x'"),
]


@pytest.mark.parametrize(("name", "text", "problem"), WRONG)
def test_wrong_environment(
    name: str, text: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"TENSORIR_{name.upper()}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(ArgumentError) as caught:
        getattr(Knobs(), name)
    assert str(caught.value) == f"environment variable {variable}={text!r}: {problem}"


def test_integers_of_other_libraries_and_home_are_taken() -> None:
    import numpy

    with knobs.override(num_threads=numpy.int64(3), cache_dir="~/x"):
        assert type(knobs.num_threads) is int
        assert knobs.cache_dir == os.path.expanduser("~/x")


def test_repr_can_be_read() -> None:
    with knobs.override(checked=True):
        assert "checked=True" in repr(knobs)


def test_watcher_hears_of_every_change_and_of_no_other() -> None:
    mine = Knobs()
    heard: list[int | None] = []
    mine.watch("num_threads", lambda: heard.append(mine.num_threads))
    mine.num_threads = 2
    mine.num_threads = 2
    mine.checked = True
    with mine.override(num_threads=3):
        assert heard == [2, 3]
    assert heard == [2, 3, 2]
    with pytest.raises(ArgumentError):
        mine.watch("threads", lambda: None)
