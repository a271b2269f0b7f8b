"""The machine, versions and commit of a measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "jaxlib", "libtpu", "numpy", "scipy", "mpi4py", "mpich", "torch", "redistrib")


def describe() -> dict[str, Any]:
    """Processor, memory, system, versions, commit, date (UTC) and the load before the measurement."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(_memory_kib() / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_kib() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal"):
            return int(line.split()[1])
    return 0


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text() if file.exists() else ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
