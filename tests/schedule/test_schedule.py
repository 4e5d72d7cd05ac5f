from __future__ import annotations

import copy
import pickle

import pytest

from tensorir.support.errors import UnsupportedError
from tests.errors.nests import diagonal
from tests.errors.saying import chain, matmul


def test_a_schedule_never_changes() -> None:
    s = matmul(8, 8, 8)
    before = s.loops()
    s.split("i", 4).reorder("io", "k", "j", "ii").parallel("io")
    assert s.loops() == before
    assert s.split("i", 4).loops() == s.split("i", 4).loops()


def test_repr_is_the_loops() -> None:
    s = matmul(8, 8, 8)
    assert repr(s) == s.loops() == str(s)
    assert "for" in s._repr_html_()


def test_undo_and_at() -> None:
    s0 = matmul(8, 8, 8)
    s1 = s0.split("i", 4)
    s2 = s1.parallel("io")
    assert s2.undo() is s1
    assert s2.undo(2) is s0
    assert s2.at(0) is s0 and s2.at(1) is s1 and s2.at(2) is s2
    assert s1.undo().unroll("k").trace.steps[0].number == 1


def test_check_gives_a_verdict() -> None:
    s = matmul(8, 8, 8)
    yes = s.check("reorder", "k", "j")
    assert yes and yes.reason == "" and not yes.reassociates
    assert repr(yes) == "Legality(allowed)"
    assert s.split("k", 4).check("reorder", "ki", "ko").reassociates
    no = s.check("parallel", "k")
    assert not no and no.witness.cell == (0, 0)
    assert no.text.startswith(f"IllegalSchedule: {no.reason}\n")
    assert not s.check("split", "q", 4)
    assert s.check("split", "q", 4).reason == "split: no axis 'q'"


def test_witness_of_the_template() -> None:
    verdict = diagonal().check("reorder", "j", "i")
    w = verdict.witness
    assert (w.sizes, w.kind, w.cell) == ({"N": 3}, "flow", (1, 1))
    assert (w.source.at, w.sink.at) == ({"i": 1, "j": 1}, {"i": 2, "j": 0})


def test_explain_of_what_is_allowed() -> None:
    assert matmul(8, 8, 8).explain("unroll", "k") == (
        'unroll("k") is allowed, and keeps every result bit for bit.\n'
        "\n"
        "--- declaration\n"
        '+++ step 1: unroll("k")\n'
        " for i in 0..8\n"
        "   for j in 0..8\n"
        "     C[i, j] = 0.0\n"
        "-    for k in 0..8\n"
        "+    for k in 0..8  # unroll\n"
        "       C[i, j] = fma(A[i, k], B[k, j], C[i, j])"
    )


def test_explain_of_what_is_refused_is_the_error() -> None:
    s = diagonal()
    text = s.explain("reorder", "j", "i")
    assert text.startswith('IllegalSchedule: reorder("j", "i") would run S[2, 0] before S[1, 1]')
    assert "asked to go outside i" in text


def test_diff() -> None:
    s = matmul(8, 8, 8)
    assert s.diff() == ""
    t = s.unroll("k")
    assert t.diff() == t.diff(s)
    assert "+    for k in 0..8  # unroll" in t.diff().splitlines()
    assert "-    for k in 0..8  # unroll" in s.diff(t).splitlines()


def test_axes_and_stages() -> None:
    s = chain()
    assert [a.name for a in s.axes] == ["i", "i"]
    assert s.stages == ("X", "Y")
    assert [x.split()[1] for x in s.loops().splitlines() if "for" in x] == ["X.i", "Y.i"]


def test_unknown_names_are_attribute_errors_too() -> None:
    s = matmul(8, 8, 8)
    assert not hasattr(s, "spilt")
    assert not hasattr(s, "_repr_png_")
    with pytest.raises(AttributeError):
        s.spilt  # noqa: B018


def test_a_tree_pickles() -> None:
    s = matmul(8, 8, 8).split("i", 4).reorder("io", "k", "ii", "j")
    again = pickle.loads(pickle.dumps(s.program.tree))
    assert type(again) is type(s.program.tree)


def test_copies_are_itself_and_pickles_are_refused() -> None:
    s = matmul(8, 8, 8).split("i", 4)
    assert copy.copy(s) is s and copy.deepcopy(s) is s
    with pytest.raises(UnsupportedError) as caught:
        pickle.dumps(s)
    assert str(caught.value).splitlines()[0] == "schedules are not pickled"
