"""24 virtual CPU devices for every test here, so that meshes of 8, 12 and 24 devices all exist."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=24"

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def _enough_devices() -> None:
    if len(jax.devices()) < 24:
        pytest.fail("JAX was started with fewer than 24 devices before tests/distribution was collected")
