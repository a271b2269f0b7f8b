"""Errors of the typing rules."""

from __future__ import annotations

from typing import ClassVar

from redistrib.errors.base import RuleBroken


class RuleError(RuleBroken):
    """A collective that does not apply to a type: a premise of its typing rule fails (Figures 8 and 10).

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from tests.specification.rules import AllToAllRule
    >>> AllToAllRule(0, 1, ("x",)).apply(DistType.parse("[3{x}12, 2{y}12]"), Mesh.of("x=4,y=6"))
    Traceback (most recent call last):
        ...
    tests.specification.errors.RuleError: alltoall(0, 1, {x}) cuts the tile of dimension 1 of [3{x}12, 2{y}12] into 4 \
parts, and its 2 elements are not divisible by 4; use axes whose sizes divide 2

    Attributes:
        collective: the collective, as text.
    """

    wordings: ClassVar = {
        "no axis": "{collective} needs at least one mesh axis; leave it out where nothing moves",
        "repeated axis": "{collective} names axis {axis!r} twice; name every axis once",
        "same dimension": "{collective} moves axes within one dimension; reorder them there by an allpermute instead",
        "axis absent": "{collective} takes axis {axis!r} from dimension {dim} of {dist_type}, which is cut by "
        "{axes!l}; take an axis that cuts the dimension",
        "axes not minor": "{collective} needs its axes at the minor end of dimension {dim} of {dist_type}, in this "
        "order, and the dimension has {axes!l} from minor to major; "
        "allpermute first, or use `lower`, where the order is free",
        "axis in use": "{collective} slices along axis {axis!r}, which already cuts {dist_type}; free axes: {free!l}",
        "tile division": "{collective} cuts the tile of dimension {dim} of {dist_type} into {parts} parts, and its "
        "{tile} elements are not divisible by {parts}; use axes whose sizes divide {tile}",
        "partial rule": "{collective}: {reason}",
        "permute shape": "allpermute cannot turn {source} into {target}: their global shapes differ; "
        "choose a target of the same global shape",
        "permute target": "{collective}, which is not well-formed: {reason}",
        "permute tiles": "allpermute cannot turn {source} into {target}: it moves whole tiles, and these are "
        "{source_grid} tiles of shape {source_tile} against {target_grid} tiles of shape {target_tile}; "
        "slice, gather or exchange axes between dimensions first",
        "permute devices": "{collective}: mesh {mesh} has {size} devices and mesh {onto} has {onto_size}; "
        "both must be made of the same devices",
    }


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
