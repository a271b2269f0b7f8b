"""What JAX keeps for a thread while the library traces and calls programs: the current mesh, and modes of debugging."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from operator import attrgetter
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.sharding import AbstractMesh, use_abstract_mesh

from redistrib.backends.jax import private
from redistrib.errors import TracedError

Function = TypeVar("Function", bound=Callable[..., Any])

# The levels of the transfer guards, from `jax.config`.
guard_levels = attrgetter(
    *(f"jax_transfer_guard_{way}" for way in ("device_to_device", "host_to_device", "device_to_host"))
)
_STRICT = frozenset(("log", "disallow"))
_NOTHING = nullcontext()


def abstract(mesh: Any) -> AbstractMesh:
    """The mesh without its devices."""
    bare: AbstractMesh = mesh.abstract_mesh if isinstance(mesh, jax.sharding.Mesh) else mesh
    return bare


@contextmanager
def entered(mesh: Any) -> Iterator[None]:
    """A context in which this mesh is current, concrete or abstract, whatever mesh the caller has set.

    `jax.shard_map` and `jax.sharding.reshard` refuse meshes that differ from the current one.

    Raises:
        TracedError: if the current mesh has another number of devices, for which JAX compiles the function.
    """
    current = jax.sharding.get_abstract_mesh()
    if not current.empty and current.size != mesh.size:
        raise TracedError("mesh of another size", current=current.size, size=mesh.size)
    with use_abstract_mesh(abstract(mesh)):
        yield


def own_context(*, computes: bool = False) -> AbstractContextManager[None]:
    """A context for programs of the library that are called outside `jit`: as if no mesh and no mode had been set.

    Meshes of the library need not be the one of `jax.set_mesh`. A program of tiles has no meaning where
    `jax.disable_jit` runs its operations one by one. It moves NaNs as any other bits, and brings its tables to devices,
    which is no transfer that `jax.transfer_guard("disallow")` is to find.

    Args:
        computes: whether the program computes new values too, in which the modes that find NaNs do look for them.
    """
    config: Any = jax.config
    if (
        jax.sharding.get_abstract_mesh().empty
        and not (config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs)
        and _STRICT.isdisjoint(guard_levels(config))
    ):
        return _NOTHING  # as nearly always; small moves would notice the others
    return _as_if_unset(computes)


def untraced_context() -> AbstractContextManager[None]:
    """`own_context` for arrays that are known, also inside a traced function: nothing in it is traced."""
    return own_context() if private.is_outside() else _untraced_context()


@contextmanager
def _untraced_context() -> Iterator[None]:
    with jax.core.eval_context(), own_context():
        yield


def in_own_context(*, computes: bool = False) -> Callable[[Function], Function]:
    """A decorator of functions that run in `own_context`."""

    def decorator(function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with own_context(computes=computes):
                return function(*args, **kwargs)

        return cast(Function, run)

    return decorator


@contextmanager
def _as_if_unset(computes: bool) -> Iterator[None]:
    """The context of `own_context` where a mesh or a mode is set."""
    config: Any = jax.config
    with ExitStack() as stack:
        if not jax.sharding.get_abstract_mesh().empty:
            with suppress(ValueError):  # while something is traced
                stack.enter_context(jax.set_mesh(jax.sharding.Mesh(np.empty((), object), ())))
        if config.jax_disable_jit:
            stack.enter_context(jax.disable_jit(False))
        if not _STRICT.isdisjoint(guard_levels(config)):
            stack.enter_context(jax.transfer_guard("allow"))
        if config.jax_debug_nans and not computes:
            stack.enter_context(jax.debug_nans(False))
        if config.jax_debug_infs and not computes:
            stack.enter_context(jax.debug_infs(False))
        yield
