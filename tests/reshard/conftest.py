"""Files that run in other processes, a fixture of tests of partial sums, and one of tests of launches."""

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


@pytest.fixture
def by_collectives() -> Iterator[None]:
    """Run the test, which looks at launches, with collectives, whatever the environment says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDISTRIB_VIA", "collectives")
        yield
