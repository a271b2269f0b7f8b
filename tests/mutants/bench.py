"""Mutation testing: a seeded sample of mutants of every room of the package, and the tests that kill them.

Each mutant is written into a copy of the repository, where the room's tests run until one fails. A mutant that survives
all tests shows a hole in the tests or changes no visible behaviour; `bench/mutants.toml` lists the latter with reasons.
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
from itertools import product
from pathlib import Path
from typing import Any

from bench import results, survivors
from bench.children import ROOT
from tests.mutants import watched
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.rooms import ROOMS

MEMORY = 8 << 30  # bytes of data that the tests of one mutant may ask for
NO_TESTS = 5  # exit status of pytest for a path without tests, as a folder without doctests
AT_FIRST = 30.0  # processor seconds assumed for a test file that has not run yet
BY_THE_CLOCK = ("TimeoutExpired", "TimeoutError", "monotonic()", "perf_counter()")  # in the output of a failing test
TESTS = (
    "-q",
    "-x",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=0",
)
MARKS = ("not long and not exhaustive", "long and not exhaustive")  # tests that take many seconds come last


@dataclass(frozen=True)
class Fate:
    """The outcome of a mutant.

    Attributes:
        killed_by: the test that failed, or "time" or "crash"; empty for a survivor.
        seconds: processor seconds until then.
        doubtful: the test failed by its time limit, which it may also exceed on a busy machine.
    """

    killed_by: str
    seconds: float
    doubtful: bool = False


class Copy:
    """A copy of the repository's tracked and new files, into which mutants are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._marks = MARKS[0]  # of the tests that run
        self._seconds: dict[tuple[str, str], float] = {}
        self._passed: set[str] = set()
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def tested(self, mutant: Mutant, tests: list[str]) -> Fate:
        """Run the test files one after the other on a mutant until a test kills it.

        A test that fails must pass without the mutant. Tests that exceed the limit must take less than a quarter of it
        without the mutant, in processor seconds. A test that failed by its time limit must fail a second time.
        """
        spent = 0.0
        for self._marks, path in product(MARKS, tests):
            fate = self._with(mutant, path, 30 + 4 * self._seconds.get((self._marks, path), AT_FIRST))
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
        key = self._marks, path
        if key not in self._seconds:
            fate = self._run(path)
            if fate.killed_by:
                sys.exit(f"{path} fails as it is: {fate.killed_by}")
            self._seconds[key] = fate.seconds
        return self._seconds[key]

    def _passes(self, test: str, path: str, again: bool) -> bool:
        """Whether a test passes without a mutant. `again` runs it even where it has passed before."""
        if again:
            return not self._run(test).killed_by
        if test not in self._passed and self._run(test).killed_by:  # or its name cannot be given to pytest
            self._unharmed(path)
        self._passed.add(test)
        return True

    def _with(self, mutant: Mutant, tests: str, limit: float) -> Fate:
        path = self.folder / mutant.path
        original, times = path.read_bytes(), path.stat()
        try:
            path.write_text(mutant.code)
            os.utime(path, (times.st_atime, times.st_mtime + 10))  # invalidates the bytecode of the original
            return self._run(tests, limit)
        finally:
            path.write_bytes(original)
            os.utime(path, (times.st_atime, times.st_mtime))

    def _run(self, tests: str, limit: float = 7200.0) -> Fate:
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        environment = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = watched.run([*TESTS, "-m", self._marks, tests], self.folder, environment, limit, MEMORY)
        if ended.code is None:
            return Fate("time", ended.spent)
        failed = [line.split(" - ")[0].split(maxsplit=1)[1] for line in ended.output.splitlines() if _is_failure(line)]
        killer = "" if ended.code in (0, NO_TESTS) else failed[0] if failed else "crash"
        return Fate(killer, ended.spent, bool(killer) and any(sign in ended.output for sign in BY_THE_CLOCK))


def _is_failure(line: str) -> bool:
    """Whether a line of pytest's output names a test that failed; log lines may begin with ERROR too."""
    return line.startswith(("FAILED ", "ERROR ")) and "::" in line


def modules(room: str) -> list[str]:
    """Paths of a room's modules."""
    folder = ROOT / "redistrib" / ROOMS[room][0]
    paths = folder.glob("*.py") if folder == ROOT / "redistrib" else folder.rglob("*.py")
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def key_of(mutant: Mutant | dict[str, Any]) -> tuple[str, str, str]:
    """The path and the lines before and after, of a mutant or of its record."""
    place = mutant if isinstance(mutant, dict) else vars(mutant)
    return place["path"], place["before"], place["after"]


def sample(room: str, count: int, seed: int) -> list[Mutant]:
    """`count` mutants of a room."""
    return list(mutants(ROOT, modules(room), count, seed))


