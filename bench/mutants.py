"""Faults put into the code on purpose, one at a time, and whether the tests find them.

A seeded sample of the mutants of every room of the package. Each is written into a copy of the repository, where the
room's tests run until one fails; what outlives them all is a hole in the tests, or changes nothing that anyone could
see: `mutants.toml` says which and why.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import results, survivors, watched
from bench.children import ROOT
from bench.mutations import Mutant, mutants

MEMORY = 8 << 30  # bytes of data that the tests of one mutant may ask for
NO_TESTS = 5  # exit status of pytest for a path without tests, a folder without doctests for instance
AT_FIRST = 30.0  # processor seconds that tests are taken to need before it is known
BY_THE_CLOCK = ("TimeoutExpired", "TimeoutError", "monotonic()", "perf_counter()")  # in the output of a failing test
TESTS = (
    "-q",
    "-x",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "-m",
    "not long and not exhaustive",
    "--hypothesis-seed=0",
)


def files(folder: str, *last: str) -> tuple[str, ...]:
    """The test files of a folder one by one, since pytest sorts those of a folder, with the slow ones at the end."""
    names = {path.name for path in (ROOT / folder).glob("test_*.py")} - set(last)
    return tuple(f"{folder}/{name}" for name in (*sorted(names), *last))


PLANS, PROGRAMS = "tests/synthesis/test_kept_plans.py", "tests/distribution/test_kept_programs.py"
OUTPUTS, CIRCLES = "tests/test_kept_outputs.py", "tests/test_circles.py"
SLOW_RESHARDING = ("test_reshard_properties.py", "test_reshard_processes.py")

# The modules of every room below redistrib/, and its tests, those first that are quick or find most.
# Left out: redistrib/errors, which is texts alone.
ROOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lang": (
        "lang",
        ("redistrib/lang", "tests/lang", PLANS, "tests/theory", "tests/paper", "tests/plans/test_serial.py"),
    ),
    "theory": ("theory", ("redistrib/theory", "tests/theory", PLANS, "tests/paper", "tests/laws")),
    "plans": ("plans", ("redistrib/plans", "tests/paper", PLANS, *files("tests/plans", "test_soundness.py"))),
    "programs": ("programs", ("redistrib/programs", *files("tests/programs"), PROGRAMS, "tests/docs/test_pages.py")),
    "cost": ("cost", ("redistrib/cost", PLANS, *files("tests/synthesis", "test_best.py", "test_exhaustive.py"))),
    "synthesis": (
        "synthesis",
        (
            "redistrib/synthesis",
            PLANS,
            "tests/paper",
            "tests/laws",
            *files("tests/sets"),
            *files("tests/synthesis", "test_exhaustive.py"),
        ),
    ),
    "partitioning": (
        "partitioning",
        ("redistrib/partitioning", *files("tests/programs"), PROGRAMS, *files("tests/distribution")),
    ),
    "packing": ("resharding/packing", ("redistrib/resharding/packing", *files("tests/reshard", *SLOW_RESHARDING))),
    "resharding": ("resharding", ("redistrib/resharding", *files("tests/reshard", *SLOW_RESHARDING))),
    "jax": (
        "backends/jax",
        (
            "redistrib/backends/jax",
            "tests/distribution/test_rules.py",
            "tests/distribution/test_traced.py",
            PROGRAMS,
            *files("tests/jax", "test_jax_execute.py", "test_jax_sample.py"),
            "tests/reshard/test_reshard_jit.py",
            "tests/sets/test_users.py",
        ),
    ),
    "mpi": ("backends/mpi", ("redistrib/backends/mpi", *files("tests/mpi", "test_mpi_portable.py"))),
    "distribution": ("distribution", ("redistrib/distribution", PROGRAMS, *files("tests/distribution"))),
    "pipelines": (
        "pipelines",
        ("redistrib/pipelines", *files("tests/pipelines"), *files("tests/simulate", "test_mlp.py")),
    ),
    "autoshard": ("autoshard", ("redistrib/autoshard", "tests/search/test_kept_searches.py", *files("tests/search"))),
    "simulator": (
        "simulator",
        ("redistrib/simulator", OUTPUTS, CIRCLES, *files("tests/simulate", "test_mlp.py"), PROGRAMS),
    ),
    "explain": (
        "explain",
        (
            "redistrib/explain",
            OUTPUTS,
            CIRCLES,
            "tests/test_explain.py",
            "tests/test_weak_graph.py",
            "tests/test_partial_refusals.py",
        ),
    ),
    "top": (
        ".",
        (
            *(f"redistrib/{name}.py" for name in ("api", "arith", "report", "sizes")),  # their doctests
            "redistrib/testing",
            OUTPUTS,
            *(
                f"tests/test_{name}.py"
                for name in ("arith", "api", "partial_refusals", "package", "explain", "cli", "demo", "strict")
            ),
            "tests/theory/test_rules_soundness.py",
            "tests/uneven/test_types.py",
            "tests/test_testing.py",
            "tests/simulate/test_command.py",
            "tests/search/test_use.py::test_the_command",
            "tests/mpi/test_mpi_programs.py",
        ),
    ),
}


@dataclass(frozen=True)
class Fate:
    """The result of the tests for a mutant.

    Attributes:
        killed_by: the test that failed, or "time" or "crash"; empty where none did.
        seconds: of processor time until then.
        doubtful: the test failed by a time limit inside it, which a busy machine exceeds without a fault.
    """

    killed_by: str
    seconds: float
    doubtful: bool = False


class Copy:
    """A copy of the repository's tracked and new files, into which mutants are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seconds: dict[str, float] = {}
        self._passed: set[str] = set()
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def tested(self, mutant: Mutant, tests: list[str]) -> Fate:
        """The result of the tests for a mutant, file by file.

        A test that fails must pass without the mutant. Tests that end by the limit must take less than a quarter of it
        without the mutant, in processor time. A test that failed by a time limit inside it counts where it fails
        again, and passes without the mutant.
        """
        spent = 0.0
        for path in tests:
            fate = self._with(mutant, path, 30 + 4 * self._seconds.get(path, AT_FIRST))
            while fate.killed_by:
                spent += fate.seconds
                if fate.killed_by in ("time", "crash"):
                    limit = 30 + 4 * self._unharmed(path)
                    if fate.killed_by == "crash" or fate.seconds >= limit:
                        return Fate(fate.killed_by, spent)
                    fate = self._with(mutant, path, limit)
                    continue
                passes = self._passes(fate.killed_by, path, again=fate.doubtful)
                if passes and (not fate.doubtful or self._with(mutant, fate.killed_by, AT_FIRST).killed_by):
                    return Fate(fate.killed_by, spent)
                fate = self._with(mutant, path, 30 + 4 * self._unharmed(path))
            spent += fate.seconds
        return Fate("", spent)

    def _unharmed(self, path: str) -> float:
        """Processor seconds that a test file takes without a mutant."""
        if path not in self._seconds:
            fate = self._run(path)
            if fate.killed_by:
                sys.exit(f"{path} fails as it is: {fate.killed_by}")
            self._seconds[path] = fate.seconds
        return self._seconds[path]

    def _passes(self, test: str, path: str, again: bool) -> bool:
        """Whether a test of a file passes without a mutant; where it should have before, its file is run."""
        if again:
            return not self._run(test).killed_by
        if test not in self._passed and self._run(test).killed_by:  # or its name cannot be given to pytest
            self._unharmed(path)
        self._passed.add(test)
        return True

    def _with(self, mutant: Mutant, tests: str, limit: float) -> Fate:
        path = self.folder / mutant.path
        kept, times = path.read_bytes(), path.stat()
        try:
            path.write_text(mutant.code)
            os.utime(path, (times.st_atime, times.st_mtime + 10))  # no bytecode of the module is taken for the mutant's
            return self._run(tests, limit)
        finally:
            path.write_bytes(kept)
            os.utime(path, (times.st_atime, times.st_mtime))

    def _run(self, tests: str, limit: float = 7200.0) -> Fate:
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        environment = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = watched.run([*TESTS, tests], self.folder, environment, limit, MEMORY)
        if ended.code is None:
            return Fate("time", ended.spent)
        failed = [line.split(" - ")[0].split(maxsplit=1)[1] for line in ended.output.splitlines() if _tells(line)]
        killer = "" if ended.code in (0, NO_TESTS) else failed[0] if failed else "crash"
        return Fate(killer, ended.spent, bool(killer) and any(sign in ended.output for sign in BY_THE_CLOCK))


