"""Values: arrays over devices, the tile of each device, and the elements that it lacks of another value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import parse_type, print_type
from redistrib.lang.types import DimType, DistType
from redistrib.plans.dtypes import packed_bytes
from redistrib.programs.ir.halos import halo_rounds
from redistrib.programs.ir.windows import Held, Reach, held_shape, is_inside, reached
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement, placement_of
from redistrib.theory.subsets import Steps, text_of


@dataclass(frozen=True)
class Place:
    """Devices that hold a value or run an operation together.

    Attributes:
        mesh: the mesh they form.
        devices: the number that each has in the whole machine, by its number in the mesh; `0, 1, 2, ...` unless given.

    >>> from redistrib import Mesh
    >>> second = Place(Mesh.of("x=2"), (4, 5))  # the third pair of a machine's devices
    >>> print(second)
    {x:2}@4,5
    >>> Place(Mesh.of("x=2")).devices
    (0, 1)
    """

    mesh: Mesh
    devices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        devices = tuple(self.devices) or tuple(range(self.mesh.size))
        if len(devices) != self.mesh.size or len(set(devices)) != len(devices):
            raise ProgramError(
                "", "", "Place", f"mesh {self.mesh} needs {self.mesh.size} different devices, got {devices}"
            )
        object.__setattr__(self, "devices", devices)

    def __hash__(self) -> int:
        return hash((self.mesh, self._devices_hash))

    @cached_property
    def _devices_hash(self) -> int:
        return hash(self.devices)

    @cached_property
    def members(self) -> frozenset[int]:
        """The devices, in no order."""
        return frozenset(self.devices)

    @cached_property
    def order(self) -> Int64 | None:
        """The positions of the devices, ascending by device; None where they stand in that order."""
        devices = np.array(self.devices, dtype=np.int64)
        return np.argsort(devices) if (devices[1:] < devices[:-1]).any() else None

    def __str__(self) -> str:
        return f"{self.mesh}@{','.join(map(str, self.devices))}"


@dataclass(frozen=True)
class Value:
    """An array over devices.

    Attributes:
        name: in the program.
        type: how it is cut, or of which summands it is made.
        place: the devices that hold it.
        dtype: name of the element type.
        windows: where tiles overlap, see `Access`: the type is then that of the points, and every device holds the
            elements that its points read. Along a dimension with a `Reach` the type is that of the array, and the
            reach gives the elements of a device; those beyond the array are zero.
        padding: elements at the end of each dimension that are not the array's, where a cut does not divide it; empty
            for none. They may have any value. Types, shapes and tiles count them.

    >>> from redistrib import DistType, Mesh
    >>> h = Value("h", DistType.of("[4{x}8, 6]"), Place(Mesh.of("x=2")))
    >>> h.shape, h.tile, h.tile_bytes
    ((8, 6), (4, 6), 96)
    >>> h.boxes.rows()[1]
    Box(start=(4, 0), size=(4, 6))
    """

    name: str
    type: DistType
    place: Place
    dtype: str = "float32"
    windows: tuple[Held, ...] = ()
    padding: tuple[int, ...] = ()

    @property
    def form(self) -> str:
        """The type as text, with its padding, and the windows."""
        windows = f" windows ({', '.join(map(str, self.windows))})" if self.windows else ""
        return f"{type_text(self.type, self.padding)}{windows}"

    @property
    def subset(self) -> str:
        """What each device holds, with the axes of the place's mesh as variables; see `redistrib.theory.subsets`."""
        steps: list[Steps] = []
        for dim, held in zip(self.type.dims, self.windows or [1] * self.type.rank, strict=True):
            steps.append(Steps(*held) if isinstance(held, Reach) else Steps(dim.tile, 0, dim.tile + held - 1))
        return text_of(self.name, self.type, self.place.mesh, self.array_shape, steps)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array, in elements."""
        return reached(self.type.global_shape, self.windows)

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of the whole array without its padding, in elements."""
        return tuple(size - more for size, more in zip(self.shape, self.padding or (0,) * len(self.shape), strict=True))

    @property
    def tile(self) -> tuple[int, ...]:
        """Shape of each device's tile, in elements."""
        return held_shape(self.type.local_shape, self.windows)

    @property
    def placement(self) -> Placement:
        """The tile, and the summand, of every device of the place, in the order of `place.devices`."""
        return placement_of(self.type, self.place.mesh)

    @property
    def corner(self) -> Int64:
        """The first element of each device's tile in the whole array, `[devices, rank]`; it may lie beyond it."""
        start = self.placement.start
        if self.has_halos:
            start = start.copy()
            for k, held in enumerate(self.windows):
                if isinstance(held, Reach):
                    start[:, k] = self.placement.index[:, k] * held.step + held.start
        return start

    @property
    def has_halos(self) -> bool:
        """Whether devices hold elements of their neighbours' tiles."""
        return any(isinstance(held, Reach) for held in self.windows)

    @property
    def boxes(self) -> Boxes:
        """The box of each device of the place in the whole array, in the order of `place.devices`."""
        start, tile = self.corner, np.array(self.tile, dtype=np.int64)
        if not self.has_halos:
            return Boxes(start, np.broadcast_to(tile, start.shape))
        shape = np.array(self.shape, dtype=np.int64)
        first, end = np.clip(start, 0, shape), np.clip(start + tile, 0, shape)
        return Boxes(first, end - first)

    @property
    def tile_bytes(self) -> int:
        """Bytes that one device holds of it."""
        elements = math.prod(self.tile) if self.windows else self.type.local_size
        return packed_bytes(elements, self.dtype)

    def is_part_of(self, other: Value) -> bool:
        """Whether every device finds its halos in those of another value of the same type."""
        same = (self.type, self.place) == (other.type, other.place) and self.has_halos and other.has_halos
        return same and is_inside(self.windows, other.windows, self.type.local_shape)

    def means(self, other: Value) -> bool:
        """Whether every device has the same tile of both, under any names of meshes and axes."""
        return self.holds(other.type, other.place, other.windows)

    def holds(self, form: DistType, place: Place, windows: tuple[Held, ...] = ()) -> bool:
        """Whether every device has the tile that it has of an array of this type there, see `means`."""
        if self.windows != windows:
            return False
        if self.type == form and self.place == place:
            return True
        if (self.type.global_shape, self.type.local_shape) != (form.global_shape, form.local_shape):
            return False
        return self.place.members == place.members and _by_device(self.type, self.place) == _by_device(form, place)


