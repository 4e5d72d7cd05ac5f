"""mma, ldmatrix and stmatrix, with the fragments of the PTX ISA element by element."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorir.emulator.ptx import run
from tensorir.support.errors import UnsupportedError
from tests.emulator.ptx.kernels import entry, finding_of, on_lanes, right, thread

Array = np.ndarray[Any, Any]


def place(which: str, width: int, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element `i` of a fragment, by the formulas of the ISA."""
    group, t = lane >> 2, lane & 3
    per = 32 // width
    if which == "a":
        low_row = (i // per) % 2 == 0
        return group + 8 * (not low_row), t * per + i % per + 4 * per * (i // (2 * per))
    if which == "b":
        return t * per + i % per + 4 * per * (i // per), group
    return group + 8 * (i >= 2), t * 2 + (i & 1)


def fragments(matrix: Array, which: str, width: int) -> list[Array]:
    """The 32-bit registers of a matrix, each with a value for every lane."""
    per = 32 // width
    count = matrix.size // 32
    elements = np.zeros((count, 32), matrix.dtype)
    for i in range(count):
        for lane in range(32):
            elements[i, lane] = matrix[place(which, width, lane, i)]
    packed = elements.reshape(count // per, per, 32).transpose(0, 2, 1)
    return [np.ascontiguousarray(p).view(np.uint32).ravel() for p in packed]


def from_accumulators(registers: list[Array], dtype: Any) -> Array:
    out = np.zeros((16, 8), dtype)
    for i, r in enumerate(registers):
        for lane in range(32):
            out[place("c", 32, lane, i)] = r.view(dtype)[lane]
    return out


CASES = {
    "m16n8k8.row.col.f32.f16.f16.f32": (np.float16, 16, 8),
    "m16n8k16.row.col.f32.f16.f16.f32": (np.float16, 16, 16),
    "m16n8k8.row.col.f32.bf16.bf16.f32": (ml_dtypes.bfloat16, 16, 8),
    "m16n8k16.row.col.f32.bf16.bf16.f32": (ml_dtypes.bfloat16, 16, 16),
    "m16n8k4.row.col.f32.tf32.tf32.f32": (np.float32, 32, 4),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (np.float32, 32, 8),
    "m16n8k16.row.col.s32.s8.s8.s32": (np.int8, 8, 16),
    "m16n8k32.row.col.s32.s8.s8.s32": (np.int8, 8, 32),
    "m16n8k32.row.col.s32.u8.s8.s32": (np.uint8, 8, 32),
    "m16n8k32.row.col.f32.e4m3.e4m3.f32": (ml_dtypes.float8_e4m3fn, 8, 32),
}


def matrices(dtype: Any, depth: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        a = rng.integers(info.min, info.max, (16, depth), endpoint=True).astype(dtype)
        return a, rng.integers(-128, 127, (depth, 8), endpoint=True).astype(np.int8)
    a, b = (rng.integers(-16, 17, s) / 8 for s in ((16, depth), (depth, 8)))
    return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("form", CASES)
def test_products(form: str) -> None:
    dtype, width, depth = CASES[form]
    a, b = matrices(dtype, depth)
    whole = np.dtype(dtype).kind in "iu"
    out = np.int32 if whole else np.float32
    c = np.random.default_rng(2).integers(-99, 99, (16, 8)).astype(out)
    ra, rb = fragments(a, "a", width), fragments(b, "b", width)
    rc = [f.view(out) for f in fragments(c, "c", 32)]
    names = [f"%{n}" for n in "abcefghjklmo"]
    na, nb = names[: len(ra)], names[len(ra) : len(ra) + len(rb)]
    nc = names[len(ra) + len(rb) :][:4]

    def vector(v: list[str]) -> str:
        return "{" + ", ".join(v) + "}"

    body = (
        f"mma.sync.aligned.{form} {{%d0, %d1, %d2, %d3}}, {vector(na)}, {vector(nb)}, {vector(nc)};"
    )
    found = on_lanes(body, [*ra, *rb, *rc], [out] * 4)
    wide = np.int64 if whole else np.float64
    wanted = (a.astype(wide) @ b.astype(wide) + c).astype(out)
    np.testing.assert_array_equal(from_accumulators(found, out), wanted)
    # the accumulators may be the results in another order
    swapped = [nc[1], nc[0], nc[3], nc[2]]
    body = f"mma.sync.aligned.{form} {vector(swapped)}, {vector(na)}, {vector(nb)}, {vector(nc)};"
    body += "".join(f"mov.b32 %d{k}, {n};" for k, n in enumerate(swapped))
    found = on_lanes(body, [*ra, *rb, *rc], [out] * 4)
    np.testing.assert_array_equal(from_accumulators(found, out), wanted)


def test_half_accumulators() -> None:
    a, b = matrices(np.float16, 16)
    c = (np.random.default_rng(2).integers(-99, 99, (16, 8)) / 8).astype(np.float16)
    rc = []
    for r in range(2):
        rows = [c[n // 4 + 8 * r, 2 * (n % 4) : 2 * (n % 4) + 2] for n in range(32)]
        rc.append(np.stack(rows).view(np.uint32).ravel())
    body = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%d0, %d1}, {%a, %b, %c, %e}, " \
           "{%f, %g}, {%h, %j};"  # fmt: skip
    inputs = [*fragments(a, "a", 16), *fragments(b, "b", 16), *rc]
    found = on_lanes(body, inputs, [np.uint32] * 2)
    wanted = (a.astype(float) @ b.astype(float) + c).astype(np.float16)
    for r in range(2):
        for lane in range(32):
            row, column = lane // 4 + 8 * r, 2 * (lane % 4)
            np.testing.assert_array_equal(
                found[r][lane : lane + 1].view(np.float16), wanted[row, column : column + 2]
            )


def test_tf32_drops_bits() -> None:
    """The lower bits of operands are not looked at."""
    a, b = matrices(np.float32, 8)
    noisy = (a.view(np.uint32) | 0xFFF).view(np.float32)
    inputs = [*fragments(noisy, "a", 32), *fragments(b, "b", 32)]
    zero = "mov.b32 %t1, 0;"
    body = zero + "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%d0, %d1, %d2, %d3}, " \
        "{%a, %b, %c, %e}, {%f, %g}, {%t1, %t1, %t1, %t1};"  # fmt: skip
    found = on_lanes(body, inputs, [np.float32] * 4)
    np.testing.assert_array_equal(from_accumulators(found, np.float32), a @ b)


def test_saturating_integers() -> None:
    a, b = np.full((16, 32), 127, np.int8), np.full((32, 8), 127, np.int8)
    c = np.full((16, 8), 2**31 - 5, np.int32)
    inputs = [*fragments(a, "a", 8), *fragments(b, "b", 8), *fragments(c, "c", 32)]
    form = "mma.sync.aligned.m16n8k32.row.col{}.s32.s8.s8.s32 {{%d0, %d1, %d2, %d3}}, " \
           "{{%a, %b, %c, %e}}, {{%f, %g}}, {{%h, %j, %k, %l}};"  # fmt: skip
    found = on_lanes(form.format(".satfinite"), inputs, [np.int32] * 4)
    assert all((f == 2**31 - 1).all() for f in found)
    found = on_lanes(form.format(""), inputs, [np.int32] * 4)
    assert all((f == 2**31 - 5 + 32 * 127 * 127 - 2**32).all() for f in found)


MMA = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r5, %r6, %r7, %r8}, " \
      "{%r1, %r1, %r1, %r1}, {%r1, %r1}, {%r1, %r1, %r1, %r1};"  # fmt: skip


def test_a_part_of_a_warp() -> None:
    for block, guard in ((20, ""), (32, "setp.lt.s32 %p1, %r0, 31; @%p1 ")):
        found = finding_of(entry(["a"], thread("a") + guard + MMA), block=block, args=[np.zeros(8)])
        assert found.kind == "convergence" and "needs all lanes of a warp" in found.message


# matrices in shared memory


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_load_and_store_matrices(count: int, transposed: bool) -> None:
    data = np.arange(32 * 40, dtype=np.uint16).reshape(32, 40)
    mode = ".trans" if transposed else ""
    names = [f"%r{20 + k}" for k in range(count)]
    copies = " ".join(
        f"ld.global.b64 %rd6, [%rd5+{k}]; st.shared.b64 [%r4+{k}], %rd6;" for k in range(0, 80, 8)
    )
    back = " ".join(
        f"ld.shared.b64 %rd6, [%r4+{k}]; st.global.b64 [%rd7+{k}], %rd6;" for k in range(0, 80, 8)
    )
    stores = " ".join(f"st.global.b32 [%rd2+{128 * k}], {n};" for k, n in enumerate(names))
    body = f"""
        .shared .align 16 .b8 s[2560]; mov.u32 %r2, s; mad.lo.u32 %r4, %r0, 80, %r2;
        mul.wide.u32 %rd4, %r0, 80; add.s64 %rd5, %rd11, %rd4; add.s64 %rd7, %rd13, %rd4;
        {copies} bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x{count}{mode}.shared.b16 {{{", ".join(names)}}}, [%r4];
        {stores} bar.warp.sync -1;
        add.s32 %r5, %r4, 16;
        stmatrix.sync.aligned.m8n8.x{count}{mode}.shared.b16 [%r5], {{{", ".join(names)}}};
        bar.warp.sync -1; {back}"""
    out, whole = np.zeros((count, 32, 2), np.uint16), np.zeros((32, 40), np.uint16)
    text = entry(["a", "c", "e"], thread("a", "c", "e") + body)
    report = right(text, block=32, args=[data, out, whole], seeds=2)
    for m in range(count):
        matrix = data[8 * m : 8 * m + 8, :8]
        for lane in range(32):
            row, column = lane // 4, 2 * (lane % 4)
            own = (
                matrix.T[row, column : column + 2]
                if transposed
                else matrix[row, column : column + 2]
            )
            np.testing.assert_array_equal(out[m, lane], own)
    wanted = data.copy()
    wanted[: 8 * count, 8:16] = data[: 8 * count, :8]
    np.testing.assert_array_equal(whole, wanted)
    (counts,) = report.of("ldmatrix")
    assert (counts.waves, counts.least_waves) == (count, count)  # 80 bytes apart: no conflicts


def test_rows_out_of_place() -> None:
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r4];"
    start = ".shared .align 16 .b8 s[128]; mov.u32 %r2, s; "
    fill = "shl.b32 %r3, %r0, 2; add.s32 %r3, %r3, %r2; st.shared.b32 [%r3], %r0; bar.warp.sync -1;"
    for step, kind in ((16, None), (32, "bounds"), (8, "misaligned")):
        body = thread("a") + start + fill + f"mad.lo.s32 %r4, %r0, {step}, %r2;" + load
        call: dict[str, Any] = {"block": 32, "args": [np.zeros(32, np.int32)]}
        if kind is None:
            right(entry(["a"], body), **call)
        else:
            assert finding_of(entry(["a"], body), **call).kind == kind


@pytest.mark.parametrize("line", [
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%rd1}, {%rd1}, {%rd1}, {%rd1}",
    "ldmatrix.sync.aligned.m8n8.x4.b16 {%r1, %r2, %r3, %r4}, [%rd1]",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r2}, {%r1}, {%r1}, {%r1}",
])  # fmt: skip
def test_other_forms_are_refused(line: str) -> None:
    with pytest.raises(UnsupportedError, match="PTX line"):
        run(entry([], line + ";"), block=32)
