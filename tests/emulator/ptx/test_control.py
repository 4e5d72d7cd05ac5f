"""Control flow: lanes that part and meet, loops of different lengths, exits, guards, scopes."""

from __future__ import annotations

import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import ArgumentError, UnsupportedError
from tests.emulator.ptx.kernels import HEAD, entry, right, thread

STORE = "st.global.b32 [%rd1], %r9;"


def results(body: str, block: object = 96, grid: object = 1, count: int = 96) -> np.ndarray:
    out = np.zeros(count, np.int32)
    right(entry(["a"], thread("a") + body), grid=grid, block=block, args=[out], seeds=4)
    return out


def test_loops_of_different_lengths() -> None:
    found = results(f"""
        mov.b32 %r9, 0; mov.b32 %r1, 0;
    $L: setp.ge.s32 %p1, %r1, %r0; @%p1 bra $E;
        add.s32 %r9, %r9, %r1; add.s32 %r1, %r1, 1; bra $L;
    $E: {STORE}""")
    np.testing.assert_array_equal(found, [k * (k - 1) // 2 for k in range(96)])


def test_latch_before_header() -> None:
    found = results(f"""
        mov.b32 %r9, 0; mov.b32 %r1, 0; bra.uni $HEAD;
    $LATCH: add.s32 %r1, %r1, 1;
    $HEAD: setp.ge.s32 %p1, %r1, %r0; @%p1 bra $EXIT;
        bra.uni $BODY;
    $EXIT: {STORE} ret;
    $BODY: add.s32 %r9, %r9, 3; bra.uni $LATCH;""")
    np.testing.assert_array_equal(found, 3 * np.arange(96))


def test_nested_branches_and_meeting() -> None:
    found = results(f"""
        and.b32 %r1, %r0, 1; setp.eq.s32 %p1, %r1, 0; and.b32 %r2, %r0, 2; setp.eq.s32 %p2, %r2, 0;
        mov.b32 %r9, 0;
        @%p1 bra $EVEN;
        @%p2 bra $ONE; add.s32 %r9, %r9, 300; bra $ODD_END;
    $ONE: add.s32 %r9, %r9, 100;
    $ODD_END: add.s32 %r9, %r9, 1000; bra $END;
    $EVEN: @!%p2 bra $END; add.s32 %r9, %r9, 7;
    $END: activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.s32 %r9, %r3, 10000, %r9;
        {STORE}""")
    wanted = [{0: 7, 1: 1100, 2: 0, 3: 1300}[k % 4] + 320000 for k in range(96)]
    np.testing.assert_array_equal(found, wanted)


def test_a_loop_left_in_two_places() -> None:
    found = results(f"""
        mov.b32 %r9, 0; rem.s32 %r1, %r0, 7;
    $L: add.s32 %r9, %r9, 1; setp.ge.s32 %p1, %r9, 5; @%p1 bra $LONG;
        setp.ge.s32 %p2, %r9, %r1; @%p2 bra $E; bra $L;
    $LONG: add.s32 %r9, %r9, 100;
    $E: {STORE}""")
    wanted = [105 if k % 7 > 4 else max(k % 7, 1) for k in range(96)]
    np.testing.assert_array_equal(found, wanted)


def test_early_exits() -> None:
    for leave in ("@%p1 ret;", "@%p1 exit;", "@!%p1 bra $ON; ret; $ON:"):
        found = results(f"""
            rem.s32 %r1, %r0, 3; setp.eq.s32 %p1, %r1, 1; setp.gt.or.s32 %p1, %r0, 70, %p1;
            mov.b32 %r9, 5; {leave}
            add.s32 %r9, %r9, %r0; {STORE}""")
        at = np.arange(96)
        np.testing.assert_array_equal(found, np.where((at % 3 == 1) | (at > 70), 0, 5 + at))


def test_guards() -> None:
    found = results(f"""
        setp.lt.s32 %p1, %r0, 40; mov.b32 %r9, 1;
        @%p1 mov.b32 %r9, 2; @!%p1 add.s32 %r9, %r9, 10; @%p1 {STORE}""")
    np.testing.assert_array_equal(found, np.where(np.arange(96) < 40, 2, 0))


@pytest.mark.parametrize("block", [(5, 3, 2), (33, 1, 1), (1, 7, 3)])
def test_coordinates(block: tuple[int, int, int]) -> None:
    """Blocks whose threads fill no whole warp, in a grid of three sizes."""
    grid, threads = (2, 3, 2), block[0] * block[1] * block[2]
    names = [f"{n}.{c}" for n in ("%tid", "%ctaid", "%ntid", "%nctaid") for c in "xyz"]
    reads = "".join(f"mov.u32 %r{20 + k}, {n};" for k, n in enumerate(names))
    body = f"""{reads} ld.param.u64 %rd1, [a];
        mad.lo.u32 %r1, %r22, %r27, %r21; mad.lo.u32 %r1, %r1, %r26, %r20;
        mad.lo.u32 %r2, %r25, %r30, %r24; mad.lo.u32 %r2, %r2, %r29, %r23;
        mad.lo.u32 %r3, %r2, {threads}, %r1; mul.wide.u32 %rd2, %r3, 32;
        add.s64 %rd1, %rd1, %rd2;
        st.global.v4.b32 [%rd1], {{%r20, %r21, %r22, %r23}};
        st.global.v2.b32 [%rd1+16], {{%r24, %r25}};
        mov.u32 %r4, %laneid; mov.u32 %r5, %warpid; st.global.v2.b32 [%rd1+24], {{%r4, %r5}};"""
    out = np.full((12 * threads, 8), -1, np.int32)
    run(entry(["a"], body), grid=grid, block=block, args=[out])
    for number in range(12):
        x, y, z = number % 2, number // 2 % 3, number // 6
        for t in range(threads):
            own = [t % block[0], t // block[0] % block[1], t // (block[0] * block[1])]
            row = out[number * threads + t]
            assert row.tolist() == [*own, x, y, z, t % 32, t // 32]


def test_a_grid_of_many_blocks() -> None:
    body = (
        thread("a")
        + """
        mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 64, %r0; mul.wide.u32 %rd2, %r1, 4;
        add.s64 %rd1, %rd11, %rd2; st.global.b32 [%rd1], %r1;"""
    )
    out = np.zeros(64 * 1500, np.int32)
    run(entry(["a"], body), grid=1500, block=64, args=[out])
    np.testing.assert_array_equal(out, np.arange(64 * 1500))


@pytest.mark.parametrize("line, named", [
    ("call.uni f, (%r1)", "call.uni"), ("brx.idx %r1, $T", "brx.idx"),
    ("wgmma.fence.sync.aligned", "wgmma.fence.sync.aligned"), ("tex.2d.v4.f32.f32 %r1, %r2", "tex"),
])  # fmt: skip
def test_what_is_not_run_is_named(line: str, named: str) -> None:
    with pytest.raises(UnsupportedError, match=f"PTX line .*{named}"):
        run(entry([], f"$T: mov.b32 %r2, 0;\n {line};"), block=32)


def test_tables_of_branches_are_named() -> None:
    with pytest.raises(UnsupportedError, match="branchtargets"):
        run(entry([], "$T: .branchtargets $A, $B;\n$A: ret;\n$B: ret;"), block=32)


def test_functions_are_named() -> None:
    text = f"{HEAD}.func f() {{ ret; }}\n" + entry([], "")[len(HEAD) :]
    with pytest.raises(UnsupportedError, match="functions other than entries"):
        run(text, block=32)


@pytest.mark.parametrize("body, told", [
    ("bra $NOWHERE;", "no label"), ("mov.b32 %r1, %none;", "no register %none"),
    ("mov.b32 %r1, %r2", "expected"), ("mov.b64 %rd1, nothing;", "no variable nothing"),
    ("mov.b32 %r1, 'a';", "is not PTX"),
])  # fmt: skip
def test_text_that_is_no_ptx(body: str, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        run(entry([], body), block=32)


def test_endless_text() -> None:
    with pytest.raises(ArgumentError, match="the end"):
        run(HEAD + ".entry k() { mov.b32", block=32)
    with pytest.raises(ArgumentError, match="no code"):
        run(HEAD + ".entry k() { }", block=32)
    with pytest.raises(ArgumentError, match=r"without a \.version"):
        run(".entry k() { ret; }", block=32)
