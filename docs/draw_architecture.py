"""Draw docs/architecture.png, docs/moving.png and docs/programs.png: rooms by layer, with arrows to what they import.

    python docs/draw_architecture.py

The first has the rooms of the package, in the layers of the first import contract in pyproject.toml. The second has
the rooms that move arrays, those inside `backends` apart, and the third those inside `programs`, each above all that
it imports. Arrows are those of the
import graph that no longer path implies. A picture carries its whole graph as text: a test holds it against the code.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

import grimp
import matplotlib
import networkx as nx
import numpy as np
from scipy.optimize import isotonic_regression

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).with_name("architecture.png")
MOVING = Path(__file__).with_name("moving.png")
PROGRAMS = Path(__file__).with_name("programs.png")
MOVERS = ("weights", "dtensor", "resharding", "launches", "synthesis", "cost", "plans", "theory")
BACKENDS = ("jax", "mpi", "torch", "ranks", "stages", "single_steps", "digests", "refusals")
# Inches: between layers, of a box, between boxes, of a letter, and of the place of an arrow that passes a layer.
LAYER, BOX, GAP, LETTER, PASSAGE = 0.52, 0.26, 0.16, 0.085, 0.02
SWEEPS = 60  # over all layers: places follow their neighbours, and in the first half may change their order

Graph: TypeAlias = dict[str, list[str]]
Place: TypeAlias = tuple[str, int]  # of a room, or of the arrows to it, in a layer


def layers(container: str = "redistrib") -> list[list[str]]:
    """The rooms of each layer of a package, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = next(each for each in contracts if each.get("containers") == [container])["layers"]
    return [[room.strip() for room in row.replace(":", "|").split("|")] for row in rows]


def imports(rooms: Sequence[str]) -> Graph:
    """For every room, by its path in the package, the rooms that it imports, both in alphabetical order."""
    graph = grimp.build_graph("redistrib")
    found: dict[str, set[str]] = {room: set() for room in rooms}

    def room_of(module: str) -> str:
        parts = module.split(".")[1:]
        return next((room for n in (2, 1) if (room := ".".join(parts[:n])) in found), "")

    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            here, there = room_of(module), room_of(other)
            if here and there and here != there:
                found[here].add(there)
    return {room: sorted(found[room]) for room in sorted(found)}


def of_the_package() -> tuple[list[list[str]], Graph]:
    """The rooms of the package by layer, and their imports."""
    rows = layers()
    return rows, imports([room for row in rows for room in row])


def of_programs() -> tuple[list[list[str]], Graph]:
    """The rooms inside `programs` by layer, and their imports."""
    rows = [[f"programs.{room}" for room in row] for row in layers("redistrib.programs")]
    return rows, imports([room for row in rows for room in row])


def of_moving() -> tuple[list[list[str]], Graph]:
    """The rooms that move arrays, each above all that it imports, and their imports."""
    edges = imports(
        [*(room for row in layers() for room in row if room in MOVERS), *(f"backends.{k}" for k in BACKENDS)]
    )
    return [sorted(row) for row in nx.topological_generations(nx.DiGraph(edges))], edges


class Drawing(NamedTuple):
    """Where rooms and arrows lie, in inches, y upwards.

    Attributes:
        boxes: left, bottom, width and height of the box of each room.
        arrows: the corners of each arrow, by importer and imported; arrows to one room join on their way.
    """

    boxes: dict[str, tuple[float, float, float, float]]
    arrows: dict[tuple[str, str], list[tuple[float, float]]]


def placed(rows: list[list[str]], edges: Graph) -> Drawing:
    """Rooms by layer, as Sugiyama draws graphs: an arrow has a place of its own in every layer that it passes."""
    level = {room: number for number, row in enumerate(rows) for room in row}
    direct = nx.transitive_reduction(nx.DiGraph([(room, other) for room in edges for other in edges[room]])).edges
    passing = {(other, at) for room, other in direct for at in range(level[room] + 1, level[other])}

    def route(room: str, other: str) -> list[Place]:
        return [(room, level[room]), *[(other, at) for at in range(level[room] + 1, level[other] + 1)]]

    steps = sorted({step for edge in direct for step in pairwise(route(*edge))})
    near: dict[Place, list[Place]] = defaultdict(list)
    for one, other in steps:
        near[one].append(other)
        near[other].append(one)
    widths = {(room, at): LETTER * len(room) + 0.25 for room, at in level.items()} | dict.fromkeys(passing, PASSAGE)
    order = [sorted(place for place in widths if place[1] == at) for at in range(len(rows))]
    middle = {place: float(number) for row in order for number, place in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in order if sweep % 2 else order[::-1]:
            wanted = {
                place: float(np.mean([middle[other] for other in near[place]] or [middle[place]])) for place in row
            }
            if sweep < SWEEPS // 2:
                row.sort(key=lambda place: (wanted[place], place))
            starts = np.cumsum([0.0, *[(widths[a] + widths[b]) / 2 + GAP for a, b in pairwise(row)]])
            shifts = isotonic_regression([wanted[place] - start for place, start in zip(row, starts, strict=True)]).x
            middle |= zip(row, (starts + shifts).tolist(), strict=True)
    left = min(middle[place] - widths[place] / 2 for place in middle)
    height = LAYER * (len(rows) - 1)
    boxes = {
        room: (middle[room, at] - widths[room, at] / 2 - left, height - LAYER * at - BOX / 2, widths[room, at], BOX)
        for room, at in level.items()
    }
    arrows = {}
    for room, other in direct:
        corners: list[tuple[float, float]] = []
        for place in route(room, other):  # straight down beside boxes, and slanted between layers
            y = height - LAYER * place[1]
            ends = [y + BOX / 2, y - BOX / 2]
            used = ends[1:] if place[0] == room else ends[:1] if place == (other, level[other]) else ends
            corners += [(middle[place] - left, end) for end in used]
        arrows[room, other] = corners
    return Drawing(boxes, arrows)


def draw(path: Path, rows: list[list[str]], edges: Graph) -> None:
    drawing = placed(rows, edges)
    width = max(x + w for x, _, w, _ in drawing.boxes.values())
    width = max(width, *[x for corners in drawing.arrows.values() for x, _ in corners])
    height = max(y + h for _, y, _, h in drawing.boxes.values()) + BOX / 2
    figure = plt.figure(figsize=(width + 0.2, height + 0.2))
    axes = figure.add_axes((0, 0, 1, 1))
    for corners in drawing.arrows.values():
        axes.plot(*zip(*corners, strict=True), color="#9a9a9a", linewidth=0.9, zorder=1)
        head = {"arrowstyle": "-|>", "color": "#8a8a8a", "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", corners[-1], corners[-2], arrowprops=head, zorder=1)
    for room, (x, y, w, h) in drawing.boxes.items():
        axes.add_patch(Rectangle((x, y), w, h, facecolor="#dce6f2", edgecolor="#4a6a8a", zorder=3))
        axes.text(x + w / 2, y + h / 2 - 0.01, room, ha="center", va="center", fontsize=10, zorder=4)
    axes.set(xlim=(-0.1, width + 0.1), ylim=(-BOX / 2 - 0.1, height - BOX / 2 + 0.1), aspect="equal")
    axes.axis("off")
    figure.savefig(path, dpi=110, metadata={"Description": json.dumps(edges, sort_keys=True)})
    plt.close(figure)


if __name__ == "__main__":
    for path, graph in {PICTURE: of_the_package, MOVING: of_moving, PROGRAMS: of_programs}.items():
        draw(path, *graph())
        print(f"wrote {path.relative_to(ROOT)}")
