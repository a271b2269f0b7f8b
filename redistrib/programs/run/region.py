"""Functions that are one operation: their graph, its factors, and the nest of the operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex

from redistrib.programs.ir.graph import CountedStep, Graph
from redistrib.programs.ir.nest import Nest
from redistrib.programs.rules.axes import MeshAxes
from redistrib.programs.rules.equation import (
    ArrayForm,
    At,
    Equation,
    EquationBody,
    Rule,
    is_key,
    results,
    whole,
)
from redistrib.programs.rules.inline import trace
from redistrib.programs.rules.opened import calls
from redistrib.programs.rules.shard_maps import REGION
from redistrib.programs.rules.sums import can_be_summed, sum_identity
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.schedule.factors import Factor, factors

REGIONS: dict[str, Rule] = {}


def region_rule(kind: str) -> Callable[[Rule], Rule]:
    """Register the rule of a primitive that calls functions."""

    def add(rule: Rule) -> Rule:
        REGIONS[kind] = rule
        return rule

    return add


@dataclass(frozen=True)
class TracedRange:
    """The part of an iteration dimension that a device runs, for the bodies of nests: a start and a length."""

    start: Any
    size: int

    def __len__(self) -> int:
        return self.size


class Region:
    """A function as a graph, with its factors.

    Args:
        function: takes and returns arrays; or one that is traced.
        forms: of the arguments.
        equation: the operation that the function is part of.
        carried: arguments, by number, that become a result once more.
        rules: of the caller, by name of the primitive; they come before those of the library. By default those of
            the operation.
        axes: the mesh axes that the function may name; by default those of the operation.
    """

    def __init__(
        self,
        function: Callable[..., Any] | jex.ClosedJaxpr,
        forms: Sequence[ArrayForm],
        equation: Equation,
        carried: Mapping[int, int] | None = None,
        rules: Mapping[str, Rule] | None = None,
        axes: MeshAxes | None = None,
    ) -> None:
        args = [jax.ShapeDtypeStruct(form.shape, form.dtype) for form in forms]
        names = [f"a{k}" for k in range(len(args))]
        options = TraceOptions(
            {**REGIONS, **(equation.rules if rules is None else rules)},
            equation.exact,
            trip_count=equation.trip_count,
            unrolled_up_to=0,  # loops stay loops
            axes=axes or equation.axes.inside(),
        )
        traced = trace(function, args, names, options)
        self.graph: Graph = traced.graph.unpinned()  # nothing moves inside
        self.constants = tuple(map(as_integers, traced.constants))
        self.factors = [
            factor for factor in factors(self.graph, carried) if all(dim is None for dim in factor.ins[len(args) :])
        ]

    @property
    def flops(self) -> int:
        return sum(operation.nest.work for operation in self.graph.operations)

    def run(self, at: At, tiles: Sequence[Any]) -> list[Any]:
        """The outputs' tiles, where `at` says which part of each factor runs."""
        inputs = (array.name for array in self.graph.inputs)
        held = dict(zip(inputs, [*tiles, *self.constants], strict=True))
        for k, operation in enumerate(self.graph.operations):
            parts = {name: TracedRange(over.start, len(over)) for name, over in operation.nest.ranges}
            for number, factor in enumerate(self.factors):
                if k in factor.work:
                    dim, points = factor.work[k], at[f"f{number}"]
                    times = operation.nest.size(dim) // factor.size
                    parts[dim] = TracedRange(points.start * times, len(points) * times)
            assert operation.nest.body is not None
            results = operation.nest.body(parts, *(held[name] for name in operation.ins))
            results = results if isinstance(results, tuple) else (results,)
            held.update({array.name: tile for array, tile in zip(operation.outs, results, strict=True)})
        return [held[name] for name in self.graph.outputs]


