"""Every exception of the library: one class per broken rule, the offending values as attributes.

All derive from `RedistribError`, itself a `ValueError`. A message names the value, the rule it breaks and the
way out. Meshes and types are held as their notation, so this module depends on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RedistribError(ValueError):
    """Base class of every error that the library raises on purpose.

    Errors survive pickling with all their attributes, so they may cross process boundaries.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, dict(self.__dict__))


def _restore(kind: type[RedistribError], args: tuple[Any, ...], values: dict[str, Any]) -> RedistribError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) if names else "none"


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
        expected: what would have been right.
        found: what stood there.
    """

    def __init__(self, text: str, start: int, end: int, expected: str, found: str) -> None:
        self.text, self.start, self.end, self.expected, self.found = text, start, end, expected, found
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line = text[line_start : line_end if line_end >= 0 else len(text)]
        caret = " " * (start - line_start) + "^" * max(1, min(end, line_start + len(line)) - start)
        where = f"characters {start} to {end}" if end > start else f"character {start}"
        shown = "".join(c if c.isprintable() else " " for c in line)
        super().__init__(f"expected {expected}, found {found} ({where})\n    {shown}\n    {caret}")


# ------------------------------------------------------------------------------------------------ meshes


class MeshError(RedistribError):
    """A mesh that cannot be."""


class MeshValueError(MeshError):
    """A value that does not describe a mesh."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} does not describe a mesh; give a Mesh, a dict such as {{'x': 4, 'y': 6}}, "
            f"the text 'x=4,y=6', or a jax.sharding.Mesh"
        )


class AxisNameError(MeshError):
    """An axis name that is not a non-empty string."""

    def __init__(self, name: object) -> None:
        self.name = name
        super().__init__(f"the axis name {name!r} is not a non-empty string; name mesh axes by strings such as 'x'")


class AxisSizeError(MeshError):
    """An axis size that is not a positive integer."""

    def __init__(self, name: str, size: object) -> None:
        self.name, self.size = name, size
        super().__init__(f"axis {name!r} has size {size!r}; a mesh axis has a positive integer number of devices")


class DuplicateAxisError(MeshError):
    """Two axes of a mesh with one name."""

    def __init__(self, name: str, mesh: str) -> None:
        self.name, self.mesh = name, mesh
        super().__init__(f"axis {name!r} appears twice in mesh {mesh}; give every axis of a mesh its own name")


class MeshSizeError(MeshError):
    """A mesh of more devices than can be listed."""

    def __init__(self, mesh: str, size: int, most: int) -> None:
        self.mesh, self.size, self.most = mesh, size, most
        super().__init__(f"mesh {mesh} has {size} devices and at most {most} are possible; take a smaller mesh")


class DeviceOrderError(MeshError):
    """A device order that is not a permutation of the device numbers."""

    def __init__(self, mesh: str, size: int, devices: Sequence[object]) -> None:
        self.mesh, self.size, self.devices = mesh, size, tuple(devices)
        shown = repr(list(devices)) if len(devices) <= 16 else f"{list(devices[:16])!r} and {len(devices) - 16} more"
        super().__init__(
            f"mesh {mesh} needs each device number from 0 to {size - 1} exactly once, got {shown}; "
            f"leave the device order out to number devices row by row"
        )


# ------------------------------------------------------------------------------------------------- types


class TypeFormError(RedistribError):
    """A type that is not well-formed over a mesh (Figure 7b)."""


