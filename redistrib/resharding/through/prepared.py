"""A tree and a function of it, checked, planned and compiled for; and then moved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import tree_flatten_with_path

from redistrib.backends.jax.contexts import in_own_context, untraced_context
from redistrib.backends.jax.host_values import digest_of_host_value
from redistrib.backends.jax.meetings import Meeting
from redistrib.backends.jax.private import TRACING_FILES
from redistrib.backends.jax.tree_paths import path_text
from redistrib.backends.jax.values import is_packed
from redistrib.cache import Cache
from redistrib.digests import digest_of_parts
from redistrib.errors import LeafError, ThroughError
from redistrib.launches.order import first_within
from redistrib.plans.data import Short
from redistrib.plans.dtypes import itemsize_of
from redistrib.resharding.checks import check_array, check_devices, check_there, shared
from redistrib.resharding.interrupts import SignalsPutOff
from redistrib.resharding.leaves import Leaf, matched, on_devices
from redistrib.resharding.progress import bytes_bar
from redistrib.resharding.through.function import TracedFunction, abstract
from redistrib.resharding.through.planning import plan_of
from redistrib.resharding.through.value import ThroughBucket, ThroughPlan
from redistrib.resharding.wide import is_wide

TRACING_FILES.add(__file__)

_WAY_OUT = "place a value that every process has first, by reshard without through="
_PLANS: Cache[Any] = Cache(64)  # by the function's structure, shardings, paths and options


class PreparedThrough:
    """A call of `reshard` with `through`, ready to run.

    Raises:
        ThroughError: if the function has an operation that is neither a view nor element-wise.
        LeafError: for an input that is no array on devices, or a sharding that does not fit.
        MemoryLimitError: if the predicted peak is above the limit.
    """

    def __init__(
        self,
        tree: Any,
        shardings: Any,
        function: Callable[[Any], Any],
        *,
        mesh: Any = None,
        donate: bool = False,
        memory_limit: int | None = None,
    ) -> None:
        self._named = [(path_text(path), value) for path, value in tree_flatten_with_path(tree)[0]]
        for path, value in self._named:
            _check(path, value)
        self._inputs = [value for _, value in self._named]
        shapes = jax.tree.unflatten(jax.tree.structure(tree), list(map(abstract, map(jax.typeof, self._inputs))))
        closed, shapes_after = jax.make_jaxpr(function, return_shape=True)(shapes)
        self._function = TracedFunction(closed)
        moving = self._moving()
        leaves, self._rebuild = matched(shapes_after, shardings, mesh=mesh)
        self._targets = [on_devices(leaf).target for leaf in leaves]
        for leaf, target in zip(leaves, self._targets, strict=True):
            check_devices(leaf.path, target)
        self._donate = donate
        plans = (self._plan(moving, leaves, one_by_one) for one_by_one in (False, True))
        self.plan = first_within(
            memory_limit,
            (
                plan if memory_limit is None or plan.peak_bytes <= memory_limit else Short(plan.peak_bytes)
                for plan in plans
            ),
        )

    def _moving(self) -> tuple[int, ...]:
        """The captured arrays that lie as an input does, and move as it does; of others the host puts values."""
        sides = {frozenset(array.sharding.device_set) for array in self._inputs}
        moving = []
        for k, each in enumerate(self._function.captured):
            devices = each.value.sharding.device_set if isinstance(each.value, jax.Array) else frozenset()
            if frozenset(devices) in sides and (not each.is_here or (len(devices) > 1 and each.value.ndim)):
                moving.append(k)
            elif not each.is_here:
                raise ThroughError(
                    "",
                    f"the function captures an array of {each.value.dtype}{list(each.value.shape)} over devices of "
                    "other processes, which are not those of an array of the tree; make it a leaf of the tree",
                )
        return tuple(moving)

    @in_own_context()
    def _plan(self, moving: tuple[int, ...], leaves: Sequence[Leaf], one_by_one: bool) -> ThroughPlan:
        key = (
            self._function.structure,
            tuple(each.kind for each in self._function.captured),
            tuple(array.sharding for array in self._inputs),
            tuple(self._targets),
            tuple(leaf.path for leaf in leaves),
            self._donate,
            one_by_one,
        )
        plan: ThroughPlan = _PLANS.get(
            key,
            lambda: plan_of(self._function, self._inputs, moving, leaves, self._targets, self._donate, one_by_one),
        )
        return plan

    def run(self, progress: bool | None = None) -> Any:
        """The results, each under its sharding.

        Where inputs are donated they are given up one after the other, and an exception has an attribute `partial`: the
        results so far, with None for others.

        Args:
            progress: whether to show a bar on stderr; None shows one for long moves on a terminal.
        """
        meeting = Meeting(self.plan.processes, "reshard", "trees, shardings or options", _WAY_OUT)
        captured = [each.value for each in self._function.captured]
        with untraced_context():
            values = self.plan.constants.values(captured)
            if meeting.is_between:
                meeting.require_equal(digest_of_parts([self.plan.digest, *map(digest_of_host_value, values)]))
        inputs = [*self._inputs, *(captured[k] for k in self.plan.moving)]
        return self._move(inputs, [*inputs, *values], progress, meeting)

    def require_values(self) -> None:
        """Refuse inputs that describe arrays without values."""
        for path, value in self._named:
            check_there(path, value)

    def _move(self, inputs: list[Any], leaves: list[Any], progress: bool | None, meeting: Meeting) -> Any:
        results: list[Any] = [None] * len(self.plan.names)
        partial = (lambda: self._rebuild(results)) if self._donate else None
        captured = [("", array) for array in inputs[len(self._named) :]]
        stays = shared([*self._named, *captured]).members if self._donate else set()
        total = sum(map(self._bytes_of, self.plan.buckets))
        with (
            SignalsPutOff(partial) as pause,  # the others end while signals wait
            untraced_context(),
            meeting.moving(),
            bytes_bar("resharding", total, progress) as advance,
        ):
            for bucket in self.plan.buckets:
                pause()
                arrays = bucket.program(
                    [inputs[k] for k in bucket.inputs],
                    {len(bucket.inputs) + place: leaves[k] for place, k in enumerate(bucket.constants)},
                    [self._placeholder(k) for k in bucket.results],
                )
                for k, array in zip(bucket.results, arrays, strict=True):
                    results[k] = array
                meeting.wait(arrays)
                advance(self._bytes_of(bucket))
                for k in bucket.given_up if self._donate else ():
                    if k not in stays and isinstance(self._inputs[k], jax.Array):
                        self._inputs[k].delete()
            if self._donate:
                return self._rebuild(results)
        return self._rebuild(results)

    def _placeholder(self, result: int) -> jax.ShapeDtypeStruct:
        plan = self.plan
        return jax.ShapeDtypeStruct(
            plan.shapes[result],
            jnp.dtype(plan.dtypes[result]),
            sharding=self._targets[result],
            weak_type=plan.weak[result],
        )

    def _bytes_of(self, bucket: ThroughBucket) -> int:
        """Bytes of a bucket's results."""
        return sum(math.prod(self.plan.shapes[k]) * itemsize_of(self.plan.dtypes[k]) for k in bucket.results)


def _check(path: str, value: Any) -> None:
    """Refuse an input that goes through no function."""
    if isinstance(value, jax.core.Tracer) or not isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        raise LeafError(path, f"{type(value).__name__} is no array on devices; place it first, outside jit")
    check_array(path, value)
    if is_wide(value):
        raise LeafError(
            path, f"a function computes no {value.dtype} while jax_enable_x64 is off; set it, or cast the array"
        )
    if getattr(getattr(value.sharding, "spec", None), "unreduced", None):
        raise LeafError(path, "its tiles are partial sums; reshard it without through= first")
    if jnp.issubdtype(value.dtype, jax.dtypes.extended) or is_packed(value.dtype):
        raise LeafError(path, f"elements of {value.dtype} go through no function on their way; reshard it alone")
