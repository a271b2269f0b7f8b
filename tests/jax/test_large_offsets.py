"""Offsets beyond the largest index, in small arrays under a small largest index, and in large ones."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import integers
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.backends.jax import execute
from redistrib.backends.jax.boxes import box, put
from redistrib.backends.jax.context import LoweringContext, context_of
from redistrib.backends.jax.offsets import LargeOffset
from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.value import Place, Value
from redistrib.programs.ir.windows import Reach
from redistrib.programs.run.jax.halos import with_halos
from redistrib.resharding.through import planning
from redistrib.resharding.through.programs import ThroughProgram
from redistrib.testing import RedistributionCase, redistributions
from tests.jax.running import check_values, jax_mesh


def one_dimensional(largest: int) -> Iterator[tuple[int, int, list[int]]]:
    """An extent, the size of a box and places of it: some that cells divide, and some that they do not."""
    for extent, size in product((6, 9), (1, 2, 3)):
        for values in ([5], [0, size], [extent - size, 2], [1, 4, extent], [4, 4 + size // 2]):
            if max(values) > largest:
                yield extent, size, values


@pytest.mark.parametrize("largest", [2, pytest.param(4, marks=pytest.mark.long)])
def test_boxes_at_large_offsets(largest: int) -> None:
    """Read and written along two dimensions, as NumPy does; beyond the end like JAX, at the nearest place inside."""
    for extent, size, values in one_dimensional(largest):
        tile = np.arange(2 * extent * extent).reshape(2, extent, extent)
        part = -np.arange(1, 1 + 2 * size * size).reshape(2, size, size)

        def both(
            tile: jax.Array, part: jax.Array, number: jax.Array, values: list[int] = values
        ) -> tuple[jax.Array, jax.Array]:
            at = [0, LargeOffset(values, number, largest), LargeOffset((values[-1],), 0, largest)]
            return box(tile, at, part.shape), put(tile, part, at)

        run = jax.jit(both)
        for number in range(len(values)):
            first, last = (min(value, extent - size) for value in (values[number], values[-1]))
            where = (slice(None), slice(first, first + size), slice(last, last + size))
            read, written = run(tile, part, number)
            assert np.array_equal(read, tile[where])
            expected = tile.copy()
            expected[where] = part
            assert np.array_equal(written, expected)


@pytest.fixture
def with_largest(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes contexts with a largest index, and other changes."""

    def change(largest_index: int, **changed: object) -> None:
        def small(*args: object) -> LoweringContext:
            context = context_of(*args)
            return replace(context, largest_index=largest_index, quirks=replace(context.quirks, **changed))

        monkeypatch.setattr(execute, "context_of", small)

    return change


EXAMPLES = [  # a slice, a gather and all-to-alls of leading and trailing dimensions, rounds, padding
    ("[24]", "[6{x}24]", "x=4"),
    ("[6{x}24]", "[24]", "x=4"),
    ("[4, 6{x}24]", "[4, 24]", "x=4"),
    ("[24, 6{x}24]", "[6{x}24, 24]", "x=4"),
    ("[8{x}24, 24]", "[24, 8{x}24]", "x=3"),
    ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6"),
    ("[6{x}24]", "[4{y}24]", "x=4,y=6"),
]
CONTEXTS = {"overlap": {}, "copies": {"copies_results": True}, "slices": {"chunk": 16, "copies_results": True}}


SHORT = (0, "slices", "sequential")
RUNS = [
    pytest.param(largest, context, schedule, marks=[] if (largest, context, schedule) == SHORT else pytest.mark.long)
    for largest, context, schedule in product((0, 5), CONTEXTS, ("overlap", "sequential"))
]


@pytest.mark.parametrize(("largest", "context", "schedule"), RUNS)
def test_every_kind_of_step(largest: int, context: str, schedule: str, with_largest: Callable[..., None]) -> None:
    with_largest(largest, **CONTEXTS[context])
    for source, target, mesh in EXAMPLES:
        check_values(rd.synthesize(source, target, mesh), schedule)


@pytest.mark.long
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pair=redistributions(max_devices=12, two_meshes=False, max_size=2_000), largest=integers(0, 8))
def test_drawn_plans(pair: RedistributionCase, largest: int, with_largest: Callable[..., None]) -> None:
    with_largest(largest)
    plan = rd.synthesize(pair.source, pair.target, pair.mesh)
    if not plan.source.uneven and not plan.target.uneven:
        check_values(plan, "overlap")


@pytest.mark.parametrize(("step", "start", "length"), [(4, -1, 6), (3, -2, 9), (4, 1, 2)])
def test_halos(step: int, start: int, length: int) -> None:
    """Of equal tiles, and of others, which begin at other places on every device."""
    mesh, whole = Mesh.of("x=4"), np.arange(1, 17)
    value = Value("v", DistType.of("[4{x}16]"), Place(mesh), "int32", windows=(Reach(step, start, length),))
    context = LoweringContext(mesh.names, mesh.shape, mesh.devices, largest_index=1)
    run = jax.shard_map(
        lambda tile: with_halos(value, tile, context),
        mesh=jax_mesh(mesh),
        in_specs=PartitionSpec("x"),
        out_specs=PartitionSpec("x"),
        check_vma=False,
    )
    around = np.pad(whole, 16)
    expected = [around[16 + start + k * step :][:length] for k in range(4)]
    assert np.array_equal(jax.jit(run)(whole.astype(np.int32)), np.concatenate(expected))