@dataclass(frozen=True)
class Shards:
    """Iteration dimensions of an operation besides those of its factors, of which a device has one point.

    Attributes:
        sizes: of them, by name.
        ins, outs: for every operand and result, and every dimension, those that cut it, the most major first.
    """

    sizes: Mapping[str, int]
    ins: Sequence[Sequence[tuple[str, ...]]]
    outs: Sequence[Sequence[tuple[str, ...]]]

    def lacking(self) -> set[int]:
        """The results that some of them do not cut: these are equal on all devices along it."""
        return {k for k, dims in enumerate(self.outs) if {*self.sizes} - {name for dim in dims for name in dim}}

    def tile(self, shape: Sequence[int], dims: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
        """The shape of a device's tile of an operand or result, in elements."""
        cuts = (math.prod(self.sizes[name] for name in dim) for dim in dims)
        return tuple(size // cut for size, cut in zip(shape, cuts, strict=True))


def nest_of(
    equation: Equation,
    shared: Sequence[Factor],
    run: Callable[[At, Sequence[Any]], Sequence[Any]],
    flops: int,
    stacked_ins: Sequence[int] = (),
    stacked_outs: Sequence[int] = (),
    step: CountedStep | None = None,
    shards: Shards | None = None,
) -> Nest:
    """The nest of an operation with these factors; it runs whole if none of them can be cut.

    Args:
        equation: the operation.
        shared: the factors, of which those that cannot be cut here are left whole.
        run: from tiles of all operands to those of all results.
        flops: of the whole.
        stacked_ins, stacked_outs: operands and results that have one more dimension before those of the factors.
        step: see `EquationBody`.
        shards: further dimensions; the operation has its own body then, whether it can be cut or not.
    """
    in_shapes, out_shapes = ([form.shape for form in side] for side in (equation.ins, equation.outs))
    if shards is not None:
        in_shapes, out_shapes = (
            list(map(shards.tile, shapes, dims))
            for shapes, dims in ((in_shapes, shards.ins), (out_shapes, shards.outs))
        )
    ins: list[list[str | tuple[str, ...]]] = [[""] * len(shape) for shape in in_shapes]
    outs: list[list[str | tuple[str, ...]]] = [[""] * len(shape) for shape in out_shapes]
    sizes: dict[str, int] = {}
    blocks: dict[str, int] = {}  # elements of a dimension that belong to one point of a factor, where there are several
    without: dict[str, set[int]] = {}  # for each factor the results that it does not cut
    lacking = shards.lacking() if shards else set()
    named = {f"f{number}": factor for number, factor in enumerate(shared)}
    usable = {name: factor for name, factor in named.items() if not factor.summed & lacking}
    replicated = [k for k in range(len(outs)) if not any(k in factor.summed for factor in usable.values())]
    for name, factor in usable.items():
        left = [k for k in range(len(outs)) if factor.outs[k] is None and k not in replicated]
        is_added = all(can_be_summed(equation.outs[k].dtype) for k in left)
        if not is_added or any(factor.ins[k] is not None for k in equation.literals):
            continue
        sizes[name] = factor.size
        without[name] = {k for k in range(len(outs)) if factor.outs[k] is None}
        for shapes, dims, cut, stacked in (
            (in_shapes, ins, factor.ins, stacked_ins), (out_shapes, outs, factor.outs, stacked_outs)
        ):  # fmt: skip
            for k, dim in enumerate(cut[: len(dims)]):
                if dim is not None:
                    at = dim + (k in stacked)
                    block = shapes[k][at] // factor.size
                    dims[k][at] = name if block == 1 else (name, f"{name}of{block}")
                    blocks |= {} if block == 1 else {f"{name}of{block}": block}
    is_plain = not (equation.effectful or equation.axes.names or calls(equation, REGION))
    if not sizes and is_plain and step is None and shards is None:
        return whole(equation, flops)  # by the primitive itself
    summed = [name for name in sizes if without[name] - {*replicated}]
    cuttable = [*sizes]
    if shards is not None:
        for dims, shapes, around in ((ins, in_shapes, shards.ins), (outs, out_shapes, shards.outs)):
            for k, at in ((k, at) for k, shape in enumerate(shapes) for at in range(len(shape)) if around[k][at]):
                if not dims[k][at] and shapes[k][at] != 1:
                    dims[k][at] = f"{'out' if dims is outs else 'a'}{k}d{at}"
                    blocks[str(dims[k][at])] = shapes[k][at]
                dims[k][at] = (*around[k][at], *filter(None, _names(dims[k][at])))
        sizes = {**shards.sizes, **sizes}

    def body(at: At, *tiles: Any) -> Any:
        parts = {name: at.get(name, TracedRange(0, factor.size)) for name, factor in named.items()}
        operands = [as_integers(operand) for operand in equation.operands(tiles)]
        cut = [name for name in cuttable if len(parts[name]) < sizes[name]]
        for k in range(len(operands)):
            begun = [name for name in cut if k in named[name].begins]
            if begun and k in equation.literals:
                operands[k] = jnp.asarray(operands[k], equation.ins[k].dtype)
            operands[k] = _of_the_first(operands[k], begun, parts)
        values = list(run(parts, operands))
        for k in range(len(outs)):  # a value that is equal on all devices becomes one summand of it
            alike = [name for name in cut if k in without[name] and k not in named[name].summed]
            values[k] = values[k] if k in replicated else _of_the_first(values[k], alike, parts)
        return results(values)

    points = sizes | blocks
    return equation.nest(
        points,
        ins,
        outs,
        body=EquationBody(equation, body, step),
        combine=dict.fromkeys(summed, "sum"),
        whole=frozenset(blocks),
        indexed=set(cuttable),
        replicated=replicated,
        flops=Fraction(flops, max(1, math.prod(points.values()))),
    )


def _names(dim: str | tuple[str, ...]) -> tuple[str, ...]:
    return (dim,) if isinstance(dim, str) else dim


def _of_the_first(tile: Any, names: Sequence[str], parts: At) -> Any:
    """A tile where the first part of these factors runs, elsewhere the identity of the sum."""
    for name in names:
        tile = jnp.where(jnp.asarray(parts[name].start) == 0, tile, sum_identity(jnp.result_type(tile)))
    return tile


def as_integers(array: Any) -> Any:
    """An array, or the integers of random keys."""
    return jax.random.key_data(array) if hasattr(array, "dtype") and is_key(array) else array
