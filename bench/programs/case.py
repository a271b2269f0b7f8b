"""A program of the bench: a function, arguments, a mesh, shardings for XLA and the equal schedule for ours."""

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
SIZES = ("small", "medium", "full")  # for runs on one machine, for runs over a network, as in practice
_IS_WHOLE = ContextVar("_IS_WHOLE", default=False)  # whether a function is traced for one device


@dataclass(frozen=True)
class Case:
    """A program over a mesh.

    Attributes:
        name: name of the program.
        function: function of arrays; it contains sharding constraints where the schedule cuts more than arguments.
        args: trees of `jax.ShapeDtypeStruct`. Unsigned integers are keys of random numbers.
        mesh: sizes of the axes by name.
        ins: specs of the arguments: a tree of `PartitionSpec` or a prefix of one, as in `jax.jit`.
        outs: specs of the results.
        schedule: tactics with the same pins of the arguments, in order; empty where `ins` pins them for ours too.
        below: upper bound of the integers of the arguments.
        tolerance: largest difference of a result from the expected one, over the largest element: orders of sums
            differ.
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
        """The program by `rd.distribute`, with the arguments at `ins`."""
        pins = {"schedule": self.schedule} if self.schedule else {"in_shardings": self.ins}
        return rd.distribute(self.function, self.args, mesh or self.mesh, out_shardings=self.outs, **pins, **options)

    def jitted(self, mesh: Mesh) -> Any:
        """The program by `jax.jit`, with the same pins."""
        ins, outs = shardings(mesh, self.ins), shardings(mesh, self.outs)
        return jax.jit(self.function, in_shardings=ins, out_shardings=outs)

    def undistributed(self, *args: Any) -> Any:
        """The results of the function on one device."""
        token = _IS_WHOLE.set(True)
        try:
            return jax.jit(lambda *arrays: self.function(*arrays))(*args)
        finally:
            _IS_WHOLE.reset(token)

    def mesh_of(self, devices: Sequence[Any]) -> Mesh:
        """The mesh over the first of `devices`."""
        chosen = np.array(list(devices)[: self.devices], dtype=object).reshape(tuple(self.mesh.values()))
        return Mesh(chosen, tuple(self.mesh), axis_types=(AxisType.Auto,) * len(self.mesh))

    def values(self, seed: int = 0) -> tuple[Any, ...]:
        """Random arguments: normal floats, integers below `below`, a key."""
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
    """A tree of shardings from a tree of specs."""
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda spec: isinstance(spec, P))


def constrained(array: Any, mesh: Mapping[str, int], spec: PartitionSpec) -> Any:
    """An array with a sharding constraint, inside a function."""
    if _IS_WHOLE.get():
        return array
    abstract = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    return jax.lax.with_sharding_constraint(array, NamedSharding(abstract, spec))


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.int32)


def sgd(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A training step: from `(params, *batch)` to new parameters and the loss."""

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
        name: name of the program.
        function: function of arrays.
        args: arguments by parameter: arrays, or dictionaries of arrays.
        mesh: sizes of the axes by name.
        stages: in order, an axis and the dimension that it cuts of each array (`"x"`, `"params/w1"`). An array is
            replicated along an axis whose stages do not name it.
        outs: specs of the results; None for a training step, whose parameters keep their specs and whose loss is
            replicated.
        more: further tactics, before those that replicate.
        options: other attributes of the case.
    """
    cuts: dict[str, list[tuple[str, int]]] = {}
    for parameter, value in args.items():
        leaves = [f"{parameter}/{key}" for key in value] if isinstance(value, Mapping) else [parameter]
        cuts.update({leaf: [] for leaf in leaves})
    for axis, arrays in stages:
        for leaf, dim in arrays.items():
            cuts[leaf].append((axis, dim))
    replicated = [(axis, [leaf for leaf, cut in cuts.items() if axis not in dict(cut)]) for axis in mesh]
    schedule = (
        *(rd.along(axis, arrays) for axis, arrays in stages),
        *more,
        *(rd.along(axis, dict.fromkeys(leaves)) for axis, leaves in replicated if leaves),
    )
    ins = tuple(
        {key: _spec(cuts[f"{parameter}/{key}"], form) for key, form in value.items()}
        if isinstance(value, Mapping)
        else _spec(cuts[parameter], value)
        for parameter, value in args.items()
    )
    return Case(
        name, function, tuple(args.values()), mesh, ins, (ins[0], P()) if outs is None else outs, schedule, **options
    )


def _spec(cuts: Sequence[tuple[str, int]], form: jax.ShapeDtypeStruct) -> PartitionSpec:
    entries: list[Any] = [None] * len(form.shape)
    for axis, dim in cuts:
        entries[dim] = axis
    return P(*entries)