def test_padding_is_cleared(with_largest: Callable[..., None]) -> None:
    with_largest(2)
    f = rd.to_jax(rd.synthesize("[10, 6]", "[3{x}10+2, 6]", "x=4"), jax_mesh(Mesh.of("x=4")))
    whole = np.arange(60, dtype=np.float32).reshape(10, 6)
    assert np.array_equal(f(jax.device_put(whole, f.source_sharding)), np.pad(whole, [(0, 2), (0, 0)]))


def test_boxes_on_the_way_through_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ThroughProgram", partial(ThroughProgram, largest_index=1))
    devices = np.array(jax.devices())
    before, after = (jax.sharding.Mesh(some, ("x",)) for some in (devices[:4], devices[2:5]))
    tree = {name: np.arange(144.0).reshape(12, 12) + k for k, name in enumerate("ab")}
    sources = {name: NamedSharding(before, PartitionSpec(*spec)) for name, spec in (("a", "x"), ("b", (None, "x")))}
    targets = {"both": NamedSharding(after, PartitionSpec(None, "x")), "a": NamedSharding(after, PartitionSpec("x"))}

    def joined(t: dict[str, Any]) -> dict[str, Any]:
        return {"both": jnp.concatenate([t["a"], t["b"].T]), "a": t["a"][3:9]}

    moved = rd.reshard(jax.device_put(tree, sources), targets, through=joined)
    assert all(np.array_equal(moved[name], expected) for name, expected in joined(tree).items())


@pytest.mark.parametrize("wide", [False, True])
def test_bodies_that_count_need_64_bits_or_are_refused(wide: bool) -> None:
    """A program counts beyond 32 bits where JAX does; else it says so before it runs."""
    shape = jax.ShapeDtypeStruct((2**33,), jnp.int8)
    with jax.enable_x64(wide):  # a function runs in the mode in which it was traced
        f = rd.distribute(
            lambda x: x + lax.iota(jnp.int8, 2**33), (shape,), {"x": 4}, schedule=[rd.along("x", {"x": 0})]
        )
        if wide:
            assert "s64" in f.lower().as_text("hlo")
        else:
            why = "its body counts along 'd0', of 8,589,934,592 points, which takes 64 bits; set jax_enable_x64"
            with pytest.raises(ProgramError, match=why):
                f.lower()


REAL = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=32"
import jax, numpy as np, redistrib as rd
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((32,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
everywhere, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))
n, every = 2**31 + 2**27, 2**18  # the last tiles begin beyond 2^31
memory = np.zeros(n + 64, np.uint8)
whole = memory[-memory.ctypes.data % 64 :][:n]
whole[::every] = np.arange(n // every) % 251 + 1
expected = whole[::every].copy()
replicas = [jax.device_put(whole, device, may_alias=True) for device in jax.devices()]  # one buffer for all
assert len({replica.unsafe_buffer_pointer() for replica in replicas}) == 1
x = jax.make_array_from_single_device_arrays((n,), everywhere, replicas)
moves = {
    "eager": lambda: rd.reshard(x, rows, via="collectives"),
    "jit": lambda: jax.jit(lambda x: rd.reshard(x, rows, source=everywhere), in_shardings=everywhere)(x),
    "distribute": lambda: rd.distribute(lambda x: x ^ 1, (x,), mesh, in_shardings=(P(),), out_shardings=P("x"))(x),
}
for name, move in moves.items():
    shards = sorted(move().addressable_shards, key=lambda shard: shard.index[0].start or 0)
    found = np.concatenate([np.asarray(shard.data)[::every] for shard in shards])
    del shards
    assert np.array_equal(found, expected ^ 1 if name == "distribute" else expected), name
"""


@pytest.mark.long
def test_arrays_of_more_than_two_to_the_31_elements() -> None:
    """In 4.5 GiB of memory."""
    subprocess.run([sys.executable, "-c", REAL], check=True, timeout=600)


HUGE = [
    ((2**34, 8), "bfloat16", ("x", None), (None, "x")),
    ((8, 2**32), "uint8", ("x", None), (None, "x")),
    ((2**31, 2**30), "float32", ("x", None), (None, "x")),
    ((2**40, 2**40), "float32", ("x", "y"), ("y", "x")),
    ((2**62,), "int4", ("x",), ("y",)),
]


@pytest.mark.parametrize(("shape", "dtype", "source", "target"), HUGE, ids=str)
def test_arrays_that_no_machine_has_are_planned(shape: Any, dtype: str, source: Any, target: Any) -> None:
    """XLA ends the process at 2^63 bytes."""
    mesh = jax_mesh(Mesh.of("x=2,y=4"))
    placed = jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*source)))
    plan = rd.reshard_plan(placed, NamedSharding(mesh, PartitionSpec(*target)))
    assert plan.peak_bytes >= 2 * math.prod(shape) // 8
    assert plan.received_bytes >= plan.lower_bound_bytes > 0


def test_arrays_that_no_machine_has_go_to_other_devices_and_through_functions() -> None:
    devices = np.array(jax.devices())
    before, after = (jax.sharding.Mesh(some, ("x",)) for some in (devices[:4], devices[4:8]))
    placed = jax.ShapeDtypeStruct((2**40, 2**40), jnp.float32, sharding=NamedSharding(before, PartitionSpec("x")))
    target = NamedSharding(after, PartitionSpec(None, "x"))
    tile = 4 * 2**78
    assert rd.reshard_plan(placed, target).peak_bytes >= tile
    assert rd.reshard_plan(placed, target, through=lambda x: x.T).peak_bytes >= tile


def test_a_search_of_arrays_that_no_machine_has() -> None:
    form = jax.ShapeDtypeStruct((2**40, 2**40), jnp.float32)
    found = rd.search(lambda a, b: a @ b, (form, form), {"x": 2, "y": 4}, progress=False)[0]
    assert found.memory >= 4 * 2**80 // 8
