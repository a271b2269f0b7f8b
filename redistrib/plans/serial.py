"""A plan as JSON: canonical, sealed with a digest, and checked as untrusted input.

The form is one object. `placements` lists each placement once; steps refer to them by position. Device numbers,
groups, pairs and shares stand in it as they do in `steps`; a share is `[src, dst, round, start, size]`. `digest` is the
SHA-256 of the text without it, keys sorted and no spaces. It is a checksum against accidents, not against attacks, so a
loaded plan is verified as well.

A plan is written in the lowest version that can express it: 1 if all tiles are equal parts of the array and every
device holds one; 2 if tiles are partial sums or of unequal size, or a device holds none. Both versions are read. Their
fields are listed in docs/format.md.

The schema is checked by hand. Of 13 hostile texts msgspec's typed decoder accepts 8: a repeated field, 100,000 objects,
prices and limits of any size, ragged tables, positions out of range, a wrong digest. attrs validates only after
`json.loads`. Most checks of this module would remain beside either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from redistrib.errors import PlanFormError, PlanJsonError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import LARGEST, DistType
from redistrib.plans._json import (
    DEPTH,
    digest_of_form,
    list_of,
    object_of,
    parsed,
    placed_at,
    refuse,
    row_of,
    sealed,
    text_of,
)
from redistrib.plans._placements import placement_form, placement_from
from redistrib.plans.data import PlanData
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.steps import KINDS, Step
from redistrib.theory.placement import Placement

_Plan = TypeVar("_Plan", bound=PlanData)

FORMAT = "redistrib-plan"
VERSIONS = (1, 2)

_UNPLACED = 2**16  # devices that need not stand in the text: a few numbers must not ask for a table of many rows
_DEAREST = 1e300  # a float, so that it can be compared and shown

_PLAN_FIELDS = (
    "format", "version", "dtype", "source", "target", "algorithm", "cost_model", "cost", "unit", "memory_limit",
    "placements", "steps", "digest",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- writing


def to_json(plan: PlanData) -> str:
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

    version = _least_version(plan)
    steps = [_step_form(step, place, version) for step in plan.steps]
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
        "placements": [placement_form(placement) for placement in placements],
        "steps": steps,
    }
    if version > 1:
        form |= {"accumulate": plan.accumulate, "order": plan.order}
    if plan.leaves_devices_out:
        form["traffic"] = _traffic_form(plan)
    return sealed(form)


def _traffic_form(plan: PlanData) -> dict[str, Any]:
    """The traffic of a plan, written down so that readers need not work it out from the steps."""
    return {"received": list(plan.received), "sent": list(plan.sent), "crossing": plan.crossing}


def _least_version(plan: PlanData) -> int:
    later = plan.accumulate is not None or plan.order != "any" or plan.leaves_devices_out
    later |= any(end.partial or end.uneven for end in (plan.source, plan.target))
    later |= any(step.version > 1 for step in plan.steps)
    placements = (placement for step in plan.steps for placement in (step.before, step.after))
    later |= any(placed.summands > 1 or placed.cuts or placed.nowhere.any() for placed in placements)
    return 2 if later else 1


def _side_form(dist_type: DistType, mesh: Mesh) -> dict[str, Any]:
    axes = [[axis.name, axis.size] for axis in mesh.axes]
    return {"type": str(dist_type), "mesh": {"axes": axes, "devices": list(mesh.devices)}}


def _step_form(step: Step, place: Callable[[Placement], int], version: int) -> dict[str, Any]:
    form: dict[str, Any] = {"kind": step.kind, "before": place(step.before), "after": place(step.after)}
    return form | {field.key(version): field.form(getattr(step, field.name)) for field in step.fields}


# ---------------------------------------------------------------------------------------------- reading


def from_json(make: type[_Plan], text: str, verified: Callable[[_Plan], _Plan] | None = None) -> _Plan:
    """Read a plan.

    Args:
        make: the class of the plan.
        text: the result of `to_json`.
        verified: raises unless the plan is correct; only the traffic of a correct plan is compared with the text's.

    Raises:
        PlanJsonError: if it is not JSON, is of another version, does not match its digest, or if a field is missing,
            unknown or has a value it cannot have.
    """
    try:
        form = _unsealed(text)
        plan = _plan(make, form)
    except RecursionError:
        raise PlanJsonError(
            f"the text is not a plan: it is nested too deep to be read, where a plan is {DEPTH} deep"
        ) from None
    if verified is None:
        return plan
    plan = verified(plan)
    if plan.leaves_devices_out and form["traffic"] != _traffic_form(plan):
        refuse("traffic", "is not what the steps move; leave it to to_json")
    return plan


def _unsealed(text: str) -> dict[str, Any]:
    """The form of a plan, with its digest checked."""
    form = object_of(parsed(text), "the plan", None)
    if form.get("format") != FORMAT:
        refuse("format", f"is {shown(form.get('format'))}, a plan has {FORMAT!r}")
    version = form.get("version")
    if type(version) is not int or version not in VERSIONS:
        raise PlanJsonError(
            f"the plan is of version {shown(version)}, this release reads versions "
            f"{' and '.join(map(str, VERSIONS))}; write it again with this release",
            "version",
        )
    if version > 1 and "parts" in form:
        raise PlanJsonError(
            f"the plan travels in {shown(form['parts'])} parts that overlap, as earlier versions wrote it; this "
            "release carries plans out whole: make the plan again",
            "parts",
        )
    fields: tuple[str, ...] = _PLAN_FIELDS
    if version > 1:
        fields = (*fields, "accumulate", "order")
        fields = (*fields, "traffic") if "traffic" in form else fields
    object_of(form, "the plan", fields, version)
    contents = {name: value for name, value in form.items() if name != "digest"}
    digest = digest_of_form(contents)
    if form["digest"] != digest:
        raise PlanJsonError(
            f"the plan's digest is {shown(form['digest'])}, but its contents have {digest!r}; "
            "it was changed after it was written: make the plan again",
            "digest",
        )
    return form


def _plan(make: type[_Plan], form: dict[str, Any]) -> _Plan:
    version = form["version"]
    source, source_mesh = _side(form["source"], "source", version)
    target, target_mesh = _side(form["target"], "target", version)
    placements = [
        placement_from(entry, f"placements[{k}]", source.global_shape, version)
        for k, entry in enumerate(list_of(form["placements"], "placements"))
    ]
    steps = [
        _step(entry, f"steps[{k}]", placements, version) for k, entry in enumerate(list_of(form["steps"], "steps"))
    ]
    cost = form["cost"]
    if type(cost) not in (int, float) or not 0 <= cost <= _DEAREST:
        refuse("cost", f"is {shown(cost)}, which is not a cost from 0 to {_DEAREST}")
    if form["unit"] not in ("elements", "seconds"):
        refuse("unit", f"is {shown(form['unit'])}, a cost is in 'elements' or 'seconds'")
    limit = form["memory_limit"]
    if limit is not None and (type(limit) is not int or not 1 <= limit <= LARGEST):
        refuse("memory_limit", f"is {shown(limit)}, a limit is a number of bytes from 1 to {LARGEST} or null")
    dtype = text_of(form["dtype"], "dtype")
    accumulate, order = form.get("accumulate"), form.get("order", "any")
    if accumulate is not None:
        placed_at("accumulate", lambda: itemsize_of(text_of(accumulate, "accumulate")))
    if order not in ("any", "fixed"):
        refuse("order", f"is {shown(order)}, partial sums are added in 'any' order or in a 'fixed' one")
    plan = placed_at(
        "the plan",
        lambda: make(
            source=source,
            source_mesh=source_mesh,
            target=target,
            target_mesh=target_mesh,
            dtype=dtype,
            itemsize=itemsize_of(dtype),
            steps=tuple(steps),
            algorithm=text_of(form["algorithm"], "algorithm"),
            cost_model=text_of(form["cost_model"], "cost_model"),
            cost=cost,
            unit=form["unit"],
            memory_limit=limit,
            accumulate=accumulate,
            order=order,
        ),
    )
    _check_devices(plan, form, max((placement.devices for placement in placements), default=0))
    return plan


def _check_devices(plan: PlanData, form: dict[str, Any], placed: int) -> None:
    """Refuse a number of devices that no placement has; `placed` are the most devices of a placement. Version 2 lists
    devices that hold nothing, and the messages."""
    if plan.devices > max(placed, plan.source_mesh.size, plan.target_mesh.size, _UNPLACED):
        refuse("mesh.devices", f"has the number {plan.devices - 1:,}, and no placement says what so many devices hold")
    if form["version"] < 2:
        if plan.leaves_devices_out:
            refuse("target.mesh", "is not over the devices of source.mesh, which needs version 2")
    elif ("traffic" in form) != plan.leaves_devices_out:
        refuse("traffic", "stands in a plan iff some device holds nothing at one of its ends")


def _side(value: Any, where: str, version: int) -> tuple[DistType, Mesh]:
    side = object_of(value, where, ("type", "mesh"), version)
    mesh_form = object_of(side["mesh"], f"{where}.mesh", ("axes", "devices"), version)
    axes = []
    for k, entry in enumerate(list_of(mesh_form["axes"], f"{where}.mesh.axes")):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[1]) is not int:
            refuse(f"{where}.mesh.axes[{k}]", f"is {shown(entry)}, an axis is a name and a size")
        axes.append(entry)
    devices = tuple(row_of(mesh_form["devices"], f"{where}.mesh.devices"))
    if not devices:
        refuse(f"{where}.mesh.devices", "is empty; a mesh names its devices, in their order")
    mesh = placed_at(f"{where}.mesh", lambda: Mesh(tuple(Axis(name, size) for name, size in axes), devices))
    dist_type = placed_at(f"{where}.type", lambda: DistType.parse(text_of(side["type"], f"{where}.type")))
    placed_at(f"{where}.type", lambda: dist_type.check(mesh))
    if version < 2 and (dist_type.partial or dist_type.uneven):
        subject = "partial sums" if dist_type.partial else "tiles of unequal size"
        refuse(f"{where}.type", f"is {shown(side['type'])}, and {subject} need version 2")
    return dist_type, mesh


def _step(value: Any, where: str, placements: list[Placement], version: int) -> Step:
    entry = object_of(value, where, None)
    kind, kinds = entry.get("kind"), [name for name, each in KINDS.items() if each.version <= version]
    if not isinstance(kind, str) or kind not in kinds:
        refuse(f"{where}.kind", f"is {shown(kind)}, a step is one of {', '.join(kinds)}")
    fields = KINDS[kind].fields
    object_of(entry, where, ("kind", "before", "after", *(field.key(version) for field in fields)), version)
    before = _reference(entry["before"], f"{where}.before", placements)
    after = _reference(entry["after"], f"{where}.after", placements)
    values = {
        field.name: field.read(entry[field.key(version)], f"{where}.{field.key(version)}", len(before.shape))
        for field in fields
    }
    return placed_at(where, lambda: KINDS[kind](before, after, **values))


def _reference(value: Any, where: str, placements: list[Placement]) -> Placement:
    if type(value) is not int or not 0 <= value < len(placements):
        refuse(where, f"is {shown(value)}, which is not a position in the list of {len(placements)} placements")
    return placements[value]