class TypeValueError(TypeFormError):
    """A value that does not describe a distributed type."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} does not describe a distributed type; give a DistType, its notation such as "
            f"'[3{{x}}12, 24]', or a sequence of DimType"
        )


class DimSizeError(TypeFormError):
    """A tile or global size that is not an integer from 0 to 2**63 - 1."""

    def __init__(self, what: str, value: object) -> None:
        self.what, self.value = what, value
        super().__init__(f"the {what} {value!r} of a dimension is not an integer from 0 to 2**63 - 1")


class UnknownAxisError(MeshError, TypeFormError):
    """An axis that the mesh lacks.

    >>> from redistrib.lang.mesh import Mesh
    >>> Mesh.of("x=4,y=6").axis("z")
    Traceback (most recent call last):
        ...
    redistrib.errors.UnknownAxisError: mesh {x:4, y:6} has no axis 'z'; its axes are 'x', 'y'
    """

    def __init__(self, name: object, mesh: str, names: Sequence[str]) -> None:
        self.name, self.mesh, self.names = name, mesh, tuple(names)
        super().__init__(f"mesh {mesh} has no axis {name!r}; its axes are {_listed(names)}")


class AxisReusedError(TypeFormError):
    """An axis that cuts an array twice."""

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where
        super().__init__(f"axis {name!r} is used twice in {where}; a mesh axis may cut at most one dimension, once")


class TileProductError(TypeFormError):
    """A dimension whose tile times its axes is not its global size (wf-dim of Figure 7b).

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> DistType.parse("[5{x}12]").check(Mesh.of("x=4"))
    Traceback (most recent call last):
        ...
    redistrib.errors.TileProductError: dimension 0 of [5{x}12]: 4 tiles of 5 make 20 elements, not 12; write 3{x}12
    """

    def __init__(self, dist_type: str, dim: int, tile: int, tiles: int, size: int, remedy: str) -> None:
        self.dist_type, self.dim, self.tile, self.tiles, self.size = dist_type, dim, tile, tiles, size
        super().__init__(
            f"dimension {dim} of {dist_type}: {tiles} tile{'s' if tiles != 1 else ''} of {tile} "
            f"make{'s' if tiles == 1 else ''} {tile * tiles} elements, not {size}; {remedy}"
        )


class SpecError(TypeFormError):
    """A partition spec that has no meaning as a distributed type."""


class SpecFormError(SpecError):
    """A value that is no sequence of entries."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} is no partition spec; give a jax.sharding.PartitionSpec, or a tuple with one entry "
            f"for each dimension: None, an axis name, or a tuple of axis names from major to minor"
        )


class ShardingFormError(SpecError):
    """A sharding that is not a mesh and a partition spec."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} has no mesh and partition spec; give a jax.sharding.NamedSharding, "
            f"the one kind of sharding that a distributed type can say"
        )


class SpecEntryError(SpecError):
    """An entry of a partition spec that is neither None, nor an axis name, nor a tuple of axis names."""

    def __init__(self, dim: int, entry: object) -> None:
        self.dim, self.entry = dim, entry
        super().__init__(
            f"entry {dim} of the partition spec is {entry!r}; "
            f"an entry is None, an axis name, or a tuple of axis names from major to minor"
        )


class UnconstrainedSpecError(SpecError):
    """An entry of a partition spec that leaves the choice to the compiler."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        super().__init__(
            f"entry {dim} of the partition spec is UNCONSTRAINED, which leaves the cut to the compiler; "
            f"say how dimension {dim} is cut: None, an axis name, or a tuple of axis names"
        )


class UnreducedSpecError(SpecError):
    """A partition spec whose tiles are summands, or are marked as already summed, along some axes."""

    def __init__(self, what: str, axes: Sequence[str]) -> None:
        self.what, self.axes = what, tuple(axes)
        super().__init__(
            f"the partition spec is {what} over {_listed(axes)}, and partial sums have no distributed type here; "
            f"sum them first, for example with jax.lax.psum, or drop {what}= from the spec"
        )


class SpecRankError(SpecError):
    """A partition spec with more entries than the array has dimensions."""

    def __init__(self, entries: int, shape: Sequence[int]) -> None:
        self.entries, self.shape = entries, tuple(shape)
        super().__init__(
            f"the partition spec has {entries} entries and the shape {self.shape} only {len(self.shape)} "
            f"dimension{'s' if len(self.shape) != 1 else ''}; give at most one entry for each dimension"
        )


class SpecDivisionError(SpecError):
    """A dimension that the axes of its entry do not divide.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import from_partition_spec
    >>> from_partition_spec(("x",), (10,), Mesh.of("x=4"))
    Traceback (most recent call last):
        ...
    redistrib.errors.SpecDivisionError: dimension 0 has 10 elements, which axis 'x' cannot cut into 4 equal tiles; \
take other axes, or pad the dimension to 12
    """

    def __init__(self, dim: int, size: int, axes: Sequence[str], tiles: int) -> None:
        self.dim, self.size, self.axes, self.tiles = dim, size, tuple(axes), tiles
        super().__init__(
            f"dimension {dim} has {size} elements, which {'axis' if len(axes) == 1 else 'axes'} {_listed(axes)} cannot "
            f"cut into {tiles} equal tiles; take other axes, or pad the dimension to {-(-size // tiles) * tiles}"
        )


# ------------------------------------------------------------------------------------------ typing rules


