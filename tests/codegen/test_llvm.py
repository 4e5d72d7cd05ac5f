"""Targets, and the way from text to code."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen import cpu, llvm
from tensorir.ir.dtype import ALL, dtype
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    InternalError,
    UnsupportedError,
    full_text,
)
from tensorir.support.knobs import knobs

HERE = cpu.target()
ADD = """
define <16 x float> @add(<16 x float> %a, <16 x float> %b) #0 {
  %c = fadd <16 x float> %a, %b
  ret <16 x float> %c
}
"""
FMA = """
declare double @llvm.fma.f64(double, double, double)
define double @one(double %a, double %b, double %c) #0 {
  %d = call double @llvm.fma.f64(double %a, double %b, double %c)
  ret double %d
}
"""
ALL_NAMES = [name for name in cpu.NAMES if name != "native"]


# -- targets
def test_native_is_this_machine() -> None:
    assert HERE is cpu.target("native") and HERE.kind == "cpu" and HERE.name == "native"
    here = llvm.host()
    assert (HERE.triple, HERE.cpu, HERE.features) == here
    assert HERE.threads == len(os.sched_getaffinity(0))
    assert HERE.vector_bytes in (16, 32, 64) and HERE.vector_registers in (16, 32)
    assert 4096 <= HERE.l1 < HERE.l2 <= 1 << 30 and HERE.l3 >= 1 << 20
    assert llvm.runs_here(HERE) is None


@pytest.mark.parametrize(
    ("name", "vector", "registers", "fma"),
    [
        ("x86-64", 16, 16, False),
        ("x86-64-v2", 16, 16, False),
        ("sandybridge", 16, 16, False),
        ("x86-64-v3", 32, 16, True),
        ("haswell", 32, 16, True),
        ("znver3", 32, 16, True),
        ("x86-64-v4", 64, 32, True),
        ("skylake-avx512", 64, 32, True),
        ("znver4", 64, 32, True),
    ],
)
def test_named(name: str, vector: int, registers: int, fma: bool) -> None:
    t = cpu.target(name)
    assert (t.vector_bytes, t.vector_registers, t.has_fma) == (vector, registers, fma)
    assert {d.name: t.lanes(d) for d in ALL if d.kind == "float"} == {
        "float16": vector // 2,
        "bfloat16": vector // 2,
        "float32": vector // 4,
        "float64": vector // 8,
    }
    assert t.lanes(dtype("bool")) == t.lanes(dtype("int8")) == vector
    assert cpu.target(t) is t and hash(t) == hash(cpu.target(name))


def test_features_beyond_the_level() -> None:
    assert cpu.target("znver4").has("avx512bf16") and not cpu.target("x86-64-v4").has("avx512bf16")
    assert cpu.target("cascadelake").has("avx512vnni")
    assert not cpu.target("skylake-avx512").has("avx512vnni")
    assert not cpu.target("x86-64-v3").has("avx512")


@pytest.mark.parametrize("name", ALL_NAMES)
def test_llvm_agrees_on_every_name(name: str) -> None:
    """The vectors that we promise are the ones that LLVM uses, and it knows the processor."""
    t = cpu.target(name)
    text = llvm.assembly(cpu.module(ADD, t), t)
    assert ("zmm" in text) == (t.vector_bytes == 64)
    assert ("ymm" in text) == (t.vector_bytes == 32 or name == "sandybridge")
    fma = llvm.assembly(cpu.module(FMA, t), t)
    assert ("vfmadd" in fma) == t.has_fma


def test_llvm_knows_all_features_and_names(capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM takes unknown words with nothing but a line on stderr."""
    for name in ALL_NAMES:
        t = cpu.target(name)
        llvm.compile_object(cpu.module(ADD, replace(t, name="again")), t)
    assert capfd.readouterr().err == ""


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        cpu.target("znver44")
    text = full_text(caught.value)
    assert text.startswith("ArgumentError: there is no target 'znver44'; did you mean 'znver4'?\n")
    assert all(name in text for name in cpu.NAMES)
    with pytest.raises(ArgumentError):
        cpu.target("")
    with pytest.raises(ArgumentTypeError, match="a target is a string, not int 3"):
        cpu.target(3)
    with pytest.raises(UnsupportedError, match="target 'cuda:sm_90' is a GPU; this"):
        cpu.target("cuda:sm_90")


def test_missing_features_are_named() -> None:
    t = replace(HERE, features=f"{HERE.features},+nosuchthing")
    assert llvm.runs_here(t) == f"this machine ({HERE.cpu}) lacks nosuchthing"
    foreign = replace(HERE, triple="wasm32-unknown-unknown")
    assert llvm.runs_here(foreign) == (
        f"it is for wasm32-unknown-unknown, this machine is {HERE.triple}"
    )
    with pytest.raises(UnsupportedError, match="can be built and read here, but not run"):
        llvm.require_runs_here(t)


# -- modules
def test_header_and_attributes() -> None:
    t = cpu.target("znver4")
    text = cpu.module(ADD, t)
    assert text.startswith('target datalayout = "e-') and f'"{t.triple}"' in text
    group = text.splitlines()[-1]
    assert group == f"attributes #0 = {{ {cpu.attributes(t)} }}"
    for word in ("nounwind", '"target-cpu"="x86-64-v4"', '"prefer-vector-width"="512"'):
        assert word in group
    assert '"tune-cpu"="znver4"' in group


# -- compile
def test_phases_are_timed() -> None:
    timings: dict[str, float] = {}
    code = llvm.compile_object(cpu.module(ADD, HERE), HERE, timings=timings)
    assert code[:4] == b"\x7fELF" or not sys.platform.startswith("linux")
    assert list(timings) == ["parse", "verify", "optimize", "codegen"]
    assert all(t >= 0 for t in timings.values())


