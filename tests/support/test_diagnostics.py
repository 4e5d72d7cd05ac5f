from __future__ import annotations

import sys

import pytest

from tensorir.support.diagnostics import MOST_LINES, CallSite, Mark, Message, caller
from tensorir.support.errors import IllegalSchedule, full_text
from tests.support.own_code import as_own

TEMPLATE = """\
IllegalSchedule: reorder("j", "i") would run S[2, 0] before S[1, 1], which writes what it reads.

  matmul.ipynb cell 5:  s = s.reorder("j", "i")

  for i in 1..N
    for j in 0..N-1                 <- asked to go outside i
      S: A[i, j] = A[i-1, j+1] * 0.5
                   ^^^^^^^^^^^^^ flow dependence, distance (i: +1, j: -1), first seen at N = 3

  why  after the change the first distance is -1: the reader would come before the writer.
  try  s.skew("j", by="i")          then reorder: the distance becomes (+1, 0)
       s.legal_moves("j")           lists what is allowed
  more tir.help("illegal-schedule")"""


def test_whole_template() -> None:
    message = Message(
        'reorder("j", "i") would run S[2, 0] before S[1, 1], which writes what it reads.',
        call_site='matmul.ipynb cell 5:  s = s.reorder("j", "i")',
        nest_lines=["for i in 1..N", "  for j in 0..N-1", "    S: A[i, j] = A[i-1, j+1] * 0.5"],
        marks=[
            Mark(1, "asked to go outside i"),
            Mark(2, "flow dependence, distance (i: +1, j: -1), first seen at N = 3", 17, 30),
        ],
        why="after the change the first distance is -1: the reader would come before the writer.",
        tries=[
            ('s.skew("j", by="i")', "then reorder: the distance becomes (+1, 0)"),
            ('s.legal_moves("j")', "lists what is allowed"),
        ],
        more='tir.help("illegal-schedule")',
    )
    error = message.error(IllegalSchedule, primitive="reorder")
    assert full_text(error) == TEMPLATE
    assert error.primitive == "reorder"
    assert str(error) == message.headline
    assert message.text() == TEMPLATE.removeprefix("IllegalSchedule: ")


def test_headline_alone() -> None:
    assert Message("no axis 'q'").text() == "no axis 'q'"
    assert full_text(Message("no").error(IllegalSchedule)) == "IllegalSchedule: no"


def test_at_most_three_suggestions() -> None:
    tries = [(f"s.undo({number})", "") for number in range(5)]
    assert Message("no", tries=tries).text() == (
        "no\n\n  try  s.undo(0)\n       s.undo(1)\n       s.undo(2)"
    )


def test_long_reason_is_wrapped() -> None:
    text = Message("no", why="word " * 40).text()
    assert all(len(line) <= 100 for line in text.splitlines())
    assert text.splitlines()[3].startswith("       word")


@pytest.mark.parametrize("depth", [3, 12, 40])
@pytest.mark.parametrize("marked", [0, 0.5, 1])
def test_long_nest_is_elided_around_its_marks(depth: int, marked: float) -> None:
    nest = [f"{'  ' * number}for i{number} in 0..8" for number in range(depth)]
    nest.append(f"{'  ' * depth}C[i0] = A[i0]")
    line = int(marked * depth)
    message = Message(
        "no",
        call_site="a.py:1:  x",
        nest_lines=nest,
        marks=[Mark(line, "here"), Mark(depth, "and here", 2 * depth, 2 * depth + 5)],
        why="reason",
        tries=[("a", "b"), ("c", "d"), ("e", "f")],
        more="m",
    )
    lines = message.text().splitlines()
    assert len(lines) <= MOST_LINES
    assert sum(one.endswith("<- here") for one in lines) == 1
    assert sum("^^^^^ and here" in one for one in lines) == 1
    below = next(number for number, one in enumerate(lines) if "^^^^^" in one)
    assert lines[below - 1][lines[below].index("^") :][:5] == "C[i0]"
    assert any(one.strip() == "..." for one in lines) == (depth == 40)


OWN = as_own(
    """
    import contextlib, functools
    from tensorir.support.diagnostics import caller
    def primitive(*args):
        return inner(args)
    def inner(args):
        with manager() as site:
            return site
    @contextlib.contextmanager
    def manager():
        yield caller()
    """
)


def test_caller_is_the_users_line() -> None:
    site = OWN["primitive"](1)
    line = sys._getframe().f_lineno - 1
    assert site == CallSite(__file__, line, line)
    assert str(site) == f'test_diagnostics.py:{line}:  site = OWN["primitive"](1)'


def test_call_over_several_lines_is_joined() -> None:
    # fmt: off
    site = OWN["primitive"](
        "i",
        "j",
    )
    # fmt: on
    assert site.last_line - site.line == 3
    assert site.source == 'site = OWN["primitive"]( "i", "j", )'


def test_long_call_is_cut() -> None:
    site = OWN["primitive"]("aaaaaaaaaaaa", "bbbbbbbbbbbbbbbbb", "ccccccccccccccccc", "ddddddd", 1)
    assert len(site.source) <= 80
    assert site.source.endswith(" ...")


def test_call_without_source_has_a_place() -> None:
    names: dict[str, object] = {"primitive": OWN["primitive"]}
    exec("site = primitive()", names)
    assert str(names["site"]) == "<string>:1"


def test_caller_outside_everything_is_none() -> None:
    assert CallSite("<stdin>", 2, 2).source == ""
    site = caller()
    assert site is not None and site.file == __file__


def test_cell_of_a_notebook_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        monkeypatch.setenv("JPY_SESSION_NAME", "/somewhere/matmul.ipynb")
        shell.user_ns["primitive"] = OWN["primitive"]
        shell.run_cell("1 + 1", store_history=True)
        shell.run_cell("site = primitive('j', 'i')", store_history=True)
        site = shell.user_ns["site"]
        number = shell.execution_count - 1
        assert str(site) == f"matmul.ipynb cell {number}:  site = primitive('j', 'i')"
        monkeypatch.delenv("JPY_SESSION_NAME")
        assert site.place == f"cell {number}"
    finally:
        InteractiveShell.clear_instance()
