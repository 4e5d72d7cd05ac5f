"""One function being written: instructions, where they stand, and integer arithmetic on indices.

Every instruction without side effects is numbered by its text and stands at the entry of the
outermost loop in which its operands are known. That is hoisting and the removal of common
subexpressions by construction, without an analysis. What is loaded, and what depends on it,
stays in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tensorir.ir.affine import Atom, Conj, FloorAtom, Lin
from tensorir.ir.expr import Axis, Var
from tensorir.support.errors import internal

if TYPE_CHECKING:
    from tensorir.codegen.address import Flat, Home
    from tensorir.codegen.lanes import Fold
    from tensorir.codegen.module import Module
    from tensorir.codegen.stores import Part, Tail
    from tensorir.ir.statement import Array, May, Statement
    from tensorir.ir.stmt import Storage


class Lane(NamedTuple):
    """The value of the axis of the vector loop: `base` in lane 0, one more in each next one."""

    base: int


# an integer known now, or the name of one known when the code runs
Int: TypeAlias = int | str
# the text of a value, and whether it holds one element for each lane
Val: TypeAlias = tuple[str, bool]
Lines: TypeAlias = "list[str | Lines]"

PLACE = 1 << 30


class Level:
    """The body of a loop (or function): what is computed once on entry."""

    __slots__ = ("entry", "memo")

    def __init__(self) -> None:
        self.entry: Lines = []
        self.memo: dict[object, str] = {}


class Device(NamedTuple):
    """What a GPU knows of the axes that are bound to its indices.

    `values` are the numbers of this thread or block, `extents` of how many threads, `whole` the
    axes whose loop has a point for every block.
    """

    values: dict[Axis, Int]
    extents: dict[Axis, int]
    whole: frozenset[Axis]


class Emitter:
    """A function in the making.

    `env` gives every axis and size its value now: an int in an unrolled loop, a `Lane` in the
    vector loop, else a name. `epoch` changes whenever a name in `env` does.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.target = module.target
        self.serial = 0
        self.depth: dict[object, int] = {}
        self.levels = [Level()]
        self.out: Lines = [self.levels[0].entry]
        self.allocas: list[str] = []
        self.label = "entry"
        self.env: dict[Axis | Var, int | str | Lane] = {}
        # the first and the last value of axes of serial loops between constants
        self.limits: dict[Axis | Var, tuple[int, int]] = {}
        self.epoch = 0
        self.lane: Axis | None = None
        self.width = 0
        self.block: dict[object, str] = {}
        # values known to be in memory, by array, then by address and kind
        self.known: dict[object, dict[object, Val]] = {}
        # masks that are constant, and their lanes as bits
        self.lanes_on: dict[str, int] = {}
        # strided vector stores that wait for their neighbours: by (pointer, stride, memory, lanes)
        self.pending: dict[tuple[str, Int, object, int], dict[int, Part]] | None = None
        # the conditions of the row of a partial tile that is being written
        self.tail: Tail | None = None
        self.pending_homes: dict[object, Home] = {}
        # the statement that is being written, where it never writes a cell twice, and that of the
        # stores that wait, by memory
        self.writer: Statement | None = None
        self.pending_writers: dict[object, Statement | None] = {}
        self.homes: dict[Array, Home] = {}
        # buffers meant for registers that must lie in memory all the same
        self.demoted: dict[Array, Storage] = {}
        self.flats: dict[tuple[int, int], Flat] = {}
        self.registers: dict[tuple[Array, int], str] = {}
        self.outlined = False
        # the numbers of threads and blocks, on a GPU
        self.device: Device | None = None
        # how many conditions around depend on the lane of a warp, so that some may not be there
        self.apart = 0
        # loops that were to be part of an instruction, and are not written out without it
        self.rolled: dict[Axis, None] = {}
        # indices that are computed and known to lie inside, where the code now is
        self.reached_mays: frozenset[May] = frozenset()
        # what every name is made of that has no side effects: an operation and its operands
        self.made: dict[str, tuple[str, *tuple[Int, ...]]] = {}
        # arrays whose stores stream in the arm being written; None where that is not decided
        self.streaming: tuple[Array, ...] | None = None
        # rows begin at multiples of so many bytes where stores stream
        self.unit = 1
        self.streamed = False
        # vectors that are to be combined into one cell at the end of their loop; None: at once
        self.folds: list[Fold] | None = None
        self.dummy_cell: str | None = None
        # the condition under which code is being written, and the label where it ends
        self.guarded: tuple[str, str] | None = None
        self.status = "%status"
        self.info = "%info"
        self.fails = False

    # -- writing

    def fresh(self, hint: str = "t") -> str:
        self.serial += 1
        return f"%{hint}{self.serial}"

    def emit(self, text: str) -> None:
        """An instruction without a result."""
        self.out.append("  " + text)

    def start(self, label: str) -> None:
        """A new basic block; what only the last one knew is forgotten."""
        self.out.append(label + ":")
        self.label = label
        self.block.clear()
        self.known.clear()

    def now(self, text: str, hint: str = "v") -> str:
        """An instruction that stands here: a load, a call, a phi."""
        self.serial += 1
        name = f"%{hint}{self.serial}"
        self.out.append(f"  {name} = {text}")
        self.depth[name] = PLACE
        return name

    def op(self, form: str, *args: Int, hint: str = "t") -> str:
        """An instruction without side effects, where its operands are first all known."""
        where = 0
        depth = self.depth
        for a in args:
            d = depth.get(a, 0)
            if d > where:
                where = d
        level = self.levels[where] if where < PLACE else None
        memo = self.block if level is None else level.memo
        key = (form, *args)
        found = memo.get(key)
        if found is not None:
            return found
        self.serial += 1
        name = f"%{hint}{self.serial}"
        memo[key] = name
        self.made[name] = (form, *args)
        depth[name] = where
        line = f"  {name} = {form.format(*args)}"
        (self.out if level is None else level.entry).append(line)
        return name

    def guard(self, condition: str) -> None:
        """What follows happens only where `condition` holds, until `unguard`."""
        self.serial += 1
        self.guarded = condition, f"end{self.serial}"
        self.emit(f"br i1 {condition}, label %then{self.serial}, label %end{self.serial}")
        self.start(f"then{self.serial}")

    def unguard(self) -> None:
        """End what `guard` began, if anything."""
        if self.guarded is not None:
            _, end = self.guarded
            self.guarded = None
            self.emit(f"br label %{end}")
            self.start(end)

    def alloca(self, ty: str, hint: str, align: int = 64, count: int | None = None) -> str:
        name = self.fresh(hint)
        held = ty if count is None else f"[{count} x {ty}]"
        self.allocas.append(f"  {name} = alloca {held}, align {align}")
        return name

    def dummy(self) -> str:
        """A zeroed cell that is read where a guarded load must not happen."""
        if self.dummy_cell is None:
            if self.device is not None:  # of the widest access
                name = self.dummy_cell = self.alloca("i128", "zero", 16)
                self.allocas.append(f"  store i128 0, ptr {name}, align 16")
                return name
            name = self.dummy_cell = self.alloca("i64", "zero", 8)
            self.allocas.append(f"  store i64 0, ptr {name}, align 8")
        return self.dummy_cell

    def forget(self, key: object) -> None:
        """An array was written: what was read from it may have changed."""
        if key in self.known:
            del self.known[key]

    # -- integers

    def add(self, a: Int, b: Int) -> Int:
        if isinstance(a, int):
            if isinstance(b, int):
                return a + b
            a, b = b, a
        if b == 0:
            return a
        if isinstance(b, str) and a > b:
            a, b = b, a
        return self.op("add i64 {0}, {1}", a, b)

    def mul(self, a: Int, b: Int) -> Int:
        if isinstance(a, int):
            if isinstance(b, int):
                return a * b
            a, b = b, a
        if b == 0:
            return 0
        if b == 1:
            return a
        return self.op("mul i64 {0}, {1}", a, b)

    def sub(self, a: Int, b: Int) -> Int:
        return self.add(a, self.mul(b, -1))

    def floor_div(self, a: Int, n: int) -> Int:
        """floor(a / n), n > 0."""
        if n == 1:
            return a
        if isinstance(a, int):
            return a // n
        if n & (n - 1) == 0:
            return self.op("ashr i64 {0}, {1}", a, n.bit_length() - 1)
        quotient = self.op("sdiv i64 {0}, {1}", a, n)
        rest = self.op("srem i64 {0}, {1}", a, n)
        return self.add(quotient, self.op("ashr i64 {0}, 63", rest))

    def ceil_div(self, a: Int, n: int) -> Int:
        return self.floor_div(self.add(a, n - 1) if n > 1 else a, n)

    def least(self, a: Int, b: Int) -> Int:
        return self._pick("smin", a, b)

    def greatest(self, a: Int, b: Int) -> Int:
        return self._pick("smax", a, b)

    def _pick(self, which: str, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b) if which == "smin" else max(a, b)
        if a == b:
            return a
        self.module.declare(f"llvm.{which}.i64", "i64", "i64, i64")
        return self.op(f"call i64 @llvm.{which}.i64(i64 {{0}}, i64 {{1}})", a, b)

    # -- affine expressions

    def lin(self, e: Lin) -> Int:
        """The value of `e`, in lane 0 where it depends on the lanes."""
        total = e.const
        names: list[tuple[int, str, int]] = []
        env = self.env
        for a, v in e.terms.items():
            x: int | str | Lane
            if isinstance(a, tuple):
                x = self._floor(a)
            else:
                x = env[a]
            if isinstance(x, int):
                total += v * x
            elif isinstance(x, str):
                names.append((self.depth.get(x, 0), x, v))
            else:
                total += v * x.base
        if not names:
            return total
        # outer ones first: partial sums then stand in outer loops
        if len(names) > 1:
            names.sort(key=_by_depth)
        result: Int = 0
        for _, x, v in names:
            result = self.add(result, self.mul(x, v))
        return self.add(result, total)

    def reach(self, e: Lin) -> tuple[int, int] | None:
        """Between which constants `e` lies in lane 0, the loops around being as they are."""
        low = high = e.const
        for a, v in e.terms.items():
            if isinstance(a, tuple):
                inner = self.reach(a[1])
                if inner is None:
                    return None
                first, last = inner[0] // a[2], inner[1] // a[2]
                if a[0] == "%":
                    whole = first != last
                    first, last = (0, a[2] - 1) if whole else (inner[0] % a[2], inner[1] % a[2])
            else:
                x = self.env[a]
                if isinstance(x, str):
                    known = self.limits.get(a)
                    if known is None:
                        return None
                    first, last = known
                else:
                    first = last = x if isinstance(x, int) else x.base
            low += min(v * first, v * last)
            high += max(v * first, v * last)
        return low, high

    def _floor(self, a: FloorAtom) -> Int:
        inner = self.lin(a[1])
        quotient = self.floor_div(inner, a[2])
        return quotient if a[0] == "//" else self.sub(inner, self.mul(quotient, a[2]))

    def along_lanes(self, e: Lin) -> int | None:
        """How much `e` grows from one lane to the next; None if not by a constant."""
        lane = self.lane
        if lane is None:
            return 0
        total = e.terms.get(lane, 0)
        for a, v in e.terms.items():
            if isinstance(a, tuple) and a[1].involves(lane):
                step = self._floor_along_lanes(a)
                if step is None:
                    return None
                total += v * step
        return total

    def _floor_along_lanes(self, a: FloorAtom) -> int | None:
        """As `along_lanes`, of a floor: constant where no lane crosses a multiple."""
        op, inner, n = a
        step = self.along_lanes(inner)
        if step is None:
            return None
        if step % n == 0:
            return step // n if op == "//" else 0
        first = self.lin(inner)
        if not isinstance(first, int):
            return None
        last = first + step * (self.width - 1)
        if first // n != last // n:
            return None
        return 0 if op == "//" else step

    def lanes_apart(self, conditions: Iterable[Lin]) -> bool:
        """Whether some of these may differ from one lane of a warp to the next."""
        if self.device is None:
            return False
        lanes = {a for a in self.device.extents if a.name == "threadIdx.x"}
        return any(a in lanes for e in conditions for a in e.atoms())

    def lanes_of(self, e: Lin) -> str:
        """The value of `e` in each lane, a vector of i64."""
        step = self.along_lanes(e)
        if step is not None:
            return self.ramp(self.lin(e), step)
        ty = f"<{self.width} x i64>"
        flat = Lin({a: v for a, v in e.terms.items() if not self._crosses(a)}, e.const)
        result = self.ramp(self.lin(flat), self.along_lanes(flat) or 0)
        for a, v in e.terms.items():
            if isinstance(a, tuple) and self._crosses(a):
                x = self._floor_lanes(a)
                if v != 1:
                    x = self.op(f"mul {ty} {{0}}, splat (i64 {{1}})", x, v)
                result = self.op(f"add {ty} {{0}}, {{1}}", result, x)
        return result

    def _crosses(self, a: Atom) -> bool:
        return isinstance(a, tuple) and self._floor_along_lanes(a) is None

    def _floor_lanes(self, a: FloorAtom) -> str:
        op, inner, n = a
        ty = f"<{self.width} x i64>"
        x = self.lanes_of(inner)
        if n & (n - 1) == 0:
            if op == "%":
                return self.op(f"and {ty} {{0}}, splat (i64 {{1}})", x, n - 1)
            return self.op(f"ashr {ty} {{0}}, splat (i64 {{1}})", x, n.bit_length() - 1)
        quotient = self.op(f"sdiv {ty} {{0}}, splat (i64 {{1}})", x, n)
        rest = self.op(f"srem {ty} {{0}}, splat (i64 {{1}})", x, n)
        below = self.op(f"ashr {ty} {{0}}, splat (i64 63)", rest)
        if op == "//":
            return self.op(f"add {ty} {{0}}, {{1}}", quotient, below)
        lift = self.op(f"and {ty} {{0}}, splat (i64 {{1}})", below, n)
        return self.op(f"add {ty} {{0}}, {{1}}", rest, lift)

    def ramp(self, first: Int, step: Int) -> str:
        """`first + step * lane` as a vector of i64."""
        ty = f"<{self.width} x i64>"
        if isinstance(step, int) and isinstance(first, int):
            if step == 0:
                return f"splat (i64 {first})"
            return iota("i64", self.width, first, step)
        if step == 0:
            return self.spread(first, "i64")
        if isinstance(step, int):
            steps = iota("i64", self.width, 0, step)
        else:
            base = iota("i64", self.width)
            steps = self.op(f"mul {ty} {{0}}, {{1}}", self.spread(step, "i64"), base)
        return self.op(f"add {ty} {{0}}, {{1}}", self.spread(first, "i64"), steps)

    def spread(self, x: Int, ty: str, width: int | None = None) -> str:
        """A scalar in every lane."""
        w = self.width if width is None else width
        if not isinstance(x, str) or x[0] != "%":
            return f"splat ({ty} {x})"
        one = self.op(f"insertelement <{w} x {ty}> poison, {ty} {{0}}, i64 0", x)
        return self.op(
            f"shufflevector <{w} x {ty}> {{0}}, <{w} x {ty}> poison, <{w} x i32> zeroinitializer",
            one,
            hint="b",
        )

    # -- conditions

    def both(self, a: str | None, b: str | None, width: int = 0) -> str | None:
        """Both conditions; None stands for true."""
        if a is None or b is None or a == b:
            return b if a is None else a
        ty = f"<{width} x i1>" if width else "i1"
        together = self.op(f"and {ty} {{0}}, {{1}}", a, b)
        if a in self.lanes_on and b in self.lanes_on:
            self.lanes_on[together] = self.lanes_on[a] & self.lanes_on[b]
        return together

    def holds(self, e: Lin) -> str | None:
        """`e >= 0` in lane 0: None if it always holds."""
        between = self.reach(e)
        if between is not None and (between[0] >= 0 or between[1] < 0):
            return None if between[0] >= 0 else "false"
        x = self.lin(e)
        if isinstance(x, int):
            return None if x >= 0 else "false"
        return self.op("icmp sge i64 {0}, 0", x)

    def all_hold(self, facts: Conj) -> str | None:
        """Every fact of a conjunction that no lane enters: None if they always do, or "false"."""
        condition: str | None = None
        for kind, e in facts:
            if kind == "ge":
                fact = self.holds(e)
            else:
                x = self.lin(e)
                zero = None if x == 0 else "false"
                fact = zero if isinstance(x, int) else self.op("icmp eq i64 {0}, 0", x)
            if fact == "false":
                return fact
            condition = self.both(condition, fact)
        return condition

    def conditions(self, facts: Iterable[Lin]) -> tuple[str | None, str | None]:
        """Every `e >= 0` of `facts`: what all lanes share, and a mask for the rest."""
        scalar: str | None = None
        mask: str | None = None
        end: int | str | None = None
        for e in facts:
            step = self.along_lanes(e)
            if step == 0:
                scalar = self.both(scalar, self.holds(e))
            elif step is None:
                mask = self.both(mask, self._lane_mask(e), self.width)
            elif self._in_every_lane(e, step):
                continue
            elif step < 0:  # lanes 0 .. floor(first / -step)
                # One number for all: where the second of two registers is masked off by a constant
                # and what is not, LLVM 22.1 reads it nevertheless, without a mask.
                own = self.add(self.floor_div(self.lin(e), -step), 1)
                end = own if end is None else self.least(end, own)
            else:  # lanes ceil(-first / step) ..
                first = self.mul(self.floor_div(self.lin(e), step), -1)
                mask = self.both(mask, self._lanes_from("uge", first), self.width)
        if end is not None:
            mask = self.both(mask, self._lanes_from("ult", end), self.width)
        return scalar, mask

    def _in_every_lane(self, e: Lin, step: int) -> bool:
        """Whether the loops around tell that `e >= 0` in all lanes."""
        between = self.reach(e)
        return between is not None and between[0] + min(step * (self.width - 1), 0) >= 0

    def reached(self, first: Int, step: int) -> str | None:
        """Lanes in which `first + step * lane >= 0`, for a step that is not 0."""
        if step < 0:
            return self._lanes_from("ult", self.add(self.floor_div(first, -step), 1))
        return self._lanes_from("uge", self.mul(self.floor_div(first, step), -1))

    def _lane_mask(self, e: Lin) -> str:
        """Lanes in which `e >= 0`."""
        return self.op(f"icmp sge <{self.width} x i64> {{0}}, zeroinitializer", self.lanes_of(e))

    def _lanes_from(self, test: str, count: int | str) -> str | None:
        """The lanes before (`ult`) or from (`uge`) a number of them; None where that is all."""
        w = self.width
        count = self.greatest(self.least(count, w), 0)
        if isinstance(count, int) and count == (w if test == "ult" else 0):
            return None
        bits = 32 if w <= 16 else 16 if w <= 32 else 8 if w <= 64 else 16
        ty = f"i{bits}"
        short = self.op(f"trunc i64 {{0}} to {ty}", count) if isinstance(count, str) else count
        ramp = iota(ty, w)
        mask = self.op(f"icmp {test} <{w} x {ty}> {ramp}, {{0}}", self.spread(short, ty), hint="m")
        if isinstance(count, int):
            before = (1 << count) - 1
            self.lanes_on[mask] = before if test == "ult" else (1 << w) - 1 - before
        return mask

    def mask_of(self, scalar: str | None, mask: str | None) -> str | None:
        """One mask for a condition that all lanes share and one for each lane."""
        if scalar is None:
            return mask
        return self.both(self.spread(scalar, "i1"), mask, self.width)

    def any_lane(self, mask: str) -> str:
        bits = self.op(f"bitcast <{self.width} x i1> {{0}} to i{self.width}", mask)
        return self.op(f"icmp ne i{self.width} {{0}}, 0", bits)

    def invert(self, mask: str, width: int) -> str:
        if width:
            return self.op(f"xor <{width} x i1> {{0}}, splat (i1 true)", mask)
        return self.op("xor i1 {0}, true", mask)

    # -- checks that fail when the code runs

    def fail(self, status: int, *values: str) -> None:
        """Record a failed check, here; the code goes on and its result is thrown away."""
        self.fails = True
        name = f"{self.module.name}.fail"
        if name not in self.module.globals:
            text = _FAIL.format(name=name)
            if self.device is not None:
                for old, new in _ALONE:
                    text = text.replace(old, new)
            self.module.globals[name] = text
        given = (*values, "0", "0", "0", "0")[:4]
        numbers = ", ".join(f"i64 {v}" for v in given)
        self.emit(f"call void @{name}(ptr {self.status}, ptr {self.info}, i32 {status}, {numbers})")

    def impossible(self, what: str) -> Exception:
        return internal(f"cannot generate code: {what}", state=self.module.lowered_text())


