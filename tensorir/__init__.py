"""Declare tensor operators, schedule them by hand, and get kernels: proved, fast, inspectable."""

from __future__ import annotations

import importlib

from tensorir.support.errors import *  # noqa: F403

__version__ = "0.1.0"
_WHERE = {}
import ast as _ast, pathlib as _p
for _n in _ast.parse(_p.Path("/tmp/init_full.py").read_text()).body:
    if isinstance(_n, _ast.ImportFrom) and _n.module != "__future__":
        for _a in _n.names:
            _WHERE[_a.asname or _a.name] = _n.module


def __getattr__(name):
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(name)
