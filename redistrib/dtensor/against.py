"""A plan beside the plans of DTensor's planners for the same problem: steps, elements received, largest tile."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.backends.torch.private import planned_steps
from redistrib.errors import RedistribError, UnevenTypeError
from redistrib.lang.types import DistType, require_even, require_whole
from redistrib.plans.plan import Plan


def against_dtensor(plan: Plan) -> str:
    """A paragraph that compares a plan with those of DTensor's two planners, which are not run.

    Raises:
        PartialTypeError, UnevenTypeError: if tiles are partial sums, or of unequal size.
    """
    require_whole("a comparison with DTensor", plan.source, plan.target)
    require_even("a comparison with DTensor", plan.source, plan.target)
    if plan.source_mesh != plan.target_mesh:
        return "DTensor moves nothing between two meshes."
    lines = []
    for name, greedy in (("greedy, by default", True), ("least cost", False)):
        version, moves = planned_steps(
            plan.shape, plan.source_mesh.shape, _axes(plan, plan.source), _axes(plan, plan.target), greedy=greedy
        )
        received, largest, steps = _counted(plan, moves)
        lines.append(
            f"DTensor {version}, {name}: {', '.join(steps) or 'no steps'}; "
            f"each device receives {received:,} elements, the largest tile has {largest:,}"
        )
    most = max(plan.received)
    bound = max(plan.lower_bound)
    lines.append(
        f"this plan: a device receives at most {most:,} elements (bound {bound:,}), "
        f"the largest tile has {plan.height:,}"
    )
    return "\n".join(lines)


def beside(plan: Plan) -> str:
    """`against_dtensor` for the table of a plan: empty where DTensor and the plan cannot be compared."""
    try:
        return against_dtensor(plan)
    except RedistribError:
        return ""


def _axes(plan: Plan, dist_type: DistType) -> list[list[int]]:
    """For each dimension the numbers of the mesh axes that cut it, major to minor."""
    names = plan.source_mesh.names
    return [[names.index(name) for name in reversed(dim.axes)] for dim in dist_type.dims]


def _counted(plan: Plan, moves: Sequence[tuple[int, str, str]]) -> tuple[int, int, list[str]]:
    """Elements that each device receives, elements of the largest tile, and the steps, of moves along mesh dimensions.

    Raises:
        UnevenTypeError: if an axis does not divide a tile.
    """
    tile, received, steps = plan.before.tile_size, 0, []
    largest = tile
    for dim, before, after in moves:
        size = plan.source_mesh.shape[dim]
        if before == "shard" and after == "replicate":
            received += (size - 1) * tile
            tile *= size
            steps.append(f"allgather over {size}")
        elif before == "replicate":
            if tile % size:
                raise UnevenTypeError("a comparison with DTensor", str(plan.source))
            tile //= size
            steps.append("slice")
        else:
            received += tile * (size - 1) // size
            steps.append(f"alltoall over {size}")
        largest = max(largest, tile)
    return received, largest, steps
