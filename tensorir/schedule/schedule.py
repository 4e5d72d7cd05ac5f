"""The schedule: a program, the step that led to it, and the primitives as methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tensorir.ir.expr import Axis
from tensorir.ir.tensor import Tensor
from tensorir.poly import declare, tree
from tensorir.poly.model import Program
from tensorir.schedule import (
    affine_ops,
    apart_ops,
    bank_ops,
    bind_ops,
    consumer_ops,
    cross_ops,
    hint_ops,
    loop_ops,
    memory_ops,
    nest_ops,
    online_ops,
    operand_ops,
    parallel_ops,
    pipeline_ops,
    placement_ops,
    range_ops,
    reduce_ops,
    resolve,
    scatter_ops,
    shuffle_ops,
    specialize_ops,
    storage_ops,
    tensorize_ops,
    text,
)
from tensorir.schedule import trace as traces
from tensorir.schedule.explain import Legality
from tensorir.schedule.primitive import PRIMITIVES, Step
from tensorir.support import display
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    IllegalSchedule,
    ScheduleError,
    UnsupportedError,
    full_text,
)
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

__all__ = ["Schedule", "schedule"]


LATER = (
    "annotate", "expand", "privatise", "scalar_replace",
    "legal_moves",
)  # fmt: skip


class UnknownPrimitive(ScheduleError, AttributeError):
    """A schedule was asked for a primitive that it does not have."""


class Schedule:
    """How a computation runs: its loops, their order, what is kept where. Never changes.

    Each primitive is a method that returns a new schedule and leaves this one as it is. A step
    that would change the result is refused with the two instances that show it.

    Attributes
    ----------
    program : Program
        Statements, loops, buffers.
    outputs : tuple of Tensor
        What is computed.
    parent : Schedule or None
        The schedule before the last step.
    step : Step or None
        The last step.
    """

    __slots__ = ("program", "outputs", "parent", "step", "__weakref__")
    program: Program
    outputs: tuple[Tensor, ...]
    parent: Schedule | None
    step: Step | None

    def __init__(
        self,
        program: Program,
        outputs: tuple[Tensor, ...],
        parent: Schedule | None = None,
        step: Step | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "program", program)
        put(self, "outputs", outputs)
        put(self, "parent", parent)
        put(self, "step", step)

    def __setattr__(self, name: str, value: object) -> None:
        resolve.fail(
            f"a schedule cannot be changed: {name!r} was assigned to",
            why="each primitive returns a new schedule, as in s = s.split('i', 8).",
            cls=ArgumentError,
        )

    def __delattr__(self, name: str) -> None:
        resolve.fail(f"a schedule cannot be changed: {name!r} was deleted", cls=ArgumentError)

    def __copy__(self) -> Schedule:
        return self

    def __deepcopy__(self, memo: object) -> Schedule:
        return self

    def __reduce__(self) -> NoReturn:
        resolve.fail(
            "schedules are not pickled",
            why="declare the computation again, and replay its steps: "
            "tir.replay(s, tir.Trace.from_json(text)), where text is s.trace.to_json().",
            cls=UnsupportedError,
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in LATER:
            raise UnknownPrimitive(f"a schedule has no primitive {name!r} yet")
        known = [n for n in dir(Schedule) if not n.startswith("_")]
        raise UnknownPrimitive(f"a schedule has no primitive {name!r}{hint(name, known)}")

    # -- loops
    split = loop_ops.split
    tile = nest_ops.tile
    fuse = loop_ops.fuse
    reorder = nest_ops.reorder
    fission = apart_ops.fission
    merge = apart_ops.merge
    partition = range_ops.partition
    peel = range_ops.peel
    reverse = affine_ops.reverse
    shift = affine_ops.shift
    skew = affine_ops.skew
    # -- how a loop runs
    unroll = parallel_ops.unroll
    unroll_and_jam = apart_ops.unroll_and_jam
    vectorize = parallel_ops.vectorize
    parallel = parallel_ops.parallel
    bind = bind_ops.bind
    cross_thread = cross_ops.cross_thread
    transpose_lanes = shuffle_ops.transpose_lanes
    # -- where a stage is computed
    compute_at = placement_ops.compute_at
    compute_inline = placement_ops.compute_inline
    compute_root = placement_ops.compute_root
    reverse_compute_at = consumer_ops.reverse_compute_at
    decompose_reduction = reduce_ops.decompose_reduction
    init_at = reduce_ops.init_at
    # -- memory
    cache_read = memory_ops.cache_read
    cache_write = memory_ops.cache_write
    transform_layout = memory_ops.transform_layout
    set_scope = memory_ops.set_scope
    reuse = storage_ops.reuse
    non_temporal = hint_ops.non_temporal
    prefetch = hint_ops.prefetch
    pipeline = pipeline_ops.pipeline
    double_buffer = pipeline_ops.double_buffer
    pad = bank_ops.pad
    storage_align = bank_ops.storage_align
    swizzle = bank_ops.swizzle
    # -- reductions
    rfactor = reduce_ops.rfactor
    vector_reduce = reduce_ops.vector_reduce
    online = online_ops.online
    atomic = storage_ops.atomic
    scatter = scatter_ops.scatter
    # -- instructions
    retype = operand_ops.retype
    pad_reduction = operand_ops.pad_reduction
    tensorize = tensorize_ops.tensorize

    # -- for some sizes
    specialize = specialize_ops.specialize

    # -- steps
    @property
    def next_number(self) -> int:
        """The number of the step that comes next."""
        return self.step.number + 1 if self.step is not None else 1

    def then(self, program: Program, step: Step) -> Schedule:
        """The schedule after one more step."""
        return Schedule(program, self.outputs, self, step)

    @property
    def trace(self) -> traces.Trace:
        """The steps that led here, numbered, each with the line that asked for it."""
        return traces.of(self)

    @user_api
    def undo(self, steps: int = 1) -> Schedule:
        """The schedule as it was `steps` steps ago.

        Raises
        ------
        ScheduleError
            There were not that many steps.
        """
        number = resolve.positive(steps, "steps", primitive="undo")
        have = self.next_number - 1
        if number > have:
            resolve.fail(f"undo: cannot go back by {number}: steps made: {have}")
        return self.at(have - number)

    @user_api
    def at(self, number: int) -> Schedule:
        """The schedule after step `number`; 0 is the declaration's own order."""
        have = self.next_number - 1
        if isinstance(number, bool) or not isinstance(number, int):
            resolve.fail(
                f"at: the number of a step is an integer, not {number!r:.60}",
                cls=ArgumentTypeError,
            )
        if not 0 <= number <= have:
            resolve.fail(f"at: no step {number}; the steps are 0 to {have}")
        s: Schedule = self
        while s.next_number - 1 > number:
            assert s.parent is not None
            s = s.parent
        return s

    # -- questions
    @user_api
    def check(self, primitive: str, *args: Any, **kwargs: Any) -> Legality:
        """Whether a step is allowed, as a verdict that is true or false; nothing is raised.

        Examples
        --------
        >>> import tensorir as tir
        >>> A = tir.placeholder((8, 8), name="A")
        >>> B = tir.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="B")
        >>> s = tir.schedule(B)
        >>> bool(s.check("reorder", "j", "i"))
        True
        """
        apply = _primitive(primitive)
        try:
            after = apply(self, *args, **kwargs)
        except IllegalSchedule as error:
            return Legality(
                False, str(error), error.witness, error.suggestions, text=full_text(error)
            )
        except (ArgumentError, ArgumentTypeError, UnsupportedError) as error:
            return Legality(False, str(error), text=full_text(error))
        made = [x.step for x in _between(self, after)]
        return Legality(True, reassociates=any(x is not None and x.reassociates for x in made))

    @user_api
    def explain(self, primitive: str, *args: Any, **kwargs: Any) -> str:
        """What a step would do, or why it is refused: the sentence, the instances, the loops."""
        apply = _primitive(primitive)
        try:
            after = apply(self, *args, **kwargs)
        except IllegalSchedule as error:
            return display.Text(full_text(error))
        except (ArgumentError, ArgumentTypeError, UnsupportedError) as error:
            return display.Text(full_text(error))
        return display.Text(text.accepted(self, after))

    @user_api
    def diff(self, other: Schedule | None = None) -> str:
        """What changed in the loops: since the last step, or from `other` to this."""
        if other is None:
            other = self.parent if self.parent is not None else self
        if not isinstance(other, Schedule):
            resolve.fail(
                f"diff: another schedule is needed, not {other!r:.60}", cls=ArgumentTypeError
            )
        return text.diff(other, self)

    @user_api
    def loops(self) -> str:
        """The loop nest as text, with exact bounds."""
        return display.Text(text.loops(self.program))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of all loops, outer before inner."""
        return tuple(x.axis for x in tree.loops(self.program.tree))

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in the order in which they run."""
        return tuple(resolve.stages(self.program))

    # -- showing
    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.html(self)

    def _reproducer_(self) -> str:
        return f"{self.trace}\n\n{text.loops(self.program)}"


