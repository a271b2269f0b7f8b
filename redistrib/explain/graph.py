"""The weak graph of a plan's problem (Section 5.2) as a networkx graph, and a picture of it."""

from __future__ import annotations

import math
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redistrib.arith import divisors
from redistrib.cost.presets import MachineLike, cost_model
from redistrib.errors import PictureError
from redistrib.explain.tiles import canvas
from redistrib.extras import need
from redistrib.lang.types import require_even
from redistrib.plans.plan import Plan
from redistrib.plans.table import step_name
from redistrib.report import seconds_text
from redistrib.theory.topology import Topology
from redistrib.theory.weak import EdgeKind, Grid, WeakSpace, edges

if TYPE_CHECKING:
    import networkx

_KINDS: tuple[EdgeKind, ...] = ("dynslice", "alltoall", "allgather")
_MOST_NODES = 1 << 12
_MOST_DRAWN = 120  # nodes; the edges of more nodes hide each other
_COLOURS = {"dynslice": "tab:green", "alltoall": "tab:blue", "allgather": "tab:orange"}


def weak_graph(
    plan: Plan, machine: MachineLike | None = None, topology: Topology | None = None
) -> networkx.DiGraph[Grid]:
    """All weak types whose tiles fit the plan's bound, and all weak collectives between them.

    A node is a grid: the number of tiles along each dimension. Its attribute `tile` is the size of a tile in elements.
    An edge has `kind` ("dynslice", "alltoall" or "allgather"), `factor`, `dim` and `to` as in `theory.weak.WeakEdge`,
    and its `price`. The graph's attribute `path` is the list of grids of the plan; a single exchange may take several
    edges.

    Args:
        plan: a plan without partial sums whose tiles have one size and are on all devices.
        machine: see `redistrib.synthesize`; it prices the edges. By default the cost model that chose the plan.
        topology: the topology for which the plan was made.

    Raises:
        ChoiceError: the plan was made with a CostModel that has no known name, and `machine` is None.
        PictureError: the graph has too many nodes, or a device holds no tile at an end of the plan.
        PartialTypeError: tiles of the plan are partial sums.
        UnevenTypeError: tiles of the plan are of unequal size or padded.
        MissingPackageError: networkx is not installed.

    >>> from redistrib import synthesize
    >>> plan = synthesize("[2{x}4, 4]", "[4, 2{x}4]", {"x": 2}, machine="exact")
    >>> graph = weak_graph(plan)
    >>> sorted(graph), graph.graph["path"]
    ([(1, 2), (2, 1)], [(2, 1), (1, 2)])
    >>> graph.edges[(2, 1), (1, 2)]["kind"], graph.edges[(2, 1), (1, 2)]["price"]
    ('alltoall', 8)
    """
    plan.require_whole("the weak graph")
    require_even("the weak graph", plan.source, plan.target)
    if plan.leaves_devices_out:
        raise PictureError("a weak graph is of the types on all devices, and some hold nothing at an end of this plan")
    need("networkx")
    import networkx as nx  # imported here because it is slow to import and rarely used

    chosen = cost_model(plan.cost_model if machine is None else machine)
    space = WeakSpace(plan.shape, plan.devices, max(plan.before.tile_size, plan.after.tile_size))
    prices = chosen.prices(plan.itemsize, chosen.topology(plan.source_mesh, topology))
    path = [plan.before.grid, *(step.after.grid for step in plan.steps)]
    graph: networkx.DiGraph[Grid] = nx.DiGraph(path=path)
    for grid in _nodes(space):
        graph.add_node(grid, tile=space.local_size(grid))
        for edge in edges(space, grid, _KINDS):
            attributes = {name: getattr(edge, name) for name in ("kind", "factor", "dim", "to")}
            graph.add_edge(grid, edge.target, price=prices.edge(edge, space), **attributes)
    return graph


def _nodes(space: WeakSpace) -> list[Grid]:
    if not all(space.shape):
        raise PictureError(f"a weak graph is of arrays with elements, this one has the shape {space.shape}")
    counts = [divisors(math.gcd(size, space.devices)) for size in space.shape]
    most = math.prod(map(len, counts))
    if most > _MOST_NODES:
        raise PictureError(
            f"the weak graph has up to {most:,} nodes, more than {_MOST_NODES:,}; take fewer devices or dimensions"
        )
    return [grid for grid in product(*counts) if space.is_node(grid)]


