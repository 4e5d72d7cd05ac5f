"""Updates that are made in one step: read, combine and write, with no other thread between."""

from __future__ import annotations

from tensorir.codegen.address import Flat, Spot, pointer_of
from tensorir.codegen.expressions import value
from tensorir.codegen.loads import Instance
from tensorir.codegen.stores import flush_key, to_memory
from tensorir.codegen.values import Emitter
from tensorir.ir.dtype import DType
from tensorir.ir.expr import Op
from tensorir.ir.updates import combined


def update(em: Emitter, inst: Instance, flat: Flat, spot: Spot) -> None:
    """One instance of an atomic update, outside vector lanes."""
    found = combined(inst.stmt.bodies[0])
    if found is None:
        raise em.impossible(f"the update of {inst.stmt.name} has no atomic form")
    name, parts = found
    other = parts[0] if len(parts) == 1 else Op("mul", parts, inst.stmt.bodies[0].dtype)
    text, _ = value(em, inst, other)
    combine(em, name, flat, spot, text)


def combine(em: Emitter, name: str, flat: Flat, spot: Spot, text: str) -> None:
    """Combine a value into the cell at `spot`."""
    home = flat.home
    if em.pending:
        flush_key(em, home.key)
    half = home.value == "half"  # moves as an integer, but is added as what it is
    ty, raw = (home.value, text) if half else (home.memory, to_memory(em, home, text, 0))
    at = pointer_of(em, home.memory, spot)
    op = _operation(name, home.array.dtype)
    # relaxed: the end of the parallel region orders it before what reads the cell
    em.emit(f"atomicrmw {op} ptr {at}, {ty} {raw} monotonic, align {home.align}")
    em.forget(home.key)


def _operation(name: str, d: DType) -> str:
    if name in ("min", "max"):
        if d.is_float:
            return f"f{name}imum"  # a NaN stays
        return name if d.kind == "int" else f"u{name}"
    return f"f{name}" if d.is_float else name
