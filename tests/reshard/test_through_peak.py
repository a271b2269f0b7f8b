"""What a process holds while weights are cast and fused on their way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("through_peak_worker.py")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("mode", ["keep", "donate"])
def test_the_peak_is_source_and_target_and_a_bucket(mode: str) -> None:
    # glibc otherwise keeps freed memory of up to 32 MB for later, which counts as held.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "JAX_PLATFORMS": "cpu"}
    environment = {name: value for name, value in environment.items() if name != "XLA_FLAGS"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(WORKER), mode], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["held"] <= 1.1 * (found["source"] + found["target"] + found["bucket"])
    if mode == "donate":
        assert found["held"] <= 1.1 * (found["source"] + found["target"] // 2)  # sources go as results come
