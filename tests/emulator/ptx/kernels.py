"""Small PTX kernels for tests, values worth trying, and exact rounding by fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorir.emulator.ptx import EmulationError, Report, run

Array = NDArray[Any]

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"
_REGISTER = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}
_NAMES = "abcefghjklmo"


def entry(params: Sequence[str], body: str, before: str = "", name: str = "k") -> str:
    """A module of one kernel with pointer parameters, and registers of all kinds."""
    listed = ", ".join(f".param .u64 {p}" for p in params)
    return (
        f"{HEAD}{before}\n.visible .entry {name}({listed}) {{\n"
        ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n"
        f"{body}\nret;\n}}\n"
    )


def thread(*params: str) -> str:
    """Code that puts the thread into %r0, and of each parameter its address + 4 * thread.

    These are %rd1, %rd2, ..; the addresses themselves are %rd11, %rd12, ...
    """
    lines = ["mov.u32 %r0, %tid.x;", "mul.wide.u32 %rd0, %r0, 4;"]
    for k, p in enumerate(params, 1):
        lines += [f"ld.param.u64 %rd{10 + k}, [{p}];", f"add.s64 %rd{k}, %rd{10 + k}, %rd0;"]
    return "\n".join(lines) + "\n"


def on_lanes(body: str, inputs: Sequence[Array], outputs: Sequence[Any]) -> list[Array]:
    """Run `body` in one thread for each element: inputs in %a, %b, %c, .., results in %d0, %d1.

    %p0 to %p7, %t0 to %t7 (32 bits) and %w0 to %w7 (64 bits) are free.
    """
    count = len(inputs[0])
    arrays = [np.ascontiguousarray(a) for a in inputs]
    results = [np.zeros(count, d) for d in outputs]
    names = [f"%{_NAMES[k]}" for k in range(len(arrays))]
    lines = ["mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t0, %tid.x;",
             "mad.lo.u32 %i, %i, %n, %t0;"]  # fmt: skip
    declared = [".reg .pred %p<8>; .reg .b32 %t<8>; .reg .b64 %w<8>; .reg .b32 %i; .reg .b32 %n;"]
    for k, (a, name) in enumerate(zip(arrays, names, strict=True)):
        width = a.dtype.itemsize
        declared.append(f".reg .{_REGISTER[width]} {name}; .reg .b64 %at{k};")
        lines.append(f"ld.param.u64 %at{k}, [in{k}]; mul.wide.u32 %w0, %i, {width};")
        lines.append(f"add.s64 %at{k}, %at{k}, %w0; ld.global.b{8 * width} {name}, [%at{k}];")
    lines.append(body)
    for k, a in enumerate(results):
        width = a.dtype.itemsize
        declared.append(f".reg .{_REGISTER[width]} %d{k}; .reg .b64 %to{k};")
        lines.append(f"ld.param.u64 %to{k}, [out{k}]; mul.wide.u32 %w0, %i, {width};")
        lines.append(f"add.s64 %to{k}, %to{k}, %w0; st.global.b{8 * width} [%to{k}], %d{k};")
    params = [f".param .u64 in{k}" for k in range(len(arrays))]
    params += [f".param .u64 out{k}" for k in range(len(results))]
    text = f"{HEAD}.visible .entry k({', '.join(params)}) {{\n" + "\n".join(declared + lines)
    block = math.gcd(count, 256)
    run(text + "\nret;\n}\n", grid=count // block, block=block, args=[*arrays, *results])
    return results


def operation(opcode: str, inputs: Sequence[Array], output: Any) -> Array:
    """One instruction, its operands from arrays."""
    names = ", ".join(f"%{_NAMES[k]}" for k in range(len(inputs)))
    return on_lanes(f"{opcode} %d0, {names};", inputs, [output])[0]


def finding_of(text: str, **call: Any) -> Any:
    """The finding of a run that must have one."""
    try:
        run(text, **call)
    except EmulationError as error:
        assert error.finding is not None
        return error.finding
    raise AssertionError("nothing was found")


def right(text: str, seeds: int = 20, **call: Any) -> Report:
    """Run with many seeds: no finding, and the same arrays after each."""
    args = call.pop("args")
    first: list[Array] | None = None
    report = None
    for seed in range(seeds):
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        report = run(text, args=own, seed=seed, **call)
        after = [a for a in own if isinstance(a, np.ndarray)]
        if first is None:
            first = after
        for a, b in zip(first, after, strict=True):
            np.testing.assert_array_equal(a, b)
    assert report is not None and first is not None
    for a, b in zip([a for a in args if isinstance(a, np.ndarray)], first, strict=True):
        a[...] = b
    return report


def integers(dtype: Any, count: int, seed: int) -> Array:
    """Numbers at the edges of a type, small ones, and any."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    edges = [info.min, info.max, 0, 1, info.max - 1, info.min + 1, info.max // 2, 7]
    edges += [int(info.min < 0) * -1, 3]
    any_of = rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    small = rng.integers(max(info.min, -40), 40, count, dtype=dtype)
    edge = np.array(edges, dtype)[rng.integers(0, len(edges), count)]
    pick = rng.integers(0, 3, count)
    return np.where(pick == 0, any_of, np.where(pick == 1, small, edge)).astype(dtype)


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127),
           "f64": (53, -1022, 1023), "tf32": (11, -126, 127)}  # fmt: skip


