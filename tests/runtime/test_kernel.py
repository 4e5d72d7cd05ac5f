"""The kernel object: what it tells, how it is checked, measured, saved, kept and dropped."""

from __future__ import annotations

import copy
import gc
import io
import json
import pickle
import sys
import weakref
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorir as tir
from tensorir.codegen import cpu
from tensorir.codegen.source import KernelSource
from tensorir.runtime import kernel as kernels
from tensorir.runtime import layout
from tensorir.runtime.files import load
from tensorir.runtime.kernel import ABI_VERSION, Kernel, make_kernel
from tensorir.runtime.timer import compare
from tensorir.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CacheError,
    CallValueError,
    InternalError,
    KernelError,
    TensorIRError,
    TensorIRWarning,
    UnsupportedError,
    full_text,
)
from tensorir.support.knobs import knobs
from tests.runtime import handmade

A = np.arange(8, dtype="f4")
B = np.ones(8, "f4")
FOREIGN = "sapphirerapids"


def error(call: Any) -> str:
    with pytest.raises(TensorIRError) as caught:
        call()
    return full_text(caught.value)


# -- what it tells
def test_attributes() -> None:
    source = handmade.add(loops="for i in 0..8\n  C", notes=("a note",))
    k = make_kernel(source, schedule="the schedule")
    assert isinstance(k, Kernel) and callable(k)
    assert (k.name, k.source, k.schedule) == ("C", source, "the schedule")
    assert [a.name for a in k.arguments] == ["A", "B", "C"]
    assert (k.loops, k.notes) == ("for i in 0..8\n  C", ("a note",))
    assert "define i32 @tir_C" in k.llvm and k.llvm.startswith("target datalayout")
    assert "tir_C:" in k.asm and k.asm is k.asm
    assert {"link", "wrap"} <= set(k.timings) and all(t >= 0 for t in k.timings.values())
    assert repr(k) == (
        f"<kernel C(A: float32[8], B: float32[8], out=C: float32[8]) for {handmade.HERE}>"
    )


def test_compile_phases_are_timed() -> None:
    k = make_kernel(handmade.add(9), use_cache=False)
    assert set(k.timings) == {"parse", "verify", "optimize", "codegen", "link", "wrap"}


def test_kernels_are_not_made_by_hand() -> None:
    if not layout.holds():
        pytest.skip("the plain class can be made")
    assert error(Kernel) == (  # type: ignore[arg-type]
        "ArgumentTypeError: kernels are made by tir.build and tir.load, not by calling the class"
    )
    with pytest.raises(TypeError):
        type("Mine", (Kernel,), {})


def test_copies_are_itself_and_pickles_are_refused() -> None:
    k = make_kernel(handmade.add())
    assert copy.copy(k) is k and copy.deepcopy(k) is k
    assert error(lambda: pickle.dumps(k)).startswith("UnsupportedError: kernels are not pickled")


def test_bad_text_is_our_fault_and_is_kept(home: Path) -> None:
    source = KernelSource("tir_C", "define i32 @tir_C(", (), (), handmade.HERE)
    with pytest.raises(InternalError) as caught:
        make_kernel(source)
    assert str(caught.value).startswith("LLVM refused the generated code: LLVM IR parsing error")
    assert caught.value.reproducer is not None
    assert "define i32 @tir_C(" in Path(caught.value.reproducer).read_text()


def test_a_missing_symbol_is_our_fault(home: Path) -> None:
    text = """
declare i32 @no_such_function()
define i32 @tir_C(ptr %a, ptr %c, ptr %info) #0 {
  %x = call i32 @no_such_function()
  ret i32 %x
}
"""
    arguments = [handmade.given("A", handmade.F32), handmade.made("C", handmade.F32)]
    with pytest.raises(InternalError, match="calls no_such_function, which this process"):
        make_kernel(handmade.source("tir_C", text, arguments))


