from __future__ import annotations

from tensorir.inspect import diff
from tests.inspect.examples import product, tiled
from tests.inspect.test_html import Checked


def test_the_last_step_is_shown() -> None:
    s = product(64, 64, 8).split("j", 16, into=("jo", "ji"))
    t = s.vectorize("ji", width=16)
    assert str(t.diff()).splitlines()[:2] == [
        '--- step 1: split("j", 16, into=("jo", "ji"))',
        '+++ step 2: vectorize("ji", width=16)',
    ]
    assert any(x.endswith("for ji in 0..16  # vectorize 16") for x in t.diff().splitlines())


def test_shown_without_quotes_in_an_interpreter() -> None:
    s = product().split("i", 8)
    assert repr(s.diff()) == str(s.diff())
    assert "\n" in repr(s.diff())


def test_equal_schedules_differ_in_nothing() -> None:
    s = product()
    assert s.diff() == ""
    assert s.diff(product()) == ""


def test_two_columns() -> None:
    s = tiled(product())
    page = Checked(s.diff(s.at(0))._repr_html_())
    assert page.tags.count("table") == 1
    assert page.tags.count("td") == 2 * (page.tags.count("tr") - 1)
    assert "class=gone" in page.values
    assert "class=come" in page.values
    assert "declaration" in page.text
    assert 'step 5: parallel("io")' in page.text


def test_lines_that_stay_are_not_marked() -> None:
    s = product()
    t = s.parallel("i")
    page = t.diff()._repr_html_()
    assert page.count("class=gone") == page.count("class=come") == 1


def test_text_in_colour() -> None:
    s = product().parallel("i")
    assert "\x1b" not in diff.text(s.at(0), s)
    shown = diff.text(s.at(0), s, colour=True)
    assert "\x1b[31m-for i in 0..64\x1b[0m" in shown
    assert "\x1b[32m+for i in 0..64  # parallel\x1b[0m" in shown