def floats(word: str, count: int, seed: int, near: int = 4) -> Array:
    """Values of a type as float64: zeros, infinities, NaN, subnormals, halfway cases, any."""
    precision, low, high = FORMATS[word]
    rng = np.random.default_rng(seed)
    top = (2.0 - 2.0 ** (1 - precision)) * 2.0**high
    tiny = 2.0 ** (low - precision + 1)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, top, -top, tiny, -tiny, 2.0**low,
               2.0**low - tiny, 1.0 + 2.0 ** (1 - precision)]  # fmt: skip
    mantissa = rng.integers(1 << (precision - 1), 1 << precision, count).astype(np.float64)
    few = (rng.integers(1, 16, count) * 2.0 ** (precision - 4)).astype(np.float64)
    mantissa = np.where(rng.integers(0, 2, count) == 0, mantissa, few)
    narrow = np.clip(rng.integers(-near, near + 1, count), low, high)
    wide = rng.integers(low - precision // 2, high - 1, count)
    exponent = np.where(rng.integers(0, 3, count) > 0, narrow, wide).astype(np.int64)
    value = np.ldexp(mantissa, np.maximum(exponent, low) - (precision - 1))
    value = np.where(rng.integers(0, 2, count) == 0, value, -value)
    few_special = np.array(special)[rng.integers(0, len(special), count)]
    return np.where(rng.integers(0, 5, count) == 0, few_special, value)


def rounded(exact: Fraction, word: str, mode: str = "rn") -> float:
    """A number rounded to a format; `rna` takes ties away from zero."""
    precision, low, high = FORMATS[word]
    if exact == 0:
        return 0.0
    size = abs(exact)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** power > size:
        power -= 1
    unit = Fraction(2) ** (max(power, low) - precision + 1)
    scaled = size / unit
    down = scaled.numerator // scaled.denominator
    rest = scaled - down
    negative = exact < 0
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1)
    elif mode == "rna":
        up = rest >= Fraction(1, 2)
    else:
        up = rest > 0 and mode == ("rm" if negative else "rp")
    result = (down + up) * unit
    top = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** high
    if result > top:
        stays = mode == "rz" or mode == ("rp" if negative else "rm")
        value = float(top) if stays else math.inf
    else:
        value = float(result)
    return -value if negative else value


def bits_of(values: Array, word: str) -> Array:
    """Values that a format holds, as its bits."""
    if word == "bf16":
        return (np.asarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "tf32": np.float32}[word]
    return np.asarray(values, dtype).view(f"u{np.dtype(dtype).itemsize}")


def values_of(bits: Array, word: str) -> Array:
    """The values of bits of a format, as float64."""
    if word == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "tf32": np.float32}[word]
    return bits.view(dtype).astype(np.float64)


def same_floats(found: Array, wanted: Array) -> None:
    """Equal, signs of zeros too; NaN is NaN."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    equal = (np.isnan(found) & np.isnan(wanted)) | (
        (found == wanted) & (np.signbit(found) == np.signbit(wanted))
    )
    if not equal.all():
        k = int(np.argmin(equal))
        raise AssertionError(f"element {k}: {found[k]!r}, not {wanted[k]!r}")