def draw_graph(plan: Plan, path: str | Path) -> Path:
    """Draw the weak graph into a file, with the plan's path in colour, and return the path of the file.

    Tiles shrink from left to right: slices lead to the right, all-gathers to the left, and all-to-alls up or down.

    Raises:
        PictureError: the graph has too many nodes, or matplotlib does not write files with this ending.
        ChoiceError, PartialTypeError, UnevenTypeError: see `weak_graph`.
        MissingPackageError: networkx or matplotlib is not installed.
        OSError: the file cannot be written.

    >>> import tempfile, redistrib as rd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(draw_graph(rd.synthesize("[2{x}4]", "[4]", "x=2"), f"{folder}/graph.png").name)
    graph.png
    """
    need("networkx")
    import networkx as nx

    graph = weak_graph(plan)
    if len(graph) > _MOST_DRAWN:
        raise PictureError(f"a picture shows a weak graph of at most {_MOST_DRAWN} nodes, this one has {len(graph)}")
    layers: dict[int, list[Grid]] = {}
    for grid in sorted(graph):
        layers.setdefault(math.prod(grid), []).append(grid)
    tallest = max(map(len, layers.values()))
    steps = _steps(plan)
    figure = canvas(path, (max(6.4, 2.4 + 1.9 * len(layers)), 2.4 + 0.9 * tallest + 0.2 * len(steps)))
    panel: Any = figure.subplots()
    from matplotlib.transforms import offset_copy  # `canvas` says so if it is not there

    position = {  # nodes of one column stand left and right in turn, so that edges along it pass beside them
        grid: (column + (0.3 * (row % 2) - 0.15 if len(grids) > 2 else 0.0), (len(grids) - 1) / 2 - row)
        for column, (_, grids) in enumerate(sorted(layers.items()))
        for row, grid in enumerate(grids)
    }
    ends = {graph.graph["path"][0]: "gold", graph.graph["path"][-1]: "tomato"}
    nx.draw_networkx_nodes(
        graph,
        position,
        ax=panel,
        node_size=900,
        node_color=[ends.get(grid, "white") for grid in graph],
        edgecolors=["black" if grid in graph.graph["path"] else "0.7" for grid in graph],
    )
    nx.draw_networkx_labels(graph, position, {grid: "x".join(map(str, grid)) for grid in graph}, ax=panel, font_size=8)
    bend = "arc3,rad=0.18"
    curved: dict[str, Any] = {"ax": panel, "node_size": 900, "connectionstyle": bend, "arrowsize": 9}
    nx.draw_networkx_edges(graph, position, edge_color="0.88", width=0.6, **curved)
    at_node: dict[Grid, list[str]] = {}
    for number, (step, edge) in enumerate(zip(plan.steps, pairwise(graph.graph["path"]), strict=True), 1):
        if edge[0] == edge[1]:  # a permute moves tiles and keeps the grid
            at_node.setdefault(edge[0], []).append(str(number))
            continue
        colour, arrow = _COLOURS.get(step.kind, "tab:purple"), nx.DiGraph([edge])
        nx.draw_networkx_edges(arrow, position, edge_color=colour, width=2.4, **curved)
        nx.draw_networkx_edge_labels(
            arrow, position, {edge: str(number)}, ax=panel, font_size=10, font_weight="bold", font_color=colour,
            rotate=False, connectionstyle=bend,
        )  # fmt: skip
    for grid, numbers in at_node.items():
        # From the node's right side round to its top.
        right, top = (offset_copy(panel.transData, figure, *by, units="points") for by in ((16, 3), (3, 16)))
        panel.annotate(
            "", position[grid], position[grid], xycoords=top, textcoords=right, zorder=3,
            arrowprops={"arrowstyle": "-|>", "color": "tab:red", "lw": 2.4, "shrinkA": 0, "shrinkB": 0,
                        "connectionstyle": "arc3,rad=2.2"},
        )  # fmt: skip
        panel.annotate(
            ", ".join(numbers), position[grid], (34, 26), textcoords="offset points", color="tab:red", weight="bold"
        )
    title = f"{plan.source} -> {plan.target}\ntiles per dimension; yellow: source, red: target"
    panel.set_title(title, fontsize=9)
    figure.text(0.02, 0.02, "\n".join(steps), fontsize=8.5, family="monospace", va="bottom")
    panel.margins(0.12)
    panel.set_axis_off()
    figure.tight_layout(rect=(0, 0.05 + 0.2 * len(steps) / figure.get_figheight(), 1, 1))
    figure.savefig(path, dpi=150)
    return Path(path)


def _steps(plan: Plan) -> list[str]:
    """The steps by number, each with its price: in microseconds, or in elements."""
    costs = plan.step_costs or [None] * len(plan.steps)
    lines = []
    for number, (step, cost) in enumerate(zip(plan.steps, costs, strict=True), 1):
        text = f"{number} {step_name(step)}"
        if cost is not None:
            text += f", {seconds_text(cost)}" if plan.unit == "seconds" else f", {cost:,.0f} elements"
        lines.append(text)
    return lines
