"""Whether a process of this host is still alive; of other hosts, and where there is no `/proc`, nothing is known."""

from __future__ import annotations

import os
from pathlib import Path


def identity() -> str:
    """A text that names this process among all of all hosts; empty where there is no `/proc`.

    It has the boot of the host, the namespace of process numbers, the number, and the time at which the process began,
    since numbers are used again.
    """
    try:
        return f"{_host()} {os.getpid()} {_stat(os.getpid())[1]}"
    except (OSError, IndexError):
        return ""


def has_died(other: str) -> bool:
    """Whether a process of this host, by its `identity`, has ended."""
    try:
        host, pid, began = other.split()
        if host != _host():
            return False
    except (OSError, ValueError):
        return False
    try:
        state, began_now = _stat(int(pid))
    except OSError:
        return True
    return began_now != began or state in "ZX"


def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _stat(pid: int) -> tuple[str, str]:
    """The state of a process, and the time at which it began, in clock ticks since the boot."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], fields[19]
