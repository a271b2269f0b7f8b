"""Files that run in other processes, and a fixture of tests of partial sums."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

collect_ignore_glob = ["*worker*.py"]


@pytest.fixture
def on_explicit_axes() -> Iterator[None]:
    """Run the test on the mesh of Explicit axes."""
    import jax

    from tests.reshard.meshes import EXPLICIT

    with jax.set_mesh(EXPLICIT):
        yield
