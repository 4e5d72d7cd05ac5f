"""PTX text to a module: entries, their parameters and variables, and instructions with lines.

The grammar is that of NVIDIA's "Parallel Thread Execution ISA", sections 4 and 5, as far as
compilers write it: no macros, and no functions but entries.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, TypeAlias

from tensorir.support.errors import ArgumentError, UnsupportedError

TYPE_BYTES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "u16x2": 4, "s16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reg:
    """A register, or a special one such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A constant; the bits of a floating one (`float_bytes` 4 or 8), or an integer (0)."""

    value: int
    float_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable or parameter, or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Addr:
    """``[base+offset]``; `more` are what follows a comma inside the brackets."""

    base: Reg | Sym | Imm
    offset: int = 0
    more: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    """``{a, b, ..}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """``!p``."""

    reg: Reg


Operand: TypeAlias = Reg | Imm | Sym | Addr | Vec | Pair | Not


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction: opcode words, operands, guard, and where it stands.

    `source` is the line of the program that it comes from, by the last ``.loc`` (0: none).
    """

    words: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Reg | None
    guard_negated: bool
    line: int
    source: int = 0

    @property
    def opcode(self) -> str:
        return ".".join(self.words)

    @property
    def family(self) -> str:
        return self.words[0]


@dataclass(frozen=True, slots=True)
class Variable:
    """A named piece of memory; `count` is None where the launch gives its size."""

    name: str
    space: str
    align: int
    element: str
    count: int | None
    data: bytes = b""

    @property
    def bytes(self) -> int:
        return (self.count or 0) * TYPE_BYTES[self.element]


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an entry: a scalar (`count` 0) or an array of `count` elements."""

    name: str
    element: str
    count: int
    align: int
    offset: int

    @property
    def bytes(self) -> int:
        return max(self.count, 1) * TYPE_BYTES[self.element]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One kernel: what it takes, its variables and registers, and its code with labels."""

    name: str
    params: tuple[Param, ...]
    variables: tuple[Variable, ...]
    registers: dict[str, str]
    code: tuple[Instruction, ...]
    labels: dict[str, int]
    required_threads: tuple[int, int, int] | None
    most_threads: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """What one PTX text holds."""

    version: str
    target: str
    entries: dict[str, Entry]
    variables: tuple[Variable, ...]


class Token(NamedTuple):
    text: str
    line: int


_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
      | "(?:[^"\\]|\\.)*"
      | 0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16} | 0[xX][0-9a-fA-F]+U?
      | \d+\.\d*(?:[eE][-+]?\d+)? | \d+U?(?![\w.])
      | [%$_.A-Za-z0-9](?:[\w$.]|::(?=\w))*
      | [{}()\[\],;:@!|+\-=<>]""",
    re.X | re.S,
)
_SKIPPED = (" ", "\t", "\n", "\r", "//", "/*")
# directives that end with their line
_LINES = (".version", ".target", ".address_size", ".file", ".loc", ".pragma", ".alias")


def tokens(text: str) -> list[Token]:
    """The tokens of a text with their lines, comments and blanks dropped."""
    out, at, line = [], 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ArgumentError(f"PTX line {line}: {text[at : at + 20]!r} is not PTX")
        word = found.group()
        if not word.startswith(_SKIPPED):
            out.append(Token(word, line))
        line += word.count("\n")
        at = found.end()
    return out


def parse(text: str) -> Module:
    """The module of a PTX text.

    Raises
    ------
    ArgumentError
        The text is not PTX, with the line.
    UnsupportedError
        It has functions other than entries.
    """
    return _Parser(tokens(text)).module()


