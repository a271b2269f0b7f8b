"""Sums in distributed jobs of CPU devices, of tiles that gloo moves in parts: right, and not by gloo's reduce-scatter,
which now and then is wrong (jax #40830)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("worker_sums.py")


@pytest.mark.parametrize(("processes", "devices_each"), [(1, 4), (2, 2)])
def test_a_distributed_job_adds_right(processes: int, devices_each: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    workers = []
    for rank in range(processes):
        command = [sys.executable, str(WORKER), address, str(processes), str(rank), str(devices_each)]
        workers.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        )
    try:
        outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert all(worker.returncode == 0 for worker in workers), "\n".join(outputs)
    lines = [line.split() for output in outputs for line in output.splitlines() if line.startswith("RESULT")]
    assert [line[1] for line in lines] == [str(rank) for rank in range(processes)]
    for _, _, wrong, planned, compiled in lines:
        assert int(planned) > 0
        assert (wrong, compiled) == ("0", "0")