class RuleError(RedistribError):
    """A collective that does not apply to a type: a premise of its typing rule fails (Figures 8 and 10).

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.theory.rules import AllToAll
    >>> AllToAll(0, 1, ("x",)).apply(DistType.parse("[3{x}12, 2{y}12]"), Mesh.of("x=4,y=6"))
    Traceback (most recent call last):
        ...
    redistrib.errors.TileDivisionError: alltoall(0, 1, {x}) cuts the tile of dimension 1 of [3{x}12, 2{y}12] into 4 \
parts, and its 2 elements are not divisible by 4; use axes whose sizes divide 2

    Attributes:
        collective: the collective, as text.
    """

    def __init__(self, collective: str, message: str) -> None:
        self.collective = collective
        super().__init__(message)


class NoAxisError(RuleError):
    """A collective over no axes."""

    def __init__(self, collective: str) -> None:
        super().__init__(collective, f"{collective} needs at least one mesh axis; leave it out where nothing moves")


class RepeatedAxisError(RuleError):
    """A collective that names an axis twice."""

    def __init__(self, collective: str, axis: str) -> None:
        self.axis = axis
        super().__init__(collective, f"{collective} names axis {axis!r} twice; name every axis once")


class RuleDimensionError(RuleError):
    """A collective on a dimension that the array does not have."""

    def __init__(self, collective: str, dim: int, dist_type: str, rank: int) -> None:
        self.dim, self.dist_type, self.rank = dim, dist_type, rank
        valid = f"its dimensions are 0 to {rank - 1}" if rank else "it has rank 0"
        super().__init__(collective, f"{collective} acts on dimension {dim} of {dist_type}; {valid}")


class SameDimensionError(RuleError):
    """An all-to-all from a dimension to itself."""

    def __init__(self, collective: str) -> None:
        super().__init__(
            collective, f"{collective} moves axes within one dimension; reorder them there by an allpermute instead"
        )


class AxisAbsentError(RuleError):
    """An axis to be taken from a dimension that it does not cut."""

    def __init__(self, collective: str, axis: str, dim: int, dist_type: str, axes: Sequence[str]) -> None:
        self.axis, self.dim, self.dist_type, self.axes = axis, dim, dist_type, tuple(axes)
        super().__init__(
            collective,
            f"{collective} takes axis {axis!r} from dimension {dim} of {dist_type}, which is cut by {_listed(axes)}; "
            f"take an axis that cuts the dimension",
        )


class AxesNotMinorError(RuleError):
    """Axes that are not the minor ones of their dimension, where Figure 8 needs them to be."""

    def __init__(self, collective: str, dim: int, dist_type: str, axes: Sequence[str]) -> None:
        self.dim, self.dist_type, self.axes = dim, dist_type, tuple(axes)
        super().__init__(
            collective,
            f"{collective} needs its axes at the minor end of dimension {dim} of {dist_type}, in this order, and the "
            f"dimension has {_listed(axes)} from minor to major; "
            f"allpermute first, or use `lower`, where the order is free",
        )


class AxisInUseError(RuleError):
    """A slice along an axis that already cuts the array."""

    def __init__(self, collective: str, axis: str, dist_type: str, free: Sequence[str]) -> None:
        self.axis, self.dist_type, self.free = axis, dist_type, tuple(free)
        super().__init__(
            collective,
            f"{collective} slices along axis {axis!r}, which already cuts {dist_type}; free axes: {_listed(free)}",
        )


class TileDivisionError(RuleError):
    """A tile that cannot be cut into equal parts."""

    def __init__(self, collective: str, dim: int, dist_type: str, tile: int, parts: int) -> None:
        self.dim, self.dist_type, self.tile, self.parts = dim, dist_type, tile, parts
        super().__init__(
            collective,
            f"{collective} cuts the tile of dimension {dim} of {dist_type} into {parts} parts, and its {tile} elements "
            f"are not divisible by {parts}; use axes whose sizes divide {tile}",
        )


