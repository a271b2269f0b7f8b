"""A command that may not end: stopped by the processor time that it and all it started have spent, not by the clock.

On a machine with other work a slow run is then no run that hangs. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
LOOK_EVERY = 0.5  # seconds
IDLE = 180.0  # seconds of the clock with less than one second of processor time: it waits for what does not come


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit status; None where it was stopped.
        output: what it wrote on standard output and standard error.
        spent: processor seconds, those of its children among them.
    """

    code: int | None
    output: str
    spent: float


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float, memory: int) -> Ended:
    """Run a command in a folder.

    Args:
        command: with its arguments.
        folder: where it runs.
        environment: all its variables.
        limit: processor seconds after which it is stopped.
        memory: bytes of data that each of its processes may ask for.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory, memory)),
        )
        spent, moved = 0.0, (0.0, time.monotonic())
        try:
            while process.poll() is None:
                time.sleep(LOOK_EVERY)
                spent = max(spent, sum(_family(process.pid).values()))
                if spent > moved[0] + 1:
                    moved = spent, time.monotonic()
                if spent > limit or time.monotonic() > moved[1] + IDLE:
                    break
            code = process.poll()
        finally:
            if process.poll() is None:
                for pid in _family(process.pid):
                    _kill(pid)
            process.wait()
        out.seek(0)
        return Ended(code, out.read(), spent)


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
