"""Calls of `reshard` that differ between processes; imported by processes that own all devices of one job."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import private
from redistrib.resharding import agreement

FIRST = jax.process_index() == 0
LINE = Mesh(np.array(jax.devices()), ("x",))
ROWS, COLUMNS, LAYERS = (NamedSharding(LINE, P(*[None] * k, "x")) for k in range(3))
TURNED = Mesh(np.array(jax.devices())[::-1], ("x",))
HALVES = [Mesh(half, ("x",)) for half in np.array(jax.devices()).reshape(2, -1)]
VALUES = np.arange(2.0 * 8**3, dtype=np.float32).reshape(8, 8, 16)


def array(sharding: NamedSharding = ROWS, factor: int = 1, dtype: Any = np.float32) -> jax.Array:
    """An array made by every process from its own part; the factor tells its values from those of others."""
    values = (VALUES * factor).astype(dtype)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index], dtype=dtype)


def wrong(moved: jax.Array, factor: int = 1) -> int:
    """Elements of this process that are not what they should be."""
    return sum(
        int((np.asarray(shard.data) != factor * VALUES[shard.index]).sum()) for shard in moved.addressable_shards
    )


def different_calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls that differ between the first process and the others, with a name each."""
    a, b = array(), array(factor=2)
    integers = array(dtype=np.int32)
    empty = jax.make_array_from_callback((8, 8, 0), ROWS, lambda index: np.zeros((8, 8, 0), np.float32)[index])
    yield "shardings", lambda: rd.reshard(a, COLUMNS if FIRST else LAYERS)
    yield "leaves", lambda: rd.reshard([a] if FIRST else [a, b], COLUMNS)
    yield "dtypes", lambda: rd.reshard(a if FIRST else integers, COLUMNS)
    yield "donation", lambda: rd.reshard(a, COLUMNS, donate=FIRST)
    yield "limits", lambda: rd.reshard(a, COLUMNS, memory_limit="1MiB" if FIRST else "2MiB")
    yield "orders", lambda: rd.reshard({"a": a, "b": b} if FIRST else {"b": a, "c": b}, COLUMNS)
    yield "a move and a stay", lambda: rd.reshard(a, COLUMNS if FIRST else ROWS)
    yield "elements and none", lambda: rd.reshard(a if FIRST else empty, COLUMNS)
    yield "host values", lambda: rd.reshard(VALUES, COLUMNS if FIRST else LAYERS)
    for target in (COLUMNS, LAYERS):
        assert not wrong(rd.reshard(a, target))
        assert not wrong(rd.reshard(a, target, through=lambda t: t * 3 - b))  # an array of all processes
        assert not wrong(rd.reshard(a, target, through=lambda t: t * np.full(16, 2, np.float32)), 2)
    captured = np.full(16, 1 if FIRST else 2, np.float32)
    yield "captured values", lambda: rd.reshard(a, COLUMNS, through=lambda t: t * captured)
    yield "captured arrays", lambda: rd.reshard(a, COLUMNS, through=lambda t: t * captured[: 16 if FIRST else 1])
    yield "shardings that all know", lambda: rd.reshard(a, COLUMNS if FIRST else LAYERS)
    yield "shardings that one knows", lambda: rd.reshard(a, COLUMNS if FIRST else NamedSharding(LINE, P()))
    yield (
        "shardings that the others know",
        lambda: rd.reshard(b, NamedSharding(TURNED, P("x")) if FIRST else LAYERS),
    )


def refused(call: Callable[[], Any]) -> str:
    """The message of the error of a call."""
    try:
        call()
    except rd.RedistribError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing raised"


def main() -> int:
    """Make all the calls and print what is raised; the number of wrong elements of calls that all make alike."""
    agreement.REPEATED_SECONDS = 0.2
    at_fault = 0
    kept = array()
    for name, call in different_calls():
        print(f"DIFFERENT {name}: {refused(call)}")
        at_fault += wrong(rd.reshard(kept, COLUMNS)) + wrong(kept)  # as if nothing had happened
    store = private.notes_of_processes()
    for name, target in (
        ("late with a new call", NamedSharding(HALVES[0], P("x"))),
        ("late with a known one", COLUMNS),
    ):
        if not FIRST:
            store.blocking_key_value_get(name, 60_000)  # until the first process has given up
        waits, agreement.WAIT_SECONDS = agreement.WAIT_SECONDS, 0.5 if FIRST else 60
        print(f"DIFFERENT {name}: {refused(lambda target=target: rd.reshard(kept, target))}")
        agreement.WAIT_SECONDS = waits
        if FIRST:
            store.key_value_set(name, "raised")
        at_fault += wrong(rd.reshard(kept, target))

    # Buffers that leaves have in common are known to the processes alone that hold them.
    source, target = (NamedSharding(half, P("x")) for half in HALVES)
    leaves = [array(source, factor) for factor in (1, 2, 3)]
    held = [leaf for leaf in leaves if leaf.addressable_shards]
    tied = [leaves[1], leaves[0], leaves[2], leaves[0]]
    if not held:
        tied = [jax.ShapeDtypeStruct(VALUES.shape, VALUES.dtype, sharding=source) for _ in tied]
    for there in (target, NamedSharding(HALVES[1], P(None, "x"))):
        moved = rd.reshard(tied, there, donate=there is not target)
        at_fault += sum(map(wrong, moved, (2, 1, 3, 1)))
    return at_fault + sum(not leaf.is_deleted() for leaf in held)
