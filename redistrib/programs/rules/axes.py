"""Names of mesh axes inside a function: those of the regions of `jax.shard_map`, as axes of the mesh of the program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class MeshAxes:
    """The mesh axes that a function may name.

    Attributes:
        sizes: of the axes of the mesh over which the function is distributed, in order.
        names: for the axes of a region around, the axes of the mesh that stand for each, the most major first.
        is_inside: whether the function is part of one operation, inside which nothing is moved.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_inside: bool = False

    def inside(self, names: Mapping[str, tuple[str, ...]] | None = None) -> MeshAxes:
        """The axes for a function that is part of one operation, where a region has these names."""
        return replace(self, names={**self.names, **(names or {})}, is_inside=True)

    def of(self, names: str | tuple[str, ...]) -> tuple[str, ...]:
        """The axes of the mesh that stand for one axis of a region, or for several, the most major first."""
        return tuple(axis for name in ((names,) if isinstance(names, str) else names) for axis in self.names[name])

    def matched(self, shape: Mapping[str, int]) -> Mapping[str, tuple[str, ...]] | None:
        """For each axis of a region's mesh the axes of this one that stand for it; None if there are none.

        What a region computes depends on the sizes of its axes, and on no device. So an axis of another name stands for
        one of its size, or several axes that follow each other do.

        >>> dict(MeshAxes({"data": 2, "x": 2, "y": 4}).matched({"data": 2, "model": 8}))
        {'data': ('data',), 'model': ('x', 'y')}
        """
        matches = {name: self.names[name] for name in shape if name in self.names}
        named = [name for name, size in shape.items() if name not in matches and self.sizes.get(name) == size]
        matches |= {name: (name,) for name in named}
        used = {axis for axes in (*matches.values(), *self.names.values()) for axis in axes}
        free = [axis for axis in self.sizes if axis not in used]
        for name, size in shape.items():
            if name not in matches:
                runs = (free[first:stop] for first in range(len(free)) for stop in range(first + 1, len(free) + 1))
                run = next((run for run in runs if math.prod(map(self.sizes.__getitem__, run)) == size), None)
                if run is None:
                    return None
                matches[name] = tuple(run)
                free = [axis for axis in free if axis not in run]
        return matches
