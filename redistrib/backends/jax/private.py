"""All private functions of JAX that the library uses, each with a public way for versions that lack it.

The docstring of each function says why the public way does not suffice.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Sharding

from redistrib.cache import cached
from redistrib.errors import JaxVersionError

_convert_element_type: Any
try:
    from jax._src.lax.lax import _convert_element_type
except ImportError:
    _convert_element_type = None

_Primitive: Any
try:
    from jax._src.core import Primitive as _Primitive
except ImportError:
    _Primitive = None

_trace_state_clean: Any
try:
    from jax._src.core import trace_state_clean as _trace_state_clean
except ImportError:
    _trace_state_clean = None

_distributed: Any
try:
    from jax._src import distributed as _distributed
except ImportError:
    _distributed = None

_concrete_mesh: Any
try:
    from jax._src.mesh import get_concrete_mesh as _concrete_mesh
except ImportError:
    _concrete_mesh = None

_xla_client: Any
try:
    from jax._src.lib import xla_client as _xla_client  # type: ignore[attr-defined]  # exported by name alone
except ImportError:
    _xla_client = None

_batched_device_put: Any
try:
    from jax._src.interpreters.pxla import batched_device_put as _batched_device_put
except ImportError:
    _batched_device_put = None

_dce_jaxpr: Any
try:
    from jax._src.interpreters.partial_eval import dce_jaxpr as _dce_jaxpr
except ImportError:
    _dce_jaxpr = None

Buffer = tuple[int, int]  # device id, address


def new_primitive(name: str) -> Any:
    """A primitive without rules.

    `jax.extend.core` has the class, and imports of it take a tenth of a second.
    """
    if _Primitive is not None:
        return _Primitive(name)
    from jax.extend.core import Primitive

    return Primitive(name)


def array_of_buffers(array: jax.Array, aval: Any, sharding: Sharding, order: Sequence[int]) -> jax.Array | None:
    """The buffers of an array, reordered, as an array of another abstract value and sharding; None if JAX cannot.

    `jax.make_array_from_single_device_arrays` checks every shard in every call, which takes longer than moving a small
    array, and cannot make a weakly typed array.
    """
    source: Any = array
    make: Any = type(array)
    try:
        held = source._arrays
        result: jax.Array = make(aval, sharding, [held[k] for k in order], committed=True, _skip_checks=True)
    except (AttributeError, TypeError):
        return None
    return result


def array_of_tiles(
    tiles: Sequence[Any], aval: Any, sharding: Sharding, devices: Sequence[jax.Device]
) -> jax.Array | None:
    """An array of tiles in the host's memory, one for each device in the sharding's order; None if JAX cannot.

    `jax.make_array_from_callback` asks for every tile by its index and checks it, in every call, which takes longer
    than the copy of a small tile.
    """
    try:
        array: jax.Array = _batched_device_put(aval, sharding, tiles, devices)
    except TypeError:  # no such function, or other parameters
        return None
    return array


def weakly_typed(array: jax.Array) -> jax.Array:
    """A traced array with a weak type; integers stay strong if JAX lacks the function.

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
    """The address of every buffer of an array in this process; waits until the array is computed.

    No public function says which arrays share memory: DLPack supports neither all dtypes nor all devices. Where JAX has
    no addresses either, all arrays on a device count as sharing a buffer.

    Raises:
        RuntimeError: JAX's own, if a buffer has been deleted.
    """
    return [(shard.device.id, _address(shard.data)) for shard in array.addressable_shards]


def _address(shard: Any) -> int:
    try:
        return int(shard.unsafe_buffer_pointer())
    except (AttributeError, NotImplementedError):
        jax.block_until_ready(shard)
        return 0


def is_computed(array: jax.Array) -> bool:
    """Whether an array is computed, and can be waited for in no time.

    Random keys have no `is_ready`, and hide the integers that have it. Without these they count as computed.
    """
    is_ready = getattr(getattr(array, "_base_array", array), "is_ready", None)
    return is_ready is None or bool(is_ready())


def value_inside(array: Any) -> Any:
    """The array that is differentiated outside `jit`, or the tracer itself if it hides the array.

    `jax.typeof` of the tracer has the sharding on meshes of Explicit axes only.
    """
    while isinstance(array, jax.core.Tracer) and isinstance(inside := getattr(array, "primal", None), jax.Array):
        array = inside
    return array


def operation_of(array: Any) -> tuple[str, Mapping[str, Any], int] | None:
    """The primitive that made a traced array, its parameters, and the number of the array among its results.

    A jaxpr, which is public, has it once the whole function is traced. None for an argument, or if JAX does not say.
    """
    made = getattr(array, "parent", None)
    try:
        number = [id(variable) for variable in made.outvars].index(id(array.val))  # type: ignore[union-attr]
        return made.primitive.name, made.params, number  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        return None


def is_outside() -> bool:
    """Whether JAX traces and transforms nothing now; False if it does not say.

    Only the result of an operation tells in public, which takes as long as moving a small array.
    """
    return _trace_state_clean is not None and bool(_trace_state_clean())


