"""Programs run as several processes of one `jax.distributed` job, on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 300  # for all processes together
TRIES = 3  # of ports; the first process listens on all addresses, and a port may be taken on another one
TAKEN = "Failed to add port to server"


class PortTakenError(Exception):
    """The first process cannot listen on its port."""


def outputs_of(script: Path, processes: int, devices_each: int, *arguments: str) -> list[str]:
    """What the processes print, all of which must end well; of those that do not end, where they are."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(PortTakenError):
            return _outputs_of(script, processes, devices_each, *arguments)
    return _outputs_of(script, processes, devices_each, *arguments)


def _outputs_of(script: Path, processes: int, devices_each: int, *arguments: str) -> list[str]:
    with socket.socket() as held:  # to the end: else the port may be another job's before the first process takes it
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        workers = []
        for rank in range(processes):
            names = [name for name in os.environ if name not in ("XLA_FLAGS", "JAX_PLATFORMS")]
            environment = {name: os.environ[name] for name in names} | {
                "PYTHONHASHSEED": str(rank + 1),  # no order of hashing is shared
                "PYTHONPATH": str(Path(__file__).parents[1]),
                "PYTHONFAULTHANDLER": "1",
            }
            command = [sys.executable, str(script), address, str(processes), str(rank), str(devices_each), *arguments]
            workers.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
            )
        until = time.monotonic() + SECONDS
        try:
            return [_output(worker, until) for worker in workers]
        except subprocess.TimeoutExpired:
            for worker in workers:
                worker.send_signal(signal.SIGABRT)  # prints the stack of every thread
            told = "\n".join(worker.communicate(timeout=60)[0] for worker in workers)
            raise AssertionError(f"not done after {SECONDS} s\n{told}") from None
        finally:
            for worker in workers:
                worker.kill()


def _output(worker: subprocess.Popen[str], until: float) -> str:
    output, _ = worker.communicate(timeout=max(0.0, until - time.monotonic()))
    if worker.returncode and TAKEN in output:
        raise PortTakenError(output)
    assert worker.returncode == 0, output
    return output
