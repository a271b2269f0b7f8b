"""`reshard` inside jit, under differentiation, in checkpoint and scan bodies, held against XLA's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError, MemoryLimitError, RedistribError, TracedError
from redistrib.explain.profiling.inspect import inspect
from redistrib.resharding import entry, traced_move
from redistrib.resharding.actions import SourceTarget
from redistrib.resharding.planning import Planner
from redistrib.theory.topology import Topology
from tests.messages import exactly

from .cases import TreeCase, bits, jax_mesh, same_shards, tree_cases, tree_of

KINDS = [AxisType.Auto, AxisType.Explicit]


class Setting:
    """Source and target shardings over one or two meshes, and an array at the source."""

    def __init__(self, kind: AxisType, two_meshes: bool) -> None:
        self.kind = kind
        grid = jax_mesh((("a", 2), ("b", 4)), tuple(range(8)), kind)
        line = jax_mesh((("x", 8),), tuple(range(8)), kind)
        self.source = NamedSharding(line, P("x")) if two_meshes else NamedSharding(grid, P("a", "b"))
        self.target = NamedSharding(grid, P("b", "a"))
        self.values = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
        self.array = jax.device_put(self.values, self.source)

    def there(self, x: jax.Array) -> jax.Array:
        return rd.reshard(x, self.target, source=self.source if self.kind == AxisType.Auto else None)

    def back(self, x: jax.Array) -> jax.Array:
        return rd.reshard(x, self.source, source=self.target if self.kind == AxisType.Auto else None)

    def loss(self, x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(self.there(x)) * jnp.arange(8.0))


def xla_loss(x: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(x) * jnp.arange(8.0))


@pytest.fixture(params=[(kind, two) for kind in KINDS for two in (False, True)], ids=str)
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(*request.param)


def test_values_and_sharding(setting: Setting) -> None:
    moved = jax.jit(setting.there)(setting.array)
    assert moved.sharding.is_equivalent_to(setting.target, 2)
    assert same_shards(moved, jax.device_put(setting.values, setting.target))


def test_forward_mode(setting: Setting) -> None:
    tangent = jax.device_put(setting.values[::-1] * 2, setting.source)
    for transform in (lambda f: f, jax.checkpoint):
        loss = transform(setting.loss)
        ours = jax.jit(lambda x, t, f=loss: jax.jvp(f, (x,), (t,)))(setting.array, tangent)
        theirs = jax.jvp(xla_loss, (setting.values,), (setting.values[::-1] * 2,))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_reverse_mode(setting: Setting) -> None:
    expected = jax.grad(xla_loss)(setting.values)
    for transform in (lambda f: f, jax.checkpoint):
        gradient = jax.jit(jax.grad(transform(setting.loss)))(setting.array)
        np.testing.assert_array_equal(gradient, expected)
        assert gradient.sharding.is_equivalent_to(setting.source, 2)


def test_vjp_moves_the_cotangent_bit_for_bit(setting: Setting) -> None:
    cotangent = jax.device_put(setting.values * 3, setting.target)
    moved = jax.jit(lambda x, ct: jax.vjp(setting.there, x)[1](ct)[0])(setting.array, cotangent)
    assert same_shards(moved, jax.device_put(setting.values * 3, setting.source))


def test_forward_over_reverse(setting: Setting) -> None:
    ours = jax.jit(lambda x: jax.jvp(jax.grad(setting.loss), (x,), (x,))[1])(setting.array)
    theirs = jax.jvp(jax.grad(xla_loss), (setting.values,), (setting.values,))[1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_scan_body(setting: Setting) -> None:
    def steps(x: jax.Array, move: Callable[[jax.Array], jax.Array]) -> jax.Array:
        def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return move(carry), None

        return jnp.sum(jax.lax.scan(body, x, None, length=3)[0] * jnp.arange(8.0))

    ours = jax.value_and_grad(lambda x: steps(x, lambda c: setting.back(jnp.sin(setting.there(c)))))
    theirs = jax.value_and_grad(lambda x: steps(x, jnp.sin))
    for f in (
        ours,
        jax.value_and_grad(jax.checkpoint(lambda x: steps(x, lambda c: setting.back(jnp.sin(setting.there(c)))))),
    ):
        value, gradient = jax.jit(f)(setting.array)
        expected = jax.jit(theirs)(setting.values)
        np.testing.assert_allclose(value, expected[0], rtol=1e-5)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-5)


def test_vmap(setting: Setting) -> None:
    whole = NamedSharding(setting.source.mesh, P(None, *setting.source.spec))
    stacked = jax.device_put(np.stack([setting.values, setting.values * 2]), whole)
    np.testing.assert_array_equal(jax.jit(jax.vmap(setting.there))(stacked), stacked)


def test_the_derivative_is_a_synthesized_plan() -> None:
    """Sequence to head parallel and back: one all-to-all each way, where XLA's own takes its choice."""
    setting = Setting(AxisType.Auto, two_meshes=False)
    rd.clear_caches()
    cotangent = jax.device_put(setting.values, setting.target)
    back = jax.jit(lambda x, ct: jax.vjp(setting.there, x)[1](ct)[0], out_shardings=setting.source)
    compiled = back.lower(setting.array, cotangent).compile()
    plan = rd.synthesize(setting.target, setting.source, shape=(16, 8), machine="cpu")
    kinds = {"alltoall": "all-to-all", "exchange": "collective-permute", "allpermute": "collective-permute"}
    assert set(inspect(compiled).kinds) == {kinds[step.kind] for step in plan.steps}
    assert rd.cache_info()["plans"].size == 2


