"""Programs run as several processes of one `jax.distributed` job, on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


def outputs_of(script: Path, processes: int, devices_each: int, *arguments: str) -> list[str]:
    """What the processes print, all of which must end well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    root = Path(__file__).parents[1]
    workers = []
    for rank in range(processes):
        environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_PLATFORMS")}
        environment |= {"PYTHONHASHSEED": str(rank + 1), "PYTHONPATH": str(root)}  # no order of hashing is shared
        command = [sys.executable, str(script), address, str(processes), str(rank), str(devices_each), *arguments]
        workers.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        )
    try:
        outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert all(worker.returncode == 0 for worker in workers), "\n".join(outputs)
    return outputs
