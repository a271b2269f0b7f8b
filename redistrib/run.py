"""What `redistrib run` does: carry a plan out, check every element, and set it beside XLA's own reshard."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redistrib.errors import RunSizeError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType, require_even
from redistrib.plans.plan import Plan
from redistrib.report import rendered
from redistrib.theory.topology import Topology

if TYPE_CHECKING:
    from redistrib.backends.jax.measure.compare import Comparison, Side


@dataclass(frozen=True)
class RunReport:
    """A plan and what came of running it.

    Attributes:
        plan: what ran.
        comparison: ours and, unless it was left out, XLA's.
    """

    plan: Plan
    comparison: Comparison

    @property
    def correct(self) -> bool:
        """Whether every element of every tile came out right."""
        return self.comparison.ours.wrong == 0

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON; bytes are summed over the devices, scratch is per device."""
        ours, xla = self.comparison.ours, self.comparison.xla
        return {
            "source": str(self.plan.source),
            "target": str(self.plan.target),
            "mesh": str(self.plan.source_mesh),
            "compared": self.comparison.compared,
            "bound_bytes": self.comparison.bound,
            "tile_bytes": self.comparison.tile,
            "ours": ours.as_dict(),
            "xla": None if xla is None else xla.as_dict(),
        }

    def __str__(self) -> str:
        ours, xla = self.comparison.ours, self.comparison.xla
        sides = [("ours", ours), *([("XLA", xla)] if xla is not None else [])]
        bound = self.comparison.bound
        rows = [
            ("collectives", [_kinds(side) for _, side in sides]),
            ("bytes received, all devices", [f"{side.received:,}" for _, side in sides]),
            ("over the lower bound", [f"{side.received / bound:.2f}x" if bound else "-" for _, side in sides]),
            ("scratch per device, bytes", [f"{side.scratch:,}" for _, side in sides]),
            ("scratch over the larger tile", [_ratio(side.scratch, self.comparison.tile) for _, side in sides]),
            ("elements that differ", [f"{side.wrong:,}" for _, side in sides]),
        ]
        table = rendered("compiled and run", ["", *(name for name, _ in sides)], [[k, *v] for k, v in rows])
        verdict = "every element is right" if self.correct else f"{ours.wrong:,} ELEMENTS ARE WRONG"
        return f"{self.plan}\n\n{table}\n{self.comparison.compared:,} elements compared: {verdict}"


def _kinds(side: Side) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(side.collectives.items())) or "none"


def _ratio(size: int, tile: int) -> str:
    return f"{size / tile:.2f}" if tile else "-"


def on_virtual_devices(plan: Plan, with_xla: bool = True) -> RunReport:
    """Run a plan on as many virtual CPU devices as its mesh has.

    Raises:
        RunSizeError: if these are too many, or the array too large for this machine's memory.
        DtypeError: if the plan's elements are none that can be run with.
        UnevenTypeError: if tiles are of unequal size, or padded.
    """
    from redistrib.backends.jax.measure.compare import compare, mesh_for, virtual_cpu_devices, with_all_bits

    require_even("a run beside XLA", plan.source, plan.target)
    tiles = plan.devices * (plan.before.tile_size + (2 if with_xla else 1) * plan.after.tile_size)
    held = tiles * plan.itemsize + plan.source.global_size * (8 + plan.itemsize)
    if held > memory():
        raise RunSizeError(
            "run size",
            what="the bytes of the array, its values and its tiles before and after",
            given=held,
            least=0,
            most=memory(),
            remedy="take a smaller one",
        )
    named = _with_plain_names(plan)
    mesh = mesh_for(named, virtual_cpu_devices(plan.devices))
    with with_all_bits(plan.dtype):
        return RunReport(plan, compare(named, mesh, with_xla))


def _with_plain_names(plan: Plan) -> Plan:
    """The same plan over axes called a0, a1 and so on: XLA ends the process on names outside ASCII."""

    def renamed(dist_type: DistType, mesh: Mesh) -> tuple[DistType, Mesh]:
        names = {name: f"a{k}" for k, name in enumerate(mesh.names)}
        axes = tuple(Axis(names[axis.name], axis.size) for axis in mesh.axes)
        dims = (replace(dim, axes=tuple(names[name] for name in dim.axes)) for dim in dist_type.dims)
        partial = tuple(names[name] for name in dist_type.partial)
        return DistType(tuple(dims), partial, dist_type.reduction), Mesh(axes, mesh.devices)

    source, source_mesh = renamed(plan.source, plan.source_mesh)
    target, target_mesh = renamed(plan.target, plan.target_mesh)
    return replace(plan, source=source, source_mesh=source_mesh, target=target, target_mesh=target_mesh)


def memory() -> int:
    """Bytes of this machine's memory; 16 GiB where the system does not tell."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 16 << 30


def under_mpi() -> bool:
    """Whether this process is one of several that an MPI launcher started."""
    sizes = (os.environ.get(name, "1") for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"))
    return any(size.isdecimal() and int(size) > 1 for size in sizes)


def on_mpi(plan: Plan, as_json: bool = False) -> int:
    """Run a plan on `MPI.COMM_WORLD` and return an exit code; see `redistrib.backends.mpi`."""
    from redistrib.backends.mpi import run_command

    return int(run_command(plan, as_json=as_json))


def mpi_topology() -> Topology:
    """The hosts that the ranks of `MPI.COMM_WORLD` run on."""
    from redistrib.backends.mpi import topology

    return topology()
