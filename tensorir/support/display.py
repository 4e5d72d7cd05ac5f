"""Who draws a node: printers and viewers register here, nodes ask here.

A node knows nothing of how it is shown. `tensorir.ir.printer` registers texts, `tensorir.inspect`
registers HTML, each for a class; a subclass inherits the renderer of its nearest base.

Examples
--------
>>> class Node: ...
>>> text(Node())
'<Node>'
>>> register(Node, text=lambda node: "a node")
>>> text(Node()), html(Node())
('a node', '<pre>a node</pre>')
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

__all__ = ["Text", "html", "register", "text"]

Renderer = Callable[[Any], str]


class Text(str):
    """Text that an interpreter shows as it stands, and not in quotes.

    Examples
    --------
    >>> Text("for i in 0..4\\n  B[i] = 0.0")
    for i in 0..4
      B[i] = 0.0
    """

    def __repr__(self) -> str:
        return str(self)


_texts: dict[type, Renderer] = {}
_htmls: dict[type, Renderer] = {}


def register(cls: type, *, text: Renderer | None = None, html: Renderer | None = None) -> None:
    """Make the given functions the renderers of a class and its subclasses.

    Parameters
    ----------
    cls : type
        The class of the nodes.
    text, html : callable or None
        Takes a node, returns its text, or its HTML fragment (escaped by the renderer itself).
        None leaves what is registered.
    """
    if text is not None:
        _texts[cls] = text
    if html is not None:
        _htmls[cls] = html


def text(node: object) -> str:
    """Return the text of a node: for ``__repr__`` and ``__str__``."""
    render = _nearest(_texts, type(node))
    return render(node) if render is not None else f"<{type(node).__name__}>"


def html(node: object) -> str:
    """Return the HTML of a node: for ``_repr_html_``. Falls back to its escaped text."""
    render = _nearest(_htmls, type(node))
    return render(node) if render is not None else f"<pre>{escape(text(node))}</pre>"


def _nearest(renderers: dict[type, Renderer], cls: type) -> Renderer | None:
    for base in cls.__mro__:
        if base in renderers:
            return renderers[base]
    return None
