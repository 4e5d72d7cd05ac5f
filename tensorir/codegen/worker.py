"""Code generation for CUDA in a process of its own, for LLVM ends the process at what it cannot do.

The process is started when it is first needed, serves requests until this one ends, and is started
anew if it died. A request is a length and JSON, and so is its answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from typing import IO, Any

from tensorir.ir.target import Target
from tensorir.support.errors import internal

__all__ = ["ptx_of", "serve"]

_START = "from tensorir.codegen.worker import serve; serve()"
_lock = threading.Lock()


class _Worker:
    """The process, and who started it: a forked child starts its own."""

    current: _Worker | None = None

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, or None where the process ended instead."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            _send(self.process.stdin, request)
            return _receive(self.process.stdout)
        except (BrokenPipeError, OSError):
            return None

    def last_words(self) -> str:
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        told = [x for x in lines if "error" in x.lower() or "cannot" in x.lower()]
        return (told or lines or ["it said nothing"])[0][:300]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()


def ptx_of(text: str, target: Target) -> str:
    """The PTX of a whole module of LLVM text.

    Raises
    ------
    InternalError
        LLVM refused the text, or ended its process over it; the text is saved.
    """
    with _lock:
        worker = _Worker.current
        if worker is None or worker.owner != os.getpid() or worker.process.poll() is not None:
            worker = _Worker.current = _Worker()
        answer = worker.ask({"text": text, "target": asdict(target)})
        if answer is None:
            words = worker.last_words()
            worker.close()
            _Worker.current = None
            raise internal(f"LLVM ended over the generated code: {words}", state=text)
    if "error" in answer:
        raise internal(f"LLVM refused the generated code: {answer['error']}", state=text)
    return str(answer["ptx"])


def serve() -> None:
    """What the process runs: answers requests until there are none."""
    from tensorir.codegen import llvm

    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but answers goes where answers go
    while True:
        request = _receive(requests)
        if request is None:
            return
        try:
            answer = {"ptx": llvm.ptx(request["text"], Target(**request["target"]))}
        except RuntimeError as problem:
            answer = {"error": " ".join(str(problem).split())[:300]}
        _send(answers, answer)


def _send(stream: IO[bytes], message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> dict[str, Any] | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    found: dict[str, Any] = json.loads(stream.read(int.from_bytes(head, "little")))
    return found
