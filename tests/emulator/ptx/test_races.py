"""Races, memory never written, accesses out of bounds and misaligned."""

from __future__ import annotations

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tests.emulator.ptx.kernels import entry, finding_of, right, thread

SHARED = ".shared .align 16 .b8 s[256]; mov.u32 %r2, s; shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3;"
MIRROR = "xor.b32 %r5, %r3, 124; add.s32 %r5, %r2, %r5;"


def text(body: str) -> str:
    return entry(["a"], thread("a") + body)


def args(count: int = 64) -> list[np.ndarray]:
    return [np.zeros(count, np.int32)]


def kinds(body: str, block: int = 64, grid: int = 1, seeds: int = 20) -> set[str]:
    return {
        finding_of(text(body), grid=grid, block=block, args=args(), seed=s).kind
        for s in range(seeds)
    }


@pytest.mark.parametrize("order, block", [
    ("bar.warp.sync 0xffffffff;", 32), ("bar.warp.sync -1;", 64), ("bar.sync 0;", 64),
])  # fmt: skip
def test_two_lanes_of_a_warp(order: str, block: int) -> None:
    """One warp writes and reads what another of its lanes wrote: only a synchronisation orders."""
    body = SHARED + MIRROR + "st.shared.b32 [%r4], %r0; {} ld.shared.b32 %r6, [%r5];"
    given = args(block)
    right(text((body + "st.global.b32 [%rd1], %r6;").format(order)), block=block, args=given)
    np.testing.assert_array_equal(given[0], np.arange(block) ^ 31)
    assert kinds(body.format(""), block) == {"race"}


def test_a_read_before_a_write() -> None:
    body = (
        SHARED
        + MIRROR
        + """
        st.shared.b32 [%r4], %r0; bar.warp.sync -1;
        ld.shared.b32 %r6, [%r5]; {} st.shared.b32 [%r4], %r6;"""
    )
    right(text(body.format("bar.warp.sync -1;")), block=64, args=args())
    assert kinds(body.format("")) == {"race"}


def test_a_warp_synchronisation_does_not_order_warps() -> None:
    body = (
        SHARED
        + """
        st.shared.b32 [%r4], %r0; bar.warp.sync -1;
        xor.b32 %r5, %r3, 128; add.s32 %r5, %r2, %r5; ld.shared.b32 %r6, [%r5];"""
    )
    assert kinds(body) <= {"race", "unwritten"}


def test_one_store_of_several_lanes() -> None:
    assert kinds(SHARED + "st.shared.b32 [%r2], %r0;", 32) == {"race"}
    right(text(SHARED + "st.shared.b32 [%r2], 7;"), block=32, args=args())
    # two warps that store the same are two writes
    assert kinds(SHARED + "st.shared.b32 [%r2], 7;", 64) == {"race"}


def test_between_blocks() -> None:
    assert kinds("st.global.b32 [%rd1], %r0;", 32, grid=2) == {"race"}
    body = "mov.u32 %r1, %ctaid.x; setp.eq.s32 %p1, %r1, 0; @%p1 st.global.b32 [%rd11], 3;" \
           "@!%p1 ld.global.b32 %r3, [%rd11];"  # fmt: skip
    found = {finding_of(text(body), grid=2, block=1, args=args(), seed=s).kind for s in range(20)}
    assert found == {"race"}
    right(text("ld.global.b32 %r1, [%rd1];"), grid=4, block=32, args=args())


def test_no_barrier_orders_blocks() -> None:
    body = """mov.u32 %r1, %ctaid.x; setp.eq.s32 %p1, %r1, 0;
        @%p1 st.global.b32 [%rd1], 3; bar.sync 0; @!%p1 ld.global.b32 %r3, [%rd1];"""
    assert kinds(body, 32, grid=2) == {"race"}


def test_atomics() -> None:
    given = args()
    right(text("red.global.add.s32 [%rd11], %r0;"), grid=3, block=64, args=given)
    assert given[0][0] == 3 * 63 * 32
    body = "atom.global.add.u32 %r5, [%rd11], 1; setp.eq.s32 %p1, %r5, 5; @%p1 {};"
    right(text(body.format("ld.relaxed.gpu.global.b32 %r6, [%rd11]")), block=64, args=args())
    assert kinds(body.format("ld.global.b32 %r6, [%rd11]")) == {"race"}
    assert kinds(body.format("st.global.b32 [%rd11], 4")) == {"race"}


