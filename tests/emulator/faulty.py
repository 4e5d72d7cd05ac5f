"""Kernels whose PTX is made faulty, and the ways to do so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorir as tir
from schedules.cuda.default import default_schedule
from tensorir import ops
from tensorir.codegen import targets
from tensorir.emulator.ptx import Report, run
from tensorir.runtime.cuda_plan import extents, grid_of
from tests.benchmarks.emulator import registers, square
from tests.benchmarks.figures import product
from tests.emulator import foreign

Array = NDArray[Any]
LIMIT = 2_000_000
"""Instructions of warps, far more than any of these kernels takes."""


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel: its text, how it is run, and what must come out of it."""

    name: str
    text: str
    call: Callable[[str, int, int], tuple[list[Array], list[Report]]]
    wanted: list[Array]

    def right(self, text: str, seed: int, less: int = 0) -> bool:
        """Whether a text gives what it must, with `less` bytes of shared memory than it asks for.

        Raises what the emulator finds.
        """
        found, _ = self.call(text, seed, less)
        return all(
            np.allclose(f, w, rtol=1e-4, atol=1e-4) for f, w in zip(found, self.wanted, strict=True)
        )

    @cached_property
    def runs(self) -> set[int]:
        """The lines of the unmodified text that run."""
        return {c.line for r in self.call(self.text, 0, 0)[1] for c in r.counts}


# kernels that tensorir builds


