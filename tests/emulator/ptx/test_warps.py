"""Shuffles, votes, matches, reductions over a warp, elections and their members."""

from __future__ import annotations

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import entry, finding_of, on_lanes, right, thread

LANE = np.arange(32)
VALUES = np.random.default_rng(1).integers(0, 1 << 32, 32).astype(np.uint32)


def shuffled(mode: str, by: int, c: int) -> tuple[list[int], list[bool]]:
    """The pseudocode of the ISA."""
    values, flags = [], []
    for lane in range(32):
        segment, clamp = c >> 8 & 31, c & 31
        high = (lane & segment) | (clamp & ~segment & 31)
        low = lane & segment
        if mode == "up":
            j = lane - by
            p = j >= high
        elif mode == "down":
            j = lane + by
            p = j <= high
        elif mode == "bfly":
            j = lane ^ by
            p = j <= high
        else:
            j = low | (by & ~segment & 31)
            p = j <= high
        values.append(int(VALUES[j if p else lane]))
        flags.append(p)
    return values, flags


@pytest.mark.parametrize("width", [32, 16, 8, 2])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffle(mode: str, width: int) -> None:
    for by in (0, 1, 3, 8, 16, 31):
        c = (32 - width) << 8 | (0 if mode == "up" else 31)
        body = f"""shfl.sync.{mode}.b32 %d0|%p0, %a, {by}, {c}, 0xffffffff;
            selp.b32 %d1, 1, 0, %p0;"""
        value, flag = on_lanes(body, [VALUES], [np.uint32] * 2)
        wanted, fits = shuffled(mode, by, c)
        assert (value.tolist(), flag.astype(bool).tolist()) == (wanted, fits)


def test_sum_by_shuffles() -> None:
    steps = "".join(
        f"shfl.sync.bfly.b32 %t1, %d0, {s}, 31, -1; add.s32 %d0, %d0, %t1;"
        for s in (16, 8, 4, 2, 1)
    )
    a = np.arange(64, dtype=np.int32)
    found = on_lanes(f"mov.b32 %d0, %a; {steps}", [a], [np.int32])[0]
    np.testing.assert_array_equal(found, np.repeat(a.reshape(2, 32).sum(1), 32))


def test_shuffle_by_a_register() -> None:
    by = np.random.default_rng(2).integers(0, 32, 32).astype(np.uint32)
    found = on_lanes("shfl.sync.idx.b32 %d0, %a, %b, 31, -1;", [VALUES, by], [np.uint32])[0]
    np.testing.assert_array_equal(found, VALUES[by])


def test_votes() -> None:
    for p in (VALUES % 3 == 0, np.ones(32, bool), np.zeros(32, bool)):
        body = """setp.ne.s32 %p0, %a, 0;
            vote.sync.all.pred %p1, %p0, -1; vote.sync.any.pred %p2, %p0, -1;
            vote.sync.uni.pred %p3, %p0, -1; vote.sync.ballot.b32 %d3, %p0, -1;
            vote.sync.ballot.b32 %d4, !%p0, -1;
            selp.b32 %d0, 1, 0, %p1; selp.b32 %d1, 1, 0, %p2; selp.b32 %d2, 1, 0, %p3;"""
        found = on_lanes(body, [p.astype(np.uint32)], [np.uint32] * 5)
        bits = int((p.astype(np.int64) << LANE).sum())
        wanted = [p.all(), p.any(), p.all() or not p.any(), bits, bits ^ 0xFFFFFFFF]
        assert [set(f.tolist()) for f in found] == [{int(w)} for w in wanted]


def test_match() -> None:
    a = (VALUES % 5).astype(np.uint32)
    body = """match.any.sync.b32 %d0, %a, -1; match.all.sync.b32 %d1|%p0, %a, -1;
        selp.b32 %d2, 1, 0, %p0;"""
    each, every, agree = on_lanes(body, [a], [np.uint32] * 3)
    wanted = [int(((a == v).astype(np.int64) << LANE).sum()) for v in a]
    assert each.tolist() == wanted and not every.any() and not agree.any()
    _, every, agree = on_lanes(body, [np.full(32, 7, np.uint32)], [np.uint32] * 3)
    assert (every == 0xFFFFFFFF).all() and agree.all()


