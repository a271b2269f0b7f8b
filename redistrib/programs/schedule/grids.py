"""Grids given as sizes, bound to the axes of one mesh.

A grid says into how many parts each iteration dimension is cut. It leaves open which mesh axes cut it. Binding the axes
is the renaming of grid variables that makes two schedules consistent: the best choice lets a nest read its arrays in
the layouts that other nests left them in. This module lists the choices; `redistrib.programs.lower.bind` decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, permutations
from typing import NamedTuple

from redistrib.arith import as_integer
from redistrib.errors import CutError, InconsistentGroupError, RedistribError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.cuts import cut_of
from redistrib.programs.ir.groups import Group, group_of
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Place
from redistrib.programs.ir.pullback import ScheduledNest


def parts_of(nest: Nest, grids: Mapping[str, Sequence[int] | Mapping[str, int]]) -> tuple[int, ...]:
    """The grid that a schedule gives a nest, in the order of its iteration dimensions, whether it divides or not.

    Raises:
        CutError: if the schedule leaves the nest out, or its grid is of another rank or no grid.
    """
    error = partial(nest.error, "Schedule", kind=CutError)
    names = ", ".join(nest.position)
    if nest.name not in grids:
        raise error(
            f"the schedule is incomplete: it has {', '.join(grids) or 'no operation'} and lacks this one; "
            f"give it a grid of rank {len(nest.ranges)}"
        )
    entry = grids[nest.name]
    if isinstance(entry, Mapping):
        unknown = [name for name in entry if name not in nest.position]
        if unknown:
            raise error(f"the grid {dict(entry)} names {unknown[0]!r}, and the iteration dimensions are {names}")
        grid = tuple(entry.get(name, 1) for name in nest.position)
    else:
        grid = tuple(entry) if isinstance(entry, Sequence) else (entry,)
    if len(grid) != len(nest.ranges):
        raise error(
            f"the grid {grid} is of rank {len(grid)} and the iteration space ({names}) of rank {len(nest.ranges)}; "
            f"give one number for each dimension"
        )
    counts = tuple(map(as_integer, grid))
    if any(parts is None or parts < 1 for parts in counts):
        raise error(f"the grid {grid} is not made of integers from 1 on; 1 leaves a dimension whole")
    return tuple(parts or 1 for parts in counts)


def grid_of(nest: Nest, grids: Mapping[str, Sequence[int] | Mapping[str, int]]) -> tuple[int, ...]:
    """The grid that a schedule gives a nest.

    Raises:
        CutError: as `parts_of` does; and if the grid cuts a whole dimension.
    """
    grid = parts_of(nest, grids)
    for name, parts in zip(nest.position, grid, strict=True):
        if parts > 1 and name in nest.whole:
            raise nest.error("Whole", f"the grid {grid} cuts {name!r}, which must stay whole", kind=CutError)
    return grid


def bindings(
    nest: Nest, grid: Sequence[int], mesh: Mesh, layouts: Mapping[str, DistType] | None = None
) -> Iterator[DistType]:
    """Cuts of a nest by a grid with the axes of a mesh; those first that keep the layouts of its arrays.

    Args:
        nest, grid, mesh: the operation, the number of parts of each iteration dimension, and the axes.
        layouts: types of arrays of the nest over the mesh, by name; a missing array has no layout yet.

    >>> from redistrib.programs.ir.nest import Access
    >>> square = Nest("square", {"i": 4, "j": 4}, [Access("a", (("j",), ("i",)))], [])
    >>> [str(cut) for cut in bindings(square, (2, 2), Mesh.of("x=2,y=2"))]
    ['[2{x}4, 2{y}4]', '[2{y}4, 2{x}4]']
    >>> next(map(str, bindings(square, (2, 2), Mesh.of("x=2,y=2"), {"a": DistType.of("[2{x}4, 2{y}4]")})))
    '[2{y}4, 2{x}4]'
    """
    preferred = _preferred(nest, layouts or {})
    order = [(parts, preferred.get(name, ())) for name, parts in zip(nest.position, grid, strict=True)]
    for assignment in _assignments(order, mesh.axes):
        cut = cut_of(nest, dict(zip(nest.position, assignment, strict=True)), mesh)
        if cut is not None:
            yield cut


def _preferred(nest: Nest, layouts: Mapping[str, DistType]) -> dict[str, tuple[str, ...]]:
    """For iteration dimensions that are a whole array dimension the axes that cut it, major to minor."""
    preferred: dict[str, tuple[str, ...]] = {}
    for access in (*nest.reads, *nest.writes):
        if access.array in layouts:
            for names, dim in zip(access.dims, layouts[access.array].dims, strict=True):
                if len(names) == 1 and dim.axes:
                    preferred.setdefault(names[0], dim.axes[::-1])
    return preferred


def _assignments(
    grid: Sequence[tuple[int, tuple[str, ...]]], axes: tuple[Axis, ...]
) -> Iterator[tuple[tuple[str, ...], ...]]:
    if not grid:
        yield ()
        return
    (parts, preferred), later = grid[0], {name for _, names in grid[1:] for name in names}
    # first the axes that cut this dimension in a layout, in their order, and last those that cut another one
    rank = {name: k for k, name in enumerate(preferred)}
    ordered = sorted(axes, key=lambda axis: (rank.get(axis.name, len(rank)), axis.name in later))
    for first in _products(parts, tuple(ordered)):
        left = tuple(axis for axis in axes if axis.name not in first)
        for rest in _assignments(grid[1:], left):
            yield (first, *rest)


def _products(parts: int, axes: tuple[Axis, ...]) -> Iterator[tuple[str, ...]]:
    """Ordered choices of axes whose sizes multiply to `parts`: few axes first, then axes early in the mesh."""
    if parts == 1:
        yield ()
        return
    usable = [axis for axis in axes if axis.size > 1 and parts % axis.size == 0]
    for count in range(1, len(usable) + 1):
        for assignment in permutations(usable, count):
            if math.prod(axis.size for axis in assignment) == parts:
                yield tuple(axis.name for axis in reversed(assignment))  # the first axis of the mesh is the most major


@dataclass(frozen=True)
class GriddedKernel:
    """An operation before its axes are bound: its nests, several if they are fused, and a grid for each."""

    name: str
    nests: tuple[Nest, ...]
    grids: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        """Devices that the grids take."""
        return max(math.prod(grid) for grid in self.grids)


class BoundKernel(NamedTuple):
    """A kernel whose axes are bound: its nests and their cuts, and the types of the arrays that it reads and writes."""

    parts: tuple[ScheduledNest, ...]
    place: Place
    group: Group


def bind_axes(
    kernel: GriddedKernel, place: Place, layouts: Mapping[str, DistType], limit: int | None = None
) -> Iterator[BoundKernel]:
    """Choices of axes with which the nests of a kernel agree on every array between them.

    Args:
        kernel: the nests and their grids.
        place: the devices; its mesh names the axes.
        layouts: types of arrays over the same mesh; choices that keep them come first.
        limit: how many choices are tried, those without agreement counted too; None: all.

    Raises:
        InconsistentGroupError: if no choice of axes fits all nests, or another error of `ScheduledNest.signature`.
    """
    agreed, first_error = False, None
    for bound in islice(_choices(kernel, place, (), layouts), limit):
        if isinstance(bound, RedistribError):
            first_error = first_error or bound
            continue
        agreed = True
        yield bound
    if first_error is not None and not agreed:
        raise first_error


def _choices(
    kernel: GriddedKernel, place: Place, earlier: tuple[ScheduledNest, ...], layouts: Mapping[str, DistType]
) -> Iterator[BoundKernel | RedistribError]:
    """The choices with agreement, and for every other the error."""
    nest, grid = kernel.nests[len(earlier)], kernel.grids[len(earlier)]
    for cut in bindings(nest, grid, place.mesh, layouts):
        parts = (*earlier, ScheduledNest(nest, cut))
        try:
            group = group_of(kernel.name, parts, place)
        except RedistribError as error:
            yield error
            if not isinstance(error, InconsistentGroupError):
                return
            continue
        if len(parts) == len(kernel.nests):
            yield BoundKernel(parts, place, group)
        else:
            yield from _choices(kernel, place, parts, {**layouts, **group.reads, **group.writes})
