"""The types of arrays that a cut of an iteration space needs: the five rules.

A cut is a distributed type on the iteration space. Every access pulls it back to a type of its array; results
may then be summands. `DERIVATION_RULES` is the table of docs/programs.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redistrib.cache import remembered
from redistrib.errors import CutError, CutInnerFactorError, NoCombinerError, TypeFormError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType, require_even
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.windows import Held, Reach, Stencil, cut_by, halos_held, refusal


class Rule(NamedTuple):
    """A row of the table: the form of an access, and the type it gives."""

    name: str
    where: str
    gives: str


DERIVATION_RULES = (
    Rule(
        "Dim",
        "the array dimension reads `k1 ... km`, major to minor",
        "tile: the product of the tiles of `k1 ... km`; axes, minor to major: those of `km`, then ... `k1`. "
        "A factor may be cut only below factors that are cut into single elements, else `CutInnerFactorError`",
    ),
    Rule("Whole", "the array dimension reads `()`", "not cut"),
    Rule("Absent", "an iteration dimension is not read", "replicated along its axes"),
    Rule(
        "Combine",
        "an iteration dimension is not written",
        "summands along its axes, by the nest's reduction, else `NoCombinerError`; replicated if all write the same",
    ),
    Rule("Linear", "a linear group of reads carries summands", "what is written carries them too"),
)


class Signature(NamedTuple):
    """The types that an operation needs and gives, in the order of its reads and writes."""

    ins: tuple[DistType, ...]
    outs: tuple[DistType, ...]


@dataclass(frozen=True)
class ScheduledNest:
    """A nest and how its work is cut.

    Attributes:
        nest: the operation.
        cut: a distributed type on its iteration space.
        carried: for every linear group of the nest the axes along which its reads are summands; empty: none are.
    """

    nest: Nest
    cut: DistType
    carried: tuple[tuple[str, ...], ...] = field(default=())

    @remembered
    def signature(self, mesh: Mesh) -> Signature:
        """The types of the arrays, over a mesh.

        Raises:
            CutError: if the cut is no well-formed type of the iteration space, or cuts what must stay whole.
            CutInnerFactorError, NoCombinerError: see `DERIVATION_RULES`.
            ProgramError: if results would be combined in two ways, or a group cannot carry the given summands.
        """
        check_cut(self.nest, self.cut, mesh)
        carried = self._carried_by_read()
        ins = []
        for k, access in enumerate(self.nest.reads):
            if carried.get(k) and any(isinstance(held, Reach) for held in windows_of(self.nest, access, self.cut)):
                raise self.nest.error("Window", "summands are not read beyond their tile; add them first", access.array)
            ins.append(_summands(pulled_back(self.nest, access, self.cut), dict.fromkeys(carried.get(k, ()), "sum")))
        passed = tuple(axis for group in self.carried for axis in group)
        outs = [self._written(k, access, passed, mesh) for k, access in enumerate(self.nest.writes)]
        for access, dist_type in zip((*self.nest.reads, *self.nest.writes), (*ins, *outs), strict=True):
            try:
                dist_type.check(mesh)
            except TypeFormError as error:
                raise self.nest.error("Linear", str(error), access.array) from error
        return Signature(tuple(ins), tuple(outs))

    def _carried_by_read(self) -> dict[int, tuple[str, ...]]:
        groups, linear = len(self.carried), len(self.nest.linear)
        if groups not in (0, linear):
            raise self.nest.error("Linear", f"summands are given for {groups} groups of reads, and {linear} are linear")
        return {k: axes for group, axes in zip(self.nest.linear, self.carried, strict=False) for k in group}

    def _written(self, number: int, access: Access, passed: tuple[str, ...], mesh: Mesh) -> DistType:
        kinds: dict[str, str] = dict.fromkeys(passed, "sum")
        for name, dim in zip(self.nest.position, self.cut.dims, strict=True):
            axes = [axis for axis in dim.axes if mesh.axis(axis).size > 1]
            if not axes or name in access.names or number in self.nest.replicated:
                continue
            if name not in self.nest.combiner:
                raise self.nest.error(
                    "Combine",
                    f"iteration dimension {name!r} is cut over {', '.join(axes)} and not written, and nothing says "
                    f"how its results combine; leave it whole, or give combine={{{name!r}: 'sum'}}",
                    access.array,
                    NoCombinerError,
                )
            kinds |= dict.fromkeys(axes, self.nest.combiner[name])
        if len(set(kinds.values())) > 1:
            why = f"results would be combined in two ways at once, {kinds}; cut the dimensions of one reduction only"
            raise self.nest.error("Combine", why, access.array)
        return _summands(pulled_back(self.nest, access, self.cut), kinds)


def _summands(dist_type: DistType, kinds: Mapping[str, Any]) -> DistType:
    """The type whose tiles are summands along the axes given, each with its reduction."""
    return DistType(dist_type.dims, tuple(kinds), next(iter(kinds.values()))) if kinds else dist_type


def check_cut(nest: Nest, cut: DistType, mesh: Mesh) -> None:
    """Check that a cut is a well-formed type on the iteration space of a nest.

    Raises:
        CutError: if it is not.
    """
    names = ", ".join(nest.position)
    if cut.global_shape != nest.sizes:
        why = f"is of {list(cut.global_shape)} points and the iteration space ({names}) has {list(nest.sizes)}"
        raise nest.error("Nest", f"the cut {cut} {why}", kind=CutError)
    if cut.partial:
        raise nest.error("Nest", f"the cut {cut} has summands; work is cut into tiles only", kind=CutError)
    try:
        require_even("the cut of a nest", cut)
        cut.check(mesh)
    except TypeFormError as error:
        raise nest.error("Nest", f"the cut of ({names}): {error}", kind=CutError) from error
    for name, dim in zip(nest.position, cut.dims, strict=True):
        if name in nest.whole and dim.tile != dim.size:
            why = f"iteration dimension {name!r} is cut as {dim} and must stay whole"
            raise nest.error("Whole", why, kind=CutError)


def pulled_back(nest: Nest, access: Access, cut: DistType) -> DistType:
    """The type of an array under one access: the rules Dim, Whole and Absent.

    >>> add = Nest("add", {"i": 4, "j": 8}, [Access("y", (("j",),))], [Access("z", (("i",), ("j",)))])
    >>> print(pulled_back(add, add.reads[0], DistType.of("[2{r0}4, 4{r1}8]")))
    [4{r1}8]
    """
    extents = iter(access.extents)
    dims = []
    for i, names in enumerate(access.dims):
        if not names:
            extent = next(extents)
            dims.append(DimType(extent, (), extent))
            continue
        factors = {name: cut.dims[nest.position[name]] for name in names}
        tiles = {name: factor.tile for name, factor in factors.items()}
        for name, factor in factors.items():  # a tile is contiguous
            major = uncut_above(names, name, tiles.__getitem__) if factor.tile != factor.size else None
            if major is not None:
                whole, sizes = nest.shape(access), [each.size for each in factors.values()]
                factored = [*whole[:i], *sizes, *whole[i + 1 :]]
                raise CutInnerFactorError(nest.name, access.array, i, names, name, major, factored)
        axes = tuple(axis for name in reversed(names) for axis in factors[name].axes)
        dims.append(DimType(math.prod(tiles.values()), axes, math.prod(each.size for each in factors.values())))
        if access.windows and isinstance(window := access.windows[i], Stencil):
            if why := refusal(window, dims[i].tile, dims[i].size):
                raise nest.error("Window", f"{', '.join(names)} cannot be cut so: {why}", access.array, CutError)
            dims[i] = cut_by(window, dims[i])
    return DistType(tuple(dims))


def windows_of(nest: Nest, access: Access, cut: DistType) -> tuple[Held, ...]:
    """The halos of every device besides its tile of an array, under one access and a cut; see `Value`."""
    return halos_held(access.dims, access.windows, dict(zip(nest.position, cut.dims, strict=True)))


def uncut_above(factors: Sequence[str], name: str, tile: Callable[[str], int]) -> str | None:
    """The first factor above one of an array dimension's factors that is not cut into single elements, if any."""
    return next((major for major in factors[: factors.index(name)] if tile(major) > 1), None)


def may_combine(nest: Nest, write: int, cut: Iterable[str]) -> bool:
    """Whether the results of a write, by its number, can be combined over the iteration dimensions that are cut."""
    kinds = {nest.combiner.get(name) for name in cut if name not in nest.writes[write].names}
    return write in nest.replicated or (None not in kinds and len(kinds) < 2)
