"""Partition specs and named shardings: their meaning as types, and what has none."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redistrib.errors import RedistribError, SpecError, TypeFormError, UnknownAxisError
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_named_sharding, from_partition_spec, to_partition_entries
from redistrib.lang.types import DistType
from redistrib.theory.placement import placement_of
from tests.messages import exactly

XY = Mesh.of("x=4,y=6")


@pytest.mark.parametrize(
    ("spec", "shape", "text"),
    [
        (("x", "y"), (12, 12), "[3{x}12, 2{y}12]"),
        ((None, "x"), (5, 12), "[5, 3{x}12]"),
        (("x",), (12, 5, 7), "[3{x}12, 5, 7]"),
        ((), (12, 5), "[12, 5]"),
        ((), (), "[]"),
        ((("x",), ()), (12, 5), "[3{x}12, 5]"),
        ((("y", "x"),), (48,), "[2{x,y}48]"),
        ((("x", "y"),), (48,), "[2{y,x}48]"),
        ((["x", "y"],), (48,), "[2{y,x}48]"),
        (("x",), (0,), "[0{x}0]"),
        (("x",), (np.int64(12),), "[3{x}12]"),
    ],
)
def test_a_spec_means_a_type(spec: Any, shape: tuple[int, ...], text: str) -> None:
    t = from_partition_spec(spec, shape, XY)
    assert str(t) == text
    t.check(XY)
    assert from_partition_spec(to_partition_entries(t), shape, XY) == t


def test_entries_of_a_type() -> None:
    assert to_partition_entries(DistType.parse("[2{x,y}48, 3{x}12, 5]")) == (("y", "x"), "x", None)
    assert to_partition_entries(DistType.parse("[]")) == ()


class UnconstrainedSingleton:
    """Stands in for JAX's class of that name, in a process without JAX."""


REFUSED = [
    (((None, "x", None), (5, 12), XY), SpecError,
     "the partition spec has 3 entries and the shape (5, 12) only 2 dimensions; give at most one entry for each "
     "dimension"),
    ((("x",), (), XY), SpecError,
     "the partition spec has 1 entries and the shape () only 0 dimensions; give at most one entry for each dimension"),
    ((("x",), (10,), XY), SpecError,
     "dimension 0 has 10 elements, which axis 'x' cannot cut into 4 equal tiles; take other axes, "
     "or pad the dimension to 12"),
    (((None, ("x", "y")), (3, 36), XY), SpecError,
     "dimension 1 has 36 elements, which axes 'x', 'y' cannot cut into 24 equal tiles; take other axes, "
     "or pad the dimension to 48"),
    ((("x", "x"), (12, 12), XY), TypeFormError,
     "axis 'x' is used twice in partition spec ('x', 'x'); a mesh axis may cut at most one dimension, once"),
    (((("x", "x"),), (16,), XY), TypeFormError,
     "axis 'x' is used twice in partition spec (('x', 'x'),); a mesh axis may cut at most one dimension, once"),
    ((("z",), (12,), XY), UnknownAxisError,
     "mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'"),
    (((None, UnconstrainedSingleton()), (12, 12), XY), SpecError,
     "entry 1 of the partition spec is UNCONSTRAINED, which leaves the cut to the compiler; "
     "say how dimension 1 is cut: None, an axis name, or a tuple of axis names"),
    (((3,), (12,), XY), SpecError,
     "entry 0 of the partition spec is 3; an entry is None, an axis name, or a tuple of axis names "
     "from major to minor"),
    (((("x", None),), (12,), XY), SpecError,
     "entry 0 of the partition spec is ('x', None); an entry is None, an axis name, or a tuple of axis names "
     "from major to minor"),
    ((SimpleNamespace(partitions=("x",), unreduced=frozenset({"y"}), unreduced_kind="prod"), (12,), XY),
     SpecError,
     "a partition spec that is unreduced over 'y' by the reduction 'prod' cannot be said by both JAX and a "
     "distributed type; both know sums, so reduce these axes first"),
    ((SimpleNamespace(partitions=("x",), unreduced=frozenset({"x"})), (12,), XY), TypeFormError,
     "axis 'x' cuts the array and is a partial axis too in type [3{x}12] sum{x}; an axis may do one of the two"),
    ((SimpleNamespace(partitions=("x",), unreduced=frozenset({"z"})), (12,), XY), UnknownAxisError,
     "mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'"),
    ((SimpleNamespace(partitions=("x",), reduced=frozenset({"z"})), (12,), XY), UnknownAxisError,
     "mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'"),
    ((("x",), (12.5,), XY), TypeFormError,
     "the global size 12.5 of a dimension is not an integer from 0 to 2**63 - 1"),
    ((("x",), (-12,), XY), TypeFormError,
     "the global size -12 of a dimension is not an integer from 0 to 2**63 - 1"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "kind", "message"), REFUSED)
def test_a_spec_without_meaning_is_refused(arguments: Any, kind: type[RedistribError], message: str) -> None:
    with pytest.raises(RedistribError) as caught:
        from_partition_spec(*arguments)
    assert type(caught.value) is kind
    assert str(caught.value) == message


@pytest.mark.parametrize("spec", [7, "x", None, {"x": 0}])
def test_what_is_no_sequence_of_entries_is_refused(spec: Any) -> None:
    with pytest.raises(SpecError) as caught:
        from_partition_spec(spec, (12,), XY)
    assert str(caught.value) == (
        f"{spec!r} is no partition spec; give a jax.sharding.PartitionSpec, or a tuple with one entry for each "
        f"dimension: None, an axis name, or a tuple of axis names from major to minor"
    )


