"""Placements in the JSON form of a plan."""

from __future__ import annotations

from typing import Any

from redistrib.errors.base import shown
from redistrib.lang.types import LARGEST
from redistrib.plans._json import list_of, numbers_of, object_of, placed_at, refuse, row_of, table_of
from redistrib.theory.placement import Placement
from redistrib.theory.splits import Cuts

_SUMMAND_FIELDS = ("summand", "summands", "reduction")


def placement_form(placement: Placement) -> dict[str, Any]:
    """The JSON form of a placement."""
    grid: list[int | list[int]] = list(placement.grid)
    for k, points in enumerate(placement.cuts):
        if points is not None:
            grid[k] = list(points)
    form: dict[str, Any] = {"grid": grid, "index": placement.index.tolist()}
    if placement.summands > 1:
        values = placement.label.tolist(), placement.summands, placement.reduction
        form |= dict(zip(_SUMMAND_FIELDS, values, strict=True))
    return form


def placement_from(value: Any, where: str, shape: tuple[int, ...], version: int) -> Placement:
    """Read a placement of an array of global `shape`.

    Raises:
        PlanJsonError: naming the field that has a value it cannot have.
    """
    entry = object_of(value, where, None)
    partial = version > 1 and not entry.keys().isdisjoint(_SUMMAND_FIELDS)
    object_of(entry, where, ("grid", "index", *(_SUMMAND_FIELDS if partial else ())), version)
    grid, cuts = _grid(entry["grid"], f"{where}.grid", version)
    index = table_of(entry["index"], f"{where}.index", len(shape))
    if version < 2 and (index < 0).any():
        refuse(f"{where}.index", "has a negative number; that a device holds nothing needs version 2")
    if not partial:
        return placed_at(where, lambda: Placement(shape, grid, index, cuts=cuts))
    summand = numbers_of(entry["summand"], f"{where}.summand")
    count, reduction = entry["summands"], entry["reduction"]
    if type(count) is not int or count < 2:
        refuse(f"{where}.summands", f"is {shown(count)}, where an integer of at least 2 is expected")
    return placed_at(where, lambda: Placement(shape, grid, index, summand, count, reduction, cuts))


def _grid(value: Any, where: str, version: int) -> tuple[tuple[int, ...], Cuts]:
    """Tiles along each dimension, and their split points where the form has a list and not a number."""
    entries = list_of(value, where)
    cuts = [
        tuple(row_of(entry, f"{where}[{k}]")) if isinstance(entry, list) and version > 1 else None
        for k, entry in enumerate(entries)
    ]
    for k, points in enumerate(cuts):
        if points is not None and len(points) < 2:
            refuse(f"{where}[{k}]", f"is {shown(list(points))}, split points are two numbers at least")
    counts = [entry if points is None else len(points) - 1 for entry, points in zip(entries, cuts, strict=True)]
    grid = tuple(row_of(counts, where))
    if max((*grid, *(max(points) for points in cuts if points is not None)), default=0) > LARGEST:
        refuse(where, "has a number that does not fit 64 bits")
    return grid, tuple(cuts) if any(points is not None for points in cuts) else ()
