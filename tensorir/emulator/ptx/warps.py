"""Instructions of a whole warp: shuffles, votes, matches, reductions, elections, ldmatrix, mma."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensorir.emulator.ptx.lanes import WARP, Array, Mask, Micro, Selection, unsupported
from tensorir.emulator.ptx.text import Instruction, Not, Operand, Pair, Vec

if TYPE_CHECKING:
    from tensorir.emulator.ptx.launch import Launch

_LANE = np.arange(WARP)
_ALL = np.uint32(0xFFFFFFFF)


def members(launch: Launch, o: Operand, x: Instruction, *, one: bool = False) -> Any:
    """How the member mask of an instruction is checked: its lanes must be there or have ended.

    Gives a function of selection and mask that returns the members, shape (warps, 32). Lanes of a
    warp may name different members, unless there is `one` result of them all.
    """
    read = launch.lanes.read(o, "b32", x)

    def check(sel: Selection, act: Mask) -> Array:
        lanes = launch.lane_numbers[sel]
        value = np.asarray(read(sel), np.uint32)
        here = launch.living[sel] if act is None else act
        if (value == _ALL).all() and here.all():
            return here
        mask = np.broadcast_to(value, lanes.shape)
        bits = (mask[:, :, None] >> _LANE.astype(np.uint32)) & np.uint32(1)
        named: Array = bits.astype(np.bool_)
        first: Array = here.argmax(1)
        member = named[np.arange(len(lanes)), first]
        if one and (here & (named != member[:, None, :]).any(2)).any():
            raise unsupported(x, "lanes of a warp that name different members are not run")
        absent = here.any(1, keepdims=True) & member & ~here & launch.living[sel]
        if absent.any():
            w, lane = np.argwhere(absent)[0]
            launch.fault(
                "convergence",
                f"{x.opcode} names {launch.lane_text(int(lanes[w, lane]))} as a member, "
                "which is not there",
                x,
                int(lanes[w, first[w]]),
            )
        outside = here & ~np.take_along_axis(named, _LANE[None, :, None], 2)[:, :, 0]
        if outside.any():
            w, lane = np.argwhere(outside)[0]
            launch.fault(
                "convergence",
                f"{launch.lane_text(int(lanes[w, lane]))} runs {x.opcode} and is not in its mask",
                x,
                int(lanes[w, lane]),
            )
        return np.asarray(member)

    return check


def build_shuffle(launch: Launch, x: Instruction) -> Micro:
    """`shfl.sync`: up, down, bfly, idx."""
    if len(x.words) != 4 or x.words[1] != "sync":
        raise unsupported(x)
    mode = x.words[2]
    to = x.operands[0]
    first, flag = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    put = launch.lanes.write(first, "b32", x)
    put_flag = launch.lanes.write(flag, "pred", x) if flag is not None else None
    value, by, clamp = (launch.lanes.read(o, "u32", x) for o in x.operands[1:4])
    check = members(launch, x.operands[4], x)

    def shuffle(sel: Selection, act: Mask) -> None:
        check(sel, act)
        shape = launch.lane_numbers[sel].shape
        v, b, c = (np.broadcast_to(r(sel), shape).astype(np.int64) for r in (value, by, clamp))
        segment = (c >> 8) & 31
        limit = c & 31
        highest = (_LANE & segment) | (limit & ~segment)
        lowest = _LANE & segment
        b = b & 31
        if mode == "up":
            source = _LANE - b
            fits = source >= highest
        elif mode == "down":
            source = _LANE + b
            fits = source <= highest
        elif mode == "bfly":
            source = _LANE ^ b
            fits = source <= highest
        elif mode == "idx":
            source = lowest | (b & ~segment)
            fits = source <= highest
        else:
            raise unsupported(x)
        source = np.where(fits, source, _LANE)
        here = launch.living[sel] if act is None else act
        reached = np.take_along_axis(here, source, 1)
        wrong = here & ~reached
        if wrong.any():
            w, lane = np.argwhere(wrong)[0]
            numbers = launch.lane_numbers[sel]
            launch.fault(
                "convergence",
                f"{launch.lane_text(int(numbers[w, lane]))} takes a value from lane "
                f"{int(source[w, lane])}, which does not run the {x.opcode}",
                x,
                int(numbers[w, lane]),
            )
        put(sel, act, np.take_along_axis(v, source, 1).astype(np.uint32))
        if put_flag is not None:
            put_flag(sel, act, fits)

    return shuffle


def build_vote(launch: Launch, x: Instruction) -> Micro:
    """`vote.sync`: all, any, uni, ballot."""
    mode = x.words[2] if len(x.words) == 4 and x.words[1] == "sync" else ""
    if mode not in ("all", "any", "uni", "ballot"):
        raise unsupported(x)
    given = x.operands[1]
    negated = isinstance(given, Not)
    read = launch.lanes.read(given.reg if isinstance(given, Not) else given, "pred", x)
    put = launch.lanes.write(x.operands[0], "b32" if mode == "ballot" else "pred", x)
    check = members(launch, x.operands[2], x, one=True)

    def vote(sel: Selection, act: Mask) -> None:
        member = check(sel, act)
        shape = launch.lane_numbers[sel].shape
        p = np.broadcast_to(read(sel), shape)
        p = ~p if negated else p
        here = member & (launch.living[sel] if act is None else act)
        if mode == "ballot":
            bits = ((p & here) << _LANE.astype(np.int64)).sum(1).astype(np.uint32)
            put(sel, act, np.broadcast_to(bits[:, None], shape))
            return
        every, some = (p | ~here).all(1), (p & here).any(1)
        out = {"all": every, "any": some, "uni": every | ~some}[mode]
        put(sel, act, np.broadcast_to(out[:, None], shape))

    return vote


def build_match(launch: Launch, x: Instruction) -> Micro:
    """`match.any.sync` and `match.all.sync`."""
    mode, word = x.words[1], x.words[-1]
    to = x.operands[0]
    first, flag = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    put = launch.lanes.write(first, "b32", x)
    put_flag = launch.lanes.write(flag, "pred", x) if flag is not None else None
    read = launch.lanes.read(x.operands[1], word, x)
    check = members(launch, x.operands[2], x, one=True)

    def match(sel: Selection, act: Mask) -> None:
        member = check(sel, act)
        shape = launch.lane_numbers[sel].shape
        v = np.broadcast_to(read(sel), shape)
        here = member & (launch.living[sel] if act is None else act)
        same = (v[:, :, None] == v[:, None, :]) & here[:, None, :]
        bits = (same << _LANE.astype(np.int64)).sum(2).astype(np.uint32)
        if mode == "all":
            every = np.broadcast_to(here[:, None, :], same.shape)
            agree = (same == every).all(2)
            bits = np.where(agree, bits, np.uint32(0))
            if put_flag is not None:
                put_flag(sel, act, agree)
        put(sel, act, bits)

    return match


def build_redux(launch: Launch, x: Instruction) -> Micro:
    """`redux.sync`: a reduction over the members."""
    operation, word = x.words[2], x.words[-1]
    named: dict[str, tuple[Any, int]] = {
        "add": (np.add, 0), "and": (np.bitwise_and, -1), "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0), "min": (np.minimum, 0), "max": (np.maximum, 0),
    }  # fmt: skip
    if operation not in named or word not in ("s32", "u32", "b32"):
        raise unsupported(x)
    function, neutral = named[operation]
    read = launch.lanes.read(x.operands[1], word, x)
    put = launch.lanes.write(x.operands[0], word, x)
    check = members(launch, x.operands[2], x, one=True)

    def reduce(sel: Selection, act: Mask) -> None:
        member = check(sel, act)
        shape = launch.lane_numbers[sel].shape
        v = np.broadcast_to(read(sel), shape)
        here = member & (launch.living[sel] if act is None else act)
        start = np.asarray(neutral).astype(v.dtype)
        if operation in ("min", "max"):
            info = np.iinfo(v.dtype)
            start = v.dtype.type(info.max if operation == "min" else info.min)
        out = function.reduce(np.where(here, v, start), axis=1).astype(v.dtype)
        put(sel, act, np.broadcast_to(out[:, None], shape))

    return reduce


def build_elect(launch: Launch, x: Instruction) -> Micro:
    """`elect.sync`: the lowest member leads."""
    to = x.operands[0]
    if not isinstance(to, Pair):
        raise unsupported(x)
    put, put_flag = launch.lanes.write(to.first, "b32", x), launch.lanes.write(to.second, "pred", x)
    check = members(launch, x.operands[1], x)

    def elect(sel: Selection, act: Mask) -> None:
        member = check(sel, act)
        lead = member.argmax(1)[:, None]
        put(sel, act, np.broadcast_to(lead, member.shape).astype(np.uint32))
        put_flag(sel, act, lead == _LANE)

    return elect


def build_active(launch: Launch, x: Instruction) -> Micro:
    """`activemask.b32`."""
    put = launch.lanes.write(x.operands[0], "b32", x)

    def active(sel: Selection, act: Mask) -> None:
        here = launch.living[sel] if act is None else act
        bits = (here << _LANE.astype(np.int64)).sum(1).astype(np.uint32)
        put(sel, act, np.broadcast_to(bits[:, None], here.shape))

    return active


def build_warp_barrier(launch: Launch, x: Instruction) -> Micro:
    """`bar.warp.sync`: the members' accesses before are ordered with those after."""
    check = members(launch, x.operands[0], x)

    def wait(sel: Selection, act: Mask) -> None:
        check(sel, act)
        launch.later(sel)

    return wait


def whole_warp(launch: Launch, x: Instruction, sel: Selection, act: Mask) -> None:
    """Refuse an aligned instruction that some lanes of a warp do not run."""
    lanes = launch.lane_numbers[sel]
    here = launch.living[sel] if act is None else act
    if here.all():
        return
    w, lane = np.argwhere(~here)[0]
    launch.fault(
        "convergence",
        f"{x.opcode} needs all lanes of a warp; lane {int(lane)} does not run it",
        x,
        int(lanes[w, int(here[w].argmax())]),
    )


def registers(o: Operand) -> tuple[Operand, ...]:
    """The registers of a fragment: a vector's, or the one."""
    return o.items if isinstance(o, Vec) else (o,)
