"""One process of several: moves trees between device sets by `reshard`, and checks its own shards."""

import sys
from collections.abc import Sequence
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.buckets.compiled import CompiledBucket
from redistrib.backends.jax.sharding import named_sharding
from redistrib.launches import buckets
from tests.sets.cases import PAIRS, alpa_on_eight, m2n

DEVICES = np.array(jax.devices())
OWN = jax.process_index()


def over(numbers: list[int], *shape: int) -> Mesh:
    """A mesh over some devices, by their places."""
    return Mesh(DEVICES[numbers].reshape(shape), ("x", "y")[: len(shape)])


def placed(values: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array made by every process from its own part; one without shards where it has none."""
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index], dtype=values.dtype)


def wrong(array: jax.Array, values: np.ndarray) -> int:
    """Elements of this process that are not what they should be."""
    return sum(int((np.asarray(shard.data) != values[shard.index]).sum()) for shard in array.addressable_shards)


def sharding(numbers: list[int], shape: tuple[int, ...], spec: P) -> NamedSharding:
    return NamedSharding(over(numbers, *shape), spec)


LOW, HIGH, SIX = [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3, 4, 5]
MOVES = {
    "rows to columns": (sharding(LOW, (4,), P("x")), sharding(HIGH, (4,), P(None, "x"))),
    "rows to rows": (sharding(LOW, (4,), P("x")), sharding(HIGH, (4,), P("x"))),
    "rows to replicated": (sharding(HIGH, (4,), P("x")), sharding(LOW, (4,), P())),
    "fully cut to two ways": (sharding(LOW, (4,), P("x")), sharding(HIGH, (2, 2), P(None, "y"))),
    "eight to six": (sharding([*LOW, *HIGH], (8,), P("x")), sharding(SIX, (6,), P("x"))),
    "six to eight": (sharding(SIX, (6,), P(None, "x")), sharding([*LOW, *HIGH], (8,), P("x"))),
    "across": (sharding([0, 1, 4, 5], (4,), P("x")), sharding([2, 3, 6, 7], (4,), P(None, "x"))),
    "overlapping": (sharding(LOW, (4,), P("x")), sharding([2, 3, 4, 5], (4,), P(None, "x"))),
    "inside the last": (sharding([6], (1,), P()), sharding([6, 7], (2,), P("x"))),
}


def side(mesh: str, devices: Sequence[int], text: str) -> NamedSharding:
    """A sharding from our notation."""
    ours, kind = rd.Mesh.of(mesh, devices), rd.DistType.parse(text)
    return named_sharding(kind, ours, Mesh(DEVICES[list(devices)].reshape(ours.shape), ours.names))


def takes_all(*sides: NamedSharding) -> bool:
    """Whether every process owns a device of one of the sides."""
    return len({device.process_index for each in sides for device in each.device_set}) == jax.process_count()


def shape_for(*sides: NamedSharding) -> tuple[int, ...]:
    """A shape that both sides divide."""
    return (48, 24, 24)[: max(2, *(len(each.spec) for each in sides))]


def in_turn() -> list[int]:
    """Count the launches that begin before those before them have ended on the devices of this process.

    They would share its threads, and wait for each other for ever.
    """
    early, running, launch = [0], list[jax.Array](), CompiledBucket.launch

    def launched(self: CompiledBucket, *sides: Any) -> Any:
        early[0] += not all(array.is_ready() for array in running)
        results, outputs = launch(self, *sides)
        running[:] = [array for array in outputs if array.addressable_shards]
        return results, outputs

    CompiledBucket.launch = launched
    return early


def through_the_host(array: jax.Array, values: np.ndarray) -> int:
    """What is wrong after moves between processes to pinned memory of hosts, from there, and within it."""
    on_host = sharding([2, 3, 6, 7], (4,), P("x")).with_memory_kind("pinned_host")
    stages = (on_host, on_host.with_memory_kind("device"), on_host, sharding([0, 1, 4, 5], (4,), P(None, "x")), on_host)
    faults = 0
    for target in (*stages, sharding([0, 1, 4, 5], (4,), P(None, "x")).with_memory_kind("pinned_host")):
        array = rd.reshard(array, target)
        faults += wrong(array, values) + (array.sharding != target)
    return faults


def wrong_after_tied() -> int:
    """What is wrong where leaves have buffers in common, which the processes alone know that hold them."""
    values = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    source, target = sharding(LOW, (4,), P("x")), sharding(HIGH, (4,), P("x"))
    leaves = [placed(values * factor, source) for factor in (1, 2, 3)]
    held = [leaf for leaf in leaves if leaf.addressable_shards]
    tied = [leaves[1], leaves[0], leaves[2], leaves[0]]
    if not held:
        tied = [jax.ShapeDtypeStruct(values.shape, values.dtype, sharding=source) for _ in tied]
    at_fault = 0
    for there in (target, sharding(HIGH, (4,), P(None, "x"))):
        moved = rd.reshard(tied, there, donate=there is not target)
        at_fault += sum(wrong(array, values * factor) for array, factor in zip(moved, (2, 1, 3, 1), strict=True))
    return at_fault + sum(not leaf.is_deleted() for leaf in held)


def main() -> None:
    early = in_turn()
    if sys.argv[5] == "all":
        cases = [*m2n(4), *alpa_on_eight(), *PAIRS.values()]
        MOVES.update((f"case {k}", (side(*one), side(*other))) for k, (one, other) in enumerate(cases))
    values = {
        name: np.random.default_rng(k).integers(0, 99, shape_for(*ends)).astype(np.float32)
        for k, (name, ends) in enumerate(MOVES.items())
    }
    tree = {name: placed(values[name], source) for name, (source, _) in MOVES.items()}
    scalar = placed(np.array(5, np.int32), sharding(LOW, (4,), P()))
    targets = {name: target for name, (_, target) in MOVES.items()}
    at_fault = 0
    more = ({"memory_limit": "1MiB"}, {"machine": "exact"}) if sys.argv[5] == "all" else ()
    for options in ({}, *more):
        names = [name for name in MOVES if "memory_limit" not in options or takes_all(*MOVES[name])]
        both = ({name: tree[name] for name in names}, {name: targets[name] for name in names})
        if "machine" in options:
            plan = rd.reshard_plan(*both, **options)
            plans = [entry.plan for batch in plan.batches for entry in batch.program.entries]
            at_fault += plan.received_bytes != plan.lower_bound_bytes or any(each.collectives > 8 for each in plans)
        with jax.transfer_guard("disallow_explicit"):
            moved = jax.block_until_ready(rd.reshard(*both, **options))
        at_fault += sum(wrong(moved[name], values[name]) + (moved[name].sharding != targets[name]) for name in names)
    # Leaves too large for a launch, part by part.
    buckets.BUCKET_BYTES, whole = 2**10, buckets.BUCKET_BYTES
    for name in ("rows to columns", "rows to replicated", "eight to six", "across"):
        at_fault += not all(entry.times > 1 for _, entry in rd.reshard_plan(tree[name], targets[name]).batches[0].parts)
        with jax.transfer_guard("disallow_explicit"):
            put_together = jax.block_until_ready(rd.reshard(tree[name], targets[name]))
        at_fault += wrong(put_together, values[name]) + (put_together.sharding != targets[name])
    buckets.BUCKET_BYTES = whole

    # A process that holds nothing of an array may tell its shape alone.
    source, target = MOVES["rows to columns"]
    here = tree["rows to columns"]
    if not here.addressable_shards:
        here = jax.ShapeDtypeStruct((48, 24), jnp.float32, sharding=source)
    there, step = rd.reshard((here, scalar), (target, sharding(HIGH, (4,), P())), donate=True)
    at_fault += wrong(there, values["rows to columns"]) + (there.sharding != target)
    at_fault += sum(int(shard.data) != 5 for shard in step.addressable_shards)
    gone = scalar.is_deleted()

    # Padding that differs, and is no number anywhere but where the values are.
    vocabulary = np.full((24, 5), np.nan, np.float32)
    vocabulary[:21] = np.arange(105, dtype=np.float32).reshape(21, 5)
    padded = placed(vocabulary, sharding([*LOW, *HIGH], (8,), P("x")))
    for there, rows in (
        (sharding(SIX, (6,), P("x")), 24),
        (sharding(LOW, (4,), P(None, "x")), 21),
    ):
        moved_rows = rd.reshard(padded, there, logical_shape=(21, 5))
        want = np.zeros(moved_rows.shape, np.float32)
        want[:21, :5] = vocabulary[:21]
        at_fault += wrong(moved_rows, want) + (moved_rows.shape[0] != rows) + (moved_rows.sharding != there)

    def refused(make: object, tree: object, target: object) -> None:
        try:
            make(tree, target)
        except rd.RedistribError as error:
            print(f"REFUSED {type(error).__name__} {error}".replace("\n", " "))
        else:
            print("NOT REFUSED")

    other = placed(values["across"], MOVES["across"][0])
    two = ("across", "inside the last")
    few, ends = ({name: each[name] for name in two} for each in (tree, targets))
    refused(lambda *both: rd.reshard(*both, memory_limit="1MiB"), few, ends)
    pair, there = [other, tree["eight to six"]], targets["eight to six"]
    away = sharding([2, 3, 6, 7], (4,), P("x") if OWN else P(None, "x"))
    refused(lambda *both: rd.reshard(*both, donate=True), pair, [away, there])
    at_fault += sum(array.is_deleted() for array in pair)  # refused before anything moves
    at_fault += through_the_host(other, values["across"])
    at_fault += wrong_after_tied()
    at_fault += early[0]
    if OWN == 0:  # the others end
        refused(rd.reshard, other, sharding([2, 3, 6, 7], (2, 2), P("x")))
    print(f"RESULT {OWN} {len(tree)} {at_fault} {gone}")


main()
