"""Asynchronous copies: at the latest moment, and nothing touches their target before."""

from __future__ import annotations

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import entry, finding_of, right, thread

COPY = "cp.async.cg.shared.global [%r4], [%rd3], 16;"
COMMIT, WAIT, BAR = "cp.async.commit_group;", "cp.async.wait_group 0;", "bar.sync 0;"
READ = """xor.b32 %r5, %r3, 496; add.s32 %r5, %r2, %r5;
    ld.shared.b32 %r6, [%r5]; st.global.b32 [%rd2], %r6;"""


def kernel(*parts: str) -> str:
    """Each thread copies 16 bytes, and reads the first word of what its mirror copied."""
    return entry(["a", "c"], thread("a", "c") + """
        .shared .align 16 .b8 s[1024]; mov.u32 %r2, s; shl.b32 %r3, %r0, 4;
        add.s32 %r4, %r2, %r3; mul.wide.u32 %rd3, %r0, 16; add.s64 %rd3, %rd11, %rd3;
        """ + "\n".join(parts))  # fmt: skip


def args(block: int = 64) -> list[np.ndarray]:
    return [np.arange(4 * block, dtype=np.int32), np.full(block, -1, np.int32)]


@pytest.mark.parametrize("parts", [
    (COMMIT, WAIT), ("cp.async.wait_all;",), (COMMIT, COMMIT, "cp.async.wait_group 1;"),
])  # fmt: skip
def test_waited_for(parts: tuple[str, ...]) -> None:
    given = args()
    right(kernel(COPY, *parts, BAR, READ), block=64, args=given)
    np.testing.assert_array_equal(given[1], 4 * (np.arange(64) ^ 31))


@pytest.mark.parametrize("parts", [
    (BAR,), (COMMIT, BAR), (WAIT, BAR), (COMMIT, "cp.async.wait_group 1;", BAR),
    (WAIT, COMMIT, BAR),
])  # fmt: skip
def test_used_too_early(parts: tuple[str, ...]) -> None:
    for seed in range(20):
        found = finding_of(kernel(COPY, *parts, READ), block=64, args=args(), seed=seed)
        assert found.kind == "async"
        assert "while an asynchronous copy into it has not been waited for" in found.message


def test_the_target_is_not_written_meanwhile() -> None:
    store = "st.shared.b32 [%r4+4], %r0;"
    assert finding_of(kernel(COPY, COMMIT, store), block=64, args=args()).kind == "async"
    right(kernel(COPY, COMMIT, WAIT, store), block=64, args=args())


def test_waiting_does_not_order_threads() -> None:
    """Each thread has waited for its own copies, but not for those of the others."""
    for seed in range(20):
        found = finding_of(kernel(COPY, COMMIT, WAIT, READ), block=64, args=args(), seed=seed)
        assert found.kind in ("race", "async", "unwritten")


def test_two_copies_to_one_place() -> None:
    text = kernel("cp.async.cg.shared.global [%r2], [%rd3], 16;")
    assert finding_of(text, block=32, args=args()).kind == "race"


def test_zeros_beyond_the_source() -> None:
    body = """sub.s32 %r7, 40, %r0; min.s32 %r7, %r7, 1; max.s32 %r7, %r7, 0; shl.b32 %r7, %r7, 3;
        cp.async.cg.shared.global [%r4], [%rd3], 16, %r7;"""
    read = """ld.shared.b32 %r6, [%r4+4]; ld.shared.b32 %r7, [%r4+8]; add.s32 %r6, %r6, %r7;
        st.global.b32 [%rd2], %r6;"""
    given = [np.arange(1, 161, dtype=np.int32), np.full(64, -1, np.int32)]  # the rest is not there
    right(kernel(body, COMMIT, WAIT, read), block=64, args=given)
    at = np.arange(64)
    np.testing.assert_array_equal(given[1], np.where(at < 40, 4 * at + 2, 0))
    whole = kernel("cp.async.cg.shared.global [%r4], [%rd3], 16;", COMMIT, WAIT, read)
    found = finding_of(whole, block=64, args=[given[0], given[1]])
    assert found.kind == "bounds"


@pytest.mark.parametrize("size", [4, 8, 16])
def test_sizes(size: int) -> None:
    given = args()
    cache = "cg" if size == 16 else "ca"
    copy = f"cp.async.{cache}.shared.global [%r4], [%rd3], {size};"
    read = f"ld.shared.b32 %r6, [%r4+{size - 4}]; st.global.b32 [%rd2], %r6;"
    right(kernel(copy, COMMIT, WAIT, read), block=64, args=given)
    np.testing.assert_array_equal(given[1], 4 * np.arange(64) + size // 4 - 1)


def test_misaligned() -> None:
    text = kernel("cp.async.cg.shared.global [%r4+4], [%rd3], 16;")
    assert finding_of(text, block=32, args=args()).kind == "misaligned"
    text = kernel("cp.async.cg.shared.global [%r4], [%rd3+8], 16;")
    assert finding_of(text, block=16, args=args()).kind == "misaligned"


STAGES = """
    .shared .align 16 .b8 ring[1024]; mov.u32 %r2, ring; shl.b32 %r3, %r0, 2; mov.b32 %r9, 0;
    add.s32 %r4, %r2, %r3; mov.b64 %rd3, %rd1; mov.b32 %r8, 0;
    cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;
$L: add.s64 %rd3, %rd3, 256; setp.ge.s32 %p1, %r8, 7; @%p1 bra $N;
    add.s32 %r10, %r8, 1; and.b32 %r10, %r10, 1; shl.b32 %r10, %r10, 8; add.s32 %r10, %r10, %r4;
    cp.async.ca.shared.global [%r10], [%rd3], 4;
$N: cp.async.commit_group; {wait}
    {before}
    and.b32 %r10, %r8, 1; shl.b32 %r10, %r10, 8; xor.b32 %r11, %r3, 252; add.s32 %r11, %r11, %r10;
    add.s32 %r11, %r11, %r2; ld.shared.b32 %r6, [%r11]; add.s32 %r9, %r9, %r6;
    {after}
    add.s32 %r8, %r8, 1; setp.lt.s32 %p1, %r8, 8; @%p1 bra $L;
    st.global.b32 [%rd2], %r9;"""


def ring(**parts: str) -> str:
    parts = {"wait": "cp.async.wait_group 1;", "before": BAR, "after": BAR} | parts
    return entry(["a", "c"], thread("a", "c") + STAGES.format(**parts))


def test_two_stages() -> None:
    a = np.random.default_rng(1).integers(0, 99, (8, 64)).astype(np.int32)
    given = [a, np.zeros(64, np.int32)]
    right(ring(), block=64, args=given)
    np.testing.assert_array_equal(given[1], a.sum(0)[::-1])
    for parts in ({"wait": ""}, {"wait": "cp.async.wait_group 2;"}, {"before": ""}, {"after": ""}):
        for seed in range(20):
            call = {"block": 64, "args": [a, np.zeros(64, np.int32)], "seed": seed}
            assert finding_of(ring(**parts), **call).kind in ("async", "race", "unwritten")


@pytest.mark.parametrize("line", [
    "cp.async.bulk.commit_group", "cp.async.cg.shared.global [%r1], [%rd1], 12",
    "cp.async.cg.global.shared [%rd1], [%r1], %r2", "cp.reduce.async.bulk [%r1], [%rd1], 16",
])  # fmt: skip
def test_other_copies_are_refused(line: str) -> None:
    with pytest.raises(UnsupportedError, match="PTX line .*cp"):
        run(entry([], line + ";"), block=32)
