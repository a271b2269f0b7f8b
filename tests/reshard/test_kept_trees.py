"""Plans of thirty trees print what they printed before; `python -m tests.reshard.kept_trees` renews them."""

from __future__ import annotations

import os

import pytest

from tests.reshard.kept_trees import THROUGH, kept, planned, through

NAMES = [f"tree {number}" for number in range(20)] + list(THROUGH)


@pytest.mark.skipif("REDISTRIB_TESTS_OPTIMIZED" in os.environ, reason="peaks depend on how much XLA optimizes")
@pytest.mark.parametrize(
    "name",
    [name if number % 3 == 0 else pytest.param(name, marks=pytest.mark.long) for number, name in enumerate(NAMES)],
)
def test_a_tree_is_planned_as_before(name: str) -> None:
    printed = through(name) if name in THROUGH else planned(int(name.removeprefix("tree ")))
    assert printed == kept()[name]