def _primitive(name: object) -> Callable[..., Schedule]:
    if not isinstance(name, str):
        raise Message(f"a primitive is named by a string, not {name!r:.60}", caller()).error(
            ArgumentTypeError
        )
    if name in LATER:
        raise Message(f"a schedule has no primitive {name!r} yet", caller()).error(UnknownPrimitive)
    if name not in PRIMITIVES:
        raise Message(f"there is no primitive {name!r}{hint(name, PRIMITIVES)}", caller()).error(
            ScheduleError
        )
    return PRIMITIVES[name]


def _between(first: Schedule, last: Schedule) -> list[Schedule]:
    """The schedules after `first`, up to `last`."""
    out = []
    s: Schedule | None = last
    while s is not None and s is not first:
        out.append(s)
        s = s.parent
    return out[::-1]


@user_api
def schedule(*tensors: Tensor) -> Schedule:
    """The schedule of a computation, at first in the order of its declaration.

    Parameters
    ----------
    *tensors : Tensor
        The outputs; everything that they need belongs to the schedule.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        No tensor was given, or something else was, or one that nothing computes.

    Examples
    --------
    >>> import tensorir as tir
    >>> A = tir.placeholder((4, 8), name="A")
    >>> B = tir.compute((4, 8), lambda i, j: A[i, j] * 2.0, name="B")
    >>> print(tir.schedule(B).loops())
    for i in 0..4
      for j in 0..8
        B[i, j] = A[i, j] * 2.0
    """
    if not tensors:
        raise Message("schedule: give it at least one tensor to compute", caller()).error(
            ArgumentError
        )
    for t in tensors:
        if not isinstance(t, Tensor):
            raise Message(
                f"schedule: expected tensors, not {type(t).__name__} {t!r:.60}", caller()
            ).error(ArgumentTypeError)
        if t.op is None:
            raise Message(f"schedule: {t.name!r} is an input, nothing computes it", caller()).error(
                ArgumentError
            )
    return Schedule(declare.program(tensors), tensors)


display.register(Schedule, text=lambda s: text.loops(s.program))
