"""Barriers: missing ones, divergent ones, threads that ended, deadlock."""

from __future__ import annotations

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import entry, finding_of, right, thread

SHARED = ".shared .align 16 .b8 s[1024];"
PLACE = "mov.u32 %r2, s; shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3;"


def kernel(middle: str, block: int = 64) -> str:
    """Every thread writes its word of s, and reads that of the last thread's mirror."""
    return entry(
        ["a"],
        thread("a")
        + f"""{SHARED} {PLACE}
        st.shared.b32 [%r4], %r0;
        {middle}
        sub.s32 %r5, {block - 1}, %r0; shl.b32 %r5, %r5, 2; add.s32 %r5, %r2, %r5;
        ld.shared.b32 %r6, [%r5]; st.global.b32 [%rd1], %r6;""",
    )


def arguments(block: int = 64) -> list[np.ndarray]:
    return [np.zeros(block, np.int32)]


@pytest.mark.parametrize("text", [
    "bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0;", "barrier.cta.sync.aligned.all 0;",
    "bar.sync 3, 64;", "bar.sync 0; bar.sync 1;",
])  # fmt: skip
def test_kinds_of_barriers(text: str) -> None:
    args = arguments()
    right(kernel(text), block=64, args=args)
    np.testing.assert_array_equal(args[0], np.arange(63, -1, -1))


def test_missing() -> None:
    for seed in range(20):
        found = finding_of(kernel(""), block=64, args=arguments(), seed=seed)
        assert found.kind in ("race", "unwritten") and "s at byte" in found.message


def test_under_a_branch_within_a_warp() -> None:
    text = kernel("setp.lt.s32 %p1, %r0, 40; @!%p1 bra $N; bar.sync 0; $N:")
    for seed in range(20):
        found = finding_of(text, block=64, args=arguments(), seed=seed)
        assert found.kind == "barrier" and "control is not uniform there" in found.message
    found = finding_of(
        kernel("setp.lt.s32 %p1, %r0, 40; @%p1 bar.sync 0;"), block=64, args=arguments()
    )
    assert found.kind == "barrier" and found.thread == (40, 0, 0)


def test_under_a_branch_between_warps() -> None:
    text = kernel("setp.lt.s32 %p1, %r0, 32; @!%p1 bra $N; bar.sync 0; $N:")
    for seed in range(20):
        found = finding_of(text, block=64, args=arguments(), seed=seed)
        assert found.kind in ("barrier", "race", "unwritten")


def test_threads_that_ended() -> None:
    text = kernel("setp.ge.s32 %p1, %r0, 32; @%p1 ret; bar.sync 0;")
    found = finding_of(text, block=64, args=arguments())
    assert found.kind == "barrier"
    assert "32 of 64 threads of the block have ended, the others wait" in found.message
    text = kernel("setp.ge.s32 %p1, %r0, 50; @%p1 ret; bar.sync 0;")
    found = finding_of(text, block=64, args=arguments())
    assert found.kind == "barrier" and "14 of 64" in found.message


def test_two_barriers_at_once() -> None:
    text = kernel("""setp.lt.s32 %p1, %r0, 32; @%p1 bra $A;
        bar.sync 0; bar.sync 1; bra $B;
    $A: bar.sync 1; bar.sync 0; $B:""")
    for seed in range(20):
        found = finding_of(text, block=64, args=arguments(), seed=seed)
        assert found.kind == "deadlock"
        assert "barrier 0 at line" in found.message and "barrier 1 at line" in found.message


def test_two_places_of_one_barrier() -> None:
    """The hardware counts arrivals at a barrier, wherever they are."""
    text = kernel("""setp.lt.s32 %p1, %r0, 32; @%p1 bra $A;
        bar.sync 0; bra $B;
    $A: bar.sync 0; $B:""")
    right(text, block=64, args=arguments())


def test_trips_that_differ_between_warps() -> None:
    text = kernel("""shr.u32 %r7, %r0, 5; mov.b32 %r8, 0;
    $L: bar.sync 0; add.s32 %r8, %r8, 1; setp.le.s32 %p1, %r8, %r7; @%p1 bra $L;""")
    for seed in range(20):
        assert finding_of(text, block=64, args=arguments(), seed=seed).kind == "barrier"


def test_the_back_edge_of_a_loop() -> None:
    """A tile is read, and written anew in the next round: a barrier stands on both sides."""
    body = """{shared} {place} mov.b32 %r8, 0; mov.b32 %r9, 0;
    $L: add.s32 %r6, %r8, %r0; st.shared.b32 [%r4], %r6;
        bar.sync 0;
        xor.b32 %r5, %r3, 128; add.s32 %r5, %r2, %r5; ld.shared.b32 %r7, [%r5];
        add.s32 %r9, %r9, %r7; {last}
        add.s32 %r8, %r8, 1; setp.lt.s32 %p1, %r8, 5; @%p1 bra $L;
        st.global.b32 [%rd1], %r9;"""
    names = {"shared": SHARED, "place": PLACE}
    args = arguments()
    text = entry(["a"], thread("a") + body.format(last="bar.sync 0;", **names))
    right(text, block=64, args=args)
    np.testing.assert_array_equal(args[0], 10 + 5 * (np.arange(64) ^ 32))
    text = entry(["a"], thread("a") + body.format(last="", **names))
    for seed in range(20):
        found = finding_of(text, block=64, args=arguments(), seed=seed)
        assert found.kind == "race"


def test_blocks_wait_for_their_own() -> None:
    args = [np.zeros(64, np.int32)]
    text = kernel("bar.sync 0;").replace("st.global.b32 [%rd1]", "red.global.add.s32 [%rd1]")
    right(text, grid=37, block=64, args=args)
    np.testing.assert_array_equal(args[0], 37 * np.arange(63, -1, -1))


@pytest.mark.parametrize("line", [
    "bar.arrive 0, 64", "bar.red.popc.u32 %r1, 0, %p1", "bar.sync %r1", "bar.sync 0, 32",
])  # fmt: skip
def test_other_barriers_are_refused(line: str) -> None:
    with pytest.raises(UnsupportedError, match=line.split()[0]):
        run(entry([], line + ";"), block=64)
