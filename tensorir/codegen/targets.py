"""From what a user calls a target to the target: processors, CUDA, the emulator."""

from __future__ import annotations

from tensorir.codegen import cpu, cuda
from tensorir.ir.target import Target
from tensorir.support.errors import ArgumentTypeError
from tensorir.support.knobs import knobs

CUDA_KINDS = ("cuda", "emulator")


def resolve(target: str | Target | None) -> Target:
    """The target of a name; that of the knob `target`, or this processor, for None.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        There is no such target.

    Examples
    --------
    >>> resolve("emulator:sm_90").kind, resolve("x86-64-v3").kind
    ('cuda', 'cpu')
    """
    if isinstance(target, Target):
        return target
    name = target if target is not None else knobs.target or "native"
    if not isinstance(name, str):
        raise ArgumentTypeError(f"target={name!r:.60}: expected the name of a target")
    return cuda.target(name) if name.split(":")[0] in CUDA_KINDS else cpu.target(name)
