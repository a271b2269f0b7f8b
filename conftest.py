"""Every test process starts JAX with 24 virtual CPU devices, before a doctest or a command can start it with fewer."""

import os

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=24"


# PyTorch has an environment of its own (`make test-torch`), and tests of its own there.
collect_ignore_glob = ["redistrib/backends/torch/*", "redistrib/dtensor/*", "redistrib/torch.py"]


def pytest_sessionstart() -> None:
    import jax

    if len(jax.devices()) < 24:
        pytest.exit("the tests need 24 virtual CPU devices; XLA_FLAGS asks for fewer", 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seed = config.getoption("randomly_seed", None)
    if seed is not None:  # said here too, since the header of a quiet run does not
        terminalreporter.write_line(f"order of tests: --randomly-seed {seed}")