def test_objects_are_the_same_every_time() -> None:
    text = cpu.module(ADD, HERE)
    assert llvm.compile_object(text, HERE) == llvm.compile_object(text, HERE)


def test_accumulators_go_to_registers() -> None:
    text = """
define float @sum(ptr %p) #0 {
  %acc = alloca float
  %x = load float, ptr %p
  store float %x, ptr %acc
  %y = load float, ptr %acc
  %z = fadd float %y, %x
  ret float %z
}
"""
    t = cpu.target("x86-64-v3")
    assert "rsp" in llvm.assembly(cpu.module(text, t), t, passes=())
    assert "rsp" not in llvm.assembly(cpu.module(text, t), t)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("define foo", "LLVM IR parsing error"),
        ("declare void @f()\ndeclare void @f()", "LLVM IR parsing error"),
        ("define void @f() {\n  br label %gone\n}", "LLVM IR parsing error"),
        ("define i32 @f() {\n  ret i64 0\n}", "LLVM IR parsing error"),
    ],
)
def test_refused_text_is_kept(text: str, says: str, tmp_path: Path) -> None:
    with knobs.override(cache_dir=tmp_path), pytest.raises(InternalError, match=says) as caught:
        llvm.compile_object(text, HERE)
    assert caught.value.reproducer is not None
    assert text.splitlines()[0] in Path(caught.value.reproducer).read_text()


# -- link
def test_imports_and_exports() -> None:
    import ctypes

    text = """
@number = external global i32
define i32 @more() #0 {
  %x = load i32, ptr @number
  %y = add i32 %x, 1
  ret i32 %y
}
"""
    number = ctypes.c_int32(41)
    code = llvm.compile_object(cpu.module(text, HERE), HERE)
    library = llvm.link(code, ["more"], {"number": ctypes.addressof(number)})
    call = ctypes.CFUNCTYPE(ctypes.c_int32)(library["more"])
    assert call() == 42
    number.value = 0
    assert call() == 1


def test_the_same_name_in_many_libraries() -> None:
    import ctypes

    libraries = []
    for k in range(150):
        text = f"define i32 @f() #0 {{\n  ret i32 {k}\n}}\n"
        code = llvm.compile_object(cpu.module(text, HERE), HERE)
        libraries.append((k, llvm.link(code, ["f"], {})))
    del libraries[::2]
    gc.collect()
    assert all(ctypes.CFUNCTYPE(ctypes.c_int32)(lib["f"])() == k for k, lib in libraries)


def test_what_cannot_be_linked_is_our_fault(tmp_path: Path) -> None:
    with knobs.override(cache_dir=tmp_path):
        with pytest.raises(InternalError, match="could not be linked"):
            llvm.link(b"no object", ["f"], {})
        code = llvm.compile_object(cpu.module(ADD, HERE), HERE)
        with pytest.raises(InternalError, match="could not be linked"):
            llvm.link(code, ["other"], {})


def test_text_and_objects_do_not_depend_on_the_process() -> None:
    """R7 for this floor: hash seeds change nothing."""
    program = """
import hashlib
from tensorir.codegen import cpu, llvm
total = hashlib.sha256()
for name in cpu.NAMES:
    t = cpu.target(name)
    text = cpu.module("define i32 @f() #0 { ret i32 7 }", t)
    total.update(text.encode() + llvm.compile_object(text, t))
print(total.hexdigest())
"""
    seen = set()
    for seed in ("0", "1", "20"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True,
                              text=True, timeout=60)  # fmt: skip
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1


def test_a_mask_that_llvm_moves_from_a_register_that_has_no_name_is_compiled_otherwise() -> None:
    X = tir.placeholder((3, 5), "bfloat16", name="X")

    def body(y: tir.Expr, x: tir.Expr) -> tir.Expr:
        return tir.if_then_else((y >= 1) & (y < 2), X[y, x] + X[y + 1, x], X[y, x])

    Y = tir.compute((3, 5), body, name="Y")
    x = np.random.default_rng(0).random((3, 5)).astype(tir.dtype("bfloat16").numpy)
    f = tir.build(tir.schedule(Y).fuse("y", "x").vectorize("yx", width=4))
    assert not re.search(r"(movmskp[sd]|pmovmskb)\t%[xyz]mm(1[6-9]|2\d|3[01])\b", f.asm)
    assert f(x).tobytes() == tir.build(Y)(x).tobytes()


def test_an_object_from_assembly_is_the_same_code() -> None:
    """Where masks could go wrong the assembly is looked at, and it is what is assembled then."""
    text = cpu.module(
        """
declare <64 x i8> @llvm.masked.load.v64i8.p0(ptr, i32, <64 x i1>, <64 x i8>)
define <64 x i8> @get(ptr %a, <64 x i8> %b) #0 {
  %m = icmp ult <64 x i8> %b, splat (i8 9)
  %c = call <64 x i8> @llvm.masked.load.v64i8.p0(ptr %a, i32 1, <64 x i1> %m, <64 x i8> %b)
  ret <64 x i8> %c
}
""",
        cpu.target("znver4"),
    )
    assert llvm._MOVES_MASKS.search(text)
    spent: dict[str, float] = {}
    made = llvm.compile_object(text, cpu.target("znver4"), timings=spent)
    whole = llvm._compile_once(text, cpu.target("znver4"), llvm.PIPELINE, "emit_object", None)
    start, size = (int.from_bytes(whole[k : k + 8], "little") for k in (40, 32))
    assert size == 0
    assert whole[64:128] == made[64:128]  # the code comes first in the file
    assert start > 128
    assert set(spent) == {"parse", "verify", "optimize", "codegen"}
