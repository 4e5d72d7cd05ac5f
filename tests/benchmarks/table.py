"""The table: a line for each workload, what was reached, and the same as JSON."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

import tensorir as tir
from tests.benchmarks import against, ours, roof
from tests.benchmarks.measure import Clock, Pace, interleaved
from tests.benchmarks.work import Array, Candidate, Reach, Work, error

COMPILE_MS = 120.0
ROW_COMPILE_MS = 25.0
Measure = Callable[..., dict[str, float]]


@dataclass(frozen=True, slots=True)
class Bound:
    """What was to be reached against whom, and what was: a ratio of times."""

    factor: float
    against: str
    value: float | None

    @property
    def reached(self) -> bool:
        return self.value is not None and self.value >= self.factor


@dataclass(frozen=True, slots=True)
class Line:
    """One workload, measured.

    Attributes
    ----------
    times
        Seconds of one call, by candidate; `ours` is one of them.
    least
        Seconds below which the roof does not allow.
    remarks
        Who is missing, and why; what is wrong with whom.
    """

    name: str
    family: str
    threads: int
    times: dict[str, float]
    least: float
    bounds: tuple[Bound, ...]
    operations: float
    compile_ms: float | None = None
    compile_bound: float = COMPILE_MS
    remarks: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str | None:
        """The fastest of the others."""
        others = {k: v for k, v in self.times.items() if k != "ours"}
        return min(others, key=others.__getitem__) if others else None

    @property
    def ratio(self) -> float | None:
        """How many times as fast we are as the best of the others."""
        if self.best is None or "ours" not in self.times:
            return None
        return self.times[self.best] / self.times["ours"]

    def share(self, name: str) -> float:
        return self.least / self.times[name]

    @property
    def reached(self) -> bool:
        compiled = self.compile_ms is not None and self.compile_ms <= self.compile_bound
        return all(b.reached for b in self.bounds) and (self.threads > 1 or compiled)

    def as_dict(self) -> dict[str, object]:
        made = asdict(self)
        made["bounds"] = [asdict(b) | {"reached": b.reached} for b in self.bounds]
        shares = {k: self.share(k) for k in self.times}
        return made | {
            "best": self.best, "ratio": self.ratio, "share": shares, "reached": self.reached
        }  # fmt: skip

    def __str__(self) -> str:
        mark = ("ok " if self.reached else "NO ") if self.bounds else "   "
        threads = "" if self.threads == 1 else f" ({self.threads} threads)"
        head = f"  {mark} {self.name + threads:<44} "
        if "ours" not in self.times:
            return head + "; ".join(f"{k} {v}" for k, v in self.remarks.items())
        speed = f"{amount(self.times['ours']):>9} {self.share('ours'):6.1%}"
        beside = f"{self.ratio:6.2f}x {self.best}" if self.ratio is not None else "   (alone)"
        wants = ", ".join(_want(b) for b in self.bounds)
        compiled = "" if not self.compile_ms else f"{self.compile_ms:6.0f} ms"
        return f"{head}{speed} {beside:<27} {compiled:>10}  {wants}".rstrip()

    def others(self) -> str:
        """A second line: everybody's time and share of the roof, the best first, and remarks."""
        rest = sorted((v, k) for k, v in self.times.items() if k != "ours")
        parts = [f"{k} {amount(v)} {self.share(k):.1%}" for v, k in rest]
        parts += [f"{k}: {v}" for k, v in self.remarks.items() if not v.startswith("not inst")]
        return "        " + ", ".join(parts)


def _want(b: Bound) -> str:
    got = "nobody there" if b.value is None else f"{b.value:.2f}"
    return f"{'' if b.reached else '!'}{got} of {b.factor:g} {b.against}"


