from __future__ import annotations

import json

import pytest

import tensorir as tir
from tests.errors.saying import matmul


def scheduled() -> tir.Schedule:
    s = matmul(64, 64, 64)
    s = s.tile("i", "j", 6, 16, into=("io", "jo", "ii", "ji"))
    s = s.split("k", 8, tail="guard").reorder("io", "jo", "ko", "ki", "ii", "ji")
    return s.vectorize("ji").unroll("ii").parallel("io")


def test_steps_are_numbered_with_the_callers_line() -> None:
    s = scheduled()
    assert [x.number for x in s.trace] == [1, 2, 3, 4, 5, 6]
    lines = str(s.trace).splitlines()
    assert lines[0].startswith('1: tile("i", "j", 6, 16, into=("io", "jo", "ii", "ji"))')
    assert all("# test_trace.py:" in x for x in lines if x[0].isdigit())
    assert len({x.site.line for x in s.trace}) == 3


def test_python_rebuilds_the_schedule() -> None:
    s = scheduled()
    source = s.trace.to_python()
    assert source.splitlines()[:2] == [
        "def rebuild(s):",
        '    s = s.tile("i", "j", 6, 16, into=("io", "jo", "ii", "ji"))',
    ]
    scope: dict[str, object] = {}
    exec(source, scope)
    again = scope["rebuild"](s.at(0))  # type: ignore[operator]
    assert again.loops() == s.loops()
    assert again.trace == s.trace


def test_json_round_trip() -> None:
    s = scheduled()
    text = s.trace.to_json()
    assert tir.Trace.from_json(text) == s.trace
    assert tir.replay(s.at(0), tir.Trace.from_json(text)).loops() == s.loops()
    assert "test_trace" not in text


def test_no_steps() -> None:
    s = matmul(8, 8, 8)
    assert str(s.trace) == "no steps"
    assert s.trace.to_python() == "def rebuild(s):\n    return s"
    assert tir.replay(s, s.trace) is s


@pytest.mark.parametrize(
    "step",
    [
        {"primitive": "split", "args": ["i", 8], "kwargs": {"s": 1}},
        {"primitive": "split", "args": ["i", 8, 8], "kwargs": {}},
        {"primitive": "split", "args": ["i", "8"], "kwargs": {}},
        {"primitive": "split", "args": ["i", None], "kwargs": {}},
        {"primitive": "split", "args": [["i"], 8], "kwargs": {}},
        {"primitive": "split", "args": [{"i": 1}, 8], "kwargs": {}},
        {"primitive": "split", "args": ["i", 1e300], "kwargs": {}},
        {"primitive": "split", "args": ["i", 8], "kwargs": {"into": 3}},
        {"primitive": "split", "args": ["i", 8], "kwargs": {"into": ["__class__", "x"]}},
        {"primitive": "split", "args": ["i", 8], "kwargs": {"tail": ["auto"]}},
        {"primitive": "reorder", "args": [], "kwargs": {}},
        {"primitive": "vectorize", "args": ["j"], "kwargs": {"width": -1}},
        {"primitive": "tile", "args": ["i", "j", 2, 2], "kwargs": {"into": ["a", "b"]}},
    ],
)
def test_replay_checks_what_it_reads(step: dict[str, object]) -> None:
    trace = tir.Trace.from_json(json.dumps({"format": 1, "steps": [step]}))
    with pytest.raises(tir.TensorIRError) as refused:
        tir.replay(matmul(8, 8, 8), trace)
    assert not isinstance(refused.value, tir.InternalError)


@pytest.mark.parametrize(
    "text",
    ["[]", "1", '{"format": 2, "steps": []}', '{"format": 1, "steps": [1]}', "", "{", "null"],
)
def test_what_is_no_trace(text: str) -> None:
    with pytest.raises(tir.ArgumentError, match="this is no trace"):
        tir.Trace.from_json(text)
