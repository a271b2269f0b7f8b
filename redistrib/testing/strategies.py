"""Hypothesis strategies: meshes, types, pairs of types to move between, and plans."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hypothesis import strategies as st

from redistrib.arith import divisors
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.notation import Cut
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.testing.cases import RedistributionCase, cut_type, tiles_of
from redistrib.theory.torus import Torus

NAMES = "xyzuvw"


@st.composite
def meshes(draw: st.DrawFn, max_devices: int = 24, max_axes: int = 4, shuffled: bool = False) -> Mesh:
    """Meshes of at most `max_devices` devices; axes of size 1 and of composite size among them.

    Args:
        shuffled: whether the device numbers may be in any order.

    >>> from hypothesis import find
    >>> find(meshes(2, 1), lambda mesh: mesh.size == 2)
    Mesh({x:2})
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
    """Grids of one to three dimensions, in rings or not, with a device on every node, in any order of their numbers.

    >>> from hypothesis import find
    >>> find(tori(4), lambda torus: min(torus.shape) == 2).shape
    (2, 2)
    """
    shape: list[int] = []
    while len(shape) < 2 and draw(st.booleans()):
        shape.append(draw(st.sampled_from(divisors(devices // math.prod(shape)))))
    shape.append(devices // math.prod(shape))
    nodes = draw(st.permutations(list(itertools.product(*map(range, shape)))))
    return Torus(tuple(shape), tuple(draw(st.booleans()) for _ in shape), tuple(nodes))


@st.composite
def cuts(draw: st.DrawFn, mesh: Mesh, rank: int) -> tuple[tuple[str, ...], ...]:
    """For each dimension the axes that cut it, minor to major; an axis may cut none.

    >>> from hypothesis import find
    >>> find(cuts(Mesh.of("x=2"), 2), lambda cut: cut[1])
    ((), ('x',))
    """
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(mesh.names)):
        where = draw(st.integers(0, rank))
        if where < rank:
            dims[where].append(name)
    return tuple(map(tuple, dims))


@st.composite
def types(draw: st.DrawFn, mesh: Mesh, max_rank: int = 3) -> DistType:
    """Well-formed types over a mesh.

    >>> from hypothesis import find
    >>> print(find(types(Mesh.of("x=2"), 1), lambda form: form.axes and form.global_size == 4))
    [2{x}4]
    """
    cut = draw(cuts(mesh, draw(st.integers(0, max_rank))))
    shape = tuple(tiles_of(mesh, names) * draw(st.integers(1, 3)) for names in cut)
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

    >>> from hypothesis import find
    >>> find(redistributions(), lambda case: any(case.plan().received)).mesh.size > 1
    True
    """
    mesh = draw(meshes(max_devices, max_axes, shuffled=two_meshes))
    target_mesh = mesh
    if two_meshes and draw(st.booleans()):
        sizes = draw(st.permutations([axis.size for axis in mesh.axes]))
        devices = tuple(draw(st.permutations(range(mesh.size))))
        target_mesh = Mesh(tuple(Axis(name, size) for name, size in zip(NAMES, sizes, strict=False)), devices)
    rank = draw(st.integers(0, max_rank))
    source, target = draw(cuts(mesh, rank)), draw(cuts(target_mesh, rank))
    shape = [math.lcm(tiles_of(mesh, s), tiles_of(target_mesh, t)) for s, t in zip(source, target, strict=True)]
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
    """Pairs of types of one global shape of any sizes, now and then on meshes of different devices, or padded.

    >>> from hypothesis import find
    >>> find(uneven_redistributions(), lambda case: case.source.uneven).plan().source.uneven
    True
    """
    first, other = draw(meshes(max_devices, 3)), draw(meshes(max_devices, 3))
    if draw(st.booleans()):
        other = first
    elif draw(st.booleans()):
        start = draw(st.integers(0, 3))
        other = Mesh.of(other, range(start, start + other.size))
    rank = draw(st.integers(1, max_rank))
    shape = [draw(st.integers(1, 14)) for _ in range(rank)]
    while math.prod(shape) > max_size:
        shape[shape.index(max(shape))] //= 2
    sides = []
    for mesh in (first, other):
        cut = draw(cuts(mesh, rank))
        ways: tuple[Cut, ...] = ("balanced", "chunk")
        dims = list(cut_type(mesh, shape, cut, [draw(st.sampled_from(ways)) for _ in shape]).dims)
        for i in range(rank):
            if draw(st.integers(0, 2)) == 0:
                tile = dims[i].tile + draw(st.integers(0, 3))
                dims[i] = DimType(tile, dims[i].axes, shape[i], padding=tile * tiles_of(mesh, cut[i]) - shape[i])
        sides.append(DistType(tuple(dims)))
    return RedistributionCase(sides[0], sides[1], first, other)


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

    >>> from hypothesis import find
    >>> find(plans(), lambda plan: plan.algorithm == "paper").cost_model
    'paper'
    """
    algorithm, model = draw(st.sampled_from(algorithms))
    return draw(redistributions(max_devices, max_rank)).plan(algorithm, model)
