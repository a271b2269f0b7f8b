"""Searches find what they did, and say the same of it; `python -m tests.programs.search.kept_searches` searches anew.

That what is found is the optimum is tested elsewhere; here nothing changes unseen.
"""

from __future__ import annotations

import jax
import pytest

from tests.programs.search.kept_searches import PROGRAMS, kept, program, searches

KEPT = kept()
SEARCHES = searches()

pytestmark = pytest.mark.skipif(KEPT["jax"] != jax.__version__, reason="another JAX traces functions otherwise")


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_finds_what_it_did(name: str) -> None:
    assert SEARCHES[name]() == KEPT["searches"][name]


def test_programs_are_cut_as_they_were() -> None:
    assert [" ".join(program(seed)) for seed in range(PROGRAMS)] == KEPT["programs"]


def test_every_search_is_kept() -> None:
    assert set(KEPT["searches"]) == set(SEARCHES)
