"""Calls with arguments that a function does not take: an error of the user's, word for word."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tensorir as tir
from tests.errors.saying import said, scaled

CASES: dict[str, tuple[Callable[[], object], str]] = {
    "method": (
        lambda: scaled().undo(step=1),  # type: ignore[call-arg]
        """\
ArgumentTypeError: undo(steps=1) has no argument 'step'; did you mean 'steps'?
""",
    ),
    "kernel": (
        lambda: tir.build(scaled()).check(np.zeros(64, "float32")),  # type: ignore[call-arg]
        """\
ArgumentTypeError: check(*inputs, against, tol=None): missing a required argument: 'against'
""",
    ),
    "positional": (
        lambda: tir.build(scaled(), "native"),  # type: ignore[misc]
        """\
ArgumentTypeError: build(what, *, target=None, args=None, validate=None, checked=None, index_check=None): too many positional arguments
""",
    ),
    "language": (
        lambda: tir.placeholder((8,), nmae="A"),  # type: ignore[call-arg]
        """\
ArgumentTypeError: placeholder(shape, dtype='float32', *, name='placeholder') has no argument 'nmae'; did you mean 'name'?
""",
    ),
    "function": (
        lambda: tir.exp(),  # type: ignore[call-arg]
        """\
ArgumentTypeError: exp(x): missing a required argument: 'x'
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case: str) -> None:
    call, text = CASES[case]
    with pytest.raises(tir.ArgumentTypeError) as refused:
        call()
    first, _, rest = said(refused.value).partition("\n")
    assert first + "\n" == text
    assert rest.startswith("\n  script.py:1:  ")


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    for name in tir.__all__:
        value = getattr(tir, name)
        if inspect.isroutine(value):
            yield name, value
        elif value in (tir.Schedule, tir.Kernel, tir.Trace, tir.Target, tir.Expr):
            methods = inspect.getmembers(value, inspect.isroutine)
            yield from ((f"{name}.{m}", f) for m, f in methods if not m.startswith("_"))


# What the library itself calls.
INSIDE = {"Kernel.run", "Schedule.then"}


@pytest.mark.parametrize("name, function", [x for x in public() if x[0] not in INSIDE])
def test_an_unknown_keyword_is_no_fault_of_ours(name: str, function: Callable[..., object]) -> None:
    with pytest.raises(tir.ArgumentTypeError, match="has no argument 'nonsense'"):
        function(nonsense=1)
