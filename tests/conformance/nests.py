"""The nests of the legality facts as polyhedral programs, one statement each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensorir.ir.affine import Fact, Lin
from tensorir.ir.dtype import FLOAT32
from tensorir.ir.expr import Axis, Expr, Op, Ref, Var
from tensorir.ir.reducers import SUM
from tensorir.ir.statement import Access, Array, Statement
from tensorir.poly.model import Placement, Program
from tensorir.poly.tree import At, nest
from tensorir.schedule.schedule import Schedule


@dataclass(frozen=True)
class Nest:
    """Loops outer to inner, bounds (inclusive lower, exclusive upper), what is written and read."""

    loops: str
    bounds: dict[str, tuple[str, str]]
    write: str
    reads: tuple[str, ...]
    reduction: bool = False


_SQUARE = {"i": ("0", "N"), "j": ("0", "N")}
NESTS = {
    "matmul": Nest(
        "i,j,k", _SQUARE | {"k": ("0", "N")}, "C[i,j]", ("C[i,j]", "A[i,k]", "B[k,j]"), True
    ),
    "seidel1sweep": Nest(
        "i,j", {"i": ("1", "N"), "j": ("1", "N-1")}, "a[i,j]", ("a[i,j]", "a[i,j-1]", "a[i-1,j+1]")
    ),
    "jacobi1d_timebuf": Nest(
        "t,i", {"t": ("0", "3"), "i": ("1", "N-1")}, "a[t+1,i]", ("a[t,i-1]", "a[t,i]", "a[t,i+1]")
    ),
    "lcs": Nest(
        "i,j", {"i": ("1", "N"), "j": ("1", "N")}, "a[i,j]", ("a[i-1,j]", "a[i,j-1]", "a[i-1,j-1]")
    ),
    "transpose_inplace_full": Nest("i,j", _SQUARE, "a[i,j]", ("a[j,i]",)),
    "floyd": Nest("k,i,j", _SQUARE | {"k": ("0", "N")}, "p[i,j]", ("p[i,j]", "p[i,k]", "p[k,j]")),
    "trisolv_update": Nest(
        "i,j", {"i": ("0", "N"), "j": ("0", "i")}, "x[i]", ("x[i]", "L[i,j]", "x[j]"), True
    ),
    "raw_dist4": Nest("i", {"i": ("0", "3*N")}, "a[i+4]", ("a[i]", "b[i]")),
    "raw_dist3": Nest("i", {"i": ("0", "3*N")}, "a[i+3]", ("a[i]", "b[i]")),
    "diag_write": Nest("i,j", _SQUARE, "a[i+j]", ("b[i,j]",)),
    "pointwise": Nest("i,j", _SQUARE, "o[i,j]", ("x[i,j]",)),
    "triangular_indep": Nest("i,j", {"i": ("0", "N"), "j": ("0", "i+1")}, "o[i,j]", ("x[j,i]",)),
}


def build(name: str) -> Schedule:
    """A nest of the facts as a schedule in its own order."""
    return made(NESTS[name])


def made(n: Nest) -> Schedule:
    """A nest as a schedule in its own order."""
    size = Var("N")
    iters = {x: Axis(x, reduce=n.reduction and x not in n.write) for x in n.loops.split(",")}
    env: dict[str, Lin] = {x: Lin({a: 1}) for x, a in iters.items()} | {"N": Lin({size: 1})}

    def affine(text: str) -> Lin:
        value = eval(text, {}, env)  # the texts above, nothing else
        return value if isinstance(value, Lin) else Lin(const=value)

    facts: list[Fact] = []
    for x, (low, high) in n.bounds.items():
        facts += [("ge", env[x] - affine(low)), ("ge", affine(high) - 1 - env[x])]
    arrays: dict[str, Array] = {}

    def access(text: str) -> Access:
        match = re.fullmatch(r"(\w+)\[(.*)\]", text)
        assert match is not None
        index = tuple(affine(e) for e in match[2].split(","))
        role = "output" if match[1] == n.write[0] else "input"
        shape = (Lin({size: 4}, 8),) * len(index)
        array = arrays.setdefault(match[1], Array(match[1], FLOAT32, shape, role))
        return Access(array, index)

    write, reads = access(n.write), tuple(access(r) for r in n.reads)
    body: Expr = Ref(0, FLOAT32)
    for k in range(1, len(reads)):
        body = Op("add", (body, Ref(k, FLOAT32)), FLOAT32)
    stmt = Statement(
        "S", "S", tuple(iters.values()), (tuple(facts),), (write,), reads, (body,),
        "update" if n.reduction else "compute", SUM if n.reduction else None,
    )  # fmt: skip
    axes = tuple(iters.values())
    program = Program(
        nest(axes, At("S")),
        {"S": Placement.fresh(stmt, axes)},
        {},
        tuple(arrays.values()),
        (size,),
        (("ge", Lin({size: 1})),),
    )
    return Schedule(program, ())