# -- it lives as long as it is needed, and no longer
def test_dropped_kernels_unload_their_code() -> None:
    k = make_kernel(handmade.add())
    watched = weakref.ref(k), weakref.ref(k._loaded.code)  # type: ignore[union-attr]
    del k
    assert [w() for w in watched] == [None, None]


def test_cycles_are_collected() -> None:
    k = make_kernel(handmade.add())
    watched = weakref.ref(k)
    k.schedule = [k]
    del k
    gc.collect()
    assert watched() is None


def test_code_outlives_what_made_it() -> None:
    ks = [make_kernel(handmade.add(n)) for n in range(1, 100)]
    kernels._linked_wrapper.cache_clear()
    del ks[::2]
    gc.collect()
    for k, n in zip(ks, range(2, 100, 2), strict=True):
        np.testing.assert_array_equal(k(np.ones(n, "f4"), np.ones(n, "f4")), np.full(n, 2))


@pytest.mark.full
def test_long_sessions_do_not_swell() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def cycle(k: int) -> None:
        n = 1 + k % 700
        make_kernel(handmade.add(n), use_cache=False)(np.ones(n, "f4"), np.ones(n, "f4"))

    for k in range(800):
        cycle(k)
    before = resident()
    for k in range(2000):
        cycle(k)
    assert (resident() - before) / 2000 < 16 * 1024


# -- the cache
def test_the_second_time_comes_from_the_disk(home: Path) -> None:
    make_kernel(handmade.add(11))
    k = make_kernel(handmade.add(11))
    assert set(k.timings) == {"cache", "link", "wrap"}
    assert len(list((home / "objects").glob("*.object"))) >= 1


def test_no_cache_when_it_is_off(home: Path) -> None:
    with knobs.override(cache_enabled=False):
        make_kernel(handmade.add(12))
    assert not (home / "objects").exists()


