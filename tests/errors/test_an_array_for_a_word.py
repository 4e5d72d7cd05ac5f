"""An array where a step takes a word: no comparison with it has a truth value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tensorir as tir
from tests.errors.saying import matmul, said

X = np.zeros(2)
TEXT = """\
ArgumentTypeError: {name}: a step takes names and numbers, not ndarray array([0., 0.])

  script.py:1:  call(matmul())
"""
CASES: dict[str, Callable[[tir.Schedule], object]] = {
    "bind": lambda s: s.bind("i", X),
    "cache_read": lambda s: s.cache_read("A", X),
    "cache_write": lambda s: s.cache_write("C", init=X),
    "compute_at": lambda s: s.compute_at("C", "i", storage=X),
    "pipeline": lambda s: s.pipeline("k", 2, engine=X),
    "split": lambda s: s.split("i", 8, tail=X),
}


@pytest.mark.parametrize("name", CASES)
def test_an_array_for_a_word(name: str) -> None:
    call = CASES[name]
    with pytest.raises(tir.ArgumentTypeError) as refused:
        call(matmul())
    first, *rest = said(refused.value).splitlines()
    assert first == TEXT.format(name=name).splitlines()[0]
    assert rest[1].startswith("  script.py:1:  ")
