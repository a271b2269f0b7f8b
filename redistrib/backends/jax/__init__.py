"""The backend of JAX: types from shardings, plans as `jax.lax` collectives, figures read from compiled HLO.

Names are imported when first used: most calls of `reshard` need few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redistrib.backends.jax.doors import can, measure, run
    from redistrib.backends.jax.execute import Redistribution, to_jax

__all__ = ["Redistribution", "can", "measure", "run", "to_jax"]

_MODULES = {
    "Redistribution": "execute",
    "can": "doors",
    "measure": "doors",
    "run": "doors",
    "to_jax": "execute",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