@pytest.mark.parametrize("damage", ["empty", "half", "but one", "random", "folder"])
def test_damaged_entries_are_made_anew(home: Path, damage: str) -> None:
    """Case H16 of the field, for kernels and wrappers alike."""
    kernels._linked_wrapper.cache_clear()
    make_kernel(handmade.add(13))
    entries = list((home / "objects").glob("*.object"))
    assert len(entries) == 2
    for entry in entries:
        data = entry.read_bytes()
        entry.unlink()
        if damage == "folder":
            entry.mkdir()
            continue
        cut = {"empty": 0, "half": len(data) // 2, "but one": len(data) - 1}
        noise = np.random.default_rng(1).bytes(len(data))
        entry.write_bytes(noise if damage == "random" else data[: cut[damage]])
    kernels._linked_wrapper.cache_clear()
    with pytest.warns(TensorIRWarning) as caught:
        k = make_kernel(handmade.add(13))
        np.testing.assert_array_equal(k(np.ones(13, "f4"), np.ones(13, "f4")), np.full(13, 2))
    assert len([w for w in caught if w.message.id == "cache"]) == 1  # type: ignore[union-attr]
    assert set(make_kernel(handmade.add(13)).timings) == {"cache", "link", "wrap"}


# -- other processors
def foreign() -> KernelSource:
    return handmade.add(target=cpu.target(FOREIGN))


def runnable_everywhere() -> bool:
    from tensorir.codegen import llvm

    return llvm.runs_here(cpu.target(FOREIGN)) is None


@pytest.mark.skipif(runnable_everywhere(), reason="this machine has every feature")
def test_a_kernel_for_another_processor_is_read_not_run(tmp_path: Path) -> None:
    k = make_kernel(foreign())
    assert "define i32 @tir_C" in k.llvm and "tir_C:" in k.asm
    text = error(lambda: k(A, B))
    assert text.startswith(
        f"UnsupportedError: code for {FOREIGN} can be built and read here, but not run: "
        "this machine ("
    )
    k.save(tmp_path / "k.zip")
    assert "was compiled for sapphirerapids, and cannot run here" in error(
        lambda: load(tmp_path / "k.zip")
    )


@pytest.mark.parametrize("name", ["x86-64", "x86-64-v2", "x86-64-v3", "native"])
def test_lesser_processors_run_here(name: str) -> None:
    k = make_kernel(handmade.add(target=cpu.target(name)))
    np.testing.assert_array_equal(k(A, B), A + B)


# -- check
def test_check() -> None:
    k = make_kernel(handmade.add())
    result = k.check(A, B, against=np.add)
    (only,) = result.outputs
    assert (only.name, only.wrong, only.elements, only.relative) == ("C", 0, 8, 0.0)
    assert str(result) == "C: within 0 of the reference (allowed 1.4e-06), all 8 elements"


def test_check_names_the_worst_element() -> None:
    k = make_kernel(handmade.add())

    def reference(a: Any, b: Any) -> Any:
        c = a + b
        c[3], c[5] = 4.25, -6.0
        return c

    assert error(lambda: k.check(A, B, against=reference)) == (
        "KernelError: C() gives C[5] = 6.0, the reference -6.0\n"
        "  worst  relative difference 2, allowed 1.43e-06\n"
        "  wrong  2 of 8 elements (25 %)"
    )
    k.check(A, B, against=reference, tol=2.5)


def test_check_of_integers_is_exact() -> None:
    k = make_kernel(handmade.copy("int64", 2, 2))
    a = np.array([[1, 2], [3, 1 << 60]])
    assert str(k.check(a, against=lambda a: a)) == "B: equal, all 4 elements"
    assert error(lambda: k.check(a, against=lambda a: a + (a == 3))) == (
        "KernelError: B() gives B[1, 0] = 3, the reference 4\n  wrong  1 of 4 elements (25 %)"
    )


def test_check_of_what_is_not_finite() -> None:
    k = make_kernel(handmade.copy("float64", 4))
    a = np.array([np.nan, np.inf, -np.inf, 1.0])
    k.check(a, against=lambda a: a)
    with pytest.raises(KernelError, match=r"B\[0\] = nan, the reference 0.0"):
        k.check(a, against=np.nan_to_num)
    with pytest.raises(KernelError, match=r"B\[1\] = inf, the reference -inf"):
        k.check(a, against=lambda a: np.where(a == np.inf, -np.inf, a))


def test_check_of_half_types() -> None:
    import ml_dtypes

    k = make_kernel(handmade.copy("bfloat16", 4))
    a = np.array([1, 2, 3, 4], ml_dtypes.bfloat16)
    k.check(a, against=lambda a: a.astype("f4") * 1.001)
    with pytest.raises(KernelError):
        k.check(a, against=lambda a: a.astype("f4") * 1.5)


def test_check_of_nothing() -> None:
    k = make_kernel(handmade.scale())
    assert str(k.check(np.empty(0, "f4"), against=lambda a: a)) == "B: no elements"


def test_check_of_bad_requests() -> None:
    k = make_kernel(handmade.add())
    assert error(lambda: k.check(A, B, against=3)) == (
        "ArgumentTypeError: against=3: expected a function of the inputs"
    )
    for tol, kind in ((-1, ArgumentError), ("x", ArgumentTypeError), (np.nan, ArgumentError)):
        with pytest.raises(kind):
            k.check(A, B, against=np.add, tol=tol)  # type: ignore[arg-type]
    assert error(lambda: k.check(A, B, against=lambda a, b: a[:3])) == (
        "CallValueError: C(): output C has shape (8,), the reference (3,)"
    )
    with pytest.raises(CallValueError, match="has 1 outputs, the reference gave 2"):
        k.check(A, B, against=lambda a, b: (a, b))


def test_errors_of_the_reference_pass() -> None:
    k = make_kernel(handmade.add())

    def reference(a: Any, b: Any) -> Any:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        k.check(A, B, against=reference)


# -- time
def test_time() -> None:
    k = make_kernel(handmade.add())
    t = k.time(A, B, repeat=3)
    assert (t.name, t.repeats, t.operations, t.bytes) == ("C", 3, 8, 96)
    assert 0 < t.best <= t.median and t.calls > 1 and t.spread >= 0
    assert t.gflops == 8 / t.median / 1e9 and t.gbytes == 96 / t.median / 1e9
    text = str(t)
    assert text.startswith("C: ") and "median (best" in text and "GFLOP/s" in text


def test_time_evaluates_symbolic_work() -> None:
    k = make_kernel(handmade.scale())
    assert k.time(np.ones(100, "f4"), repeat=1).operations == 100
    assert k.time(np.ones(100, "f4"), np.empty(100, "f4"), repeat=1, flush=True).calls == 1


def test_compare_measures_in_turns() -> None:
    k = make_kernel(handmade.add())
    table = compare(k, np.add, inputs=(A, B), repeat=2)
    assert [t.name for t in table] == ["C", "add"]
    assert len(str(table).splitlines()) == 2 and "1.00x" in str(table)


@pytest.mark.parametrize("bad", [{"repeat": 0}, {"repeat": 1.5}, {"repeat": True}, {"flush": 1}])
def test_time_of_bad_requests(bad: dict[str, Any]) -> None:
    k = make_kernel(handmade.add())
    with pytest.raises((ArgumentError, ArgumentTypeError)):
        k.time(A, B, **bad)


def test_compare_of_bad_requests() -> None:
    with pytest.raises(ArgumentTypeError):
        compare(3, inputs=(A, B))  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError):
        compare(np.add, inputs=A)  # type: ignore[arg-type]


