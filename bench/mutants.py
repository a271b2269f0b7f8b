"""Faults put into the code on purpose, one at a time, and whether the tests find them.

A seeded sample of the mutants of every room of the package. Each is written into a copy of the repository, where the
room's tests run until one fails; what outlives them all is a hole in the tests, or changes nothing that anyone could
see: `mutants.toml` says which and why.
"""

from __future__ import annotations

import argparse
import os
import queue
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import results
from bench.children import ROOT
from bench.mutations import Mutant, mutants

REASONS = Path(__file__).parent / "mutants.toml"
MEMORY = 8 << 30  # bytes of data that the tests of one mutant may ask for
TESTS = ("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not long", "--hypothesis-seed=0")

# The modules of every room below redistrib/, and its tests, those first that are quick or find most.
# Left out: redistrib/errors, which is texts alone.
ROOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lang": ("lang", ("redistrib/lang", "tests/lang", "tests/theory", "tests/paper", "tests/plans/test_serial.py")),
    "theory": ("theory", ("redistrib/theory", "tests/theory", "tests/paper", "tests/laws")),
    "plans": (
        "plans",
        (
            "redistrib/plans",
            *(f"tests/plans/test_{name}.py" for name in ("plan", "verify", "serial", "table", "reference")),
            "tests/plans",
            "tests/paper",
        ),
    ),
    "synthesis": ("synthesis", ("redistrib/synthesis", "tests/paper", "tests/synthesis", "tests/laws")),
    "trees": ("trees", ("redistrib/trees", "tests/reshard")),
    "jax": ("backends/jax", ("redistrib/backends/jax", "tests/jax", "tests/reshard/test_reshard_properties.py")),
    "mpi": ("backends/mpi", ("redistrib/backends/mpi", "tests/mpi")),
    "top": (".", (*(f"tests/test_{name}.py" for name in ("arith", "api", "explain", "package", "cli", "demo")),)),
}


@dataclass(frozen=True)
class Fate:
    """What became of a mutant.

    Attributes:
        killed_by: the test that failed, or "time" or "crash"; empty where none did.
        seconds: until then.
    """

    killed_by: str
    seconds: float


class Copy:
    """A copy of the repository's tracked and new files, into which mutants are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def tested(self, mutant: Mutant | None, tests: tuple[str, ...], limit: float) -> Fate:
        """What the tests say of a mutant; of the code as it is where there is none."""
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        if mutant is None:
            return self._run(tests, limit)
        path = self.folder / mutant.path
        kept, times = path.read_bytes(), path.stat()
        try:
            path.write_text(mutant.code)
            os.utime(path, (times.st_atime, times.st_mtime + 10))  # no bytecode of the module is taken for the mutant's
            return self._run(tests, limit)
        finally:
            path.write_bytes(kept)
            os.utime(path, (times.st_atime, times.st_mtime))

    def _run(self, tests: tuple[str, ...], limit: float) -> Fate:
        start = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *TESTS, *tests],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
        )
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Fate("time", limit)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        failed = [line.split(" - ")[0].split(maxsplit=1)[1] for line in out.splitlines() if _tells(line)]
        killer = "" if process.returncode == 0 else failed[0] if failed else "crash"
        return Fate(killer, time.monotonic() - start)


def _tells(line: str) -> bool:
    return line.startswith(("FAILED ", "ERROR "))


def modules(room: str) -> list[str]:
    """Paths of a room's modules."""
    folder = ROOT / "redistrib" / ROOMS[room][0]
    found = folder.glob("*.py") if folder == ROOT / "redistrib" else folder.rglob("*.py")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def run(room: str, count: int, seed: int, copies: queue.Queue[Copy]) -> list[dict[str, Any]]:
    """Test a sample of a room's mutants, as many at once as there are copies."""
    tests = ROOMS[room][1]
    copy = copies.get()
    unharmed = copy.tested(None, tests, 3600)
    copies.put(copy)
    if unharmed.killed_by:
        sys.exit(f"the tests of {room} fail as it is: {unharmed.killed_by}")
    limit = 60 + 4 * unharmed.seconds

    def fate(mutant: Mutant) -> dict[str, Any]:
        copy = copies.get()
        try:
            found = copy.tested(mutant, tests, limit)
        finally:
            copies.put(copy)
        said = found.killed_by or "SURVIVED"
        print(f"{room}: {mutant.path}:{mutant.line} {said} {found.seconds:.0f} s", file=sys.stderr, flush=True)
        place = {"room": room, "path": mutant.path, "line": mutant.line}
        lines = {"before": mutant.before, "after": mutant.after}
        return {**place, **lines, "killed_by": found.killed_by, "seconds": found.seconds}

    with ThreadPoolExecutor(copies.qsize()) as pool:
        return list(pool.map(fate, mutants(ROOT, modules(room), count, seed)))


def reason(record: dict[str, Any]) -> str:
    """Why a survivor changes nothing that anyone could see; empty where nobody has said so."""
    known = tomllib.loads(REASONS.read_text())["equivalent"] if REASONS.exists() else []
    told = (entry for entry in known if all(entry[key] == record[key] for key in ("path", "before", "after")))
    return str(next(told, {}).get("why", ""))


def report(records: list[dict[str, Any]]) -> str:
    """The rate of every room, and the survivors with their reasons."""
    lines = []
    for room in ROOMS:
        own = [record for record in records if record["room"] == room]
        if not own:
            continue
        alive = [record for record in own if not record["killed_by"]]
        equal = [record for record in alive if reason(record)]
        counted = len(own) - len(equal)
        killed = len(own) - len(alive)
        rate = 100 * killed / counted if counted else 100
        lines.append(f"{room:10} {killed} of {counted} killed, {rate:.0f}%; {len(equal)} more change nothing")
        for record in alive:
            lines.append(f"  {record['path']}:{record['line']}: {reason(record) or 'NOT KILLED'}")
            lines += [f"    - {line}" for line in record["before"].splitlines()]
            lines += [f"    + {line}" for line in record["after"].splitlines()]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--room", action="append", choices=ROOMS, help="a room; all, unless given (again for others)")
    parser.add_argument("--count", type=int, default=20, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="show what was found before, and run nothing")


def main(arguments: argparse.Namespace) -> int:
    known = results.load("mutants")
    records = list(known["records"]) if known else []
    if not arguments.report:
        with tempfile.TemporaryDirectory() as folder:
            copies: queue.Queue[Copy] = queue.Queue()
            for k in range(arguments.workers):
                copies.put(Copy(Path(folder) / str(k)))
            for room in arguments.room or ROOMS:
                found = run(room, arguments.count, arguments.seed, copies)
                records = [record for record in records if record["room"] != room] + found
                results.save("mutants", records, {"seed": arguments.seed, "count": arguments.count})
    print(report(records))
    return 0
