"""NVIDIA's assembler and disassembler, where they are found: cubins, what they use, their code.

None of it needs a driver or a device. A cubin is kept in the cache of compiled objects.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tensorir.codegen.source import LaunchSource
from tensorir.support import reproducer
from tensorir.support.cache import digest, shared
from tensorir.support.errors import CompileError

__all__ = ["Assembled", "Resources", "assemble", "find", "resources", "sass", "version"]

_PATIENCE = 300.0
_HOMES = ("CUDA_HOME", "CUDA_PATH")
_WARP = 32


@dataclass(frozen=True, slots=True)
class Assembled:
    """A cubin, and what the assembler said of it."""

    cubin: bytes
    log: str


@dataclass(frozen=True, slots=True)
class Resources:
    """What one launch of a kernel uses of a device.

    Attributes
    ----------
    kernel
        The entry.
    registers
        Of a thread.
    shared
        Bytes of a block, dynamic ones included.
    local
        Bytes of a thread that are in memory: arrays that found no registers.
    spill_stores, spill_loads
        Bytes of registers that are put into memory for want of room, and read again.
    barriers
        Named barriers.
    threads
        Of a block.
    blocks
        That a multiprocessor has room for.
    occupancy
        The warps of these blocks, as a part of those that a multiprocessor can hold.
    limit
        What keeps it from more blocks.
    """

    kernel: str
    registers: int
    shared: int
    local: int
    spill_stores: int
    spill_loads: int
    barriers: int
    threads: int
    blocks: int
    occupancy: float
    limit: str

    def __str__(self) -> str:
        spills = (
            f"spills {self.spill_stores} B, reads {self.spill_loads} B back"
            if self.spill_stores or self.spill_loads
            else "no spills"
        )
        blocks = f"{self.blocks} block{'s' * (self.blocks != 1)}"
        return (
            f"{self.kernel}: {self.registers} registers, {self.shared:,} B shared, {self.local:,} "
            f"B local, {spills}; {blocks} of {self.threads} threads, "
            f"occupancy {self.occupancy:.0%} (by {self.limit})"
        )


def find(tool: str) -> str | None:
    """The path of `ptxas`, `nvdisasm` or `cuobjdump`: in CUDA_HOME, on the PATH, or in a wheel."""
    name = f"{tool}.exe" if sys.platform == "win32" else tool
    for variable in _HOMES:
        place = Path(os.environ.get(variable) or os.devnull) / "bin" / name
        if place.is_file():
            return str(place)
    found = shutil.which(tool)
    if found is not None:
        return found
    for entry in sys.path:
        wheels = sorted(Path(entry or ".").glob(f"nvidia/*/bin/{name}"))
        if wheels:
            return str(wheels[-1])
    return None


def _required(tool: str) -> str:
    found = find(tool)
    if found is None:
        raise CompileError(
            f"{tool} was not found: not in CUDA_HOME, not on the PATH, not in a wheel",
            details="  try  pip install 'tensorir[cuda]'",
        )
    return found


@lru_cache(maxsize=8)
def version(path: str) -> str:
    """The release of a tool, as "13.0"; "unknown" where it does not say."""
    try:
        done = _run([path, "--version"], 10.0)
    except CompileError:
        return "unknown"
    found = re.search(r"release ([\d.]+(?:, V[\d.]+)?)", done.stdout)
    return found[1].rpartition("V")[2] if found else "unknown"


def _run(command: list[str], patience: float = _PATIENCE) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=patience,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as problem:
        raise CompileError(f"{command[0]} does not run: {problem}") from None


def assemble(ptx: str, arch: str) -> Assembled:
    """The cubin of a PTX text for an architecture, such as `sm_90`.

    Raises
    ------
    CompileError
        There is no ptxas, or it rejects the text: the message has its first complaint, the
        details the line; the text is saved.
    """
    path = _required("ptxas")
    cache = shared()
    key = digest("cubin 1", ptx, arch, version(path))
    found = cache.get(key) if cache is not None else None
    if found is not None:
        length = int.from_bytes(found[:8], "little")
        log = json.loads(found[8 : 8 + length])
        return Assembled(found[8 + length :], log)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        done = _run([path, f"-arch={arch}", "-v", str(source), "-o", str(target)])
        if done.returncode or not target.is_file():
            raise _rejected(done.stdout + done.stderr, ptx, arch)
        made = Assembled(target.read_bytes(), done.stdout + done.stderr)
    if cache is not None:
        said = json.dumps(made.log).encode()
        cache.put(key, len(said).to_bytes(8, "little") + said + made.cubin)
    return made


def _rejected(said: str, ptx: str, arch: str) -> CompileError:
    """The error for a text that ptxas rejects."""
    found = re.search(r"line (\d+); (?:error|fatal)\s*: (.*)", said)
    lines = [x for x in said.splitlines() if x.strip()]
    reason = found[2].strip() if found else (lines or ["it says nothing"])[0].strip()
    number = int(found[1]) if found else 0
    message = f"ptxas rejects the PTX for {arch}" + (f", line {number}" if number else "")
    message += f": {reason}"
    path = reproducer.save(message, state=f"{said}\n{ptx}")
    text = ptx.splitlines()
    details = []
    if 0 < number <= len(text):
        first = max(number - 2, 1)
        for k in range(first, min(number + 1, len(text)) + 1):
            mark = ">" if k == number else " "
            details.append(f"  {mark} {k:5}  {text[k - 1].strip()}")
    if path is not None:
        details.append(f"  saved  {path}")
    return CompileError(message, details="\n".join(details))


def resources(made: Assembled, launches: tuple[LaunchSource, ...], arch: str) -> list[Resources]:
    """What each launch uses, read from what the assembler said."""
    parts = re.split(r"Compiling entry function '([^']+)'", made.log)
    said = dict(zip(parts[1::2], parts[2::2], strict=True))
    out = []
    for x in launches:
        text = said.get(x.name, "")

        def number(pattern: str, text: str = text) -> int:
            found = re.search(pattern, text)
            return int(found[1]) if found else 0

        threads = x.threads[0] * x.threads[1] * x.threads[2]
        registers = number(r"Used (\d+) registers")
        static = number(r"(\d+) bytes smem")
        blocks, occupancy, limit = room(arch, threads, registers, static + x.shared_bytes)
        out.append(
            Resources(
                x.name, registers, static + x.shared_bytes, number(r"(\d+) bytes stack frame"),
                number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes spill loads"),
                number(r"used (\d+) barriers"), threads, blocks, occupancy, limit,
            )
        )  # fmt: skip
    return out


# threads and blocks of a multiprocessor, its shared memory in KiB: "CUDA C++ Programming Guide",
# technical specifications for each compute capability
_ROOM = {
    "sm_75": (1024, 16, 64), "sm_80": (2048, 32, 164), "sm_86": (1536, 16, 100),
    "sm_87": (1536, 16, 164), "sm_89": (1536, 24, 100), "sm_90": (2048, 32, 228),
}  # fmt: skip
_REGISTERS = 65_536
_REGISTERS_OF_A_WARP = 256  # are given out in such pieces


def room(arch: str, threads: int, registers: int, shared: int) -> tuple[int, float, str]:
    """Blocks of a multiprocessor, the part of its warps that they are, and what limits them.

    >>> room("sm_80", 256, 32, 0), room("sm_90", 256, 128, 100 << 10)
    ((8, 1.0, 'threads'), (2, 0.25, 'registers'))
    """
    most_threads, most_blocks, most_shared = _ROOM.get(arch.rstrip("a"), _ROOM["sm_80"])
    warps = -(-threads // _WARP)
    piece = -(-max(registers, 1) * _WARP // _REGISTERS_OF_A_WARP) * _REGISTERS_OF_A_WARP
    # each block loses a KiB to the system from sm_80 on
    taken = shared + (1024 if arch >= "sm_80" else 0)
    limits = {
        "threads": most_threads // _WARP // warps,
        "registers": _REGISTERS // piece // warps,
        "shared memory": (most_shared << 10) // taken if taken else most_blocks,
        "blocks": most_blocks,
    }
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return blocks, blocks * warps / (most_threads // _WARP), limit


def sass(cubin: bytes) -> str:
    """The instructions of a cubin, as nvdisasm writes them, or cuobjdump.

    Raises
    ------
    CompileError
        Neither is there, or it fails.
    """
    tool = next((t for t in ("nvdisasm", "cuobjdump") if find(t) is not None), "nvdisasm")
    path = _required(tool)
    words = ["-c"] if tool == "nvdisasm" else ["-sass"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kernel.cubin"
        place.write_bytes(cubin)
        done = _run([path, *words, str(place)])
    if done.returncode:
        lines = (done.stderr.strip() or "it says nothing").splitlines()
        raise CompileError(f"{tool} cannot read the code: {lines[0]}")
    return done.stdout
