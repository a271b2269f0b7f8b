"""All that is used of JAX beyond its public functions, and what is done where JAX no longer has it.

Each function says which public way was tried, and why it does not do; without its private part it takes that way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Sharding

from redistrib.errors import JaxVersionError

_convert_element_type: Any
try:
    from jax._src.lax.lax import _convert_element_type
except ImportError:
    _convert_element_type = None

_distributed: Any
try:
    from jax._src import distributed as _distributed
except ImportError:
    _distributed = None

_axis_env: Any
try:
    from jax._src.core import get_axis_env as _axis_env
except ImportError:
    _axis_env = None

_concrete_mesh: Any
try:
    from jax._src.mesh import get_concrete_mesh as _concrete_mesh
except ImportError:
    _concrete_mesh = None

Buffer = tuple[int, int]  # device id, address


def array_of_buffers(array: jax.Array, aval: Any, sharding: Sharding, order: Sequence[int]) -> jax.Array | None:
    """The buffers of an array, in an order, as an array of another abstract value and sharding; None if JAX does not.

    `jax.make_array_from_single_device_arrays` does the same and checks every shard every time, which takes longer than
    moving small arrays does; nor can it make an array weakly typed.
    """
    source: Any = array
    make: Any = type(array)
    try:
        held = source._arrays
        made: jax.Array = make(aval, sharding, [held[k] for k in order], committed=True, _skip_checks=True)
    except (AttributeError, TypeError):
        return None
    return made


def weakly_typed(array: jax.Array) -> jax.Array:
    """A traced array as one of a weak type; integers keep their strong one where JAX has no way.

    Public conversions make strong types. The transpose of one makes a weak type, but integers have no transpose.
    """
    if _convert_element_type is not None:
        weak: jax.Array = _convert_element_type(array, weak_type=True)
        return weak
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    like = jax.ShapeDtypeStruct(array.shape, array.dtype, weak_type=True, sharding=jax.typeof(array).sharding)
    (weak,) = jax.linear_transpose(lambda value: lax.convert_element_type(value, array.dtype), like)(array)
    return weak


def addresses(array: jax.Array) -> list[Buffer]:
    """Every buffer of an array that this process holds; waits for the array to be computed.

    No public function says which arrays have memory in common: DLPack knows neither all dtypes nor all devices. Where
    JAX tells no addresses either, all arrays on a device are taken to have a buffer in common.

    Raises:
        RuntimeError: JAX's own, if one has been deleted.
    """
    return [(shard.device.id, _address(shard.data)) for shard in array.addressable_shards]


def _address(shard: Any) -> int:
    try:
        return int(shard.unsafe_buffer_pointer())
    except (AttributeError, NotImplementedError):
        jax.block_until_ready(shard)
        return 0


def value_inside(array: Any) -> Any:
    """The array that is differentiated outside `jit`, or the tracer itself where it does not tell.

    `jax.typeof` of the tracer tells the sharding on meshes of Explicit axes alone.
    """
    while isinstance(array, jax.core.Tracer) and isinstance(inside := getattr(array, "primal", None), jax.Array):
        array = inside
    return array


def batch_axes(*, explicit: bool = False) -> frozenset[str]:
    """The mesh axes along which `jax.vmap` cuts batches of what is traced; none where JAX hides them.

    No public function tells. JAX's own error comes only when the batch is added to the specs.

    Args:
        explicit: only those that JAX has read off the batch, which is on Explicit axes: inside, it counts them to no
            mesh, and collectives do not know them.
    """
    if _axis_env is None:
        return frozenset()
    attributes = ("explicit_mesh_axis_names",) if explicit else ("spmd_axis_names", "explicit_mesh_axis_names")
    return frozenset().union(*(getattr(_axis_env(), name, None) or () for name in attributes))


def compiled_with(lowered: Any, options: Mapping[str, Any]) -> Any:
    """A lowered program compiled with options, or without where the compiler is one that does not know them all.

    JAX lists no compiler's options, and raises the same error for an option that is unknown as for a value that is
    wrong: only the text tells. Whatever else fails with options is compiled without, and fails again if it must.
    """
    try:
        return lowered.compile(compiler_options=dict(options) or None)
    except jax.errors.JaxRuntimeError as error:
        if not options or "not a valid" in str(error):
            raise
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            return lowered.compile()
        raise


def mesh_of_devices() -> jax.sharding.Mesh | None:
    """The mesh that `jax.set_mesh` has set, where JAX tells: not under `jit`.

    `jax.sharding.get_mesh` came with JAX 0.9.

    Raises:
        JaxVersionError: if JAX has neither that nor what it is made of.
    """
    try:
        get_mesh = getattr(jax.sharding, "get_mesh", None) or _concrete_mesh
        if get_mesh is None:
            raise JaxVersionError("the mesh that jax.set_mesh has set", jax.__version__)
        mesh: jax.sharding.Mesh = get_mesh()
    except JaxVersionError:
        raise
    except ValueError:
        return None
    return None if mesh.empty else mesh


def source_line(eqn: Any) -> str:
    """The user's line that an equation of a jaxpr comes from, `file:line`; empty where JAX does not tell.

    No public function reads the traceback of an equation.
    """
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(eqn.source_info.traceback)
        return "" if frame is None else f"{frame.file_name}:{frame.start_line}"
    except (ImportError, AttributeError, TypeError):
        return ""


def notes_of_processes() -> Any:
    """By what the processes of `jax.distributed` leave each other notes, and wait for them; None where there is none.

    `jax.experimental.multihost_utils` compares values by a collective of all processes, which hangs where one does not
    call it.
    """
    return None if _distributed is None else getattr(_distributed.global_state, "client", None)
