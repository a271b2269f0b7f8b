"""Draw docs/architecture.png: the rooms of the package by layer, with an arrow from each to what it imports.

    python docs/draw_architecture.py

Rooms and layers are those of the first import contract in pyproject.toml; arrows are those of the import graph that no
longer path implies. The picture carries the whole graph as text, so that a test can hold it against the code.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import grimp
import matplotlib
import networkx as nx

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).with_name("architecture.png")
WIDTH, HEIGHT = 11.0, 10.0  # inches


def layers() -> list[list[str]]:
    """The rooms of each layer, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = next(contract for contract in contracts if contract["type"] == "layers")["layers"]
    return [[room.strip() for room in row.replace(":", "|").split("|")] for row in rows]


def imports() -> dict[str, list[str]]:
    """For every room the rooms that it imports, both in alphabetical order."""
    graph = grimp.build_graph("redistrib")
    found: dict[str, set[str]] = {room: set() for row in layers() for room in row}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            here, there = (name.split(".")[1] if "." in name else "" for name in (module, other))
            if here in found and there in found and here != there:
                found[here].add(there)
    return {room: sorted(found[room]) for room in sorted(found)}


def draw(path: Path) -> None:
    rows, edges = layers(), imports()
    figure, axes = plt.subplots(figsize=(WIDTH, HEIGHT))
    place = {}
    patches = {}
    for y, row in enumerate(rows):
        for x, room in enumerate(row):
            place[room] = ((x + 0.5) / len(row) + (0.03 if y % 2 else -0.03), len(rows) - y)
            box = {"boxstyle": "round,pad=0.35", "facecolor": "#dce6f2", "edgecolor": "#4a6a8a"}
            text = axes.text(*place[room], room, ha="center", va="center", fontsize=10, bbox=box, zorder=3)
            patches[room] = text.get_bbox_patch()
    figure.canvas.draw()  # arrows end at the boxes, whose sizes are known once they are drawn
    direct = nx.transitive_reduction(nx.DiGraph([(room, other) for room in edges for other in edges[room]]))
    for room, other in direct.edges:
        bend = 0.0 if abs(place[room][1] - place[other][1]) <= 1 else 0.12
        arrow = FancyArrowPatch(
            place[room], place[other], arrowstyle="-|>", mutation_scale=9, color="#8a8a8a", linewidth=0.8,
            patchA=patches[room], patchB=patches[other], shrinkA=1, shrinkB=1,
            connectionstyle=f"arc3,rad={bend}", zorder=1,
        )  # fmt: skip
        axes.add_patch(arrow)
    axes.set(xlim=(-0.05, 1.05), ylim=(0.3, len(rows) + 0.7))
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Description": json.dumps(edges, sort_keys=True)})
    plt.close(figure)


if __name__ == "__main__":
    draw(PICTURE)
    print(f"wrote {PICTURE.relative_to(ROOT)}")
