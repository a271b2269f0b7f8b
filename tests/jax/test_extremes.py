"""Maxima and minima across devices: NaNs of both signs, both zeros and infinities, in every element type."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.extremes import across, from_ordered, ordered
from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import combined
from redistrib.plans.reference import run, scatter
from redistrib.plans.verify import verify
from tests.jax.summands import mesh_of
from tests.plans.test_extremes import KINDS, extremes, same

BYTES = [
    "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip
SHORT = [*BYTES, "bfloat16", "float16"]


def patterns(dtype: Any) -> np.ndarray:
    """Every value of a type of 16 bits at most; of longer ones some, with all that are unlike others."""
    bits = jnp.finfo(dtype).bits
    unsigned = np.dtype(f"uint{max(bits, 8)}")
    if bits <= 16:
        return np.arange(1 << bits, dtype=unsigned).view(dtype)
    drawn = np.random.default_rng(0).integers(0, 1 << bits, 2000, dtype=unsigned).view(dtype)
    return np.concatenate([drawn, extremes(dtype)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*SHORT, "float32", "float64"])
def test_integers_have_the_order_of_floats_and_give_their_bits_back(name: str, kind: Reduction) -> None:
    dtype = jnp.dtype(name)
    values = patterns(dtype)
    with jax.enable_x64(name == "float64"):
        ranks = np.asarray(ordered(jnp.asarray(values), kind))
        assert np.asarray(from_ordered(jnp.asarray(ranks), dtype, kind)).tobytes() == values.tobytes()
    assert ranks.dtype == np.dtype(f"uint{8 * dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.float64)[np.argsort(ranks, kind="stable")]
    nans = int(np.isnan(numbers).sum())
    whole = numbers[: len(numbers) - nans] if kind == "max" else numbers[nans:]
    assert not np.isnan(whole).any() and (whole[1:] >= whole[:-1]).all()
    assert (np.diff(np.signbit(whole[whole == 0]).astype(int)) <= 0).all()  # -0.0 comes first


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e5m2"])
def test_across_devices_and_on_one_the_maximum_is_one_and_the_same(name: str) -> None:
    """What `lax.max` gives on one device, an all-reduce gives, whichever devices have the two elements."""
    values = extremes(jnp.dtype(name))
    one, other = (side.ravel() for side in np.meshgrid(values, values))
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    for kind, local in (("max", lax.max), ("min", lax.min)):

        def reduced(tile: jax.Array, kind: Any = kind) -> jax.Array:
            return across(tile, kind, {"axis_name": "x"})

        there = jax.shard_map(reduced, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
        found = np.asarray(jax.jit(there)(np.stack([one, other])))[0]
        assert same(found, np.asarray(jax.jit(local)(one, other)))
        assert same(found, combined(kind, one, other))


GRID = {"x": 4, "y": 2}
ENDS = [  # all-reduce, reduce-scatter by an all-to-all, rounds, and summands from one axis to another
    ("[16, 8] {}{{y}}", "[16, 8]"),
    ("[7, 9] {}{{y}}", "[7, 9]"),
    ("[3, 5] {}{{x,y}}", "[3, 5]"),
    ("[4{{x}}16, 8] {}{{y}}", "[16, 1{{x,y}}8]"),
    ("[16, 8] {}{{x}}", "[16, 8] {}{{y}}"),
    ("[16, 8] {}{{x,y}}", "[4{{x}}16, 8] {}{{y}}"),
    ("[16, 4{{y}}8]", "[16, 8] {}{{y}}"),
    ("[] {}{{x,y}}", "[]"),
]


def stack_of(plan: rd.Plan) -> np.ndarray:
    """Summands of which about every element has one that is unlike others, at each of the devices in turn."""
    values, shape = extremes(jnp.dtype(plan.dtype)), (plan.before.summands, *plan.shape)
    rng = np.random.default_rng(0)
    common = rng.choice(values, shape)
    rare = rng.choice(np.array([1, -1, 3]), shape).astype(plan.dtype)
    return np.where(rng.random(shape) < 0.3, common, rare)


@pytest.mark.parametrize("kind", KINDS)
def test_plans_keep_nans_and_the_sign_of_zeros(kind: str) -> None:
    """As the reference does, bit by bit but for NaNs, which stay NaNs."""
    plans = [
        verify(rd.synthesize(source.format(kind), target.format(kind), GRID, dtype=dtype, order=order))
        for source, target in ENDS
        for dtype, order in (("float32", "any"), ("float32", "fixed"), ("bfloat16", "any"), ("float8_e4m3fn", "any"))
    ]
    steps = {step.kind for plan in plans if plan.shape for step in plan.steps}
    assert steps >= {"all_reduce", "reduce_scatter", "reduce_exchange", "unreduce"}
    moves = [rd.to_jax(plan, mesh_of(plan), stacked=True) for plan in plans]
    stacks = [stack_of(plan) for plan in plans]
    given = [stack if plan.source.partial else stack[0] for plan, stack in zip(plans, stacks, strict=True)]
    arrays = [jax.device_put(each, move.source_sharding) for each, move in zip(given, moves, strict=True)]
    results = jax.jit(lambda xs: [move(x) for move, x in zip(moves, xs, strict=True)])(arrays)
    for plan, each, result in zip(plans, given, results, strict=True):
        tiles = run(plan, scatter(each, plan.before))
        for shard in result.addressable_shards:
            tile = tiles[shard.device.id]
            assert same(np.asarray(shard.data).reshape(tile.shape), tile), repr(plan)
        if plan.source.partial and not plan.target.partial:
            total = each[0]
            for summand in each[1:]:
                total = combined(plan.source.reduction, total, summand)
            assert np.isnan(total.astype(np.float32)).any() or total.size < 9
            assert same(np.asarray(result), total)
