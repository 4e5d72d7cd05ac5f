"""Sizes that a kernel refuses: an entry that tests them before the body may write anything."""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.codegen.values import Module
from tensorir.ir.affine import Lin
from tensorir.ir.expr import Axis, Var
from tensorir.poly.model import Requirement


def guarded_entry(
    module: Module,
    name: str,
    parameters: Sequence[str],
    sizes: Sequence[Var],
    requirements: Sequence[Requirement],
) -> list[str]:
    """A function `name` that returns the status of the first requirement that sizes violate.

    Else it calls `name.run`, which takes the same `parameters` (type, attributes, name).
    """
    entry = _Entry({v: f"%n{k}" for k, v in enumerate(sizes)})
    for r in requirements:
        entry.refuse(r, module.check(r.message.replace("{", "{{").replace("}", "}}")))
    passed = ", ".join(f"{p.split()[0]} {p.split()[-1]}" for p in parameters)
    return [
        f"define i32 @{name}({', '.join(parameters)}) #0 {{",
        "entry:",
        *entry.lines,
        f"  %result = call i32 @{name}.run({passed})",
        "  ret i32 %result",
        "}",
    ]


class _Entry:
    def __init__(self, values: dict[Axis | Var, str]) -> None:
        self.values = values
        self.lines: list[str] = []
        self.count = 0

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %r{self.count} = {text}")
        return f"%r{self.count}"

    def refuse(self, r: Requirement, status: int) -> None:
        holds = "true"
        for kind, e in r.refused:
            test = self.op(f"icmp {'sge' if kind == 'ge' else 'eq'} i64 {self.value(e)}, 0")
            holds = self.op(f"and i1 {holds}, {test}")
        k = self.count = self.count + 1
        self.lines += [
            f"  br i1 {holds}, label %refuse{k}, label %go{k}",
            f"refuse{k}:",
            f"  ret i32 {status}",
            f"go{k}:",
        ]

    def value(self, e: Lin) -> str:
        total = str(e.const)
        for atom, v in e.terms.items():
            x = self.floor(*atom) if isinstance(atom, tuple) else self.values[atom]
            total = self.op(f"add i64 {total}, {self.op(f'mul i64 {x}, {v}')}")
        return total

    def floor(self, kind: str, e: Lin, n: int) -> str:
        x = self.value(e)
        rest = self.op(f"srem i64 {x}, {n}")
        sign = self.op(f"ashr i64 {rest}, 63")
        if kind == "//":
            return self.op(f"add i64 {self.op(f'sdiv i64 {x}, {n}')}, {sign}")
        return self.op(f"add i64 {rest}, {self.op(f'and i64 {sign}, {n}')}")
