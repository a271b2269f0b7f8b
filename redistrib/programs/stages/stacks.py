"""Arrays stacked over layers whose runs of layers lie on the devices of different stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import NamedSharding, PartitionSpec

from redistrib.backends.jax.dummies import without_shards
from redistrib.errors import ProgramError
from redistrib.programs.stages.parts import Pieces
from redistrib.theory.boxes import Box, boxes_of


class LayerRuns:
    """An array stacked over layers whose runs of layers are separate arrays, each on the devices of its stage.

    A `jax.Array` has tiles of one size, one on each device. Runs of several lengths, and several runs on one device,
    make no such array. `np.asarray` joins the runs.

    Attributes:
        parts: the runs, in the order of the layers.
        dim: the dimension of the layers.
        shape, dtype: of all together.
    """

    def __init__(self, parts: Sequence[jax.Array], dim: int) -> None:
        self.parts, self.dim, self.dtype = tuple(parts), dim, parts[0].dtype
        shape = list(parts[0].shape)
        shape[dim] = sum(part.shape[dim] for part in parts)
        self.shape: tuple[int, ...] = tuple(shape)

    @property
    def ndim(self) -> int:
        """Dimensions."""
        return len(self.shape)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if not self.is_fully_addressable:
            raise ProgramError(
                "", str(self), "Results", "its layers lie on devices of several processes; read addressable_shards of "
                "its parts, or move each part to devices of this process with rd.reshard",
            )  # fmt: skip
        return np.concatenate([np.asarray(part) for part in self.parts], self.dim).astype(dtype or self.dtype)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices of all runs are of this process."""
        return all(part.is_fully_addressable for part in self.parts)

    def block_until_ready(self) -> LayerRuns:
        """Wait for all runs, as `jax.block_until_ready` does for arrays of a tree."""
        for part in self.parts:
            part.block_until_ready()
        return self

    def __repr__(self) -> str:
        sizes = " + ".join(str(part.shape[self.dim]) for part in self.parts)
        return f"LayerRuns({self.dtype}{list(self.shape)}, dimension {self.dim} in {sizes})"


def joined(parts: Sequence[jax.Array], dim: int) -> jax.Array | LayerRuns:
    """Runs of layers as one array, without a copy where their tiles are of one size, each on its own devices."""
    shardings = [part.sharding for part in parts]
    meshes = [sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)]
    devices = [device for mesh in meshes for device in mesh.devices.flat]
    is_even = (
        len(meshes) == len(parts)
        and len({part.shape for part in parts}) == 1
        and len({(mesh.axis_names, mesh.devices.shape) for mesh in meshes}) == 1
        and len({_spec(part) for part in parts}) == 1
        and len(devices) == len({*devices})
    )
    if not is_even:
        return LayerRuns(parts, dim)
    names = meshes[0].axis_names
    mesh = jax.sharding.Mesh(
        np.stack([mesh.devices for mesh in meshes]),
        ("stage", *names),
        axis_types=(meshes[0].axis_types[0],) * (len(names) + 1),
    )
    entries = list(_spec(parts[0]))
    entries[dim] = ("stage", *entries[dim])
    shape = list(parts[0].shape)
    shape[dim] *= len(parts)
    shards = [shard.data for part in parts for shard in part.addressable_shards]
    sharding = NamedSharding(mesh, PartitionSpec(*(entry or None for entry in entries)))
    return jax.make_array_from_single_device_arrays(tuple(shape), sharding, shards, dtype=parts[0].dtype)


def _spec(array: jax.Array) -> tuple[tuple[str, ...], ...]:
    """For every dimension the mesh axes that cut it."""
    assert isinstance(array.sharding, NamedSharding)
    spec = [*array.sharding.spec, *[None] * (array.ndim - len(array.sharding.spec))]
    return tuple(() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in spec)


def parted(name: str, whole: Any, pieces: Pieces, shardings: Sequence[NamedSharding]) -> list[Any]:
    """The runs of layers of an argument; those that lie where they are needed are not copied.

    Raises:
        ProgramError: for an array of several processes whose tiles lie elsewhere.
    """
    if isinstance(whole, LayerRuns):
        lengths = [last - first for first, last in pieces.bounds]
        if whole.dim == pieces.dim and [part.shape[whole.dim] for part in whole.parts] == lengths:
            return [*whole.parts]
        if not whole.is_fully_addressable:
            raise _lies_elsewhere(name)
        whole = np.asarray(whole)
    return [
        _part(name, whole, pieces.dim, *bounds, sharding)
        for bounds, sharding in zip(pieces.bounds, shardings, strict=True)
    ]


def _part(name: str, whole: Any, dim: int, first: int, last: int, to: NamedSharding) -> Any:
    index = (*[slice(None)] * dim, slice(first, last))
    if not isinstance(whole, jax.Array):
        return np.asarray(whole)[index]
    shape = (*whole.shape[:dim], last - first, *whole.shape[dim + 1 :])
    there = {shard.device: shard for shard in whole.addressable_shards}
    tiles = boxes_of(to, shape, here=True)
    by = tuple(first if k == dim else 0 for k in range(len(shape)))
    if (
        whole.committed
        and all(
            device in there and Box.at(there[device].index, whole.shape) == box.moved(by)
            for device, box in tiles.items()
        )
        and (tiles or not whole.is_fully_addressable)
    ):
        if not tiles:
            return without_shards(shape, whole.dtype, to)
        return jax.make_array_from_single_device_arrays(shape, to, [there[device].data for device in tiles])
    if not whole.is_fully_addressable:
        raise _lies_elsewhere(name)
    return whole[index]


def _lies_elsewhere(name: str) -> ProgramError:
    why = (
        "its layers lie on devices of several processes, and not as the stages hold them; give every process the "
        "whole of it, as a NumPy array, or a result of the function"
    )
    return ProgramError("", name, "Arguments", why)
