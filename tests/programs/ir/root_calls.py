"""The two MPI calls that spread an array over a grid, and the two that bring it back."""

from __future__ import annotations

from redistrib.programs.ir.direct import gathering, scattering
from redistrib.programs.ir.program import Value
from redistrib.programs.schedule.root import ROOT


def scatter_calls(value: Value) -> tuple[str, ...]:
    """The MPI calls that bring an array from the root to a value: at most two; see `scattering`."""
    how = scattering(value, *ROOT.devices)
    return (*["Scatterv"] * bool(how.members), *["Bcast"] * bool(how.groups))


def gather_calls(value: Value) -> tuple[str, ...]:
    """The MPI calls that bring a value to the root: at most two; see `gathering`."""
    how = gathering(value, *ROOT.devices)
    reduces = bool(value.type.partial and how.teams)
    return (*["Reduce"] * reduces, *["Gatherv"] * bool(how.members))
