"""Trees of arrays through `reshard`: aliases, kinds of memory, leaves that fail, donation, limits and interruptions.

After a move every leaf has its bits and its sharding; after any exception every array of the tree is alive, or stands
moved in the tree that the error carries as `partial`.
"""

from __future__ import annotations

import datetime
import math
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

import redistrib as rd
from redistrib.errors import RedistribError
from tests.fuzz.guard import PACKAGE, Failure, place

LIMIT = 60.0  # seconds of processor time: compilers are among it
SHAPES = ((8,), (24,), (4, 6), (12, 12), (2, 3, 4), (), (0, 8), (64, 48), (5,))
DTYPES = ("float32", "bfloat16", "int8", "uint16", "bool", "complex64", "key", "weak", "int4")
MESHES = ((8,), (2, 4), (4, 2), (2, 2, 2), (6,), (2, 3), (3, 2), (4,), (2,), (1,))
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")
ALIASES = ("same", "shard", "shard", "again", "reversed", "kept")


@dataclass(frozen=True)
class Entry:
    """A leaf, the host value it stands for (None for what is no array), and where it shall go."""

    leaf: Any
    value: Any
    target: Any


def check(seed: int, index: int) -> str:
    """Move the tree of this number: "moved", "refused" or "interrupted", with nothing lost.

    Raises:
        Failure: if bits or shardings are wrong, an array is lost, or anything but a `RedistribError` comes out.
    """
    rng = random.Random(f"tree/{seed}/{index}")
    entries, why_not = _draw(rng)
    if (memory := random.Random(f"memory/{seed}/{index}")).random() < 0.4:
        entries = [_in_memory(memory, entry) for entry in entries]
    tree: Any = {f"leaf{k}": entry.leaf for k, entry in enumerate(entries)}
    shardings = {f"leaf{k}": entry.target for k, entry in enumerate(entries)}
    options: dict[str, Any] = {"donate": rng.random() < 0.7}
    if rng.random() < 0.3:
        options["memory_limit"] = int(10 ** rng.uniform(1, 6))
    if rng.random() < 0.05:
        rd.clear_caches()
    moment = rng.uniform(0.0005, 0.05) if rng.random() < 0.15 else 0.0
    told = f"{_told(entries)}, {options}{f', interrupted after {moment:.4f} s' if moment else ''}"
    try:
        result = _interrupted(moment, lambda: rd.reshard(tree, shardings, **options))
        jax.block_until_ready(result)
    except (RedistribError, KeyboardInterrupt) as error:
        return _after(error, tree, entries, told)
    except Exception as error:
        if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
            return _after(error, tree, entries, told)  # Python's word for an interruption of a function in C
        lost = ""
        try:
            _after(error, tree, entries, told)
        except Failure as failure:
            lost = f"; {failure.detail}"
        raise Failure("exception", f"{type(error).__name__}: {str(error)[:150]}{lost}", place(error), told) from error
    if why_not:
        raise Failure("wrong", f"moved in spite of {why_not}", case=told)
    for k, entry in enumerate(entries):
        moved = result[f"leaf{k}"]
        if entry.value is None:
            continue
        if not _is_right(moved, entry.value):
            raise Failure("wrong", f"leaf {k} has other bits", case=told)
        target = _sharding(entry.target)
        if not moved.sharding.is_equivalent_to(target.with_memory_kind(target.memory_kind or "device"), moved.ndim):
            raise Failure("wrong", f"leaf {k} is on {moved.sharding}", case=told)
        if not options["donate"] and not _is_right(entry.leaf, entry.value):
            raise Failure("wrong", f"leaf {k} was given up without donation", case=told)
    return "moved"


def _after(error: BaseException, tree: Any, entries: list[Entry], told: str) -> str:
    """Nothing is lost: every array is alive where it was, or in the error's tree."""
    left = getattr(error, "partial", None)
    if left is None:
        left = tree
    if jax.tree.structure(left) != jax.tree.structure(tree):
        raise Failure("wrong", "the partial result has another structure", case=told)
    for k, entry in enumerate(entries):
        if entry.value is not None and not _is_right(left[f"leaf{k}"], entry.value):
            raise Failure("wrong", f"leaf {k} is lost by {type(error).__name__}: {str(error)[:120]}", case=told)
    return "refused" if isinstance(error, RedistribError) else "interrupted"


