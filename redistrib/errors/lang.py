"""Errors of the notation, of meshes, types and partition specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from redistrib.errors.base import RedistribError, RuleBroken, cut, listed, shown

# ---------------------------------------------------------------------------------------------- notation


class NotationError(RedistribError):
    """Text that is not in the notation of types or meshes.

    >>> from redistrib.lang.types import DistType
    >>> DistType.parse("[3{x}12, 2{y 12]")
    Traceback (most recent call last):
        ...
    redistrib.errors.NotationError: expected ',' or '}' after an axis name, found '12' (characters 13 to 15)
        [3{x}12, 2{y 12]
                     ^^

    Attributes:
        text: the whole text.
        start, end: the offending span, in characters; both `len(text)` at the end of the text.
        expected: the text that the grammar allows there.
        found: the text that is there.
    """

    def __init__(self, text: str, start: int, end: int, expected: str, found: str) -> None:
        self.text, self.start, self.end, self.expected, self.found = text, start, end, expected, found
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line_end = line_end if line_end >= 0 else len(text)
        first, last = max(line_start, start - _CONTEXT), min(line_end, start + _CONTEXT)
        before, after = "..." * (first > line_start), "..." * (last < line_end)
        caret = " " * (len(before) + start - first) + "^" * max(1, min(end, last) - start)
        span = f"characters {start} to {end}" if end > start else f"character {start}"
        line = "".join(c if c.isprintable() else " " for c in text[first:last])
        super().__init__(f"expected {expected}, found {cut(found)} ({span})\n    {before}{line}{after}\n    {caret}")


_CONTEXT = 200  # characters of a long line that a message shows before and after the error


# ------------------------------------------------------------------------------------------------ meshes


class MeshError(RuleBroken):
    """A mesh that breaks a rule, or a value that describes no mesh.

    >>> from redistrib.lang.mesh import Mesh
    >>> Mesh.of({"x": 0})
    Traceback (most recent call last):
        ...
    redistrib.errors.MeshError: axis 'x' has size 0; a mesh axis has a positive integer number of devices
    """

    wordings: ClassVar = {
        "mesh value": "{value!v} does not describe a mesh; give a Mesh, a dict such as {{'x': 4, 'y': 6}}, "
        "the text 'x=4,y=6', or a jax.sharding.Mesh",
        "axis name": "the axis name {name!v} is not a non-empty string; name mesh axes by strings such as 'x'",
        "duplicate axis": "axis {name!v} appears twice in mesh {mesh!c}; give every axis of a mesh its own name",
        "mesh size": "mesh {mesh!c} has {size!v} {subject} and at most {most} are possible; take a smaller mesh",
    }


def axis_size_error(name: str, size: object, most: int | None = None) -> MeshError:
    """The error of an axis size that is not a positive integer or, if `most` is given, is larger than `most`."""
    rule = "a positive integer number of" if most is None else f"at most {most}"
    return MeshError(
        "axis size",
        f"axis {shown(name)} has size {shown(size)}; a mesh axis has {rule} devices",
        name=name,
        size=size,
        most=most,
    )


def device_order_error(mesh: str, size: int, devices: Sequence[object], most: int) -> MeshError:
    """The error of device numbers that are too many, too few, repeated, or not integers from 0 to `most - 1`."""
    numbers = shown(list(devices[:16]), 400) + (f" and {len(devices) - 16} more" if len(devices) > 16 else "")
    return MeshError(
        "device order",
        f"mesh {cut(mesh, 200)} needs {size} different device numbers, from 0 to {most - 1:,}, got {numbers}; "
        f"leave them out to number devices row by row",
        mesh=mesh,
        size=size,
        devices=tuple(devices),
    )


# ------------------------------------------------------------------------------------------------- types


class TypeFormError(RuleBroken):
    """A type that is not well-formed over a mesh (Figure 7b), or a value that describes no type.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> DistType.parse("[5{x}12]").check(Mesh.of("x=4"))
    Traceback (most recent call last):
        ...
    redistrib.errors.TypeFormError: dimension 0 of [5{x}12]: 4 tiles of 5 make 20 elements, not 12; write 3{x}12
    """

    wordings: ClassVar = {
        "type value": "{value!v} does not describe a distributed type; give a DistType, its notation such as "
        "'[3{{x}}12, 24]', or a sequence of DimType",
        "type size": "the type has {subject}, and at most {most} are possible; take a smaller array",
        "dim size": "the {subject} {value!v} of a dimension is not an integer from 0 to 2**63 - 1",
        "dim cut": "a dimension is cut as {value!v}; it is cut in one of the ways {known!l}",
        "cut padding": "dimension {dim} is cut as {cut!v}, which needs no padding; leave the padding out",
        "axis reused": "axis {name!v} is used twice in {where!c}; a mesh axis may cut at most one dimension, once",
    }


class UnknownAxisError(MeshError, TypeFormError):
    """An axis that the mesh lacks.

    >>> from redistrib.lang.mesh import Mesh
    >>> Mesh.of("x=4,y=6").axis("z")
    Traceback (most recent call last):
        ...
    redistrib.errors.UnknownAxisError: mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'
    """

    def __init__(self, name: object, mesh: str, names: Sequence[str]) -> None:
        super().__init__(
            "unknown axis",
            f"mesh {cut(mesh, 200)} has no axis {shown(name)}; its axes are {listed(names)}",
            name=name,
            mesh=mesh,
            names=tuple(names),
        )


def tile_product_error(dist_type: str, dim: int, tile: int, tiles: int, size: int, remedy: str) -> TypeFormError:
    """The error of a dimension whose tiles do not make up its global size (wf-dim of Figure 7b)."""
    return TypeFormError(
        "tile product",
        f"dimension {dim} of {cut(dist_type, 200)}: {tiles} tile{'s' if tiles != 1 else ''} of {tile} "
        f"make{'s' if tiles == 1 else ''} {tile * tiles} elements, not {size}; {remedy}",
        dist_type=dist_type,
        dim=dim,
        tile=tile,
        tiles=tiles,
        size=size,
    )


def largest_tile_error(
    dist_type: str, dim: int, tile: int, tiles: int, size: int, largest: int, remedy: str
) -> TypeFormError:
    """The error of a dimension with an uneven cut whose largest tile has not the size in the type."""
    return TypeFormError(
        "largest tile",
        f"dimension {dim} of {cut(dist_type, 200)}: {size} elements in {tiles} tile{'s' if tiles != 1 else ''} make "
        f"largest tiles of {largest}, not {tile}; {remedy}",
        dist_type=dist_type,
        dim=dim,
        tile=tile,
        tiles=tiles,
        size=size,
    )


class PartialTypeError(TypeFormError):
    """A type whose tiles are partial sums, passed to a function that does not take them.

    >>> from redistrib.lang.types import DistType, require_whole
    >>> require_whole("to_mpi", DistType.parse("[8] sum{x}"))
    Traceback (most recent call last):
        ...
    redistrib.errors.PartialTypeError: to_mpi takes arrays whose tiles are parts of the array, and those of [8] \
sum{x} are partial sums; reduce it first, for example with jax.lax.psum or MPI's Allreduce

    Attributes:
        dist_type: the type.
    """

    def __init__(self, subject: str, dist_type: str) -> None:
        super().__init__(
            "partial type",
            f"{subject} takes arrays whose tiles are parts of the array, and those of {cut(dist_type, 200)} are "
            "partial sums; reduce it first, for example with jax.lax.psum or MPI's Allreduce",
            dist_type=dist_type,
        )


class UnevenTypeError(TypeFormError):
    """A type whose tiles are of unequal size or padded, passed to a function that takes equal tiles only.

    >>> from redistrib.lang.types import DistType, require_even
    >>> require_even("the paper's algorithm", DistType.parse("[3~{x}8]"))
    Traceback (most recent call last):
        ...
    redistrib.errors.UnevenTypeError: the paper's algorithm takes tiles of one size, and those of [3~{x}8] are of \
unequal size or padded; take axes that divide the array, or an array with padding as elements like any others

    Attributes:
        dist_type: the type.
    """

    def __init__(self, subject: str, dist_type: str, remedy: str = "") -> None:
        remedy = remedy or "take axes that divide the array, or an array with padding as elements like any others"
        reason = f"{subject} takes tiles of one size, and those of {cut(dist_type, 200)} are of unequal size or padded"
        super().__init__("uneven type", f"{reason}; {remedy}", dist_type=dist_type)


class SpecError(TypeFormError):
    """A partition spec or a sharding that has no meaning as a distributed type.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.specs import from_partition_spec
    >>> from_partition_spec((3,), (12,), Mesh.of("x=4"))
    Traceback (most recent call last):
        ...
    redistrib.errors.SpecError: entry 0 of the partition spec is 3; an entry is None, an axis name, or a tuple of \
axis names from major to minor
    """

    wordings: ClassVar = {
        "spec form": "{value!v} is no partition spec; give a jax.sharding.PartitionSpec, or a tuple with one entry "
        "for each dimension: None, an axis name, or a tuple of axis names from major to minor",
        "sharding form": "{value!v} has no mesh and partition spec; give a jax.sharding.NamedSharding, "
        "the one kind of sharding that a distributed type can say",
        "spec entry": "entry {dim} of the partition spec is {entry!v}; "
        "an entry is None, an axis name, or a tuple of axis names from major to minor",
        "unconstrained spec": "entry {dim} of the partition spec is UNCONSTRAINED, which leaves the cut to the "
        "compiler; say how dimension {dim} is cut: None, an axis name, or a tuple of axis names",
        "unreduced axes": "{dist_type} has partial sums along {axes!l}, and JAX has them along Explicit axes alone; "
        "make "
        "the mesh by jax.make_mesh(..., axis_types=(AxisType.Explicit, ...)), or give all partial sums as a first "
        "dimension to redistrib.to_jax(..., stacked=True)",
        "unreduced put": "tiles of {dist_type} are partial sums, and those are moved between jax.Arrays on the same "
        "devices alone; go by way of an array without partial sums there",
        "unreduced spec": "a partition spec that is unreduced over {axes!l} by the reduction {reduction!v} cannot be "
        "said by both JAX and a distributed type; both know sums, so reduce these axes first",
    }


class DTensorError(SpecError, RuntimeError):
    """A placement, a mesh or an option of a DTensor that has no meaning; a `RuntimeError` too, as in PyTorch.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.placements import from_placements
    >>> from_placements([], (12,), Mesh.of("x=4"))
    Traceback (most recent call last):
        ...
    redistrib.errors.DTensorError: 0 placements for the mesh {x:4} of 1 dimensions; give one for each
    """

    wordings: ClassVar = {
        "placement": "{value!v} is no placement of a DTensor that a distributed type can say; give Shard, Replicate, "
        "Partial or _StridedShard",
        "placements": "{count} placements for the mesh {mesh} of {axes} dimensions; give one for each",
        "placement dimension": "{value!v} shards a dimension that a tensor of rank {rank} does not have",
        "partial placement": "partial placements of {names!l}: a tensor has partial sums of one kind, sum, avg, max or "
        "min; reduce it first",
        "partial target": "{value!v} is a target where the source is no such partial sum over this mesh dimension; "
        "redistribute to Replicate or Shard",
        "split factor": "{value!v} is sharding after {factor} other shards, and no mesh dimensions of {mesh} that come "
        "later make so many; redistribute to Shard or Replicate by DTensor first",
        "uneven strided": "dimension {dim} of {size} elements is strided over the mesh in shards of unequal size, "
        "{placements}, which are no boxes of the tensor; pad the dimension, or shard it by Shard alone",
        "device type": "a tensor in memory of {source} goes to a mesh of {target}; give meshes of one kind of device, "
        "and move the local tensors on before or after",
        "shard order": "the shard order {value!v} of tensor dimension {dim} does not name the mesh dimensions "
        "{expected}, which shard it, each once",
        "device mesh": "{value!v} is no DeviceMesh; give a torch.distributed.device_mesh.DeviceMesh, or None for that "
        "of the tensor",
        "placement list": "{value!v} is no list of placements; give one for each dimension of the mesh: Shard, "
        "Replicate, Partial or _StridedShard",
        "shard order form": "{value!v} is no shard order; give for each tensor dimension the mesh dimensions that cut "
        "it, as {{0: (1, 0)}}",
        "hosts": "{value!v} are no hosts of the {ranks} ranks of the default group; give one number or name for each",
        "element type": "{option}={value!v} is no element type; give a torch.dtype, or None to convert nothing",
        "local class": "the local tensor is a {name}, which DTensor moves on its own mesh alone and without options of "
        "a plan; pass neither, or take the tensors inside it",
        "dtensor": "plans do not know the placements of {move}, and DTensor refuses them: {error}",
    }


def spec_rank_error(entries: int, shape: Sequence[int]) -> SpecError:
    """The error of a partition spec with more entries than the array has dimensions."""
    return SpecError(
        "spec rank",
        f"the partition spec has {entries} entries and the shape {tuple(shape)} only {len(tuple(shape))} "
        f"dimension{'s' if len(tuple(shape)) != 1 else ''}; give at most one entry for each dimension",
        entries=entries,
        shape=tuple(shape),
    )


def spec_division_error(dim: int, size: int, axes: Sequence[str], tiles: int) -> SpecError:
    """The error of a dimension that the axes of its entry do not divide."""
    return SpecError(
        "spec division",
        f"dimension {dim} has {size} elements, which {'axis' if len(axes) == 1 else 'axes'} {listed(axes)} cannot "
        f"cut into {tiles} equal tiles; take other axes, or pad the dimension to {-(-size // tiles) * tiles}",
        dim=dim,
        size=size,
        axes=tuple(axes),
        tiles=tiles,
    )