def test_atomics_before_a_barrier() -> None:
    body = (
        SHARED
        + """setp.eq.s32 %p1, %r0, 0; @%p1 st.shared.b32 [%r2], 0; {}
        red.shared.add.u32 [%r2], %r0; bar.sync 0;
        ld.shared.b32 %r6, [%r2]; st.global.b32 [%rd1], %r6;"""
    )
    given = args()
    right(text(body.format("bar.sync 0;")), block=64, args=given)
    assert (given[0] == 63 * 32).all()
    assert kinds(body.format("")) <= {"race", "unwritten"}


def test_strong_accesses() -> None:
    """A flag that one block sets with release and others read with acquire."""
    body = """mov.u32 %r1, %ctaid.x; setp.ne.s32 %p1, %r1, 0; @%p1 bra $W;
        st.release.gpu.global.b32 [%rd11], 1; bra $E;
    $W: ld.acquire.gpu.global.b32 %r2, [%rd11]; ld.volatile.global.b32 %r3, [%rd11];
    $E:"""
    right(text(body), grid=4, block=1, args=args())


def test_the_message() -> None:
    body = SHARED + MIRROR + "st.shared.b32 [%r4], %r0;\nld.shared.b32 %r6, [%r5];"
    found = finding_of(text(body), block=32, args=args())
    line = next(k for k, row in enumerate(text(body).splitlines(), 1) if "ld.shared" in row)
    assert found.message == (
        "s at byte 124: thread (0, 0, 0) reads what thread (31, 0, 0) wrote at line "
        f"{line - 1}, and nothing orders the two"
    )
    assert (found.kernel, found.line, found.block, found.thread) == (
        "k",
        line,
        (0, 0, 0),
        (0, 0, 0),
    )


def test_collected() -> None:
    body = SHARED + MIRROR + "st.shared.b32 [%r4], %r0;\nld.shared.b32 %r6, [%r5];"
    report = run(text(body), block=32, args=args(), collect=5)
    assert [f.kind for f in report.findings] == ["race"] and "race: s at byte" in str(report)


# never written


def test_shared_memory_never_written() -> None:
    body = SHARED + "setp.lt.s32 %p1, %r0, 31; @%p1 st.shared.b32 [%r4], 1; bar.warp.sync -1;"
    found = finding_of(text(body + "ld.shared.b32 %r6, [%r4];"), block=32, args=args())
    assert found.kind == "unwritten" and "s at byte 124 is read" in found.message
    right(text(body + "@%p1 ld.shared.b32 %r6, [%r4];"), block=32, args=args())


def test_parts_of_a_word_never_written() -> None:
    body = SHARED + "st.shared.b16 [%r4], %h1; ld.shared.b32 %r6, [%r4];"
    assert kinds(body, 32, seeds=1) == {"unwritten"}


def test_local_memory() -> None:
    """Each thread has its own, and what it did not write there it must not read."""
    local = ".local .align 8 .b8 l[16]; mov.b64 %rd2, l; cvta.local.u64 %rd3, %rd2;"
    body = local + "st.local.b32 [l+4], %r0; ld.b32 %r6, [%rd3+4]; st.global.b32 [%rd1], %r6;"
    given = args()
    right(text(body), block=64, args=given)
    np.testing.assert_array_equal(given[0], np.arange(64))
    body = local + "st.local.b32 [l+4], %r0; ld.local.b32 %r6, [%rd2];"
    assert kinds(body, 32, seeds=1) == {"unwritten"}
    found = finding_of(text(local + "st.local.b32 [%rd2+16], %r0;"), block=32, args=args())
    assert found.kind == "bounds" and "byte 16" in found.message


def test_global_memory_never_written() -> None:
    body = "ld.global.b32 %r6, [%rd1];"
    right(text(body), block=64, args=args())
    found = finding_of(text(body), block=64, args=args(), unwritten=[0])
    assert found.kind == "unwritten" and "a at byte 0 is read" in found.message
    right(text("st.global.b32 [%rd1], 3;" + body), block=64, args=args(), unwritten=[0])


# bounds and alignment


