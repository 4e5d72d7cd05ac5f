"""Arrays between unreadable pages: a stray access of one byte kills the process at once."""

from __future__ import annotations

import ctypes
import mmap
import weakref

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(array: np.ndarray, *, at_end: bool = True) -> np.ndarray:
    """A copy of `array` that ends (or starts) at an unreadable page, with one on the other side."""
    page = mmap.PAGESIZE
    body = max(1, -(-array.nbytes // page)) * page
    region = mmap.mmap(-1, body + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(region))
    for at in (base, base + page + body):
        if _libc.mprotect(at, page, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    # the end is exact only if the element size divides the page, which it does for all of ours
    offset = page + (body - array.nbytes if at_end else 0)
    out = np.frombuffer(region, dtype=np.uint8, count=array.nbytes, offset=offset)
    view = out.view(array.dtype).reshape(array.shape)
    view[...] = array
    weakref.finalize(out, _libc.mprotect, base, body + 2 * page, 3)
    return view
