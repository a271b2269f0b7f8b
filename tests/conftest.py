"""Settings of all tests, and what tests with JAX share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Machines that run tests are shared: a slow example is no failure, and a failing one should be easy to repeat.
settings.register_profile("redistrib", deadline=None, print_blob=True)
settings.load_profile("redistrib")

# On virtual devices `reshard` copies small arrays; tests of collectives want collectives.
os.environ.setdefault("REDISTRIB_VIA", "collectives")

# Node ids of slow tests without a mark of their own: mostly cases of a test whose quicker cases stay in `make test`, or
# in `make test-long`.
LISTS = {mark: Path(__file__).with_name(f"{mark}.txt").read_text().splitlines() for mark in ("long", "exhaustive")}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_part = any("::" in argument for argument in config.args)  # of a file
    collected = {item.nodeid.partition("::")[0] for item in items}
    for mark, nodes in LISTS.items():
        listed = set(nodes)
        for item in items:
            if item.nodeid in listed:
                item.add_marker(mark)
                listed.remove(item.nodeid)
        stale = sorted(node for node in listed if node.partition("::")[0] in collected)
        if stale and not is_part:
            raise pytest.UsageError(f"tests/{mark}.txt lists tests that are not there: {', '.join(stale)}")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Empty caches, for tests that count what is in them or change what goes into them.

    Other tests find what those before them have left, as users do.
    """
    import redistrib as rd

    rd.clear_caches()
    yield
    rd.clear_caches()