def same(records: list[dict[str, Any]]) -> list[Mutant]:
    """The mutants of records whose code still exists."""
    matches = []
    for path in sorted({record["path"] for record in records if (ROOT / record["path"]).is_file()}):
        lines = {(record["before"], record["after"]): record["line"] for record in records if record["path"] == path}
        every = mutants(ROOT, [path], sys.maxsize, 0, [after for _, after in lines])
        candidates = [mutant for mutant in every if (mutant.before, mutant.after) in lines]
        for key, line in lines.items():
            equal = [mutant for mutant in candidates if (mutant.before, mutant.after) == key]
            matches += sorted(equal, key=lambda mutant: abs(mutant.line - line))[:1]
    return matches


def survived(room: str, old: list[dict[str, Any]], seed: int) -> tuple[list[Mutant], list[dict[str, Any]]]:
    """The survivors of a room, with new mutants in place of those whose code has gone, and the records without the
    latter."""
    chosen = same([record for record in old if not record["killed_by"]])
    current = {key_of(mutant) for mutant in chosen}
    records = [record for record in old if record["killed_by"] or key_of(record) in current]
    tested = {key_of(record) for record in old}
    gone = len(old) - len(records)
    others = [m for m in sample(room, len(old) + gone, seed) if key_of(m) not in tested] if gone else []
    return [*chosen, *others[:gone]], records


def again(room: str, old: list[dict[str, Any]], count: int, seed: int) -> list[Mutant]:
    """The mutants of a room's records, with new ones where code has gone or there are fewer than `count`."""
    chosen, tested, count = same(old), {key_of(record) for record in old}, max(count, len(old))
    others = [m for m in sample(room, count + len(old), seed) if key_of(m) not in tested] if len(chosen) < count else []
    return [*chosen, *others[: count - len(chosen)]]


def tests_of(room: str, mutant: Mutant) -> list[str]:
    """The test files of a room; files that name the mutant's module come first."""
    name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return sorted(
        dict.fromkeys(ROOMS[room][1]),
        key=lambda path: not path.endswith(".py") or name not in (ROOT / path).read_text(),
    )


def run(room: str, chosen: list[Mutant], copies: queue.Queue[Copy]) -> Iterator[dict[str, Any]]:
    """Test mutants of a room, one at a time in each copy."""

    def fate(mutant: Mutant) -> dict[str, Any]:
        copy = copies.get()
        try:
            outcome = copy.tested(mutant, tests_of(room, mutant))
        finally:
            copies.put(copy)
        killer = outcome.killed_by or "SURVIVED"
        print(f"{room}: {mutant.path}:{mutant.line} {killer} {outcome.seconds:.0f} s", file=sys.stderr, flush=True)
        place = {"room": room, "path": mutant.path, "line": mutant.line}
        lines = {"before": mutant.before, "after": mutant.after}
        return {**place, **lines, "killed_by": outcome.killed_by, "seconds": outcome.seconds}  # of the processor

    with ThreadPoolExecutor(copies.qsize()) as pool:
        yield from pool.map(fate, chosen)


def save(room: str, new: list[dict[str, Any]], old: list[dict[str, Any]], seed: int, count: int) -> None:
    """Save the records of a room beside those of the other rooms, read anew since another run may have changed them."""
    saved = results.load("mutants")
    others = [record for record in saved["records"] if record["room"] != room] if saved else []
    replaced = {key_of(record) for record in new}
    older = [record for record in old if key_of(record) not in replaced]
    order = list(ROOMS)
    records = sorted((*others, *older, *new), key=lambda record: order.index(record["room"]))
    seeds = saved["settings"].get("seeds", {}) if saved else {}
    results.save("mutants", records, {"seeds": {**seeds, room: seed}, "count": count})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--room", action="append", choices=ROOMS, help="a room, may be repeated; by default all rooms")
    parser.add_argument("--count", type=int, default=20, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--survivors", action="store_true", help="test survivors again, or new mutants if code has gone"
    )
    parser.add_argument(
        "--missing", action="store_true", help="keep saved records, and test others until there are COUNT"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="test saved mutants again, new ones where code has gone, up to COUNT",
    )
    parser.add_argument("--report", action="store_true", help="show saved records, and test nothing")


def main(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        copies: queue.Queue[Copy] = queue.Queue()
        for k in range(0 if arguments.report else arguments.workers):
            copies.put(Copy(Path(folder) / str(k)))
        for room in () if arguments.report else arguments.room or ROOMS:
            stored, seed = results.load("mutants") or {"records": [], "settings": {}}, arguments.seed
            old = [record for record in stored["records"] if record["room"] == room]
            if arguments.again:
                chosen, old = again(room, old, arguments.count, seed), []
            elif arguments.survivors:
                chosen, old = survived(room, old, arguments.seed)
                seed = stored["settings"].get("seeds", {}).get(room, seed)
                save(room, [], old, seed, arguments.count)
            else:
                old = old if arguments.missing else []
                done = {key_of(record) for record in old}
                chosen = sample(room, arguments.count + len(old), arguments.seed)
                chosen = [mutant for mutant in chosen if key_of(mutant) not in done]
                chosen = chosen[: max(arguments.count - len(old), 0)]
            new: list[dict[str, Any]] = []
            for record in run(room, chosen, copies):
                new.append(record)
                save(room, new, old, seed, arguments.count)
    saved = results.load("mutants")
    print(survivors.listed(saved["records"] if saved else []))
    return 0
