"""Runs of pytest that may not end: stopped by the processor time that they and all they started have spent.

On a machine with other work a slow run is then no run that hangs. Each is a fork of a process that has imported what
tests import, but nothing of this repository. Linux only.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
LOOK_EVERY = 0.3  # seconds
IDLE = 180.0  # seconds of the clock with under one second of processor time: it waits for an event that does not come
IMPORTED = ["pytest", "hypothesis", "numpy", "scipy.optimize", "scipy.sparse", "rich.console", "jax", "doctest"]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(IMPORTED)


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        code: exit status; None where it was stopped.
        output: the text on standard output and standard error.
        spent: processor seconds, those of its children among them.
    """

    code: int | None
    output: str
    spent: float


def run(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float, memory: int) -> Ended:
    """Run pytest in a folder, whose packages it imports.

    Args:
        arguments: of pytest.
        folder: where it runs.
        environment: variables that it has besides ours.
        limit: processor seconds after which it is stopped.
        memory: bytes of data that each of its processes may ask for.
    """
    with tempfile.NamedTemporaryFile("r", errors="replace") as out:
        process = _forks.Process(
            target=_pytest, args=(list(arguments), str(folder), dict(environment), memory, out.name)
        )
        process.start()
        assert process.pid is not None
        spent, moved = 0.0, (0.0, time.monotonic())
        try:
            while process.is_alive():
                process.join(LOOK_EVERY)
                spent = max(spent, sum(_family(process.pid).values()))
                if spent > moved[0] + 1:
                    moved = spent, time.monotonic()
                if spent > limit or time.monotonic() > moved[1] + IDLE:
                    break
            code = process.exitcode
        finally:
            if process.exitcode is None:
                for pid in _family(process.pid):
                    _kill(pid)
            process.join()
        return Ended(code, out.read(), spent)


def _pytest(arguments: list[str], folder: str, environment: dict[str, str], memory: int, out: str) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    os.chdir(folder)
    os.environ.update(environment)
    here = str(Path(__file__).resolve().parent.parent)
    sys.path[:] = [folder, *(path for path in sys.path if path not in ("", here))]
    file = os.open(out, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    import pytest

    code = pytest.main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))  # threads of compilers need not end


def _family(first: int) -> dict[int, float]:
    """Processor seconds, with those of children that ended, of a process and all below it, by number."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / TICK
    found, more = set[int](), {first} & set(parents)
    while more:
        found |= more
        more = {pid for pid, parent in parents.items() if parent in more} - found
    return {pid: spent[pid] for pid in sorted(found)}


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