def test_eager_differentiation_needs_no_source() -> None:
    setting = Setting(AxisType.Auto, two_meshes=True)
    gradient = jax.grad(lambda x: jnp.sum(jnp.sin(rd.reshard(x, setting.target)) * jnp.arange(8.0)))(setting.array)
    np.testing.assert_allclose(gradient, jax.grad(xla_loss)(setting.values), rtol=1e-6)


NEEDS_A_PLAN: dict[str, dict[str, Any]] = {
    "memory_limit=": {"memory_limit": "1MiB"},
    "logical_shape=": {"logical_shape": (7, 8)},
    "memory_limit= and logical_shape=": {"memory_limit": "1MiB", "logical_shape": (7, 8)},
}


@pytest.mark.parametrize("wanted", NEEDS_A_PLAN)
def test_what_needs_a_plan_needs_a_source_on_auto_axes(wanted: str) -> None:
    setting = Setting(AxisType.Auto, two_meshes=False)
    told = (
        f"under jit on a mesh of Auto axes XLA chooses where this array lies, and {wanted} needs a plan from there; "
        "say it with source=, a sharding or a tree of them, or use a mesh of Explicit axes"
    )
    options = NEEDS_A_PLAN[wanted]
    with pytest.raises(TracedError, match=exactly(told)):
        jax.jit(lambda x: rd.reshard(x, setting.target, **options))(setting.array)
    nested = {name: {"w": value} if name == "logical_shape" else value for name, value in options.items()}
    with pytest.raises(LeafError, match=exactly("leaf w: " + told)):
        jax.jit(lambda x: rd.reshard({"w": x}, setting.target, **nested))(setting.array)


def test_an_uneven_target_is_refused_where_xla_moves_too() -> None:
    setting = Setting(AxisType.Auto, two_meshes=False)
    with pytest.raises(RedistribError, match="7"):
        jax.jit(lambda x: rd.reshard(x[:7], setting.target))(setting.array)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [P(None, None, "x"), P("x"), P("x", "x"), P("z")], ids=str)
def test_shardings_that_do_not_fit_are_refused_in_the_same_words_everywhere(kind: AxisType, spec: P) -> None:
    mesh, tree = jax.make_mesh((4,), ("x",), axis_types=(kind,)), {"w": jnp.ones((7, 8))}
    said = []
    for call in (
        lambda: rd.reshard(tree, spec, mesh=mesh),
        lambda: rd.reshard_plan(tree, spec, mesh=mesh),
        lambda: rd.reshard(tree, spec, mesh=mesh, through=lambda tree: tree),
        lambda: jax.jit(lambda tree: rd.reshard(tree, spec, mesh=mesh))(tree),
        lambda: jax.grad(lambda tree: rd.reshard(tree, spec, mesh=mesh)["w"].sum())(tree),
    ):
        with pytest.raises(LeafError, match="leaf w: ") as caught:
            call()
        said.append(str(caught.value))
    assert len(set(said)) == 1


