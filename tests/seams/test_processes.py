"""Every public call in two processes, with arrays of all, of one, of the host: right, or refused as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import outputs_of
from tests.seams.cells import CALLS, table

PAGE = Path(__file__).parents[2] / "docs" / "seams.md"
WORKER = Path(__file__).with_name("processes_worker.py")


@pytest.mark.long
def test_arrays_that_a_process_does_not_have() -> None:
    """The table of the page is that of the cells, line for line, in both processes."""
    outputs = outputs_of(WORKER, 2, 2)
    first, second = ([line[5:] for line in output.splitlines() if line.startswith("CELL ")] for output in outputs)
    assert first == second
    cells = [line.split("/") for line in first]
    assert {call for call, *_ in cells} == set(CALLS)
    assert not [cell for cell in cells if cell[3] == "wrong"]
    rows = table({(call, f"{way} {source}"): kind for call, source, way, kind in cells}).splitlines()[2:]
    page = PAGE.read_text().partition("## Several processes")[2]
    assert rows == [line for line in page.splitlines() if line.startswith("| ")][1:]
