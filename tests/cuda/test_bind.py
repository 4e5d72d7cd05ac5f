"""What `bind` refuses, at the call or when the launches are made; messages whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorir as tir
from tests.cuda.programs import staged
from tests.errors.saying import matmul, said, scaled, without_place

CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "index": (
        lambda: scaled().bind("i", "blockIdx.w"),
        "ScheduleError: bind: no index 'blockIdx.w'; did you mean 'blockIdx.z'?; there are "
        "blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z",
    ),
    "virtual": (
        lambda: scaled().bind("i", "vthread"),
        "UnsupportedError: bind: 'vthread' is not there yet; unroll the loop instead\n",
    ),
    "twice": (
        lambda: matmul().bind("i", "threadIdx.x").bind("j", "threadIdx.x"),
        "ScheduleError: bind: 'i' in the same nest is bound to threadIdx.x already",
    ),
    "marked": (
        lambda: scaled().parallel("i").bind("i", "blockIdx.x"),
        "ScheduleError: bind: 'i' is parallel already, since step 1, parallel(\"i\")",
    ),
    "inside": (
        lambda: matmul().bind("j", "blockIdx.x"),
        "ScheduleError: bind: 'j' is inside 'i', which is not a block\n\n"
        "  why  blocks run in no order, so no other loop stands around them.\n"
        '  try  s.reorder("j", "i")          puts the blocks outside\n',
    ),
    "symbolic": (
        lambda: scaled(tir.var("n")).bind("i", "threadIdx.x"),
        "ScheduleError: bind: the extent of 'i' is not a constant\n\n"
        "  why  threadIdx.x needs a number of threads that is fixed when the kernel is made.\n"
        '  try  s.split("i", 128)            threads for blocks of 128\n',
    ),
    "many": (
        lambda: scaled(2048).bind("i", "threadIdx.x"),
        "ScheduleError: bind: 'i' has 2,048 points; threadIdx.x has at most 1,024\n\n"
        "  why  split the loop, and bind the inner part.\n",
    ),
    "together": (
        lambda: matmul().bind("i", "threadIdx.y").bind("j", "threadIdx.x"),
        "ScheduleError: bind: 'j' would make 4,096 threads in a block, of 1,024\n\n"
        "  why  split the loop, and bind the inner part.\n",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_refused(case: str) -> None:
    call, text = CALLS[case]
    with pytest.raises(tir.TensorIRError) as refused:
        call()
    assert without_place(said(refused.value)) == text


def test_a_reduction_is_not_dealt_out() -> None:
    with pytest.raises(tir.IllegalSchedule) as refused:
        matmul().bind("k", "threadIdx.x")
    text = said(refused.value)
    first = text.splitlines()[0]
    assert first == (
        'IllegalSchedule: bind("k", "threadIdx.x") would let C[0, 0, 0] and C[0, 0, 1] race: '
        "both accumulate into C[0, 0]."
    )
    assert 's.rfactor("k").bind("k", "threadIdx.x")' in text


def test_the_init_goes_along() -> None:
    s = matmul().tile("i", "j", 8, 8, into=("by", "bx", "ty", "tx"))
    s = s.split("k", 8, into=("ko", "ki")).reorder("by", "bx", "ko", "ty", "tx", "ki")
    s = s.bind("by", "blockIdx.y").bind("bx", "blockIdx.x")
    bound = s.bind("ty", "threadIdx.y").bind("tx", "threadIdx.x")
    assert bound.loops().count("# bind threadIdx.y") == 2


def _build(s: tir.Schedule) -> object:
    return tir.build(s, target="cuda")


def test_what_is_not_bound() -> None:
    with pytest.raises(tir.UnsupportedError) as refused:
        _build(scaled())
    assert said(refused.value) == (
        "UnsupportedError: B is in no loop that is bound to a GPU\n"
        '  try  s.bind("i", "blockIdx.x")      one block for each point\n'
        "  try  schedules.schedule_for(tensor, target=...)     a schedule for the target\n"
    )


def test_what_one_thread_keeps_another_may_not_read() -> None:
    s = staged(64, 64, 64).set_scope("As", "local")
    with pytest.raises(tir.UnsupportedError, match="As is kept by each thread for itself, and one"):
        _build(s)


def test_shared_memory_is_limited() -> None:
    s = matmul(512, 512, 512).split("i", 64, into=("b", "t")).bind("b", "blockIdx.x")
    s = s.cache_read("B", "shared", at="b")
    with pytest.raises(tir.UnsupportedError, match="1,048,576 bytes of shared memory"):
        _build(s.bind("t", "threadIdx.x"))


def test_a_copy_of_each_thread_is_not_shared() -> None:
    s = matmul().split("i", 16, into=("b", "t")).bind("b", "blockIdx.x").bind("t", "threadIdx.x")
    with pytest.raises(tir.UnsupportedError, match="is shared by the threads of a block, and made"):
        _build(s.cache_read("B", "shared", at="t"))