class PermuteShapeError(RuleError):
    """A permute between arrays of different global shape."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        super().__init__(
            f"allpermute to {target}",
            f"allpermute cannot turn {source} into {target}: their global shapes differ; "
            f"choose a target of the same global shape",
        )


class PermuteTargetError(RuleError):
    """A permute to a type that is not well-formed."""

    def __init__(self, collective: str, reason: str) -> None:
        self.reason = reason
        super().__init__(collective, f"{collective}, which is not well-formed: {reason}")


class PermuteTilesError(RuleError):
    """A permute between different tiles."""

    def __init__(
        self,
        source: str,
        source_grid: Sequence[int],
        source_tile: Sequence[int],
        target: str,
        target_grid: Sequence[int],
        target_tile: Sequence[int],
    ) -> None:
        self.source, self.source_grid, self.source_tile = source, tuple(source_grid), tuple(source_tile)
        self.target, self.target_grid, self.target_tile = target, tuple(target_grid), tuple(target_tile)
        super().__init__(
            f"allpermute to {target}",
            f"allpermute cannot turn {source} into {target}: it moves whole tiles, and these are "
            f"{self.source_grid} tiles of shape {self.source_tile} against "
            f"{self.target_grid} tiles of shape {self.target_tile}; "
            f"slice, gather or exchange axes between dimensions first",
        )


class PermuteDevicesError(RuleError):
    """A permute between meshes of different size."""

    def __init__(self, collective: str, mesh: str, size: int, onto: str, onto_size: int) -> None:
        self.mesh, self.size, self.onto, self.onto_size = mesh, size, onto, onto_size
        super().__init__(
            collective,
            f"{collective}: mesh {mesh} has {size} devices and mesh {onto} has {onto_size}; "
            f"both must be made of the same devices",
        )


# ------------------------------------------------------------------------ placements, steps and plans


class PlacementError(RedistribError):
    """A placement whose grid or indices do not fit the global shape."""


class StepFormError(RedistribError):
    """A step whose tables have the wrong form."""


class PlanFormError(RedistribError):
    """A plan whose parts do not fit together."""


# ------------------------------------------------------------------ plans: verify, reference, JSON


class VerificationError(RedistribError):
    """A plan breaks a rule that every correct plan keeps; each rule has a subclass of its own.

    Attributes:
        step: number of the step at fault as `print(plan)` counts them, from 1 (so `plan.steps[step - 1]`);
            None where the fault is not in one step.
        device: number of the first device at fault; None where the fault is not in one device.
        values: the offending values by name.
    """

    def __init__(self, message: str, step: int | None = None, device: int | None = None, **values: object) -> None:
        super().__init__(message)
        self.step = step
        self.device = device
        self.values = values


class ShapeMismatchError(VerificationError):
    """Source, target and all placements must be of one global shape."""


class PlacedDevicesError(VerificationError):
    """Every placement must say what each device of the mesh holds, and no more."""


class TileIndexError(VerificationError):
    """A grid must divide the global shape, and a tile index lie on the grid."""


class UnknownStepError(VerificationError):
    """A step must be one of the five kinds."""


class WrongStartError(VerificationError):
    """The first step must start from the source's placement."""


class DisconnectedStepsError(VerificationError):
    """A step must start where the last one ended."""


class WrongEndError(VerificationError):
    """The last step must end at the target's placement."""


class TileAboveBoundError(VerificationError):
    """No tile on the way may be larger than the bound."""


class MemoryAboveLimitError(VerificationError):
    """A plan made under a memory limit keeps to it."""


class SliceGridError(VerificationError):
    """A slice may only cut tiles finer."""


class SliceOutsideTileError(VerificationError):
    """A slice must keep a part of what the device held."""


class DeviceNumberError(VerificationError):
    """Groups, pairs and shares must name devices of the mesh."""


class DuplicateMemberError(VerificationError):
    """No device may be in two groups, or twice in one."""


class MissingMemberError(VerificationError):
    """Every device must be in a group."""


class GatherGridError(VerificationError):
    """A gather may only merge tiles into coarser ones."""


class AllToAllGridError(VerificationError):
    """In every dimension of an all-to-all one tile count must divide the other."""


class GroupSizeError(VerificationError):
    """A group must have one member for every tile that is merged into one."""


class DisjointMembersError(VerificationError):
    """What a member held must meet what every member of its group ends with."""


class RepeatedChunkError(VerificationError):
    """The tiles that a group merges must be different."""


class MemberOrderError(VerificationError):
    """The members of a group must be listed in the row-major order of the tiles they merge."""


class PermuteGridError(VerificationError):
    """A permute may not change the grid."""


class SelfSendError(VerificationError):
    """No device may send to itself."""


class DuplicateSenderError(VerificationError):
    """A device may send at most once in a permute."""


class DuplicateReceiverError(VerificationError):
    """A device may receive at most once in a permute."""


class PermutedTileError(VerificationError):
    """A device must end a permute with the tile of the device that sent to it."""


class IdleTileError(VerificationError):
    """A device that receives nothing in a permute must keep its tile."""


