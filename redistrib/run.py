"""The command `redistrib run`: run a plan, check every element, and compare with XLA's own reshard."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redistrib.errors import RunSizeError
from redistrib.extras import need
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType, require_even
from redistrib.plans.plan import Plan
from redistrib.report import Printed, rendered
from redistrib.theory.topology import Topology

if TYPE_CHECKING:
    from redistrib.explain.profiling.compare import Comparison, Side


@dataclass(frozen=True)
class RunReport(Printed):
    """A plan and the measurements of its run.

    Attributes:
        plan: the plan.
        comparison: the measurements of the plan and, unless left out, of XLA's own reshard.
    """

    plan: Plan
    comparison: Comparison

    @property
    def correct(self) -> bool:
        """Whether every element of every tile has the right value after the run."""
        return self.comparison.ours.wrong == 0

    def as_dict(self) -> dict[str, Any]:
        """The measurements for JSON; received bytes are summed over the devices, scratch is per device."""
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

    def _text(self) -> str:
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
    """Run a plan on virtual CPU devices, one for each device of its mesh.

    Raises:
        RunSizeError: the plan has too many devices, or the array is too large for this machine's memory.
        DtypeError: JAX cannot hold the plan's element type.
        UnevenTypeError: tiles are of unequal size or padded.
        MissingPackageError: JAX is not installed.
    """
    need("jax")
    from redistrib.explain.profiling.compare import compare, mesh_for, virtual_cpu_devices, with_all_bits

    require_even("a run beside XLA", plan.source, plan.target)
    tiles = plan.devices * (plan.before.tile_size + (2 if with_xla else 1) * plan.after.tile_size)
    needed = tiles * plan.itemsize + plan.source.global_size * (8 + plan.itemsize)
    if needed > memory():
        raise RunSizeError(
            "run size",
            subject="the bytes of the array, its values and its tiles before and after",
            given=needed,
            least=0,
            most=memory(),
            remedy="take a smaller one",
        )
    renamed = _with_ascii_axes(plan)
    mesh = mesh_for(renamed, virtual_cpu_devices(plan.devices))
    with with_all_bits(plan.dtype):
        return RunReport(plan, compare(renamed, mesh, with_xla))


def _with_ascii_axes(plan: Plan) -> Plan:
    """The plan with axes named a0, a1 and so on, because XLA ends the process if the name of an axis is not ASCII."""

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
    """Bytes of this machine's memory; 16 GiB if the system does not report it."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 16 << 30


def under_mpi() -> bool:
    """Whether an MPI launcher started this process as one of several."""
    sizes = (os.environ.get(name, "1") for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"))
    return any(size.isdecimal() and int(size) > 1 for size in sizes)


def on_mpi(plan: Plan, as_json: bool = False) -> int:
    """Run a plan on `MPI.COMM_WORLD` and return an exit code; see `redistrib.backends.mpi`."""
    need("mpi4py")
    from redistrib.backends.mpi import run_command

    return int(run_command(plan, as_json=as_json))


def mpi_topology() -> Topology:
    """The topology of `MPI.COMM_WORLD`: the host of every rank."""
    need("mpi4py")
    from redistrib.backends.mpi import topology

    return topology()
