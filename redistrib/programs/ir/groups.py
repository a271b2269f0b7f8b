"""Fused nests: the types of the arrays that they read and write together, without a move between the nests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from redistrib.errors import InconsistentGroupError, ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.pullback import ScheduledNest, windows_of
from redistrib.programs.ir.value import Place, Value
from redistrib.programs.ir.windows import Held


@dataclass(frozen=True)
class Group:
    """The signature of fused nests: the types of the arrays that they read and write.

    Attributes:
        reads, writes: the types, by array.
        windows: of the arrays that are read, see `Value`.
    """

    reads: dict[str, DistType]
    writes: dict[str, DistType]
    windows: dict[str, tuple[Held, ...]]


def group_of(name: str, parts: tuple[ScheduledNest, ...], place: Place) -> Group:
    """The signature of fused nests, in which all accesses to one array agree: equal tiles on every device.

    Names of axes and meshes do not count, so grids of different rank may agree.

    Raises:
        InconsistentGroupError: if two accesses to one array need different tiles, or summands are read that the group
            would have to combine first.
        ProgramError: of any of the nests, see `ScheduledNest.signature`.
    """
    group = Group({}, {}, {})
    first: dict[str, tuple[ScheduledNest, Value]] = {}
    for part in parts:
        signature = part.signature(place.mesh)
        for access, needed in zip(part.nest.reads, signature.ins, strict=True):
            array, read = access.array, Value("", needed, place, windows=windows_of(part.nest, access, part.cut))
            _agree(name, array, first.setdefault(array, (part, read)), (part, read), written=False)
            if array not in group.writes:
                group.reads[array] = needed
                group.windows[array] = read.windows
        for access, written_type in zip(part.nest.writes, signature.outs, strict=True):
            array, written = access.array, Value("", written_type, place)
            _agree(name, array, first.get(array, (part, written)), (part, written), written=True)
            if array in group.reads:
                raise ProgramError(name, array, "SSA", "the array is read, then written; give the result a new name")
            if array in group.writes and not part.nest.combine:
                raise ProgramError(name, array, "Combine", "the array is written twice and nothing combines the two")
            group.writes[array] = written_type
            first[array] = (part, written)
    return group


def _agree(
    name: str, array: str, first: tuple[ScheduledNest, Value], second: tuple[ScheduledNest, Value], *, written: bool
) -> None:
    (before, a), (after, b) = first, second
    if a is b or a.means(b):
        return
    ends = ((before.nest.name, after.nest.name), (a.form, b.form))
    if not replace(a, type=DistType(a.type.dims)).means(replace(b, type=DistType(b.type.dims))):
        raise InconsistentGroupError(name, array, *ends, "which are other tiles")
    # an array of identities is at once whole and a summand of anything
    if not (written and not a.type.partial and before.nest.fills == b.type.reduction):
        raise InconsistentGroupError(name, array, *ends, "which a reduction would have to come between")
