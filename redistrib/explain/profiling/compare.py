"""A comparison of a plan with XLA's own reshard of the same array: values, collectives, bytes, scratch."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from redistrib.backends.jax.execute import to_jax
from redistrib.backends.jax.platforms import quirks_of
from redistrib.backends.jax.sharding import named_sharding, stacked_type
from redistrib.errors import DtypeError, RunSizeError
from redistrib.explain.profiling.inspect import inspect
from redistrib.plans import pattern, reference
from redistrib.plans.plan import Plan
from redistrib.theory.boxes import Box


@dataclass(frozen=True)
class Side:
    """The figures of one compiled program.

    Attributes:
        collectives: number of runs of each kind.
        received: bytes received from other devices, summed over the devices.
        scratch: bytes of temporaries per device.
        wrong: elements that differ from the global array, over all devices and moved arrays.
    """

    collectives: Counter[str]
    received: int
    scratch: int
    wrong: int

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        return {
            "collectives": dict(self.collectives),
            "received_bytes": self.received,
            "scratch_bytes": self.scratch,
            "wrong_elements": self.wrong,
        }


@dataclass(frozen=True)
class Comparison:
    """Our program and XLA's on the same buffers; `xla` is None if XLA was not run.

    Attributes:
        ours, xla: the two programs.
        compared: elements compared on each side, over all devices and moved arrays.
        bound: the lower bound on received bytes, summed over the devices.
        tile: bytes of the larger of source and target tile.
    """

    ours: Side
    xla: Side | None
    compared: int
    bound: int
    tile: int


class Contest:
    """A plan and XLA's reshard between the same shardings, each compiled once, for any number of arrays."""

    def __init__(self, plan: Plan, mesh: jax.sharding.Mesh, with_xla: bool = True) -> None:
        """XLA is left out where partial sums change: it creates none, or ends the process, and adds sums only. Maxima
        and minima run on stacks of all partial sums.
        """
        self.plan = plan
        self.moved = 0
        kinds = {plan.source.reduction, plan.target.reduction}
        self._stacked = bool(kinds & {"max", "min"})
        ends = [stacked_type(side, plan.source_mesh) if self._stacked else side for side in (plan.source, plan.target)]
        self._source, target = (named_sharding(side, plan.source_mesh, mesh) for side in ends)
        self._shape = ends[0].global_shape
        abstract = jax.ShapeDtypeStruct(self._shape, jnp.dtype(plan.dtype), sharding=self._source)
        runs_xla = with_xla and not plan.target.partial and not self._stacked
        functions = [to_jax(plan, mesh, stacked=self._stacked)] + ([_identity] if runs_xla else [])
        self._programs = [jax.jit(f, out_shardings=target).lower(abstract).compile() for f in functions]
        self._wrong = [0] * len(functions)

    def move(self, values: np.ndarray[Any, Any]) -> None:
        """Move one array by both programs, and compare every element of every tile."""
        self._run(jax.device_put(values, self._source), values)

    def move_summands(self) -> None:
        """Move partial sums whose elements identify their places, and compare every element of the sum."""
        plan, dtype = self.plan, jnp.dtype(self.plan.dtype)
        number = dict(zip(self._source.mesh.devices.flat, plan.source_mesh.devices, strict=True))
        slab = self._stacked and plan.source.partial
        tiles = [pattern.source_tile(plan, d, dtype) for d in number.values()]
        put = [jax.device_put(t[None] if slab else t, device) for t, device in zip(tiles, number, strict=True)]
        array = jax.make_array_from_single_device_arrays(self._shape, self._source, put)
        self._run(array, pattern.reduced(plan, Box((0,) * len(plan.shape), plan.shape), dtype))

    def _run(self, array: jax.Array, values: np.ndarray[Any, Any]) -> None:
        for k, program in enumerate(self._programs):
            result = program(array)
            if self.plan.target.partial:
                shards = {s.device: np.asarray(s.data).reshape(self.plan.after.tile) for s in result.addressable_shards}
                order = np.argsort(self.plan.target_mesh.devices)
                tiles = [shards[device] for device in result.sharding.mesh.devices.reshape(-1)[order]]
                self._wrong[k] += differing(reference.assemble(tiles, self.plan.after), values)
            else:
                self._wrong[k] += wrong_elements(result, values)
        self.moved += 1

    def result(self) -> Comparison:
        """The figures of both programs so far."""
        plan = self.plan
        sides = []
        for program, wrong in zip(self._programs, self._wrong, strict=True):
            inspected = inspect(program)
            sides.append(Side(inspected.kinds, inspected.received_bytes, inspected.scratch or 0, wrong))
        before, after = plan.before.tile_size, plan.after.tile_size
        return Comparison(
            sides[0],
            sides[1] if len(sides) > 1 else None,
            compared=self.moved * (math.prod(plan.shape) if plan.target.partial else plan.devices * after),
            bound=plan.least_received * plan.itemsize,
            tile=max(before, after) * plan.itemsize,
        )


def _identity(array: jax.Array) -> jax.Array:
    return array


MOST_VIRTUAL = 256  # more wait for one another until XLA ends the process


