"""Mesh axes laid onto the dimensions of a torus: which take how many, and how fast each axis is then.

A device receives from both neighbours along each dimension that an axis takes. A dimension that does not close to a
ring has half of that: data goes around one way only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from redistrib.arith import prime_factors
from redistrib.cost.chips import Chip
from redistrib.cost.latency import LatencyBandwidth
from redistrib.lang.mesh import Mesh
from redistrib.programs.time.machine import Machine


def laid(machine: Machine, mesh: Mesh) -> list[Machine]:
    """A machine once for every way to lay the axes of a mesh onto its torus; the machine itself where it has none.

    Where a mesh has more devices than a slice, its first axis crosses slices: it has the bandwidth of the network.
    More axes than dimensions share them, so that each has the bandwidth of one. An axis lies on at most as many
    dimensions as it has prime factors, at least two devices along each: two devices have one link between them.

    >>> from redistrib.programs.time.constants import machine
    >>> [dict(one.layout) for one in laid(machine("v5p"), Mesh.of({"data": 64, "model": 8}))]
    [{'data': 2, 'model': 1}, {'data': 1, 'model': 2}]
    """
    chip, links = machine.chip, machine.links
    if chip is None or not chip.torus or not isinstance(links, LatencyBandwidth) or links.axis_bandwidth:
        return [machine]
    axes = [axis for axis in mesh.axes if axis.size > 1]
    outer = axes[0].name if axes and mesh.size > chip.group else ""
    inner = [axis.name for axis in axes if axis.name != outer]
    machines = []
    sizes = {axis.name: axis.size for axis in axes}
    most = [len(prime_factors(sizes[name])) for name in inner]
    ways = (tuple(map(min, dims, most)) for dims in _ways(len(inner), chip.torus))
    for dims in dict.fromkeys(ways):
        layout = {outer: 0} if outer else {}
        layout |= dict(zip(inner, dims, strict=True))
        speeds = {name: _speed(chip, sizes[name], count) for name, count in layout.items()}
        links_by_axis = replace(links, axis_bandwidth=speeds, devices_per_host=None)
        machines.append(replace(machine, links=links_by_axis, layout=layout))
    return machines or [machine]


def laid_as(machine: Machine, mesh: Mesh, layout: Mapping[str, int]) -> Machine:
    """A machine on whose torus the axes of a mesh lie so; the machine itself where it has no such way."""
    return next((way for way in laid(machine, mesh) if way.layout == layout), machine)


def _ways(axes: int, dims: int) -> Iterator[tuple[int, ...]]:
    """The ways to share out dimensions, at least one for each axis, the first axes having most first."""
    if axes == 0:
        yield ()
    elif axes >= dims:
        yield (1,) * axes
    elif axes == 1:
        yield (dims,)
    else:
        for first in range(dims - axes + 1, 0, -1):
            yield from ((first, *rest) for rest in _ways(axes - 1, dims - first))


def _speed(chip: Chip, size: int, dims: int) -> float:
    """Bytes per second that a device receives along an axis; no dimensions: over the network between slices."""
    return (2 if _closes(chip, size, dims) else 1) * dims * chip.link if dims else chip.network


def _closes(chip: Chip, size: int, dims: int) -> bool:
    """Whether an axis on so many dimensions has a ring along each."""
    side = round(size ** (1 / dims))
    is_ring = side**dims == size and side % chip.ring == 0 if dims > 1 else size % chip.ring == 0
    if dims > 1 and not is_ring:
        is_ring = size % chip.ring**dims == 0
    return is_ring


def described(machine: Machine, mesh: Mesh) -> str:
    """How the axes of a mesh lie on the torus or the hosts of a machine, in words; empty where nothing is to be said.

    >>> from redistrib.programs.time.constants import machine
    >>> mesh = Mesh.of({"slices": 4, "data": 256, "model": 16})
    >>> described(laid(machine("v5p"), mesh)[0], mesh)
    'slices between slices, data on 2 dimensions of the torus, model on a ring of the torus'
    >>> described(machine("h100"), Mesh.of({"data": 16, "model": 8}))
    'data between hosts, model inside a host'
    """
    chip = machine.chip
    if chip is None:
        return ""
    places = _on_torus(chip, machine.layout, mesh) if machine.layout else _on_hosts(chip, mesh)
    return ", ".join(f"{axis} {place}" for axis, place in places.items())


def _on_torus(chip: Chip, layout: Mapping[str, int], mesh: Mesh) -> dict[str, str]:
    sizes, places = {axis.name: axis.size for axis in mesh.axes}, {}
    for axis, dims in layout.items():
        line = "ring" if dims and _closes(chip, sizes[axis], dims) else "line"
        many = f"on {dims} dimensions of the torus" if dims else "between slices"
        places[axis] = f"on a {line} of the torus" if dims == 1 else many
    return places


def _on_hosts(chip: Chip, mesh: Mesh) -> dict[str, str]:
    """Of a mesh of several hosts, or racks, which have consecutive devices."""
    places, step = dict[str, str](), mesh.size
    host = "rack" if chip.group > 8 else "host"
    for axis in mesh.axes if mesh.size > chip.group and not chip.torus else ():
        span, step = step, step // axis.size
        inside = chip.group % span == 0
        if axis.size > 1:
            mixed = f"inside and between {host}s"
            places[axis.name] = f"inside a {host}" if inside else mixed if step % chip.group else f"between {host}s"
    return places
