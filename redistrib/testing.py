"""Strategies and enumerations for tests: meshes, types, pairs of types to move between, and plans.

Needs Hypothesis (the extra `testing`). Shapes are as small as the cuts allow, so that examples stay readable and
the NumPy reference is fast; what is counted in elements only scales with the shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from redistrib.arith import divisors
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.notation import Cut, Reduction
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run, scatter
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.torus import Torus

NAMES = "xyzuvw"


@dataclass(frozen=True)
class RedistributionCase:
    """A pair of types to move an array between.

    Attributes:
        source, target: types of one global shape.
        mesh: the mesh of the source type.
        target_mesh: the mesh of the target type, over the same devices.
    """

    source: DistType
    target: DistType
    mesh: Mesh
    target_mesh: Mesh

    @property
    def before(self) -> Placement:
        """Where the data is."""
        return placement_of(self.source, self.mesh)

    @property
    def after(self) -> Placement:
        """Where the data is wanted."""
        return placement_of(self.target, self.target_mesh)

    def reversed(self) -> RedistributionCase:
        """The way back."""
        return RedistributionCase(self.target, self.source, self.target_mesh, self.mesh)

    def plan(self, algorithm: str = "best", model: str = "exact") -> Plan:
        """The plan that the synthesis finds."""
        return synthesize(self.source, self.mesh, self.target, self.target_mesh, algorithm=algorithm, model=model)

    def __str__(self) -> str:
        return f"{self.source} on {self.mesh!r} -> {self.target} on {self.target_mesh!r}"


# ---------------------------------------------------------------------------------------------- enumerations


def all_cuts(names: Sequence[str], rank: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Every way to let axes cut dimensions: for each dimension the axes that cut it, minor to major.

    >>> len(list(all_cuts("xyz", 3)))
    106
    """
    for used in range(len(names) + 1 if rank else 1):
        for order in itertools.permutations(names, used):
            for bars in itertools.combinations(range(used + rank - 1), rank - 1) if rank else [()]:
                edges = (-1, *bars, used + rank - 1)
                sizes = [b - a - 1 for a, b in itertools.pairwise(edges)] if rank else []
                ends = [0, *itertools.accumulate(sizes)]
                yield tuple(order[a:b] for a, b in itertools.pairwise(ends))


def all_types(mesh: Mesh, shape: Sequence[int]) -> Iterator[DistType]:
    """Every well-formed type of a global shape over a mesh.

    >>> for dist_type in all_types(Mesh.of("x=2"), (2, 3)):
    ...     print(dist_type)
    [2, 3]
    [1{x}2, 3]
    """
    for cut in all_cuts(mesh.names, len(shape)):
        if all(size % _tiles(mesh, names) == 0 for size, names in zip(shape, cut, strict=True)):
            yield cut_type(mesh, shape, cut)


def all_partial_types(mesh: Mesh, shape: Sequence[int], reduction: Reduction = "sum") -> Iterator[DistType]:
    """Every well-formed type of a global shape over a mesh, each with every set of its free axes as partial axes.

    >>> for dist_type in all_partial_types(Mesh.of("x=2"), (2, 3)):
    ...     print(dist_type)
    [2, 3]
    [2, 3] sum{x}
    [1{x}2, 3]
    """
    for dist_type in all_types(mesh, shape):
        free = [name for name in mesh.names if name not in dist_type.axes]
        for count in range(len(free) + 1):
            for partial in itertools.combinations(free, count):
                yield replace(dist_type, partial=partial, reduction=reduction if partial else None)


