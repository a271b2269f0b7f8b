"""Pipelines of JAX functions across processes: two of four CPU devices each, and four of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import outputs_of

WORKER = Path(__file__).with_name("worker.py")


@pytest.mark.long
@pytest.mark.parametrize(("processes", "devices_each"), [(2, 4), (4, 2)])
def test_pipelines_across_processes_compute_what_one_device_does(processes: int, devices_each: int) -> None:
    outputs = outputs_of(WORKER, processes, devices_each)
    lines = [line.split() for output in outputs for line in output.splitlines() if line.startswith("RESULT")]
    # Between processes it is plans that move what goes from group to group.
    assert [line[1:] for line in lines] == [[str(rank), "9", "0", "device_put,plan"] for rank in range(processes)]
