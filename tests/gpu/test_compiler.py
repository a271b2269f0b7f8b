"""Moves and programs under XLA's GPU compiler, which needs no GPU. Skipped without `jax[cuda13]`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import gpus

WORKER = Path(__file__).with_name("compiler_worker.py")


@pytest.mark.skipif(gpus.missing() is not None, reason=str(gpus.missing()))
@pytest.mark.parametrize("topology", ["h200:1x1x8", "h200:1x2x4"])
def test_what_is_received_is_what_is_predicted(topology: str) -> None:
    environment = {**os.environ, **gpus.ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, WORKER, topology], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WRONG" not in done.stdout, done.stdout
    assert done.stdout.startswith("COMPILED 12 20 for NVIDIA H200")
