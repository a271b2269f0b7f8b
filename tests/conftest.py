"""Settings of all tests, and what tests with JAX share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

# Machines that run tests are shared: a slow example is no failure, and a failing one should be easy to repeat.
settings.register_profile("redistrib", deadline=None, print_blob=True)
settings.load_profile("redistrib")


@pytest.fixture
def quick_compiles() -> Iterator[None]:
    """Less optimization in compilers: for tests that compile much and time nothing."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def fresh() -> Iterator[None]:
    """Empty caches, for tests that count what is in them or change what goes into them.

    Other tests find what those before them have left, as users do.
    """
    import redistrib as rd

    rd.clear_caches()
    yield
    rd.clear_caches()
