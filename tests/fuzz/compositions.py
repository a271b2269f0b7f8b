"""`reshard` of trees in functions under compositions of JAX's transformations, where meshes of all kinds are set.

The result is that of the same function without moves; what JAX refuses to do there, with arrays that do not move or
with its own moves, is not asked of the library.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.errors import RedistribError
from tests.fuzz.guard import Failure, place
from tests.fuzz.trees import draw_spec
from tests.reshard.cases import jax_mesh
from tests.seams.transformations import Function, composed, compositions

AXES = ((("a", 2), ("b", 2)), (("x", 4),), (("a", 4),), (("b", 2), ("a", 2)))
SHAPES = ((4, 4), (8, 4), (8,), (4, 2, 8))
CONTEXTS = ("none", "the same", "the target's", "another Auto", "another Explicit")
NAMES = tuple(compositions(3))
LEAVES: dict[str, Function] = {
    "same": lambda x: x,
    "sine": jnp.sin,
    "double": lambda x: 2 * x,
    "sums": lambda x: x.sum(0),
}
Move = Callable[[Any, Any, Any], Any]  # a tree, where it goes, and where it is


@dataclass(frozen=True)
class Composition:
    """Trees that go there and back inside a function.

    Attributes:
        names: of the transformations, outermost first.
        leaves: what they are made by.
        source: where the argument is.
        targets: of the leaves.
        context: one of `CONTEXTS`.
        says: whether the moves are told where the leaves are.
    """

    names: tuple[str, ...]
    leaves: tuple[str, ...]
    shape: tuple[int, ...]
    source: NamedSharding
    targets: tuple[NamedSharding, ...]
    context: str
    says: bool

    def function(self, move: Move) -> Function:
        """Under all transformations."""
        targets = dict(zip(self.leaves, self.targets, strict=True))
        sources = {
            name: NamedSharding(self.source.mesh, PartitionSpec(*self.source.spec[name == "sums" :]))
            for name in self.leaves
        }

        def run(x: Any) -> Any:
            there = move({name: LEAVES[name](x) for name in self.leaves}, targets, sources if self.says else None)
            back = move(jax.tree.map(jnp.sin, there), sources, targets if self.says else None)
            return sum(back.values(), x)

        return composed(self.names, run)

    def set(self) -> Any:
        """The context, to be entered."""
        kinds = {"another Auto": AxisType.Auto, "another Explicit": AxisType.Explicit}
        if self.context in kinds:
            return jax.set_mesh(jax_mesh((("z", 4),), tuple(range(4)), kinds[self.context]))
        meshes = {"the same": self.source.mesh, "the target's": self.targets[0].mesh}
        return jax.set_mesh(meshes[self.context]) if self.context in meshes else nullcontext()

    def __str__(self) -> str:
        ends = f"{self.source.spec} on {_told(self.source.mesh)}, {[target.spec for target in self.targets]}"
        said = f"{list(self.leaves)} of {list(self.shape)} from {ends} on {_told(self.targets[0].mesh)}"
        return f"{' of '.join(self.names) or 'eager'}, {said}, set {self.context}{', sources given' * self.says}"


def check(seed: int, index: int) -> str:
    """Run the function of this number: "agrees", "refused" by an error of the library, or "not run by JAX".

    Raises:
        Failure: if it computes something else, or anything but a `RedistribError` comes out where JAX has a result.
    """
    composition = drawn(seed, index)
    batches = (2,) * composition.names.count("vmap")
    values = np.random.default_rng(index).normal(size=(*batches, *composition.shape)).astype(np.float32)
    x = jax.device_put(
        values,
        NamedSharding(composition.source.mesh, PartitionSpec(*(None for _ in batches), *composition.source.spec)),
    )
    stays = composition.function(lambda tree, *_: tree)
    expected = np.asarray(stays(values))
    with composition.set():
        unmoved = _result(stays, x)
        if unmoved is None:
            return "not run by JAX"
        try:
            result = composition.function(lambda tree, there, here: rd.reshard(tree, there, source=here))(x)
            jax.block_until_ready(result)
        except RedistribError as error:
            if not str(error):
                raise Failure("wrong", f"{type(error).__name__} without a text", case=str(composition)) from error
            return "refused"
        except Exception as error:
            if _result(composition.function(_moved_by_jax), x) is None:
                return "not run by JAX"
            detail = f"{type(error).__name__}: {str(error)[:200]}"
            raise Failure("exception", detail, place(error), str(composition)) from error
    found = np.asarray(result)
    if found.shape != expected.shape or not (
        np.allclose(found, expected, rtol=1e-4, atol=1e-5) or _is_as_exact(found, (expected, unmoved), stays, values)
    ):
        raise Failure("wrong", "other numbers", case=str(composition))
    return "agrees"


def _is_as_exact(found: Any, unmoved: Sequence[Any], stays: Function, values: Any) -> bool:
    """Whether a result is as near to that in float64 as those without moves, of the whole argument and of the cut one:
    some functions lose digits, and others where sums are added in another order."""
    with jax.enable_x64(True):
        exact = np.asarray(stays(values.astype(np.float64)))
    return bool(abs(found - exact).max() <= 2 * max(abs(result - exact).max() for result in unmoved))


def _result(function: Function, x: Any) -> Any:
    """What JAX computes; None where it does not."""
    try:
        return np.asarray(function(x))
    except Exception:
        return None


def _moved_by_jax(tree: Any, there: Any, _: Any) -> Any:
    def move(leaf: Any, to: NamedSharding) -> Any:
        if AxisType.Explicit in to.mesh.axis_types:
            return jax.sharding.reshard(leaf, to)
        return jax.lax.with_sharding_constraint(leaf, to)

    return jax.tree.map(move, tree, there)


def drawn(seed: int, index: int) -> Composition:
    """The composition of this number; always the same one."""
    rng = random.Random(f"composition/{seed}/{index}")
    kind = rng.choice((AxisType.Auto, AxisType.Auto, AxisType.Explicit))
    before = jax_mesh(rng.choice(AXES), tuple(range(4)), kind)
    after = before if rng.random() < 0.4 else jax_mesh(rng.choice(AXES), tuple(range(4)), kind)
    shape = rng.choice(SHAPES)
    leaves = tuple(rng.sample(sorted(LEAVES), rng.choice((1, 2, 3))))
    source = NamedSharding(before, draw_spec(rng, shape, before))
    targets = tuple(NamedSharding(after, draw_spec(rng, shape[name == "sums" :], after)) for name in leaves)
    length = rng.choice((0, 1, 2, 3, 3))
    names = rng.choice([names for names in NAMES if len(names) == length])
    return Composition(names, leaves, shape, source, targets, rng.choice(CONTEXTS), rng.random() < 0.8)


def _told(mesh: Mesh) -> str:
    return f"{dict(mesh.shape)} {mesh.axis_types[0].name}"