def _inputs(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def _built(name: str, kernel: Any, inputs: list[Array], wanted: Array) -> Case:
    source = kernel.source
    assert len(source.arguments) == len(inputs) + 1

    def call(text: str, seed: int, less: int) -> tuple[list[Array], list[Report]]:
        arrays = [*(a.copy() for a in inputs), np.full(wanted.shape, np.nan, np.float32)]
        arrays += [np.zeros(extents(a, {}), a.dtype.numpy) for a in source.scratch]
        fresh, reports = set(range(len(inputs), len(arrays))), []
        for launch in kernel.launches:
            unwritten = [p for p, k in enumerate(launch.arrays) if k in fresh]
            fresh -= set(launch.arrays)
            reports.append(run(
                text, launch.name, grid_of(launch, {}), launch.threads,
                [arrays[k] for k in launch.arrays], shared=max(launch.shared_bytes - less, 0),
                seed=seed, unwritten=unwritten, limit=LIMIT,
            ))  # fmt: skip
        return arrays[len(inputs) :], reports

    # what launches pass on must be as it was, too: a softmax is right whatever it subtracts
    passed_on = call(str(kernel.ptx), 0, 0)[0][1:]
    return Case(name, str(kernel.ptx), call, [wanted, *passed_on])


def _scheduled(name: str, s: tir.Schedule, inputs: list[Array], wanted: Array) -> Case:
    return _built(name, tir.build(s, target="emulator:sm_80"), inputs, wanted)


def _product(name: str, s: Callable[[tir.Schedule], tir.Schedule], *sizes: int) -> Case:
    m, n, k = sizes
    a, b = _inputs((m, k), (k, n))
    return _scheduled(f"{name} {m}x{n}x{k}", s(product(m, n, k)), [a, b], a @ b)


def transpose(m: int, n: int) -> Case:
    A = tir.placeholder((m, n), name="A")
    s = tir.schedule(tir.compute((n, m), lambda i, j: A[j, i], name="C"))
    s = s.tile("i", "j", 16, 16, into=("by", "bx", "y", "x")).cache_read(
        "A", "shared", at="bx", name="T"
    )
    s = s.split("y", 4, into=("yo", "ty")).split("T.j", 4, into=("jo", "tj"))
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x").bind("ty", "threadIdx.y")
    s = s.bind("x", "threadIdx.x").bind("tj", "threadIdx.y").bind("T.i", "threadIdx.x")
    (a,) = _inputs((m, n))
    return _scheduled(f"transpose {m}x{n}", s, [a], a.T)


def row_sums(m: int, n: int) -> Case:
    """Partial sums of a row in shared memory, one for each thread."""
    A, k = tir.placeholder((m, n), name="A"), tir.reduce_axis(n, name="k")
    s = tir.schedule(tir.compute((m,), lambda i: tir.sum(A[i, k], axis=k), name="C"))
    s = s.split("k", 64, into=("ko", "ki")).rfactor("ki", into="P", at="i").set_scope("P", "shared")
    s = s.bind("i", "blockIdx.x").bind("P.init.ki", "threadIdx.x").bind("ki", "threadIdx.x")
    (a,) = _inputs((m, n))
    return _scheduled(f"row sums {m}x{n}", s, [a], a.sum(1))


def softmax(m: int, n: int) -> Case:
    """As it is scheduled by default: several launches that pass arrays on."""
    target = targets.target("emulator:sm_80")
    A = tir.placeholder((m, n), name="A")
    kernel = tir.build(default_schedule(tir.schedule(ops.softmax(A)), target), target=target)
    (x,) = _inputs((m, n))
    # the largest of a row is at one of its ends
    x[::2, -1], x[1::2, 0] = 4 + np.arange(0, m, 2), 4 + np.arange(1, m, 2)
    e = np.exp(x - x.max(1, keepdims=True))
    return _built(f"softmax {m}x{n}", kernel, [x], e / e.sum(1, keepdims=True))


def _foreign(kernel: foreign.Kernel) -> Case:
    name, text, inputs, wanted, call = kernel
    extra, shared = call.get("extra", []), call.get("shared", 0)

    def run_it(text: str, seed: int, less: int) -> tuple[list[Array], list[Report]]:
        arrays = [a.copy() for a in inputs] + [np.zeros_like(w) for w in wanted]
        report = run(
            text, grid=call.get("grid", 1), block=call["block"], args=[*arrays, *extra],
            shared=max(shared - less, 0), seed=seed, limit=LIMIT,
        )  # fmt: skip
        return arrays[len(inputs) :], [report]

    return Case(name, text, run_it, wanted)


def cases() -> list[Case]:
    """Every kernel; each is built anew."""
    return [
        _product("matmul", lambda s: square(s, 8), 10, 18, 13),
        _product("tiled matmul", lambda s: registers(s, 16, 32, 8, 2, 4), 18, 36, 13),
        transpose(20, 37), row_sums(3, 150), softmax(6, 70),
        *map(_foreign, foreign.kernels()),
    ]  # fmt: skip


# ways to make a text faulty: each gives lines anew for every place where it can be applied

Lines = list[str]
Way = Callable[[Lines], Iterator[Lines]]
WAYS: dict[str, Way] = {}


def way(name: str) -> Callable[[Way], Way]:
    def add(function: Way) -> Way:
        WAYS[name] = function
        return function

    return add


def _changed(lines: Lines, k: int, *new: str) -> Lines:
    return [*lines[:k], *new, *lines[k + 1 :]]


def _code(lines: Lines, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
    compiled = re.compile(pattern)
    for k, line in enumerate(lines):
        found = compiled.search(line)
        if found:
            yield k, found


def _substituting(name: str, pattern: str, by: str | Callable[[re.Match[str]], str]) -> None:
    """A way that replaces what a pattern finds in one line."""

    @way(name)
    def replace(lines: Lines) -> Iterator[Lines]:
        for k, _ in _code(lines, pattern):
            new = re.sub(pattern, by, lines[k], count=1)
            if new != lines[k]:
                yield _changed(lines, k, new)


_BARRIER = r"\bbar\.sync\s+0;"
_EVERY = "{ .reg .pred %zp; .reg .b32 %zr; mov.u32 %zr, %tid.x; setp.lt.u32 %zp, %zr, 3; "

_substituting("barrier removed", _BARRIER, "")
_substituting("barrier for one warp only", _BARRIER, "bar.warp.sync -1;")
_substituting("barrier under a condition", _BARRIER, _EVERY + "@%zp bar.sync 0; }")
_substituting("threads end before a barrier", _BARRIER, _EVERY + "@%zp ret; bar.sync 0; }")
_substituting("another barrier for some warps", _BARRIER,
              "{ .reg .pred %zp; .reg .b32 %zr; mov.u32 %zr, %warpid; setp.eq.u32 %zp, %zr, 0; "
              "@%zp bra ZA; bar.sync 0; bra ZB; ZA: bar.sync 1; ZB: }")  # fmt: skip


@way("barrier after the access it is for")
def _late(lines: Lines) -> Iterator[Lines]:
    for k, _ in _code(lines, _BARRIER):
        for j in range(k + 1, min(k + 40, len(lines))):
            if re.search(r"\b(bra|bar|ret)\b|^\s*\}", lines[j]):
                break
            if re.search(r"\b(ld|st|ldmatrix)\.\S*shared", lines[j]):
                yield [*lines[:k], *lines[k + 1 : j + 1], lines[k], *lines[j + 1 :]]
                break


def _moved(by: int) -> Callable[[re.Match[str]], str]:
    def add(found: re.Match[str]) -> str:
        base, sign, offset = found["base"], found["sign"] or "+", int(found["offset"] or 0)
        offset = (offset if sign != "-" else -offset) + by
        return f"{found['op']}[{base}{'+' if offset >= 0 else ''}{offset}]"

    return add


_PLACE = r"\[(?P<base>[%\w.$]+)(?P<sign>[+-])?(?P<offset>-?\d+)?\]"
for _name, _op in (
    ("shared store one further", r"(?P<op>\bst\.shared\S*\s+)"),
    ("shared load one further", r"(?P<op>\bld\.shared\S*\s+[^\[]*)"),
    ("global load one further", r"(?P<op>\bld\.global\S*\s+[^\[]*)"),
    ("global store one further", r"(?P<op>\bst\.global\S*\s+)"),
):
    _substituting(_name, _op + _PLACE, _moved(4))
_substituting("global load two bytes off", r"(?P<op>\bld\.global\S*\s+[^\[]*)" + _PLACE, _moved(2))
_substituting("shared load one before", r"(?P<op>\bld\.shared\S*\s+[^\[]*)" + _PLACE, _moved(-4))
_substituting("rows of a matrix moved", r"(?P<op>\bldmatrix\S*\s+[^\[]*)" + _PLACE, _moved(16))


def _guarding(lines: Lines, access: str) -> Iterator[int]:
    """Lines of branches forward over an access to the end of a guarded part."""
    labels = {m[1]: k for k, m in _code(lines, r"^\s*([$\w]+):")}
    for k, found in _code(lines, r"^\s*@!?%\w+\s+bra(?:\.uni)?\s+([$\w]+);"):
        end = labels.get(found[1], -1)
        skipped = lines[k + 1 : end]
        if end > k and len(skipped) < 12 and any(re.search(access, x) for x in skipped):
            yield k


@way("guard of a store dropped")
def _unguarded_store(lines: Lines) -> Iterator[Lines]:
    for k in _guarding(lines, r"\bst\.global"):
        yield _changed(lines, k)
    for k, found in _code(lines, r"@!?%\w+\s+(st\.global\S*|red\.global\S*)\s"):
        yield _changed(lines, k, lines[k].replace(found[0], found[1] + " ", 1))


@way("guard of a load dropped")
def _unguarded_load(lines: Lines) -> Iterator[Lines]:
    for k in _guarding(lines, r"\bld\.global"):
        yield _changed(lines, k)


_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_substituting("condition the other way round", r"\bsetp\.(lt|ge|gt|le|eq|ne)\.",
              lambda m: f"setp.{_OPPOSITE[m[1]]}.")  # fmt: skip


@way("loop one round short or long")
def _rounds(lines: Lines) -> Iterator[Lines]:
    labels = {m[1]: k for k, m in _code(lines, r"^\s*([$\w]+):")}
    for k, found in _code(lines, r"@!?(%\w+)\s+bra(?:\.uni)?\s+([$\w]+);"):
        if labels.get(found[2], len(lines)) > k:
            continue
        test = rf"(\bsetp\.\S+\s+{re.escape(found[1])}, (%\w+), )(-?\d+);"
        back = [j for j, _ in _code(lines[:k], test)]
        if not back:
            continue
        whole = re.search(test, lines[back[-1]])
        assert whole is not None
        adds = [m for _, m in _code(lines, rf"add\.s\d\d\s+{whole[2]}, {whole[2]}, (-?\d+);")]
        step = int(adds[0][1]) if adds else 0
        for change in (step, -step) if step else ():
            yield _changed(lines, back[-1], f"{whole[1]}{int(whole[3]) + change};")


_substituting("operands of a fused multiply-add swapped",
              r"(fma\.rn\.f32\s+%\w+, )(%\w+), (%\w+), (%\w+);",
              lambda m: f"{m[1]}{m[4]}, {m[3]}, {m[2]};")  # fmt: skip
_substituting("operands of a difference swapped", r"(\bsub\.(?:rn\.)?f32\s+%\w+, )(%\w+), (%\w+);",
              lambda m: f"{m[1]}{m[3]}, {m[2]};")  # fmt: skip
_substituting("reciprocal forgotten", r"\brcp\.rn\.f32(\s)", r"mov.b32\1")
_substituting("sum forgotten", r"fma\.rn\.f32(\s+%\w+, %\w+, %\w+), %\w+;", r"mul.rn.f32\1;")


def _along_y(lines: Lines) -> set[int]:
    """Lines that scale the block index along y, which is always 0 in many grids."""
    own: set[str] = set()
    found = set()
    for k, line in enumerate(lines):
        if ".entry" in line:
            own = set()
        made = re.search(r"\b(?:mov|shl|mul|cvt)\.\S+\s+(%\w+), (%[\w.]+)", line)
        if made and (made[2] == "%ctaid.y" or made[2] in own):
            own.add(made[1])
            found.add(k)
    return found


@way("one shift less")
def _shifts(lines: Lines) -> Iterator[Lines]:
    text, idle = "\n".join(lines), _along_y(lines)
    for k, found in _code(lines, r"(\bshl\.b(?:32|64)\s+(%\w+), (%\w+), )(\d+);"):
        # a guard may let pass what does no harm
        guards = re.search(rf"setp\.\S+\s[^;]*{re.escape(found[2])}\b", text)
        if not guards and k not in idle:
            yield _changed(lines, k, f"{found[1]}{int(found[4]) - 1};")


@way("smaller stride")
def _strides(lines: Lines) -> Iterator[Lines]:
    idle = _along_y(lines)
    for k, found in _code(lines, r"(\bmul\.wide\.[us]32\s+%\w+, %\w+, )(\d+);"):
        if k not in idle:
            yield _changed(lines, k, f"{found[1]}{int(found[2]) // 2};")


_substituting("other thread index", r"%tid\.x", "%tid.y")
_substituting("other block index", r"%ctaid\.x", "%ctaid.y")
_substituting("maximum for minimum", r"\bmax\.(f32|s32|s64)", r"min.\1")
_substituting("half of a word loaded", r"\b(ld\.(?:shared|global)\S*\.)b32(\s+%)", r"\1b16\2")


@way("running sum not begun at zero")
def _not_at_zero(lines: Lines) -> Iterator[Lines]:
    for k, found in _code(lines, r"\bmov\.[bf]32\s+(%\w+), 0f00000000;"):
        own = re.escape(found[1])
        if any(_code(lines, rf"add\.(rn\.)?f32\s+{own}, {own},|fma\.rn\.f32.*, {own};")):
            yield _changed(lines, k, lines[k].replace("0f00000000", "0f3F800000"))


@way("arguments exchanged")
def _exchanged(lines: Lines) -> Iterator[Lines]:
    found = [(k, m) for k, m in _code(lines, r"ld\.param\.[ub]64\s+%\w+, \[([\w$]+)\]")]
    for (k, first), (j, second) in zip(found, found[1:], strict=False):
        if first[1][:-1] == second[1][:-1]:
            new = _changed(lines, k, lines[k].replace(first[1], second[1]))
            yield _changed(new, j, lines[j].replace(second[1], first[1]))


_substituting("shared variable one element short", r"(\.shared \.align \d+ \.b8 \w+\[)(\d+)\]",
              lambda m: f"{m[1]}{int(m[2]) - 4}]")  # fmt: skip

_substituting("wait for copies dropped", r"cp\.async\.wait_(group\s+\d+|all);", "")
_substituting("one group more left in flight", r"cp\.async\.wait_group\s+(\d+);",
              lambda m: f"cp.async.wait_group {int(m[1]) + 1};")  # fmt: skip
_substituting("copies not committed", r"cp\.async\.commit_group;", "")
_substituting(
    "shorter copy",
    r"(cp\.async\.)c[ag](\.shared\.global \[[^\]]+\], \[[^\]]+\], )16",
    r"\1ca\g<2>8",
)
_substituting(
    "zeros beyond the edge not filled in",
    r"(cp\.async\.\S+ \[[^\]]+\], \[[^\]]+\], \d+), %\w+;",
    r"\1;",
)


@way("wait after the barrier")
def _swapped_wait(lines: Lines) -> Iterator[Lines]:
    for k, _ in _code(lines, r"cp\.async\.wait_group"):
        if re.search(_BARRIER, lines[k + 1]):
            yield [*lines[:k], lines[k + 1], lines[k], *lines[k + 2 :]]


_FRAGMENTS = r"(mma\.sync\S+ \{[^}]*\}, )\{([^}]*)\}, \{([^}]*)\}, \{([^}]*)\};"


def _mma(change: Callable[[list[list[str]]], None]) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        parts = [found[k].split(", ") for k in (2, 3, 4)]
        change(parts)
        return found[1] + ", ".join("{" + ", ".join(p) + "}" for p in parts) + ";"

    return replace


def _swap(which: int, i: int, j: int) -> Callable[[list[list[str]]], None]:
    def change(parts: list[list[str]]) -> None:
        own = parts[which]
        own[i], own[j] = own[j], own[i]

    return change


_substituting("rows of a fragment exchanged", _FRAGMENTS, _mma(_swap(0, 0, 1)))
_substituting("columns of a fragment exchanged", _FRAGMENTS, _mma(_swap(0, 1, 2)))
_substituting("halves of the second fragment exchanged", _FRAGMENTS, _mma(_swap(1, 0, 1)))
_substituting("accumulators exchanged", _FRAGMENTS, _mma(_swap(2, 1, 2)))
_substituting("matrix not transposed", r"\.trans\b", "")
_substituting("mma in a part of the warp", r"^(\s*)(mma\.sync[^;]*;)",
              r"\1{ .reg .pred %zp; .reg .b32 %zr; mov.u32 %zr, %laneid; setp.lt.u32 %zp, %zr, 31; "
              r"@%zp \2 }")  # fmt: skip

_substituting(
    "shuffle without all its members", r"(shfl\.sync\S+ [^;]*, )(?:0xffffffff|-1);", r"\g<1>65535;"
)
_substituting("shuffle over another distance",
              r"(shfl\.sync\.(?:bfly|down)\.b32\s+%\w+, %\w+, )(\d+),",
              lambda m: f"{m[1]}{int(m[2]) * 2 if int(m[2]) < 16 else 3},")  # fmt: skip
_substituting("shuffle in a part of the warp", r"^(\s*)(shfl\.sync[^;]*;)",
              r"\1{ .reg .pred %zp; .reg .b32 %zr; mov.u32 %zr, %laneid; setp.lt.u32 %zp, %zr, 9; "
              r"@%zp \2 }")  # fmt: skip
_substituting("atomic update torn apart", r"\bred\.global\.add\.f32\s+\[(%\w+)\], (%\w+);",
              r"{ .reg .b32 %zr; ld.global.b32 %zr, [\1]; add.rn.f32 %zr, %zr, \2; "
              r"st.global.b32 [\1], %zr; }")  # fmt: skip
