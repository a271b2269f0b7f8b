"""Errors of the typing rules."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RuleBroken, listed


class RuleError(RuleBroken):
    """A collective that does not apply to a type: a premise of its typing rule fails (Figures 8 and 10).

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.theory.rules import AllToAll
    >>> AllToAll(0, 1, ("x",)).apply(DistType.parse("[3{x}12, 2{y}12]"), Mesh.of("x=4,y=6"))
    Traceback (most recent call last):
        ...
    redistrib.errors.RuleError: alltoall(0, 1, {x}) cuts the tile of dimension 1 of [3{x}12, 2{y}12] into 4 \
parts, and its 2 elements are not divisible by 4; use axes whose sizes divide 2

    Attributes:
        collective: the collective, as text.
    """


def no_axis_error(collective: str) -> RuleError:
    """A collective over no axes."""
    return RuleError(
        "no axis", f"{collective} needs at least one mesh axis; leave it out where nothing moves", collective=collective
    )


def repeated_axis_error(collective: str, axis: str) -> RuleError:
    """A collective that names an axis twice."""
    return RuleError(
        "repeated axis",
        f"{collective} names axis {axis!r} twice; name every axis once",
        collective=collective,
        axis=axis,
    )


def rule_dimension_error(collective: str, dim: int, dist_type: str, rank: int) -> RuleError:
    """A collective on a dimension that the array does not have."""
    valid = f"its dimensions are 0 to {rank - 1}" if rank else "it has rank 0"
    return RuleError(
        "dimension",
        f"{collective} acts on dimension {dim} of {dist_type}; {valid}",
        collective=collective,
        dim=dim,
        dist_type=dist_type,
        rank=rank,
    )


def same_dimension_error(collective: str) -> RuleError:
    """An all-to-all from a dimension to itself."""
    return RuleError(
        "same dimension",
        f"{collective} moves axes within one dimension; reorder them there by an allpermute instead",
        collective=collective,
    )


def axis_absent_error(collective: str, axis: str, dim: int, dist_type: str, axes: Sequence[str]) -> RuleError:
    """An axis to be taken from a dimension that it does not cut."""
    return RuleError(
        "axis absent",
        f"{collective} takes axis {axis!r} from dimension {dim} of {dist_type}, which is cut by {listed(axes)}; "
        f"take an axis that cuts the dimension",
        collective=collective,
        axis=axis,
        dim=dim,
        dist_type=dist_type,
        axes=tuple(axes),
    )


def axes_not_minor_error(collective: str, dim: int, dist_type: str, axes: Sequence[str]) -> RuleError:
    """Axes that are not the minor ones of their dimension, where Figure 8 needs them to be."""
    return RuleError(
        "axes not minor",
        f"{collective} needs its axes at the minor end of dimension {dim} of {dist_type}, in this order, and the "
        f"dimension has {listed(axes)} from minor to major; "
        f"allpermute first, or use `lower`, where the order is free",
        collective=collective,
        dim=dim,
        dist_type=dist_type,
        axes=tuple(axes),
    )


def axis_in_use_error(collective: str, axis: str, dist_type: str, free: Sequence[str]) -> RuleError:
    """A slice along an axis that already cuts the array."""
    return RuleError(
        "axis in use",
        f"{collective} slices along axis {axis!r}, which already cuts {dist_type}; free axes: {listed(free)}",
        collective=collective,
        axis=axis,
        dist_type=dist_type,
        free=tuple(free),
    )


def tile_division_error(collective: str, dim: int, dist_type: str, tile: int, parts: int) -> RuleError:
    """A tile that cannot be cut into equal parts."""
    return RuleError(
        "tile division",
        f"{collective} cuts the tile of dimension {dim} of {dist_type} into {parts} parts, and its {tile} elements "
        f"are not divisible by {parts}; use axes whose sizes divide {tile}",
        collective=collective,
        dim=dim,
        dist_type=dist_type,
        tile=tile,
        parts=parts,
    )


def partial_rule_error(collective: str, reason: str) -> RuleError:
    """Summands that a collective makes, takes or moves are not those of the type."""
    return RuleError("partial rule", f"{collective}: {reason}", collective=collective, reason=reason)


def permute_shape_error(source: str, target: str) -> RuleError:
    """A permute between arrays of different global shape."""
    return RuleError(
        "permute shape",
        f"allpermute cannot turn {source} into {target}: their global shapes differ; "
        f"choose a target of the same global shape",
        collective=f"allpermute to {target}",
        source=source,
        target=target,
    )


def permute_target_error(collective: str, reason: str) -> RuleError:
    """A permute to a type that is not well-formed."""
    return RuleError(
        "permute target", f"{collective}, which is not well-formed: {reason}", collective=collective, reason=reason
    )


def permute_tiles_error(
    source: str,
    source_grid: Sequence[int],
    source_tile: Sequence[int],
    target: str,
    target_grid: Sequence[int],
    target_tile: Sequence[int],
) -> RuleError:
    """A permute between different tiles."""
    return RuleError(
        "permute tiles",
        f"allpermute cannot turn {source} into {target}: it moves whole tiles, and these are "
        f"{tuple(source_grid)} tiles of shape {tuple(source_tile)} against "
        f"{tuple(target_grid)} tiles of shape {tuple(target_tile)}; "
        f"slice, gather or exchange axes between dimensions first",
        collective=f"allpermute to {target}",
        source=source,
        source_grid=tuple(source_grid),
        source_tile=tuple(source_tile),
        target=target,
        target_grid=tuple(target_grid),
        target_tile=tuple(target_tile),
    )


def permute_devices_error(collective: str, mesh: str, size: int, onto: str, onto_size: int) -> RuleError:
    """A permute between meshes of different size."""
    return RuleError(
        "permute devices",
        f"{collective}: mesh {mesh} has {size} devices and mesh {onto} has {onto_size}; "
        f"both must be made of the same devices",
        collective=collective,
        mesh=mesh,
        size=size,
        onto=onto,
        onto_size=onto_size,
    )
