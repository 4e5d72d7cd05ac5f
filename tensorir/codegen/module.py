"""What the functions of one kernel share: declarations, checks, notes, and what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from tensorir.codegen.source import Check
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Expr

if TYPE_CHECKING:
    from tensorir.ir.statement import Access, Array, Statement
    from tensorir.ir.target import Target
    from tensorir.lower.pipeline import Lowered

IndexCheck: TypeAlias = Literal["raise", "clamp", "off"]


class Module:
    """What the functions of one kernel share."""

    def __init__(
        self,
        lowered: Lowered,
        target: Target,
        name: str,
        *,
        checked: bool,
        index_check: IndexCheck,
    ) -> None:
        self.lowered, self.target, self.name = lowered, target, name
        self.checked, self.index_check = checked, index_check
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.functions: list[str] = []
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.imports: dict[str, None] = {}
        # arrays whose stores may go past the caches, each where it has more bytes than that
        self.streams: dict[Array, int] = {}
        self.streamed: dict[Array, None] = {}
        # what a statement asks of memory ahead of time
        self.prefetches: dict[Statement, tuple[Access, ...]] = {}
        self.parallel = False
        self.serial = 0
        # arrays that may share memory with another, by a common name
        self.shared: dict[Array, object] = {}
        # by the identity of an expression, which is kept: what computes it, and whether it must
        # not be computed where it is not chosen
        self.expansions: dict[int, tuple[Expr, Expr | None]] = {}
        self.guarded: dict[int, tuple[Expr, bool]] = {}
        # comparisons as facts over loop axes, by expression and instance, which are kept
        self.facts: dict[tuple[int, int], tuple[object, Lin | None]] = {}

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def declare(self, name: str, result: str, args: str, attributes: str = "") -> None:
        """Declare an intrinsic or function, once."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({args}){attributes}"

    def lowered_text(self) -> str:
        """The loops, for the report of a fault."""
        from tensorir.ir.printer import loops_text

        return loops_text(self.lowered.body)

    def call_outside(self, name: str, result: str, args: str) -> None:
        """Declare a function that the runtime must supply."""
        self.imports[name] = None
        self.declare(name, result, args)

    def check(self, message: str) -> int:
        """The status that means `message`."""
        for k, c in enumerate(self.checks):
            if c.message == message:
                return k + 1
        self.checks.append(Check(message))
        return len(self.checks)
