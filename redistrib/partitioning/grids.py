"""Grids given as sizes, bound to the axes of one mesh.

A grid says into how many parts each iteration dimension is cut, and leaves open which axes cut it. The axes are chosen
so that a nest finds its arrays as other nests left them: this is the renaming of grid variables that makes two
schedules consistent. Here are the ways to choose them; which is taken for each nest of a program is decided in
`redistrib.partitioning.bind`.
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
from redistrib.programs.groups import Group, group_of
from redistrib.programs.nest import Nest
from redistrib.programs.program import Place
from redistrib.programs.pullback import Part, cut_of


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
    given = grids[nest.name]
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in nest.position]
        if unknown:
            raise error(f"the grid {dict(given)} names {unknown[0]!r}, and the iteration dimensions are {names}")
        grid = tuple(given.get(name, 1) for name in nest.position)
    else:
        grid = tuple(given) if isinstance(given, Sequence) else (given,)
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
    """The grid that a schedule gives a nest, which it divides by.

    Raises:
        CutError: as `parts_of` does; and if the grid does not divide the iteration space, or cuts what must stay whole.
    """
    grid = parts_of(nest, grids)
    for name, parts, size in zip(nest.position, grid, nest.sizes, strict=True):
        if size % parts:
            padded = f"or pad=True, which pads the dimension to {-(-size // parts) * parts}"
            why = f"{parts} parts do not divide the {size} points of {name!r}; take a divisor, {padded}"
            raise nest.error("Schedule", why, kind=CutError)
        if parts > 1 and name in nest.whole:
            raise nest.error("Whole", f"the grid {grid} cuts {name!r}, which must stay whole", kind=CutError)
    return grid


def mesh_of(grid: Sequence[int], ranks: int) -> Mesh:
    """A mesh with an axis `r0`, `r1`, ... for every part of a grid above 1, and `rest` for the ranks beyond it."""
    axes = [Axis(f"r{k}", parts) for k, parts in enumerate(grid) if parts > 1]
    rest = ranks // math.prod(grid)
    return Mesh((*axes, *([Axis("rest", rest)] if rest > 1 else [])))


def bindings(
    nest: Nest, grid: Sequence[int], mesh: Mesh, known: Mapping[str, DistType] | None = None
) -> Iterator[DistType]:
    """Ways to cut a nest by a grid with the axes of a mesh; those first that suit its arrays as they are known.

    >>> from redistrib.programs.nest import Access
    >>> square = Nest("square", {"i": 4, "j": 4}, [Access("a", (("j",), ("i",)))], [])
    >>> [str(cut) for cut in bindings(square, (2, 2), Mesh.of("x=2,y=2"))]
    ['[2{x}4, 2{y}4]', '[2{y}4, 2{x}4]']
    >>> next(map(str, bindings(square, (2, 2), Mesh.of("x=2,y=2"), {"a": DistType.of("[2{x}4, 2{y}4]")})))
    '[2{y}4, 2{x}4]'
    """
    suited = _suited(nest, known or {})
    order = [(parts, suited.get(name, ())) for name, parts in zip(nest.position, grid, strict=True)]
    for chosen in _chosen(order, mesh.axes):
        cut = cut_of(nest, dict(zip(nest.position, chosen, strict=True)), mesh)
        if cut is not None:
            yield cut


def _suited(nest: Nest, known: Mapping[str, DistType]) -> dict[str, tuple[str, ...]]:
    """For iteration dimensions that are array dimensions of their own the axes that cut those, major to minor."""
    suited: dict[str, tuple[str, ...]] = {}
    for access in (*nest.reads, *nest.writes):
        if access.array in known:
            for names, dim in zip(access.dims, known[access.array].dims, strict=True):
                if len(names) == 1 and dim.axes:
                    suited.setdefault(names[0], dim.axes[::-1])
    return suited


def _chosen(
    grid: Sequence[tuple[int, tuple[str, ...]]], axes: tuple[Axis, ...]
) -> Iterator[tuple[tuple[str, ...], ...]]:
    if not grid:
        yield ()
        return
    (parts, suited), later = grid[0], {name for _, names in grid[1:] for name in names}
    # axes that suit this dimension come first, in their order, and those that suit another one last
    rank = {name: k for k, name in enumerate(suited)}
    ordered = sorted(axes, key=lambda axis: (rank.get(axis.name, len(rank)), axis.name in later))
    for first in _products(parts, tuple(ordered)):
        left = tuple(axis for axis in axes if axis.name not in first)
        for rest in _chosen(grid[1:], left):
            yield (first, *rest)


def _products(parts: int, axes: tuple[Axis, ...]) -> Iterator[tuple[str, ...]]:
    """Ordered choices of axes whose sizes multiply to `parts`, fewest and foremost first."""
    if parts == 1:
        yield ()
        return
    usable = [axis for axis in axes if axis.size > 1 and parts % axis.size == 0]
    for count in range(1, len(usable) + 1):
        for chosen in permutations(usable, count):
            if math.prod(axis.size for axis in chosen) == parts:
                yield tuple(axis.name for axis in reversed(chosen))  # the foremost axis of the mesh is the most major


@dataclass(frozen=True)
class Kernel:
    """A nest, or several fused into one operation, with their grids."""

    name: str
    nests: tuple[Nest, ...]
    grids: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        """Devices that the grids take."""
        return max(math.prod(grid) for grid in self.grids)


class Bound(NamedTuple):
    """A kernel whose grids have axes, and what it needs from outside and leaves behind."""

    parts: tuple[Part, ...]
    place: Place
    group: Group


def unify(kernel: Kernel, place: Place, known: Mapping[str, DistType], limit: int | None = None) -> Iterator[Bound]:
    """Ways to give the nests of a kernel axes of a place so that they agree inside.

    Args:
        kernel: the nests and their grids.
        place: the devices; its mesh names the axes.
        known: types of arrays as they are, over the same mesh; what suits them comes first.
        limit: how many ways are tried, those that disagree among them; None: all.

    Raises:
        InconsistentGroupError: if no choice of axes makes the nests agree, or another error of `Part.signature`.
    """
    agreed, refused = False, None
    for bound in islice(_agreeing(kernel, place, (), known), limit):
        if isinstance(bound, RedistribError):
            refused = refused or bound
            continue
        agreed = True
        yield bound
    if refused is not None and not agreed:
        raise refused


def _agreeing(
    kernel: Kernel, place: Place, done: tuple[Part, ...], known: Mapping[str, DistType]
) -> Iterator[Bound | RedistribError]:
    """Parts that agree, and for those that do not the reason."""
    nest, grid = kernel.nests[len(done)], kernel.grids[len(done)]
    for cut in bindings(nest, grid, place.mesh, known):
        parts = (*done, Part(nest, cut))
        try:
            group = group_of(kernel.name, parts, place)
        except RedistribError as error:
            yield error
            if not isinstance(error, InconsistentGroupError):
                return
            continue
        if len(parts) == len(kernel.nests):
            yield Bound(parts, place, group)
        else:
            yield from _agreeing(kernel, place, parts, {**known, **group.reads, **group.writes})
