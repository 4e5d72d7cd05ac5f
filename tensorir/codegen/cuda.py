"""The CUDA architectures: what each one has, and what a module for one begins with."""

from __future__ import annotations

from tensorir.ir.target import Target
from tensorir.support.errors import ArgumentError
from tensorir.support.names import hint

__all__ = ["ARCHITECTURES", "LAYOUT", "TRIPLE", "features_of", "module", "target"]

TRIPLE = "nvptx64-nvidia-cuda"
LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
DEFAULT = "sm_80"

# name: the PTX version that code for it is written in (as low as its features allow, so that
# older drivers take it), shared memory of a block in KiB, L2 in MiB, multiprocessors
ARCHITECTURES: dict[str, tuple[int, int, int, int]] = {
    "sm_75": (63, 64, 6, 68),
    "sm_80": (70, 163, 40, 108),
    "sm_86": (71, 99, 6, 84),
    "sm_87": (74, 163, 4, 16),
    "sm_89": (78, 99, 72, 128),
    "sm_90": (78, 227, 50, 132),
    "sm_90a": (83, 227, 50, 132),
}
REGISTERS = 128
"""A buffer in registers takes at most twice as many: a thread has 255."""


def target(name: str) -> Target:
    """The target called `cuda`, or `cuda:sm_90`.

    Raises
    ------
    ArgumentError
        No such architecture; the message lists those there are.
    """
    kind, _, given = name.partition(":")
    cpu = given or DEFAULT
    if cpu not in ARCHITECTURES:
        names = tuple(ARCHITECTURES)
        raise ArgumentError(
            f"target={name!r}: no architecture {cpu!r}{hint(cpu, names)}; there are "
            f"{', '.join(names)}"
        )
    ptx, shared, l2, processors = ARCHITECTURES[cpu]
    return Target(
        kind="cuda",
        name=f"{kind}:{cpu}",
        triple=TRIPLE,
        cpu=cpu,
        tune=f"{kind}:{cpu}",
        features=f"+ptx{ptx}",
        vector_bytes=16,
        vector_registers=REGISTERS,
        l1=shared * 1024,
        l2=l2 << 20,
        l3=0,
        threads=processors,
    )


def features_of(t: Target) -> int:
    """The number of an architecture: 80 for `sm_80`."""
    return int(t.cpu.removeprefix("sm_").rstrip("a"))


def module(text: str, t: Target) -> str:
    """A whole module of LLVM text: header, functions, attributes."""
    return (
        f'target datalayout = "{LAYOUT}"\ntarget triple = "{TRIPLE}"\n\n{text}\n'
        "attributes #0 = { nounwind }\n"
    )
