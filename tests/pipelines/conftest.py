"""24 virtual CPU devices, as other tests with JAX ask for, so that pipelines of 8 have theirs."""

import os
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=24"

import jax
import pytest

collect_ignore_glob = ["*worker*.py"]  # programs, run as processes of their own


@pytest.fixture
def quick_compiles() -> Iterator[None]:
    """Less optimization in compilers: for tests that compile much and time nothing."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