def test_what_a_reference_raises_is_not_our_fault() -> None:
    k = make_kernel(handmade.add())
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given") as caught:
        k.check(A, B, against=lambda a: a)
    assert not isinstance(caught.value, TensorIRError)
    with pytest.raises(ValueError, match="axis") as caught_too:
        k.check(A, B, against=lambda a, b: np.stack(a, 5))
    assert not isinstance(caught_too.value, TensorIRError)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        compare(k, lambda a: a, inputs=(A, B))


# -- files
def everything() -> list[KernelSource]:
    return [handmade.add(), handmade.crop(), handmade.first_cell(), handmade.both(),
            handmade.positive(), handmade.parallel()]  # fmt: skip


@pytest.mark.parametrize("source", everything(), ids=lambda s: s.name)
def test_save_and_load(source: KernelSource, tmp_path: Path) -> None:
    k = make_kernel(source)
    k.save(tmp_path / "k.tir.zip")
    again = load(tmp_path / "k.tir.zip")
    assert repr(again) == repr(k) and again.schedule is None
    assert again.llvm == k.llvm and again.source.checks == source.checks
    again.save(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "k.tir.zip").read_bytes()


def test_a_loaded_kernel_runs(tmp_path: Path) -> None:
    make_kernel(handmade.crop()).save(tmp_path / "k.zip")
    k = load(tmp_path / "k.zip")
    a = np.random.default_rng(0).random((5, 8), np.float32)
    np.testing.assert_array_equal(k(a), a[1:-1, 1:-1])
    assert k.time(a, repeat=1).bytes == 4 * 3 * 3


def test_tir_load_reads_what_save_wrote(tmp_path: Path) -> None:
    A = tir.placeholder((4,), name="A")
    k = tir.build(tir.compute((4,), lambda i: A[i] * 2.0, name="B"))
    k.save(tmp_path / "k.zip")
    assert tir.load(tmp_path / "k.zip")(np.ones(4, np.float32)).tolist() == [2.0] * 4


def saved(tmp_path: Path) -> tuple[Path, dict[str, Any], dict[str, bytes]]:
    path = tmp_path / "k.zip"
    make_kernel(handmade.crop()).save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    return path, json.loads(parts["manifest.json"]), parts


