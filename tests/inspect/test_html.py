from __future__ import annotations

import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest

import tensorir as tir
from schedules.cpu import matmul
from tensorir.support import display
from tests.inspect.examples import product, tiled

VOID = {"br", "hr", "img", "meta"}


class Checked(HTMLParser):
    """Collects tags and text; every tag that is opened is closed, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.values: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [f"{k}={v}" for k, v in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def test_the_whole_nest_is_there() -> None:
    s = tiled(product())
    page = Checked(s._repr_html_())
    for line in s.loops().splitlines():
        body = line.partition("  # ")[0].strip()
        assert body in page.text
    for word in ("parallel", "vectorize 16", "unroll", "reduce", "3 arrays", "5 steps"):
        assert word in page.text
    assert 'title=tile("i", "j", 8, 32, into=("io", "jo", "ii", "ji"))' in page.values


@pytest.mark.parametrize("sizes", [(1024, 1024, 1024), ("m", "n", "k")])
def test_the_full_matmul_is_small_and_quick(sizes: tuple[object, ...]) -> None:
    dims = [tir.var(x) if isinstance(x, str) else x for x in sizes]
    s = matmul(product(*dims))
    s._repr_html_()
    took = []
    for _ in range(5):
        fresh = s.undo().parallel("jr")  # nothing is known of it yet
        start = time.perf_counter()
        page = fresh._repr_html_()
        took.append(time.perf_counter() - start)
    assert min(took) < 0.150
    assert len(page.encode()) < 200_000
    Checked(page)


def test_nothing_comes_from_the_network_and_nothing_runs() -> None:
    page = tiled(product())._repr_html_()
    for word in ("http:", "https:", "//cdn", "<script", "<link", "@import", "url(", "src="):
        assert word not in page.lower()


def test_names_are_escaped() -> None:
    s = tiled(product())
    page = s._repr_html_()
    assert "&lt;" not in page
    k = tir.var("n")
    A = tir.placeholder((k,), name="A")
    B = tir.compute((k,), lambda i: tir.select(A[i] < 1.0, A[i], 0.0), name="B")
    shown = tir.schedule(B)._repr_html_()
    assert "A[i] &lt; 1" in shown
    Checked(shown)


def test_a_hostile_name_cannot_leave_its_place() -> None:
    evil = '<img src=x onerror="alert(1)">&"'
    try:
        A = tir.placeholder((4,), name=evil)
    except tir.TensorIRError:
        from tensorir.inspect.html import line
        from tensorir.inspect.nest import Row

        for what in ("loop", "guard", "buffer", "statement"):
            page = line(Row(what, 0, f"for {evil} in {evil}", evil, "parallel"))
            assert "<img" not in page
        return
    B = tir.compute((4,), lambda i: A[i] + 1.0, name="B")
    assert "<img" not in tir.schedule(B)._repr_html_()


def test_a_source_path_with_markup_is_escaped() -> None:
    code = compile("t = s.split('i', 4)", "<b>cell", "exec")
    space: dict[str, object] = {"s": product()}
    exec(code, space)
    page = space["t"]._repr_html_()  # type: ignore[attr-defined]
    assert "<b>cell" not in page
    assert "&lt;b&gt;cell" in page


def test_a_long_nest_stays_small() -> None:
    a = tir.placeholder((8,), name="a")
    out = [tir.compute((8,), lambda i, k=k: a[i] * float(k), name=f"t{k}") for k in range(600)]
    s = tir.schedule(*out)
    page = s._repr_html_()
    assert len(page.encode()) < 200_000
    assert "more lines" in page
    Checked(page)


def test_a_long_trace_stays_small() -> None:
    a = tir.placeholder((4, 4), name="a")
    s = tir.schedule(tir.compute((4, 4), lambda i, j: a[i, j] + 1.0, name="b"))
    for _ in range(150):
        s = s.reorder("j", "i").reorder("i", "j")
    page = s._repr_html_()
    assert "300 steps" in page
    assert "earlier" in page
    assert len(page.encode()) < 200_000
    Checked(page)


def test_colours_do_not_depend_on_the_theme() -> None:
    """Text takes the colour of its surroundings; what has a colour has a background too."""
    from tensorir.inspect.html import STYLE

    for rule in STYLE.removeprefix("<style>").removesuffix("</style>").split("}"):
        if "color:#" in rule:
            assert "background:#" in rule


@pytest.mark.parametrize("kind", ["reduce", "parallel", "vectorize", "unroll", "guard", "buffer"])
def test_labels_can_be_read(kind: str) -> None:
    """The contrast that WCAG 2.1 asks for at level AAA, 7 to 1."""
    from tensorir.inspect.html import _LABELS

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    back, front = map(luminance, _LABELS[kind])
    assert (back + 0.05) / (front + 0.05) >= 7


def test_a_kernel_shows_itself() -> None:
    f = tir.build(tiled(product()))
    page = Checked(f._repr_html_())
    assert "kernel C" in page.text
    assert "float32[64, 32]" in page.text
    assert "for io in 0..8" in page.text
    assert len(f._repr_html_()) < 200_000


def test_html_is_loaded_when_it_is_needed() -> None:
    code = (
        "import sys, tensorir as tir\n"
        "a = tir.placeholder((8,), name='a')\n"
        "s = tir.schedule(tir.compute((8,), lambda i: a[i] + 1.0, name='b'))\n"
        "repr(s)\n"
        "assert 'tensorir.inspect.html' not in sys.modules\n"
        "s._repr_html_()\n"
        "assert 'tensorir.inspect.html' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_other_nodes_fall_back_to_their_text() -> None:
    assert display.html(object).startswith("<pre>")
