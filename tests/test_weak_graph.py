"""The weak graph as networkx knows it: its shortest paths are an oracle of the search, and its picture shows a plan."""

from __future__ import annotations

import math
import re
from html import unescape
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import redistrib as rd
from redistrib.cli import main
from redistrib.cost.exact import ExactCost
from redistrib.cost.model import CostModel
from redistrib.cost.paper import PaperCost
from redistrib.cost.presets import PRESETS
from redistrib.errors import ChoiceError, PictureError
from redistrib.explain import draw_graph, weak_graph
from redistrib.synthesis.paper.search import shortest_paths
from redistrib.theory.topology import Topology
from redistrib.theory.weak import WeakSpace
from tests.messages import exactly

SWAP = ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6})
PROBLEMS = [
    SWAP,
    ("[2{x}8, 8, 8]", "[8, 8, 1{y,z}8]", {"x": 4, "y": 2, "z": 4}),
    ("[12, 12]", "[1{x}12, 12]", {"x": 12}),
    ("[1{x}12, 12]", "[12, 12]", {"x": 12}),
    ("[6{x}12, 4{y}12, 12]", "[12, 6{x}12, 4{y}12]", {"x": 2, "y": 3, "z": 2}),
]


@pytest.mark.parametrize("model", [PaperCost(), ExactCost(), PRESETS["tpu"]], ids=lambda model: model.name)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem[0])
def test_the_search_finds_the_shortest_path_of_networkx(
    problem: tuple[str, str, dict[str, int]], model: CostModel
) -> None:
    plan = rd.synthesize(*problem, machine=model)
    graph = weak_graph(plan)
    source, target = plan.before.grid, plan.after.grid
    shortest = nx.shortest_path_length(graph, source, target, weight="price")
    space = WeakSpace(plan.shape, plan.devices, max(plan.before.tile_size, plan.after.tile_size))
    prices = model.prices(plan.itemsize, Topology(plan.devices))
    (found,) = islice(shortest_paths(space, source, target, prices), 1)
    assert found.cost == pytest.approx(shortest, rel=1e-12)


def test_an_edge_says_what_it_does() -> None:
    graph = weak_graph(rd.synthesize(*SWAP, machine="exact"))
    assert graph.graph["path"] == [(4, 6), (6, 4)]
    assert graph.nodes[4, 6] == {"tile": 6}
    assert graph.edges[(4, 6), (12, 2)] == {"kind": "alltoall", "factor": 3, "dim": 1, "to": 0, "price": 24 * 4}
    assert not any(data["tile"] > 6 for _, data in graph.nodes(data=True))
    sliced = weak_graph(rd.synthesize("[2{x}8, 8]", "[8, 8]", {"x": 4}))
    assert {data["kind"] for *_, data in sliced.edges(data=True)} == {"dynslice", "alltoall", "allgather"}
    assert (2, 2) in sliced.successors((1, 2))


def test_a_model_of_ones_own_must_be_given() -> None:
    plan = rd.synthesize(*SWAP, machine=PaperCost(name="mine"))
    with pytest.raises(ChoiceError, match=r"^no machine 'mine'; give a CostModel, the path of a profile, or one of"):
        weak_graph(plan)
    assert len(weak_graph(plan, PaperCost())) == len(weak_graph(plan, "exact"))


def test_a_permute_has_an_arrow_from_its_node_to_itself(tmp_path: Path) -> None:
    """It goes from the right side of the node round to its top; in SVG, y grows downwards."""
    plan = rd.synthesize(*SWAP)
    assert [step.kind for step in plan.steps] == ["alltoall", "alltoall", "allpermute"]
    drawn = draw_graph(plan, tmp_path / "graph.svg").read_text()
    curves = re.findall(r'<path d="M ([\d. ]+)\nQ ([\d. ]+)\n" style="fill: none; stroke: #d62728', drawn)
    assert len(curves) == 1
    x, y = map(float, curves[0][0].split())
    end_x, end_y = list(map(float, curves[0][1].split()))[-2:]
    assert 5 < x - end_x < 15
    assert 5 < y - end_y < 15


def test_graphs_that_nobody_could_look_at_are_refused(tmp_path: Path) -> None:
    large = rd.synthesize("[2{x}128, 128, 128, 128, 128]", "[128, 2{x}128, 128, 128, 128]", {"x": 64})
    with pytest.raises(
        PictureError,
        match=exactly("the weak graph has up to 16,807 nodes, more than 4,096; take fewer devices or dimensions"),
    ):
        weak_graph(large)
    cloud = rd.synthesize("[8{x}512, 512, 512]", "[512, 8{x}512, 512]", {"x": 64, "y": 8})
    with pytest.raises(
        PictureError, match=exactly("a picture shows a weak graph of at most 120 nodes, this one has 164")
    ):
        draw_graph(cloud, tmp_path / "cloud.png")
    with pytest.raises(
        PictureError, match=exactly("a weak graph is of arrays with elements, this one has the shape (0, 4)")
    ):
        weak_graph(rd.synthesize("[0{x}0, 4]", "[0, 2{x}4]", {"x": 2}))
    with pytest.raises(PictureError, match="end its name in one of"):
        draw_graph(rd.synthesize(*SWAP), tmp_path / "graph.text")


