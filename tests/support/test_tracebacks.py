from __future__ import annotations

import timeit
import traceback
import warnings
from typing import Any

import pytest

from tensorir.support.errors import ArgumentError, InternalError, TensorIRWarning, full_text, warn
from tensorir.support.knobs import knobs
from tests.support.own_code import as_own

OWN = as_own(
    """
    import numpy
    from tensorir.support.errors import ArgumentError
    from tensorir.support.tracebacks import user_api

    @user_api
    def refuse(*args):
        "Refuse."
        return deeper()

    def deeper():
        try:
            {}["x"]
        except KeyError:
            raise ArgumentError("refused", details="  try  that")

    @user_api
    def outer(*args):
        return refuse(*args)

    @user_api
    def fault(*args, **kwargs):
        return numpy.zeros(3).reshape(2, 2)

    @user_api
    def apply(function, *args):
        return function(*args)

    @user_api
    def fail(error):
        raise error

    class Thing:
        def _reproducer_(self):
            return "for i in 0..4\\n  C[i] = 0"

        def __repr__(self):
            raise RuntimeError("no repr")

        @user_api
        def method(self):
            return self.missing
    """
)


def files_of(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("name", ["refuse", "outer"])
def test_own_frames_are_dropped(name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        OWN[name](1)
    assert set(files_of(caught.value)) == {__file__}
    printed = "".join(traceback.format_exception(caught.value))
    assert "KeyError" not in printed
    assert printed.endswith("tensorir.ArgumentError: refused\n  try  that\n")


def test_full_tracebacks_keep_them() -> None:
    with knobs.override(full_tracebacks=True), pytest.raises(ArgumentError) as caught:
        OWN["refuse"](1)
    assert "tensorir/example.py" in files_of(caught.value)
    assert "KeyError" in "".join(traceback.format_exception(caught.value))


def test_fault_of_ours_is_an_internal_error_with_its_cause() -> None:
    with pytest.raises(InternalError) as caught:
        OWN["fault"](7, factor=8)
    error = caught.value
    assert isinstance(error.__cause__, ValueError)
    assert str(error) == (
        "fault failed with ValueError: cannot reshape array of size 3 into shape (2,2)"
    )
    assert error.reproducer is not None
    with open(error.reproducer, encoding="utf-8") as file:
        report = file.read()
    assert "call: fault\nargument 0: 7\nargument factor: 8\n" in report
    assert "tensorir/example.py" in report


def test_reproducer_has_what_the_object_tells_even_if_its_repr_fails() -> None:
    with pytest.raises(InternalError) as caught:
        OWN["Thing"]().method()
    assert caught.value.reproducer is not None
    with open(caught.value.reproducer, encoding="utf-8") as file:
        report = file.read()
    assert "for i in 0..4\n  C[i] = 0\nargument 0: <no text: RuntimeError: no repr>" in report


def test_exception_of_a_users_function_passes_untouched() -> None:
    def divide(value: int) -> float:
        return value / 0

    with pytest.raises(ZeroDivisionError) as caught:
        OWN["apply"](divide, 1)
    assert not isinstance(caught.value, InternalError)

    import numpy

    with pytest.raises(ValueError, match="cannot reshape") as raised:
        OWN["apply"](lambda: numpy.zeros(3).reshape(2, 2))
    assert not isinstance(raised.value, InternalError)


def test_users_frames_inside_are_kept() -> None:
    with pytest.raises(ArgumentError) as caught:
        OWN["apply"](lambda: OWN["refuse"]())
    assert set(files_of(caught.value)) == {__file__}
    assert len(files_of(caught.value)) == 2


@pytest.mark.parametrize("cls", [KeyboardInterrupt, SystemExit, MemoryError])
def test_what_is_no_error_passes(cls: type[BaseException]) -> None:
    error = cls("x")
    with pytest.raises(cls) as caught:
        OWN["fail"](error)
    assert caught.value is error


def test_warning_made_an_error_passes() -> None:
    own: dict[str, Any] = as_own(
        """
        from tensorir.support.errors import warn
        from tensorir.support.tracebacks import user_api
        @user_api
        def primitive():
            warn("w", "text")
        """
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TensorIRWarning):
            own["primitive"]()
        with pytest.raises(TensorIRWarning):
            warn("w", "text")


def test_message_of_several_lines_gives_a_headline_of_one() -> None:
    with pytest.raises(InternalError) as caught:
        OWN["fail"](AssertionError("first\nsecond"))
    assert full_text(caught.value).splitlines()[0] == (
        "InternalError: fail failed with AssertionError: first"
    )


def test_name_and_text_of_the_function_stay() -> None:
    assert OWN["refuse"].__name__ == "refuse"
    assert OWN["refuse"].__doc__ == "Refuse."


def test_costs_less_than_a_microsecond() -> None:
    function = as_own(
        """
        from tensorir.support.tracebacks import user_api
        @user_api
        def nothing(value): return value
        """
    )["nothing"]
    best = min(timeit.repeat(lambda: function(1), number=10_000, repeat=7)) / 10_000
    assert best < 1e-6
