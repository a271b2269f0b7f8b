"""The rule of `jax.shard_map`: its body runs on the tiles that its specs say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
from jax import lax

from redistrib.backends.jax.values import as_integer_bits
from redistrib.errors import ProgramError
from redistrib.programs.ir.nest import Nest
from redistrib.programs.rules.collectives import COLLECTIVES
from redistrib.programs.rules.equation import At, Equation
from redistrib.programs.rules.shard_maps import REGION, ShardMap, shard_dim
from redistrib.programs.run.region import Region, Shards, nest_of, region_rule

_Dims = list[tuple[str, ...]]  # for every dimension of an array the axes that cut it, the most major first


@region_rule(REGION)
def _shard_map(equation: Equation) -> Nest:
    """The nest of a region: each of its manual axes cuts a dimension, and other axes what they can cut in its body.

    Inside another operation nothing moves: a device cuts its tiles out of whole operands, and gathers the results.
    """
    specs = ShardMap.of(equation.params)
    sizes, names = equation.axes.sizes, equation.axes.matched(specs.shape)
    assert names is not None  # the tracer refuses others
    manual = [axis for axis in sizes if any(axis in names[name] for name in specs.manual)]
    in_dims, out_dims = (
        [_dims(spec, len(form.shape), names) for spec, form in zip(side, forms, strict=True)]
        for side, forms in ((specs.ins, equation.ins), (specs.outs, equation.outs))
    )
    shards = Shards(
        {shard_dim(axis): sizes[axis] for axis in manual},
        *([[tuple(map(shard_dim, axes)) for axes in dims] for dims in side] for side in (in_dims, out_dims)),
    )
    tiles = [
        form._replace(shape=shards.tile(form.shape, dims)) for form, dims in zip(equation.ins, shards.ins, strict=True)
    ]
    rules = {**COLLECTIVES, **equation.rules}
    region = Region(specs.body, tiles, equation, rules=rules, axes=equation.axes.inside(names))

    def of_tiles(parts: At, operands: Sequence[Any]) -> list[Any]:
        if not {*manual} <= {*jax.sharding.get_abstract_mesh().manual_axes}:
            raise ProgramError(
                equation.kind, "", "Place", "its body names axes of a mesh, and runs in one program of all devices "
                "alone; call the distributed function",
            )  # fmt: skip
        return region.run(parts, operands)

    def of_whole(parts: At, operands: Sequence[Any]) -> list[Any]:
        cut = [_own_tile(operand, dims, sizes) for operand, dims in zip(operands, in_dims, strict=True)]
        return [_gathered(tile, dims) for tile, dims in zip(of_tiles(parts, cut), out_dims, strict=True)]

    if equation.axes.is_inside:
        whole = Shards({}, *([[()] * len(dims) for dims in side] for side in (in_dims, out_dims)))
        region.factors = []
        return nest_of(equation, (), of_whole, region.flops, shards=whole)
    devices = math.prod(sizes[axis] for axis in manual)
    return nest_of(equation, region.factors, of_tiles, region.flops * devices, shards=shards)


def _dims(spec: Sequence[tuple[str, ...]], rank: int, names: Mapping[str, tuple[str, ...]]) -> _Dims:
    """For every dimension of an array the axes of the mesh that cut it, by a spec that may be shorter."""
    cuts = [tuple(axis for name in entry for axis in names[name]) for entry in spec]
    return [*cuts, *[()] * (rank - len(cuts))]


def _own_tile(array: Any, dims: _Dims, sizes: Mapping[str, int]) -> Any:
    """The tile of the running device, cut out of a whole array."""
    for dim, axes in enumerate(dims):
        if axes:
            size = array.shape[dim] // math.prod(sizes[axis] for axis in axes)
            array = lax.dynamic_slice_in_dim(array, lax.axis_index(axes) * size, size, dim)
    return array


def _gathered(tile: Any, dims: _Dims) -> Any:
    """The whole array, on every device, of the tiles of all."""
    for dim, axes in enumerate(dims):
        if axes:
            tile = as_integer_bits(partial(lax.all_gather, axis_name=axes, axis=dim, tiled=True))(tile)
    return tile
