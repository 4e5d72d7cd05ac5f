"""Hand schedules called with what is no schedule, or with numbers of numpy's."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import schedules.cpu
import tensorir as tir
from schedules.cpu.matmul import matmul
from schedules.params import Param, resolve_params
from tests.errors.saying import said

A = tir.placeholder((4, 4), name="A")


def by_hand() -> dict[str, Callable[..., Any]]:
    """The functions that schedule by hand: those with parameters of their own."""
    found: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.iter_modules(schedules.cpu.__path__):
        names = vars(importlib.import_module(f"schedules.cpu.{module.name}"))
        for name, value in names.items():
            ours = getattr(value, "__module__", "") == f"schedules.cpu.{module.name}"
            if ours and hasattr(value, "__wrapped__") and not name.startswith("_"):
                found[name] = value
    return found


HAND = by_hand()


def test_all_of_them_are_looked_at() -> None:
    assert {"attention", "conv", "gemv", "matmul", "rows", "small_matmul", "transpose"} <= set(HAND)


@pytest.mark.parametrize("name", HAND)
def test_a_tensor_is_no_schedule(name: str) -> None:
    with pytest.raises(tir.ArgumentTypeError) as refused:
        HAND[name](A)
    assert said(refused.value) == (
        f"ArgumentTypeError: {name}: expected a schedule, not Tensor A: float32[4, 4]\n\n"
        "  script.py:1:  HAND[name](A)\n\n"
        "  try  tir.schedule(tensor)         makes one\n"
    )


def test_parameters_of_numpy() -> None:
    s = tir.schedule(tir.ops.matmul(A, tir.placeholder((4, 4), name="B")))
    made = matmul(s, "x86-64-v3", mr=np.int64(2), parallel=False)
    assert made.loops() == matmul(s, "x86-64-v3", mr=2, parallel=False).loops()
    assert made.trace.steps[1].text == 'split("i", 2, into=("ir", "ii"))'
    assert resolve_params((Param("a", (0, 1), 1),), {"a": np.int8(0)}) == {"a": 0}  # type: ignore[dict-item]
    with pytest.raises(tir.ArgumentError, match="^mr=1.5: expected a positive integer$"):
        matmul(s, mr=1.5)  # type: ignore[arg-type]
