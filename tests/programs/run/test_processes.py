"""Distributed functions and searches of several processes: the same program everywhere, or the same error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import outputs_of

WORKER = Path(__file__).with_name("processes_worker.py")


@pytest.mark.long
@pytest.mark.parametrize(("processes", "devices_each"), [(2, 2), (4, 1)])
def test_programs_and_searches_are_the_same_or_refused(processes: int, devices_each: int) -> None:
    outputs = outputs_of(WORKER, processes, devices_each)
    assert all("SETS True" in output for output in outputs)
    words = ("RIGHT", "DIFFERENT", "FOUND")
    told = [[line for line in output.splitlines() if line.startswith(words)] for output in outputs]
    assert all(lines == told[0] for lines in told)
    right, *different, right_after, found = told[0]
    assert right == right_after == "RIGHT True True"
    assert found.split()[-2:] == ["1", "True"]
    errors = dict(line.removeprefix("DIFFERENT ").split(": ", 1) for line in different)
    differing = f"CommunicatorError: the processes {list(range(processes))} call "
    compared = f"{differing}distribute with different functions, schedules, options or values of the host"
    for name in (
        "schedules",
        "values",
        "values of one process",
        "captured values",
        "a number",
        "a power",
        "order",
        "moved arguments",
        "a call too few",
    ):
        assert errors[name].startswith(compared), (name, errors[name])
    assert errors["arguments"].startswith("ProgramError: operation 'f', array 'x': it is float32[8, 8]")
    assert errors["a pin"].startswith("CutError: the mesh {d:2, t:2} has no axis 'z'")
    for name in ("options", "machines of one name"):
        assert errors[name].startswith(f"{differing}search with different functions, meshes or options"), errors[name]
    assert errors["memory"].startswith("MemoryLimitError: no schedule of f fits in 1 bytes")
    seconds = [float(line.split(": ")[1]) for output in outputs for line in output.splitlines() if "SECONDS" in line]
    assert max(seconds) < 30
