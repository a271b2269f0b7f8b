"""The collectives that make or take summands, as values, with their typing rules beside those of `rules`.

The partial axes of a type are one more place that axes can be taken from and given to; they have no order there, and
no tile grows or shrinks for them.

===================  ======================  ===========  =====================================================
collective           takes from              gives to     its premises, beyond a well-formed type
===================  ======================  ===========  =====================================================
`ReduceScatterRule`  the partial axes        its dim      tiles are summands along the axes, sizes divide the
                                                          tile
`AllReduceRule`      the partial axes        -            tiles are summands along the axes
`UnreduceRule`       its dim, or none        the partial  the axes cut that dimension, or are free; no other kind
                                             axes         of reduction
===================  ======================  ===========  =====================================================

An unreduce moves nothing: of a cut dimension every device puts its tile into a larger one of neutral elements; along
free axes the devices with coordinate 0 keep their tile, and the others put neutral elements in its place. An all-reduce
is a reduce-scatter and a gather, where the sizes divide the tile; where they do not, it alone applies.

This module knows nothing of `placement`: that the rules mean what they say is a statement between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from redistrib.errors.base import listed
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import REDUCTIONS, Reduction
from redistrib.lang.types import DistType
from tests.specification.errors import RuleError
from tests.specification.rules import (
    PREMISES,
    AxesCollective,
    axes_are_free,
    axes_cut_source,
    dimensions_exist,
    sizes_divide_tile,
)


@final
@dataclass(frozen=True)
class ReduceScatterRule(AxesCollective):
    """Devices that differ in `axes` only add their tiles up; each keeps one part along dimension `dim`.

    >>> mesh = Mesh.of("x=4,y=2")
    >>> print(ReduceScatterRule(1, ("y",)).apply(DistType.parse("[4{x}16, 8] sum{y}"), mesh))
    [4{x}16, 4{y}8]
    """

    dim: int
    axes: tuple[str, ...]

    name: ClassVar[str] = "reduce_scatter"
    ends: ClassVar = ("partial", "dim")
    __str__ = AxesCollective.__str__


@final
@dataclass(frozen=True)
class AllReduceRule(AxesCollective):
    """Devices that differ in `axes` only add their tiles up; each keeps the sum.

    >>> mesh = Mesh.of("x=4,y=2")
    >>> print(AllReduceRule(("y",)).apply(DistType.parse("[4{x}16, 8] sum{y}"), mesh))
    [4{x}16, 8]
    """

    axes: tuple[str, ...]

    name: ClassVar[str] = "all_reduce"
    ends: ClassVar = ("partial", None)
    __str__ = AxesCollective.__str__


@final
@dataclass(frozen=True)
class UnreduceRule(AxesCollective):
    """Tiles become summands along `axes`, which cut dimension `dim`, or nothing if it is None.

    >>> mesh = Mesh.of("x=4,y=2")
    >>> print(UnreduceRule(("x",), 0).apply(DistType.parse("[4{x}16, 8]"), mesh))
    [16, 8] sum{x}
    >>> print(UnreduceRule(("y",)).apply(DistType.parse("[4{x}16, 8]"), mesh))
    [4{x}16, 8] sum{y}
    """

    axes: tuple[str, ...]
    dim: int | None = None
    reduction: Reduction = "sum"

    name: ClassVar[str] = "unreduce"
    ends: ClassVar = ("dim", "partial")
    __str__ = AxesCollective.__str__

    @property
    def _makes(self) -> Reduction:
        return self.reduction


def axes_are_partial(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """Along every axis devices hold different summands."""
    for name in collective.axes:
        mesh.axis(name)
        if name not in dist_type.partial:
            along = listed(dist_type.partial)
            why = f"tiles of {dist_type} are no partial sums along {name!r}; reduce along axes of {along}"
            raise RuleError("partial rule", collective=str(collective), reason=why)


def axes_cut_or_are_free(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """Every axis cuts the dimension that it is taken from, or nothing if it is taken from none."""
    (axes_are_free if collective.takes_from is None else axes_cut_source)(collective, dist_type, mesh)


def one_reduction(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """All summands of a type are reduced alike."""
    assert isinstance(collective, UnreduceRule)
    if collective.reduction not in REDUCTIONS or dist_type.reduction not in (None, collective.reduction):
        why = (
            f"it makes partial sums by the reduction {collective.reduction!r} of {dist_type}; a type has one kind of "
            f"reduction, of {listed(REDUCTIONS)}"
        )
        raise RuleError("partial rule", collective=str(collective), reason=why)


PREMISES[ReduceScatterRule] = (dimensions_exist, axes_are_partial, sizes_divide_tile)
PREMISES[AllReduceRule] = (axes_are_partial,)
PREMISES[UnreduceRule] = (dimensions_exist, axes_cut_or_are_free, one_reduction)