def amount(seconds: float) -> str:
    """A time in the unit in which it has one to three digits before the point."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


HEADER = (
    f"      {'':<44} {'ours':>9} {'roof':>6} {'against the best':<27} {'compiled':>10}"
    "  reached, of what was wanted, against whom (best: of all)"
)


def line(
    work: Work,
    family: str,
    pace: Pace,
    *,
    threads: int = 1,
    measure: Measure = interleaved,
    libraries: tuple[str, ...] = against.LIBRARIES,
    watch: Callable[[str], None] = lambda name: None,
) -> Line:
    """Prepare everybody, check the answers against float64, measure in turns.

    `watch` hears whose code runs next, for the case that it takes the process with it.
    """
    arrays = work.arrays()
    wanted = work.expected(*arrays)
    remarks: dict[str, str] = {}
    before = tir.num_threads()
    against.use_threads(threads, libraries)
    tir.num_threads(threads)
    try:
        found, compiled = _ours(work, arrays, remarks)
        for library in libraries:
            watch(library)
            theirs = against.candidates(library, work, arrays, threads)
            if isinstance(theirs, str):
                remarks[library] = theirs
                continue
            found |= theirs
        right: dict[str, Candidate] = {}
        for k, c in found.items():
            watch(k.split()[0])
            if _right(k, c, wanted, work, remarks):
                right[k] = c
        watch("")
        calls, one = roof.roofs(work)
        calls |= {k: c.run for k, c in right.items()}
        clock: Clock = time.process_time if threads == 1 else time.perf_counter
        times = measure(
            calls, rounds=pace.rounds, least=pace.least, clock=clock, budget=pace.budget
        )
    finally:
        tir.num_threads(before)
    least = roof.least_time(work, times, one, threads)
    times = {k: times[k] for k in right}
    bounds = tuple(bound(r, times) for r in work.reach) if threads == 1 else ()
    return Line(
        work.name, family, threads, times, least, bounds, work.operations,
        compiled, ROW_COMPILE_MS if work.row else COMPILE_MS, remarks,
    )  # fmt: skip


def _ours(
    work: Work, arrays: tuple[Array, ...], remarks: dict[str, str]
) -> tuple[dict[str, Candidate], float | None]:
    try:
        kernel, candidate = ours.ours(work, arrays)
        return {"ours": candidate}, ours.compile_ms(kernel)
    except tir.TensorIRError as e:
        remarks["ours"] = f"{type(e).__name__}: {str(e).splitlines()[0]}"
        return {}, None


def _right(
    name: str, candidate: Candidate, wanted: Array, work: Work, remarks: dict[str, str]
) -> bool:
    """Whether a candidate runs and is right; if not, a remark says so."""
    try:
        candidate.run()
        wrong = error(candidate.answer(), wanted)
    except Exception as e:  # theirs, or a fault of ours to be seen in the table
        text = str(e).strip().splitlines()
        remarks[name] = f"fails: {type(e).__name__}: {text[0] if text else ''}"[:120]
        return False
    if wrong > work.tolerance:
        remarks[name] = f"wrong by {wrong:.1e} of the largest element"
        return False
    return True


def bound(reach: Reach, times: dict[str, float]) -> Bound:
    """What was reached against the best candidate of the libraries named."""
    against_whom = [
        k for k in times if k != "ours" and (not reach.against or k.split()[0] in reach.against)
    ]
    value = None
    if against_whom and "ours" in times:
        value = min(times[k] for k in against_whom) / times["ours"]
    return Bound(reach.factor, " and ".join(reach.against) or "best", value)


def summary(lines: list[Line]) -> Iterator[Line]:
    """The geometric mean over the convolutions of the networks, against the best of torch."""
    ratios = []
    for one in lines:
        theirs = [v for k, v in one.times.items() if k.split()[0] == "torch"]
        if one.family == "nets" and one.threads == 1 and theirs and "ours" in one.times:
            ratios.append(min(theirs) / one.times["ours"])
    if not ratios:
        return
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    ours_time = sum(x.times["ours"] for x in lines if x.family == "nets" and "ours" in x.times)
    least = sum(x.least for x in lines if x.family == "nets")
    yield Line(
        f"geometric mean of {len(ratios)} convolutions", "nets", 1, {"ours": ours_time}, least,
        (Bound(1.1, "torch", mean),), 0.0, 0.0,
    )  # fmt: skip
