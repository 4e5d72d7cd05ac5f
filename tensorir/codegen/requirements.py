"""Sizes that a kernel refuses: an entry that tests them before the body may write anything."""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.codegen.function import assemble, release
from tensorir.codegen.module import Module
from tensorir.codegen.values import Emitter
from tensorir.ir.expr import Var
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
    em = Emitter(module)
    for k, size in enumerate(sizes):
        em.env[size] = f"%n{k}"
    for k, r in enumerate(requirements):
        violated = em.all_hold(r.refused)
        status = module.check(r.message.replace("{", "{{").replace("}", "}}"))
        test = "true" if violated is None else violated
        em.emit(f"br i1 {test}, label %refuse{k}, label %go{k}")
        em.start(f"refuse{k}")
        em.emit(f"ret i32 {status}")
        em.start(f"go{k}")
    passed = ", ".join(f"{p.split()[0]} {p.split()[-1]}" for p in parameters)
    em.emit(f"%result = call i32 @{name}.run({passed})")
    em.emit("ret i32 %result")
    return assemble(f"i32 @{name}({', '.join(parameters)})", em, release(em, []))