def compiled_with(lowered: Any, options: Mapping[str, Any]) -> Any:
    """A lowered program compiled with options, or without options for a compiler that does not know them all.

    JAX lists no compiler's options, and raises the same error for an unknown option as for a wrong value; only its text
    differs. After any other error with options the program is compiled without options.
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
    """The mesh of `jax.set_mesh`; none under `jit`.

    `jax.sharding.get_mesh` came with JAX 0.9.

    Raises:
        JaxVersionError: if JAX has neither that function nor its parts.
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


def mesh_while_lowering() -> jax.sharding.Mesh | None:
    """The mesh of `jax.set_mesh`, also under `jit`, where it is not public; None if JAX does not say."""
    mesh = None if _concrete_mesh is None else _concrete_mesh()
    return None if mesh is None or mesh.empty else mesh


@cached(8)
def virtual_devices(count: int) -> tuple[jax.Device, ...] | None:
    """At least `count` virtual CPU devices besides those of `jax.devices()`; None if JAX cannot create them.

    The public ways, `JAX_NUM_CPU_DEVICES` and `jax.config`, count only before the first use of JAX.
    """
    try:
        return tuple(_xla_client.make_cpu_client(asynchronous=True, num_devices=count).devices())
    except (AttributeError, TypeError):  # no such function, or no such argument
        return None


# Primitives that call a function, and the parameter that has it.
INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_lin": "jaxpr",
}

# Files that bind an equation where the user calls them, and those that trace the user's function; `source_line` passes
# over the first, and finds no user beyond the second. They enter themselves.
BINDING_FILES, TRACING_FILES = set[str](), set[str]()


def bind(primitive: Any, operands: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    """The results of a primitive with the parameters of an equation; functions among these become arguments."""
    bound = primitive.get_bind_params(params)
    functions, named = bound if isinstance(bound, tuple) else ((), bound)  # which of the two depends on the JAX
    results = primitive.bind(*functions, *operands, **named)
    return list(results) if primitive.multiple_results else [results]


def source_line(eqn: Any) -> str:
    """The user's line of an equation of a jaxpr, `file:line`; empty if unknown.

    No public function reads the traceback of an equation. Where the function itself is one call, JAX 0.8 has the lines
    that trace it, and the next versions none.
    """
    try:
        return _line_of(eqn.source_info.traceback)
    except (ImportError, AttributeError, TypeError):
        return ""


@cached(1024)  # the same calls of repeated layers have equal tracebacks
def _line_of(traceback: Any) -> str:
    from jax._src import source_info_util

    for frame in source_info_util.user_frames(traceback):
        if frame.file_name in TRACING_FILES:
            break
        if frame.file_name not in BINDING_FILES:
            return f"{frame.file_name}:{frame.start_line}"
    return ""


def is_as_traced(eqn: Any) -> bool:
    """Whether the jaxpr of a call has the names of a function's arguments and results: JAX made nothing else of it.

    No public function says what a jaxpr was made from: a tangent or a transpose has the name of its function. Until
    JAX 0.9 a mapped function has the names of its arguments too, and the equation alone says that it is mapped.
    """
    names = getattr(eqn.params["jaxpr"].jaxpr, "debug_info", None)
    is_mapped = "vmap(" in str(getattr(eqn.source_info, "name_stack", ""))
    return not is_mapped and all(getattr(names, part, None) is not None for part in ("arg_names", "result_paths"))


def notes_of_processes() -> Any:
    """The client by which processes of `jax.distributed` exchange texts and meet at barriers; None without one.

    `jax.experimental.multihost_utils` compares values by a collective of all processes, which hangs if one does not
    call it.
    """
    return None if _distributed is None else getattr(_distributed.global_state, "client", None)


def without_dead_code(
    jaxpr: Any, used: Sequence[bool], needed: Sequence[bool] | bool = False
) -> tuple[Any, list[bool]] | None:
    """A jaxpr without equations for results that are not used, and which of its inputs it has; None if JAX cannot.

    XLA leaves out what nothing reads, so that moves for it would be planned and never compiled.

    Args:
        jaxpr: with one result for each of `used`.
        used: whether a result stays.
        needed: whether an input stays though nothing reads it.
    """
    if _dce_jaxpr is None:
        return None
    live, inputs = _dce_jaxpr(jaxpr, list(used), instantiate=needed if isinstance(needed, bool) else list(needed))
    return live, list(inputs)


def implementation(primitive: Any) -> Any:
    """A function of other JAX operations that computes a primitive; None for a primitive of XLA.

    It is the function that the primitive's lowering rule traces, found in a closure of JAX, or else `impl` of the
    primitive.
    """
    try:
        from jax._src.interpreters import mlir

        entry: Any = mlir._lowerings.get(primitive)
        rule: Any = getattr(entry, "rule", entry)
        if rule.__qualname__ == mlir.lower_fun(lambda: None).__qualname__:
            return inspect.getclosurevars(rule).nonlocals["fun"]
    except (ImportError, AttributeError, KeyError, TypeError):
        pass
    impl = primitive.impl
    return None if isinstance(impl, functools.partial) else impl  # `impl` of primitives that are run compiled