def virtual_cpu_devices(count: int) -> list[Any]:
    """`count` virtual CPU devices, requested before JAX starts its backend.

    Raises:
        RunSizeError: if there are too many for one process, or JAX has started with fewer.
    """
    if count > MOST_VIRTUAL:
        raise RunSizeError(
            "run size",
            subject="the number of virtual devices",
            given=count,
            least=1,
            most=MOST_VIRTUAL,
            remedy="run on a smaller mesh, or through MPI",
        )
    with contextlib.suppress(RuntimeError):  # the backend has started; its devices are counted below
        jax.config.update("jax_num_cpu_devices", count)
        jax.config.update("jax_platforms", "cpu")
    devices = jax.devices("cpu")
    if len(devices) < count:
        raise RunSizeError("device shortage", wanted=count, found=len(devices))
    return devices[:count]


def calibration_devices(count: int | None) -> list[Any]:
    """The accelerators of this process, or virtual CPU devices, eight by default.

    Raises:
        RunSizeError: if the number is too small to measure, or there are fewer devices.
    """
    if count is not None and count < 2:
        raise _too_few_or_many(count, "a link has two ends")
    with contextlib.suppress(RuntimeError):  # the backend has started; its devices are counted below
        jax.config.update("jax_num_cpu_devices", min(count or 8, MOST_VIRTUAL))
    devices = jax.devices()
    least = 2 if count is None else count
    if len(devices) < least:
        if least > MOST_VIRTUAL:
            raise _too_few_or_many(least, "virtual ones are in one process")
        if not quirks_of(devices[0].platform).one_at_a_time:
            kind = devices[0].device_kind
            raise RunSizeError("accelerator shortage", wanted=least, found=len(devices), kind=kind)
        raise RunSizeError("device shortage", wanted=least, found=len(devices))
    return devices[: count or len(devices)]


def _too_few_or_many(count: int, remedy: str) -> RunSizeError:
    return RunSizeError(
        "run size", subject="the number of devices", given=count, least=2, most=MOST_VIRTUAL, remedy=remedy
    )


@contextlib.contextmanager
def with_all_bits(dtype: str) -> Iterator[None]:
    """A context in which elements keep 64 bits; JAX converts them to 32 bits by default."""
    if dtype not in _WIDE:
        yield
        return
    with jax.enable_x64(True):
        yield


def mesh_for(plan: Plan, devices: list[Any]) -> jax.sharding.Mesh:
    """A JAX mesh for the plan's source mesh, of Auto axes; of Explicit axes for partial sums."""
    mesh, kind = plan.source_mesh, jax.sharding.AxisType.Auto
    if plan.source.partial or plan.target.partial:
        kind = jax.sharding.AxisType.Explicit
    return jax.sharding.Mesh(np.array(devices).reshape(mesh.shape), mesh.names, axis_types=(kind,) * len(mesh.names))


def counting_array(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """An array of elements that differ as far as the dtype allows, with all 64 bits in use where it has them.

    Raises:
        DtypeError: if NumPy on the host and JAX do not hold the same bytes for it.
    """
    if not _is_representable(dtype):
        raise DtypeError(dtype, "JAX and NumPy")
    numbers = np.arange(math.prod(shape), dtype=np.int64)
    if dtype == "bool":
        return (numbers * 2654435761 >> 7 & 1).astype(bool).reshape(shape)
    kind = jnp.dtype(dtype)
    if dtype in _WIDE:
        words = numbers.astype(np.uint64) * _ODD
        if jnp.issubdtype(kind, jnp.integer):
            return words.view(kind).reshape(shape)
        values = (words >> np.uint64(12)).astype(np.float64)  # 52 bits, which a float64 holds and a float32 does not
        return (values if dtype == "float64" else values + 1j * values[::-1]).reshape(shape)
    if jnp.issubdtype(kind, jnp.integer):
        return (numbers % (int(jnp.iinfo(kind).max) + 1)).astype(kind).reshape(shape)
    span = 2 ** min(20, jnp.finfo(kind).nmant) if jnp.issubdtype(kind, jnp.inexact) else 100
    return (numbers % span).astype(kind).reshape(shape)


_WIDE = ("int64", "uint64", "float64", "complex128")
_ODD = np.uint64(0x9E3779B97F4A7C15)  # its multiples by different 64-bit numbers differ


def _is_representable(dtype: str) -> bool:
    """Whether an element of a NumPy array is one of JAX's: no PRNG key, and none of less than a byte."""
    if not hasattr(jnp, dtype):
        return False
    kind = jnp.dtype(dtype)
    if jnp.issubdtype(kind, jnp.inexact):
        return int(jnp.finfo(kind).bits) >= 8
    return kind == np.bool_ or int(jnp.iinfo(kind).bits) >= 8


def compare(plan: Plan, mesh: jax.sharding.Mesh, with_xla: bool = True) -> Comparison:
    """Run a plan and XLA's reshard on an array whose elements identify their places."""
    values = counting_array(plan.shape, plan.dtype)
    contest = Contest(plan, mesh, with_xla)
    if plan.source.partial or plan.target.partial:
        contest.move_summands()
    else:
        contest.move(values)
    return contest.result()


def wrong_elements(array: jax.Array, values: np.ndarray[Any, Any]) -> int:
    """Elements of all shards, replicas included, whose bits differ from those of the global array."""
    return sum(differing(np.asarray(shard.data), values[shard.index]) for shard in array.addressable_shards)


def differing(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> int:
    """Elements of two arrays of one shape and dtype whose bits differ."""
    width = a.dtype.itemsize
    if not width:
        return 0
    left, right = (np.ascontiguousarray(side).reshape(-1).view(np.uint8).reshape(-1, width) for side in (a, b))
    return int((left != right).any(axis=1).sum())
