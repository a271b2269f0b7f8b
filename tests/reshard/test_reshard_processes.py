"""`reshard` under `jax.distributed`: several processes of several CPU devices each, on loopback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import outputs_of

WORKER = Path(__file__).with_name("worker.py")
SETS_WORKER = Path(__file__).with_name("sets_worker.py")
DISAGREEMENTS_WORKER = Path(__file__).with_name("disagreements_worker.py")
BROKEN_WORKER = Path(__file__).with_name("broken_worker.py")

ERRORS = {"LeafError", "CommunicatorError", "ChoiceError", "MemoryLimitError", "ThroughError", "WeightsFileError"}
# Disagreements that only a comparison shows; in the others one process has an error.
DIFFERENT = {
    "shardings", "shardings that all know", "shardings that some know", "a tree", "more leaves", "a dtype", "a shape",
    "no elements", "a move and none", "donation", "a limit", "padding", "a function", "a function and none", "order",
    "captured values", "captured arrays", "host values", "committed local arrays", "other devices",
    "a target on other devices",
}  # fmt: skip


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
    require_ended(refused[0][2], processes)


def require_ended(error: str, processes: int) -> None:
    """The error names the processes that had ended when it was raised: one after the other does."""
    named = re.search(r"(?:process (\d)|the processes \[([\d, ]+)\]) ha(?:s|ve) ended, and not called reshard", error)
    assert named is not None and {*map(int, (named[1] or named[2]).split(", "))} <= {*range(1, processes)}


def said(outputs: list[str], word: str) -> list[list[str]]:
    """Of each process, the lines that begin with a word, without it."""
    return [[line.removeprefix(word) for line in output.splitlines() if line.startswith(word)] for output in outputs]


@pytest.mark.parametrize(("processes", "devices_each"), [(2, 2), pytest.param(4, 2, marks=pytest.mark.long)])
def test_processes_that_disagree_raise_the_same_error_and_go_on(
    tmp_path: Path, processes: int, devices_each: int
) -> None:
    outputs = outputs_of(DISAGREEMENTS_WORKER, processes, devices_each, str(tmp_path / "saved"))
    assert all(line.endswith(" True") for lines in said(outputs, "RIGHT ") for line in lines)
    assert said(outputs, "RESULT ") == [["0"]] * processes  # calls that all make alike move right after each of them
    different = said(outputs, "DIFFERENT ")
    assert all(lines == different[0] for lines in different)
    errors = dict(line.split(": ", 1) for line in different[0])
    assert len(errors) == 41
    right, compared = set[str](), DIFFERENT
    if processes == 2:  # the first two are all, and so are the last two
        right, compared = {"other devices"}, DIFFERENT | {"fewer processes"}
    for name, error in errors.items():
        assert error.split(":")[0] in ({"nothing raised"} if name in right else ERRORS), (name, error)
        differs = f"the processes {list(range(processes))} call reshard with different trees, shardings or options"
        assert (differs in error) == (name in compared - right), (name, error)
    seconds = {line.split(": ")[0]: float(line.split(": ")[1]) for lines in said(outputs, "SECONDS ") for line in lines}
    assert max(seconds.values()) < 30, seconds
    (ended,) = said(outputs, "ENDED ")[0]
    require_ended(ended, processes)


@pytest.mark.long
@pytest.mark.parametrize("how", ["dies", "raises"])
def test_a_move_that_one_process_does_not_finish_ends_in_all(how: str) -> None:
    outputs = outputs_of(BROKEN_WORKER, 4, 2, how)
    raised = said(outputs, "RAISED ")
    of_others = raised[:3]
    assert of_others[0] == of_others[1] == of_others[2]
    for attempt, line in zip(("move", "next call"), of_others[0], strict=True):
        assert line.startswith(
            f"{attempt}: CommunicatorError: the processes [0, 1, 2, 3] did not finish a move between"
        )
    if how == "raises":
        assert raised[3] == ["move: MemoryError: no room for a tile", of_others[0][1]]
    assert max(float(line.split(": ")[1]) for lines in said(outputs, "SECONDS ") for line in lines) < 30