def _by_depth(x: tuple[int, str, int]) -> int:
    return x[0]


def iota(ty: str, width: int, first: int = 0, step: int = 1) -> str:
    """`<i32 0, i32 1, ...>`."""
    return "<" + ", ".join(f"{ty} {first + step * k}" for k in range(width)) + ">"


# the first failure wins, in whichever thread
_FAIL = """\
define internal void @{name}(ptr %status, ptr %info, i32 %code, i64 %a, i64 %b, i64 %c, i64 %d) \
cold noinline #0 {{
entry:
  %pair = cmpxchg ptr %status, i32 0, i32 %code acq_rel monotonic
  %first = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %first, label %tell, label %done
tell:
  store i64 %a, ptr %info, align 8
  %p1 = getelementptr i64, ptr %info, i64 1
  store i64 %b, ptr %p1, align 8
  %p2 = getelementptr i64, ptr %info, i64 2
  store i64 %c, ptr %p2, align 8
  %p3 = getelementptr i64, ptr %info, i64 3
  store i64 %d, ptr %p3, align 8
  br label %done
done:
  ret void
}}"""

# each thread of a GPU has a status of its own
_ALONE = (
    ("cold noinline", "alwaysinline"),
    (
        "%pair = cmpxchg ptr %status, i32 0, i32 %code acq_rel monotonic",
        "%old = load i32, ptr %status",
    ),
    ("%first = extractvalue { i32, i1 } %pair, 1", "%first = icmp eq i32 %old, 0"),
    ("tell:\n", "tell:\n  store i32 %code, ptr %status\n"),
)
