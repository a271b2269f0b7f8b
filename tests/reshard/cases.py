"""Trees of arrays on one mesh, and where each leaf shall go on another: what property tests of `reshard` draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

DTYPES = [
    "float32",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int4",
    "uint4",
    "bool",
    "complex64",
    "int32",
    "float16",
    "int8",
    "uint16",
    "uint32",
    "key",
    "weak",
]
MOST = 4096  # elements of an array


@dataclass(frozen=True)
class LeafCase:
    """One array: global shape, dtype, and its cuts before and after as entries of partition specs."""

    shape: tuple[int, ...]
    dtype: str
    source: tuple[Any, ...]
    target: tuple[Any, ...]


@dataclass(frozen=True)
class TreeCase:
    """Meshes as sizes, names and device ids in order, and the leaves."""

    source_mesh: tuple[tuple[str, int], ...]
    source_order: tuple[int, ...]
    target_mesh: tuple[tuple[str, int], ...]
    target_order: tuple[int, ...]
    leaves: tuple[LeafCase, ...]


def factorisations(n: int, most: int = 3) -> list[tuple[int, ...]]:
    """Ordered ways to write n as a product of at most `most` factors above 1."""
    if n == 1:
        return [()]
    result = [(n,)]
    if most > 1:
        for first in range(2, n):
            if n % first == 0:
                result += [(first, *rest) for rest in factorisations(n // first, most - 1)]
    return result


@st.composite
def tree_cases(draw: st.DrawFn, devices: tuple[int, ...], leaves: int, orders: bool = True) -> TreeCase:
    """Trees of exactly `leaves` leaves.

    Args:
        devices: how many there may be.
        orders: whether the meshes may order their devices differently.
    """
    n = draw(st.sampled_from(devices))
    sizes = [draw(st.sampled_from(factorisations(n))) for _ in range(2)]
    order = [tuple(range(n)), tuple(range(n))]
    if orders:
        order = [tuple(draw(st.permutations(range(n)))) if draw(st.booleans()) else o for o in order]
    meshes = [
        tuple(zip(names, size, strict=False))
        for names, size in zip((("x", "y", "z"), ("a", "b", "x")), sizes, strict=True)
    ]
    return TreeCase(
        meshes[0], order[0], meshes[1], order[1], tuple(draw(_leaf(meshes[0], meshes[1])) for _ in range(leaves))
    )


@st.composite
def _leaf(draw: st.DrawFn, source_mesh: Any, target_mesh: Any) -> LeafCase:
    rank = draw(st.sampled_from([2, 1, 3, 2, 0]))
    source, target = draw(_cut(source_mesh, rank)), draw(_cut(target_mesh, rank))
    shape = [math.lcm(_ways(s, source_mesh), _ways(t, target_mesh)) for s, t in zip(source, target, strict=True)]
    for i in range(rank):
        factor = draw(st.sampled_from([1, 1, 2, 3, 5, 0]))
        if math.prod(shape) * factor <= MOST:
            shape[i] *= factor
    if math.prod(shape) > MOST:
        shape, source = [1] * rank, [()] * rank
        target = source
    return LeafCase(tuple(shape), draw(st.sampled_from(DTYPES)), _entries(source), _entries(target))


@st.composite
def _cut(draw: st.DrawFn, mesh: Any, rank: int) -> list[tuple[str, ...]]:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations([name for name, _ in mesh])):
        where = draw(st.integers(0, rank))
        if where < rank:
            dims[where].append(name)
    return [tuple(dim) for dim in dims]


def _ways(names: tuple[str, ...], mesh: Any) -> int:
    return math.prod(dict(mesh)[name] for name in names)


def _entries(cut: list[tuple[str, ...]]) -> tuple[Any, ...]:
    return tuple(names if len(names) > 1 else names[0] if names else None for names in cut)


# ------------------------------------------------------------------------------------------ as arrays


def jax_mesh(axes: tuple[tuple[str, int], ...], order: tuple[int, ...], kind: AxisType = AxisType.Auto) -> Mesh:
    """The mesh with the devices of these ids in this order."""
    devices = np.array(jax.devices())[list(order)]
    return Mesh(devices.reshape([size for _, size in axes]), [name for name, _ in axes], axis_types=(kind,) * len(axes))


def values_of(leaf: LeafCase, seed: int) -> Any:
    """Random bits as a host array; random keys as a key array. Of bfloat16 many are NaNs or denormal."""
    rng = np.random.default_rng(seed)
    if leaf.dtype == "key":
        return jax.random.wrap_key_data(rng.integers(0, 2**32, (*leaf.shape, 2), dtype=np.uint32))
    if leaf.dtype == "bool":
        return rng.integers(0, 2, leaf.shape).astype(bool)
    if leaf.dtype in ("int4", "uint4"):
        return rng.integers(0, 8, leaf.shape).astype(jnp.dtype(leaf.dtype))
    dtype = np.dtype(jnp.float32 if leaf.dtype == "weak" else jnp.dtype(leaf.dtype))
    made = rng.integers(0, 256, (*leaf.shape, dtype.itemsize), dtype=np.uint8).view(dtype).reshape(leaf.shape)
    if leaf.dtype == "bfloat16":
        some = rng.choice(np.array([0x0000, 0x7F80, 0x7FFF], dtype=np.uint16), leaf.shape)
        made = ((made.view(np.uint16) & ~np.uint16(0x7F80)) | (some & 0x7F80)).view(dtype)
    return made


def tree_of(case: TreeCase, kind: AxisType = AxisType.Auto) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The host values, the arrays at their sources, and the shardings asked for, by leaf name."""
    source, target = (
        jax_mesh(case.source_mesh, case.source_order, kind),
        jax_mesh(case.target_mesh, case.target_order, kind),
    )
    values, arrays, shardings = {}, {}, {}
    for k, leaf in enumerate(case.leaves):
        name = f"leaf{k}"
        values[name] = values_of(leaf, k)
        arrays[name] = jax.device_put(values[name], NamedSharding(source, PartitionSpec(*leaf.source)))
        if leaf.dtype == "weak":
            made: Any = type(arrays[name])
            arrays[name] = made(
                arrays[name].aval.update(weak_type=True),
                arrays[name].sharding,
                [shard.data for shard in arrays[name].addressable_shards],
                committed=True,
            )
        shardings[name] = NamedSharding(target, PartitionSpec(*leaf.target))
    return values, arrays, shardings


def bits(array: Any) -> np.ndarray[Any, Any]:
    """A host copy whose elements compare by their bits."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    held = np.ascontiguousarray(np.asarray(array))
    if held.dtype.name in ("int4", "uint4"):
        held = held.astype(np.int8)
    return held.reshape(-1).view(np.uint8)


def same_shards(result: jax.Array, expected: jax.Array) -> bool:
    """Whether every device holds the same bits of the same box."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    wanted = {shard.device: shard for shard in expected.addressable_shards}
    return len(wanted) == len(result.addressable_shards) and all(
        shard.index == wanted[shard.device].index and np.array_equal(bits(shard.data), bits(wanted[shard.device].data))
        for shard in result.addressable_shards
    )
