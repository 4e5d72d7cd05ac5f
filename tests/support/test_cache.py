from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tensorir.support import cache as cache_module
from tensorir.support.cache import Cache, digest, root, shared
from tensorir.support.errors import ArgumentError, ArgumentTypeError, TensorIRWarning
from tensorir.support.knobs import knobs

KEY = digest("some code", "some machine")
OTHER = digest("other code", "some machine")
DATA = bytes(range(256)) * 20
COST = "kernels are compiled again each time"


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """The texts of our warnings, as they come; any other warning is an error."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", TensorIRWarning)
        before = warnings.showwarning
        warnings.showwarning = lambda message, *rest: texts.append(message.text)  # type: ignore
        yield texts
        warnings.showwarning = before
    assert not caught


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "objects")


def entry_of(cache: Cache, key: str = KEY) -> Path:
    return Path(cache.folder) / f"{key}.object"


def names_in(cache: Cache) -> list[str]:
    return sorted(os.listdir(cache.folder))


def test_keeps_what_it_is_given(cache: Cache, heard: list[str]) -> None:
    assert cache.get(KEY) is None
    for data in (b"", b"x", DATA, os.urandom(1 << 20)):
        assert cache.put(KEY, data)
        assert cache.get(KEY) == data
        assert Cache(cache.folder).get(KEY) == data
    assert cache.get(OTHER) is None
    assert names_in(cache) == [f"{KEY}.object"]
    assert heard == []


def test_folder_and_entries_are_private(cache: Cache) -> None:
    before = os.umask(0)
    try:
        cache.put(KEY, DATA)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(cache.folder).st_mode) == 0o700
    assert stat.S_IMODE(entry_of(cache).stat().st_mode) == 0o600


@pytest.mark.parametrize("key", ["", "../" + "a" * 61, "A" * 64, "a" * 63, "g" * 64, 3, None])
def test_key_is_a_digest_and_no_path(cache: Cache, key: str) -> None:
    for ask in (cache.get, lambda key: cache.put(key, b"")):
        with pytest.raises(ArgumentError) as caught:
            ask(key)
        assert str(caught.value) == f"a cache key is 64 hexadecimal digits, not {key!r}"


def test_data_is_bytes(cache: Cache) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        cache.put(KEY, "text")  # type: ignore[arg-type]
    assert str(caught.value) == "a cache entry is bytes, not str"
    assert cache.put(KEY, memoryview(b"view"))  # type: ignore[arg-type]
    assert cache.get(KEY) == b"view"


def cut(length: Callable[[int], int]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        raw = path.read_bytes()
        path.write_bytes(raw[: length(len(raw))])

    return damage


def flip(position: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[position] ^= 0x40
        path.write_bytes(raw)

    return damage


def garble(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(path.stat().st_size))


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def exchange(path: Path) -> None:
    """Put the intact entry of another key there."""
    other = Cache(path.parent.parent / "elsewhere")
    other.put(OTHER, DATA)
    shutil.copy(entry_of(other, OTHER), path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def make_link(path: Path) -> None:
    target = path.with_name("target")
    path.rename(target)
    path.symlink_to(target)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "empty": cut(lambda n: 0),
    "half": cut(lambda n: n // 2),
    "header only": cut(lambda n: n - len(DATA)),
    "part of header": cut(lambda n: 30),
    "one byte short": cut(lambda n: n - 1),
    "one byte more": grow,
    "magic": flip(3),
    "length": flip(22),
    "checksum": flip(40),
    "first data byte": flip(-len(DATA)),
    "last byte": flip(-1),
    "random": garble,
    "of another key": exchange,
    "folder": make_folder,
    "link": make_link,
    "pipe": make_pipe,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_entry_is_a_miss_with_one_warning_and_is_replaced(
    cache: Cache, heard: list[str], damage: Callable[[Path], None]
) -> None:
    for key in (KEY, OTHER):
        cache.put(key, DATA)
        damage(entry_of(cache, key)) if key == KEY else cut(lambda n: 3)(entry_of(cache, key))
    assert cache.get(KEY) is None
    assert cache.get(OTHER) is None
    assert len(heard) == 1
    assert heard[0].startswith(f"the kernel cache {cache.folder!r} has an entry that ")
    assert heard[0].endswith("; it is made anew")
    assert cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"
    assert len(heard) == 1


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_entry_is_replaced_without_having_been_read(
    cache: Cache, heard: list[str], damage: Callable[[Path], None]
) -> None:
    cache.put(KEY, DATA)
    damage(entry_of(cache))
    assert cache.put(KEY, b"again")
    assert Cache(cache.folder).get(KEY) == b"again"
    assert heard == []


def test_unreadable_entry_is_a_miss(cache: Cache, heard: list[str]) -> None:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        pytest.skip("root reads files of mode 000; the next test refuses in their stead")
    cache.put(KEY, DATA)
    entry_of(cache).chmod(0)
    assert cache.get(KEY) is None
    assert len(heard) == 1 and "cannot be read (Permission denied)" in heard[0]
    assert cache.put(KEY, b"again") and cache.get(KEY) == b"again"


def test_entry_that_the_system_does_not_open_is_a_miss(
    cache: Cache, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put(KEY, DATA)

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "_open_no_link", refuse)
        assert cache.get(KEY) is None
    assert heard == [
        f"the kernel cache {cache.folder!r} has an entry that cannot be read "
        "(Permission denied); it is made anew"
    ]
    assert cache.put(KEY, b"again") and cache.get(KEY) == b"again"


def assert_unusable(cache: Cache, heard: list[str], text: str) -> None:
    for _ in range(3):
        assert cache.get(KEY) is None
        assert cache.put(KEY, DATA) is False
    assert heard == [f"the kernel cache {cache.folder!r} {text}"]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o777])
def test_folder_open_to_others_is_refused(tmp_path: Path, heard: list[str], mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    text = "is open to other users and is not used, as its files are run; chmod 700 helps"
    assert_unusable(Cache(folder), heard, text)


def test_folder_of_another_user_is_refused(
    tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    real = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: real + 1)
    assert_unusable(
        Cache(folder), heard, "belongs to another user and is not used, as its files are run"
    )


def test_file_in_place_of_the_folder(tmp_path: Path, heard: list[str]) -> None:
    (tmp_path / "file").write_text("")
    assert_unusable(Cache(tmp_path / "file"), heard, f"is not a folder; {COST}")


def test_folder_that_cannot_be_made(tmp_path: Path, heard: list[str]) -> None:
    (tmp_path / "file").write_text("")
    assert_unusable(
        Cache(tmp_path / "file" / "sub" / "objects"),
        heard,
        f"cannot be made (Not a directory); {COST}",
    )


def test_system_folder_that_cannot_be_written(heard: list[str]) -> None:
    assert Cache("/proc/self/tensorir").get(KEY) is None
    assert len(heard) == 1


@pytest.mark.parametrize(
    "name",
    ["with space", "größe-变量", "new\nline", "quote'\"", "%s{}\\", "-rf", "a" * 255, "..x"],
)
def test_odd_names_of_folders(tmp_path: Path, heard: list[str], name: str) -> None:
    cache = Cache(tmp_path / name / "objects")
    assert cache.put(KEY, DATA) and cache.get(KEY) == DATA
    assert heard == []


@pytest.mark.parametrize("name", ["a" * 256, "a\0b", "x/" * 3000])
def test_impossible_names_of_folders(tmp_path: Path, heard: list[str], name: str) -> None:
    cache = Cache(f"{tmp_path}/{name}")
    assert cache.get(KEY) is None and not cache.put(KEY, DATA)
    assert len(heard) == 1 and "cannot be made" in heard[0]


def test_link_to_a_private_folder_is_followed(tmp_path: Path, heard: list[str]) -> None:
    (tmp_path / "big-disk").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "big-disk")
    cache = Cache(tmp_path / "link")
    assert cache.put(KEY, DATA) and cache.get(KEY) == DATA
    assert heard == []


def test_relative_folder_stays_where_it_was(
    tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = Cache("here")
    monkeypatch.chdir("/")
    assert cache.put(KEY, DATA)
    assert (tmp_path / "here" / f"{KEY}.object").exists()


def test_full_disk_is_one_warning(
    cache: Cache, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put(OTHER, DATA)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for _ in range(3):
        assert cache.put(KEY, DATA) is False
    assert cache.get(KEY) is None
    assert cache.get(OTHER) == DATA
    assert names_in(cache) == [f"{OTHER}.object"]
    text = f"the kernel cache {cache.folder!r} cannot be written (the disk is full); {COST}"
    assert heard == [text]


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    package = str(Path(cache_module.__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": package, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_writes_that_the_system_cuts_short_leave_nothing(tmp_path: Path) -> None:
    done = run(
        "import resource, os\n"
        "from tensorir.support.cache import Cache, digest\n"
        "c = Cache(os.environ['FOLDER'])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "print(c.put(digest('a'), bytes(5000)), c.get(digest('a')), c.put(digest('b'), b'x'))\n"
        "print(os.listdir(c.folder))",
        FOLDER=str(tmp_path / "objects"),
        PYTHONDONTWRITEBYTECODE="1",  # a module cut short would stay broken
    )
    assert done.stdout == "False None False\n[]\n"
    assert done.stderr.count("TensorIRWarning") == 1
    assert "cannot be written (File too large)" in done.stderr


def test_home_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, so that nothing can be made in it")
    done = run(
        "from tensorir.support.cache import shared, digest\n"
        "for n in range(3):\n"
        "    print(shared().put(digest(str(n)), b'x'), shared().get(digest(str(n))))",
        HOME=str(tmp_path / "home"),
    )
    assert done.stdout == "False None\n" * 3
    assert done.stderr.count("TensorIRWarning") == 1


def test_eight_cold_processes_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, hashlib\n"
        "from tensorir.support.cache import Cache, digest\n"
        "me = int(sys.argv[1])\n"
        "c = Cache(sys.argv[2])\n"
        "data = lambda n: hashlib.sha256(b'%d' % n).digest() * 500\n"
        "for n in range(40):\n"
        "    n = (n * 7 + me * 5) % 40\n"
        "    found = c.get(digest(str(n)))\n"
        "    assert found is None or found == data(n), n\n"
        "    assert c.put(digest(str(n)), data(n))\n"
        "    assert c.get(digest(str(n))) == data(n)\n"
        "print('right')"
    )
    folder = tmp_path / "deep" / "objects"
    package = str(Path(cache_module.__file__).parents[2])
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, str(number), str(folder)],
            env={"PATH": "", "PYTHONPATH": package},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert outputs == [("right\n", "")] * 8
    assert len([name for name in os.listdir(folder) if not name.startswith(".")]) == 40
    assert not [name for name in os.listdir(folder) if name.startswith(".new")]


def test_processes_that_prune_at_once(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tensorir.support.cache import Cache, digest\n"
        "c = Cache(sys.argv[2], size=20_000)\n"
        "for n in range(100):\n"
        "    key = digest(sys.argv[1], str(n))\n"
        "    assert c.put(key, b'%d' % n * 500)\n"
        "    assert c.get(key) in (None, b'%d' % n * 500)\n"
        "print('right')"
    )
    package = str(Path(cache_module.__file__).parents[2])
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, str(number), str(tmp_path / "objects")],
            env={"PATH": "", "PYTHONPATH": package},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    assert [process.communicate(timeout=120) for process in processes] == [("right\n", "")] * 3


def test_oldest_entries_go_first(tmp_path: Path, heard: list[str]) -> None:
    cache = Cache(tmp_path / "objects", size=10_000)
    keys = [digest(str(number)) for number in range(12)]
    now = time.time()
    for age, key in enumerate(keys):
        assert cache.put(key, bytes(900))
        os.utime(entry_of(cache, key), (now - 90_000 + age, now - 90_000 + age))
        cache.get(keys[0])
    kept = [key for key in keys if entry_of(cache, key).exists()]
    assert keys[0] in kept, "what is used stays"
    assert kept == [keys[0], *keys[-(len(kept) - 1) :]]
    assert sum(entry_of(cache, key).stat().st_size for key in kept) <= 10_000
    assert len(kept) >= 6
    assert heard == []


def test_entry_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "objects", size=1000)
    assert not cache.put(KEY, bytes(1000))
    assert cache.put(KEY, bytes(900))
    with knobs.override(cache_size=0):
        assert not Cache(tmp_path / "objects").put(OTHER, b"")


def test_what_a_killed_process_left_is_swept(cache: Cache) -> None:
    cache.put(KEY, DATA)
    old, new = (Path(cache.folder) / f".new-{name}" for name in ("1-old", "2-new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    Cache(cache.folder).put(OTHER, DATA)
    assert (old.exists(), new.exists()) == (False, True)


def test_folder_that_vanishes_is_a_miss(cache: Cache, heard: list[str]) -> None:
    cache.put(KEY, DATA)
    shutil.rmtree(cache.folder)
    assert cache.get(KEY) is None
    assert heard == []
    assert cache.put(KEY, DATA) is False
    assert heard == [
        f"the kernel cache {cache.folder!r} cannot be written (No such file or directory); {COST}"
    ]


def test_shared_cache_follows_the_knobs(tmp_path: Path) -> None:
    with knobs.override(cache_dir=tmp_path / "one"):
        first = shared()
        assert first is not None and first is shared()
        assert first.folder == str(tmp_path / "one" / "objects")
        assert Cache().folder == first.folder
    with knobs.override(cache_dir=tmp_path / "two"):
        second = shared()
        assert second is not None and second is not first
    with knobs.override(cache_enabled=False):
        assert shared() is None
    with knobs.override(cache_dir=None):
        assert os.path.basename(root()) == "tensorir"


def test_silenced_warning_is_not_heard(tmp_path: Path, heard: list[str]) -> None:
    with knobs.override(silenced=("cache",)):
        assert Cache("/proc/self/tensorir").get(KEY) is None
    assert heard == []


def test_digest_tells_apart_what_differs() -> None:
    parts: list[tuple[str | bytes, ...]] = [
        (),
        ("",),
        (b"",),
        ("", ""),
        ("a",),
        (b"a",),
        ("a", "b"),
        ("ab",),
        ("b", "a"),
        ("t1:a",),
        ("\ud800",),
    ]
    assert len({digest(*one) for one in parts}) == len(parts)
    assert digest("a", b"b") == digest("a", b"b")
