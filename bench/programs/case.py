"""A program of the bench: a function, arguments, a mesh, pins for XLA and the same as a schedule for ours."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

import redistrib as rd

P = PartitionSpec
SIZES = ("small", "medium", "full")  # to run on one machine, to run over a network, and of life
_IS_WHOLE = ContextVar("_IS_WHOLE", default=False)  # whether a function is traced for one device


@dataclass(frozen=True)
class Case:
    """A program over a mesh.

    Attributes:
        name: of the program.
        function: of arrays; where the schedule names more than arguments, it holds sharding constraints.
        args: trees of `jax.ShapeDtypeStruct`. Unsigned integers are keys of random numbers.
        mesh: sizes of the axes by name.
        ins: where the arguments begin: a tree of `PartitionSpec`, or a prefix of one, as `jax.jit` takes.
        outs: where the results end.
        schedule: tactics that pin the arguments so, in the order in which they are to be considered.
        below: all integers of the arguments are below this.
        tolerance: by how much results may differ, as a part of the largest element of each: sums in other orders.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    mesh: Mapping[str, int]
    ins: Any
    outs: Any
    schedule: tuple[Any, ...]
    below: int = 2
    tolerance: float = 1e-5

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    def distributed(self, mesh: Any = None, **options: Any) -> Any:
        """Ours; its arguments begin as `ins` says."""
        return rd.distribute(
            self.function, self.args, mesh or self.mesh, schedule=self.schedule, out_shardings=self.outs, **options
        )

    def jitted(self, mesh: Mesh) -> Any:
        """XLA's, with the same pins."""
        ins, outs = shardings(mesh, self.ins), shardings(mesh, self.outs)
        return jax.jit(self.function, in_shardings=ins, out_shardings=outs)

    def undistributed(self, *args: Any) -> Any:
        """The results of the function on one device."""
        token = _IS_WHOLE.set(True)
        try:
            return jax.jit(lambda *own: self.function(*own))(*args)
        finally:
            _IS_WHOLE.reset(token)

    def mesh_of(self, devices: Sequence[Any]) -> Mesh:
        """The mesh over the first of some devices."""
        chosen = np.array(list(devices)[: self.devices], dtype=object).reshape(tuple(self.mesh.values()))
        return Mesh(chosen, tuple(self.mesh), axis_types=(AxisType.Auto,) * len(self.mesh))

    def values(self, seed: int = 0) -> tuple[Any, ...]:
        """Arguments: floats around zero, indices below `below`, a key."""
        random = np.random.default_rng(seed)

        def drawn(form: Any) -> Any:
            if form.dtype == np.uint32:
                return np.asarray(jax.random.key_data(jax.random.key(seed)))
            if np.issubdtype(form.dtype, np.integer):
                return random.integers(0, self.below, form.shape).astype(form.dtype)
            fan = max(1, form.shape[0] if len(form.shape) > 1 else 1)
            real = random.normal(size=form.shape) / math.sqrt(fan)
            if np.issubdtype(form.dtype, np.complexfloating):
                real = real + 1j * random.normal(size=form.shape)
            return real.astype(form.dtype)

        return jax.tree.map(drawn, self.args)


def shardings(mesh: Mesh, specs: Any) -> Any:
    """A tree of shardings from one of specs."""
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda one: isinstance(one, P))


def constrained(array: Any, mesh: Mapping[str, int], spec: PartitionSpec) -> Any:
    """An array inside a function with a required sharding."""
    if _IS_WHOLE.get():
        return array
    abstract = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    return jax.lax.with_sharding_constraint(array, NamedSharding(abstract, spec))


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.int32)


def sgd(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A training step: `(params, *batch)` to new parameters and the loss."""

    @functools.wraps(loss)
    def step(params: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step


def case(
    name: str,
    function: Callable[..., Any],
    args: Mapping[str, Any],
    mesh: Mapping[str, int],
    stages: Sequence[tuple[str, Mapping[str, int]]],
    outs: Any = None,
    *,
    more: Sequence[Any] = (),
    **options: Any,
) -> Case:
    """A case whose pins are those of its schedule.

    Args:
        name: of the program.
        function: of arrays.
        args: the arguments of the function, by the names of its parameters: arrays, or dictionaries of them.
        mesh: sizes of the axes by name.
        stages: in order an axis, and the arrays (`"x"`, `"params/w1"`) that it cuts, each along a dimension. What none
            names is whole along an axis.
        outs: where the results end; None for those of a training step: the parameters as they begin, the loss whole.
        more: further tactics, before arrays that stay whole.
        options: of the case.
    """
    cuts: dict[str, list[tuple[str, int]]] = {}
    for name_of, given in args.items():
        below = [f"{name_of}/{key}" for key in given] if isinstance(given, Mapping) else [name_of]
        cuts.update({leaf: [] for leaf in below})
    for axis, arrays in stages:
        for leaf, dim in arrays.items():
            cuts[leaf].append((axis, dim))
    whole = [(axis, [leaf for leaf, given in cuts.items() if axis not in dict(given)]) for axis in mesh]
    schedule = (
        *(rd.along(axis, arrays) for axis, arrays in stages),
        *more,
        *(rd.along(axis, dict.fromkeys(leaves)) for axis, leaves in whole if leaves),
    )
    ins = tuple(
        {key: _spec(cuts[f"{name_of}/{key}"], form) for key, form in given.items()}
        if isinstance(given, Mapping)
        else _spec(cuts[name_of], given)
        for name_of, given in args.items()
    )
    return Case(
        name, function, tuple(args.values()), mesh, ins, (ins[0], P()) if outs is None else outs, schedule, **options
    )


def _spec(cuts: Sequence[tuple[str, int]], form: jax.ShapeDtypeStruct) -> PartitionSpec:
    found: list[Any] = [None] * len(form.shape)
    for axis, dim in cuts:
        found[dim] = axis
    return P(*found)
