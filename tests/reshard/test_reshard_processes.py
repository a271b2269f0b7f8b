"""`reshard` under `jax.distributed`: several processes of several CPU devices each, on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import outputs_of

WORKER = Path(__file__).with_name("worker.py")
SETS_WORKER = Path(__file__).with_name("sets_worker.py")


@pytest.mark.parametrize(("processes", "devices_each"), [(2, 4), (4, 2)])
def test_processes_plan_alike_and_move_right(processes: int, devices_each: int) -> None:
    outputs = outputs_of(WORKER, processes, devices_each)
    lines = [line.split() for output in outputs for line in output.splitlines() if line.startswith("RESULT")]
    assert [line[1] for line in lines] == [str(rank) for rank in range(processes)]
    for _, _, devices, leaves, wrong, digest, donated in lines:
        assert (devices, leaves, wrong) == (str(processes * devices_each), "6", "0")
        assert digest == lines[0][5]
        assert donated == "True"


@pytest.mark.parametrize(
    ("processes", "devices_each", "options"),
    [(2, 4, "few"), *[pytest.param(*each, "all", marks=pytest.mark.long) for each in ((2, 4), (4, 2))]],
)
def test_processes_move_between_device_sets(processes: int, devices_each: int, options: str) -> None:
    outputs = outputs_of(SETS_WORKER, processes, devices_each, options)
    lines = [line.split() for output in outputs for line in output.splitlines() if line.startswith("RESULT")]
    moved = "9" if options == "few" else "81"  # with NCCL M2N's 52 cases, Alpa's 9, and 11 pairs
    assert [line[1:] for line in lines] == [[str(rank), moved, "0", "True"] for rank in range(processes)]
    refused = [[line for line in output.splitlines() if "REFUSED" in line] for output in outputs]
    assert len(refused[0]) == 3 and all(lines == refused[0][:2] for lines in refused[1:])  # the same in every process
    assert "under a memory limit all leaves that move have devices of the same processes" in refused[0][0]
    assert "call reshard with different trees" in refused[0][1]
    assert "not called reshard within 2 s" in refused[0][2]
    different = [[line for line in output.splitlines() if line.startswith("DIFFERENT")] for output in outputs]
    assert all(lines == different[0] for lines in different)  # every process raises the same
    messages = dict(line.removeprefix("DIFFERENT ").split(": ", 1) for line in different[0])
    late = [messages.pop(name) for name in ("late with a new call", "late with a known one")]
    assert len(messages) == 14
    for name, message in messages.items():
        assert "call reshard with different trees, shardings or options" in message, name
    others = "process 1 has" if processes == 2 else "the processes [1, 2, 3] have"
    for message in late:
        assert f"{others} not called reshard within 0.5 s" in message