# --------------------------------------------------------------------------------------------- with JAX


def test_real_specs_of_jax() -> None:
    jax = pytest.importorskip("jax")
    p = jax.sharding.PartitionSpec
    assert str(from_partition_spec(p(("y", "x"), None), (48, 5), XY)) == "[2{x,y}48, 5]"
    assert str(from_partition_spec(p(), (48, 5), XY)) == "[48, 5]"
    with pytest.raises(
        SpecError,
        match=exactly(
            "entry 0 of the partition spec is UNCONSTRAINED, which leaves the cut to the compiler; say "
            "how dimension 0 is cut: None, an axis name, or a tuple of axis names"
        ),
    ):
        from_partition_spec(p(p.UNCONSTRAINED), (48,), XY)
    assert str(from_partition_spec(p("x", unreduced={"y"}), (48,), XY)) == "[12{x}48] sum{y}"
    assert str(from_partition_spec(p(unreduced={"y", "x"}), (), XY)) == "[] sum{x,y}"
    assert str(from_partition_spec(p("x", reduced={"y"}), (48,), XY)) == "[12{x}48]"


def test_specs_of_partial_types_and_back() -> None:
    jax = pytest.importorskip("jax")
    from redistrib.backends.jax.sharding import partition_spec

    p = jax.sharding.PartitionSpec
    for spec in (p("x", unreduced={"y"}), p(("y", "x"), None), p(None, "y", unreduced={"x"})):
        assert partition_spec(from_partition_spec(spec, (48, 48)[: len(spec)], XY)) == spec
    with pytest.raises(
        SpecError,
        match=exactly(
            "a partition spec that is unreduced over 'x' by the reduction 'max' cannot be said by both "
            "JAX and a distributed type; both know sums, so reduce these axes first"
        ),
    ):
        partition_spec(DistType.parse("[48] max{x}"))


def test_a_kind_of_reduction_is_read_by_its_name() -> None:
    """From 0.11 on JAX has `unreduced_kind`, an enumeration."""
    for kind in ("sum", SimpleNamespace(name="MAX"), SimpleNamespace(name="min"), None):
        spec = SimpleNamespace(partitions=("x",), unreduced={"y"}, unreduced_kind=kind)
        name = str(getattr(kind, "name", kind or "sum")).lower()
        assert str(from_partition_spec(spec, (48,), XY)) == f"[12{{x}}48] {name}{{y}}"


JAX_AGREES = """
import itertools
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from redistrib.lang.specs import from_named_sharding
from redistrib.theory.placement import placement_of

devices = np.array(jax.devices()).reshape(2, 3, 2)[:, :, ::-1]
mesh = Mesh(devices, ("x", "y", "z"))
order = list(devices.flat)
seen = 0
for rank, shape in ((1, (24,)), (2, (24, 36))):
    for places in itertools.product(range(-1, rank), repeat=3):
        cuts = [[n for n, place in zip("xyz", places) if place == i] for i in range(rank)]
        for entries in itertools.product(*(itertools.permutations(cut) for cut in cuts)):
            sharding = NamedSharding(mesh, PartitionSpec(*entries))
            dist_type, ours = from_named_sharding(sharding, shape)
            placement = placement_of(dist_type, ours)
            for device, box in sharding.devices_indices_map(shape).items():
                start = [side.start or 0 for side in box]
                number = order.index(device)
                assert start == placement.start[number].tolist(), (sharding, device)
            assert sharding.shard_shape(shape) == placement.tile
            seen += 1
print(seen)
"""


def test_a_type_places_tiles_where_jax_places_shards() -> None:
    """The order of axes is the thing: on a 2 x 3 x 2 mesh, major to minor and minor to major are different tiles."""
    pytest.importorskip("jax")
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=12", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", JAX_AGREES], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    # 3 axes in 1 or 2 dimensions, in any order inside each
    expected = sum(
        int(np.prod([max(1, [1, 1, 2, 6][places.count(i)]) for i in range(rank)]))
        for rank in (1, 2)
        for places in itertools.product(range(-1, rank), repeat=3)
    )
    assert int(done.stdout) == expected


def test_both_orders_give_different_tiles_and_ours_is_the_reverse() -> None:
    ours = from_partition_spec((("y", "x"),), (48,), XY)
    assert ours == DistType.parse("[2{x,y}48]")
    # PartitionSpec(('y', 'x')): y is major, so device (x, y) holds tile 4 * y + x
    assert placement_of(ours, XY).index[:, 0].tolist() == [4 * y + x for x in range(4) for y in range(6)]
    assert placement_of(ours, XY) != placement_of(from_partition_spec((("x", "y"),), (48,), XY), XY)


def test_a_named_sharding_gives_type_and_mesh() -> None:
    sharding = SimpleNamespace(mesh=SimpleNamespace(axis_names=("x", "y"), axis_sizes=(4, 6)), spec=("y",))
    assert from_named_sharding(sharding, (12, 5)) == (DistType.parse("[2{y}12, 5]"), XY)


def test_another_kind_of_sharding_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        from_named_sharding("SingleDeviceSharding", (12, 5))
    assert str(caught.value) == (
        "'SingleDeviceSharding' has no mesh and partition spec; give a jax.sharding.NamedSharding, "
        "the one kind of sharding that a distributed type can say"
    )
