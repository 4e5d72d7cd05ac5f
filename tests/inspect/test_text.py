from __future__ import annotations

import contextlib
import io
import re

import pytest

import tensorir as tir
from tensorir.inspect import nest, text
from tests.inspect.examples import blur, product, tiled

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return Terminal()


def printed(s: tir.Schedule, out: Terminal) -> str:
    with contextlib.redirect_stdout(out):
        print(s)
    return out.getvalue()


def test_a_pipe_gets_no_colour() -> None:
    s = tiled(product())
    assert "\x1b" not in repr(s)
    assert "\x1b" not in str(s)
    assert repr(s) == s.loops()


def test_a_terminal_gets_the_same_text_in_colour(terminal: Terminal) -> None:
    s = tiled(product())
    shown = printed(s, terminal)
    assert ANSI.sub("", shown) == s.loops() + "\n"
    lines = shown.splitlines()
    assert lines[0] == "\x1b[1;32mfor io\x1b[0m in 0..8  \x1b[1;32m# parallel\x1b[0m"
    assert "    \x1b[35mfor k\x1b[0m in 0..32" in lines
    assert any("\x1b[33m# unroll\x1b[0m" in x for x in lines)
    assert any("\x1b[1;36m# vectorize 16\x1b[0m" in x for x in lines)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_can_refuse_colour(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert "\x1b" not in printed(tiled(product()), terminal)


def test_an_empty_no_color_is_as_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert text.colours(terminal)


def test_a_closed_or_odd_stream_gets_no_colour() -> None:
    closed = io.StringIO()
    closed.close()
    assert not text.colours(closed)
    assert not text.colours(object())  # type: ignore[arg-type]


def test_steps_are_told_in_a_column() -> None:
    shown = text.nest(tiled(product()), steps=True, colour=False).splitlines()
    assert shown[0].endswith("1 tile")
    assert shown[0].startswith("for io in 0..8  # parallel   ")
    columns = {len(x) - len(x.split("   ")[-1].lstrip()) for x in shown if x.endswith("tile")}
    assert len(columns) == 1
    (k,) = (x for x in shown if "for k" in x)
    assert k == "    for k in 0..32"


def test_a_guard_tells_the_step_it_comes_from() -> None:
    s = blur(tir.var("n")).split("Y.i", 8, into=("io", "ii")).split("X.i", 4, tail="guard")
    s = s.reorder("ii", "io") if s.check("reorder", "ii", "io") else s
    rows = [x for x in nest.rows(s) if x.what == "guard"]
    for row in rows:
        assert row.step is not None
    shown = repr(s)
    assert shown.count("# since step ") == len(rows)


def test_a_declared_guard_has_no_step() -> None:
    n = tir.var("n")
    A = tir.placeholder((n, n), name="A")
    k = tir.reduce_axis(n, name="k")
    B = tir.compute((n,), lambda i: tir.sum(A[i, k], axis=k, where=(k < i) | (k > i + 2)), name="B")
    s = tir.schedule(B)
    found = [x for x in nest.rows(s) if x.what == "guard"]
    assert [x.step for x in found] == [None] * len(found)


def test_kinds_of_rows() -> None:
    found = [(x.what, x.kind) for x in nest.rows(tiled(product()))]
    assert found[0] == ("loop", "parallel")
    assert ("loop", "reduce") in found
    assert ("loop", "unroll") in found
    assert ("loop", "vectorize") in found
    assert found[-1] == ("statement", "")


def test_rows_of_text_read_a_kernels_nest() -> None:
    rows = nest.rows_of_text(
        "alloc T: float32[4]  # registers\n"
        "for i in 0..8:  # parallel\n"
        "  if i < n:\n"
        "    T[i] = 0.0\n"
        "  else:\n"
        "    T[i] = 1.0  # loads if i < 4"
    )
    assert [(x.what, x.depth, x.kind) for x in rows] == [
        ("buffer", 0, ""),
        ("loop", 0, "parallel"),
        ("guard", 1, ""),
        ("statement", 2, ""),
        ("guard", 1, ""),
        ("statement", 2, ""),
    ]
    assert [x.line for x in rows][1] == "for i in 0..8:  # parallel"