def _tells(line: str) -> bool:
    """Whether a line of pytest names a test that failed; a program's own log has lines that say ERROR alone."""
    return line.startswith(("FAILED ", "ERROR ")) and "::" in line


def modules(room: str) -> list[str]:
    """Paths of a room's modules."""
    folder = ROOT / "redistrib" / ROOMS[room][0]
    found = folder.glob("*.py") if folder == ROOT / "redistrib" else folder.rglob("*.py")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def sample(room: str, count: int, seed: int) -> list[Mutant]:
    """Some mutants of a room."""
    return list(mutants(ROOT, modules(room), count, seed))


def same(records: list[dict[str, Any]]) -> list[Mutant]:
    """The mutants of records, where the code has them still."""
    found = []
    for path in sorted({record["path"] for record in records}):
        wanted = {(record["before"], record["after"]): record["line"] for record in records if record["path"] == path}
        made = [m for m in mutants(ROOT, [path], sys.maxsize, 0) if (m.before, m.after) in wanted]
        for key, line in wanted.items():
            alike = [mutant for mutant in made if (mutant.before, mutant.after) == key]
            found += sorted(alike, key=lambda mutant: abs(mutant.line - line))[:1]
    return found


def survived(room: str, old: list[dict[str, Any]], seed: int) -> tuple[list[Mutant], list[dict[str, Any]]]:
    """The mutants of a room that outlived the tests, with others for those whose code is no more, and the records
    without these."""
    chosen = same([record for record in old if not record["killed_by"]])
    there = {(mutant.path, mutant.before, mutant.after) for mutant in chosen}
    kept = [r for r in old if r["killed_by"] or (r["path"], r["before"], r["after"]) in there]
    known = {(record["path"], record["before"], record["after"]) for record in old}
    gone = len(old) - len(kept)
    others = (
        [m for m in sample(room, len(old) + gone, seed) if (m.path, m.before, m.after) not in known] if gone else []
    )
    return [*chosen, *others[:gone]], kept


