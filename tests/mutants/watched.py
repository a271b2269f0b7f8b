"""Runs of pytest with a limit on the processor seconds of the process and its children.

Processor seconds tell a hanging run from a slow one on a busy machine. Each run is a fork of a process that has
imported the libraries of the tests, but no module of this repository. Linux only.
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
IDLE = 180.0  # wall seconds with less than one processor second, after which a run counts as deadlocked
IMPORTED = ["pytest", "hypothesis", "numpy", "scipy.optimize", "scipy.sparse", "rich.console", "jax", "doctest"]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(IMPORTED)


@dataclass(frozen=True)
class Ended:
    """The end of a run.

    Attributes:
        code: exit status; None where the run was stopped.
        output: text of standard output and standard error.
        spent: processor seconds of the run and its children.
    """

    code: int | None
    output: str
    spent: float


def run(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float, memory: int) -> Ended:
    """Run pytest in a folder, and import that folder's packages.

    Args:
        arguments: arguments of pytest.
        folder: working directory.
        environment: variables added to those of this process.
        limit: processor seconds after which the run is stopped.
        memory: limit of the data segment of each process, in bytes.
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
    here = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [folder, *(path for path in sys.path if path not in ("", here))]
    file = os.open(out, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    import pytest

    code = pytest.main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))  # does not wait for the threads of compilers


def _family(first: int) -> dict[int, float]:
    """Processor seconds of a process and its descendants, by process number, with those of children that have ended."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / TICK
    family, added = set[int](), {first} & set(parents)
    while added:
        family |= added
        added = {pid for pid, parent in parents.items() if parent in added} - family
    return {pid: spent[pid] for pid in sorted(family)}


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