@pytest.mark.parametrize("form, wanted", [
    ("add.u32", int(VALUES.sum(dtype=np.uint32))), ("min.u32", int(VALUES.min())),
    ("max.u32", int(VALUES.max())), ("min.s32", int(VALUES.view(np.int32).min()) % 2**32),
    ("max.s32", int(VALUES.view(np.int32).max())), ("xor.b32", int(np.bitwise_xor.reduce(VALUES))),
    ("and.b32", int(np.bitwise_and.reduce(VALUES))), ("or.b32", int(np.bitwise_or.reduce(VALUES))),
])  # fmt: skip
def test_reductions(form: str, wanted: int) -> None:
    found = on_lanes(f"redux.sync.{form} %d0, %a, 0xffffffff;", [VALUES], [np.uint32])[0]
    assert (found == wanted).all()


def test_members_of_a_part() -> None:
    """Half a warp reduces among itself."""
    body = """setp.lt.u32 %p0, %i, 16; mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0;
        @!%p0 bra $E;
        redux.sync.add.u32 %d0, %a, 0xffff; vote.sync.ballot.b32 %d1, %p0, 0xffff;
        elect.sync %t1|%p1, 0xffff; selp.b32 %d2, 1, 0, %p1;
    $E:"""
    total, ballot, lead = on_lanes(body, [VALUES], [np.uint32] * 3)
    own = LANE < 16
    np.testing.assert_array_equal(total, np.where(own, VALUES[:16].sum(dtype=np.uint32), 0))
    np.testing.assert_array_equal(ballot, np.where(own, 0xFFFF, 0))
    np.testing.assert_array_equal(lead, LANE == 0)


def test_special_masks() -> None:
    body = "".join(
        f"mov.u32 %d{k}, %lanemask_{n};" for k, n in enumerate(("eq", "lt", "le", "gt", "ge"))
    )
    found = on_lanes(body, [VALUES], [np.uint32] * 5)
    bit = 1 << LANE.astype(np.int64)
    full = 0xFFFFFFFF
    wanted = [bit, bit - 1, 2 * bit - 1, full ^ (2 * bit - 1), full ^ (bit - 1)]
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(f, w)


SHUFFLE = "shfl.sync.bfly.b32 %r5, %r0, 1, 31, {};"


def kind(body: str, block: int = 32) -> str:
    text = entry(["a"], thread("a") + body)
    kinds = {
        finding_of(text, block=block, args=[np.zeros(64, np.int32)], seed=s).kind for s in range(5)
    }
    assert len(kinds) == 1
    return str(kinds.pop())


def test_members_that_are_not_there() -> None:
    part = "setp.lt.s32 %p1, %r0, 16; @!%p1 bra $E; {} $E:"
    assert kind(part.format(SHUFFLE.format("-1"))) == "convergence"
    right(entry(["a"], thread("a") + part.format(SHUFFLE.format("0xffff"))), block=32,
          args=[np.zeros(64, np.int32)])  # fmt: skip
    # of those that run it, some are not in the mask
    assert kind(SHUFFLE.format("0xffff")) == "convergence"
    assert kind("setp.lt.s32 %p1, %r0, 16; @%p1 bar.warp.sync -1;") == "convergence"


def test_values_of_lanes_that_do_not_run() -> None:
    body = "setp.lt.s32 %p1, %r0, 16; @%p1 shfl.sync.bfly.b32 %r5, %r0, 16, 31, 0xffff;"
    text = entry(["a"], thread("a") + body)
    found = finding_of(text, block=32, args=[np.zeros(64, np.int32)])
    assert found.kind == "convergence" and "takes a value from lane 16" in found.message


def test_lanes_that_ended_are_no_members() -> None:
    body = "setp.ge.s32 %p1, %r0, 16; @%p1 ret; shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1; " \
           "st.global.b32 [%rd1], %r5;"  # fmt: skip
    given = [np.zeros(64, np.int32)]
    right(entry(["a"], thread("a") + body), block=32, args=given)
    np.testing.assert_array_equal(given[0][:16], np.arange(16) ^ 1)


def test_different_members_of_one_result() -> None:
    masks = np.where(LANE < 16, 0xFFFF, 0xFFFF0000).astype(np.uint32)
    with pytest.raises(UnsupportedError, match="name different members"):
        on_lanes("redux.sync.add.u32 %d0, %a, %b;", [VALUES, masks], [np.uint32])
    found = on_lanes("shfl.sync.bfly.b32 %d0, %a, 8, 31, %b;", [VALUES, masks], [np.uint32])[0]
    np.testing.assert_array_equal(found, VALUES[LANE ^ 8])


@pytest.mark.parametrize("line", [
    "shfl.bfly.b32 %r1, %r1, 1, 31", "vote.all.pred %p1, %p1", "redux.sync.add.f32 %r1, %r1, -1",
])  # fmt: skip
def test_other_forms_are_refused(line: str) -> None:
    with pytest.raises(UnsupportedError, match="PTX line"):
        run(entry([], line + ";"), block=32)
