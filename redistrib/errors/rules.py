"""Errors of the typing rules."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, listed


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
            f"{collective} takes axis {axis!r} from dimension {dim} of {dist_type}, which is cut by {listed(axes)}; "
            f"take an axis that cuts the dimension",
        )


class AxesNotMinorError(RuleError):
    """Axes that are not the minor ones of their dimension, where Figure 8 needs them to be."""

    def __init__(self, collective: str, dim: int, dist_type: str, axes: Sequence[str]) -> None:
        self.dim, self.dist_type, self.axes = dim, dist_type, tuple(axes)
        super().__init__(
            collective,
            f"{collective} needs its axes at the minor end of dimension {dim} of {dist_type}, in this order, and the "
            f"dimension has {listed(axes)} from minor to major; "
            f"allpermute first, or use `lower`, where the order is free",
        )


class AxisInUseError(RuleError):
    """A slice along an axis that already cuts the array."""

    def __init__(self, collective: str, axis: str, dist_type: str, free: Sequence[str]) -> None:
        self.axis, self.dist_type, self.free = axis, dist_type, tuple(free)
        super().__init__(
            collective,
            f"{collective} slices along axis {axis!r}, which already cuts {dist_type}; free axes: {listed(free)}",
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


class PartialRuleError(RuleError):
    """Summands that a collective makes, takes or moves are not those of the type."""

    def __init__(self, collective: str, reason: str) -> None:
        self.reason = reason
        super().__init__(collective, f"{collective}: {reason}")


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
