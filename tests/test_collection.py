"""Loading modules, tracing and the first schedules of a search run without searches for cyclic garbage."""

from __future__ import annotations

import gc
import subprocess
import sys
from contextlib import suppress

import jax.numpy as jnp
import pytest

import redistrib as rd
from redistrib.collection import uncollected


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_as_before_after_the_block(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with suppress(ZeroDivisionError), uncollected():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("lasts", [True, False])
def test_what_lasts_counts_as_old(lasts: bool) -> None:
    with uncollected(lasts=lasts):
        made: list[object] = [[]]
        made.append(made)
    assert any(each is made for each in gc.get_objects(generation=2)) is lasts


def test_what_others_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with uncollected(lasts=True):
            made: list[object] = [[]]
        assert before and gc.get_freeze_count() == before
        assert not any(each is made for each in gc.get_objects(generation=2))
    finally:
        gc.unfreeze()


def test_names_are_loaded_without_collection() -> None:
    code = (
        "import gc, sys, redistrib as rd\n"
        "class Finder:\n"
        "    seen = set()\n"
        "    def find_spec(self, *args): self.seen.add(gc.isenabled())\n"
        "sys.meta_path.insert(0, Finder())\n"
        "rd.search\n"
        "print(*Finder.seen, gc.isenabled())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True"]


def test_functions_are_traced_without_collection() -> None:
    seen = []

    def traced(x: object) -> object:
        seen.append(gc.isenabled())
        return x

    rd.search(traced, (jnp.ones(4),), {"d": 2})
    assert seen and not any(seen) and gc.isenabled()
