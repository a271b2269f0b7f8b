"""The kinds of cases there are, and one case or a run of them under guard."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.guard import LIMIT, Failure, guarded

MOST_SHOWN = 5  # failures of one signature that are kept


@dataclass(frozen=True)
class Kind:
    """A kind of case.

    Attributes:
        module: its `check(seed, index)` makes one case and says what became of it.
        limit: seconds of processor time that a case may take.
        chunk: cases that a process is given at a time.
        what: for the report.
        compiles: whether compilers run, which want more memory than all else.
        minutes: of all cases together, after which none is taken; cases are few and long, and would take all the time.
    """

    module: str
    limit: float
    chunk: int
    what: str
    compiles: bool = False
    minutes: float | None = None

    @property
    def check(self) -> Callable[[int, int], str]:
        found: Callable[[int, int], str] = importlib.import_module(self.module).check
        return found


KINDS: dict[str, Kind] = {
    "problems": Kind("tests.fuzz.check", LIMIT, 500, "problems planned and carried out by the interpreter"),
    "forged": Kind("tests.fuzz.forge", LIMIT, 1000, "forged plans read"),
    "texts": Kind("tests.fuzz.texts", LIMIT, 200, "hostile texts read"),
    "trees": Kind("tests.fuzz.trees", 60.0, 40, "trees moved by reshard", compiles=True),
    "compositions": Kind(
        "tests.fuzz.compositions", 60.0, 20, "trees moved by reshard in compositions of transformations", compiles=True
    ),
    "offsets": Kind(
        "tests.fuzz.large_offsets", 60.0, 40, "moves by programs that index a few elements only", compiles=True
    ),
    "through": Kind("tests.fuzz.through", 60.0, 40, "trees moved through functions that capture", compiles=True),
    "functions": Kind("tests.fuzz.functions", 60.0, 40, "functions through distribute, beside jax.jit", compiles=True),
    "effects": Kind("tests.fuzz.effects", 60.0, 20, "functions with effects, beside jax.jit", compiles=True),
    "files": Kind("tests.fuzz.files", LIMIT, 100, "trees saved, and files of weights read"),
    "disagreements": Kind(
        "tests.fuzz.disagreements", LIMIT, 1, "jobs of processes that disagree", compiles=True, minutes=10.0
    ),
    "pipelines": Kind("tests.fuzz.pipelines", 120.0, 20, "training steps in stages, beside jax.jit", compiles=True),
}


@dataclass
class Tally:
    """What became of a run of cases.

    Attributes:
        outcomes: how often each.
        failures: by signature, the first few, as index, seconds and text.
        failed: how many cases failed.
        seconds: processor seconds in all.
        slowest: seconds and index of the case that took longest.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, -1)

    @property
    def cases(self) -> int:
        return sum(self.outcomes.values()) + self.failed

    @property
    def failed(self) -> int:
        return sum(self.counts.values())

    def fail(self, index: int, failure: Failure) -> None:
        self._fail(failure.signature, 1, [(index, str(failure)[:4000])])

    def _fail(self, signature: str, count: int, shown: Iterable[tuple[int, str]]) -> None:
        self.counts[signature] += count
        kept = self.failures.setdefault(signature, [])
        kept += list(shown)[: MOST_SHOWN - len(kept)]

    def took(self, index: int, seconds: float) -> None:
        self.seconds += seconds
        self.slowest = max(self.slowest, (seconds, index))

    def add(self, other: Tally) -> None:
        """Count the other's cases too."""
        self.outcomes.update(other.outcomes)
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        for signature, shown in other.failures.items():
            self._fail(signature, other.counts[signature], shown)

    def to_json(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "failed": self.failed,
            "outcomes": dict(self.outcomes),
            "failures": {s: {"count": self.counts[s], "shown": shown} for s, shown in self.failures.items()},
            "seconds": self.seconds,
            "slowest": list(self.slowest),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Tally:
        made = Tally(Counter(data["outcomes"]), seconds=data["seconds"], slowest=tuple(data["slowest"]))
        for signature, entry in data["failures"].items():
            made._fail(signature, entry["count"], [(index, text) for index, text in entry["shown"]])
        return made


def one(kind: Kind, seed: int, index: int, tally: Tally) -> None:
    """One case, counted."""
    try:
        with guarded(kind.limit) as clock:
            outcome = kind.check(seed, index)
        tally.outcomes[outcome] += 1
    except Failure as failure:
        tally.fail(index, failure)
    tally.took(index, clock.seconds)


def run(kind: Kind, seed: int, indices: Iterable[int]) -> Tally:
    """The cases of these numbers."""
    tally = Tally()
    for index in indices:
        one(kind, seed, index, tally)
    return tally


def chunks(kind: Kind, count: int) -> Iterator[tuple[int, int]]:
    """First and one past the last index of each chunk."""
    return ((start, min(start + kind.chunk, count)) for start in range(0, count, kind.chunk))
