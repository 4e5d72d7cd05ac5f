"""From what a user calls a target to the target: processors, CUDA, the emulator."""

from __future__ import annotations

from tensorir.codegen import cpu, cuda
from tensorir.ir.target import Target
from tensorir.support.errors import ArgumentTypeError
from tensorir.support.knobs import knobs
from tensorir.support.tracebacks import user_api

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
    if name.partition(":")[0] in CUDA_KINDS:
        return cuda.target(name)
    if name not in cpu.NAMES:
        raise cpu.unknown(name, (*cpu.NAMES, *CUDA_KINDS))
    return cpu.target(name)


@user_api
def target(name: object = "native") -> Target:
    """The target called `name`.

    Parameters
    ----------
    name
        "native" for this machine, the name of an x86-64 level or processor ("x86-64-v3",
        "znver4"), a GPU ("cuda", "cuda:sm_90"), "emulator" for the code of a GPU run here, or a
        :class:`~tensorir.ir.target.Target`, which is returned. A named processor has the cache
        sizes of a common model, and eight threads.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        There is no such target; the message lists those there are.

    Examples
    --------
    >>> target("znver4").vector_bytes, target("cuda").kind
    (64, 'cuda')
    """
    if not isinstance(name, str | Target):
        raise ArgumentTypeError(f"a target is a string, not {type(name).__name__} {name!r:.60}")
    return resolve(name)
