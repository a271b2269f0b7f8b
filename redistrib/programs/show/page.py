"""Content as HTML: a whole page with its script, and a short form for notebooks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from redistrib.programs.show.content import Cell, Content, Table

SHOWN_ROWS = 60  # of a table in a notebook
SHOWN_PANELS = 8  # of tiles in a notebook


def page(content: Content) -> str:
    """One file: styles, script and data inside, nothing loaded from anywhere."""
    data = json.dumps(asdict(content), separators=(",", ":"), ensure_ascii=False)
    for mark in ("<", "\u2028", "\u2029"):  # no text in the data may end the script
        data = data.replace(mark, f"\\u{ord(mark):04x}")
    style, script = ((files("redistrib.programs.show") / name).read_text("utf-8") for name in ("page.css", "page.js"))
    title = escape(content.title)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<style>{style}</style></head>\n<body><main id=app></main><div id=tip hidden></div>\n"
        f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script></body></html>\n'
    )


def notebook(content: Content) -> str:
    """A fragment for a notebook: text, tables that sort by a click, and the tiles of the first plan."""
    name = f"rd-{uuid.uuid4().hex[:8]}"
    parts = [f"<b>{escape(content.title)}</b>", *(f"<div>{escape(line)}</div>" for line in content.lines)]
    parts += [_table(table) for table in content.summary if table.rows]
    if content.plans and content.plans[0]["placements"]:
        parts.append(panels(content.plans[0]))
    parts += [_table(table) for table in content.tables if table.rows]
    return f'<div id="{name}" style="font-size:90%">{"".join(parts)}<script>{_SORT % name}</script></div>'


_APART = "padding:2px 14px 2px 0;white-space:nowrap;text-align:"  # where the page around has no style for tables

_SORT = """(() => { for (const head of document.querySelectorAll("#%s th")) head.onclick = () => {
const body = head.closest("table").tBodies[0], at = head.cellIndex, up = head.dataset.up !== "1";
head.dataset.up = up ? "1" : "0";
const key = row => row.cells[at].dataset.v ?? row.cells[at].textContent;
const order = (a, b) => isNaN(a) || isNaN(b) ? String(a).localeCompare(b) : a - b;
[...body.rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b))).forEach(row => body.append(row)); } })()"""


def _table(table: Table) -> str:
    columns = zip(*table.rows, strict=True)
    sides = ["right" if any(isinstance(cell, tuple) for cell in column) else "left" for column in columns]
    head = "".join(
        f'<th style="cursor:pointer;{_APART}{side}" title="sort">{escape(name)}</th>'
        for name, side in zip(table.columns, sides, strict=True)
    )
    rows = "".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in table.rows[:SHOWN_ROWS])
    more = len(table.rows) - SHOWN_ROWS
    rest = f"<div>and {more:,} more rows; redistrib.view(...) shows all</div>" if more > 0 else ""
    title = f'<caption style="text-align:left;padding-top:8px">{escape(table.title)}</caption>'
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"


def _cell(cell: Cell, side: str) -> str:
    text, key = (cell, "") if isinstance(cell, str) else (cell[0], f' data-v="{cell[1]}"')
    return f'<td style="{_APART}{side}"{key}>{escape(text)}</td>'


# ------------------------------------------------------------------------------------------------ tiles


def colour(device: int, devices: int) -> str:
    """The colour of a device: hues spread over all of them."""
    return f"hsl({360 * device / max(1, devices):.0f} 65% 72%)"


def panels(plan: dict[str, Any], size: int = 150) -> str:
    """The tiles before and after every step as a row of small SVG pictures."""
    names = ["source", *(f"after {step['name']}" for step in plan["steps"])]
    drawn = list(zip(names, plan["placements"], strict=True))
    if len(drawn) > SHOWN_PANELS:
        drawn = [*drawn[: SHOWN_PANELS - 1], drawn[-1]]
    cells = "".join(
        f'<div style="display:inline-block;margin:4px;text-align:center"><div>{escape(name)}</div>'
        f"{_panel(plan, tiles, size)}</div>"
        for name, tiles in drawn
    )
    return f"<div>{cells}</div>"


def _panel(plan: dict[str, Any], tiles: dict[str, Any], size: int) -> str:
    holders: dict[tuple[int, int, int, int], list[int]] = {}
    for device in tiles["holders"]:
        holders.setdefault(rectangle(plan, tiles["start"][device], tiles["size"][device], size), []).append(device)
    shapes = []
    for (x, y, width, height), devices in holders.items():
        shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour(devices[0], plan["devices"])}" '
            f'stroke="white"><title>devices {", ".join(map(str, devices))}</title></rect>'
        )
        text = labelled(devices)
        points = min(11.0, 1.6 * width / max(1, len(text)), 0.9 * height)
        if points >= 4:
            shapes.append(
                f'<text x="{x + width / 2:g}" y="{y + height / 2:g}" font-size="{points:.1f}" text-anchor="middle" '
                f'dominant-baseline="central" style="pointer-events:none">{text}</text>'
            )
    return f'<svg width="{size}" height="{size}" style="background:#eee">{"".join(shapes)}</svg>'


def labelled(devices: Sequence[int]) -> str:
    """The devices of a tile in short.

    >>> labelled([0, 4]), labelled(range(12))
    ('0,4', '0..11')
    """
    return ",".join(map(str, devices)) if len(devices) <= 3 else f"{devices[0]}..{devices[-1]}"


def rectangle(
    plan: dict[str, Any], start: Sequence[int], extent: Sequence[int], size: int
) -> tuple[int, int, int, int]:
    """Where a box is drawn, in pixels: left, top, width, height. An array of rank 1 lies across."""
    dims, shape = plan["dims"], plan["shape"]
    spans = [
        (round(start[dim] / shape[dim] * size), round((start[dim] + extent[dim]) / shape[dim] * size)) for dim in dims
    ]
    spans = [(0, size)] * (2 - len(spans)) + spans
    (top, bottom), (left, right) = spans
    return left, top, right - left, bottom - top
