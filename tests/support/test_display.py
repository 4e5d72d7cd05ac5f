from __future__ import annotations

from tensorir.support import display


class Base:
    def __repr__(self) -> str:
        return display.text(self)


class Derived(Base): ...


class Other: ...


def test_unknown_node_has_a_text_and_escaped_html() -> None:
    assert display.text(Other()) == "<Other>"
    assert display.html(Other()) == "<pre>&lt;Other&gt;</pre>"


def test_nearest_base_draws() -> None:
    display.register(Base, text=lambda node: "base")
    assert repr(Derived()) == "base"
    display.register(Derived, html=lambda node: "<b>derived</b>")
    assert repr(Derived()) == "base"
    assert display.html(Derived()) == "<b>derived</b>"
    assert display.html(Base()) == "<pre>base</pre>"
    display.register(Derived, text=lambda node: "derived")
    assert (repr(Base()), repr(Derived())) == ("base", "derived")
    assert display.html(Derived()) == "<b>derived</b>"
