"""The processors: which there are, what this one is, and what a module for one begins with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tensorir.codegen import llvm
from tensorir.ir.target import Target
from tensorir.support.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from tensorir.support.names import hint
from tensorir.support.tracebacks import user_api

__all__ = ["NAMES", "attributes", "module", "target", "unknown"]

_V1 = "cmov cx8 fxsr mmx sse sse2"
_V2 = f"{_V1} crc32 cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl"
_LEVELS = {"x86-64": _V1, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
_CRYPTO = "aes pclmul"
_VECTOR_CRYPTO = f"{_CRYPTO} gfni vaes vpclmulqdq"
_ICELAKE = (
    f"{_VECTOR_CRYPTO} avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512vpopcntdq"
)
_SAPPHIRE = f"{_ICELAKE} avx512bf16 avx512fp16 avxvnni"
_ZEN4 = f"{_ICELAKE} avx512bf16 prfchw sse4a"

# name: level, features above it, KiB of L1 data, L2, L3. Code for a name uses the level's
# instructions and the listed features, nothing else, so that `Target.has` tells the whole truth.
_KIB = 1024
_CPUS: dict[str, tuple[str, str, int, int, int]] = {
    "x86-64": ("x86-64", "", 32, 256, 8192),
    "x86-64-v2": ("x86-64-v2", "", 32, 256, 8192),
    "x86-64-v3": ("x86-64-v3", "", 32, 256, 8192),
    "x86-64-v4": ("x86-64-v4", "", 32, 1024, 16384),
    "nehalem": ("x86-64-v2", "", 32, 256, 8192),
    "sandybridge": ("x86-64-v2", f"{_CRYPTO} avx xsave", 32, 256, 8192),
    "haswell": ("x86-64-v3", f"{_CRYPTO}", 32, 256, 8192),
    "broadwell": ("x86-64-v3", f"{_CRYPTO} prfchw", 32, 256, 8192),
    "skylake": ("x86-64-v3", f"{_CRYPTO} prfchw", 32, 256, 8192),
    "alderlake": ("x86-64-v3", f"{_VECTOR_CRYPTO} avxvnni prfchw", 48, 1280, 30720),
    "skylake-avx512": ("x86-64-v4", f"{_CRYPTO} prfchw", 32, 1024, 16384),
    "cascadelake": ("x86-64-v4", f"{_CRYPTO} avx512vnni prfchw", 32, 1024, 16384),
    "cooperlake": ("x86-64-v4", f"{_CRYPTO} avx512bf16 avx512vnni prfchw", 32, 1024, 16384),
    "icelake-client": ("x86-64-v4", f"{_ICELAKE} prfchw", 48, 512, 8192),
    "icelake-server": ("x86-64-v4", f"{_ICELAKE} prfchw", 48, 1280, 24576),
    "tigerlake": ("x86-64-v4", f"{_ICELAKE} prfchw", 48, 1280, 12288),
    "sapphirerapids": ("x86-64-v4", f"{_SAPPHIRE} prfchw", 48, 2048, 32768),
    "emeraldrapids": ("x86-64-v4", f"{_SAPPHIRE} prfchw", 48, 2048, 65536),
    "graniterapids": ("x86-64-v4", f"{_SAPPHIRE} prfchw", 48, 2048, 65536),
    "znver1": ("x86-64-v3", f"{_CRYPTO} prfchw sse4a", 32, 512, 8192),
    "znver2": ("x86-64-v3", f"{_CRYPTO} prfchw sse4a", 32, 512, 16384),
    "znver3": ("x86-64-v3", f"{_CRYPTO} prfchw sse4a vaes vpclmulqdq", 32, 512, 32768),
    "znver4": ("x86-64-v4", _ZEN4, 32, 1024, 32768),
    "znver5": ("x86-64-v4", f"{_ZEN4} avxvnni", 48, 1024, 32768),
}
NAMES = ("native", *_CPUS)
_NAMED_THREADS = 8
_LINUX = "x86_64-unknown-linux-gnu"


@user_api
def target(name: object = "native") -> Target:
    """The target called `name`.

    Parameters
    ----------
    name
        "native" for this machine, the name of an x86-64 level or processor ("x86-64-v3",
        "znver4"), or a :class:`~tensorir.ir.target.Target`, which is returned. A named
        processor has the cache sizes of a common model, and eight threads.

    Raises
    ------
    ArgumentError
        If there is no such processor here; the message lists those there are.

    Examples
    --------
    >>> target("znver4").vector_bytes, target("haswell").vector_registers
    (64, 16)
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str):
        raise ArgumentTypeError(f"a target is a string, not {type(name).__name__} {name!r:.60}")
    if name == "native":
        return _native()
    if name in _CPUS:
        return _named(name)
    if name.partition(":")[0] in ("cuda", "emulator"):
        raise UnsupportedError(f"target {name!r} is a GPU; this is for processors")
    raise unknown(name, NAMES)