def _is_right(array: Any, value: Any) -> bool:
    if not isinstance(array, jax.Array):
        return bool(np.array_equal(np.asarray(array), value))
    if array.is_deleted():
        return False
    try:
        found = jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
        parts = [(shard.index, np.array(shard.data)) for shard in found.addressable_shards]
    except (RuntimeError, ValueError):  # what JAX says of a buffer that is gone
        return False
    return found.shape == np.shape(value) and all(
        np.ascontiguousarray(part).tobytes() == np.ascontiguousarray(value[index]).tobytes() for index, part in parts
    )


def _interrupted(moment: float, call: Callable[[], Any]) -> Any:
    """The call, with a KeyboardInterrupt after `moment` seconds unless that is 0."""
    if not moment or threading.current_thread() is not threading.main_thread():
        return call()
    old = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, moment)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise, unless the call is over: what it has returned could not be told from what is lost."""
    while frame is not None:
        if f"/{PACKAGE}/" in frame.f_code.co_filename:
            raise KeyboardInterrupt
        frame = frame.f_back


def _told(entries: list[Entry]) -> str:
    shown = []
    for entry in entries:
        if isinstance(entry.leaf, jax.Array):
            where = getattr(entry.leaf.sharding, "spec", "one device")
            leaf = f"{entry.leaf.dtype}{list(entry.leaf.shape)} {where} {entry.leaf.sharding.memory_kind}"
        else:
            leaf = f"{type(entry.leaf).__name__} {str(entry.leaf)[:30]}"
        kind = getattr(entry.target, "memory_kind", "")
        shown.append(f"{leaf} -> {getattr(entry.target, 'spec', entry.target)} {kind}")
    return "; ".join(shown)[:500]


# ------------------------------------------------------------------------------------------------ drawing


def _draw(rng: random.Random) -> tuple[list[Entry], str]:
    """The entries in some order, and what is wrong with one of them, or ""."""
    meshes = _mesh(rng), _mesh(rng)
    count = rng.choice((1, 2, 3, 4, 6, 10))
    entries = [_array(rng, meshes) if rng.random() < 0.85 else _host(rng, meshes) for _ in range(count)]
    for _ in range(rng.choice((0, 0, 1, 2))):
        arrays = [entry for entry in entries if isinstance(entry.leaf, jax.Array)]
        if arrays:
            entries.append(_alias(rng, rng.choice(arrays), meshes))
    why_not = ""
    if rng.random() < 0.3:
        why_not, bad = _bad(rng, meshes)
        entries.append(bad)
    rng.shuffle(entries)
    return entries, why_not


def _mesh(rng: random.Random) -> Mesh:
    sizes = rng.choice(MESHES)
    devices = jax.devices()[: math.prod(sizes)]
    if rng.random() < 0.3:
        devices = rng.choice((devices[::-1], rng.sample(devices, len(devices)), jax.devices()[-len(devices) :]))
    return Mesh(np.array(devices).reshape(sizes), tuple("xyz"[: len(sizes)]))


def draw_spec(rng: random.Random, shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """Axes of the mesh on dimensions that they divide."""
    cuts: list[list[str]] = [[] for _ in shape]
    for name in rng.sample(mesh.axis_names, len(mesh.axis_names)):
        where = rng.randrange(len(shape) + 1)
        if where < len(shape):
            ways = math.prod(mesh.shape[n] for n in (*cuts[where], name))
            if shape[where] % ways == 0:
                cuts[where].append(name)
    return PartitionSpec(*(tuple(names) or None for names in cuts))


def _target(rng: random.Random, shape: tuple[int, ...], meshes: tuple[Mesh, Mesh]) -> Any:
    whim = rng.random()
    if whim < 0.08:
        return rng.choice(jax.devices())
    mesh = meshes[1] if whim < 0.8 else rng.choice((meshes[0], Mesh(meshes[0].devices[::-1], meshes[0].axis_names)))
    return NamedSharding(mesh, draw_spec(rng, shape, mesh))


def _sharding(target: Any) -> Sharding:
    return target if isinstance(target, Sharding) else SingleDeviceSharding(target)


def _array(rng: random.Random, meshes: tuple[Mesh, Mesh]) -> Entry:
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    drawn = np.random.default_rng(rng.randrange(2**32))
    where = NamedSharding(meshes[0], draw_spec(rng, shape, meshes[0]))
    if dtype == "key":
        value = drawn.integers(0, 2**32, (*shape, 2), dtype=np.uint32)
        array = jax.device_put(jax.random.wrap_key_data(value), where)
    elif dtype == "weak":
        value = np.full(shape, 1.5, np.float32)
        array = jax.device_put(jnp.broadcast_to(jnp.asarray(1.5), shape), where)
    else:
        value = drawn.integers(0, 2 if dtype == "bool" else 7, shape).astype(jnp.dtype(dtype))
        array = jax.device_put(value.copy(), where)
    return Entry(array, value, _target(rng, shape, meshes))


def _in_memory(rng: random.Random, entry: Entry) -> Entry:
    """The entry with its array, or its target, in any kind of memory; a copy in another kind has its own buffers."""
    leaf, target = entry.leaf, entry.target
    if isinstance(leaf, jax.Array) and entry.value is not None and not leaf.is_deleted() and rng.random() < 0.4:
        leaf = jax.device_put(leaf, leaf.sharding.with_memory_kind(rng.choice(MEMORY_KINDS)))
    if isinstance(target, Sharding) and rng.random() < 0.4:
        target = target.with_memory_kind(rng.choice(MEMORY_KINDS))
    return Entry(leaf, entry.value, target)


def _host(rng: random.Random, meshes: tuple[Mesh, Mesh]) -> Entry:
    shape = rng.choice(SHAPES)
    value = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    if rng.random() < 0.5:
        return Entry(value, value.copy(), _target(rng, shape, meshes))
    scalar: Any = rng.choice((3, True, -(2**31)))
    return Entry(scalar, np.asarray(jnp.asarray(scalar)), _target(rng, (), meshes))


def _alias(rng: random.Random, entry: Entry, meshes: tuple[Mesh, Mesh]) -> Entry:
    """Another leaf over the same memory, or over some of it."""
    array, value = entry.leaf, entry.value
    kind = rng.choice(ALIASES)
    if kind == "same":
        return Entry(array, value, entry.target if rng.random() < 0.5 else _target(rng, array.shape, meshes))
    if kind == "shard":
        shard = rng.choice(array.addressable_shards)
        return Entry(shard.data, value[shard.index], _target(rng, shard.data.shape, meshes))
    shards, sharding = {shard.device: shard.data for shard in array.addressable_shards}, array.sharding
    if kind == "reversed" and isinstance(sharding, NamedSharding) and sharding.is_fully_replicated:
        mesh = Mesh(sharding.mesh.devices[::-1], sharding.mesh.axis_names)
        sharding = NamedSharding(mesh, PartitionSpec())
    if kind == "kept":
        other = rd.reshard(array, sharding)
    else:
        ordered = [shards[device] for device in sharding.devices_indices_map(array.shape)]
        other = jax.make_array_from_single_device_arrays(array.shape, sharding, ordered)
    return Entry(other, value, _target(rng, array.shape, meshes))


def _bad(rng: random.Random, meshes: tuple[Mesh, Mesh]) -> tuple[str, Entry]:
    """A leaf that cannot be moved, and why."""
    anywhere = NamedSharding(meshes[1], PartitionSpec())
    gone = jax.device_put(np.arange(8), NamedSharding(meshes[0], PartitionSpec()))
    gone.delete()
    uneven = jax.device_put(np.arange(7, dtype=np.float32), NamedSharding(meshes[0], PartitionSpec()))
    values: dict[str, Any] = {
        "a number beyond 32 bits": 3_000_000_000,
        "a number beyond 64 bits": 2**70,
        "a text": "text",
        "a date": datetime.datetime(2024, 1, 1),
        "datetime64": np.datetime64("2024-01-01"),
        "an object": object(),
        "an array of objects": np.array([object()]),
        "a structured array": np.zeros(4, dtype=[("a", "i4"), ("b", "f4")]),
        "texts": np.array(["a", "b"]),
        "a shape": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=anywhere),
        "a deleted array": gone,
        "an uneven target": uneven,
        "no sharding": np.arange(8),
    }
    why = rng.choice(sorted(values))
    target: Any = anywhere
    if why == "an uneven target":
        axes = tuple(name for name, size in meshes[1].shape.items() if size > 1)
        if not axes:
            why = "a text"
        target = NamedSharding(meshes[1], PartitionSpec(axes))
    if why == "no sharding":
        target = rng.choice(("x", 3))
    value = np.arange(7, dtype=np.float32) if why == "an uneven target" else None
    return why, Entry(values[why], value, target)