def rewrite(path: Path, manifest: Any, parts: dict[str, bytes]) -> None:
    parts = {**parts, "manifest.json": json.dumps(manifest).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
    path.write_bytes(buffer.getvalue())


def test_load_refuses_another_version(tmp_path: Path) -> None:
    path, manifest, parts = saved(tmp_path)
    rewrite(path, {**manifest, "abi": 99}, parts)
    with pytest.raises(UnsupportedError) as caught:
        load(path)
    assert full_text(caught.value) == (
        f"UnsupportedError: {str(path)!r} was written by another version of this library "
        f"(abi 99, here {ABI_VERSION})\n  try  build and save it again"
    )


def test_load_refuses_other_code(tmp_path: Path) -> None:
    path, manifest, parts = saved(tmp_path)
    rewrite(path, manifest, {**parts, "kernel.o": parts["kernel.o"][:-1] + b"x"})
    assert "its code is not what its manifest says" in error(lambda: load(path))


def test_load_refuses_an_edited_manifest_or_text(tmp_path: Path) -> None:
    path, manifest, parts = saved(tmp_path)
    for changed in (
        {**manifest, "arguments": manifest["arguments"][:1]},
        {**manifest, "imports": ["system"]},
        {**manifest, "checks": ["{0.__class__}"]},
    ):
        rewrite(path, changed, parts)
        assert "its code is not what its manifest says" in error(lambda: load(path))
    rewrite(path, manifest, {**parts, "kernel.ll": b"hello"})
    assert "its code is not what its manifest says" in error(lambda: load(path))
    rewrite(path, manifest, parts)
    assert load(path).name == manifest["name"].removeprefix("tir_")


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": 3}, {"arguments": [{"name": "A"}]}, {"sizes": [None]}, {"sizes": ["a b"]},
        {"target": {}}, {"target": {"kind": "cpu", "more": 1}}, {"name": "__import__('os')"},
        {"operations": [[1.5, []]]}, {"bytes_moved": [["x", []]]}, {"imports": ["; rm"]},
        {"checks": None},
    ],
)  # fmt: skip
def test_load_refuses_malformed_manifests(tmp_path: Path, change: dict[str, Any]) -> None:
    path, manifest, parts = saved(tmp_path)
    rewrite(path, {**manifest, **change}, parts)
    with pytest.raises(CacheError, match="is damaged: its manifest is malformed"):
        load(path)


def test_load_refuses_what_is_no_kernel(tmp_path: Path) -> None:
    path, _, parts = saved(tmp_path)
    rewrite(path, [1], parts)
    assert "its manifest is no object" in error(lambda: load(path))
    assert "cannot read" in error(lambda: load(tmp_path / "nothing"))
    assert "cannot read" in error(lambda: load(tmp_path))
    assert error(lambda: load(3)) == (  # type: ignore[arg-type]
        "ArgumentTypeError: a path is a string, not int 3"
    )
    rng = np.random.default_rng(0)
    whole = (tmp_path / "k.zip").read_bytes()
    for data in (b"", b"PK", whole[:100], whole[: len(whole) // 2], rng.bytes(500)):
        (tmp_path / "bad").write_bytes(data)
        assert "is damaged, or no saved kernel" in error(lambda: load(tmp_path / "bad"))


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    path, _, _ = saved(tmp_path)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(7)
    for at in rng.integers(0, len(whole), 60):
        data = bytearray(whole)
        data[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            load(path)
        except TensorIRError:
            pass


def test_save_where_nothing_can_be_written(tmp_path: Path) -> None:
    k = make_kernel(handmade.add())
    assert "cannot write" in error(lambda: k.save(tmp_path / "no" / "folder"))
    assert list(tmp_path.iterdir()) == []


# -- interpreters where the layout does not hold
def test_the_plain_class_does_the_same() -> None:
    source = handmade.add()
    code = make_kernel(source)._object
    k = kernels.PlainKernel(source, code, {}, None)
    c = np.zeros(8, "f4")
    assert k(A, B, out=c) is c
    np.testing.assert_array_equal(c, A + B)
    np.testing.assert_array_equal(k(A, B), A + B)
    assert repr(k).startswith("<kernel C(") and k.check(A, B, against=np.add)
    assert k.time(A, B, repeat=1).repeats == 1


def test_layout_holds_on_this_interpreter() -> None:
    expected = sys.implementation.name == "cpython" and sys.platform.startswith("linux")
    assert layout.holds() is expected