def _by_device(form: DistType, place: Place) -> Placement:
    """The tile of every device of a place, ascending by device."""
    placement, order = placement_of(form, place.mesh), place.order
    if order is None:
        return placement
    summand = None if placement.summand is None else placement.summand[order]
    shape, grid, index = placement.shape, placement.grid, placement.index[order]
    return Placement(shape, grid, index, summand, placement.summands, placement.reduction)


def type_text(dist_type: DistType, padding: Sequence[int]) -> str:
    """A type with the padding of each dimension, `[4{x}7+1]` for `[4{x}8]` and 1; it may be of partial sums."""
    more = padding or (0,) * dist_type.rank
    dims = ((dim.tile, dim.axes, dim.size - n, dim.cut, n) for dim, n in zip(dist_type.dims, more, strict=True))
    return print_type(dims, dist_type.partial, dist_type.reduction)


def with_padding(form: DistType | str) -> tuple[DistType, tuple[int, ...]]:
    """A type, or the text of one, as the type of the array with its padding and the padding; empty for none.

    Raises:
        NotationError, TypeFormError: as `DistType.parse` does.

    >>> form, padding = with_padding("[4{x}7+1, 3] sum{y}")
    >>> str(form), padding, type_text(form, padding)
    ('[4{x}8, 3] sum{y}', (1, 0), '[4{x}7+1, 3] sum{y}')
    """
    if not isinstance(form, str) and not any(dim.padding for dim in form.dims):
        return form, ()
    node = parse_type(str(form))
    if not any(dim.padding for dim in node.dims):
        return DistType.of(form), ()
    dims = tuple(DimType(dim.tile, dim.axes, dim.size + dim.padding, dim.cut) for dim in node.dims)
    return DistType(dims, node.partial, node.reduction), tuple(dim.padding for dim in node.dims)


def pulled(value: Value, out: Value) -> dict[int, int]:
    """Elements of each device's new tile that it does not hold already, by its number in the machine.

    Elements of neighbours travel in rounds, each with one size for all devices.
    """
    if value.has_halos:  # they are cut out of it
        return dict.fromkeys(out.place.devices, 0)
    if out.has_halos:
        received = dict.fromkeys(out.place.devices, 0)
        for message in halo_rounds(out.type, out.place.mesh, out.windows):
            for receiver in message.pairs[:, 1].tolist():
                received[out.place.devices[receiver]] += message.elements
        return received
    before, after = ({device: k for k, device in enumerate(end.place.devices)} for end in (value, out))
    stays = [device for device in after if device in before]
    counts = dict.fromkeys(after, math.prod(out.tile))
    kept = value.boxes[_rows(before, stays)].meet(out.boxes[_rows(after, stays)])
    for device, elements in zip(stays, kept.volumes(), strict=True):
        counts[device] -= elements
    return counts


def _rows(number: dict[int, int], devices: list[int]) -> Int64:
    return np.array([number[device] for device in devices], dtype=np.int64)


def fresh(name: str, taken: set[str]) -> str:
    """A name that is not taken yet; it is taken then."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name
