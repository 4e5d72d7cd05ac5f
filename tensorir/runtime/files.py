"""Kernels in files: a zip of the object, or the PTX, its LLVM text, and a manifest in JSON.

A saved kernel is a program: loading one and calling it runs the code in it, so load only what
you would run. Nothing else in the file is executed; no pickle, no names to import.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

from tensorir.codegen import llvm
from tensorir.codegen.source import Argument, Check, KernelSource, LaunchSource
from tensorir.ir import dtype as dtypes
from tensorir.ir.affine import Lin, floordiv, floormod, lin
from tensorir.ir.expr import Var
from tensorir.ir.target import Target
from tensorir.support.errors import ArgumentTypeError, CacheError, UnsupportedError
from tensorir.support.tracebacks import user_api

if TYPE_CHECKING:
    from tensorir.runtime.kernel import Kernel

__all__ = ["FORMAT", "load", "save"]

FORMAT = 2
_MANIFEST, _TEXT, _OBJECT = "manifest.json", "kernel.ll", "kernel.o"
_LARGEST = 64 << 20  # bytes of one member, before anything of it is read


def save(path: str | os.PathLike[str], source: KernelSource, object_code: bytes) -> None:
    """Write a kernel; see `Kernel.save`."""
    place = _path(path)
    made = _manifest(source)
    made["sha256"] = _digest(made, source.llvm, object_code)
    manifest = json.dumps(made, indent=1, sort_keys=True)
    temporary = f"{place}.{os.getpid()}.new"
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in ((_MANIFEST, manifest), (_TEXT, source.llvm), (_OBJECT, object_code)):
                # a fixed date: the same kernel gives the same file
                file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
        os.replace(temporary, place)
    except OSError as problem:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise CacheError(f"cannot write {place!r}: {problem.strerror or problem}") from None


@user_api
def load(path: str | os.PathLike[str]) -> Kernel:
    """Read a kernel that `Kernel.save` wrote. It runs code: load only files that you trust.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    CacheError
        If there is no such file, or it is damaged or no saved kernel.
    UnsupportedError
        If it was made by another version of this library, or for a processor with instructions
        that this one lacks.
    """
    from tensorir.runtime.kernel import kernel_of

    place = _path(path)
    manifest, text, object_code = _read(place)
    _require_version(place, manifest)
    try:
        source = _source(manifest, text)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise CacheError(f"{place!r} is damaged: its manifest is malformed ({problem})") from None
    if _digest(manifest, text, object_code) != manifest.get("sha256"):
        raise CacheError(f"{place!r} is damaged: its code is not what its manifest says")
    if source.target.kind == "cuda":
        from tensorir.runtime.cuda_kernel import CudaKernel

        loaded: Any = CudaKernel(source, object_code.decode(errors="replace"), {}, None)
        return loaded  # type: ignore[no-any-return]
    why = llvm.runs_here(source.target)
    if why is not None:
        raise UnsupportedError(
            f"{place!r} was compiled for {source.target}, and cannot run here: {why}",
            details='  try  build it again with target="native"',
        )
    return kernel_of(source, object_code, {})


def _path(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError(f"a path is a string, not {type(path).__name__} {path!r:.60}")
    return os.fspath(path) if isinstance(os.fspath(path), str) else os.fsdecode(path)


def _read(place: str) -> tuple[dict[str, Any], str, bytes]:
    try:
        with zipfile.ZipFile(place) as file:
            parts = [_member(file, name, place) for name in (_MANIFEST, _TEXT, _OBJECT)]
        manifest = json.loads(parts[0].decode())
        text = parts[1].decode()
    except OSError as problem:
        raise CacheError(f"cannot read {place!r}: {problem.strerror or problem}") from None
    except (zipfile.BadZipFile, ValueError, KeyError, NotImplementedError, RuntimeError, EOFError):
        raise CacheError(f"{place!r} is damaged, or no saved kernel") from None
    except Exception as problem:  # zlib.error, which is of no better class
        raise CacheError(f"{place!r} is damaged: {problem}") from None
    if not isinstance(manifest, dict):
        raise CacheError(f"{place!r} is damaged: its manifest is no object")
    return manifest, text, parts[2]


def _member(file: zipfile.ZipFile, name: str, place: str) -> bytes:
    size = file.getinfo(name).file_size
    if size > _LARGEST:
        raise ValueError(f"{place!r}: {name} has {size:,} bytes")
    with file.open(name) as data:
        return data.read(_LARGEST)


def _require_version(place: str, manifest: dict[str, Any]) -> None:
    from tensorir.runtime.kernel import ABI_VERSION

    for key, ours in (("format", FORMAT), ("abi", ABI_VERSION)):
        theirs = manifest.get(key)
        if theirs != ours:
            raise UnsupportedError(
                f"{place!r} was written by another version of this library "
                f"({key} {theirs!r}, here {ours})",
                details="  try  build and save it again",
            )


# -- signatures as JSON
def _digest(manifest: dict[str, Any], text: str, object_code: bytes) -> str:
    """Of all that is in a file: the signature, too, decides what memory is touched."""
    said = json.dumps({k: v for k, v in manifest.items() if k != "sha256"}, sort_keys=True)
    parts = (hashlib.sha256(part).digest() for part in (said.encode(), text.encode(), object_code))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _manifest(source: KernelSource) -> dict[str, Any]:
    from tensorir.runtime.kernel import ABI_VERSION

    return {
        "format": FORMAT,
        "abi": ABI_VERSION,
        "version": _own_version(),
        "llvm": llvm.version(),
        "name": source.name,
        "target": asdict(source.target),
        "sizes": [v.name for v in source.sizes],
        "arguments": [_argument_out(a) for a in source.arguments],
        "scratch": [_argument_out(a) for a in source.scratch],
        "launches": [_launch_out(x) for x in source.launches],
        "checks": [c.message for c in source.checks],
        "imports": list(source.imports),
        "parallel": source.parallel,
        "operations": _polynomial_out(source.operations),
        "bytes_moved": _polynomial_out(source.bytes_moved),
        "loops": source.loops,
        "notes": list(source.notes),
    }


def _argument_out(a: Argument) -> dict[str, Any]:
    return {
        "name": a.name,
        "dtype": a.dtype.name,
        "shape": [_lin_out(e) for e in a.shape],
        "role": a.role,
        "in_place": list(a.in_place),
        "partial": a.partial,
    }


def _argument_in(a: Any, sizes: dict[str, Var]) -> Argument:
    return Argument(
        name=str(a["name"]),
        dtype=dtypes.dtype(a["dtype"]),
        shape=tuple(_lin_in(e, sizes) for e in a["shape"]),
        role=_role(a["role"]),
        in_place=tuple(map(str, a["in_place"])),
        partial=bool(a["partial"]),
    )


def _launch_out(x: LaunchSource) -> dict[str, Any]:
    return {
        "name": x.name,
        "arrays": list(x.arrays),
        "grid": [[[[c, _lin_out(e)] for c, e in loop] for loop in index] for index in x.grid],
        "threads": list(x.threads),
        "shared_bytes": x.shared_bytes,
        "reports": x.reports,
        "barriers": list(x.barriers),
    }


def _launch_in(x: Any, sizes: dict[str, Var]) -> LaunchSource:
    grid = tuple(
        tuple(tuple((_positive(c), _lin_in(e, sizes)) for c, e in loop) for loop in index)
        for index in x["grid"]
    )
    a, b, c = map(_positive, x["threads"])
    return LaunchSource(
        _name(x["name"]),
        tuple(map(_integer, x["arrays"])),
        grid,
        (a, b, c),
        _integer(x["shared_bytes"]),
        bool(x["reports"]),
        tuple(map(str, x["barriers"])),
    )


def _positive(x: object) -> int:
    if _integer(x) <= 0:
        raise ValueError(f"{x!r:.80} is not positive")
    return _integer(x)


def _own_version() -> str:
    try:
        return metadata.version("tensorir")
    except metadata.PackageNotFoundError:
        return "unknown"


def _source(m: dict[str, Any], text: str) -> KernelSource:
    sizes = {name: Var(_name(name)) for name in m["sizes"]}
    arguments = tuple(_argument_in(a, sizes) for a in m["arguments"])
    return KernelSource(
        name=_name(m["name"]),
        llvm=text,
        arguments=arguments,
        sizes=tuple(sizes.values()),
        target=Target(**m["target"]),
        checks=tuple(Check(str(c)) for c in m["checks"]),
        imports=tuple(_name(name) for name in m["imports"]),
        parallel=bool(m["parallel"]),
        operations=_polynomial_in(m["operations"], sizes),
        bytes_moved=_polynomial_in(m["bytes_moved"], sizes),
        loops=str(m["loops"]),
        launches=tuple(_launch_in(x, sizes) for x in m["launches"]),
        scratch=tuple(_argument_in(a, sizes) for a in m["scratch"]),
        notes=tuple(map(str, m["notes"])),
    )


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{name!r:.80} is no name")
    return name


def _role(role: object) -> Any:
    if role not in ("input", "output"):
        raise ValueError(f"{role!r:.80} is no role")
    return role


def _lin_out(e: Lin) -> list[Any]:
    """[const, [coefficient, size or [kind, inner, divisor]], ...]."""
    terms: list[Any] = []
    for atom, coefficient in e.terms.items():
        inner = [atom[0], _lin_out(atom[1]), atom[2]] if isinstance(atom, tuple) else atom.name
        terms.append([coefficient, inner])
    return [e.const, *terms]


def _lin_in(data: Any, sizes: dict[str, Var]) -> Lin:
    const, *terms = data
    total = lin(_integer(const))
    for coefficient, atom in terms:
        if isinstance(atom, str):
            part = lin(sizes[atom])
        else:
            kind, inner, n = atom
            if kind not in ("//", "%") or _integer(n) <= 0:
                raise ValueError(f"{kind!r:.20} by {n!r:.20} is no division")
            make = floordiv if kind == "//" else floormod
            part = make(_lin_in(inner, sizes), n)
        total = total + part * _integer(coefficient)
    return total


def _integer(x: object) -> int:
    if isinstance(x, bool) or not isinstance(x, int):
        raise ValueError(f"{x!r:.80} is no integer")
    return x


def _polynomial_out(polynomial: tuple[tuple[int, tuple[Lin, ...]], ...]) -> list[Any]:
    return [[c, [_lin_out(f) for f in factors]] for c, factors in polynomial]


def _polynomial_in(data: Any, sizes: dict[str, Var]) -> tuple[tuple[int, tuple[Lin, ...]], ...]:
    return tuple((_integer(c), tuple(_lin_in(f, sizes) for f in factors)) for c, factors in data)
