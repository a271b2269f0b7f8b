"""A plan as JSON: canonical, sealed with a digest, and read as if a stranger had written it.

The form is one object. `placements` lists each placement once; steps refer to them by position. Device numbers,
groups, pairs and shares stand in it as they do in `steps`; a share is `[src, dst, round, start, size]`. `digest` is the
SHA-256 of the text without it, keys sorted and no spaces: it tells accident from intent no better than a
checksum, so a loaded plan is verified as well.

A plan is written in the least version that can say it: 1 if all its tiles are parts of the array, 2 if some are
summands. Both are read. Their fields are listed in docs/format.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from redistrib.errors import PlanDigestError, PlanFormError, PlanJsonError, PlanVersionError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType
from redistrib.plans._values import (
    as_column,
    as_integers,
    as_list,
    as_object,
    as_table,
    as_text,
    at_field,
    parse,
    refuse,
)
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.plans.steps import (
    Adding,
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    Realisation,
    ReduceExchange,
    ReduceScatter,
    Shares,
    Step,
    Unreduce,
)
from redistrib.plans.verify import verify
from redistrib.theory.semantics import Placement

FORMAT = "redistrib-plan"
VERSIONS = (1, 2)

_LARGEST = 2**63 - 1
_DEAREST = 1e300  # a float, so that it can be compared and shown
_DEPTH = 6  # lists and objects of a plan within one another

_PLAN_FIELDS = (
    "format", "version", "dtype", "source", "target", "algorithm", "cost_model", "cost", "unit", "memory_limit",
    "placements", "steps", "digest",
)  # fmt: skip
_SUMMAND_FIELDS = ("summand", "summands", "reduction")
_STEP_FIELDS: dict[str, tuple[str, ...]] = {
    "dynslice": (),
    "allgather": ("groups",),
    "alltoall": ("groups",),
    "allpermute": ("pairs",),
    "exchange": ("realisation", "shares"),
}
_LATER_STEP_FIELDS: dict[str, tuple[str, ...]] = {
    "reduce_scatter": ("realisation", "groups"),
    "all_reduce": ("groups",),
    "reduce_exchange": ("realisation", "shares", "splits"),
    "unreduce": ("keeps",),
}
_FIELDS = {1: _STEP_FIELDS, 2: _STEP_FIELDS | _LATER_STEP_FIELDS}


# ---------------------------------------------------------------------------------------------- writing


def to_json(plan: Plan) -> str:
    """The JSON form of a plan: one line, keys sorted, sealed with a digest.

    Raises:
        PlanFormError: if the plan's itemsize is not that of its dtype, so that it could not be read back as it is.
        DtypeError: if its dtype has no known size.
    """
    if plan.itemsize != itemsize_of(plan.dtype):
        raise PlanFormError(
            f"the plan counts {plan.itemsize} bytes per element, but {plan.dtype} has {itemsize_of(plan.dtype)}; "
            "its JSON form records the dtype alone"
        )
    placements: list[Placement] = []
    position: dict[tuple[Placement, bytes], int] = {}

    def place(placement: Placement) -> int:
        # shares and groups speak of summands by number, so placements that number them otherwise stand apart
        key = placement, placement.label.tobytes() if placement.summands > 1 else b""
        if key not in position:
            position[key] = len(placements)
            placements.append(placement)
        return position[key]

    steps = [_step_form(step, place) for step in plan.steps]
    version = _least_version(plan)
    form = {
        "format": FORMAT,
        "version": version,
        "dtype": plan.dtype,
        "source": _side_form(plan.source, plan.source_mesh),
        "target": _side_form(plan.target, plan.target_mesh),
        "algorithm": plan.algorithm,
        "cost_model": plan.cost_model,
        "cost": plan.cost.item() if isinstance(plan.cost, np.generic) else plan.cost,
        "unit": plan.unit,
        "memory_limit": plan.memory_limit,
        "placements": [_placement_form(placement) for placement in placements],
        "steps": steps,
    }
    if version > 1:
        form |= {"accumulate": plan.accumulate, "order": plan.order}
    return _canonical({**form, "digest": _digest(form)})


def _least_version(plan: Plan) -> int:
    partial = plan.source.partial or plan.target.partial or plan.accumulate is not None or plan.order != "any"
    placements = (placement for step in plan.steps for placement in (step.before, step.after))
    later = any(step.kind in _LATER_STEP_FIELDS for step in plan.steps)
    return 2 if partial or later or any(placement.summands > 1 for placement in placements) else 1


def _placement_form(placement: Placement) -> dict[str, Any]:
    form: dict[str, Any] = {"grid": list(placement.grid), "index": placement.index.tolist()}
    if placement.summands > 1:
        values = placement.label.tolist(), placement.summands, placement.reduction
        form |= dict(zip(_SUMMAND_FIELDS, values, strict=True))
    return form


def _canonical(form: dict[str, Any]) -> str:
    return json.dumps(form, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(form: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(form).encode("ascii")).hexdigest()


def _side_form(dist_type: DistType, mesh: Mesh) -> dict[str, Any]:
    axes = [[axis.name, axis.size] for axis in mesh.axes]
    return {"type": str(dist_type), "mesh": {"axes": axes, "devices": list(mesh.devices)}}


def _step_form(step: Step, place: Callable[[Placement], int]) -> dict[str, Any]:
    form: dict[str, Any] = {"kind": step.kind, "before": place(step.before), "after": place(step.after)}
    match step:
        case AllGather() | AllToAll() | ReduceScatter() | AllReduce():
            form["groups"] = step.groups.tolist()
            if isinstance(step, ReduceScatter):
                form["realisation"] = step.realisation
        case AllPermute():
            form["pairs"] = step.pairs.tolist()
        case Exchange() | ReduceExchange():
            shares = step.shares
            columns = (shares.src, shares.dst, shares.round, shares.start, shares.size)
            form["realisation"] = step.realisation
            form["shares"] = [list(row) for row in zip(*(c.tolist() for c in columns), strict=True)]
            if isinstance(step, ReduceExchange):
                form["splits"] = list(step.splits)
        case Unreduce():
            form["keeps"] = step.keeps.tolist()
    return form


# ---------------------------------------------------------------------------------------------- reading


def from_json(text: str, bound: int | None = None) -> Plan:
    """Read a plan and verify it.

    Args:
        text: what `to_json` wrote.
        bound: the largest tile allowed, in elements; by default what `verify` allows.

    Raises:
        PlanVersionError: if the text is of another version.
        PlanDigestError: if it does not match its digest.
        PlanJsonError: if it is not JSON, or a field is missing, unknown or has a value it cannot have.
        VerificationError: if it is a plan, but not a correct one.
    """
    try:
        plan = _plan(_unsealed(text))
    except RecursionError:
        raise PlanJsonError(
            f"the text is not a plan: it is nested too deep to be read, where a plan is {_DEPTH} deep"
        ) from None
    return verify(plan, bound)


def _unsealed(text: str) -> dict[str, Any]:
    """The form of a plan, with its digest checked."""
    form = as_object(parse(text), "the plan", None)
    if form.get("format") != FORMAT:
        refuse("format", f"is {shown(form.get('format'))}, a plan has {FORMAT!r}")
    version = form.get("version")
    if type(version) is not int or version not in VERSIONS:
        raise PlanVersionError(
            f"the plan is of version {shown(version)}, this release reads versions "
            f"{' and '.join(map(str, VERSIONS))}; write it again with this release",
            "version",
        )
    as_object(form, "the plan", (*_PLAN_FIELDS, "accumulate", "order") if version > 1 else _PLAN_FIELDS, version)
    sealed = {name: value for name, value in form.items() if name != "digest"}
    digest = _digest(sealed)
    if form["digest"] != digest:
        raise PlanDigestError(
            f"the plan's digest is {shown(form['digest'])}, but its contents have {digest!r}; "
            "it was changed after it was written: make the plan again",
            "digest",
        )
    return form


def _plan(form: dict[str, Any]) -> Plan:
    version = form["version"]
    source, source_mesh = _side(form["source"], "source", version)
    target, target_mesh = _side(form["target"], "target", version)
    placements = [
        _placement(entry, f"placements[{k}]", source, version)
        for k, entry in enumerate(as_list(form["placements"], "placements"))
    ]
    steps = [
        _step(entry, f"steps[{k}]", placements, version) for k, entry in enumerate(as_list(form["steps"], "steps"))
    ]
    cost = form["cost"]
    if type(cost) not in (int, float) or not 0 <= cost <= _DEAREST:
        refuse("cost", f"is {shown(cost)}, which is not a price from 0 to {_DEAREST}")
    if form["unit"] not in ("elements", "seconds"):
        refuse("unit", f"is {shown(form['unit'])}, a cost is in 'elements' or 'seconds'")
    limit = form["memory_limit"]
    if limit is not None and (type(limit) is not int or not 1 <= limit <= _LARGEST):
        refuse("memory_limit", f"is {shown(limit)}, a limit is a number of bytes from 1 to {_LARGEST} or null")
    dtype = as_text(form["dtype"], "dtype")
    accumulate, order = form.get("accumulate"), form.get("order", "any")
    if accumulate is not None:
        at_field("accumulate", lambda: itemsize_of(as_text(accumulate, "accumulate")))
    if order not in ("any", "fixed"):
        refuse("order", f"is {shown(order)}, summands are added in 'any' order or in a 'fixed' one")
    return at_field(
        "the plan",
        lambda: Plan(
            source=source,
            source_mesh=source_mesh,
            target=target,
            target_mesh=target_mesh,
            dtype=dtype,
            itemsize=itemsize_of(dtype),
            steps=tuple(steps),
            algorithm=as_text(form["algorithm"], "algorithm"),
            cost_model=as_text(form["cost_model"], "cost_model"),
            cost=cost,
            unit=form["unit"],
            memory_limit=limit,
            accumulate=accumulate,
            order=order,
        ),
    )


def _side(value: Any, where: str, version: int) -> tuple[DistType, Mesh]:
    side = as_object(value, where, ("type", "mesh"), version)
    mesh_form = as_object(side["mesh"], f"{where}.mesh", ("axes", "devices"), version)
    axes = []
    for k, entry in enumerate(as_list(mesh_form["axes"], f"{where}.mesh.axes")):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[1]) is not int:
            refuse(f"{where}.mesh.axes[{k}]", f"is {shown(entry)}, an axis is a name and a size")
        axes.append(entry)
    devices = tuple(as_integers(mesh_form["devices"], f"{where}.mesh.devices"))
    if not devices:
        refuse(f"{where}.mesh.devices", "is empty; a mesh names its devices, in their order")
    mesh = at_field(f"{where}.mesh", lambda: Mesh(tuple(Axis(name, size) for name, size in axes), devices))
    dist_type = at_field(f"{where}.type", lambda: DistType.parse(as_text(side["type"], f"{where}.type")))
    at_field(f"{where}.type", lambda: dist_type.check(mesh))
    if dist_type.partial and version < 2:
        refuse(f"{where}.type", f"is {shown(side['type'])}, and summands need version 2")
    return dist_type, mesh


def _placement(value: Any, where: str, source: DistType, version: int) -> Placement:
    entry = as_object(value, where, None)
    partial = version > 1 and not entry.keys().isdisjoint(_SUMMAND_FIELDS)
    as_object(entry, where, ("grid", "index", *(_SUMMAND_FIELDS if partial else ())), version)
    grid = tuple(as_integers(entry["grid"], f"{where}.grid"))
    if max(grid, default=0) > _LARGEST:
        refuse(f"{where}.grid", "has a number that does not fit 64 bits")
    index = as_table(entry["index"], f"{where}.index", source.rank)
    if not partial:
        return at_field(where, lambda: Placement(source.global_shape, grid, index))
    summand = as_column(entry["summand"], f"{where}.summand")
    count, reduction = entry["summands"], entry["reduction"]
    if type(count) is not int or count < 2:
        refuse(f"{where}.summands", f"is {shown(count)}, where an integer of at least 2 is expected")
    return at_field(where, lambda: Placement(source.global_shape, grid, index, summand, count, reduction))


def _step(value: Any, where: str, placements: list[Placement], version: int) -> Step:
    entry = as_object(value, where, None)
    kind, kinds = entry.get("kind"), _FIELDS[version]
    if not isinstance(kind, str) or kind not in kinds:
        refuse(f"{where}.kind", f"is {shown(kind)}, a step is one of {', '.join(kinds)}")
    as_object(entry, where, ("kind", "before", "after", *kinds[kind]), version)
    before = _reference(entry["before"], f"{where}.before", placements)
    after = _reference(entry["after"], f"{where}.after", placements)
    if kind == "dynslice":
        return DynSlice(before, after)
    if kind == "allpermute":
        return AllPermute(before, after, as_table(entry["pairs"], f"{where}.pairs", 2))
    if kind == "unreduce":
        return Unreduce(before, after, as_column(entry["keeps"], f"{where}.keeps"))
    realisation = entry.get("realisation")
    if kind in ("exchange", "reduce_exchange"):
        if realisation not in ("rounds", "ragged"):
            refuse(f"{where}.realisation", f"is {shown(realisation)}, an exchange runs as 'rounds' or 'ragged'")
        shares = _shares(entry["shares"], f"{where}.shares", len(before.shape))
        if kind == "exchange":
            return Exchange(before, after, shares, cast(Realisation, realisation))
        splits = tuple(as_integers(entry["splits"], f"{where}.splits"))
        return at_field(where, lambda: ReduceExchange(before, after, shares, cast(Realisation, realisation), splits))
    groups = as_table(entry["groups"], f"{where}.groups", None)
    if kind == "reduce_scatter":
        if realisation not in ("native", "alltoall"):
            refuse(f"{where}.realisation", f"is {shown(realisation)}, a reduction runs as 'native' or 'alltoall'")
        return ReduceScatter(before, after, groups, cast(Adding, realisation))
    if kind == "all_reduce":
        return AllReduce(before, after, groups)
    return AllGather(before, after, groups) if kind == "allgather" else AllToAll(before, after, groups)


def _shares(value: Any, where: str, rank: int) -> Shares:
    rows = as_list(value, where)
    for k, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 5:
            refuse(f"{where}[{k}]", f"is {shown(row)}, a share is [src, dst, round, start, size]")
    heads = as_table([row[:3] for row in rows], where, 3)
    start, size = (as_table([row[k] for row in rows], where, rank) for k in (3, 4))
    return Shares(heads[:, 0], heads[:, 1], start, size, heads[:, 2])


def _reference(value: Any, where: str, placements: list[Placement]) -> Placement:
    if type(value) is not int or not 0 <= value < len(placements):
        refuse(where, f"is {shown(value)}, which is not a position in the list of {len(placements)} placements")
    return placements[value]
