from __future__ import annotations

import pytest

from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.names import check_name, did_you_mean, fresh, hint


@pytest.mark.parametrize("name", ["i", "io", "A_packed", "größe", "变量", "x2", "l" * 80])
def test_allowed_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "cls", "text"),
    [
        (3, ArgumentTypeError, "axis name must be a string, not int 3"),
        (None, ArgumentTypeError, "axis name must be a string, not NoneType None"),
        ("", ArgumentError, "axis name is empty"),
        (
            "a b",
            ArgumentError,
            "axis name 'a b' is not an identifier, such as 'io' or 'A_packed'",
        ),
        (
            "i.o",
            ArgumentError,
            "axis name 'i.o' is not an identifier, such as 'io' or 'A_packed'",
        ),
        ("_0", ArgumentError, "axis name '_0' begins with an underscore; those are the library's"),
        ("for", ArgumentError, "axis name 'for' is a Python keyword"),
        (
            "x" * 81,
            ArgumentError,
            "axis name 'xxxxxxxxxxxxxxxxxxxx...' is longer than 80 characters",
        ),
        (
            "a\0",
            ArgumentError,
            "axis name 'a\\x00' is not an identifier, such as 'io' or 'A_packed'",
        ),
    ],
)
def test_refused_names(name: object, cls: type[Exception], text: str) -> None:
    with pytest.raises(cls) as caught:
        check_name(name, "axis name")
    assert str(caught.value) == text


def test_meant_name_does_not_depend_on_the_order_of_candidates() -> None:
    candidates = ["ji", "jo", "ii", "io"]
    meant = {did_you_mean("jx", order) for order in (candidates, candidates[::-1])}
    assert len(meant) == 1


def test_meant_name_of_a_huge_name_is_quick() -> None:
    assert did_you_mean("x" * 1_000_000, ["io"] * 1000) is None
    assert hint("x" * 1_000_000, ["io"]) == ""


def test_fresh_counts_on() -> None:
    taken: set[str] = set()
    for _ in range(4):
        taken.add(fresh("ii", taken))
    assert sorted(taken) == ["ii", "ii_1", "ii_2", "ii_3"]
    assert fresh("x2", {"x2"}) == "x_3"
