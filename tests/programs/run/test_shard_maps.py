"""Regions of `jax.shard_map` in functions that are distributed: pinned to their specs, their bodies as written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.reference import run_by_rank
from tests.programs.run.models import whole

SIZES = {"x": 4, "y": 2}
MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = jax.make_mesh((4, 2), ("x", "y"))
RING = [(k, (k + 1) % 4) for k in range(4)]
A, W = whole(8, 4) / 16, whole(4, 4) / 16

Body = Callable[..., Any]


def mapped(body: Body, ins: Any, outs: Any, mesh: Any = MESH, **how: Any) -> Body:
    return jax.shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs, **how)  # type: ignore[no-any-return]


def summed(a: Any, w: Any) -> Any:
    """A constant of the body, a position, a sum, and a scan with a permutation in it."""
    total = lax.psum(a.sum() * lax.axis_index("x"), "x")
    turned, _ = lax.scan(lambda c, _: (lax.ppermute(c, "x", RING) * 2, None), a, None, length=3)
    return turned @ w + total + jnp.arange(4.0)


def rows(a: Any, w: Any, **how: Any) -> Any:
    return mapped(summed, (P("x"), P()), P("x"), **how)(a, w)


def ring_attention(a: Any, w: Any) -> Any:
    def body(q: Any, k: Any, v: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            k, v, top, norm, out = state
            scores = q @ k.T
            higher = jnp.maximum(top, scores.max(-1, keepdims=True))
            weights, scale = jnp.exp(scores - higher), jnp.exp(top - higher)
            norm, out = norm * scale + weights.sum(-1, keepdims=True), out * scale + weights @ v
            return (lax.ppermute(k, "x", RING), lax.ppermute(v, "x", RING), higher, norm, out), None

        start = (k, v, q[:, :1] * 0 - 1e30, q[:, :1] * 0, jnp.zeros_like(q))
        (_, _, _, norm, out), _ = lax.scan(step, start, None, length=4)
        return out / norm

    return mapped(body, (P("x"), P("x"), P("x")), P("x"))(a @ w, a, a * 2)


def collectives(a: Any, w: Any) -> Any:
    def body(a: Any) -> Any:
        gathered = lax.all_gather(a, "x", tiled=True)[:2] + lax.all_gather(a, "x").sum(0)
        exchanged = lax.all_to_all(lax.all_to_all(a, "x", 1, 0, tiled=True), "x", 0, 1, tiled=True)
        scattered = lax.psum_scatter(lax.all_gather(a, "x", axis=1, tiled=True), "x", scatter_dimension=1, tiled=True)
        return gathered + exchanged + scattered + lax.pmax(a, ("x", "y")) - lax.pmin(a, "y")

    return mapped(body, P("x"), P("x"), check_vma=False)(a) @ w


def branches(a: Any, w: Any) -> Any:
    """Collectives in branches and loops of a body, with the types that JAX has checked."""

    def body(a: Any) -> Any:
        varying = lax.pvary if not hasattr(lax, "pcast") else lambda x, axis: lax.pcast(x, axis, to="varying")
        branch = lax.cond(
            lax.psum(a.sum(), "x") > 0,
            lambda a: lax.psum(a, "x") + lax.ppermute(a, "x", RING),
            lambda a: varying(lax.psum(a * 2, "x"), "x"),
            a,
        )
        return lax.while_loop(
            lambda c: lax.psum(c.sum(), "x") < 99, lambda c: c * 2 + lax.ppermute(c, "x", RING) ** 2 + 1, branch
        )

    return mapped(body, P("x"), P("x"))(a) @ w


def nested(a: Any, w: Any) -> Any:
    def outer(a: Any) -> Any:
        def inner(b: Any) -> Any:
            return b * lax.axis_index("y") + lax.psum(b, "y")

        columns = jax.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})
        return columns(a * lax.axis_index("x"))

    return mapped(outer, P("x"), P("x"), axis_names={"x"})(a) @ w


def orders(a: Any, w: Any) -> Any:
    """Two axes that cut one dimension, the slower one first in one spec and last in another."""
    both = mapped(lambda a, b: a * lax.axis_index("x") + b, (P(("y", "x")), P(("x", "y"))), P(("y", "x")))
    return both(a, a * 3) @ w


def keys(a: Any, w: Any) -> Any:
    def body(a: Any, key: Any) -> Any:
        return a + jax.random.uniform(lax.ppermute(key, "x", RING)[0], a.shape)

    return mapped(body, (P("x"), P("x")), P("x"))(a, jax.random.split(jax.random.key(0), 4)) @ w


def partly_manual(a: Any, w: Any) -> Any:
    def body(a: Any, w: Any) -> Any:
        here = NamedSharding(jax.sharding.get_abstract_mesh(), P("y"))
        return lax.with_sharding_constraint(lax.psum(a @ w, "x"), here)

    return mapped(body, (P(None, "x"), P("x")), P(), axis_names={"x"})(a, w)


def resharded(a: Any, w: Any) -> Any:
    reshard = getattr(jax, "reshard", jax.sharding.reshard)  # since JAX 0.9
    return (reshard(a, NamedSharding(EXPLICIT, P("x"))) * 2.0) @ w


def in_a_loop(a: Any, w: Any) -> Any:
    carry, sums = lax.scan(jax.checkpoint(lambda c, _: (jnp.tanh(rows(c, w)), c.sum())), a, None, length=3)
    return carry + sums.mean() / 32  # of which no rounding matters


def in_a_branch(a: Any, w: Any) -> Any:
    return lax.cond(a.sum() > 0, lambda a: rows(a, w) + orders(a, w), lambda a: a, a)


FUNCTIONS: dict[str, Body] = {
    "rows": rows,
    "unchecked": lambda a, w: rows(a, w, check_vma=False),
    "of a jitted function that is mapped": lambda a, w: jax.vmap(jax.jit(rows), (None, 0))(a, jnp.stack([w, w * 2])),
    "two axes": mapped(lambda a, w: lax.psum(a @ w, "y"), (P("x", "y"), P("y")), P("x")),
    "a closure": lambda a, w: mapped(lambda a: a @ w + lax.pmean(a, "x"), P("x"), P("x"))(a),
    "nothing": lambda a, w: mapped(lambda a: a * 2, P("x"), P("x"))(a[:0]) @ w,
    "pmap": lambda a, w: jax.pmap(lambda r: r / lax.psum(r, "i"), axis_name="i")(a + 1) @ w,
    "moved by the library": lambda a, w: rd.reshard(
        a, NamedSharding(MESH, P("x")), source=NamedSharding(MESH, P(None, "y"))
    ) @ w,
    **{one.__name__: one for one in (
        branches, collectives, in_a_branch, in_a_loop, keys, nested, orders, partly_manual, resharded, ring_attention,
    )},
}  # fmt: skip
GRADIENTS = ("rows", "unchecked", "two axes", "in_a_loop", "in_a_branch", "ring_attention", "moved by the library")
# No schedule, axes that agree with the specs, and those that do not.
SCHEDULES = ((), (rd.along("x", {"a": 0}), rd.along("y", {"a": 1})), (rd.along("y", {"a": 0}), rd.along("x", {"a": 1})))


def check(function: Body, schedule: Any, mesh: Any = None) -> None:
    f = rd.distribute(function, (A, W), mesh or SIZES, schedule=schedule)
    with jax.set_mesh(EXPLICIT) if function is resharded else jax.default_device(None):
        wanted = jax.jit(function)(A, W)
    assert f.opaque == ()
    for found, want in zip(jax.tree.leaves(f(A, W)), jax.tree.leaves(wanted), strict=True):
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["branches", "collectives", "in_a_branch", "keys", "nested", "orders", "resharded"])
def test_a_region_computes_what_it_does_under_jit(name: str) -> None:
    check(FUNCTIONS[name], SCHEDULES[1])


def test_the_gradient_of_ring_attention() -> None:
    check(_gradient("ring_attention"), SCHEDULES[1])


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES, ids=["none", "as the specs", "otherwise"])
@pytest.mark.parametrize("name", [*FUNCTIONS, *(f"gradient of {name}" for name in GRADIENTS)])
def test_regions_under_other_schedules(name: str, schedule: Any) -> None:
    check(FUNCTIONS[name] if name in FUNCTIONS else _gradient(name.removeprefix("gradient of ")), schedule)


@pytest.mark.parametrize("mesh", [{"data": 4, "model": 2}, {"a": 2, "b": 2, "y": 2}], ids=str)
def test_axes_of_other_names_stand_for_those_of_a_region(mesh: dict[str, int]) -> None:
    check(lambda a, w: in_a_branch(a, w) + nested(a, w), (), mesh)


def test_a_region_over_fewer_devices_runs_on_each_of_their_copies() -> None:
    four = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4], axis_types=(AxisType.Auto,))
    function = mapped(lambda a: a * lax.axis_index("x"), P("x"), P("x"), mesh=four)
    f = rd.distribute(function, (A,), SIZES)
    np.testing.assert_array_equal(f(A), np.asarray(jax.jit(function)(A)))


def test_what_a_region_costs_and_where_it_is_cut() -> None:
    """An axis that is not manual cuts what it can cut inside, and no work is repeated."""
    f = rd.distribute(partly_manual, (A, W), SIZES, schedule=rd.along("y", {"a": 0}))
    assert not f.program.moves
    assert f.in_shardings[0].spec == P("y", "x")
    assert f.program.flops == 2 * 4 * 4 * 1 + 4 * 4  # of 4 of the 8 rows, a product of one column, and a copy
    assert " ".join(str(f).split()).endswith("runs as it is written: what it moves by itself is not counted")
    found = rd.search(rows, (A, W), SIZES)
    np.testing.assert_allclose(found.distributed(A, W), jax.jit(rows)(A, W), rtol=1e-5)


def shown(a: Any) -> Any:
    jax.debug.print("{}", a.sum())
    return a


def mapped_loop(a: Any) -> Any:
    varying = mapped(
        lambda a: jax.vmap(lambda r: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, r))(a + 1), P("x"), P("x")
    )
    return varying(a)


@pytest.mark.parametrize(
    ("function", "mesh", "said"),
    [
        (
            lambda a: rows(a, W), {"x": 2, "y": 3},
            "operation 'shard_map': it is over the mesh {'x': 4, 'y': 2}, and the function is distributed over "
            "{'x': 2, 'y': 3}; give a mesh with axes of these sizes, or write the region without jax.shard_map and "
            "jax.pmap",
        ),
        (
            mapped(shown, P("x"), P("x")), SIZES,
            "operation 'shard_map': its body has an effect, which each device would have by itself; take it out of the "
            "body",
        ),
    ],
    ids=["sizes", "effect"],
)  # fmt: skip
def test_regions_that_are_refused(function: Body, mesh: dict[str, int], said: str) -> None:
    with pytest.raises(ProgramError) as caught:
        rd.distribute(function, (A,), mesh)
    assert str(caught.value).endswith(said)


def test_a_loop_with_a_condition_for_each_row_is_right_or_refused() -> None:
    try:
        f = rd.distribute(mapped_loop, (A,), SIZES)
    except ProgramError as error:
        assert str(error).endswith(
            "operation 'while': in a region of jax.shard_map it has a condition for each row that jax.vmap maps over; "
            "map the region instead, or go on while any row does"
        )
    else:
        np.testing.assert_array_equal(f(A), jax.jit(mapped_loop)(A))


def test_a_pipeline_and_a_run_rank_by_rank_refuse_regions() -> None:
    with pytest.raises(ProgramError, match="over no mesh with names"):
        rd.pipeline(lambda w, a: rows(a, w).sum(), (W, A), {"a": 0}, rd.Layout(1, 1, 2, 2))
    program = rd.distribute(rows, (A, W), SIZES).program
    with pytest.raises(ProgramError, match="call the distributed function"):
        run_by_rank(program, [np.asarray(A), np.asarray(W)])


def _gradient(name: str) -> Body:
    return jax.grad(lambda a, w: jnp.sin(FUNCTIONS[name](a, w)).sum(), argnums=(0, 1))
