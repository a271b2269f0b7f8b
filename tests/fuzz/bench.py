"""The fuzzer at length: as many cases of every kind as asked for, over all cores, then what failed, made smaller.

`--kind problems --only 17` makes one case again and says all about it.

*Problems* are drawn over meshes of 1 to 256 devices in any order, source and target on one mesh or two, ranks 0 to 6,
dimensions of size 0 up to 2^63, all cost models, profiles with hosts of 1 to 8 devices, both algorithms, memory
limits from impossible to ample; in a fifth of them tiles are partial sums, maxima or minima at one end or both. The
JSON of each plan is carried out element by element by an interpreter that uses nothing of the library, and counts how
often each summand is in what a device holds. *Forged* are plans changed at random and most of them sealed again:
whatever is accepted must still be right by that interpreter. *Texts* go to all that reads text. *Trees* go through
`reshard`, with aliases, leaves that fail, donation, limits and interruptions; no array may be lost. *Compositions*
move trees in functions under up to three of JAX's transformations, whatever mesh is set. *Offsets* are moves by
programs whose largest index is a few elements. *Through* moves arrays through random functions that capture others,
twice each. *Functions* are random JAX functions through `distribute`, some with inner functions that close over arrays,
whose numbers must be those of `jax.jit`. *Pipelines* are random training steps in stages.
*Disagreements* are jobs of 2 and 4 processes of JAX and 4 ranks of MPI, of which one makes another call than the
others, or has an error: all must raise the same error within seconds, or get what is right. Failed is
whatever is wrong, raises anything but a `RedistribError`, warns, or takes more processor time than its kind may.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import results
from bench.children import Child
from bench.problems import DEFAULT_SEED
from tests.fuzz.guard import Failure, guarded
from tests.fuzz.kinds import KINDS, Kind, Tally, chunks

SAMPLE = {
    "problems": 5_000,
    "forged": 5_000,
    "texts": 1_000,
    "trees": 100,
    "compositions": 100,
    "offsets": 100,
    "through": 100,
    "functions": 100,
    "effects": 40,
    "files": 500,
    "disagreements": 8,
    "pipelines": 40,
}
FULL = {
    "problems": 100_000,
    "forged": 100_000,
    "texts": 20_000,
    "trees": 2_000,
    "compositions": 2_000,
    "offsets": 2_000,
    "through": 2_000,
    "functions": 2_000,
    "effects": 500,
    "files": 5_000,
    "disagreements": 100,
    "pipelines": 500,
}
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
GRACE = 1800.0  # wall seconds that a chunk may take beyond twice its usual time, whatever else the machine does
USUAL = {
    "problems": 0.1,
    "forged": 0.1,
    "texts": 0.5,
    "trees": 3.0,
    "compositions": 3.0,
    "offsets": 3.0,
    "through": 3.0,
    "functions": 3.0,
    "effects": 5.0,
    "files": 1.0,
    "disagreements": 120.0,
    "pipelines": 10.0,
}  # seconds a case, at most, on the average


class Run:
    """All chunks of all kinds, taken by as many threads as there are jobs, each with processes of its own."""

    def __init__(self, counts: dict[str, int], seed: int, minutes: float | None) -> None:
        self.tallies = {name: Tally() for name, count in counts.items() if count}
        self.counts, self.seed = counts, seed
        everything = [
            (start / counts[name], name, start, stop)
            for name in self.tallies
            for start, stop in chunks(KINDS[name], counts[name])
        ]
        self._todo = sorted(everything, reverse=True)  # taken from the end: of every kind the same part is done
        self._end = None if minutes is None else time.monotonic() + 60 * minutes
        self._lock = threading.Lock()
        self._left = {name: 60 * KINDS[name].minutes for name in counts if KINDS[name].minutes is not None}
        self.unfinished = False

    def go(self, jobs: int) -> None:
        """Do everything, or what there is time for."""
        columns = (TextColumn("{task.description:9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[failed]}"), console=console) as bar:
            tasks = {name: bar.add_task(name, total=self.counts[name], failed="") for name in self.tallies}

            def advance(name: str) -> None:
                tally = self.tallies[name]
                failed = f"[red]{tally.failed} failed" if tally.failed else "none failed"
                bar.update(tasks[name], completed=tally.cases, failed=failed)

            threads = [threading.Thread(target=self._work, args=(advance,)) for _ in range(jobs)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _work(self, advance: Any) -> None:
        with ExitStack() as stack:
            children: dict[bool, Child] = {}  # one for compilers, which want more memory, one for all else
            for name, start, stop in self._chunks():
                compiles = KINDS[name].compiles
                if compiles not in children:
                    children[compiles] = stack.enter_context(Child("tests.fuzz.worker", ENVIRONMENT))
                task = {"kind": name, "seed": self.seed, "start": start, "stop": stop}
                limit, began = GRACE + 2 * USUAL[name] * (stop - start), time.monotonic()
                self._note(name, start, stop, children[compiles].ask(task, limit))
                if name in self._left:
                    self._left[name] -= time.monotonic() - began
                advance(name)

    def _chunks(self) -> Iterator[tuple[str, int, int]]:
        while True:
            with self._lock:
                if not self._todo:
                    return
                if self._end is not None and time.monotonic() > self._end:
                    self.unfinished = True
                    return
                _, name, start, stop = self._todo.pop()
                if self._left.get(name, 1.0) <= 0:
                    self.unfinished = True
                    continue
            yield name, start, stop

    def _note(self, name: str, start: int, stop: int, answer: dict[str, Any]) -> None:
        with self._lock:
            if answer["status"] == "ok":
                self.tallies[name].add(Tally.from_json(answer["tally"]))
                return
            at = answer.get("index", start)
            what = {"limit": "did not end", "crash": f"killed its process by {answer.get('signal')}"}
            detail = what.get(answer["status"], answer.get("error", ""))
            self.tallies[name].fail(at, Failure("crash", f"{detail}: {answer.get('log', '')}"))
            for one, other in ((start, at), (at + 1, stop)):  # those before it ended well, and are counted anew
                if one < other:
                    self._todo.append((0.0, name, one, other))

    def records(self) -> list[dict[str, Any]]:
        return [{"kind": name, "asked": self.counts[name], **tally.to_json()} for name, tally in self.tallies.items()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    for name, kind in KINDS.items():
        parser.add_argument(f"--{name}", type=int, default=None, help=f"how many {kind.what}")
    parser.add_argument("--full", action="store_true", help="a hundred thousand problems and forged plans")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--minutes", type=float, default=None, help="take no new cases after this time")
    parser.add_argument("--name", default="fuzz", help="name of the results file")
    parser.add_argument("--kind", choices=tuple(KINDS), default="problems", help="of the case of --only")
    parser.add_argument("--only", type=int, default=None, metavar="INDEX", help="make this one case again")


def main(arguments: argparse.Namespace) -> int:
    if arguments.only is not None:
        return _again(arguments.kind, arguments.seed, arguments.only)
    given = {name: getattr(arguments, name) for name in KINDS}
    if all(count is None for count in given.values()):
        given = FULL if arguments.full else SAMPLE
    counts = {name: count or 0 for name, count in given.items()}
    run, start = Run(counts, arguments.seed, arguments.minutes), time.monotonic()
    run.go(arguments.jobs)
    settings = {"seed": arguments.seed, "jobs": arguments.jobs, "minutes": (time.monotonic() - start) / 60}
    settings["summands"] = True  # among the problems, which they once were not
    if run.unfinished:
        settings["unfinished"] = True
    print(f"wrote {results.save(arguments.name, run.records(), settings)}", file=sys.stderr)
    for name, tally in run.tallies.items():
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.outcomes.items()))
        seconds, index = tally.slowest
        print(f"{name}: {tally.cases} cases, {tally.failed} failed; {outcomes}; slowest {seconds:.2f} s ({index})")
        for signature, shown in tally.failures.items():
            print(f"\n  {tally.counts[signature]} x {signature}\n  {shown[0][1][:600]}")
            print(f"  python -m bench fuzz --seed {arguments.seed} --kind {name} --only {shown[0][0]}")
    return 1 if any(tally.failed for tally in run.tallies.values()) else 0


def _again(name: str, seed: int, index: int) -> int:
    """Make one case again, alone, and print what it is, what becomes of it, and for a problem the smallest like it."""
    os.environ.update(ENVIRONMENT)
    kind: Kind = KINDS[name]
    if name == "problems":
        from tests.fuzz.problems import draw
        from tests.fuzz.shrink import shrunk, signature_of

        problem = draw(seed, index)
        print(problem)
        if signature_of(problem, index) is not None:
            print(f"fails; so does\n{shrunk(problem, index)}")
    elif name == "forged":
        from tests.fuzz.forge import forgery

        print(forgery(seed, index))
    elif name in ("functions", "effects", "pipelines", "compositions"):
        print(import_module(kind.module).drawn(seed, index))
    try:
        with guarded(kind.limit) as clock:
            found = kind.check(seed, index)
        print(f"{name} {index}: {found}, {clock.seconds:.2f} s")
    except Failure as failure:
        print(f"{name} {index}: {failure}", file=sys.stderr)
        if failure.__cause__ is not None:
            sys.excepthook(type(failure.__cause__), failure.__cause__, failure.__cause__.__traceback__)
        return 1
    return 0
