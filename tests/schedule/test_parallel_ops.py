from __future__ import annotations

import tensorir as tir
from tests.errors.saying import matmul, scaled


def marks(s: tir.Schedule) -> dict[str, str]:
    """How each loop that is not serial runs, by name."""
    lines = [x.strip() for x in s.loops().splitlines() if "  # " in x]
    return {x.split()[1]: x.split("  # ")[1] for x in lines}


def test_marks_apply_to_the_inits_copy() -> None:
    s = matmul(64, 64, 64).tile("i", "j", 4, 16).reorder("io", "jo", "k", "ii", "ji")
    s = s.unroll("ii").vectorize("ji").parallel("io")
    assert marks(s) == {
        "io": "parallel",
        "C.init.ii": "unroll",
        "C.init.ji": "vectorize 16",
        "ii": "unroll",
        "ji": "vectorize 16",
    }


def test_a_copy_that_is_named_is_marked_alone() -> None:
    s = matmul(64, 64, 64).reorder("i", "k", "j")
    assert marks(s.vectorize("C.init.j")) == {"C.init.j": "vectorize 16"}
    s = s.unroll("C.init.j").vectorize("j")
    assert marks(s) == {"C.init.j": "unroll", "j": "vectorize 16"}


def test_a_new_loop_of_an_old_name_has_no_copy() -> None:
    s = matmul(64, 64, 64).reorder("i", "k", "j").split("j", 16, into=("jo", "j"))
    assert marks(s.vectorize("j")) == {"j": "vectorize 16"}


def test_vectorize_splits_where_the_extent_is_not_the_width() -> None:
    s = scaled(64)
    assert [a.name for a in s.vectorize("i", 16).axes] == ["i", "i.v"]
    assert [a.name for a in s.vectorize("i", 64).axes] == ["i"]
    assert [a.name for a in s.vectorize("i").axes] == ["i"]
    assert [a.name for a in scaled(10_000).vectorize("i").axes] == ["i", "i.v"]
    assert [a.name for a in scaled(tir.var("n")).vectorize("i").axes] == ["i", "i.v"]


def test_default_lanes_are_64_bytes_of_the_widest_element() -> None:
    n = tir.var("n")
    for dtype, lanes in (("float64", 8), ("float32", 16), ("int16", 32), ("uint8", 64)):
        A = tir.placeholder((n,), dtype, name="A")
        s = tir.schedule(tir.compute((n,), lambda i: A[i] + A[i], name="B"))  # noqa: B023
        assert marks(s.vectorize("i")) == {"i.v": f"vectorize {lanes}"}


def test_short_loops_get_short_vectors() -> None:
    assert marks(scaled(6).vectorize("i")) == {"i": "vectorize 8"}
    assert marks(scaled(24).vectorize("i")) == {"i": "vectorize 16"}


def test_unroll_by_a_factor() -> None:
    s = matmul(8, 8, tir.var("K")).unroll("k", 4)
    assert [a.name for a in s.axes] == ["i", "j", "k", "k.u"]
    assert marks(s) == {"k.u": "unroll"}
    assert marks(matmul(8, 8, 4).unroll("k", 4)) == {"k": "unroll"}


def test_suggestions_are_accepted() -> None:
    s = matmul(64, 64, 64)
    for refused in (s.check("parallel", "k"), s.check("vectorize", "k")):
        assert not refused
        assert 1 <= len(refused.suggestions) <= 3
        for line in refused.suggestions:
            after = eval(line, {"s": s, "tir": tir})
            assert isinstance(after, tir.Schedule)
