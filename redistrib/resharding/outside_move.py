"""The move of an array that is differentiated outside `jit`, where its value is known, to any other place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import NamedSharding, Sharding

from redistrib.backends.jax.contexts import untraced_context
from redistrib.backends.jax.primitive import GlobalMove, bind, moved_type
from redistrib.errors import SpecError
from redistrib.errors.backends import traced_order_error
from redistrib.resharding.copies import via_of
from redistrib.resharding.eager import PreparedReshard
from redistrib.resharding.interrupts import SignalsPutOff
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.planning import Planner
from redistrib.resharding.traced_move import of_cotangent, with_batch
from redistrib.resharding.wide import mode_of


@dataclass(frozen=True)
class OutsideMove:
    """A move between shardings of any devices, which `reshard` does at once. Its cotangent moves back as it does.

    Attributes:
        source, target: shardings before and after.
        planner: of the plan.
        plan_limit: bytes per device that source, target and scratch of the plan may take; None for no limit.
    """

    source: Sharding
    target: Sharding
    planner: Planner
    plan_limit: int | None

    is_at_once = True

    def run(self, array: jax.Array) -> jax.Array:
        """The moved array.

        Raises:
            TracedError: inside `jit`, where all devices are the same.
            SpecError: inside `jit`, for a sharding without a mesh.
        """
        if isinstance(array, jax.core.Tracer):
            for side in (self.source, self.target):
                if not isinstance(side, NamedSharding):
                    raise SpecError("sharding form", value=side)
            sides: list[set[Any]] = [self.source.device_set, self.target.device_set]
            raise traced_order_error(*(sorted(device.id for device in side) for side in sides))
        leaf = Leaf("", array, self.target)
        with SignalsPutOff(None) as pause, untraced_context(), mode_of([leaf]) as leaves:
            results: list[jax.Array] = [leaf.value for leaf in leaves]
            moves = PreparedReshard(leaves, self.planner, donate=False, memory_limit=self.plan_limit, via=via_of(None))
            moves.run(results, None, pause, agreed=False)
        return results[0]

    def result(self, aval: Any) -> Any:
        """The abstract value of the moved array."""
        if isinstance(self.target, NamedSharding):
            return moved_type(aval, aval.shape, self.target.mesh, self.target.spec)
        return jax.core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)

    def cotangent(self, array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """A cotangent, moved back."""
        source, target = (
            of_cotangent(side) if isinstance(side, NamedSharding) else side for side in (self.target, self.source)
        )
        return bind(array, replace(self, source=source, target=target))

    def batched(self, array: jax.Array, dim: int, axes: tuple[str, ...]) -> tuple[jax.Array, GlobalMove, int]:
        """The move of a batch, whose dimension stays where it is."""
        source, target = (
            with_batch(side, array.ndim, dim, axes) if isinstance(side, NamedSharding) else side
            for side in (self.source, self.target)
        )
        return array, replace(self, source=source, target=target), dim

    def require_derivative(self, array: jax.Array) -> None:
        """Every such move has a derivative: partial sums move between the same devices only."""