@pytest.mark.parametrize("access, told", [
    ("ld.global.b32 %r6, [%rd1+4]", "at byte 256 of a, which has 256"),
    ("st.global.b32 [%rd1+-8], %r6", "at byte -8 of a, which has 256"),
    ("ld.global.v4.b32 {%r5,%r6,%r7,%r8}, [%rd11+256]", "of 16 bytes at byte 256 of a"),
    ("ld.b32 %r6, [%rd1+4]", "at byte 256 of a"),
    ("ld.global.b32 %r6, [4]", "address 0x4 belongs to no memory"),
    ("atom.global.add.u32 %r6, [%rd1+4], 1", "at byte 256 of a"),
])  # fmt: skip
@pytest.mark.parametrize("checks", [True, False])
def test_global_bounds(access: str, told: str, checks: bool) -> None:
    found = finding_of(text(access + ";"), block=64, args=args(), checks=checks)
    assert found.kind == "bounds" and told in found.message


def test_guards_protect() -> None:
    body = "setp.lt.u32 %p1, %r0, 64; @%p1 ld.global.b32 %r6, [%rd1];"
    right(text(body), block=128, args=args())


def test_one_past_a_shared_variable() -> None:
    """Variables lie beside each other, and an access past one does not fall into the next."""
    two = ".shared .align 4 .b8 s[128]; .shared .align 4 .b8 u[128]; mov.u32 %r2, {};"
    past = "shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3; st.shared.b32 [%r4+{}], %r0;"
    for name in "su":
        right(text((two + past).format(name, 0)), block=32, args=args())
        found = finding_of(text((two + past).format(name, 4)), block=32, args=args())
        assert found.kind == "bounds"
    assert "byte 128 of s, which has 128" in finding_of(
        text((two + past).format("s", 4)), block=32, args=args()
    ).message  # fmt: skip


def test_dynamic_shared_memory() -> None:
    body = """mov.u32 %r2, dyn; shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3;
        st.shared.b32 [%r4], %r0; ld.shared.b32 %r6, [%r4]; st.global.b32 [%rd1], %r6;"""
    whole = entry(["a"], thread("a") + body, ".extern .shared .align 16 .b8 dyn[];")
    given = args()
    right(whole, block=64, args=given, shared=256)
    np.testing.assert_array_equal(given[0], np.arange(64))
    found = finding_of(whole, block=64, args=args(), shared=252)
    assert found.kind == "bounds" and "byte 252 of dyn, which has 252" in found.message


def test_constant_memory() -> None:
    table = (
        ".const .align 4 .b32 table[4] = {10, 11, 0x0C, 13};\n.global .align 4 .b32 g[2] = {5, 6};"
    )
    body = """and.b32 %r2, %r0, 3; mul.wide.u32 %rd2, %r2, 4; mov.b64 %rd3, table;
        add.s64 %rd3, %rd3, %rd2; ld.const.b32 %r6, [%rd3{}]; ld.global.b32 %r7, [g+4];
        add.s32 %r6, %r6, %r7; st.global.b32 [%rd1], %r6;"""
    given = args()
    right(entry(["a"], thread("a") + body.format(""), table), block=64, args=given)
    np.testing.assert_array_equal(given[0], 16 + np.arange(64) % 4)
    found = finding_of(entry(["a"], thread("a") + body.format("+4"), table), block=64, args=args())
    assert found.kind == "bounds"


@pytest.mark.parametrize("access", [
    "ld.global.b32 %r6, [%rd11+2]", "st.global.v2.b32 [%rd11+4], {%r5, %r6}",
    "ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd11+8]", "ld.global.b64 %rd5, [%rd11+12]",
    "ld.shared.b32 %r6, [s+1]", "st.shared.v4.b32 [s+8], {%r5, %r6, %r7, %r8}",
])  # fmt: skip
@pytest.mark.parametrize("checks", [True, False])
def test_misaligned(access: str, checks: bool) -> None:
    found = finding_of(text(SHARED + access + ";"), block=1, args=args(), checks=checks)
    assert found.kind == "misaligned" and "not a multiple of" in found.message


def test_the_line_of_the_program() -> None:
    body = ".loc 1 41 7\n ld.global.b32 %r6, [%rd1];\n.loc 1 42 3\n ld.global.b32 %r6, [%rd1+4];"
    found = finding_of(text(body), block=64, args=args())
    assert found.source == 42
    with pytest.raises(Exception, match=rf"PTX line {found.line} \(line 42 of the program\)"):
        run(text(body), block=64, args=args())
