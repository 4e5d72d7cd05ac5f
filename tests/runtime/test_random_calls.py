"""Calls drawn at random: the right answer, or an error of ours, and nothing else (R5)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tensorir.runtime.kernel import make_kernel
from tensorir.support.errors import TensorIRError
from tensorir.support.knobs import knobs
from tests.runtime import handmade

KERNELS = [handmade.add(), handmade.scale(), handmade.crop(), handmade.both(), handmade.count_up()]


def value(rng: random.Random) -> Any:
    """Something that a caller may pass; most draws are arrays that may fit."""
    if rng.random() < 0.6:
        fits = np.array([rng.uniform(-9, 9) for _ in range(8)], "f4")
        grid = np.arange(24, dtype="f4").reshape(4, 6)
        return rng.choice([fits, fits, np.repeat(fits, 2)[::2], grid, np.array(1.5), fits > 0])
    n = rng.choice([0, 1, 2, 7, 8, 8, 8, 8, 9])
    base = np.array(
        [rng.uniform(-9, 9) for _ in range(2 * n)], rng.choice(["f4", "f4", "f4", "f8"])
    )
    read_only = base[:n].copy()
    read_only.flags.writeable = False
    return rng.choice(
        [
            base[:n], base[:n], base[:n], base[:n], base[::2], base[::-1][:n], read_only,
            base[:n].astype(">f4"), base[:n].view("u1"), base.reshape(2, n), base.reshape(n, 2),
            base.reshape(2, n).T, np.array(1.5), np.float64(2), np.float32(2),
            base[:n].astype("i8"),
            np.broadcast_to(np.float32(1), (n,)), np.zeros((n + 2, 2 * n + 2), "f4"), None, 0, -1,
            1 << 70, 2.5, "A", b"A", [1.0] * 8, (base[:n],), {}, object(), np.ndarray, len, "größe",
            np.array(["a"]), np.array([None]), np.ma.masked_array(base[:n]), memoryview(base[:n]),
            np.zeros(3, "M8[s]"), np.zeros(2, [("x", "f4")]), float("nan"), True, ..., slice(3),
        ]
    )  # fmt: skip


def expected(name: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    if name == "add":
        return [arrays[0] + arrays[1]]
    if name == "scale":
        return [2 * arrays[0]]
    if name == "crop":
        return [arrays[0][1:-1, 1:-1]]
    if name == "both":
        return [np.zeros(()), 2 * arrays[0]]
    return [np.arange(len(arrays[0]))]


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    names = ["add", "scale", "crop", "both", "count_up"]
    kernels = [make_kernel(source) for source in KERNELS]
    right = 0
    with knobs.override(silenced=("copy",)):
        for _ in range(1000):
            which = rng.randrange(len(kernels))
            args = [value(rng) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 3, 4]))]
            options = {rng.choice(["out", "out", "out", "A", "where"]): value(rng)}
            options = options if rng.random() < 0.4 else {}
            inputs = [a for a in kernels[which].arguments if a.role == "input"]
            before = [np.array(a, copy=True) for a in args if isinstance(a, np.ndarray)]
            want = [np.array(a, copy=True) for a in args[: len(inputs)]] if args else []
            try:
                result = kernels[which](*args, **options)
            except TensorIRError as error:
                assert str(error) and isinstance(error, ValueError | TypeError)
                unchanged = [a for a in args if isinstance(a, np.ndarray)]
                for a, b in zip(unchanged, before, strict=True):
                    np.testing.assert_array_equal(a, b)
                continue
            right += 1
            results = result if isinstance(result, tuple) else (result,)
            if names[which] == "count_up":
                want = [np.asarray(results[0])]
            elif names[which] == "both" and len(args) == 3:
                want = [np.asarray(results[1]) / 2]
            for got, reference in zip(results, expected(names[which], want), strict=True):
                np.testing.assert_array_equal(np.asarray(got), reference)
    assert right >= 20
