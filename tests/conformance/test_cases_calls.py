"""Arrays that are not plain, helpers that change, threads and forks, with compiled schedules."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tests.conformance.everyway import everyway

ROOT = Path(__file__).parents[2]


def doubled(shape: tuple[int, ...], dtype: str = "float32") -> tir.Tensor:
    A = tir.placeholder(shape, dtype, name="A")
    return tir.compute(shape, lambda *i: A[i] * 2 + 1, name="C", axes="ijk"[: len(shape)])


# -- H15: layouts


def layouts() -> dict[str, np.ndarray]:
    base = np.arange(7 * 11, dtype="f4").reshape(7, 11)
    raw = np.zeros(7 * 11 * 4 + 1, np.uint8)
    misaligned = raw[1:].view("f4").reshape(7, 11)
    misaligned[...] = base
    odd = np.lib.stride_tricks.as_strided(base[:1], (1, 11), (4, 4))
    frozen = base.copy()
    frozen.flags.writeable = False
    return {
        "transposed": np.arange(77, dtype="f4").reshape(11, 7).T,
        "every second row": np.arange(14 * 11, dtype="f4").reshape(14, 11)[::2],
        "backwards": base[:, ::-1],
        "broadcast": np.broadcast_to(np.arange(11, dtype="f4"), (7, 11)),
        "broadcast along": np.broadcast_to(np.arange(7, dtype="f4")[:, None], (7, 11)),
        "Fortran": np.asfortranarray(base),
        "misaligned": misaligned,
        "one row with a stride of one": odd,
        "read-only": frozen,
    }


@pytest.mark.parametrize("kind", list(layouts()))
def test_inputs_of_every_layout(kind: str) -> None:
    a = layouts()[kind]
    for name, s in everyway(doubled(a.shape)):
        kernel = tir.build(s)
        assert (kernel(a) == a * 2 + 1).all(), name
        room = np.full((*a.shape[:-1], 2 * a.shape[-1]), -1, "f4")
        kernel(a, out=room[..., ::2])
        assert (room[..., ::2] == a * 2 + 1).all(), name
        assert (room[..., 1::2] == -1).all(), name


def test_big_endian_inputs_are_read_or_refused() -> None:
    kernel = tir.build(tir.schedule(doubled((5,))))
    a = np.arange(5, dtype=">f4")
    try:
        got = kernel(a)
    except (tir.CallTypeError, tir.CallValueError) as error:
        assert "A" in str(error)
    else:
        assert (got == a * 2 + 1).all()


def test_dlpack_inputs() -> None:
    class Wrapped:
        """An array of another library."""

        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    kernel = tir.build(tir.schedule(doubled((7, 11))))
    for kind in ("transposed", "every second row", "backwards"):
        a = layouts()[kind]
        out = np.zeros((7, 11), "f4")
        kernel(Wrapped(a), out=out)
        assert (out == a * 2 + 1).all(), kind


# -- H17: helpers, constants and closures


def test_an_edited_helper_gives_a_new_kernel(tmp_path: Path) -> None:
    program = """
        import numpy as np, tensorir as tir
        SCALE = {scale}
        def helper(x): return x * SCALE + {shift}
        def make(closed):
            A = tir.placeholder((4,), name="A")
            C = tir.compute((4,), lambda i: helper(A[i]) - closed, name="C")
            return tir.build(tir.schedule(C))
        f = make({closed})
        print(f(np.arange(4, dtype="f4")).tolist())
    """

    def run(**values: float) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program).format(**values)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "TENSORIR_CACHE_DIR": str(tmp_path / "c"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def want(scale: float, shift: float, closed: float) -> str:
        return f"{(np.arange(4, dtype='f4') * np.float32(scale) + shift - closed).tolist()}\n"

    for values in ((2.0, 1.0, 0.0), (3.0, 1.0, 0.0), (3.0, 5.0, 0.0), (3.0, 5.0, 7.0)):
        scale, shift, closed = values
        assert run(scale=scale, shift=shift, closed=closed) == want(*values)
    objects = sorted(p.name for p in (tmp_path / "c").rglob("*.object"))
    assert run(scale=3.0, shift=5.0, closed=7.0) == want(3.0, 5.0, 7.0)
    assert sorted(p.name for p in (tmp_path / "c").rglob("*.object")) == objects  # a hit


def test_a_changed_closure_in_one_process() -> None:
    A = tir.placeholder((4,), name="A")
    results = []
    for value in (1.0, 2.0, 1.0):
        C = tir.compute((4,), lambda i, value=value: A[i] + value, name="C")
        results.append(tir.build(tir.schedule(C))(np.zeros(4, "f4"))[0])
    assert results == [1, 2, 1]


# -- H19: threads and forks


def parallel_matmul(n: int) -> tir.Kernel:
    A, B = tir.placeholder((n, n), name="A"), tir.placeholder((n, n), name="B")
    k = tir.reduce_axis(n, name="k")
    C = tir.compute((n, n), lambda i, j: tir.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = tir.schedule(C).tile("i", "j", 4, 16).vectorize("ji", width=16).parallel("io")
    return tir.build(s)


def _right(n: int) -> bool:
    a = np.random.default_rng(n).integers(-3, 4, (n, n)).astype("f4")
    return bool((parallel_matmul(n)(a, a) == a @ a).all())


def test_eight_threads_compile_and_run_one_kernel_and_eight() -> None:
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(_right, [67] * 8, timeout=60))
        assert all(pool.map(_right, range(61, 69), timeout=60))


def test_a_fork_after_a_parallel_run() -> None:
    n = 96
    kernel = parallel_matmul(n)
    a = np.ones((n, n), "f4")
    assert (kernel(a, a) == n).all()
    pid = os.fork()
    if pid == 0:
        good = False
        try:
            good = bool((kernel(a, a) == n).all()) and _right(33)
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (kernel(a, a) == n).all()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes(method: str) -> None:
    assert _right(40)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_right, [40, 41]).get(timeout=120) == [True, True]
