"""The disk cache of compiled objects. What it returns is run as code, so it trusts nothing.

The folder is private (mode 0700) and the user's, else it is not used. An entry is written to a
temporary name, synced and renamed, and carries its length and checksum; a damaged one is a miss
and is replaced. Nothing here raises for the state of the disk: the worst that a bad disk does is
one warning and a slower program. Many processes may use one folder.

Examples
--------
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as parent:
...     cache = Cache(parent + "/objects")
...     key = digest("define void @f()", "znver4")
...     cache.get(key), cache.put(key, b"object code"), cache.get(key)
(None, True, b'object code')
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import shutil
import stat
import string
import time
import uuid
from collections.abc import Iterator

from tensorir.support.errors import ArgumentError, ArgumentTypeError, warn
from tensorir.support.knobs import knobs

__all__ = ["Cache", "digest", "root", "shared"]

_MAGIC = b"tensorir object 1\n"
_LENGTH = 8
_HEADER = len(_MAGIC) + _LENGTH + hashlib.sha256().digest_size
_SUFFIX = ".object"
_TEMPORARY = ".new-"
_STALE = 3600.0
_COST = "kernels are compiled again each time"
_HEX = frozenset(string.hexdigits.lower())


def digest(*parts: str | bytes) -> str:
    """Return the key of an entry: SHA-256, in hex, of all that its contents depend on.

    Where one part ends and the next begins counts, and so does whether it is text.

    Examples
    --------
    >>> digest("ab", "c") == digest("a", "bc"), digest("a") == digest(b"a"), len(digest())
    (False, False, 64)
    """
    total = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else bytes(part)
        total.update(b"%s%d:" % (b"t" if isinstance(part, str) else b"b", len(data)))
        total.update(data)
    return total.hexdigest()


def root() -> str:
    """Return the folder under which this library keeps what it saves: the knob's, or the user's."""
    if knobs.cache_dir is not None:
        return knobs.cache_dir
    import platformdirs

    return platformdirs.user_cache_dir("tensorir", appauthor=False)


def shared() -> Cache | None:
    """Return the cache that the knobs ask for, one object a folder; None where it is off."""
    return _opened(os.path.join(root(), "objects")) if knobs.cache_enabled else None


@functools.cache
def _opened(folder: str) -> Cache:
    return Cache(folder)


class Cache:
    """A folder of checked entries.

    Parameters
    ----------
    folder : str, path, or None
        Is made, with mode 0700, when first needed. None is ``objects`` under `root`.
    size : int or None
        Bytes after which the oldest entries go; None is the knob `cache_size`.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, size: int | None = None
    ) -> None:
        chosen = os.path.join(root(), "objects") if folder is None else os.fspath(folder)
        self._folder = os.path.abspath(chosen)
        self._size = size
        self._state: bool | None = None
        self._writable = True
        self._warned = False
        self._held: int | None = None

    @property
    def folder(self) -> str:
        """Where the entries are: an absolute path."""
        return self._folder

    @property
    def usable(self) -> bool:
        """Whether the folder is there, private, and the user's. Makes it at first use."""
        if self._state is None:
            trouble = _prepare(self._folder)
            self._state = trouble is None
            if trouble is not None:
                self._warn(trouble)
        return self._state

    def get(self, key: str) -> bytes | None:
        """Return the data that was put under a key, or None.

        Parameters
        ----------
        key : str
            64 hexadecimal digits, as `digest` gives them.
        """
        path = self._path(key)
        if not self.usable:
            return None
        try:
            with open(path, "rb", opener=_open_no_link) as file:
                raw = file.read()
                written = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            self._damaged(path, f"cannot be read ({_reason(error)})")
            return None
        data = _unpack(raw, key)
        if data is None:
            self._damaged(path, "is damaged")
            return None
        _refresh(path, written)
        return data

    def put(self, key: str, data: bytes) -> bool:
        """Keep data under a key, replacing what was there; return whether that was done."""
        path = self._path(key)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ArgumentTypeError(f"a cache entry is bytes, not {type(data).__name__}")
        limit = knobs.cache_size if self._size is None else self._size
        entry = _pack(bytes(data), key)
        if len(entry) > limit or not self._writable or not self.usable:
            return False
        try:
            _write(self._folder, path, entry)
        except OSError as error:
            self._writable = False
            self._warn(
                f"cannot be written ({_reason(error)}); kernels are compiled again each time"
            )
            return False
        self._account(len(entry), limit)
        return True

    def _path(self, key: str) -> str:
        if not isinstance(key, str) or len(key) != 64 or not _HEX.issuperset(key):
            raise ArgumentError(f"a cache key is 64 hexadecimal digits, not {key!r:.80}")
        return os.path.join(self._folder, key + _SUFFIX)

    def _damaged(self, path: str, what: str) -> None:
        self._warn(f"has an entry that {what}; it is made anew")
        _discard(path)

    def _warn(self, text: str) -> None:
        if self._warned:
            return
        self._warned = True
        warn("cache", f"the kernel cache {self._folder!r} {text}")

    def _account(self, written: int, limit: int) -> None:
        """Follow what the folder holds; at the limit, drop the oldest entries down to 3/4 of it."""
        if self._held is None:
            self._held = sum(size for _, size, _ in _entries(self._folder))
        else:
            self._held += written
        if self._held > limit:
            self._held = _prune(self._folder, limit - limit // 4)


def _prepare(folder: str) -> str | None:
    """Make the folder if need be; return why it may not be used, or None."""
    try:
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        found = os.stat(folder)
    except (OSError, ValueError, RecursionError) as error:
        return f"cannot be made ({_reason(error)}); {_COST}"
    if not stat.S_ISDIR(found.st_mode):
        return f"is not a folder; {_COST}"
    if not hasattr(os, "getuid"):
        return None
    if found.st_uid != os.getuid():
        return "belongs to another user and is not used, as its files are run"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return "is open to other users and is not used, as its files are run; chmod 700 helps"
    return None


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _pack(data: bytes, key: str) -> bytes:
    return b"".join((_MAGIC, len(data).to_bytes(_LENGTH, "little"), _checksum(data, key), data))


def _unpack(raw: bytes, key: str) -> bytes | None:
    """Return the data of an entry, or None if any byte of it is not as written."""
    data = raw[_HEADER:]
    return data if raw == _pack(data, key) and len(raw) >= _HEADER else None


def _checksum(data: bytes, key: str) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


def _write(folder: str, path: str, entry: bytes) -> None:
    temporary = os.path.join(folder, f"{_TEMPORARY}{os.getpid()}-{uuid.uuid4().hex}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(entry)
            file.flush()
            os.fsync(file.fileno())
        if os.path.isdir(path):
            _discard(path)
        os.replace(temporary, path)
    except BaseException:
        _discard(temporary)
        raise


def _discard(path: str) -> None:
    """Remove a file, a link, or a folder; another process may have been faster."""
    try:
        os.unlink(path)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _refresh(path: str, written: float) -> None:
    """Mark an entry as used, so that pruning takes others first; once an hour is enough."""
    if time.time() - written < _STALE:
        return
    try:
        os.utime(path)
    except OSError:
        pass


def _entries(folder: str) -> Iterator[tuple[float, int, str]]:
    """Yield time, size and path of each entry; remove what dead processes left half written."""
    try:
        with os.scandir(folder) as found:
            files = list(found)
    except OSError:
        return
    for file in files:
        try:
            facts = file.stat(follow_symlinks=False)
        except OSError:
            continue
        if file.name.startswith(_TEMPORARY) and time.time() - facts.st_mtime > _STALE:
            _discard(file.path)
        elif file.name.endswith(_SUFFIX):
            yield facts.st_mtime, facts.st_size, file.path


def _prune(folder: str, target: int) -> int:
    """Drop the oldest entries until at most `target` bytes are held; return how many are."""
    import filelock

    entries = sorted(_entries(folder))
    held = sum(size for _, size, _ in entries)
    try:
        with filelock.FileLock(os.path.join(folder, ".lock"), timeout=0):
            for _, size, path in entries:
                if held <= target:
                    break
                _discard(path)
                held -= size
    except (filelock.Timeout, OSError):
        pass  # another process is at it
    return held


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return "the disk is full" if error.errno == errno.ENOSPC else os.strerror(error.errno)
    return str(error)
