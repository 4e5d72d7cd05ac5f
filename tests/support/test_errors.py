from __future__ import annotations

import pickle
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import pytest

import tensorir
from tensorir.support import errors
from tensorir.support.knobs import knobs
from tests.support.own_code import as_own

BUILTIN_BASES = [
    (errors.ArgumentError, ValueError),
    (errors.ArgumentTypeError, TypeError),
    (errors.ScheduleError, ValueError),
    (errors.BoundsError, ValueError),
    (errors.UnsupportedError, NotImplementedError),
    (errors.CallValueError, ValueError),
    (errors.CallTypeError, TypeError),
    (errors.KernelError, RuntimeError),
    (errors.CompileError, RuntimeError),
    (errors.CacheError, OSError),
    (errors.InternalError, RuntimeError),
]


@pytest.mark.parametrize(("cls", "base"), BUILTIN_BASES)
def test_error_is_also_the_builtin_one(cls: type[errors.TensorIRError], base: type) -> None:
    error = cls("what went wrong", details="  try  that")
    assert isinstance(error, errors.TensorIRError)
    assert isinstance(error, base)
    assert str(error) == "what went wrong"
    assert errors.full_text(error) == f"{cls.__name__}: what went wrong\n  try  that"


def test_full_text_is_what_python_prints() -> None:
    error = errors.IllegalSchedule("no", details="  why  because")
    printed = "".join(traceback.format_exception_only(error))
    assert printed == f"tensorir.{errors.full_text(error)}\n"


def test_error_without_details_has_no_notes() -> None:
    assert not hasattr(errors.ArgumentError("x"), "__notes__")
    assert errors.full_text(errors.ArgumentError()) == "ArgumentError"


def test_illegal_schedule_keeps_its_parts() -> None:
    error = errors.IllegalSchedule(
        "no",
        primitive="reorder",
        witness=("S[0]", "S[1]"),
        suggestions=["s.skew('j')"],
        distance={"i": 1},
    )
    again = pickle.loads(pickle.dumps(error))
    for kept in (error, again):
        assert kept.primitive == "reorder"
        assert kept.witness == ("S[0]", "S[1]")
        assert kept.suggestions == ("s.skew('j')",)
        assert kept.distance == {"i": 1}
        assert str(kept) == "no"


@pytest.mark.parametrize("name", errors.__all__)
def test_every_class_is_found_where_it_says_it_is(name: str) -> None:
    value = getattr(errors, name)
    if isinstance(value, type):
        assert getattr(tensorir, name) is value
        error = value("id", "text") if name == "TensorIRWarning" else value("text", details="note")
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), getattr(again, "__notes__", None)) == (
            str(error),
            getattr(error, "__notes__", None),
        )


def test_internal_saves_a_reproducer() -> None:
    try:
        raise KeyError("lost")
    except KeyError as cause:
        error = errors.internal("the pass lost a name", state="for i in 0..4", cause=cause)
    assert error.reproducer is not None
    assert errors.full_text(error) == (
        "InternalError: the pass lost a name\n"
        "  This is a fault of tensorir, not of your program.\n"
        f"  saved  {error.reproducer}\n"
        "         please send this file with a report"
    )
    with open(error.reproducer, encoding="utf-8") as file:
        report = file.read()
    assert report.startswith("tensorir reproducer: the pass lost a name\n")
    assert "KeyError: 'lost'" in report
    assert "for i in 0..4" in report
    assert f"tensorir {tensorir.__version__}" in report


def test_internal_without_a_writable_folder_still_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/dev/null")
    with knobs.override(cache_dir="/dev/null/nowhere"):
        error = errors.internal("lost")
    assert error.reproducer is None
    assert errors.full_text(error) == (
        "InternalError: lost\n  This is a fault of tensorir, not of your program."
    )


def test_at_most_fifty_reproducers_are_kept() -> None:
    import os

    for number in range(55):
        last = errors.internal(f"fault {number}").reproducer
    assert last is not None
    assert len(os.listdir(os.path.dirname(last))) == 50
    assert os.path.exists(last)


def test_warning_has_its_id_and_the_way_to_silence_it() -> None:
    with pytest.warns(errors.TensorIRWarning) as caught:
        errors.warn("no-effect", "unroll has no effect on 'i'")
    assert [str(one.message) for one in caught] == [
        "unroll has no effect on 'i' [silence(\"no-effect\")]"
    ]
    assert caught[0].message.id == "no-effect"  # type: ignore[union-attr]


def test_warning_points_at_the_users_line() -> None:
    own = as_own(
        """
        from tensorir.support.errors import warn
        def primitive():
            helper()
        def helper():
            warn("w", "text")
        """
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own["primitive"]()
    assert caught[0].filename == __file__
    with open(__file__, encoding="utf-8") as file:
        assert 'own["primitive"]()' in file.read().splitlines()[caught[0].lineno - 1]


def test_silence_is_by_id() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        errors.silence("copy", "serial")
        errors.silence("copy")
        for id in ("copy", "serial", "cache"):
            errors.warn(id, "text")
    assert [str(one.message) for one in caught] == ['text [silence("cache")]']
    assert knobs.silenced == ("copy", "serial")


def test_silence_takes_strings() -> None:
    with pytest.raises(errors.ArgumentTypeError) as caught:
        errors.silence(3)  # type: ignore[arg-type]
    assert str(caught.value) == "the id of a warning is a string, not 3"


def test_silence_knows_its_warnings() -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        errors.silence("no_effect")
    assert str(caught.value) == (
        "no warning 'no_effect'; there are cache, copy, no-effect, serial, validate-skipped; "
        "did you mean 'no-effect'?"
    )


def test_every_warning_has_its_id_in_the_list() -> None:
    text = "".join(
        p.read_text("utf-8")
        for p in sorted(Path(errors.__file__).parents[1].rglob("*.py"))
        if p.name != "errors.py"
    )
    assert sorted(set(re.findall(r'\bwarn\(\s*"([\w-]+)"', text))) == list(errors.WARNINGS)


def test_only_an_exception_has_a_full_text() -> None:
    with pytest.raises(errors.ArgumentTypeError) as caught:
        errors.full_text(3)  # type: ignore[arg-type]
    assert str(caught.value) == "full_text: expected an exception, not 3"


def test_ids_are_silenced_by_the_environment() -> None:
    code = "from tensorir.support.errors import warn; warn('a', 'x'); warn('b', 'y')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TENSORIR_SILENCED": "a, c", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == '<string>:1: TensorIRWarning: y [silence("b")]\n'