def cut_type(
    mesh: Mesh, shape: Sequence[int], cut: Sequence[Sequence[str]], how: Sequence[Cut] | None = None
) -> DistType:
    """The type of a global shape whose dimensions are cut by the given axes, minor to major.

    Args:
        how: for each dimension how it is cut where the axes do not divide it.
    """
    ways = ["even"] * len(shape) if how is None else how
    dims = []
    for size, names, way in zip(shape, cut, ways, strict=True):
        tiles = _tiles(mesh, names)
        dims.append(DimType(-(-size // tiles), tuple(names), size, cast(Cut, way if size % tiles else "even")))
    return DistType(tuple(dims))


def _tiles(mesh: Mesh, names: Sequence[str]) -> int:
    return math.prod(mesh.axis(name).size for name in names)


# ---------------------------------------------------------------------------------------------- strategies


@st.composite
def meshes(draw: st.DrawFn, max_devices: int = 24, max_axes: int = 4, shuffled: bool = False) -> Mesh:
    """Meshes of at most `max_devices` devices; axes of size 1 and of composite size among them.

    Args:
        shuffled: whether the device numbers may be in any order.
    """
    axes: list[Axis] = []
    room = max_devices
    for name in NAMES[: draw(st.integers(0, max_axes))]:
        size = draw(st.integers(1, min(room, 8)))
        room //= size
        axes.append(Axis(name, size))
    mesh = Mesh(tuple(axes))
    if shuffled and draw(st.booleans()):
        mesh = Mesh(mesh.axes, tuple(draw(st.permutations(range(mesh.size)))))
    return mesh


@st.composite
def tori(draw: st.DrawFn, devices: int) -> Torus:
    """Grids of one to three dimensions, in rings or not, with a device on every node, in any order of their numbers."""
    shape: list[int] = []
    while len(shape) < 2 and draw(st.booleans()):
        shape.append(draw(st.sampled_from(divisors(devices // math.prod(shape)))))
    shape.append(devices // math.prod(shape))
    nodes = draw(st.permutations(list(itertools.product(*map(range, shape)))))
    return Torus(tuple(shape), tuple(draw(st.booleans()) for _ in shape), tuple(nodes))


@st.composite
def cuts(draw: st.DrawFn, mesh: Mesh, rank: int) -> tuple[tuple[str, ...], ...]:
    """For each dimension the axes that cut it, minor to major; an axis may cut none."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(mesh.names)):
        where = draw(st.integers(0, rank))
        if where < rank:
            dims[where].append(name)
    return tuple(map(tuple, dims))


@st.composite
def types(draw: st.DrawFn, mesh: Mesh, max_rank: int = 3) -> DistType:
    """Well-formed types over a mesh."""
    cut = draw(cuts(mesh, draw(st.integers(0, max_rank))))
    shape = tuple(_tiles(mesh, names) * draw(st.integers(1, 3)) for names in cut)
    return cut_type(mesh, shape, cut)


@st.composite
def redistributions(
    draw: st.DrawFn,
    max_devices: int = 24,
    max_rank: int = 3,
    max_axes: int = 4,
    two_meshes: bool = True,
    max_size: int = 50_000,
) -> RedistributionCase:
    """Pairs of types of one global shape, now and then on two meshes over the same devices.

    Args:
        two_meshes: whether source and target may be on meshes of different axes and device orders.
        max_size: most elements of the global array.
    """
    mesh = draw(meshes(max_devices, max_axes, shuffled=two_meshes))
    target_mesh = mesh
    if two_meshes and draw(st.booleans()):
        sizes = draw(st.permutations([axis.size for axis in mesh.axes]))
        devices = tuple(draw(st.permutations(range(mesh.size))))
        target_mesh = Mesh(tuple(Axis(name, size) for name, size in zip(NAMES, sizes, strict=False)), devices)
    rank = draw(st.integers(0, max_rank))
    source, target = draw(cuts(mesh, rank)), draw(cuts(target_mesh, rank))
    shape = [math.lcm(_tiles(mesh, s), _tiles(target_mesh, t)) for s, t in zip(source, target, strict=True)]
    for i in range(rank):
        # A factor beyond what must divide: sometimes room for more cuts (over-partitioning), sometimes none.
        factor = draw(st.sampled_from([1, 1, 2, 3, 4]))
        if math.prod(shape) * factor <= max_size:
            shape[i] *= factor
    if math.prod(shape) > max_size:
        shape = [1] * rank
        source = target = ((),) * rank
    return RedistributionCase(cut_type(mesh, shape, source), cut_type(target_mesh, shape, target), mesh, target_mesh)


@st.composite
def uneven_redistributions(
    draw: st.DrawFn, max_devices: int = 12, max_rank: int = 3, max_size: int = 2_000
) -> RedistributionCase:
    """Pairs of types of one global shape of any sizes, now and then on meshes of different devices, or padded."""
    meshes_drawn = [draw(meshes(max_devices, 3)) for _ in range(2)]
    if draw(st.booleans()):
        meshes_drawn[1] = meshes_drawn[0]
    elif draw(st.booleans()):
        first = draw(st.integers(0, 3))
        other = meshes_drawn[1]
        meshes_drawn[1] = Mesh(other.axes, tuple(range(first, first + other.size)))
    rank = draw(st.integers(1, max_rank))
    shape = [draw(st.integers(1, 14)) for _ in range(rank)]
    while math.prod(shape) > max_size:
        shape[shape.index(max(shape))] //= 2
    sides = []
    for mesh in meshes_drawn:
        cut = draw(cuts(mesh, rank))
        ways: tuple[Cut, ...] = ("balanced", "chunk")
        dims = list(cut_type(mesh, shape, cut, [draw(st.sampled_from(ways)) for _ in shape]).dims)
        for i in range(rank):
            if draw(st.integers(0, 2)) == 0:
                tile = dims[i].tile + draw(st.integers(0, 3))
                dims[i] = DimType(tile, dims[i].axes, shape[i], padding=tile * _tiles(mesh, cut[i]) - shape[i])
        sides.append(DistType(tuple(dims)))
    return RedistributionCase(sides[0], sides[1], meshes_drawn[0], meshes_drawn[1])


@st.composite
def plans(
    draw: st.DrawFn,
    algorithms: Sequence[tuple[str, str]] = (("best", "exact"), ("best", "tpu"), ("paper", "paper")),
    max_devices: int = 24,
    max_rank: int = 3,
) -> Plan:
    """Plans that the synthesis finds.

    Args:
        algorithms: pairs of algorithm and cost model to choose from.
    """
    algorithm, model = draw(st.sampled_from(list(algorithms)))
    return draw(redistributions(max_devices, max_rank)).plan(algorithm, model)


# ---------------------------------------------------------------------------------------------- checks


def numbered(shape: Sequence[int]) -> npt.NDArray[np.int64]:
    """An array in which every element is different."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(tuple(shape))


def is_exact(plan: Plan) -> bool:
    """Whether the NumPy reference, run on an array of different elements, leaves every device with its target tile."""
    whole = numbered(plan.shape)
    tiles = run(plan, scatter(whole, plan.before))
    return all(np.array_equal(got, want) for got, want in zip(tiles, scatter(whole, plan.after), strict=True))


def check_replicas(tree: Any) -> None:
    """Check that devices that hold one tile of an array hold the same bits, in every `jax.Array` of a tree.

    `jax.shard_map(check_vma=False)` can make arrays that JAX calls replicated and that are not. It copies every tile
    that has replicas to the host; of arrays of several processes each looks at its own devices.

    Raises:
        ReplicaError: for the first pair of devices that differ; names the leaf, the devices, and the first element.
    """
    from redistrib.resharding.replicas import check_replicas as check

    check(tree)
