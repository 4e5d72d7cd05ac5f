"""`tir.help`: what a word means here, what others call it, and what an error means.

Found by our words, by those of TVM, Halide, Exo, polyhedral compilers, OpenMP and MLIR, by public
names, and by topics: ``help("strip-mine")`` tells about `split`.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from tensorir.schedule.primitive import PRIMITIVES
from tensorir.schedule.schedule import LATER
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentError, ArgumentTypeError
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

__all__ = ["WORDS", "help", "text"]

HEADINGS = ("ours", "meaning", "TVM", "Halide", "Exo", "polyhedral, OpenMP, MLIR")
_SAME = "same"
_NONE = "-"
#: The same word means different things elsewhere: ours, the meaning, and what others say.
WORDS: tuple[tuple[str, ...], ...] = (
    ("split", "one loop to two", "split", "split", "divide_loop", "strip-mine"),
    ("tile", "splits and a reorder", "tile", "tile", "tile_loops", "tiling"),
    ("fuse", "two nested loops to one", "fuse", "fuse", "mult_loops", "collapse, coalesce"),
    ("merge", "two adjacent loops to one", "merge", "compute_with", "fuse", "loop fusion"),
    ("fission", "one loop to two adjacent", "decompose_*", _NONE, "fission", "distribution"),
    ("reorder", "permute nested loops", "reorder", "reorder (inner first)", "reorder_loops",
     "interchange"),
    ("partition", "split the range, same body", "loop_partition", "partition", "cut_loop",
     "index-set splitting, peeling"),
    ("skew, shift, reverse", "affine change of a loop", _NONE, _NONE, "shift_loop",
     "skewing, retiming, reversal"),
    ("bind", "loop to grid or thread index", "bind", "gpu_blocks, gpu_threads", _NONE, "mapping"),
    ("cross_thread", "a reduction across threads", "bind of a reduction", "gpu_lanes", _NONE,
     "warp reduce, block reduce"),
    ("compute_at, compute_inline", "where a stage is computed", _SAME, _SAME, "compute_at",
     "producer-consumer fusion"),
    ("reverse_compute_at", "a stage done where its input is made", _SAME, _NONE, _NONE,
     "epilogue fusion"),
    ("cache_read, cache_write", "copy through a faster memory", _SAME, "in", "stage_mem",
     "packing, promotion"),
    ("set_scope", "which memory an array lives in", _SAME, "store_in", "set_memory",
     "address space"),
    ("transform_layout", "another order of an array", _SAME, "reorder_storage", "rearrange_dim",
     "data layout transformation"),
    ("reuse", "two arrays in one place", _NONE, _NONE, "reuse_buffer", "storage mapping"),
    ("rfactor", "a reduction in partial results", "rfactor", "rfactor", _NONE,
     "reduction privatisation"),
    ("init_at, decompose_reduction", "where sums start at zero", "decompose_reduction", _NONE,
     _NONE, _NONE),
    ("online", "dependent reductions in one pass", _NONE, _NONE, _NONE, "online softmax"),
    ("atomic", "updates that may meet", _NONE, "atomic", _NONE, "omp atomic"),
    ("unroll", "copies of the body, no loop", "unroll", "unroll", "unroll_loop", "full unrolling"),
    ("unroll_and_jam", "blocks of a loop, side by side inside", _NONE, _NONE, _NONE,
     "register tiling"),
    ("vectorize", "a loop in vector lanes", "vectorize", "vectorize", "vectorize", "simd"),
    ("parallel", "a loop on all threads", "parallel", "parallel", "parallelize_loop",
     "parallel for"),
    ("specialize", "a nest for some sizes", _NONE, "specialize", "specialize",
     "multi-versioning"),
    ("tensorize", "a nest becomes an instruction", "tensorize", _NONE, "replace",
     "instruction selection"),
    ("prefetch", "ask now for what comes later", _NONE, "prefetch", _NONE,
     "software prefetching"),
    ("pipeline, double_buffer", "fetch ahead of the loop that uses it", "software_pipeline_stage",
     "ring_buffer", _NONE, "software pipelining"),
)  # fmt: skip

#: Errors and notions, by the word under which messages point here.
TOPICS: dict[str, str] = {
    "illegal-schedule": """
        A step was refused because it would change the result. Each statement runs once for each
        point of its domain; two instances depend on each other where both touch a cell and one of
        them writes it. A schedule must keep the order of every such pair: a flow dependence
        (write, then read), an anti dependence (read, then write), an output dependence (write,
        then write). A loop that is parallel or a vector must carry none of them: two of its
        points would race.

        The message shows one pair that would clash, the witness: the two instances, the cell, and
        the smallest sizes at which it happens; e.witness of the exception holds them. The updates
        of a reduction may be reordered where its combiner is associative and commutative; the
        trace says which steps change rounding that way.

        What is tried under 'try' was applied and accepted before it was printed. s.check(...)
        asks without raising, s.explain(...) tells the same as text.
        """,
    "could-not-prove": """
        Legality is decided exactly, but each question has a budget of integer set operations.
        Where it runs out nothing is assumed, and the step is refused. The knob isl_operations
        raises the budget: tir.knobs.isl_operations = 20_000_000.
        """,
    "dependence": """
        Two instances that touch one cell, at least one of them writing: flow (write, then read),
        anti (read, then write), output (write, then write). The distance vector is the difference
        of their loop counters; a dependence is carried by the first loop at which it is not 0.
        """,
    "stage": """
        A tensor that is computed, with its statements: for a reduction its init, its updates and,
        where it accumulates in a wider type, its finish. s.stages lists them in running order.
        """,
    "footprint": """
        The cells of an array that one iteration of a loop touches. compute_at computes just that,
        cache_read and cache_write copy just that.
        """,
    "trace": """
        The steps that led to a schedule, numbered, each with the line that asked for it: s.trace.
        It becomes Python (to_python) or JSON (to_json, tir.Trace.from_json), and tir.replay makes
        the steps again, each checked as if it were called.
        """,
    "tail": """
        The partial block at the end of a loop that was split by a factor which does not divide
        its extent; split(..., tail=) says how it runs. See tir.help("split").
        """,
    "guard": """
        A condition around a statement: it stands where the loops alone would run instances that
        are not there, usually in the last, partial block of a split that does not divide. Choose
        how such blocks run with split(..., tail="auto" | "cut" | "guard" | "exact").
        """,
    "scope": """
        Where a temporary array lives: "global" (memory, one array), "local" (one for each point
        of the loops around it: registers where it fits, else the stack or a small arena), or, on
        a GPU, "shared" (one for each block of threads).
        """,
    "reassociation": """
        A floating sum has another rounding in another order. Reordering a reduction's own loop,
        rfactor and vector_reduce do that; such a step is allowed where the reducer is associative
        and commutative, and the trace says so.
        """,
    "no-effect": """
        Warning: a step that you asked for changes nothing, such as a reorder to the order that
        there is, or parallel on a loop of one point. It is recorded like any other; the trace
        says so, and tir.silence("no-effect") keeps it quiet.
        """,
    "copy": """
        Warning: an input is not laid out as kernels read it (C order, aligned, native byte
        order), and each call copies over a megabyte. np.ascontiguousarray once is faster; the
        copies of a kernel are counted in its attribute copies.
        """,
    "validate-skipped": """
        Warning: validate=True enumerates the loops of a schedule, which were too many here, and
        the schedule does not apply to smaller sizes. The kernel was built without that check.
        """,
    "serial": """
        Warning: no OpenMP runtime was found, so that parallel loops run in one thread. Install
        libgomp1 with the system's package manager, or the extra: pip install 'tensorir[openmp]'.
        """,
    "cache": """
        Warning: the folder of compiled kernels cannot be used. It must belong to you, and nobody
        else may write to it; tir.knobs.cache_dir chooses another one, tir.knobs.cache_enabled
        switches it off.
        """,
}
_WIDTH = 96
_Columns = tuple[str, ...]


@user_api
def help(name: object = None) -> None:
    """Print what a word, a name of this library, or an error means.

    Parameters
    ----------
    name
        A primitive (``"fuse"``), its name elsewhere (``"strip-mine"``), a public name
        (``"compute"``), a topic (``"illegal-schedule"``), or one of those objects itself. Without
        it, a list of what there is.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Nothing has that name; the message has the nearest that there is.

    Examples
    --------
    >>> help("strip-mine")
    'strip-mine' (polyhedral, OpenMP, MLIR) is split here.
    <BLANKLINE>
    split(axis...
    ...
    """
    sys.stdout.write(text(name) + "\n")


def text(name: object = None) -> str:
    """What `help` prints."""
    if name is None:
        return _overview()
    word = name if isinstance(name, str) else getattr(name, "__name__", None)
    if not isinstance(word, str):
        raise Message(
            f"help: a name is a string, or a function or class of tensorir, not {name!r:.60}",
            caller(),
        ).error(ArgumentTypeError)
    key = word.strip().removeprefix("tir.").removeprefix("tensorir.").removeprefix("s.")
    found = _topic(key) or _ours(key) or _theirs(key)
    if found is None:
        raise Message(
            f"help: nothing is called {word!r:.60}{hint(key, _names())}",
            caller(),
            tries=[("tir.help()", "lists what there is")],
        ).error(ArgumentError)
    return found


def _overview() -> str:
    words = [w for row in WORDS for w in _parts(row[0]) if w not in PRIMITIVES]
    planned = list(dict.fromkeys([*words, *LATER]))
    public = [n for n in _public() if n not in PRIMITIVES]
    parts = [
        ("primitives of a schedule", sorted(PRIMITIVES)),
        ("words for what is not a primitive yet", planned),
        ("topics", list(TOPICS)),
        ("public names", public),
        ("what others say, and what it is here", _foreign()),
    ]
    out = ['tir.help("split"), tir.help("strip-mine"), tir.help("illegal-schedule")']
    for title, names in parts:
        if names:
            out += ["", title, _filled(", ".join(names))]
    return "\n".join(out)


def _foreign() -> list[str]:
    """`strip-mine = split`, where the word is not ours too."""
    found: dict[str, str] = {}
    for row in WORDS:
        for cell in row[2:]:
            for word in _parts(cell):
                if word not in _parts(row[0]):
                    found.setdefault(word, row[0].replace(", ", " or "))
    return [f"{word} = {ours}" for word, ours in found.items()]


def _topic(key: str) -> str | None:
    found = TOPICS.get(key.lower().replace("_", "-").replace(" ", "-"))
    if found is None and key in ("IllegalSchedule", "illegal"):
        found = TOPICS["illegal-schedule"]
    return None if found is None else textwrap.dedent(found).strip("\n").rstrip()


def _ours(key: str) -> str | None:
    rows = [row for row in WORDS if key in _parts(row[0])]
    elsewhere = [(row, heads) for row in WORDS if (heads := _elsewhere(row, key))]
    parts = []
    if key in PRIMITIVES:
        parts.append(_described(key, PRIMITIVES[key]))
    elif key in _public():
        parts.append(_described(key, _public()[key]))
    elif rows:
        parts.append(f"{key}: {rows[0][1]}. This version has no such primitive.")
    elif key in LATER:
        parts.append(f"{key}: this version has no such primitive.")
    else:
        return None
    others = [row for row, _ in elsewhere if key not in _parts(row[0])]
    for row, heads in elsewhere:
        if key not in _parts(row[0]):
            parts.append(f"In {' and '.join(heads)}, {key!r} means our {row[0]}: {row[1]}.")
    if rows or others:
        parts.append(_table([*rows, *others]))
    return "\n\n".join(parts)


def _theirs(key: str) -> str | None:
    found = [(row, heads) for row in WORDS if (heads := _elsewhere(row, key))]
    if not found:
        return None
    parts = [f"{key!r} ({' and '.join(heads)}) is {row[0]} here." for row, heads in found]
    mine = [w for row, _ in found for w in _parts(row[0]) if w in PRIMITIVES]
    parts += [_described(w, PRIMITIVES[w]) for w in mine]
    return "\n\n".join([*parts, _table([row for row, _ in found])])


def _elsewhere(row: _Columns, key: str) -> list[str]:
    """The columns of others in which a word stands."""
    wanted = _plain(key)
    found = []
    for heading, cell in zip(HEADINGS[2:], row[2:], strict=True):
        names = [_plain(w) for w in _parts(cell)]
        words = [_plain(w) for part in _parts(cell) for w in part.split() if w != "loop"]
        starts = [n[:-1] for n in names if n.endswith("*")]
        if wanted in (*names, *words) or any(wanted.startswith(x) for x in starts):
            found.append(heading)
    return found


def _plain(word: str) -> str:
    """`Strip_Mining`, `strip mine` and `strip-mine` are one word."""
    bare = re.sub(r"\s*\(.*\)$", "", word.strip().lower())
    bare = re.sub(r"[-_ ]", "", bare)
    return re.sub(r"ing$", "", bare).removesuffix("e")


def _parts(cell: str) -> list[str]:
    return [w.strip() for w in cell.split(",")] if cell not in (_SAME, _NONE) else []


def _described(name: str, thing: Any) -> str:
    """Signature and docstring, without examples."""
    shown = name + _signature(thing)
    doc = inspect.getdoc(thing) or ""
    body = re.split(r"\n(?:Examples|Notes)\n-+\n", doc)[0].rstrip()
    return f"{shown}\n\n{textwrap.indent(body, '    ')}" if body else shown


def _signature(thing: Any) -> str:
    if not callable(thing):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    empty = inspect.Parameter.empty
    bare = [p.replace(annotation=empty) for p in signature.parameters.values() if p.name != "s"]
    return str(signature.replace(parameters=bare, return_annotation=empty))


def _public() -> dict[str, Any]:
    """The names that `import tensorir` gives."""
    package = sys.modules.get("tensorir")
    names: Iterable[str] = getattr(package, "__all__", ())
    return {n: getattr(package, n) for n in names}


def _names() -> list[str]:
    foreign = [w for row in WORDS for cell in (row[0], *row[2:]) for w in _parts(cell)]
    return list(dict.fromkeys([*PRIMITIVES, *_public(), *TOPICS, *LATER, *foreign]))


def _table(rows: Iterable[_Columns]) -> str:
    lines = [HEADINGS, *rows]
    widths = [max(len(row[k]) for row in lines) for k in range(len(HEADINGS))]
    shown = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in lines]
    return "\n".join([shown[0], "  ".join("-" * w for w in widths), *shown[1:]])


def _filled(words: str) -> str:
    fill: Callable[[str], str] = textwrap.TextWrapper(
        _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    ).fill
    return fill(words)
