"""Plans of a single step, which the calibration of a backend measures, and the sample that its seconds give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Step
from redistrib.theory.placement import placement_of


def sample_of(plan: Plan, seconds: Sequence[float], transport: str = "") -> Sample:
    """The sample of a plan of one step, from the seconds of each of its runs on the slowest rank."""
    (step,) = plan.steps
    members = step.group_size if isinstance(step, AllGather | AllToAll) else 2
    copied = step.after.tile_size + (step.before.tile_size if isinstance(step, AllToAll) else 0)
    quarter, middle, three = (float(q) for q in np.quantile(seconds, (0.25, 0.5, 0.75)))
    received = max(step.received()) * plan.itemsize
    return Sample(step.kind, members, received, copied * plan.itemsize, middle, (three - quarter) / 2, transport)


def single_steps(ranks: int, tile_bytes: int) -> Iterator[Plan]:
    """One plan of one step for each kind of step and group size.

    Args:
        ranks: devices.
        tile_bytes: bytes of a tile before the step, about.
    """
    sizes = sorted({g for g in range(2, ranks + 1) if ranks % g == 0})
    for g in {sizes[0], sizes[len(sizes) // 2], sizes[-1]}:
        mesh = Mesh((Axis("x", g), Axis("y", ranks // g)))
        groups = np.arange(ranks).reshape(g, ranks // g).T
        width = max(1, tile_bytes // 4 // 64 // g)
        cut_rows = DistType((DimType(64, ("x",), 64 * g), DimType(width * g, (), width * g)))
        cut_columns = DistType((DimType(64 * g, (), 64 * g), DimType(width, ("x",), width * g)))
        whole = DistType((DimType(64 * g, (), 64 * g), DimType(width * g, (), width * g)))
        before = placement_of(cut_rows, mesh)
        if tile_bytes * g <= 1 << 24:
            yield _one(cut_rows, mesh, whole, mesh, AllGather(before, placement_of(whole, mesh), groups))
        yield _one(cut_rows, mesh, cut_columns, mesh, AllToAll(before, placement_of(cut_columns, mesh), groups))
    line = Mesh((Axis("x", ranks),))
    turned = Mesh((Axis("x", ranks),), tuple(int(d) for d in np.roll(np.arange(ranks), -1)))
    cut = DistType((DimType(max(1, tile_bytes // 4), ("x",), max(1, tile_bytes // 4) * ranks),))
    pairs = np.stack([np.arange(ranks), np.roll(np.arange(ranks), -1)], axis=1)
    yield _one(cut, line, cut, turned, AllPermute(placement_of(cut, line), placement_of(cut, turned), pairs))


def _one(source: DistType, source_mesh: Mesh, target: DistType, target_mesh: Mesh, step: Step) -> Plan:
    return Plan(source, source_mesh, target, target_mesh, "float32", 4, (step,), "best", "exact", 0, "elements")
