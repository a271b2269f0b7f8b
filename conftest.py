"""Every test process starts JAX with 24 virtual CPU devices, before a doctest or a command can start it with fewer."""

import mmap
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")  # ranks of MPICH that wait leave their core to others
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=24"

# Tests compile much and time nothing. With these flags XLA compiles for CPUs in a third of the time. `make test-jax`
# and the commands of the pages run without them, as users do.
_QUICK = (
    "xla_cpu_use_fusion_emitters=false",
    "xla_backend_optimization_level=0",
    "xla_llvm_disable_expensive_passes=true",
    "xla_cpu_parallel_codegen_split_count=1",  # parts of a module, each compiled on its own
)


def _known(flags: tuple[str, ...]) -> list[str]:
    """The flags of XLA that this jaxlib knows: it ends the process for others."""
    spec = find_spec("jaxlib")
    library = None if spec is None or spec.origin is None else Path(spec.origin).with_name("libjax_common.so")
    if library is None or not library.exists():
        return []
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return [flag for flag in flags if text.find(flag.partition("=")[0].encode()) >= 0]


if "REDISTRIB_TESTS_OPTIMIZED" not in os.environ and "xla_backend_optimization_level" not in os.environ["XLA_FLAGS"]:
    os.environ["XLA_FLAGS"] = " ".join([os.environ["XLA_FLAGS"], *(f"--{flag}" for flag in _known(_QUICK))])


# PyTorch has an environment of its own (`make test-torch`), and tests of its own there, which run its examples too.
collect_ignore_glob = ["redistrib/backends/torch/*", "redistrib/dtensor/*", "redistrib/torch.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not (isinstance(item, pytest.DoctestItem) and _needs_torch(item))]


def _needs_torch(item: pytest.DoctestItem) -> bool:
    return any(example.source == "import torch\n" for example in item.dtest.examples)


def pytest_sessionstart() -> None:
    import jax

    if len(jax.devices()) < 24:
        pytest.exit("the tests need 24 virtual CPU devices; XLA_FLAGS asks for fewer", 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seed = config.getoption("randomly_seed", None)
    if seed is not None:  # said here too, since the header of a quiet run does not
        terminalreporter.write_line(f"order of tests: --randomly-seed {seed}")