def tests_of(room: str, mutant: Mutant) -> list[str]:
    """The test files of a room, those first that name the mutant's module."""
    name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return sorted(
        dict.fromkeys(ROOMS[room][1]),
        key=lambda path: not path.endswith(".py") or name not in (ROOT / path).read_text(),
    )


def run(room: str, chosen: list[Mutant], copies: queue.Queue[Copy]) -> Iterator[dict[str, Any]]:
    """Test mutants of a room, as many at once as there are copies."""

    def fate(mutant: Mutant) -> dict[str, Any]:
        copy = copies.get()
        try:
            found = copy.tested(mutant, tests_of(room, mutant))
        finally:
            copies.put(copy)
        said = found.killed_by or "SURVIVED"
        print(f"{room}: {mutant.path}:{mutant.line} {said} {found.seconds:.0f} s", file=sys.stderr, flush=True)
        place = {"room": room, "path": mutant.path, "line": mutant.line}
        lines = {"before": mutant.before, "after": mutant.after}
        return {**place, **lines, "killed_by": found.killed_by, "seconds": found.seconds}  # of the processor

    with ThreadPoolExecutor(copies.qsize()) as pool:
        yield from pool.map(fate, chosen)


def keep(room: str, new: list[dict[str, Any]], old: list[dict[str, Any]], seed: int, count: int) -> None:
    """Save the records of a room beside those of the others, as another run may have left them by now."""
    known = results.load("mutants")
    others = [record for record in known["records"] if record["room"] != room] if known else []
    again = {(record["path"], record["before"], record["after"]) for record in new}
    kept = [record for record in old if (record["path"], record["before"], record["after"]) not in again]
    order = list(ROOMS)
    records = sorted((*others, *kept, *new), key=lambda record: order.index(record["room"]))
    seeds = known["settings"].get("seeds", {}) if known else {}
    results.save("mutants", records, {"seeds": {**seeds, room: seed}, "count": count})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--room", action="append", choices=ROOMS, help="a room; all, unless given (again for others)")
    parser.add_argument("--count", type=int, default=20, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--survivors", action="store_true", help="test those anew that outlived the tests, or others if gone"
    )
    parser.add_argument("--missing", action="store_true", help="keep what was found before, and test what was not")
    parser.add_argument("--report", action="store_true", help="show what was found before, and run nothing")


def main(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        copies: queue.Queue[Copy] = queue.Queue()
        for k in range(0 if arguments.report else arguments.workers):
            copies.put(Copy(Path(folder) / str(k)))
        for room in () if arguments.report else arguments.room or ROOMS:
            stored, seed = results.load("mutants") or {"records": [], "settings": {}}, arguments.seed
            old = [record for record in stored["records"] if record["room"] == room]
            if arguments.survivors:
                chosen, old = survived(room, old, arguments.seed)
                seed = stored["settings"].get("seeds", {}).get(room, seed)
                keep(room, [], old, seed, arguments.count)
            else:
                chosen = sample(room, arguments.count, arguments.seed)
                keys = {(mutant.path, mutant.before, mutant.after) for mutant in chosen}
                old = [r for r in old if arguments.missing and (r["path"], r["before"], r["after"]) in keys]
                done = {(record["path"], record["before"], record["after"]) for record in old}
                chosen = [mutant for mutant in chosen if (mutant.path, mutant.before, mutant.after) not in done]
            new: list[dict[str, Any]] = []
            for record in run(room, chosen, copies):
                new.append(record)
                keep(room, new, old, seed, arguments.count)
    found = results.load("mutants")
    print(survivors.listed(found["records"] if found else []))
    return 0
