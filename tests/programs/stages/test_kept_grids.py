"""Layouts of DistIR's models take the seconds and bytes they took before."""

from __future__ import annotations

import pytest

from tests.programs.stages.kept_grids import answer, jobs, kept


@pytest.mark.long
@pytest.mark.parametrize(("model", "examples"), jobs())
def test_a_grid_is_simulated_as_before(model: str, examples: int) -> None:
    assert answer(model, examples) == kept()[f"{model}, {examples}"]