def test_trees_and_prefixes_inside_jit() -> None:
    setting = Setting(AxisType.Auto, two_meshes=True)
    tree = {"a": setting.array, "b": [setting.array, jax.device_put(np.arange(16), setting.source)]}
    rows = NamedSharding(setting.target.mesh, P("b"))
    shardings = {"a": setting.target, "b": rows}
    moved = jax.jit(lambda t: rd.reshard(t, shardings, source={"a": setting.source, "b": setting.source}))(tree)
    assert all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(moved), jax.tree.leaves(tree), strict=True))
    assert moved["a"].sharding.is_equivalent_to(setting.target, 2)
    assert all(leaf.sharding.is_equivalent_to(rows, leaf.ndim) for leaf in moved["b"])


def test_another_device_order_is_refused_inside_jit() -> None:
    setting = Setting(AxisType.Auto, two_meshes=False)
    turned = NamedSharding(jax_mesh((("a", 2), ("b", 4)), (1, 0, 2, 3, 4, 5, 6, 7)), P("b"))
    with pytest.raises(
        TracedError,
        match=exactly(
            "inside one jit all meshes have the same devices in the same order, and these have [0, "
            "1, 2, 3, 4, 5, 6, 7] and [1, 0, 2, 3, 4, 5, 6, 7]; call redistrib.reshard outside "
            "jit, where the order of devices is free"
        ),
    ):
        jax.jit(lambda x: rd.reshard(x, turned, source=setting.source))(setting.array)


def test_donation_is_refused_inside_jit() -> None:
    setting = Setting(AxisType.Explicit, two_meshes=False)
    with pytest.raises(
        TracedError,
        match=exactly(
            "donate=True has no meaning for a traced array, whose memory belongs to the compiled "
            "function; donate the arguments of that function with jax.jit(..., donate_argnums=...)"
        ),
    ):
        jax.jit(lambda x: rd.reshard(x, setting.target, donate=True))(setting.array)


def test_memory_limit_inside_jit() -> None:
    setting = Setting(AxisType.Explicit, two_meshes=False)
    with pytest.raises(
        rd.RedistribError,
        match=exactly("no plan fits in 64 bytes per device; the least memory_limit that one fits is 160 bytes"),
    ):
        jax.jit(lambda x: rd.reshard(x, setting.target, memory_limit=64))(setting.array)
    moved = jax.jit(lambda x: rd.reshard(x, setting.target, memory_limit=2048))(setting.array)
    assert np.array_equal(moved, setting.values)


def test_the_way_back_keeps_the_memory_limit_too() -> None:
    mesh = jax_mesh((("x", 8),), tuple(range(8)))
    source, target = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
    array = jax.device_put(np.zeros((64, 64), np.float32), source)

    def kinds(limit: int | None) -> set[str]:
        back = jax.jit(
            lambda x, ct: jax.vjp(lambda x: rd.reshard(x, target, source=source, memory_limit=limit), x)[1](ct)[0],
            out_shardings=source,
        )
        return set(inspect(back.lower(array, rd.reshard(array, target)).compile()).kinds)

    assert kinds(None) == {"all-to-all"}
    with pytest.raises(MemoryLimitError) as caught:
        kinds(1)
    assert kinds(caught.value.least) == {"collective-permute"}


def test_abstract_meshes_are_enough_inside_jit() -> None:
    setting = Setting(AxisType.Explicit, two_meshes=True)
    abstract = NamedSharding(setting.target.mesh.abstract_mesh, P("b", "a"))
    moved = jax.jit(lambda x: rd.reshard(x, abstract))(setting.array)
    assert same_shards(moved, jax.device_put(setting.values, setting.target))


