"""What a collective does to a type: the four collectives as values, and their typing rules as data.

Three of the four move mesh axes: they take them from a dimension, give them to one, or both. They differ only in
where from, where to, and under which premises, so the rules are a table, `PREMISES`, and one conclusion. The fourth
moves whole tiles.

================  ============  ==========  =================================================================
collective        takes from    gives to    its premises, beyond a well-formed type
================  ============  ==========  =================================================================
`AllGatherRule`   its dim       -           the axes cut that dimension
`DynSliceRule`    -             its dim     the axes are free and their sizes divide its tile
`AllToAllRule`    its source    its target  the axes cut the source, and their sizes divide the target's tile
`AllPermuteRule`  -             -           the target type has the same global shape and the same tiles
================  ============  ==========  =================================================================

Tiles may be summands along some axes; these four leave that as it is, and those of `reductions` make or take summands.

Each has two judgements. `apply` is Figure 8, generalised to several axes as in Section 7.1: axes are taken from
the minor end of a dimension. `lower` is Figure 10: they may stand anywhere in it, even apart from one another, and
the device map changes in return. A device map is the device order of a `Mesh`, so a device assignment
⟨φ, T[[type]]⟩ of Definition 6.1 is a type together with a mesh.

This module knows nothing of `placement`: that the rules mean what they say is a statement between the two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias, final

from redistrib.arith import from_digits, to_digits
from redistrib.errors import TypeFormError
from redistrib.errors.base import listed
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import Reduction, print_axis
from redistrib.lang.types import DimType, DistType, require_even
from tests.specification.errors import RuleError, rule_dimension_error

Place: TypeAlias = int | Literal["partial"] | None  # a dimension, the set of partial axes, or neither


class Collective(ABC):
    """A collective operation on distributed arrays, as the typing rules see it."""

    name: ClassVar[str]

    @abstractmethod
    def apply(self, dist_type: DistType, mesh: Mesh) -> DistType:
        """The type after the collective, on the same mesh (Figure 8).

        Raises:
            TypeFormError: if `dist_type` is not well-formed over `mesh`.
            RuleError: for the first premise that fails, which its `rule` names.
        """

    @abstractmethod
    def lower(self, dist_type: DistType, mesh: Mesh) -> tuple[DistType, Mesh]:
        """The type after the collective and the mesh, with its device order, that it is to be read on (Figure 10).

        Raises:
            TypeFormError: if `dist_type` is not well-formed over `mesh`.
            RuleError: for the first premise that fails, which its `rule` names.
        """


class AxesCollective(Collective):
    """A collective that takes mesh axes from a dimension or the partial axes, gives them to one, or both.

    Attributes:
        axes: the axes, minor to major; at least one, each once.
    """

    axes: tuple[str, ...]

    ends: ClassVar[tuple[str | None, str | None]]  # what `takes_from` and `gives_to` are: a field's value, or "partial"

    @property
    def takes_from(self) -> Place:
        """The dimension that loses the axes, and whose tile grows by their sizes; or the partial axes."""
        return self._place(self.ends[0])

    @property
    def gives_to(self) -> Place:
        """The dimension that gets the axes at its minor end, and whose tile shrinks by their sizes; or the partial."""
        return self._place(self.ends[1])

    def _place(self, end: str | None) -> Place:
        place: Place = "partial" if end == "partial" else None if end is None else getattr(self, end)
        return place

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        if not self.axes:
            raise RuleError("no axis", collective=self.name)
        for k, axis in enumerate(self.axes):
            if axis in self.axes[:k]:
                raise RuleError("repeated axis", collective=str(self), axis=axis)

    def __str__(self) -> str:
        dims = [dim for dim in (self.takes_from, self.gives_to) if isinstance(dim, int)]
        axes = f"{{{','.join(map(print_axis, self.axes))}}}"
        return f"{self.name}({', '.join([*map(str, dims), axes])})"

    @final
    def apply(self, dist_type: DistType, mesh: Mesh) -> DistType:
        require_even("a typing rule", dist_type)
        dist_type.check(mesh)
        for premise in PREMISES[type(self)]:
            premise(self, dist_type, mesh)
        if isinstance(self.takes_from, int):
            _axes_lead(self, dist_type, self.takes_from)
        return self._conclusion(dist_type, mesh)

    @final
    def lower(self, dist_type: DistType, mesh: Mesh) -> tuple[DistType, Mesh]:
        require_even("a typing rule", dist_type)
        dist_type.check(mesh)
        for premise in PREMISES[type(self)]:
            premise(self, dist_type, mesh)
        if isinstance(self.takes_from, int):
            rest = tuple(name for name in dist_type.dims[self.takes_from].axes if name not in self.axes)
            dist_type, mesh = reorder(dist_type, mesh, self.takes_from, self.axes + rest)
        return self._conclusion(dist_type, mesh), mesh

    def _conclusion(self, dist_type: DistType, mesh: Mesh) -> DistType:
        factor = _count(self.axes, mesh)
        dims, partial = list(dist_type.dims), dist_type.partial
        if self.takes_from == "partial":
            partial = tuple(name for name in partial if name not in self.axes)
        elif self.takes_from is not None:
            dim = dims[self.takes_from]
            dims[self.takes_from] = DimType(dim.tile * factor, dim.axes[len(self.axes) :], dim.size)
        if self.gives_to == "partial":
            partial += self.axes
        elif self.gives_to is not None:
            dim = dims[self.gives_to]
            dims[self.gives_to] = DimType(dim.tile // factor, self.axes + dim.axes, dim.size)
        return DistType(tuple(dims), partial, (dist_type.reduction or self._makes) if partial else None)

    @property
    def _makes(self) -> Reduction | None:
        """What reduces the summands that the collective makes, if it makes any."""
        return None


@final
@dataclass(frozen=True)
class AllGatherRule(AxesCollective):
    """Devices that differ in `axes` only exchange all their tiles; dimension `dim` is no longer cut by them.

    >>> mesh = Mesh.of("x=4,y=4")
    >>> print(AllGatherRule(0, ("x",)).apply(DistType.parse("[32{x,y}512, 512]"), mesh))
    [128{y}512, 512]
    """

    dim: int
    axes: tuple[str, ...]

    name: ClassVar[str] = "allgather"
    ends: ClassVar = ("dim", None)
    __str__ = AxesCollective.__str__


@final
@dataclass(frozen=True)
class DynSliceRule(AxesCollective):
    """Every device keeps one part of its tile, by its coordinates along `axes`; nothing travels.

    >>> mesh = Mesh.of("x=4,y=4")
    >>> print(DynSliceRule(0, ("x",)).apply(DistType.parse("[128{y}512]"), mesh))
    [32{x,y}512]
    """

    dim: int
    axes: tuple[str, ...]

    name: ClassVar[str] = "dynslice"
    ends: ClassVar = (None, "dim")
    __str__ = AxesCollective.__str__


@final
@dataclass(frozen=True)
class AllToAllRule(AxesCollective):
    """Devices that differ in `axes` only trade parts of tiles; the axes cut `target` instead of `source`.

    >>> mesh = Mesh.of("devs=32")
    >>> print(AllToAllRule(1, 0, ("devs",)).apply(DistType.parse("[32, 64{devs}2048]"), mesh))
    [1{devs}32, 2048]
    """

    source: int
    target: int
    axes: tuple[str, ...]

    name: ClassVar[str] = "alltoall"
    ends: ClassVar = ("source", "target")
    __str__ = AxesCollective.__str__


@final
@dataclass(frozen=True)
class AllPermuteRule(Collective):
    """Whole tiles change devices, to where `target` wants them.

    The paper asks for equal local types only; by that `[2{x}4]` could become `[2]`. The target must also be
    well-formed, of the same global shape, and cut into as many tiles in every dimension, which follows from
    equal tiles unless a dimension is empty.

    Attributes:
        target: the type afterwards.
        onto: for `lower`, the mesh that `target` is to be read on, with its axes and its device order; None for
            the mesh at hand.

    >>> mesh = Mesh.of("x=4,y=4")
    >>> print(AllPermuteRule(DistType.parse("[32{y}128]")).apply(DistType.parse("[32{x}128]"), mesh))
    [32{y}128]
    """

    target: DistType
    onto: Mesh | None = None

    name: ClassVar[str] = "allpermute"

    def __str__(self) -> str:
        return f"{self.name} to {self.target}"

    def apply(self, dist_type: DistType, mesh: Mesh) -> DistType:
        self._check(dist_type, mesh, mesh)
        return self.target

    def lower(self, dist_type: DistType, mesh: Mesh) -> tuple[DistType, Mesh]:
        onto = mesh if self.onto is None else self.onto
        if onto.size != mesh.size:
            sizes = {"mesh": str(mesh), "size": mesh.size, "onto": str(onto), "onto_size": onto.size}
            raise RuleError("permute devices", collective=str(self), **sizes)
        self._check(dist_type, mesh, onto)
        return self.target, onto

    def _check(self, dist_type: DistType, mesh: Mesh, onto: Mesh) -> None:
        require_even("a typing rule", dist_type, self.target)
        dist_type.check(mesh)
        ends = {"collective": f"allpermute to {self.target}", "source": str(dist_type), "target": str(self.target)}
        if dist_type.global_shape != self.target.global_shape:
            raise RuleError("permute shape", **ends)
        try:
            self.target.check(onto)
        except TypeFormError as error:
            raise RuleError("permute target", collective=str(self), reason=str(error)) from error
        summands = [(_count(t.partial, m), t.reduction) for t, m in ((dist_type, mesh), (self.target, onto))]
        if summands[0] != summands[1] and any(count > 1 for count, _ in summands):
            why = f"it moves partial sums and makes none, and those of {dist_type} are other ones; reduce them first"
            raise RuleError("partial rule", collective=str(self), reason=why)
        before = tuple(_count(dim.axes, mesh) for dim in dist_type.dims)
        after = tuple(_count(dim.axes, onto) for dim in self.target.dims)
        if before != after:
            raise RuleError(
                "permute tiles",
                **ends,
                source_grid=before,
                source_tile=dist_type.local_shape,
                target_grid=after,
                target_tile=self.target.local_shape,
            )


# ---------------------------------------------------------------------------------------------- premises

Premise: TypeAlias = Callable[[AxesCollective, DistType, Mesh], None]


def _count(axes: Iterable[str], mesh: Mesh) -> int:
    return math.prod(mesh.axis(name).size for name in axes)


def dimensions_exist(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """The array has the dimensions that the collective names."""
    for dim in (collective.takes_from, collective.gives_to):
        if isinstance(dim, int) and not 0 <= dim < dist_type.rank:
            raise rule_dimension_error(str(collective), dim, str(dist_type), dist_type.rank)


def dimensions_differ(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """Axes move to another dimension than their own (left out in the paper)."""
    if collective.takes_from == collective.gives_to:
        raise RuleError("same dimension", collective=str(collective))


def axes_cut_source(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """Every axis cuts the dimension that it is taken from."""
    assert isinstance(collective.takes_from, int)
    dim = dist_type.dims[collective.takes_from]
    for name in collective.axes:
        if name not in dim.axes:
            raise _broken("axis absent", collective, dist_type, axis=name, dim=collective.takes_from, axes=dim.axes)


def axes_are_free(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """No axis cuts the array or tells summands apart yet, and the mesh has them all."""
    used = dist_type.axes + dist_type.partial
    for name in collective.axes:
        mesh.axis(name)
        if name in used:
            free = [axis for axis in mesh.names if axis not in used]
            if name in dist_type.partial:
                why = f"axis {name!r} tells the partial sums of {dist_type} apart; free axes: {listed(free)}"
                raise RuleError("partial rule", collective=str(collective), reason=why)
            raise _broken("axis in use", collective, dist_type, axis=name, free=tuple(free))


def sizes_divide_tile(collective: AxesCollective, dist_type: DistType, mesh: Mesh) -> None:
    """The number of parts divides the tile of the dimension that is to be cut."""
    assert isinstance(collective.gives_to, int)
    parts = _count(collective.axes, mesh)
    tile = dist_type.dims[collective.gives_to].tile
    if tile % parts:
        raise _broken("tile division", collective, dist_type, dim=collective.gives_to, tile=tile, parts=parts)


def _broken(rule: str, collective: AxesCollective, dist_type: DistType, **values: object) -> RuleError:
    return RuleError(rule, collective=str(collective), dist_type=str(dist_type), **values)


PREMISES: dict[type[AxesCollective], tuple[Premise, ...]] = {
    AllGatherRule: (dimensions_exist, axes_cut_source),
    DynSliceRule: (dimensions_exist, axes_are_free, sizes_divide_tile),
    AllToAllRule: (dimensions_exist, dimensions_differ, axes_cut_source, sizes_divide_tile),
}


def _axes_lead(collective: AxesCollective, dist_type: DistType, dim: int) -> None:
    """Figure 8 alone: the axes stand at the minor end, in their order."""
    if dist_type.dims[dim].axes[: len(collective.axes)] != collective.axes:
        raise _broken("axes not minor", collective, dist_type, dim=dim, axes=dist_type.dims[dim].axes)


# ------------------------------------------------------------------------------- device maps, sequences


def reorder(dist_type: DistType, mesh: Mesh, dim: int, axes: tuple[str, ...]) -> tuple[DistType, Mesh]:
    """List the axes of a dimension in another order, and the devices so that every one keeps its tile.

    Returns the type with `axes` in dimension `dim` and the mesh with the new device map φ' for which
    β' ∘ φ'⁻¹ = β ∘ φ⁻¹ (Figure 10); no data moves. Of all such maps it is the one that leaves the coordinates along
    other axes alone.

    >>> mesh = Mesh.of("x=2,y=3")
    >>> new_type, new_mesh = reorder(DistType.parse("[1{x,y}6]"), mesh, 0, ("y", "x"))
    >>> print(new_type, new_mesh.devices)
    [1{y,x}6] (0, 3, 1, 4, 2, 5)
    """
    old = dist_type.dims[dim]
    if old.axes == axes:
        return dist_type, mesh
    columns = {name: k for k, name in enumerate(mesh.names)}
    positions = Mesh(mesh.axes).coordinates  # row p: coordinates of position p
    tile = from_digits(positions[:, [columns[n] for n in axes]], [mesh.axis(n).size for n in axes])
    moved = positions.copy()
    moved[:, [columns[n] for n in old.axes]] = to_digits(tile, [mesh.axis(n).size for n in old.axes])
    there = from_digits(moved[:, ::-1], mesh.shape[::-1])
    devices = tuple(mesh.devices[p] for p in there.tolist())
    dims = list(dist_type.dims)
    dims[dim] = DimType(old.tile, axes, old.size)
    return replace(dist_type, dims=tuple(dims)), Mesh(mesh.axes, devices)


def derive(dist_type: DistType, collectives: Iterable[Collective], mesh: Mesh) -> tuple[DistType, ...]:
    """All types along a sequence of collectives, the first included (the relation −→∗ of Section 4).

    Raises:
        RuleError: at the first collective that does not apply.

    >>> steps = [AllGatherRule(0, ("x",)), AllToAllRule(1, 0, ("y",))]
    >>> print(*derive(DistType.parse("[3{x}12, 2{y}12]"), steps, Mesh.of("x=4,y=6")), sep=" ")
    [3{x}12, 2{y}12] [12, 2{y}12] [2{y}12, 12]
    """
    types = [dist_type]
    for collective in collectives:
        types.append(collective.apply(types[-1], mesh))
    return tuple(types)
