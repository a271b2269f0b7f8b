"""The results of a program, in NumPy: whole, and rank by rank.

Whole, every operation runs once on whole arrays and moves do nothing. Rank by rank, every device runs it on its tiles
and moves go through the plans' own interpreter. The two agree for every right program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from redistrib.errors import ProgramError, TilesError
from redistrib.lang.notation import Reduction
from redistrib.plans import reference
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.reduction import Accumulator, view
from redistrib.programs.ir.interpret import interpret
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Move, Program, Value
from redistrib.theory.placement import Placement, placement_of

Tile: TypeAlias = npt.NDArray[Any]
Tiles: TypeAlias = dict[int, Tile]


def run_whole(program: Program, arrays: Sequence[npt.ArrayLike]) -> list[Tile]:
    """The outputs of a program from its inputs, as whole arrays.

    Raises:
        ProgramError: if a nest has no body, or a body gives another shape than its nest says.

    >>> from redistrib import nest, partition
    >>> program = partition(nest("ij->i", (2, 3), name="sum"), {"sum": {"j": 3}})
    >>> run_whole(program, [[[1, 2, 3], [4, 5, 6]]])
    [array([ 6, 15])]
    """
    inputs = [zero_padded(np.asarray(array), value) for array, value in zip(arrays, program.inputs, strict=True)]
    results = interpret(program, inputs, _Whole())
    return [cropped(results[name], program.values[name]) for name in program.outputs]


def zero_padded(array: Tile, value: Value) -> Tile:
    """An array with zeros as the padding of a value that it becomes; as it is if it has padding already, or none."""
    if not any(value.padding) or array.shape != value.array_shape:
        return array
    return np.pad(array, [(0, more) for more in value.padding])


def cropped(array: Any, value: Value) -> Any:
    """An array, of NumPy or JAX, without the padding of its value."""
    return array[tuple(map(slice, value.array_shape))] if any(value.padding) else array


class _Whole:
    """On whole arrays an operation runs once, and moves do nothing."""

    def compute(self, op: Compute, ins: Sequence[Tile]) -> list[Tile]:
        return run_compute(op, [dict(part.nest.ranges) for part in op.parts], ins)

    def move(self, op: Move, value: Value, operand: Tile) -> Tile:
        return operand

    def entry(self, operand: Tile, step: int) -> Tile:
        return np.asarray(operand[step])

    def stack(self, out: Value, entries: Sequence[Tile]) -> Tile:
        return stacked(out.shape, out.dtype, entries)

    def is_true(self, operand: Tile) -> bool:
        return bool(operand)


def stacked(shape: Sequence[int], dtype: str, entries: Sequence[Tile]) -> Tile:
    """An array of entries along dimension 0; of no entries an empty one."""
    return np.stack(entries) if entries else np.empty(shape, dtype_of(dtype))


def run_by_rank(program: Program, arrays: Sequence[npt.ArrayLike]) -> list[Tile]:
    """The outputs of a program from its inputs, whole arrays both, every device running its own part.

    An input of summands is split into summands that differ; an output of summands is reduced.

    Raises:
        ProgramError: as `run_whole` does.
        TilesError: if an array does not fit its input, or devices that hold one tile of an output disagree.

    >>> from redistrib import nest, partition
    >>> program = partition(nest("ij->i", (2, 3), name="sum"), {"sum": {"j": 3}})  # a column on each of three devices
    >>> run_by_rank(program, [[[1, 2, 3], [4, 5, 6]]])
    [array([ 6, 15])]
    """
    tiles = [distribute(array, value) for array, value in zip(arrays, program.inputs, strict=True)]
    results = run_tiles(program, tiles)
    return [collect(held, program.values[name]) for held, name in zip(results, program.outputs, strict=True)]


def run_tiles(program: Program, inputs: Sequence[Tiles]) -> list[Tiles]:
    """The tiles of a program's outputs from those of its inputs, each by number of the device in the machine."""
    results = interpret(program, list(inputs), _ByRank())
    return [results[name] for name in program.outputs]


class _ByRank:
    """On tiles an operation runs on every device, and moves go through plans."""

    def compute(self, op: Compute, ins: Sequence[Tiles]) -> list[Tiles]:
        results: list[Tiles] = [{} for _ in op.outs]
        cuts = [placement_of(part.cut, op.place.mesh) for part in op.parts]
        for number, device in enumerate(op.place.devices):
            points = [points_of(part.nest, cut, number) for part, cut in zip(op.parts, cuts, strict=True)]
            for result, tile in zip(results, run_compute(op, points, [tiles[device] for tiles in ins]), strict=True):
                result[device] = tile
        return results

    def move(self, op: Move, value: Value, operand: Tiles) -> Tiles:
        return _run_move(op, value, operand)

    def entry(self, operand: Tiles, step: int) -> Tiles:
        return {device: np.asarray(tile[step]) for device, tile in operand.items()}

    def stack(self, out: Value, entries: Sequence[Tiles]) -> Tiles:
        devices = out.place.devices
        return {device: stacked(out.tile, out.dtype, [tiles[device] for tiles in entries]) for device in devices}

    def is_true(self, operand: Tiles) -> bool:
        """Whether the condition holds, on which all devices must agree."""
        values = {bool(tile) for tile in operand.values()}
        if len(values) > 1:
            raise TilesError("devices disagree on whether a loop goes on")
        return values == {True}


