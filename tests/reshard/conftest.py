"""24 virtual CPU devices for every test here, so that meshes of 2 to 24 devices all exist."""

import os
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=24"

import jax
import pytest

import redistrib as rd

collect_ignore_glob = ["*worker*.py"]  # programs, run as processes of their own


@pytest.fixture(scope="session", autouse=True)
def _enough_devices() -> None:
    if len(jax.devices()) < 24:
        pytest.fail("JAX was started with fewer than 24 devices before tests/reshard was collected")


@pytest.fixture
def quick_compiles() -> Iterator[None]:
    """Less optimization in compilers: for tests that compile much and time nothing."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def fresh() -> Iterator[None]:
    """Empty caches, for tests that count what is in them or change what goes into them.

    Other tests find what those before them have left, as users do.
    """
    rd.clear_caches()
    yield
    rd.clear_caches()
