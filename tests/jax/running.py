"""Plans on JAX meshes: made by hand, compiled, and held against the interpreter."""

from collections import Counter

import jax
import numpy as np
from jax.sharding import AxisType
from jax.sharding import Mesh as JaxMesh

from redistrib.backends.jax.execute import to_jax
from redistrib.explain.profiling.inspect import inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.verify import verify
from redistrib.theory.placement import placement_of

HLO_KIND = {
    "allgather": "all-gather",
    "alltoall": "all-to-all",
    "allpermute": "collective-permute",
    "exchange": "collective-permute",
}


def jax_mesh(mesh, kind=AxisType.Auto):
    devices = np.array(jax.devices()[: mesh.size]).reshape(mesh.shape)
    return JaxMesh(devices, mesh.names, axis_types=(kind,) * len(mesh.names))


def plan_of(source, target, mesh, *steps, bound=None):
    """A plan made by hand; steps are made from the placements of source and target, and verified."""
    mesh, source, target = Mesh.of(mesh), DistType.of(source), DistType.of(target)
    before, after = placement_of(source, mesh), placement_of(target, mesh)
    made = tuple(step(before, after) for step in steps)
    plan = Plan(source, mesh, target, mesh, "float32", 4, made, "by hand", "none", 0, "elements")
    return verify(plan, bound)


def collectives_of(plan):
    counts = Counter()
    for step in plan.steps:
        if step.kind in HLO_KIND:
            counts[HLO_KIND[step.kind]] += step.collectives
    return +counts


def compiled(f):
    argument = jax.ShapeDtypeStruct(f.plan.shape, f.plan.dtype, sharding=f.source_sharding)
    return jax.jit(f).lower(argument).compile()


def check(plan, schedule="overlap"):
    """Run on numbered elements; compare every shard with a plain slice, and the HLO with the plan."""
    report = check_values(plan, schedule)
    itemsize = np.dtype(plan.dtype).itemsize
    assert report.received_bytes == itemsize * sum(plan.received)
    largest = report.largest_array({"f32"})
    tile = max(plan.source.local_size, plan.target.local_size)
    assert largest is None or largest.bytes <= itemsize * max(tile, 1)
    if schedule == "overlap":
        assert report.kinds == collectives_of(plan)
    return report


def check_values(plan, schedule):
    """Run on numbered elements and compare every shard with a plain slice; what the compiled program does."""
    f = to_jax(plan, jax_mesh(plan.source_mesh), schedule=schedule)
    whole = np.arange(np.prod(plan.shape), dtype=plan.dtype).reshape(plan.shape)
    moved = f(jax.device_put(whole, f.source_sharding))
    assert moved.sharding.is_equivalent_to(f.target_sharding, moved.ndim)
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])
    return inspect(compiled(f))
