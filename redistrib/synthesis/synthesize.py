"""From two types to a plan: price the candidates that fit, and verify the cheapest."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast, get_args

from redistrib.cost.model import CostModel, no_price
from redistrib.cost.presets import cost_model
from redistrib.errors import ChoiceError, MemoryLimitError, MeshDevicesError
from redistrib.errors.synthesis import global_shape_error, mesh_devices_error
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType, as_even, require_even, require_whole
from redistrib.plans.data import Order, Short
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.plans.steps import Step
from redistrib.plans.verify import verify
from redistrib.synthesis.best import best_steps, limit_met
from redistrib.synthesis.between import best_exchange, best_steps_between
from redistrib.synthesis.exchange import without_elements
from redistrib.synthesis.paper.algorithm import paper_steps
from redistrib.synthesis.paper.search import Search
from redistrib.synthesis.partial.arithmetic import check_reduction
from redistrib.synthesis.partial.best import best_partial_steps
from redistrib.synthesis.problem import Problem
from redistrib.theory.placement import placement_of
from redistrib.theory.topology import Topology

Algorithm: TypeAlias = Literal["best", "paper"]


def synthesize(
    source: DistType,
    source_mesh: Mesh,
    target: DistType,
    target_mesh: Mesh,
    *,
    dtype: str = "float32",
    model: CostModel | str = "exact",
    algorithm: str = "best",
    over_partition: bool = True,
    memory_limit: int | None = None,
    accumulate: str | None = None,
    order: str = "any",
    topology: Topology | None = None,
) -> Plan:
    """A verified plan from one type to another.

    Args:
        source, target: well-formed types of one global shape.
        source_mesh, target_mesh: their meshes; `devices` says of which devices, and in which order.
        dtype: name of the element type, NumPy's or ml_dtypes'.
        model: the cost model to minimise.
        algorithm: `"best"` prices every candidate; `"paper"` is the weak-graph search and its lowering alone.
        over_partition: whether the paper's search may slice along replicated axes (Figure 12).
        memory_limit: bytes per device for source, target and scratch together; None bounds the tiles instead.
        accumulate: name of the element type in which the library adds partial sums; None for `"float32"` if `dtype` is
            bfloat16 or float16, else `dtype`.
        order: `"fixed"`: the library adds partial sums in ascending order, in one step; otherwise `"any"`.
        topology: hosts and links of the devices, by number; None if unknown.

    Raises:
        MemoryLimitError: if no candidate fits the limit.
        ProfileError: if the model gives no plan a finite price.
        ReductionError: if elements have no such reduction, or `accumulate` cannot represent them.
        GlobalShapeError, MeshDevicesError, ChoiceError, DtypeError, TypeFormError.
    """
    chosen = cost_model(model)
    if algorithm not in get_args(Algorithm):
        raise ChoiceError("unknown algorithm", value=algorithm, known=get_args(Algorithm))
    size = itemsize_of(dtype)
    source, target = as_even(source, source_mesh), as_even(target, target_mesh)
    if algorithm == "paper":
        require_whole("the paper's algorithm", source, target)
        require_even("the paper's algorithm", source, target)
    partial = bool(source.partial or target.partial)
    added_in = check_reduction(source, target, dtype, accumulate)
    devices = max(source_mesh.span, target_mesh.span)
    if not source_mesh.size == target_mesh.size == devices:
        _check_device_sets(algorithm, source, source_mesh, target, target_mesh)
    before, after = placement_of(source, source_mesh, devices), placement_of(target, target_mesh, devices)
    if source.global_shape != target.global_shape:
        raise global_shape_error(source.global_shape, target.global_shape)
    if topology is not None and topology.devices != devices:
        raise MeshDevicesError("topology", source=topology.devices, target=devices)
    links = chosen.topology_between(source_mesh, target_mesh, topology)
    problem = Problem(before, after, size, links, memory_limit)
    try:
        steps, note = _steps(problem, algorithm, chosen, over_partition, order == "fixed")
        if isinstance(steps, Short):
            raise MemoryLimitError(memory_limit or 0, steps.least)
        prices = chosen.prices(size, problem.topology)
        step_costs = tuple(map(prices.step, steps))
    except OverflowError:  # more elements than a float counts
        raise no_price(chosen) from None
    return verify(
        Plan(
            source=source,
            source_mesh=source_mesh,
            target=target,
            target_mesh=target_mesh,
            dtype=dtype,
            itemsize=size,
            steps=tuple(steps),
            algorithm=cast(Algorithm, algorithm),
            cost_model=chosen.name,
            cost=sum(step_costs),
            unit=chosen.unit,
            memory_limit=memory_limit,
            step_costs=step_costs,
            note=note,
            accumulate=added_in,
            order=cast(Order, order) if partial or order != "fixed" else "any",
        )
    )


def least_limit(plan: Plan, model: CostModel | str, topology: Topology | None) -> int:
    """The least memory limit, in bytes per device, that a known plan between the ends of a plan fits.

    Args:
        plan: without a memory limit.
        model, topology: those of the plan.
    """
    chosen = cost_model(model)
    links = chosen.topology_between(plan.source_mesh, plan.target_mesh, topology)
    problem = Problem(plan.before, plan.after, plan.itemsize, links, memory_limit=1)
    steps, _ = _steps(problem, "best", chosen, over_partition=True, fixed=plan.order == "fixed")
    return steps.least if isinstance(steps, Short) else problem.peak(steps)


def _check_device_sets(
    algorithm: str, source: DistType, source_mesh: Mesh, target: DistType, target_mesh: Mesh
) -> None:
    """Refuse problems in which every device must hold a tile at both ends."""
    source.check(source_mesh)
    target.check(target_mesh)
    require_whole("a move to other devices", source, target)
    if algorithm == "paper":
        raise mesh_devices_error("the paper's algorithm", source_mesh, target_mesh)
    if not source.rank and target.rank == 0:
        raise mesh_devices_error("an array of rank 0", source_mesh, target_mesh)


def _steps(
    problem: Problem, algorithm: str, model: CostModel, over_partition: bool, fixed: bool
) -> tuple[list[Step] | Short, str | None]:
    """The steps or the least memory limit, and a note for the user or None."""
    if 0 in problem.before.shape:
        return without_elements(problem), None
    if max(problem.before.summands, problem.after.summands) > 1:
        return best_partial_steps(problem, model, fixed), None
    if problem.uneven:
        return best_exchange(problem, model), None
    if not problem.everywhere:
        return best_steps_between(problem, model), None
    if algorithm == "best":
        steps = best_steps(problem, model, over_partition, waiting=True)
        return steps, None if isinstance(steps, Short) else limit_met(problem, model, steps)
    paper = paper_steps(problem, model, Search(over_partition=over_partition))
    if paper is None:  # a normal form within the bound always exists (Theorem 4.8)
        raise no_price(model)
    return paper if problem.fits(paper) else Short(problem.peak(paper)), None