@dataclass
class _Parser:
    stream: list[Token]
    at: int = 0
    source: int = 0
    registers: dict[str, str] = field(default_factory=dict)
    scopes: list[dict[str, str]] = field(default_factory=list)
    renamed: int = 0

    def peek(self, ahead: int = 0) -> str:
        k = self.at + ahead
        return self.stream[k].text if k < len(self.stream) else ""

    @property
    def line(self) -> int:
        return self.stream[min(self.at, len(self.stream) - 1)].line if self.stream else 1

    def take(self, expected: str | None = None) -> str:
        word = self.peek()
        if not word or (expected is not None and word != expected):
            self.wrong(expected or "more")
        self.at += 1
        return word

    def wrong(self, expected: str) -> NoReturn:
        found = repr(self.peek()) if self.peek() else "the end"
        raise ArgumentError(f"PTX line {self.line}: expected {expected}, found {found}")

    def accept(self, word: str) -> bool:
        if self.peek() == word:
            self.at += 1
            return True
        return False

    def rest_of_line(self) -> list[str]:
        line, words = self.line, []
        while self.peek() and self.line == line:
            words.append(self.take())
        return words

    # module

    def module(self) -> Module:
        version = target = ""
        entries: dict[str, Entry] = {}
        variables: list[Variable] = []
        while self.peek():
            if self.peek() in _LINES:
                words = self.rest_of_line()
                version = words[1] if words[0] == ".version" else version
                target = words[1] if words[0] == ".target" else target
            elif self.peek() in (".section",):
                self.block()
            elif self.accept(";"):
                pass
            else:
                found = self.declaration()
                if isinstance(found, Entry):
                    entries[found.name] = found
                elif found is not None:
                    variables.append(found)
        if not version:
            raise ArgumentError("PTX without a .version: is this the text of a module?")
        return Module(version, target, entries, tuple(variables))

    def block(self) -> None:
        """Skip ``.section .. { .. }``."""
        while self.take() != "{":
            pass
        depth = 1
        while depth:
            word = self.take()
            depth += (word == "{") - (word == "}")

    def declaration(self) -> Entry | Variable | None:
        while self.peek() in (".visible", ".extern", ".weak", ".common"):
            self.take()
        if self.accept(".entry"):
            return self.entry()
        if self.peek() == ".func":
            self.function()
            return None
        if self.peek() in (".global", ".const", ".shared"):
            return self.variable(self.take()[1:])
        self.wrong("a directive")

    def function(self) -> None:
        line = self.line
        while self.peek() not in (";", "{", ""):
            self.take()
        if not self.accept(";"):
            raise UnsupportedError(f"PTX line {line}: functions other than entries are not run")

    def variable(self, space: str) -> Variable:
        align, element = 1, ""
        while self.peek().startswith("."):
            word = self.take()
            if word == ".align":
                align = int(self.take())
            elif word == ".attribute":
                self.parenthesis()
            elif word not in (".v2", ".v4"):
                element = word[1:]
        if element not in TYPE_BYTES:
            self.wrong("a type")
        name, count = self.take(), 1
        sized = True
        while self.accept("["):
            if self.accept("]"):
                sized = False
            else:
                count *= self.integer()
                self.take("]")
        data = self.initial(element) if self.accept("=") else b""
        self.take(";")
        width = TYPE_BYTES[element]
        return Variable(name, space, max(align, width), element, count if sized else None, data)

    def parenthesis(self) -> None:
        self.take("(")
        while self.take() != ")":
            pass

    def initial(self, element: str) -> bytes:
        def items() -> Iterator[bytes]:
            if self.accept("{"):
                while not self.accept("}"):
                    yield from items()
                    self.accept(",")
            else:
                value = self.operand()
                if not isinstance(value, Imm):
                    raise UnsupportedError(f"PTX line {self.line}: a variable with an address")
                yield (value.value % (1 << 8 * width)).to_bytes(width, "little")

        width = TYPE_BYTES[element]
        return b"".join(items())

    # entries

    def entry(self) -> Entry:
        name = self.take()
        params = self.params() if self.peek() == "(" else ()
        required, most = None, None
        while self.peek() != "{":
            word = self.take()
            if word == ".reqntid":
                required = self.triple()
            elif word == ".maxntid":
                x, y, z = self.triple()
                most = x * y * z
            elif word in (".minnctapersm", ".maxnreg", ".maxnctapersm"):
                self.integer()
            elif word in (".reqnctapercluster", ".explicitcluster", ".blocksareclusters"):
                raise UnsupportedError(f"PTX line {self.line}: {word} (clusters are not run)")
            elif word != ".pragma":
                self.at -= 1
                self.wrong("a directive of an entry, or its body")
        self.registers, self.scopes, self.source = {}, [], 0
        code: list[Instruction] = []
        labels: dict[str, int] = {}
        variables: list[Variable] = []
        self.body(code, labels, variables)
        return Entry(
            name, params, tuple(variables), self.registers, tuple(code), labels, required, most
        )

    def triple(self) -> tuple[int, int, int]:
        sizes = [self.integer()]
        while self.accept(","):
            sizes.append(self.integer())
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z

    def params(self) -> tuple[Param, ...]:
        self.take("(")
        out: list[Param] = []
        offset = 0
        while not self.accept(")"):
            self.take(".param")
            align, element = 1, ""
            while self.peek().startswith("."):
                word = self.take()
                if word == ".align":
                    align = int(self.take())
                elif word[1:] in TYPE_BYTES:
                    element = word[1:]
            name, count = self.take(), 0
            if self.accept("["):
                count = self.integer()
                self.take("]")
            width = TYPE_BYTES[element]
            align = align if count else width
            offset = -(-offset // align) * align
            out.append(Param(name, element, count, align, offset))
            offset += out[-1].bytes
            self.accept(",")
        return tuple(out)

    def body(
        self, code: list[Instruction], labels: dict[str, int], variables: list[Variable]
    ) -> None:
        self.take("{")
        self.scopes.append({})
        while not self.accept("}"):
            word = self.peek()
            if word == "{":
                self.body(code, labels, variables)
            elif word == ".reg":
                self.register_names()
            elif word in (".shared", ".local", ".param"):
                variables.append(self.variable(self.take()[1:]))
            elif word == ".loc":
                self.source = int(self.rest_of_line()[2])
            elif word in _LINES:
                self.rest_of_line()
            elif self.accept(";"):
                pass
            elif self.peek(1) == ":":
                labels[self.take()] = len(code)
                self.take(":")
            else:
                code.append(self.instruction())
        self.scopes.pop()

    def register_names(self) -> None:
        self.take(".reg")
        kind = self.take()[1:]
        if kind not in TYPE_BYTES:
            self.wrong("the type of a register")
        while True:
            name = self.take()
            names = [name]
            if self.accept("<"):
                names = [f"{name}{k}" for k in range(self.integer())]
                self.take(">")
            for n in names:
                own = n
                if n in self.registers:  # another scope has one of that name
                    self.renamed += 1
                    own = f"{n}'{self.renamed}"
                self.scopes[-1][n] = own
                self.registers[own] = kind
            if not self.accept(","):
                break
        self.take(";")

    def instruction(self) -> Instruction:
        guard, negated, line = None, False, self.line
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.register(self.take())
        words = tuple(self.take().split("."))
        if words[0] == "call":
            raise UnsupportedError(f"PTX line {line}: {'.'.join(words)}: functions are not run")
        operands: list[Operand] = []
        while not self.accept(";"):
            operands.append(self.operand())
            if self.peek() != ";":
                self.take(",")
        return Instruction(words, tuple(operands), guard, negated, line, self.source)

    def register(self, name: str) -> Reg:
        for scope in reversed(self.scopes):
            if name in scope:
                return Reg(scope[name])
        return Reg(name)

    def operand(self) -> Operand:
        first = self.single()
        return Pair(first, self.single()) if self.accept("|") else first

    def single(self) -> Operand:
        if self.accept("["):
            return self.address()
        if self.accept("{"):
            items: list[Operand] = []
            while not self.accept("}"):
                items.append(self.operand())
                self.accept(",")
            return Vec(tuple(items))
        if self.accept("!"):
            return Not(self.register(self.take()))
        word = self.peek()
        if word in "+-" or word[:1].isdigit():
            return self.number()
        self.take()
        if word == "_" or word.startswith("%") or any(word in s for s in self.scopes):
            return self.register(word)
        offset = self.offset()
        return Sym(word, offset)

    def address(self) -> Addr:
        base = self.single()
        if not isinstance(base, Reg | Sym | Imm):
            self.wrong("an address")
        offset = self.offset()
        more: list[Operand] = []
        while self.accept(","):
            more.append(self.single())
        self.take("]")
        return Addr(base, offset, tuple(more))

    def offset(self) -> int:
        total = 0
        while self.peek() in ("+", "-") and self.peek():
            sign = -1 if self.take() == "-" else 1
            total += sign * self.integer()
        return total

    def integer(self) -> int:
        value = self.number()
        if value.float_bytes:
            self.wrong("an integer")
        return value.value

    def number(self) -> Imm:
        sign = 1
        while self.peek() in ("+", "-"):
            sign *= -1 if self.take() == "-" else 1
        word = self.take()
        kind = word[:2].lower()
        if kind == "0f":
            return Imm(int(word[2:], 16), 4)
        if kind == "0d":
            return Imm(int(word[2:], 16), 8)
        try:
            if "." in word:
                (bits,) = struct.unpack("<Q", struct.pack("<d", sign * float(word)))
                return Imm(bits, 8)
            return Imm(sign * int(word.rstrip("U"), 0))
        except ValueError:
            self.at -= 1
            self.wrong("a number")
