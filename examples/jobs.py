"""One `jax.distributed` job of several processes with virtual CPU devices, all on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import jax

HERE = "127.0.0.1"


def launch(script: str, processes: int, *arguments: object, speaker: int = 0) -> None:
    """Run `SCRIPT ADDRESS PROCESSES RANK ARGUMENTS` once for every rank, and print what one of them says."""
    with socket.create_server((HERE, 0)) as server:
        address = f"{HERE}:{server.getsockname()[1]}"
    hidden = ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    job = []
    for rank in range(processes):
        command = [sys.executable, script, *map(str, (address, processes, rank, *arguments))]
        job.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    try:
        for line in job[speaker].stdout or ():
            if line.strip() and "peer ranks" not in line:  # those are from Gloo, as it connects
                print(line, end="", flush=True)
        for each in job:
            if each.wait():
                raise SystemExit(f"{each.args} ended with {each.returncode}")
    finally:
        for each in job:
            each.kill()


def join(act: Callable[..., object], devices: int, address: str, processes: str, rank: str, *arguments: Any) -> None:
    """Be one process of the job, with its share of the devices, and act."""
    try:
        jax.config.update("jax_platforms", "cpu")  # these two lines are for CPUs
        jax.config.update("jax_num_cpu_devices", devices // int(processes))
        jax.distributed.initialize(address, int(processes), int(rank))
        act(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # at once: JAX would wait for the others to end as well
