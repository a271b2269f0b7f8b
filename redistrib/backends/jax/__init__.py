"""The backend of JAX: types from shardings, plans as `jax.lax` collectives, figures read from compiled HLO."""

from redistrib.backends.jax.doors import can, measure, run
from redistrib.backends.jax.execute import Redistribution, to_jax
from redistrib.backends.jax.program_function import ProgramFunction, program_to_jax

__all__ = ["ProgramFunction", "Redistribution", "can", "measure", "program_to_jax", "run", "to_jax"]
