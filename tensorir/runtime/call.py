"""The fast call: a wrapper in LLVM text that checks plain numpy arrays and calls the kernel.

`wrapper_text` writes `ptr @tir_call(ptr self, ptr args, i64 nargsf, ptr kwnames)`, which has
CPython's vectorcall signature. It reads the fields of arrays directly, which costs about a
nanosecond a field, and does the whole call only if everything is as it should be: exact ndarray
type, dtype, rank, shape, C order, alignment, outputs writable and apart from all else. In any
other case it calls `slow(self, *args, **kwargs)` in Python, which converts or raises. So meaning
lives in Python and speed in machine code.

Everything it refers to is an imported symbol: the text depends on the signature alone, and its
object can be kept on disk and used by every kernel of that signature. The address of the kernel
is read from the `Kernel` object, at `layout.FUNCTION`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from tensorir.codegen.source import Argument, KernelSource
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.runtime import layout

__all__ = ["SYMBOL", "slow_text", "solvable", "variables", "wrapper_text"]

SYMBOL = "tir_call"
# A call that takes longer than this, in nanoseconds, lets other Python threads run. The estimate
# takes 8 operations and 16 bytes a nanosecond.
_RELEASE_ABOVE = 2000.0
_OPERATIONS_PER_NS, _BYTES_PER_NS = 8.0, 16.0


class _Writer:
    """Lines of one function: values get numbers, checks branch to %slow."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self.counter = 0

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def value(self, text: str) -> str:
        self.counter += 1
        name = f"%v{self.counter}"
        self.emit(f"{name} = {text}")
        return name

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def load(self, kind: str, base: str, offset: int) -> str:
        where = self.value(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base
        return self.value(f"load {kind}, ptr {where}, align {4 if kind == 'i32' else 8}")

    def item(self, base: str, index: int) -> str:
        return self.load("ptr", base, 8 * index)

    def both(self, conditions: Iterable[str]) -> str:
        """The conjunction of some i1 values."""
        result = "true"
        for condition in conditions:
            result = condition if result == "true" else self.value(f"and i1 {result}, {condition}")
        return result

    def check(self, *conditions: str, otherwise: str = "slow") -> None:
        condition = self.both(conditions)
        if condition == "true":
            return
        next_ = self.fresh("ok")
        self.emit(f"br i1 {condition}, label %{next_}, label %{otherwise}")
        self.label(next_)

    def go(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def equal(self, kind: str, a: str, b: str | int) -> str:
        return self.value(f"icmp eq {kind} {a}, {b}")


class _Array:
    """What the wrapper knows of one argument: its object, data, and dimensions as i64 values."""

    def __init__(self, argument: Argument) -> None:
        self.argument = argument
        self.object = ""
        self.data = ""
        self.dims: list[str] = []


class _Wrapper:
    def __init__(self, source: KernelSource | None) -> None:
        self.w = _Writer()
        arguments = source.arguments if source is not None else ()
        self.arrays = [_Array(a) for a in arguments]
        self.inputs = [i for i, a in enumerate(arguments) if a.role == "input"]
        self.outputs = [i for i, a in enumerate(arguments) if a.role == "output"]
        self.variables = source.sizes if source is not None else ()
        self.operations = source.operations if source is not None else ()
        self.bytes_moved = source.bytes_moved if source is not None else ()
        self.sizes: dict[Var, str] = {}
        self.descriptors = sorted({a.dtype.name for a in arguments})

    # -- the function, in order
    def text(self) -> str:
        w = self.w
        self.begin()
        self.bind()
        pending = self.check_inputs()
        w.emit("br i1 %fresh, label %allocate, label %given")
        known = dict(self.sizes)
        given = self.check_given(pending)
        known_given, self.sizes = self.sizes, known
        fresh = self.allocate()
        self.join(given, fresh, known_given)
        self.call_kernel()
        self.finish()
        return self.end()

    def begin(self) -> None:
        w = self.w
        w.lines.append("define ptr @tir_call(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) #0 {")
        w.label("entry")
        w.emit("%info = alloca [4 x i64], align 8")
        w.emit("%shape = alloca [64 x i64], align 8")
        w.emit("%n = and i64 %nargsf, 9223372036854775807")
        w.emit("%plain = icmp eq ptr %kwnames, null")

    def end(self) -> str:
        self.slow()
        return "\n".join([*self.declarations(), *self.w.lines, "}", ""])

    def declarations(self) -> list[str]:
        lines = [f"declare {s.replace(' (', f' @{n}(', 1)}" for n, s in layout.FUNCTIONS.items()]
        lines += [f"declare ptr @{name}(i32, ptr, ptr, i32)" for name in layout.ALLOCATORS]
        names = ["PyArray_Type", "PyTuple_Type", "tir_slow", "tir_failed", "tir_out"]
        names += [f"descr_{name}" for name in self.descriptors]
        return [*lines, *(f"@{name} = external global i8" for name in names), ""]

    def bind(self) -> None:
        """Positional arguments, all or inputs only, or inputs and out=."""
        w, total, inputs, outputs = self.w, len(self.arrays), self.inputs, self.outputs
        w.emit("br i1 %plain, label %positional, label %keyword")
        ways: list[tuple[str, list[str], str]] = []
        w.label("positional")
        w.emit(f"%all = icmp eq i64 %n, {total}")
        w.emit("br i1 %all, label %bind_all, label %fewer")
        w.label("bind_all")
        ways.append((w.block, [w.item("%args", i) for i in range(total)], "false"))
        w.go("bound")
        w.label("fewer")
        w.check(w.equal("i64", "%n", len(inputs)))
        objects = ["null"] * total
        for k, i in enumerate(inputs):
            objects[i] = w.item("%args", k)
        ways.append((w.block, objects, "true"))
        w.go("bound")
        w.label("keyword")
        w.check(w.equal("i64", "%n", len(inputs)))
        w.check(w.equal("i64", w.load("i64", "%kwnames", layout.TUPLE_SIZE), 1))
        w.check(w.equal("ptr", w.load("ptr", "%kwnames", layout.TUPLE_ITEMS), "@tir_out"))
        objects = ["null"] * total
        for k, i in enumerate(inputs):
            objects[i] = w.item("%args", k)
        out = w.item("%args", len(inputs))
        if len(outputs) == 1:
            objects[outputs[0]] = out
        else:
            w.check(w.equal("ptr", w.load("ptr", out, layout.TYPE), "@PyTuple_Type"))
            w.check(w.equal("i64", w.load("i64", out, layout.TUPLE_SIZE), len(outputs)))
            for k, i in enumerate(outputs):
                objects[i] = w.load("ptr", out, layout.TUPLE_ITEMS + 8 * k)
        ways.append((w.block, objects, "false"))
        w.go("bound")
        w.label("bound")
        for i, array in enumerate(self.arrays):
            choices = ", ".join(f"[ {objects[i]}, %{block} ]" for block, objects, _ in ways)
            array.object = w.value(f"phi ptr {choices}")
        choices = ", ".join(f"[ {flag}, %{block} ]" for block, _, flag in ways)
        w.emit(f"%fresh = phi i1 {choices}")

    def check_array(self, array: _Array) -> list[tuple[str, Lin]]:
        """Everything but overlap; dimensions that could not be compared yet are returned."""
        w, argument, it = self.w, array.argument, array.object
        w.check(w.equal("ptr", w.load("ptr", it, layout.TYPE), "@PyArray_Type"))
        need = layout.C_ORDER | layout.ALIGNED
        need |= layout.WRITEABLE if argument.role == "output" else 0
        flags = w.value(f"and i32 {w.load('i32', it, layout.FLAGS)}, {need}")
        w.check(
            w.equal("i32", w.load("i32", it, layout.RANK), len(argument.shape)),
            w.equal("ptr", w.load("ptr", it, layout.DESCR), f"@descr_{argument.dtype.name}"),
            w.equal("i32", flags, need),
        )
        array.data = w.load("ptr", it, layout.DATA)
        if not argument.shape:
            return []
        dims = w.load("ptr", it, layout.DIMS)
        array.dims = [w.load("i64", dims, 8 * k) for k in range(len(argument.shape))]
        return self.compare(list(zip(array.dims, argument.shape, strict=True)))

    def compare(self, pairs: list[tuple[str, Lin]]) -> list[tuple[str, Lin]]:
        """Check dimensions against sizes known so far, taking sizes from those that give one."""
        w, left, conditions = self.w, [], []
        for dim, extent in pairs:
            variable = solvable(extent)
            if variable is not None and variable not in self.sizes:
                conditions += self.solve(variable, dim, extent)
            elif all(v in self.sizes for v in variables(extent)):
                conditions.append(w.equal("i64", dim, self.lin(extent)))
            else:
                left.append((dim, extent))
        w.check(*conditions)
        return left

    def solve(self, variable: Var, dim: str, extent: Lin) -> list[str]:
        """Take `variable` from dim = coef*variable + const; the conditions for it to exist."""
        w, coef, const = self.w, extent.coef(variable), extent.const
        rest = w.value(f"sub i64 {dim}, {const}") if const else dim
        if coef == 1:
            self.sizes[variable] = rest
            return [w.value(f"icmp sge i64 {rest}, 0")] if const else []
        size = w.value(f"sdiv i64 {rest}, {coef}")
        self.sizes[variable] = size
        exact = w.equal("i64", w.value(f"mul i64 {size}, {coef}"), rest)
        return [exact, w.value(f"icmp sge i64 {size}, 0")]

    def lin(self, e: Lin) -> str:
        w, result = self.w, ""
        for atom, coef in e.terms.items():
            if isinstance(atom, tuple):
                term = self.floor(atom[0], atom[1], atom[2])
            else:
                assert isinstance(atom, Var)
                term = self.sizes[atom]
            if coef != 1:
                term = w.value(f"mul i64 {term}, {coef}")
            result = w.value(f"add i64 {result}, {term}") if result else term
        if not result:
            return str(e.const)
        return w.value(f"add i64 {result}, {e.const}") if e.const else result

    def floor(self, kind: str, inner: Lin, n: int) -> str:
        w = self.w
        x = self.lin(inner)
        remainder = w.value(f"srem i64 {x}, {n}")
        negative = w.value(f"icmp slt i64 {remainder}, 0")
        positive = w.value(
            f"select i1 {negative}, i64 {w.value(f'add i64 {remainder}, {n}')}, i64 {remainder}"
        )
        if kind == "%":
            return positive
        return w.value(f"sdiv i64 {w.value(f'sub i64 {x}, {positive}')}, {n}")

    def check_inputs(self) -> list[tuple[str, Lin]]:
        left: list[tuple[str, Lin]] = []
        for i in self.inputs:
            left += self.check_array(self.arrays[i])
        return self.compare(left) if left else []

    def check_given(self, pending: list[tuple[str, Lin]]) -> list[tuple[str, str]]:
        """The outputs that the caller gave; returns (object, data) of each."""
        w = self.w
        w.label("given")
        for i in self.outputs:
            pending = [*pending, *self.check_array(self.arrays[i])]
        while pending:
            left = self.compare(pending)
            if len(left) == len(pending):
                w.check("false")
                break
            pending = left
        self.require_sizes()
        self.check_overlap()
        given = [self.arrays[i] for i in self.outputs]
        for array in given:
            w.emit(f"call void @Py_IncRef(ptr {array.object})")
        w.go("run")
        self.given_block = w.block
        return [(array.object, array.data) for array in given]

    def require_sizes(self) -> bool:
        """Whether the arrays tell every size; a call where they do not goes the slow way."""
        told = all(v in self.sizes for v in self.variables)
        if not told:
            self.w.check("false")
        return told

    def check_overlap(self) -> None:
        w = self.w
        ends = [self.past(array) for array in self.arrays]
        conditions = []
        for k, i in enumerate(self.outputs):
            others = [*self.inputs, *self.outputs[k + 1 :]]
            for j in others:
                out, other = self.arrays[i], self.arrays[j]
                below = w.value(f"icmp uge ptr {out.data}, {ends[j]}")
                above = w.value(f"icmp uge ptr {other.data}, {ends[i]}")
                apart = w.value(f"or i1 {below}, {above}")
                if _may_be_same(out.argument, other.argument):
                    same = w.equal("ptr", out.data, other.data)
                    apart = w.value(f"or i1 {apart}, {same}")
                conditions.append(apart)
        w.check(*conditions)

    def past(self, array: _Array) -> str:
        """One past the last byte."""
        w, count, constant = self.w, "", array.argument.dtype.bytes
        for dim, extent in zip(array.dims, array.argument.shape, strict=True):
            if extent.is_const:
                constant *= extent.const
            else:
                count = w.value(f"mul i64 {count}, {dim}") if count else dim
        if not count:
            size = str(constant)
        else:
            size = w.value(f"mul i64 {count}, {constant}")
        return w.value(f"getelementptr i8, ptr {array.data}, i64 {size}")

    def allocate(self) -> list[tuple[str, str]]:
        """Fresh outputs; returns (object, data) of each."""
        w = self.w
        w.label("allocate")
        shapes = [self.arrays[i].argument.shape for i in self.outputs]
        if not self.require_sizes():
            self.fresh_block = w.block
            w.go("run")
            return [("null", "null") for _ in self.outputs]
        dims = [[self.lin(e) for e in shape] for shape in shapes]
        names = [d for shape in dims for d in shape]
        w.check(*(w.value(f"icmp sge i64 {d}, 0") for d in names if d.startswith("%")))
        w.check(*(self.small(self.arrays[i].argument, shape) for i, shape in
                  zip(self.outputs, dims, strict=True)))  # fmt: skip
        made: list[str] = []
        for i, shape in zip(self.outputs, dims, strict=True):
            made.append(self.allocate_one(self.arrays[i].argument, shape, made))
        result = [(array, w.load("ptr", array, layout.DATA)) for array in made]
        self.fresh_block = w.block
        w.go("run")
        return result

    def small(self, argument: Argument, shape: list[str]) -> str:
        """Whether an array may begin anywhere; a large one is made where lines begin."""
        w, size = self.w, str(argument.dtype.bytes)
        for dim in shape:
            size = w.value(f"mul i64 {size}, {dim}")
        return w.value(f"icmp ult i64 {size}, {layout.LARGE}")

    def allocate_one(self, argument: Argument, shape: list[str], made: list[str]) -> str:
        w = self.w
        for k, dim in enumerate(shape):
            place = w.value(f"getelementptr i64, ptr %shape, i64 {k}")
            w.emit(f"store i64 {dim}, ptr {place}, align 8")
        descriptor = f"@descr_{argument.dtype.name}"
        w.emit(f"call void @Py_IncRef(ptr {descriptor})")
        maker = layout.ALLOCATORS[argument.partial]
        array = w.value(f"call ptr @{maker}(i32 {len(shape)}, ptr %shape, ptr {descriptor}, i32 0)")
        failed, fine = w.fresh("nomemory"), w.fresh("ok")
        w.emit(f"br i1 {w.equal('ptr', array, 'null')}, label %{failed}, label %{fine}")
        w.label(failed)
        w.emit("call void @PyErr_Clear()")
        for earlier in made:
            w.emit(f"call void @Py_DecRef(ptr {earlier})")
        w.go("slow")
        w.label(fine)
        return array

    def join(
        self, given: list[tuple[str, str]], fresh: list[tuple[str, str]], sizes: dict[Var, str]
    ) -> None:
        w = self.w
        w.label("run")

        def phi(kind: str, a: str, b: str) -> str:
            return w.value(f"phi {kind} [ {a}, %{self.given_block} ], [ {b}, %{self.fresh_block} ]")

        for i, (object_a, data_a), (object_b, data_b) in zip(
            self.outputs, given, fresh, strict=True
        ):
            self.arrays[i].object = phi("ptr", object_a, object_b)
            self.arrays[i].data = phi("ptr", data_a, data_b)
        for variable in self.variables:
            a, b = sizes.get(variable, "0"), self.sizes.get(variable, "0")
            self.sizes[variable] = a if a == b else phi("i64", a, b)

    def call_kernel(self) -> None:
        w = self.w
        arguments = [f"ptr {array.data}" for array in self.arrays]
        arguments += [f"i64 {self.sizes[v]}" for v in self.variables]
        call = f"call i32 %kernel({', '.join([*arguments, 'ptr %info'])})"
        w.emit(f"%at = getelementptr i8, ptr %self, i64 {layout.FUNCTION}")
        w.emit("%kernel = load ptr, ptr %at, align 8")
        long = self.long()
        if long == "false":
            w.emit(f"%status = {call}")
            return
        w.emit(f"br i1 {long}, label %release, label %keep")
        w.label("release")
        w.emit("%thread = call ptr @PyEval_SaveThread()")
        w.emit(f"%status_a = {call}")
        w.emit("call void @PyEval_RestoreThread(ptr %thread)")
        w.go("called")
        w.label("keep")
        w.emit(f"%status_b = {call}")
        w.go("called")
        w.label("called")
        w.emit("%status = phi i32 [ %status_a, %release ], [ %status_b, %keep ]")

    def long(self) -> str:
        """Whether the call is expected to last: a constant, or an i1 value."""
        w = self.w
        known, total = 0.0, ""
        for polynomial, rate in (
            (self.operations, _OPERATIONS_PER_NS),
            (self.bytes_moved, _BYTES_PER_NS),
        ):
            for coefficient, factors in polynomial:
                scale = coefficient / rate
                if all(f.is_const for f in factors):
                    known += scale * prod(float(f.const) for f in factors)
                    continue
                product = _hex(scale)
                for f in factors:
                    factor = w.value(f"sitofp i64 {self.lin(f)} to double")
                    product = w.value(f"fmul double {product}, {factor}")
                total = w.value(f"fadd double {total}, {product}") if total else product
        if known > _RELEASE_ABOVE or not total:
            return "true" if known > _RELEASE_ABOVE else "false"
        return w.value(f"fcmp ogt double {total}, {_hex(_RELEASE_ABOVE - known)}")

    def finish(self) -> None:
        w = self.w
        w.emit("%failed = icmp ne i32 %status, 0")
        w.emit("br i1 %failed, label %failure, label %success")
        w.label("success")
        results = [self.arrays[i].object for i in self.outputs]
        if len(results) == 1:
            w.emit(f"ret ptr {results[0]}")
        else:
            w.emit(f"%tuple = call ptr @PyTuple_New(i64 {len(results)})")
            w.emit("%none = icmp eq ptr %tuple, null")
            w.emit("br i1 %none, label %drop, label %fill")
            w.label("fill")
            for k, result in enumerate(results):
                place = w.value(f"getelementptr i8, ptr %tuple, i64 {layout.TUPLE_ITEMS + 8 * k}")
                w.emit(f"store ptr {result}, ptr {place}, align 8")
            w.emit("ret ptr %tuple")
            w.label("drop")
            for result in results:
                w.emit(f"call void @Py_DecRef(ptr {result})")
            w.emit("ret ptr null")
        w.label("failure")
        for result in results:
            w.emit(f"call void @Py_DecRef(ptr {result})")
        w.emit("%status64 = sext i32 %status to i64")
        parts = ["%self", w.value("call ptr @PyLong_FromLong(i64 %status64)")]
        parts.append(w.value("call ptr @PyLong_FromVoidPtr(ptr %info)"))
        for k, part in enumerate(parts):
            place = w.value(f"getelementptr ptr, ptr %shape, i64 {k}")
            w.emit(f"store ptr {part}, ptr {place}, align 8")
        call = "call ptr @PyObject_Vectorcall(ptr @tir_failed, ptr %shape, i64 3, ptr null)"
        w.emit(f"%raised = {call}")
        for part in parts[1:]:
            w.emit(f"call void @Py_DecRef(ptr {part})")
        w.emit("ret ptr %raised")

    def slow(self) -> None:
        """`tir_slow(self, *args, **kwargs)`: the arguments again, with self before them."""
        w = self.w
        w.label("slow")
        w.emit("br i1 %plain, label %slow_plain, label %slow_keywords")
        w.label("slow_keywords")
        named = w.load("i64", "%kwnames", layout.TUPLE_SIZE)
        w.go("slow_call")
        w.label("slow_plain")
        w.go("slow_call")
        w.label("slow_call")
        w.emit(f"%named = phi i64 [ {named}, %slow_keywords ], [ 0, %slow_plain ]")
        w.emit("%count = add i64 %n, %named")
        w.emit("%room = add i64 %count, 1")
        w.emit("%again = alloca ptr, i64 %room, align 8")
        w.emit("store ptr %self, ptr %again, align 8")
        w.emit("br label %copy")
        w.label("copy")
        w.emit("%c = phi i64 [ 0, %slow_call ], [ %c1, %copy_one ]")
        w.emit("%more = icmp slt i64 %c, %count")
        w.emit("br i1 %more, label %copy_one, label %copied")
        w.label("copy_one")
        w.emit("%from = getelementptr ptr, ptr %args, i64 %c")
        w.emit("%moved = load ptr, ptr %from, align 8")
        w.emit("%c1 = add i64 %c, 1")
        w.emit("%to = getelementptr ptr, ptr %again, i64 %c1")
        w.emit("store ptr %moved, ptr %to, align 8")
        w.go("copy")
        w.label("copied")
        w.emit("%n1 = add i64 %n, 1")
        call = "call ptr @PyObject_Vectorcall(ptr @tir_slow, ptr %again, i64 %n1, ptr %kwnames)"
        w.emit(f"%result = {call}")
        w.emit("ret ptr %result")


def wrapper_text(source: KernelSource) -> str:
    """The wrapper for kernels of the signature of `source`: LLVM text without header."""
    return _Wrapper(source).text()


def slow_text() -> str:
    """A wrapper that hands every call to Python, for kernels that cannot run here."""
    w = _Wrapper(None)
    w.begin()
    w.w.go("slow")
    return w.end()


def _hex(x: float) -> str:
    """A double as LLVM reads it exactly."""
    bits = np.float64(x).view(np.uint64)
    return f"0x{int(bits):016X}"


def solvable(extent: Lin) -> Var | None:
    """The size that a dimension of this extent gives, if it is coef*size + const."""
    if len(extent.terms) != 1:
        return None
    (atom,) = extent.terms
    return atom if isinstance(atom, Var) else None


def variables(extent: Lin) -> list[Axis | Var]:
    """The sizes in an extent, in order; may repeat."""
    return list(extent.atoms())


def _may_be_same(output: Argument, other: Argument) -> bool:
    named = other.name in output.in_place
    return named and other.shape == output.shape and other.dtype == output.dtype
