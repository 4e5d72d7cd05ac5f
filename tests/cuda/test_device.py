"""Kernels on a device, through a driver that checks every call and runs them in the emulator."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import schedules
import tensorir as tir

pytest.importorskip("cuda.bindings.driver")

from tensorir.runtime import cuda_device  # noqa: E402
from tests.cuda.fake_driver import FakeDevice, FakeDriver, use  # noqa: E402
from tests.cuda.foreign import Interface, Packed, torch_of_ours  # noqa: E402
from tests.cuda.programs import doubled, staged  # noqa: E402


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    with use(FakeDriver()) as driver:
        yield driver


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _product() -> Any:
    """A product of symbolic sizes, for cuda."""
    return tir.build(staged(*(tir.var(x) for x in "mnk")), target="cuda:sm_80")


# -- numpy in and out


@pytest.mark.parametrize("sizes", [(33, 40, 17), (16, 16, 16), (1, 1, 1), (5, 0, 3), (5, 7, 0)])
def test_numpy_in_and_out(fake: FakeDriver, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = _random(m, k), _random(k, n)
    kernel = _product()
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-5)
    c = np.empty((m, n), "float32")
    assert kernel(a, b, out=c) is c
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_a_module_is_loaded_once_and_buffers_are_used_again(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(1000), target="cuda:sm_80")
    for _ in range(3):
        kernel(_random(1000))
    assert fake.calls["cuModuleLoadDataEx"] == 1
    assert fake.calls["cuMemAlloc"] == 2
    assert fake.stack == []
    assert fake.launched == ["tir_B"] * 3


def test_several_launches_and_scratch(fake: FakeDriver) -> None:
    kernel = schedules.build("softmax", (5, 300), target="cuda:sm_80")
    x = _random(5, 300)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(kernel(x), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_what_a_kernel_leaves_alone_keeps_its_value(fake: FakeDriver) -> None:
    kernel = schedules.build("scatter_add", 9, 4, 3, target="cuda:sm_80")
    arrays = [np.zeros([e.const for e in a.shape], a.dtype.numpy) for a in kernel.arguments]
    arrays[0][:] = 3
    got = kernel(*arrays[: len([a for a in kernel.arguments if a.role == "input"])])
    assert (got[1:] == 3).all()


def _twice(x: tir.Tensor) -> tir.Tensor:
    """Two launches, with memory between them."""
    k = tir.reduce_axis(64, name="k")
    total = tir.compute((1,), lambda i: tir.sum(x[k], axis=k), name="total")
    return tir.compute((64,), lambda i: x[i] / total[0], name="part")


def test_memory_and_modules_are_given_back(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(1000), target="cuda:sm_80")
    x = tir.to_device(_random(1000))
    y = kernel(x)
    assert (len(fake.memory), len(fake.modules)) == (2, 1)
    del x, y, kernel
    assert (len(fake.memory), len(fake.modules)) == (0, 0)
    softmax = schedules.build(_twice, (64,), target="cuda:sm_80")
    softmax(_random(64))
    assert fake.modules
    device = cuda_device.device()
    del softmax
    device.trim()
    assert (len(fake.memory), len(fake.modules)) == (0, 0)


# -- arrays on the device


def test_arrays_of_ours(fake: FakeDriver) -> None:
    kernel = _product()
    a, b = _random(20, 30), _random(30, 40)
    x, y = tir.to_device(a), tir.to_device(b)
    z = kernel(x, y)
    assert repr(z) == "<float32[20, 40] on cuda:0>"
    np.testing.assert_allclose(z.numpy(), a @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(x), a)
    for _ in range(3):
        assert kernel(x, y, z) is z
        assert kernel(x, y, out=z) is z
    before = dict(fake.calls)
    kernel(x, y, z)
    assert {k: n - before[k] for k, n in fake.calls.items() if n != before[k]} == {
        "cuLaunchKernel": 1
    }


def test_arrays_by_interface(fake: FakeDriver) -> None:
    kernel = _product()
    a, b = _random(20, 30), _random(30, 40)
    out = Interface(np.zeros((20, 40), "float32"))
    assert kernel(Interface(a), Interface(b), out) is out
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-5)


def test_arrays_by_dlpack(fake: FakeDriver) -> None:
    kernel = _product()
    a, b = _random(20, 30), _random(30, 40)
    x, y = Packed(a), Packed(b, strides=(40, 1))
    z = kernel(x, y)
    assert isinstance(z, Packed)
    assert x.asked == y.asked == [cuda_device.LEGACY]
    np.testing.assert_allclose(z.owner.numpy(), a @ b, rtol=1e-4, atol=1e-5)


def test_tensors_of_torch(fake: FakeDriver) -> None:
    fake.streams.add(5000)
    with torch_of_ours() as torch:
        kernel = _product()
        a, b = _random(20, 30), _random(30, 40)
        x, y = torch.tensor(a), torch.tensor(b)
        z = kernel(x, y)
        assert type(z) is torch.Tensor
        np.testing.assert_allclose(z.array.numpy(), a @ b, rtol=1e-4, atol=1e-5)
        torch.streams[0] = 5000
        out = torch.tensor(np.zeros((20, 40), "float32"))
        for _ in range(3):
            assert kernel(x, y, out) is out
        assert 5000 in fake._streams
        np.testing.assert_allclose(out.array.numpy(), a @ b, rtol=1e-4, atol=1e-5)
        x.requires_grad = True
        with pytest.raises(tir.CallValueError, match=r"argument A requires grad"):
            kernel(x, y, out)


def test_work_goes_to_the_stream_of_the_arrays(fake: FakeDriver) -> None:
    fake.streams.add(7000)
    kernel = _product()
    a, b = _random(4, 5), _random(5, 6)
    out = Interface(np.zeros((4, 6), "float32"), stream=7000)
    kernel(Interface(a, stream=7000), Packed(b), out)
    assert 7000 in fake._streams
    assert fake.calls["cuStreamWaitEvent"] == 1  # the one by DLPack is ready on another
    with cuda_device.device().current():
        fake.cuStreamSynchronize(7000)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-5)


def test_a_consumer_waits_for_the_stream_that_writes(fake: FakeDriver) -> None:
    fake.streams.add(7000)
    x = tir.to_device(_random(4))
    x.__dlpack__(stream=7000)
    assert fake.calls["cuStreamWaitEvent"] == 1
    x.__dlpack__(stream=-1)
    x.__dlpack__(stream=1)
    assert fake.calls["cuStreamWaitEvent"] == 1


def test_a_context_that_is_current_stays(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(100), target="cuda:sm_80")
    device = cuda_device.device()
    with device.current():
        before = list(fake.stack)
        kernel(_random(100))
        assert fake.stack == before


def test_threads_call_at_the_same_time(fake: FakeDriver) -> None:
    kernel = _product()
    arrays = [(_random(8, k), _random(k, 9)) for k in range(1, 9)]
    there = [(tir.to_device(a), tir.to_device(b)) for a, b in arrays]
    got: dict[int, np.ndarray[Any, Any]] = {}

    def work(k: int) -> None:
        out = kernel(*there[k])
        for _ in range(5):
            kernel(*there[k], out)
        got[k] = out.numpy()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(there))]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    for k, (a, b) in enumerate(arrays):
        np.testing.assert_allclose(got[k], a @ b, rtol=1e-4, atol=1e-5)


def test_a_loaded_index_is_checked(fake: FakeDriver) -> None:
    kernel = schedules.build("take", (10, 3), np.zeros(4, "int64"), target="cuda:sm_80")
    x, right, wrong = _random(10, 3), np.array([0, 9, 3, 1]), np.array([0, 99, 3, 1])
    np.testing.assert_array_equal(kernel(x, right), x[right])
    there = tir.to_device(x)
    for args in ((x, wrong), (there, tir.to_device(wrong))):
        with pytest.raises(tir.KernelError) as failed:
            kernel(*args)
        assert tir.full_text(failed.value) == (
            "KernelError: take(): take indexes dimension 0 of x with 99, which is outside 0 to 10 "
            "(exclusive)"
        )
    np.testing.assert_array_equal(kernel(there, tir.to_device(right)).numpy(), x[right])


def test_time_is_that_of_events(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(1000), target="cuda:sm_80")
    timing = kernel.time(_random(1000), repeat=3)
    assert (timing.name, timing.repeats, timing.bytes) == ("B", 3, 8000)
    assert timing.median > 0
    assert kernel.time(_random(1000), repeat=1, flush=True).repeats == 1
    assert fake.calls["cuEventDestroy"] == fake.calls["cuEventCreate"] == 4
    with pytest.raises(tir.ArgumentError, match="repeat=0: expected at least 1"):
        kernel.time(_random(1000), repeat=0)


def _through_shared() -> tir.Schedule:
    """`B = 2 * A` of 13,312 elements, all of which lie in the shared memory of one block."""
    A = tir.placeholder((13_312,), name="A")
    s = tir.schedule(tir.compute((13_312,), lambda i: A[i] * 2.0, name="B"))
    s = s.split("i", 13_312, into=("b", "r")).split("r", 128, into=("o", "t"))
    s = s.bind("b", "blockIdx.x").bind("t", "threadIdx.x")
    s = s.cache_read("A", "shared", at="b", name="As")
    return s.split("As.i", 128, into=("ao", "at")).bind("at", "threadIdx.x")


def test_much_shared_memory_is_asked_for(fake: FakeDriver) -> None:
    kernel = tir.build(_through_shared(), target="cuda:sm_80")
    assert kernel.launches[0].shared_bytes == 53_248
    a = _random(13_312)
    np.testing.assert_array_equal(kernel(a), 2 * a)
    assert fake.calls["cuFuncSetAttribute"] == 1


def test_saved_and_loaded(fake: FakeDriver, tmp_path: Any) -> None:
    place = tmp_path / "product.zip"
    _product().save(place)
    kernel = tir.load(place)
    a, b = _random(20, 30), _random(30, 40)
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-5)
    assert kernel.launches[0].threads == (16, 16, 1)


# -- what is wrong with arrays


def _wrong(name: str) -> tuple[Any, ...]:
    a, b = _random(20, 30), _random(30, 40)
    x, y = tir.to_device(a), tir.to_device(b)
    short = tir.to_device(_random(31, 40))
    if name == "host":
        return x, b
    if name == "host first":
        return a, y
    if name == "device":
        return x, tir.to_device(b, "cuda:1")
    if name == "dtype":
        return tir.to_device(a.astype("float64")), y
    if name == "rank":
        return tir.to_device(a[0]), y
    if name == "shape":
        return x, short
    if name == "contiguous":
        return Interface(x, strides=(4, 80)), y
    if name == "aligned":
        return Interface(x, offset=4), y
    if name == "read-only":
        out = tir.to_device(np.zeros((20, 40), "float32"))
        return x, y, Interface(out, data=(out.pointer, True))
    if name == "overlap":
        square = tir.to_device(_random(30, 30))
        return square, tir.to_device(_random(30, 30)), square
    if name == "stream":
        return Interface(x, stream=2), Interface(y, stream=7)
    if name == "stream 0":
        return Interface(x, stream=0), y
    assert name == "type"
    return Interface(x, typestr="<c8"), y


WRONG = {
    "host": "CallValueError: C(): argument B is not on a CUDA device (ndarray), and A is\n"
    "  try  all arrays there, or none: numpy's are copied in and out",
    "host first": "CallValueError: C(): argument A is not on a CUDA device (ndarray), and B is\n"
    "  try  all arrays there, or none: numpy's are copied in and out",
    "device": "CallValueError: C(): argument B is on cuda:1, and A on cuda:0\n"
    "  try  all arrays on one device",
    "dtype": "CallTypeError: C(): argument A is float64, expected float32",
    "rank": "CallValueError: C(): argument A has 1 dimension, shape (30,), expected (m, k)",
    "shape": "CallValueError: C(): argument B has shape (31, 40), expected (k, n) = (30, 40), "
    "where k = 30 (from A), n = 40 (from B)",
    "contiguous": "CallValueError: C(): argument A is not contiguous, and arrays on a device are "
    "not copied\n  try  x.contiguous(), or the library's ascontiguousarray(x)",
    "aligned": "CallValueError: C(): argument A begins at 0x700000004, which is no multiple of 16 "
    "bytes\n  why  threads load 16 bytes at a time; new arrays begin at such an address, views of\n"
    "       some of an array's rows may not.\n  try  a copy of it",
    "read-only": "CallValueError: C(): output C is read-only",
    "overlap": "CallValueError: C(): output C shares memory with argument A\n"
    "  try  another array for the result",
    "stream": "CallValueError: C(): argument B comes on stream 0x7, and A on 0x2\n"
    "  try  one stream for all arrays of a call",
    "stream 0": "CallValueError: C(): argument A names the stream 0, which its interface forbids",
    "type": "CallTypeError: C(): argument A is of a type that there is not here, expected float32",
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays(case: str) -> None:
    with use(FakeDriver(devices=[FakeDevice(), FakeDevice()])) as fake:
        kernel = _product()
        args = _wrong(case)
        with pytest.raises(tir.TensorIRError) as refused:
            kernel(*args)
        assert tir.full_text(refused.value) == WRONG[case]
        assert fake.launched == []
        del args


def test_a_second_device(fake: FakeDriver) -> None:
    del fake
    with use(FakeDriver(devices=[FakeDevice(), FakeDevice()])):
        kernel = _product()
        a, b = _random(4, 5), _random(5, 6)
        z = kernel(tir.to_device(a, "cuda:1"), tir.to_device(b, "cuda:1"))
        assert z.device == "cuda:1"
        np.testing.assert_allclose(z.numpy(), a @ b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("cpu", "device='cpu': expected \"cuda:0\", or another number"),
        ("cuda:x", "device='cuda:x': expected \"cuda:0\", or another number"),
        ("cuda:3", "there is no device cuda:3; the driver has 1"),
    ],
)
def test_no_such_device(fake: FakeDriver, device: str, text: str) -> None:
    with pytest.raises(tir.TensorIRError) as refused:
        tir.to_device(np.zeros(3, "float32"), device)
    assert str(refused.value) == text


# -- the driver


def test_no_driver() -> None:
    kernel = tir.build(doubled(64), target="cuda:sm_90")
    with use(None, "its library was not found"), pytest.raises(tir.UnsupportedError) as refused:
        kernel(_random(64))
    assert tir.full_text(refused.value) == (
        "UnsupportedError: code for cuda:sm_90 can be built and read here, but not run: there is "
        "no CUDA driver: its library was not found\n"
        '  try  target="emulator", which runs the same PTX on this machine'
    )
    with use(None, "its library was not found"), pytest.raises(tir.UnsupportedError) as refused:
        tir.to_device(_random(64))
    assert str(refused.value) == "there is no CUDA driver: its library was not found"


def test_a_driver_that_is_too_old() -> None:
    with use(FakeDriver(version=11080)):
        assert cuda_device.absence() == (
            "the CUDA driver is for CUDA 11.8; at least 12.0 is needed"
        )


def test_a_driver_without_a_device() -> None:
    with use(FakeDriver(devices=[])):
        assert cuda_device.absence() == "the CUDA driver finds no device"


def test_a_driver_that_does_not_start() -> None:
    with use(FakeDriver(failing={"cuInit": 100})):
        assert cuda_device.absence() == (
            "the CUDA driver does not start: cuInit: CUDA_ERROR_NO_DEVICE (100), "
            "as the fake driver says"
        )


def test_looking_for_a_driver_never_hangs() -> None:
    """Bindings that were called without a library wait for ever at the next call."""
    code = (
        "from tensorir.runtime import cuda_device as c\n"
        "for _ in range(3): c.absence(); c.reset()\n"
        "import sys; print([m for m in sys.modules if m.startswith('cuda.core')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_code_for_a_newer_device() -> None:
    with use(FakeDriver(devices=[FakeDevice(name="T4", capability=(7, 5))])):
        kernel = tir.build(doubled(64), target="cuda:sm_80")
        with pytest.raises(tir.UnsupportedError) as refused:
            kernel(_random(64))
    assert tir.full_text(refused.value) == (
        "UnsupportedError: code for cuda:sm_80 needs sm_80 or newer; cuda:0 (T4) is sm_75"
    )


def test_code_for_one_device_only() -> None:
    with use(FakeDriver(devices=[FakeDevice(name="B200", capability=(10, 0))])):
        kernel = tir.build(doubled(64), target="cuda:sm_90a")
        with pytest.raises(tir.UnsupportedError) as refused:
            kernel(_random(64))
    assert tir.full_text(refused.value) == (
        "UnsupportedError: code for cuda:sm_90a needs only sm_90a; cuda:0 (B200) is sm_100\n"
        '  try  target="cuda:sm_80", which newer devices run too'
    )


def test_more_shared_memory_than_the_device_has() -> None:
    kernel = tir.build(_through_shared(), target="cuda:sm_80")
    small = FakeDevice(name="Small", shared_limit=48 << 10)
    with use(FakeDriver(devices=[small])), pytest.raises(tir.UnsupportedError) as refused:
        kernel(_random(13_312))
    assert str(refused.value) == (
        "tir_B needs 53,248 bytes of shared memory; a block has at most 49,152 on cuda:0 "
        "(Small, sm_90)"
    )


def test_memory_that_is_kept_is_given_up_when_there_is_no_more(fake: FakeDriver) -> None:
    device = cuda_device.device()
    with device.current():
        pointer = device.allocate(1000)
        device.give_back(pointer, 1000)
        fake.failing["cuMemAlloc"] = 2
        device.allocate(5000)
    assert pointer not in fake.memory


def test_no_memory(fake: FakeDriver) -> None:
    device = cuda_device.device()

    def refuse(size: int) -> int:
        return 2

    fake.cuMemAlloc = refuse  # type: ignore[method-assign]
    with device.current(), pytest.raises(tir.KernelError) as failed:
        device.allocate(5000)
    assert str(failed.value) == "cuda:0 has no 5,000 bytes left: 1,000 of 2,000 are free"


def test_text_that_the_driver_refuses(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(64), target="cuda:sm_80")
    kernel._ptx = kernel._ptx.replace("ret;", "ret")
    with pytest.raises(tir.CompileError) as refused:
        kernel(_random(64))
    text = tir.full_text(refused.value)
    assert text.startswith(
        "CompileError: the driver refuses the code of tir_B: cuModuleLoadDataEx: "
        "CUDA_ERROR_INVALID_PTX (218), as the fake driver says\n  ptxas fatal: PTX line "
    )
    path = text.rpartition("  saved  ")[2].strip()
    assert kernel._ptx in open(path, encoding="utf-8").read()


def test_a_failure_that_ends_the_context_is_told_from_then_on(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(64), target="cuda:sm_80")
    x = tir.to_device(_random(64))
    y = kernel(x)
    fake.failing["cuStreamSynchronize"] = 700
    with pytest.raises(tir.KernelError) as failed:
        y.numpy()
    text = (
        "KernelError: CUDA is lost to this process: cuStreamSynchronize: "
        "CUDA_ERROR_ILLEGAL_ADDRESS (700), as the fake driver says after tir_B\n"
        "  why  a kernel that fails takes its context along: every later call on the device "
        "fails,\n       those of other libraries too. Other targets still run.\n"
        '  try  a new process; and target="emulator", which finds out what the kernel did'
    )
    assert tir.full_text(failed.value) == text
    before = sum(fake.calls.values())
    for call in (lambda: kernel(x, y), lambda: kernel(_random(64)), lambda: tir.to_device([1.0])):
        with pytest.raises(tir.KernelError) as failed:
            call()
        assert tir.full_text(failed.value) == text
    assert sum(fake.calls.values()) == before
    a = _random(64)
    np.testing.assert_array_equal(tir.build(doubled(64), target="emulator")(a), 2 * a + 1)


def test_a_kernel_that_goes_wrong_ends_the_context(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(64), target="cuda:sm_80")
    kernel._ptx = kernel._ptx.replace("st.global.b32 \t[", "st.global.b32 \t[7+", 1).replace(
        "[7+%", "[%", 1
    )
    kernel._ptx = kernel._ptx.replace("], %r", "+1048576], %r", 1)
    with pytest.raises(tir.KernelError, match="CUDA is lost to this process: cuStreamSynchronize"):
        kernel(_random(64))
    assert fake.findings[0].finding is not None
    assert fake.findings[0].finding.kind == "bounds"


def test_a_launch_that_fails_otherwise_leaves_the_rest_alone(fake: FakeDriver) -> None:
    kernel = tir.build(doubled(64), target="cuda:sm_80")
    fake.failing["cuLaunchKernel"] = 701
    a = _random(64)
    with pytest.raises(tir.KernelError, match=r"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES \(701\)"):
        kernel(a)
    np.testing.assert_array_equal(kernel(a), 2 * a + 1)
