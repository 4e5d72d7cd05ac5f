from __future__ import annotations

import re
from pathlib import Path

import pytest

import tensorir as tir
from tensorir.inspect import help as helping
from tensorir.schedule.primitive import PRIMITIVES

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_table_is_the_one_of_the_readme() -> None:
    rows = re.findall(r"^\| (.+) \|$", README.read_text("utf-8"), re.MULTILINE)
    cells = [tuple(c.strip() for c in row.split("|")) for row in rows]
    shown = [row for row in cells if len(row) == 6]
    assert shown[0] == helping.HEADINGS
    assert tuple(tuple(c.replace("–", "-") for c in row) for row in shown[1:]) == helping.WORDS


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_primitive_is_told(name: str) -> None:
    told = helping.text(name)
    assert told.startswith(f"{name}(")
    assert "Examples" not in told
    assert "for i in" not in told


@pytest.mark.parametrize("name", tir.__all__)
def test_every_public_name_is_told(name: str) -> None:
    assert helping.text(name)


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        ("strip-mine", "split"),
        ("strip mining", "split"),
        ("Strip_Mine", "split"),
        ("divide_loop", "split"),
        ("interchange", "reorder"),
        ("collapse", "fuse"),
        ("mult_loops", "fuse"),
        ("stage_mem", "cache_read, cache_write"),
        ("peeling", "partition"),
        ("decompose_reduction", "decompose_reduction"),
        ("gpu_blocks", "bind"),
        ("loop fusion", "merge"),
        ("fusion", "merge"),
    ],
)
def test_words_of_others_lead_to_ours(foreign: str, ours: str) -> None:
    first = helping.text(foreign).splitlines()[0]
    assert f"is {ours} here." in first or first.startswith(f"{ours}(")


def test_a_word_that_means_something_else_elsewhere() -> None:
    told = helping.text("fuse")
    assert "In Exo, 'fuse' means our merge: two adjacent loops to one." in told


def test_a_primitive_that_is_not_there_says_so() -> None:
    if "skew" not in PRIMITIVES:
        assert "This version has no such primitive." in helping.text("skew")


def test_the_topic_that_refusals_point_to() -> None:
    assert helping.text("illegal-schedule").startswith("A step was refused because")
    assert helping.text("IllegalSchedule") == helping.text("illegal-schedule")
    assert helping.text(tir.IllegalSchedule) == helping.text("illegal-schedule")


def test_an_object_is_as_good_as_its_name() -> None:
    assert helping.text(tir.compute) == helping.text("compute")
    assert helping.text("tir.compute") == helping.text("compute")
    assert helping.text("s.split") == helping.text("split")


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert tir.help("split") is None
    assert capsys.readouterr().out == helping.text("split") + "\n"


def test_without_a_name_it_lists_what_there_is() -> None:
    told = helping.text()
    for word in ("split", "illegal-schedule", "placeholder", "strip-mine"):
        assert word in told
    assert max(map(len, told.splitlines())) <= 100


def test_an_unknown_word() -> None:
    with pytest.raises(tir.ArgumentError) as caught:
        tir.help("spilt")
    told = re.sub(r"py:\d+", "py:N", tir.full_text(caught.value))
    assert told == (
        "ArgumentError: help: nothing is called 'spilt'; did you mean 'split'?\n"
        "\n"
        '  test_help.py:N:  tir.help("spilt")\n'
        "\n"
        "  try  tir.help()                   lists what there is"
    )


def test_not_a_word() -> None:
    with pytest.raises(tir.ArgumentTypeError, match="a name is a string"):
        tir.help(3)


@pytest.mark.parametrize("name", ["expand", "legal_moves"])
def test_a_primitive_without_a_row_says_that_it_is_not_there(name: str) -> None:
    assert helping.text(name) == f"{name}: this version has no such primitive."


@pytest.mark.parametrize("word", ["stage", "footprint", "trace", "tail", "guard", "dependence"])
def test_words_of_the_field_are_told(word: str) -> None:
    assert len(helping.text(word).splitlines()) >= 2


def test_every_warning_is_told() -> None:
    package = Path(tir.__file__).parent
    called = re.compile(r"\bwarn\(\s*\"([a-z-]+)\"")
    ids = {i for p in package.rglob("*.py") for i in called.findall(p.read_text("utf-8"))}
    assert {"copy", "no-effect", "serial"} <= ids
    assert [i for i in sorted(ids) if i not in helping.TOPICS] == []
