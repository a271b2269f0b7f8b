"""Halos that several operations share: an array is received once, with all that any of them reads beside a tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.halos import halo_rounds
from redistrib.programs.ir.pullback import windows_of
from redistrib.programs.ir.windows import Held, Reach
from redistrib.programs.schedule.propagate import Propagation

Windows: TypeAlias = tuple[Held, ...]
Shared: TypeAlias = Mapping[tuple[str, DistType], Windows]


def shared_halos(propagation: Propagation) -> dict[tuple[str, DistType], Windows]:
    """For an array in a type the halos that serve all operations that read it with halos, if that is no more."""
    shared: dict[tuple[str, DistType], Windows] = {}
    separate: set[tuple[str, DistType]] = set()
    for number, operation in enumerate(propagation.graph.operations):
        if not any(access.windows for access in operation.nest.reads):
            continue
        part = propagation.part(number)
        try:
            signature = part.signature(propagation.mesh)
        except ProgramError:  # the builder raises this error again
            continue
        for access, name, form in zip(part.nest.reads, operation.ins, signature.ins, strict=True):
            windows = windows_of(part.nest, access, part.cut)
            key = name, form
            if not windows or key in separate:
                continue
            united = _united(shared[key], windows, form, propagation.mesh) if key in shared else windows
            if united is None:
                separate.add(key)
                del shared[key]
            else:
                shared[key] = united
    return shared


def _united(first_windows: Windows, other: Windows, form: DistType, mesh: Mesh) -> Windows | None:
    """Halos that contain both; None where they take more than both, or begin differently."""
    united: list[Held] = []
    for a, b, dim in zip(first_windows, other, form.dims, strict=True):
        if a == b:
            united.append(a)
            continue
        first, second = (held if isinstance(held, Reach) else Reach(dim.tile, 0, dim.tile) for held in (a, b))
        if first.step != second.step:
            return None
        start = min(first.start, second.start)
        end = max(reach.start + reach.length for reach in (first, second))
        united.append(Reach(first.step, start, end - start))
    both = tuple(united)
    taken = [
        sum(r.elements * len(r.pairs) for r in halo_rounds(form, mesh, windows))
        for windows in (both, first_windows, other)
    ]
    return both if taken[0] <= taken[1] + taken[2] else None
