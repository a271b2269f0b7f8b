"""The table of primitives is current, and gradients of every case are those of `jit`, cut along each dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.rules.equation import RULES
from tests.programs.rules import primitive_table
from tests.programs.rules.primitives import CASES, MORE

ALL = {**CASES, **MORE}
NO_GRADIENT = {  # JAX does not differentiate these
    "windows of any function", "reduce by any function", "eig", "hessenberg", "schur", "reduce_xor",
    "symmetric_product", "tridiagonal", "cumlogsumexp",
}  # fmt: skip


def test_the_page_of_primitives_is_as_it_is_drawn() -> None:
    kept = primitive_table.PAGE.read_text()
    if f"JAX {jax.__version__} has" not in kept:
        pytest.skip("the page is drawn with another version of JAX")
    assert primitive_table.page() == kept, "python -m tests.programs.rules.primitive_table draws it anew"


def test_every_rule_is_on_the_page() -> None:
    kept = primitive_table.PAGE.read_text()
    assert [kind for kind in RULES if f"`{kind}`" not in kept] == []


def _gradient(function: Any) -> Any:
    """The gradient of a sum of what a function makes, with respect to its first argument."""

    def total(*args: Any) -> Any:
        made = [leaf for leaf in jax.tree.leaves(function(*args)) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return sum(
            jnp.sum(leaf * jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)) for leaf in made
        )

    return jax.grad(total)


def _differentiable() -> list[str]:
    found = []
    for name, (function, args) in ALL.items():
        if args and np.asarray(args[0]).dtype == np.float32 and name not in NO_GRADIENT and "backward" not in name:
            made = jax.tree.leaves(jax.eval_shape(function, *args))
            found += [name] if any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in made) else []
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", _differentiable())
def test_gradients_are_those_of_jit_along_each_dimension(name: str) -> None:
    function, args = ALL[name]
    gradient = _gradient(function)
    wanted = np.asarray(jax.jit(gradient)(*args))
    for dim, size in enumerate(np.shape(args[0])):
        if size % 2 == 0:
            f = rd.distribute(gradient, args, {"d": 2}, schedule=[rd.along("d", {"arg0": dim})])
            np.testing.assert_allclose(f(*args), wanted, rtol=2e-4, atol=2e-4, err_msg=f"{name}, dimension {dim}")


def test_a_reshaped_constant_is_moved_where_it_cannot_be_made_as_it_is_cut() -> None:
    """Its rows lie side by side in the constant, so half of every row is no tile of that."""
    x = np.ones((4, 6), np.float32)
    f = rd.distribute(
        lambda x: x * jnp.cos(jnp.arange(24.0)).reshape(4, 6), (x,), {"d": 2}, schedule=rd.along("d", {"x": 1})
    )
    np.testing.assert_allclose(f(x), np.cos(np.arange(24.0)).reshape(4, 6), rtol=1e-5)


def test_a_rule_in_a_line_says_what_does_not_fit() -> None:
    x = np.ones((4, 6), np.float32)

    def refused(spec: str, function: Any, **how: Any) -> str:
        with pytest.raises(ProgramError) as caught:
            rd.distribute(function, (x,), {"d": 2}, rules={"sort": rd.rule(spec), "twice": rd.rule(spec, **how)})
        return str(caught.value)

    @jax.jit
    def twice(x: Any) -> Any:
        return x * 2

    assert "not one arrow" in refused("a b", jnp.sin)
    assert "c of a result" in refused("a b -> a c", jnp.sin)
    assert "dimensions, and the operation of [2]" in refused("a -> a", jax.lax.sort)
    pair = lambda x: jax.lax.sort((x, x))  # noqa: E731
    assert "one name to dimensions of unequal sizes" in refused("a b, b a -> a b, b a", pair)
    assert "give run=" in refused("a b -> a b", twice)


def test_a_rule_in_a_line_cuts_and_combines() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)

    @jax.jit
    def largest(x: Any) -> Any:
        return jnp.max(jnp.sort(x, 0), 0)

    rules = {"largest": rd.rule("a b -> b", run=largest, combine="max")}
    for dim in (0, 1):
        f = rd.distribute(largest, (x,), {"d": 2}, schedule=rd.along("d", {"x": dim}), rules=rules)
        assert f.opaque == ()
        assert all(move.plan.source.partial for move in f.program.moves)
        np.testing.assert_array_equal(f(x), x[-1])


def test_a_primitive_made_of_others_is_replaced_and_one_of_the_host_runs_whole_by_name() -> None:
    x = np.ones((16, 8), np.float32)
    made, host = Primitive("made_of_others"), Primitive("of_the_host")
    made.def_impl(lambda x: jnp.cumsum(x, 1))
    mlir.register_lowering(made, mlir.lower_fun(lambda x: jnp.cumsum(x, 1), multiple_results=False))
    host.def_impl(lambda x: np.cumsum(np.asarray(x), 1))
    lowered = mlir.lower_fun(lambda x: jnp.cumsum(x, 1), multiple_results=False)
    mlir.register_lowering(host, lambda context, *operands: lowered(context, *operands))
    found = {}
    for primitive in (made, host):
        primitive.def_abstract_eval(lambda x: jax.core.ShapedArray(x.shape, x.dtype))
        f = rd.distribute(lambda x, one=primitive: one.bind(x), (x,), {"d": 4}, schedule=rd.along("d", {"x": 0}))
        np.testing.assert_array_equal(f(x), np.cumsum(x, 1))
        found[primitive.name] = (f.program.received_bytes, [why for _, _, why in f.opaque])
    assert found == {"made_of_others": (0, []), "of_the_host": (3 * x.nbytes, ["no rule for of_the_host"])}


def test_products_in_groups_are_cut_by_groups_and_by_rows() -> None:
    """A mixture of experts: nothing moves where rows are cut, and partial sums where experts are."""
    x, w, groups = np.ones((16, 4), np.float32), np.ones((8, 4, 6), np.float32), np.full(8, 2, np.int32)
    received = {}
    for name in ("x", "w"):
        f = rd.distribute(
            lambda x, w, groups: jax.lax.ragged_dot(x, w, groups),
            (x, w, groups),
            {"d": 4},
            schedule=rd.along("d", {name: 0}),
        )
        np.testing.assert_array_equal(f(x, w, groups), np.full((16, 6), 4, np.float32))
        received[name] = f.program.received_bytes
    assert received == {"x": 0, "w": 2 * 3 * 16 * 6 * 4}


@pytest.mark.parametrize("experts", [4, 8])
def test_a_device_multiplies_by_its_own_matrices_and_no_others(experts: int) -> None:
    """Not by a group of zeros for the rows of others: where every group multiplies all rows, that is work."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(16, 6)).astype(np.float32), rng.normal(size=(experts, 6, 5)).astype(np.float32)
    groups = np.array([3, 0, 4, *[1] * (experts - 3)], np.int32)
    groups[-1] = 14 - groups[:-1].sum()  # two rows are in no group

    def both(x: Any, w: Any, groups: Any) -> Any:
        of_sum = jax.grad(lambda x, w: jax.lax.ragged_dot(x, w, groups).sum(), argnums=1)
        return jax.lax.ragged_dot(x, w, groups), of_sum(x, w)

    f = rd.distribute(both, (x, w, groups), {"d": 4}, schedule=rd.along("d", {"w": 0}))
    matrices = {eqn.invars[1].aval.shape for eqn in _products(jax.make_jaxpr(f)(x, w, groups).jaxpr)}
    assert (experts // 4, 6, 5) in matrices
    assert all(shape[0] in (experts // 4, 16) for shape in matrices)
    for ours, theirs in zip(f(x, w, groups), jax.jit(both)(x, w, groups), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def _products(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        if eqn.primitive.name.startswith("ragged_dot"):
            yield eqn
        for inner in jax.core.jaxprs_in_params(eqn.params):
            yield from _products(inner)


@pytest.mark.long
def test_gamma_variates_are_those_of_the_function_wherever_they_are_cut() -> None:
    key, alpha = jax.random.key(1), np.linspace(0.3, 4, 32, dtype=np.float32).reshape(8, 4)
    function = jax.jit(lambda key, alpha: jax.random.gamma(key, alpha))
    for dim in (0, 1):
        f = rd.distribute(function, (key, alpha), {"d": 4}, schedule=rd.along("d", {"alpha": dim}))
        assert f.opaque == ()
        np.testing.assert_allclose(f(key, alpha), function(key, alpha), rtol=1e-6)