@pytest.mark.parametrize("shapes", [((2, 6), (6, 2)), ((4, 2), (2, 4)), ((2, 6), (3, 4)), ((8,), (2, 4))], ids=str)
def test_two_meshes_of_auto_axes_without_out_shardings(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Cuts that axes of the source's mesh cannot make, which XLA by itself gathers or JAX cannot name."""
    devices = tuple(reversed(range(math.prod(shapes[0]))))
    before, after = (
        jax_mesh(tuple(zip(names, shape, strict=False)), devices)
        for names, shape in zip(("xy", "ab"), shapes, strict=True)
    )
    source = NamedSharding(before, P("x"))
    array = jax.device_put(np.arange(24.0 * 24).reshape(24, 24), source)
    for spec in (P("a"), P("b"), P("a", "b"), P(None, ("b", "a"))):
        target = NamedSharding(after, spec)
        moved = jax.jit(lambda x, to=target: rd.reshard(x, to, source=source))(array)
        assert same_shards(moved, jax.device_put(np.asarray(array), target)), spec


def test_an_array_without_elements_has_its_target(setting: Setting) -> None:
    """Of axes that are Auto XLA does not say how it lies, as there is nothing to lie."""
    nothing = np.zeros((8, 0), np.float32)
    moved = jax.jit(setting.there)(jax.device_put(nothing, setting.source))
    assert moved.shape == (8, 0)
    if setting.kind == AxisType.Explicit:
        assert same_shards(moved, jax.device_put(nothing, setting.target))


@pytest.mark.parametrize("inside", [False, True])
def test_specs_that_do_not_fit_are_shown_whole(inside: bool) -> None:
    setting = Setting(AxisType.Explicit, two_meshes=False)
    mesh = jax_mesh((("one", 1), ("b", 8)), tuple(range(8)), AxisType.Explicit)

    def move(tree: Any) -> Any:
        return rd.reshard(tree, NamedSharding(mesh, P("one", "b")))

    with pytest.raises(LeafError) as caught:
        (jax.jit(move) if inside else move)({"w": jax.device_put(np.zeros((8, 4), np.float32), setting.source)})
    assert str(caught.value) == (
        "leaf w: dimension 1 has 4 elements, which axis 'b' cannot cut into 8 equal tiles; take other axes, or pad "
        "the dimension to 8 (P('one', 'b') on mesh {one:1, b:8}, for shape (8, 4))"
    )


def test_partition_spec_under_set_mesh_inside_jit() -> None:
    setting = Setting(AxisType.Explicit, two_meshes=False)
    with jax.set_mesh(setting.target.mesh):
        moved = jax.jit(lambda x: rd.reshard(x, P("b", "a")))(setting.array)
    assert same_shards(moved, jax.device_put(setting.values, setting.target))


@pytest.mark.parametrize("kind", KINDS)
def test_random_trees_inside_jit(kind: AxisType) -> None:
    """Many leaves between two meshes of one device order, in one compiled function."""
    leaves = 0

    @settings(max_examples=8, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(tree_cases((4, 6, 8, 12), 12, orders=False))
    def check(case: TreeCase) -> None:
        nonlocal leaves
        values, arrays, shardings = tree_of(case, kind)
        sources = {name: array.sharding for name, array in arrays.items()}
        source: Any = sources if kind == AxisType.Auto else None
        moved = jax.jit(lambda t: rd.reshard(t, shardings, source=source))(arrays)
        for name, array in moved.items():
            assert np.array_equal(bits(array), bits(values[name])), (name, case)
            assert values[name].size == 0 or array.sharding.is_equivalent_to(shardings[name], array.ndim)
            assert array.aval.weak_type == arrays[name].aval.weak_type
            leaves += 1

    check()
    assert leaves >= 8 * 12


def test_hosts_are_those_that_either_mesh_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of abstract meshes nothing tells the hosts; where both do, they are those of one program and the same."""
    setting = Setting(AxisType.Explicit, two_meshes=True)
    known: dict[Any, Topology | None] = {}
    met: list[Topology | None] = []

    class Asking(Planner):
        def plan(self, ends: SourceTarget, *rest: Any) -> Any:
            met.append(ends.topology)
            return super().plan(ends, *rest)

    monkeypatch.setattr(traced_move, "topology_of_mesh", lambda mesh: known[mesh.axis_names])
    monkeypatch.setattr(entry, "Planner", Asking, raising=True)
    low, high = Topology.consecutive(8, 2), Topology.consecutive(8, 4)
    for source, target, found in ((low, None, low), (None, high, high), (low, high, low), (None, None, None)):
        known |= {("x",): source, ("a", "b"): target}
        met.clear()
        jax.clear_caches()
        moved = jax.jit(setting.there)(setting.array)
        assert met[:1] == [found]
        np.testing.assert_array_equal(moved, setting.values)