def test_a_graph_as_large_as_may_be_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = rd.synthesize("[2{x}8, 8]", "[8, 8]", {"x": 4})  # each dimension in 1, 2 or 4
    monkeypatch.setattr("redistrib.explain.graph._MOST_NODES", 9)
    assert len(weak_graph(plan)) == 6
    monkeypatch.setattr("redistrib.explain.graph._MOST_NODES", 8)
    with pytest.raises(
        PictureError, match=exactly("the weak graph has up to 9 nodes, more than 8; take fewer devices or dimensions")
    ):
        weak_graph(plan)


GATHER = ("[2{x}8, 8]", "[8, 8]", {"x": 4})


@pytest.mark.parametrize(("problem", "columns"), [(GATHER, [1, 2, 3]), (SWAP, [4])], ids=["gather", "swap"])
def test_nodes_stand_in_columns_by_their_tiles_centred_and_left_and_right_in_turn(
    problem: tuple[str, str, dict[str, int]], columns: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a column of three or more, an edge from a node to the next but one passes beside the node between them."""
    drawn: list[dict[tuple[int, ...], tuple[float, float]]] = []
    own = nx.draw_networkx_nodes

    def nodes(graph: nx.Graph, place: dict[tuple[int, ...], tuple[float, float]], **rest: object) -> object:
        assert set(place) == set(graph)
        drawn.append(place)
        return own(graph, place, **rest)

    monkeypatch.setattr(nx, "draw_networkx_nodes", nodes)
    draw_graph(rd.synthesize(*problem), tmp_path / "graph.png")
    (place,) = drawn
    tiles = sorted({math.prod(grid) for grid in place})
    by_tiles = [[place[grid] for grid in sorted(place) if math.prod(grid) == count] for count in tiles]
    assert [len(nodes) for nodes in by_tiles] == columns
    for column, nodes in enumerate(by_tiles):
        heights = [y for _, y in nodes]
        assert sum(heights) == 0 and all(upper - lower == 1 for upper, lower in pairwise(heights))
        sides = [-0.15 if number % 2 == 0 else 0.15 for number in range(len(nodes))] if len(nodes) > 2 else [0, 0]
        assert [x - column for x, _ in nodes] == pytest.approx(sides[: len(nodes)])


@pytest.mark.parametrize(
    ("problem", "model", "steps", "arrows"),
    [
        (GATHER, "exact", ["1 allgather 0, 192 elements"], {((4, 1), (1, 1)): "1"}),
        (SWAP, "exact", ["1 exchange 1->0, 124 elements"], {((4, 6), (6, 4)): "1"}),
        (
            SWAP,
            "tpu",
            ["1 alltoall 0->1, 6 us", "2 alltoall 1->0, 7 us", "3 allpermute, 5 us"],
            {((4, 6), (2, 12)): "1", ((2, 12), (6, 4)): "2"},
        ),
    ],
    ids=["gather", "exchange", "permute"],
)
def test_a_step_has_a_number_in_the_graph_and_a_price_below_it(
    problem: tuple[str, str, dict[str, int]],
    model: str,
    steps: list[str],
    arrows: dict[tuple[tuple[int, ...], tuple[int, ...]], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In elements over all devices, or in time. An exchange is no edge of the graph; a permute stays at its node."""
    labels: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
    own = nx.draw_networkx_edge_labels

    def edge_labels(graph: nx.Graph, place: object, numbers: dict[Any, str], **rest: object) -> object:
        assert set(numbers) == set(graph.edges) and not labels.keys() & numbers.keys()
        labels.update(numbers)
        return own(graph, place, numbers, **rest)

    monkeypatch.setattr(nx, "draw_networkx_edge_labels", edge_labels)
    drawn = draw_graph(rd.synthesize(*problem, machine=model), tmp_path / "graph.svg").read_text()
    texts = [unescape(text) for text in re.findall("<!-- (.*) -->", drawn)]
    assert texts[-len(steps) :] == steps
    assert sorted(text for text in texts if text.isdecimal()) == [str(k) for k in range(1, len(steps) + 1)]
    assert labels == arrows


def test_the_command_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graph.png"
    problem = [SWAP[0], SWAP[1], "--mesh", "x=4,y=6"]
    assert main(["explain", *problem, "--graph", "-o", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"drew {path}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["explain", *problem, "--graph"])
    assert "--graph draws a picture; say where with -o graph.png" in capsys.readouterr().err
