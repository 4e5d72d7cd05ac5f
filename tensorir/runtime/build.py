"""From a schedule to a callable kernel: lower, emit, compile, link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorir.codegen import targets, work
from tensorir.codegen.emit import emit
from tensorir.codegen.launch import emit_launches
from tensorir.codegen.module import IndexCheck
from tensorir.codegen.source import KernelSource
from tensorir.ir.statement import Array
from tensorir.ir.target import Target
from tensorir.ir.tensor import Tensor
from tensorir.lower.launches import lower_launches
from tensorir.lower.pipeline import Lowered, lower
from tensorir.runtime.cuda_kernel import make_cuda_kernel
from tensorir.runtime.kernel import Kernel, make_kernel
from tensorir.schedule.schedule import Schedule, schedule
from tensorir.support.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from tensorir.support.knobs import knobs
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

INDEX_CHECKS: tuple[IndexCheck, ...] = ("raise", "clamp", "off")


@user_api
def build(
    what: Schedule | Tensor,
    *,
    target: str | Target | None = None,
    args: Sequence[Tensor | str] | None = None,
    validate: bool | None = None,
    checked: bool | None = None,
    index_check: str | None = None,
) -> Kernel:
    """Compile a schedule into a kernel.

    Parameters
    ----------
    what
        A schedule; a tensor alone is compiled in the order of its declaration.
    target
        `"native"` (the default), a named processor such as `"x86-64-v3"` or `"znver4"`, or a
        :class:`Target`. A kernel for another processor can be read, not run. `"cuda:sm_90"` for a
        GPU; `"emulator"` for the same code (`"emulator:sm_90"`), run and checked on this machine.
    args
        The order of the arguments, tensors or their names in the schedule. Default: inputs as they
        first appear, then outputs.
    validate
        Enumerate the final loops and check that every instance runs once, in an order that keeps
        every dependence, within every array.
    checked
        Raise on division by zero and on shifts by the width or more.
    index_check
        For an index that is loaded: `"raise"` (default), `"clamp"` it, or `"off"`.

    Returns
    -------
    Kernel
        Call it with arrays; see `.loops`, `.llvm`, `.asm`, `.check`, `.time`, `.save`.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        For an argument that is not one of these; `args` must name each input and output once.

    Examples
    --------
    >>> import numpy as np, tensorir as tir
    >>> A = tir.placeholder((4,), name="A")
    >>> f = tir.build(tir.schedule(tir.compute((4,), lambda i: A[i] * 2.0, name="B")))
    >>> f(np.arange(4, dtype="float32"))
    array([0., 2., 4., 6.], dtype=float32)
    """
    s = _as_schedule(what)
    wanted = knobs.index_check if index_check is None else index_check
    check = next((c for c in INDEX_CHECKS if isinstance(wanted, str) and c == wanted), None)
    if check is None:
        raise ArgumentError(
            f"index_check={wanted!r:.60}: expected one of {', '.join(map(repr, INDEX_CHECKS))}"
        )
    for name, flag in (("validate", validate), ("checked", checked)):
        if flag is not None and not isinstance(flag, bool):
            raise ArgumentTypeError(f"{name}={flag!r}: expected True or False")
    where = targets.resolve(target)
    chosen = knobs.checked if checked is None else checked
    if where.kind == "cuda":
        if validate:
            raise UnsupportedError(
                "validate=True enumerates the loops of a processor; for CUDA there is none yet",
                details='  try  target="emulator", which checks the code itself when it runs',
            )
        return _for_cuda(s, where, args, chosen, check)
    _require_cpu_memory(s)
    lowered = lower(s.program, where, arguments=_arguments(s, args))
    if knobs.validate if validate is None else validate:
        from tensorir.emulator.validate import require_valid

        require_valid(s, lowered, where)
    source = source_of(
        lowered, where, checked=knobs.checked if checked is None else checked, index_check=check
    )
    # what was declared counts: computing a cell again is no more work done
    declared = work.operations(s.at(0).program)
    return make_kernel(replace(source, operations=declared), schedule=s)


def _for_cuda(
    s: Schedule,
    target: Target,
    args: Sequence[Tensor | str] | None,
    checked: bool,
    check: IndexCheck,
) -> Kernel:
    visible = tuple(a for a in s.program.arrays if a.role != "temp")
    arguments = _arguments(s, args) or visible
    launches, scratch = lower_launches(s.program, target, arguments)
    source = emit_launches(
        s.program, launches, scratch, arguments, target,
        name=_symbol(arguments), checked=checked, index_check=check,
    )  # fmt: skip
    declared = work.operations(s.at(0).program)
    return make_cuda_kernel(replace(source, operations=declared), schedule=s)


def _require_cpu_memory(s: Schedule) -> None:
    for array, buffer in s.program.buffers.items():
        if buffer.scope == "shared":
            raise UnsupportedError(
                f"{array.name} is in shared memory, which this target does not have",
                details=f'  try  s.set_scope("{array.name}", "local")\n'
                '  try  target="cuda", or "emulator"',
            )


def source_of(
    lowered: Lowered,
    target: Target,
    *,
    checked: bool = False,
    index_check: IndexCheck = "raise",
) -> KernelSource:
    """The LLVM text of lowered loops, named after the first output."""
    name = _symbol(lowered.arguments)
    return emit(lowered, target, name=name, checked=checked, index_check=index_check)


def _symbol(arguments: Sequence[Array]) -> str:
    output = next(a for a in arguments if a.role == "output")
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in output.name) or "kernel"
    return f"tir_{name}"


def _as_schedule(what: object) -> Schedule:
    if isinstance(what, Schedule):
        return what
    if isinstance(what, Tensor):
        return schedule(what)
    raise ArgumentTypeError(
        f"build: expected a schedule or a tensor, got {type(what).__name__} {what!r:.60}; make one "
        "with tir.schedule(tensor)"
    )


def _arguments(s: Schedule, args: Sequence[Tensor | str] | None) -> tuple[Array, ...] | None:
    """The arrays that `args` names, in its order; None for the default order."""
    if args is None:
        return None
    if not isinstance(args, list | tuple):
        raise ArgumentTypeError(f"args={args!r:.60}: expected a list of tensors")
    visible = [a for a in s.program.arrays if a.role != "temp"]
    by_name = {a.name: a for a in visible}
    chosen: list[Array] = []
    for t in args:
        name = t.name if isinstance(t, Tensor) else t
        if not isinstance(name, str) or name not in by_name:
            known = ", ".join(by_name)
            raise ArgumentError(
                f"args: {name!r:.60} is neither an input nor an output of this schedule"
                f"{hint(str(name), by_name)}; there are {known}"
            )
        if by_name[name] in chosen:
            raise ArgumentError(f"args: {name!r} is given twice")
        chosen.append(by_name[name])
    missing = [a.name for a in visible if a not in chosen]
    if missing:
        raise ArgumentError(f"args: {', '.join(missing)} missing; each array is given once")
    return tuple(chosen)