def points_of(nest: Nest, cut: Placement, device: int) -> dict[str, range]:
    """The range of every iteration dimension that a device runs; all begin at 0, except those that are indexed."""
    at = {}
    for (name, over), start, tile in zip(nest.ranges, cut.start[device].tolist(), cut.tile, strict=True):
        first = start if name in nest.indexed else 0
        at[name] = over[first : first + tile]
    return at


def run_compute(op: Compute, points: Iterable[Mapping[str, range]], ins: Iterable[Tile]) -> list[Tile]:
    """The results of an operation whose parts run over some points each, in the order of `op.outs`.

    Raises:
        ProgramError: as `run_nests` does.
    """
    arrays = zip((array for array, _ in op.ins), ins, strict=True)
    nests = zip((part.nest for part in op.parts), points, strict=True)
    return run_nests(nests, arrays, [array for array, _ in op.outs])


def run_nests(
    nests: Iterable[tuple[Nest, Mapping[str, range]]], ins: Iterable[tuple[str, Tile]], outs: Sequence[str]
) -> list[Tile]:
    """Run nests in order, each over its points, on arrays by name.

    Raises:
        ProgramError: as `run_nest` does.
    """
    env = dict(ins)
    for nest, points in nests:
        run_nest(nest, points, env)
    return [env[array] for array in outs]


def run_nest(nest: Nest, at: Mapping[str, range], env: dict[str, Tile]) -> None:
    """Run a nest over the points `at`, on the arrays of `env`, which takes up the results.

    Raises:
        ProgramError: if the nest has no body, or the body gives another shape than the nest says.
    """
    if nest.body is None:
        raise ProgramError(nest.name, "", "Nest", "the nest has no body; give one to run it")
    values = nest.body(at, *(env[access.array] for access in nest.reads))
    results = values if isinstance(values, tuple) else (values,)
    for access, result in zip(nest.writes, results, strict=True):
        tile, extents = np.asarray(result), iter(access.extents)
        shape = tuple(_product(len(at[k]) for k in dim) if dim else next(extents) for dim in access.dims)
        if tile.shape != shape:
            raise ProgramError(nest.name, access.array, "Nest", f"the body gives shape {tile.shape}, not {shape}")
        if access.array in env:  # written twice inside a group: combined, as the later nest says
            total = Accumulator(shape, tile.dtype, cast(Reduction, nest.combine[0][1]))
            for part in (env[access.array], tile):
                total.add([0] * tile.ndim, part)
            tile = total.result()
        env[access.array] = tile


def _product(sizes: Any) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _run_move(op: Move, value: Value, tiles: Tiles) -> Tiles:
    ordered = [tiles[device] for device in value.place.devices]
    if value.has_halos:
        offset = (op.out.corner - value.corner).tolist()
        box = [tuple(slice(a, a + n) for a, n in zip(start, op.out.tile, strict=True)) for start in offset]
        ordered = [tile[part] for tile, part in zip(ordered, box, strict=True)]
    elif op.plan is not None:
        ordered = reference.run(op.plan, ordered)
    elif value.place.devices != op.out.place.devices or not value.means(op.out):
        return distribute(reference.assemble(ordered, value.placement), op.out)
    return dict(zip(op.out.place.devices, ordered, strict=True))


# ---------------------------------------------------------------------------------------- arrays and values


def distribute(array: npt.ArrayLike, value: Value) -> Tiles:
    """The tiles of an array as a value, by number of the device in the machine.

    A value of summands gets summands that differ and reduce to the array.
    """
    whole, placement = zero_padded(np.asarray(array), value), value.placement
    if value.windows:
        if whole.shape != value.shape:
            raise TilesError(f"an array of shape {whole.shape} cannot be placed as one of shape {value.shape}")
        boxes = zip(value.place.devices, value.boxes.rows(), value.corner.tolist(), strict=True)
        return {device: _inside(view(whole, box.start, box.size), box.start, at, value) for device, box, at in boxes}
    if placement.reduction is not None:
        whole = np.stack(_summands(whole, placement.summands, placement.reduction))
    return dict(zip(value.place.devices, reference.scatter(whole, placement), strict=True))


def _inside(part: Tile, start: Sequence[int], corner: Sequence[int], value: Value) -> Tile:
    """A device's tile of an array with its halos, from its corner on, with zeros around a part of the array."""
    held = np.zeros(value.tile, part.dtype)
    held[tuple(slice(a - b, a - b + n) for a, b, n in zip(start, corner, part.shape, strict=True))] = part
    return held


def _summands(array: Tile, count: int, reduction: Reduction) -> list[Tile]:
    if reduction != "sum":
        return [array] + [np.minimum(array, 0) if reduction == "max" else np.maximum(array, 0)] * (count - 1)
    rest = [(np.arange(array.size).reshape(array.shape) % 5 + s).astype(array.dtype) for s in range(1, count)]
    return [array - sum(rest), *rest]


def collect(tiles: Tiles, value: Value) -> Tile:
    """The array that a value stands for.

    Raises:
        TilesError: if devices that hold one tile disagree in any bit.
    """
    ordered = [tiles[device] for device in value.place.devices]
    try:
        array: Tile = cropped(reference.assemble(ordered, value.placement), value)
        return array
    except TilesError as error:
        raise TilesError(f"value {value.name!r}: {error}") from error