class RealisationError(VerificationError):
    """An exchange must be realised in rounds or as a ragged all-to-all."""


class ShareRankError(VerificationError):
    """A share must have one start and one size for every dimension."""


class EmptyShareError(VerificationError):
    """A share must hold at least one element."""


class ShareNotHeldError(VerificationError):
    """A device may only send what it held before the exchange."""


class ShareNotWantedError(VerificationError):
    """A device may only receive what belongs to its tile after the exchange."""


class RoundNumberError(VerificationError):
    """The rounds of an exchange must be numbered from 0 without gaps."""


class RoundSizeError(VerificationError):
    """All shares of a round must have one size."""


class RoundSenderError(VerificationError):
    """A device may send at most one share in a round."""


class RoundReceiverError(VerificationError):
    """A device may receive at most one share in a round."""


class OverlappingSharesError(VerificationError):
    """No element may reach a device twice, or reach a device that already holds it."""


class UncoveredTileError(VerificationError):
    """What a device keeps and receives must fill its tile."""


class TilesError(RedistribError):
    """Tiles or an array do not fit the placement or the type they are given with."""


class PlanJsonError(RedistribError):
    """A text is not a plan's JSON form: a field is missing, unknown, or has a value it cannot have.

    Attributes:
        where: path of the field at fault, such as `steps[2].groups`.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class PlanVersionError(PlanJsonError):
    """A plan's JSON form is of a version that this release does not read."""


class PlanDigestError(PlanJsonError):
    """A plan's JSON form does not match its digest: it was changed after it was written."""


# --------------------------------------------------------------------------------------- the JAX backend


class HloTextError(RedistribError):
    """Text that is not a compiled HLO module, or says something in a way not known here."""


# --------------------------------------------------------------------------------------------- synthesis


class UnknownCostModelError(RedistribError):
    """A cost model that is neither a `CostModel` nor the name of one."""

    def __init__(self, value: object, known: Sequence[str]) -> None:
        self.value = value
        self.known = tuple(known)
        super().__init__(f"no cost model {value!r}; give a CostModel or one of the names {_listed(self.known)}")


class UnknownAlgorithmError(RedistribError):
    """An algorithm the synthesis does not have."""

    def __init__(self, value: object, known: Sequence[str]) -> None:
        self.value = value
        self.known = tuple(known)
        super().__init__(f"no algorithm {value!r}; give one of {_listed(self.known)}")


class GlobalShapeError(RedistribError):
    """Source and target are arrays of different global shapes (Section 2.5)."""

    def __init__(self, source: tuple[int, ...], target: tuple[int, ...]) -> None:
        self.source = source
        self.target = target
        what = "ranks" if len(source) != len(target) else "global shapes"
        super().__init__(
            f"source and target have different {what}: {list(source)} and {list(target)}; "
            "a redistribution moves an array and never changes it, so reshape before or after"
        )


class MeshDevicesError(RedistribError):
    """Source and target meshes with different numbers of devices."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        super().__init__(
            f"the source mesh has {source} devices and the target mesh has {target}; "
            "both must be made of the same devices"
        )


class DtypeError(RedistribError):
    """An element type that is not known by that name."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r} names no element type; give a NumPy or ml_dtypes name such as 'float32' or 'bfloat16'"
        )


class MemoryLimitError(RedistribError):
    """No plan fits the memory limit.

    Attributes:
        limit: the limit, in bytes per device.
        least: the least limit that a plan would fit, in bytes per device.
    """

    def __init__(self, limit: int, least: int) -> None:
        self.limit = limit
        self.least = least
        super().__init__(
            f"no plan fits in {limit:,} bytes per device; the least memory_limit that one fits is {least:,} bytes"
        )


class MemorySizeError(RedistribError):
    """A memory limit that is no size."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(f"{value!r} is no memory size; give bytes as an integer, or a text such as '512MiB' or '2GiB'")


class ProfileError(RedistribError):
    """A cost profile that is malformed, of another version, or holds impossible figures."""


class MissingShapeError(RedistribError):
    """A sharding given without the shape of the array."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(f"{value} says how an array is cut but not how large it is; give shape= as well")


class DeviceSetError(RedistribError):
    """Two meshes that are not made of the same devices."""

    def __init__(self, source: int, target: int, common: int) -> None:
        self.source = source
        self.target = target
        self.common = common
        super().__init__(
            f"source and target meshes have {source} and {target} devices, of which they share {common}; "
            "a plan moves data between the same devices, so use jax.device_put to move an array to others"
        )