def unknown(name: str, known: Sequence[str]) -> ArgumentError:
    """The error for a name that no target has."""
    return ArgumentError(
        f"there is no target {name!r:.60}{hint(name, known)}",
        details=f"  known  {', '.join(known)}",
    )


@cache
def _named(name: str) -> Target:
    level, extra, l1, l2, l3 = _CPUS[name]
    words = sorted({*_LEVELS[level].split(), *extra.split()})
    here = llvm.host().triple
    bytes_, registers = _vectors(frozenset(words))
    return Target(
        kind="cpu",
        name=name,
        triple=here if here.startswith("x86_64") else _LINUX,
        cpu=level,
        tune="generic" if name in _LEVELS else name,
        features=",".join(f"+{word}" for word in words),
        vector_bytes=bytes_,
        vector_registers=registers,
        l1=l1 * _KIB,
        l2=l2 * _KIB,
        l3=l3 * _KIB,
        threads=_NAMED_THREADS,
    )


@cache
def _native() -> Target:
    here = llvm.host()
    words = frozenset(word[1:] for word in here.features.split(",") if word.startswith("+"))
    bytes_, registers = _vectors(words) if here.triple.startswith("x86_64") else (16, 32)
    l1, l2, l3 = _caches()
    return Target(
        kind="cpu",
        name="native",
        triple=here.triple,
        cpu=here.cpu,
        tune=here.cpu,
        features=here.features,
        vector_bytes=bytes_,
        vector_registers=registers,
        l1=l1,
        l2=l2,
        l3=l3,
        threads=_affinity(),
    )


def _vectors(features: frozenset[str]) -> tuple[int, int]:
    if features >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}:
        return 64, 32
    return (32, 16) if features >= {"avx2", "fma"} else (16, 16)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _caches() -> tuple[int, int, int]:
    """Bytes of L1 data, L2 and last-level cache, as the system tells them, or common sizes."""
    found = {1: 32 * _KIB, 2: 1024 * _KIB, 3: 0}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            size = _size((index / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and size > 0 and level in found:
            found[level] = size
    return found[1], found[2], found[3] or 16384 * _KIB


def _size(text: str) -> int:
    units = {"K": _KIB, "M": _KIB**2, "G": _KIB**3}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def module(text: str, target: Target) -> str:
    """A whole module: `text` between the header of `target` and attribute group #0."""
    layout = llvm.data_layout(target.triple, target.cpu, target.features)
    head = f'target datalayout = "{layout}"\ntarget triple = "{target.triple}"\n\n'
    return f"{head}{text}\n\nattributes #0 = {{ {attributes(target)} }}\n"


def attributes(target: Target) -> str:
    """What every function of a kernel carries, as attribute group #0."""
    width = max(512, 8 * target.vector_bytes)  # explicit wide vectors are never to be split
    words = [
        "nounwind",
        f'"target-cpu"="{target.cpu}"',
        f'"target-features"="{target.features}"',
        f'"prefer-vector-width"="{width}"',
    ]
    if target.tune not in (target.cpu, "generic"):
        words.append(f'"tune-cpu"="{target.tune}"')
    return " ".join(words)
