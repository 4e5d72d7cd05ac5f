"""`python -m tests.gpu.run`: all that a GPU must prove, then how fast it is; under eight minutes.

First every program and operator against numpy, then speed against torch and against a copy: a
table, and JSON with --json. Cases run in a process of their own, which is started again behind a
case that ends it or does not come back, for a kernel that fails takes its process's context along.
Exit status 1 where something was wrong; what is slow is told only.

--fake runs against the driver of the tests, which needs no GPU: correctness alone, slowly.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorir as tir
from tensorir.codegen.cuda import ARCHITECTURES
from tensorir.runtime import cuda_device

MINUTES = 8.0
_PATIENCE = 90.0  # seconds without a word after which a case is given up
_POLL = 0.1
_CORRECT_SHARE = 0.6
KINDS = ("correct", "speed")

Record = dict[str, Any]


def target_of(device: cuda_device.Device) -> str:
    """The newest target that a device runs."""
    own = 10 * device.capability[0] + device.capability[1]
    known = [a for a in ARCHITECTURES if not a.endswith("a") and int(a[3:]) <= own]
    return f"cuda:{known[-1]}" if known else "cuda"


def names_of(kind: str) -> list[str]:
    """The cases of a kind, in order."""
    if kind == "correct":
        from tests.gpu.correct import cases

        return [c.name for c in cases()]
    try:
        import torch
    except ImportError:
        return []
    from tests.gpu.speed import races

    return [r.name for r in races(torch)]


def run_case(kind: str, number: int, target: str) -> Record:
    """One case: its name, `ok` or what is wrong, and figures."""
    start = time.perf_counter()
    name = names_of(kind)[number]
    found: Record = {"kind": kind, "name": name, "status": "ok", "detail": ""}
    try:
        found |= _run(kind, number, target)
    except tir.UnsupportedError as error:
        found |= {"status": "unsupported", "detail": str(error)[:200]}
    except (Exception, AssertionError) as error:
        status = "wrong" if isinstance(error, AssertionError | tir.KernelError) else "failed"
        text = f"{type(error).__name__}: {error}".strip()[:400]
        found |= {"status": status, "detail": text}
    return found | {"seconds": round(time.perf_counter() - start, 3)}


def _run(kind: str, number: int, target: str) -> Record:
    if kind == "correct":
        from tests.gpu.correct import cases

        return {"detail": cases()[number].run(target)}
    import torch

    from tests.gpu.speed import measure, races

    figures = measure(races(torch)[number], target)
    return {"figures": figures, "detail": _line(figures)}


def _line(f: Record) -> str:
    rate = f"{f['tflops']:7.1f} TFLOP/s" if f["tflops"] else f"{f['gbytes']:7.0f} GB/s"
    others = ", ".join(f"{k} {v:.3f} ms" for k, v in f["ms"].items())
    mark = "ok" if f["reached"] else "NO"
    return f"{rate}  {f['ratio']:5.2f}x {f['against']} (>= {f['want']:g}) {mark}  {others}"


# -- the process that runs cases, and the one that watches it


def child(options: argparse.Namespace) -> int:
    """Run cases from a number on, one line of JSON for each."""
    target = target_of(cuda_device.device(0))
    numbers = [int(x) for x in options.numbers.split(",")]
    with options.into.open("a") as out:
        for number in numbers:
            found = run_case(options.child, number, target)
            out.write(json.dumps(found | {"number": number}) + "\n")
            out.flush()
            if cuda_device.driver().lost:
                return 3
    return 0


def watched(kind: str, numbers: Sequence[int], until: float) -> Iterator[Record]:
    """The records of cases, by as many processes as it takes."""
    names = names_of(kind)
    waiting = list(numbers)
    with tempfile.TemporaryDirectory() as folder:
        into, errors = Path(folder) / "records", Path(folder) / "errors"
        while waiting and time.monotonic() < until:
            into.write_text("")
            command = [sys.executable, "-m", "tests.gpu.run", "--child", kind, "--into", str(into)]
            command += ["--numbers", ",".join(map(str, waiting))]
            with errors.open("w") as said:
                process = subprocess.Popen(command, stdout=said, stderr=said)
            seen = 0
            last = time.monotonic()
            while True:
                ended = process.poll() is not None
                lines = into.read_text().splitlines(keepends=True)
                for line in [x for x in lines[seen:] if x.endswith("\n")]:
                    seen += 1
                    last = time.monotonic()
                    found = json.loads(line)
                    waiting.remove(found["number"])
                    yield found
                if ended:
                    break
                late = time.monotonic() > until
                if late or time.monotonic() - last > _PATIENCE:
                    process.kill()
                    process.wait()
                    break
                time.sleep(_POLL)
            if waiting and process.returncode not in (0, 3) and time.monotonic() < until:
                number = waiting.pop(0)
                tail = errors.read_text(errors="replace").strip().splitlines()[-3:]
                yield {
                    "kind": kind, "name": names[number], "status": "failed", "seconds": 0.0,
                    "detail": f"its process ended ({process.returncode}): {' | '.join(tail)}"[:400],
                }  # fmt: skip
    for number in waiting:
        yield {"kind": kind, "name": names[number], "status": "not reached", "detail": "",
               "seconds": 0.0}  # fmt: skip


# -- the command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.run", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="TEXT", help="cases whose names begin so")
    parser.add_argument("--only", choices=KINDS, help="one part")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="what may be spent")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the records there too")
    parser.add_argument("--fake", action="store_true", help="against the driver of the tests")
    for hidden, kind in (("--child", str), ("--into", Path), ("--numbers", str)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; 1 where something was wrong."""
    options = _parser().parse_args(arguments)
    if options.child:
        return child(options)
    start = time.monotonic()
    until = start + 60 * options.minutes
    if options.fake:
        records = list(_shown(_fake(options, until)))
    else:
        why = cuda_device.absence()
        if why:
            print(f"nothing was run: {why}")
            return 1
        print(f"{_head()}\n", flush=True)
        records = list(_shown(_real(options, start, until)))
    bad = [r for r in records if r["status"] in ("wrong", "failed")]
    slow = [r for r in records if r.get("figures") and not r["figures"]["reached"]]
    counts = {s: sum(r["status"] == s for r in records) for s in dict.fromkeys(
        r["status"] for r in records)}  # fmt: skip
    summary = ", ".join(f"{n} {s}" for s, n in counts.items())
    print(f"\n{len(records)} cases in {time.monotonic() - start:.0f} s: {summary}")
    for r in [*bad, *slow]:
        print(f"  {'slow' if r in slow else r['status']}: {r['name']}: {r['detail']}")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"head": _head(options.fake), "records": records}, indent=1)
        )
    return 1 if bad else 0


def _head(fake: bool = False) -> str:
    if fake:
        return "the driver of the tests"
    device = cuda_device.device(0)
    return f"{device}, driver for CUDA {device.driver.version}, target {target_of(device)}"


def _chosen(kind: str, options: argparse.Namespace) -> list[int]:
    names = names_of(kind)
    return [
        k
        for k, n in enumerate(names)
        if not options.names or any(n.startswith(x) for x in options.names)
    ]


def _real(options: argparse.Namespace, start: float, until: float) -> Iterator[Record]:
    for kind in KINDS:
        if options.only in (None, kind):
            both = options.only is None and kind == "correct"
            end = start + (until - start) * _CORRECT_SHARE if both else until
            yield from watched(kind, _chosen(kind, options), end)


def _fake(options: argparse.Namespace, until: float) -> Iterator[Record]:
    from tests.cuda.fake_driver import FakeDriver, use

    for number in _chosen("correct", options):
        if time.monotonic() > until:
            return
        with use(FakeDriver()):
            yield run_case("correct", number, "cuda:sm_90")


def _shown(records: Iterator[Record]) -> Iterator[Record]:
    for r in records:
        print(f"  {r['status']:11} {r['kind']:8} {r['name']:32} {r['detail']}", flush=True)
        yield r


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