# ---------------------------------------------------------------------------------------- the MPI backend


class CommunicatorError(RedistribError):
    """A communicator that cannot run a plan: wrong size, wrong kind, or ranks that do not ask for the same."""


class ArrayMismatchError(TilesError):
    """An array that is not the tile its rank should hold; raised on every rank with one message."""


class ForeignMeshError(RedistribError):
    """A JAX mesh whose axes are not those of the plan's mesh."""

    def __init__(self, mesh: str, size: int, given: str, given_size: int) -> None:
        self.mesh, self.size, self.given, self.given_size = mesh, size, given, given_size
        super().__init__(
            f"the plan is for mesh {mesh} with {size} devices, the JAX mesh is {given} with {given_size}; "
            f"pass a mesh of the same axes in the same order, or plan for this one"
        )


class TwoMeshesError(RedistribError):
    """A plan between two meshes, where one function under one mesh is asked for."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        super().__init__(
            f"the plan goes from mesh {source} to mesh {target}; a function under one JAX mesh needs source and target "
            f"types over the same mesh and device order, use redistrib.reshard to move between meshes"
        )


class NotAnArrayError(RedistribError):
    """A value that is no `jax.Array`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"a plan runs on a jax.Array that lives on its mesh, got {kind}; "
            f"place the value first: jax.device_put(value, f.source_sharding)"
        )


class SourceArrayError(RedistribError):
    """An array that is not of the plan's source type."""

    def __init__(self, what: str, expected: object, given: object, remedy: str) -> None:
        self.what, self.expected, self.given = what, expected, given
        super().__init__(f"the plan starts from an array of {what} {expected}, got {given}; {remedy}")


class ScheduleError(RedistribError):
    """The name of a schedule that does not exist."""

    def __init__(self, schedule: object) -> None:
        self.schedule = schedule
        super().__init__(f"there is no schedule {schedule!r}; choose 'overlap' or 'sequential'")


class ManualMeshError(RedistribError):
    """A plan run inside a `shard_map` over the axes it needs."""

    def __init__(self, axes: Sequence[str]) -> None:
        self.axes = tuple(axes)
        super().__init__(
            f"inside a shard_map over {_listed(axes)} an array is already a tile; call the plan's function outside, "
            f"on the global array"
        )


class DeviceShortageError(RedistribError):
    """More devices asked for than JAX has."""

    def __init__(self, wanted: int, found: int) -> None:
        self.wanted = wanted
        self.found = found
        super().__init__(
            f"the mesh has {wanted} devices but JAX has started with {found}; start a new process, or set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted} before importing jax"
        )


class TreeMismatchError(RedistribError):
    """Shardings that are neither one for all, nor a tree like the arrays', nor a prefix of it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the shardings do not match the tree: {reason}; give one sharding, a tree of them of the same structure, "
            f"or a prefix of it"
        )


class LeafError(RedistribError):
    """Something wrong with one leaf of a tree.

    Attributes:
        path: of the leaf, as JAX prints paths.
        reason: what is wrong.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"leaf {path}: {reason}" if path else reason)


class UnknownSourceError(RedistribError):
    """A traced array whose placement nothing tells."""

    def __init__(self) -> None:
        super().__init__(
            "under jit on a mesh of Auto axes nothing says how a traced array is placed; say it with source=, a "
            "sharding or a tree of them, or use a mesh of Explicit axes"
        )


class TracedOrderError(RedistribError):
    """Two meshes inside one `jit` that order their devices in two ways, or are not made of the same devices.

    Attributes:
        source, target: device ids, in mesh order.
    """

    def __init__(self, source: Sequence[int], target: Sequence[int]) -> None:
        self.source, self.target = tuple(source), tuple(target)
        super().__init__(
            f"inside one jit all meshes have the same devices in the same order, and these have {_shown(source)} and "
            f"{_shown(target)}; call redistrib.reshard outside jit, where the order of devices is free"
        )


def _shown(numbers: Sequence[int], most: int = 12) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"[{shown}]" if len(numbers) <= most else f"[{shown}, and {len(numbers) - most} more]"


class TracedDonationError(RedistribError):
    """`donate=True` inside `jit`."""

    def __init__(self) -> None:
        super().__init__(
            "donate=True has no meaning for a traced array, whose memory belongs to the compiled function; "
            "donate the arguments of that function with jax.jit(..., donate_argnums=...)"
        )
