"""Layout versions of arrays in programs on several places: an operation says which layouts it needs, on its place."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Compute, Place, Value
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.versions import ReadAt, Versions, nearest, reduced

K = TypeVar("K", bound=Hashable)


class PlacedVersions(Versions[K, Value, Value]):
    """The values of a program that are versions of arrays, each on its place.

    The version nearest to what is needed is moved. Partial sums are added where they are before anything leaves.

    Args:
        builder: of the program, which gets the moves.
    """

    def __init__(self, builder: Builder) -> None:
        super().__init__()
        self.builder = builder

    def means(self, version: Value, form: Value, windows: tuple[Held, ...]) -> bool:
        return version.holds(form.type, form.place, windows or form.windows)

    def origin(self, key: K, form: Value, usable: Sequence[Value], reading: ReadAt) -> Value:
        plain = [version for version in usable if not version.windows]
        source = plain[nearest(plain, form)]
        leaves = source.place.devices != form.place.devices or form.windows
        if leaves and source.type.partial:
            total = replace(source, type=reduced(source.type, source.place.mesh))
            self.versions[key].append(source := self.move(key, source, total, (), reading))
        return source

    def move(self, key: K, source: Value, form: Value, windows: tuple[Held, ...], reading: ReadAt) -> Value:
        name = self.versions[key][0].name
        return self.builder.moved_to(source, replace(form, name=name, windows=windows or form.windows))


class BuiltVersions(PlacedVersions[Hashable]):
    """The layout versions of a program that is written operation by operation."""

    def begin(self, key: Hashable, value: Value) -> Value:
        """Add an input, the first layout version of an array."""
        self.builder.inputs.append(value)
        return self.hold(key, value)

    def hold(self, key: Hashable, value: Value) -> Value:
        """Let a value be the only layout version of an array."""
        self.builder.reserve([value.name])
        self.versions[key] = [value]
        return value

    def needed(self, key: Hashable, target: Value) -> Value:
        """The layout version of an array that means `target`, moved from another version if there is none yet."""
        return self.read(key, *tiles_and_halos(target))

    def add(
        self,
        name: str,
        parts: Sequence[ScheduledNest],
        place: Place,
        reads: Iterable[tuple[str, Hashable, Value]],
        writes: Iterable[tuple[str, Value]],
        kind: str = "",
        source: str = "",
    ) -> None:
        """Add an operation, and before it the moves that it needs.

        Args:
            name: of the operation.
            parts: its nests and their cuts.
            place: the devices that run it.
            reads: for every array that the nests read the key of the array here, and the layout that they need.
            writes: for every array that the nests leave behind the value that it becomes.
            kind, source: see `Compute`.
        """
        ins = tuple((formal, self.needed(key, target).name) for formal, key, target in reads)
        self.builder.ops.append(Compute(name, tuple(parts), place, ins, tuple(writes), kind, source))


def tiles_and_halos(layout: Value) -> tuple[Value, tuple[Held, ...]]:
    """A layout without its halos, which tiles get when they are there, and these."""
    return (replace(layout, windows=()), layout.windows) if layout.has_halos else (layout, ())
