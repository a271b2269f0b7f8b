"""The backend of JAX: types from shardings, plans as `jax.lax` collectives, figures read from compiled HLO.

Names are imported when first used: most calls of `reshard` need nothing that runs programs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redistrib.extras import need

if TYPE_CHECKING:
    from redistrib.backends.jax.doors import can, measure, run
    from redistrib.backends.jax.execute import Redistribution, to_jax
    from redistrib.backends.jax.placed_function import PlacedFunction, program_to_jax
    from redistrib.backends.jax.program_function import ProgramFunction

__all__ = ["PlacedFunction", "ProgramFunction", "Redistribution", "can", "measure", "program_to_jax", "run", "to_jax"]

_MODULES = {
    "PlacedFunction": "placed_function",
    "ProgramFunction": "program_function",
    "Redistribution": "execute",
    "can": "doors",
    "measure": "doors",
    "program_to_jax": "placed_function",
    "run": "doors",
    "to_jax": "execute",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need(module := f"{__name__}.{_MODULES[name]}", name)  # the wheel for programs installs some
    return getattr(import_module(module), name)
