"""Types in, plan out: gather the candidates, drop those that do not fit, let the cost model choose."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from redistrib.errors import DtypeError, GlobalShapeError, MeshDevicesError, UnknownAlgorithmError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import Step
from redistrib.plans.verify import verify
from redistrib.synthesis.candidates import single, three_phases
from redistrib.synthesis.cost import CostModel, ExactCost, cost_model
from redistrib.synthesis.lowering import lower_straight, lower_with_permute
from redistrib.synthesis.search import Search, shortest_paths
from redistrib.theory.semantics import Placement, lower_bound, placement_of
from redistrib.theory.weak import WeakSpace

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
) -> Plan:
    """A verified plan from one type to another.

    Args:
        source, target: well-formed types of one global shape.
        source_mesh, target_mesh: their meshes, of the same devices; `devices` gives each its order.
        dtype: name of the element type, NumPy's or ml_dtypes'.
        model: what to minimise.
        algorithm: `"best"` prices every candidate; `"paper"` is the weak-graph search and its lowering alone.
        over_partition: whether the paper's search may slice along replicated axes (Figure 12).

    Raises:
        GlobalShapeError, MeshDevicesError, UnknownCostModelError, UnknownAlgorithmError, DtypeError, TypeFormError.
    """
    chosen = cost_model(model)
    if algorithm not in get_args(Algorithm):
        raise UnknownAlgorithmError(algorithm, get_args(Algorithm))
    size = itemsize_of(dtype)
    if source.global_shape != target.global_shape:
        raise GlobalShapeError(source.global_shape, target.global_shape)
    if source_mesh.size != target_mesh.size:
        raise MeshDevicesError(source_mesh.size, target_mesh.size)
    before, after = placement_of(source, source_mesh), placement_of(target, target_mesh)
    if algorithm == "paper":
        found = paper_steps(before, after, chosen, Search(over_partition=over_partition), size)
        assert found is not None  # a normal form within the bound always exists (Theorem 4.8)
        steps = found
    else:
        brief = Search(over_partition=over_partition, expansions=2_000, revisits=2, paths=8)
        steps = best_steps(before, after, chosen, brief, size)
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
            cost=chosen.total(steps, size),
            unit=chosen.unit,
        )
    )


def paper_steps(
    before: Placement, after: Placement, model: CostModel, search: Search, itemsize: int
) -> list[Step] | None:
    """The paper's plan: the cheapest weak path, lowered, a permute priced in (Sections 6 and 7).

    Among plans of one price, one without a permute is taken. None if no path is below `search.below`.
    """
    space = WeakSpace(before.shape, before.devices, max(before.tile_size, after.tile_size))
    hosts = model.hosts(before.devices)
    best: list[Step] | None = None
    best_key: tuple[float, ...] = (math.inf, 0)
    for count, path in enumerate(shortest_paths(space, before.grid, after.grid, model, search)):
        if (path.cost, 0) >= best_key[:2] or count >= search.paths:
            break
        steps = lower_straight(path.grids, before, after, hosts)
        if steps is None:
            if path.cost + model.permute_at_least(space, path.grids) >= best_key[0]:
                continue
            steps = lower_with_permute(path.grids, before, after, hosts)
        cost, *rest = model.key(steps, itemsize)
        key = (cost, sum(step.kind == "allpermute" for step in steps), *rest)
        if key < best_key:
            best, best_key = steps, key
    return best


def best_steps(before: Placement, after: Placement, model: CostModel, search: Search, itemsize: int) -> list[Step]:
    """The cheapest of all candidates whose tiles stay within the larger of source and target."""
    hosts = model.hosts(before.devices)
    if hosts is None:
        one = single(before, after)
        if one is not None:
            return one
    bound = max(before.tile_size, after.tile_size)
    least = sum(lower_bound(before, after))
    best: list[Step] | None = None
    best_key: tuple[float, ...] = (math.inf,)
    for steps in three_phases(before, after, hosts):
        if any(step.after.tile_size > bound for step in steps):
            continue
        key = model.key(steps, itemsize)
        if key < best_key:
            best, best_key = steps, key
        if isinstance(model, ExactCost) and key[:2] == (least, 2):
            break  # one collective was ruled out above
    below = best_key[0] + 1 if isinstance(model, ExactCost) else best_key[0]
    papers = paper_steps(before, after, model, replace(search, below=below), itemsize)
    if papers is not None and model.key(papers, itemsize) < best_key:
        best = papers
    assert best is not None
    return best


def itemsize_of(dtype: str) -> int:
    """Bytes an element takes in an array; sub-byte types are held one to a byte.

    Raises:
        DtypeError: if no such type is known.
    """
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        pass
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype)).itemsize
    except (ImportError, AttributeError, TypeError):
        raise DtypeError(dtype) from None
