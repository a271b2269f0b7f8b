"""Problems and programs drawn at random, and their optimum by trying everything."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.live import moments
from redistrib.programs.ir.spec import nest
from redistrib.programs.run.prepared import prepare
from redistrib.programs.search.choices import ChoiceGraph, Node, Reader, ReshardEdge
from redistrib.programs.search.facts import Facts
from redistrib.programs.search.moves import Moves
from redistrib.programs.search.problem import SearchProblem, Weights
from redistrib.programs.time.constants import machine


def by_hand(choices: ChoiceGraph) -> float:
    """The least price of all choices, each priced as `ChoiceGraph.price` says."""
    return min(choices.price(choice) for choice in itertools.product(*(range(len(n.prices)) for n in choices.nodes)))


def by_chain(choices: ChoiceGraph) -> float:
    """The least price of a tree in which every value has one reader, from the leaves up."""
    best = [np.array(node.prices, dtype=float) for node in choices.nodes]
    for edge in sorted(choices.edges, key=lambda edge: -edge.readers[0].node):
        (reader,) = edge.readers
        table = [
            [edge.prices.get((s, t), 0.0 if s == t else np.inf) * edge.times for t in reader.layouts]
            for s in edge.layouts
        ]
        best[edge.node] += (np.array(table) + best[reader.node][None, :]).min(1)
    return float(best[0].min())


def choices(random: Random, tree: bool = False) -> ChoiceGraph:
    """Nodes 0, 1, ...; each value is made before it is read. In a tree every node but the first reads one value."""
    count = random.randint(3, 6)
    options = [random.randint(1, 4) for _ in range(count)]
    nodes = [Node(f"n{k}", tuple(float(random.randint(0, 9)) for _ in range(n))) for k, n in enumerate(options)]
    ends: list[tuple[int, list[int]]] = []
    if tree:
        ends = [(random.randrange(k), [k]) for k in range(1, count)]
    else:
        for maker in range(count - 1):
            later = range(maker + 1, count)
            ends.append((maker, random.sample(later, random.randint(1, min(3, len(later))))))
        ends.append((0, [0]))  # state, which is read where it is made
    edges = []
    for maker, readers in ends:
        layouts = 4
        sizes = [random.randint(1, 3) for _ in range(layouts)]
        local = {(s, t) for s in range(layouts) for t in range(layouts) if sizes[s] > sizes[t] and not tree}
        always = {0, *(t for _, t in local)}
        price = {
            (s, t): float(random.randint(1, 6)) for s in range(layouts) for t in range(layouts)
            if s != t and (t in always or random.random() < 0.9)
        }  # fmt: skip
        price |= {(s, t): 1.0 + t for s, t in local}  # what is cut out takes as long whatever it is cut out of
        made = tuple(random.randrange(layouts) for _ in range(options[maker]))
        each = tuple(Reader(r, tuple(random.randrange(layouts) for _ in range(options[r]))) for r in readers)
        edges.append(ReshardEdge(f"v{maker}", maker, made, each, price, frozenset(local), random.randint(1, 2)))
    return ChoiceGraph(tuple(nodes), tuple(edges))


LETTERS = {"i": 4, "j": 8, "k": 4}


def program(random: Random, most: int = 4, flops: int = 2 * 10**6) -> Graph:
    """A few products, sums and additions of matrices, each value read by any later operation."""
    arrays = {f"x{k}": (f"x{k}", random.choice(["ij", "jk", "ik"])) for k in range(random.randint(1, 2))}
    inputs = [Array(name, tuple(LETTERS[c] for c in dims), "float32") for name, dims in arrays.values()]
    known = list(arrays.values())
    operations: list[Operation] = []
    for number in range(random.randint(2, most)):
        (a, first), (b, second) = random.choice(known), random.choice(known)
        if first == second:
            spec, kind, ins = f"{first},{second}->{first}", "add", (a, b)
        elif set(first) & set(second):
            out = "".join(c for c in dict.fromkeys(first + second) if not (c in first and c in second)) or first[0]
            spec, kind, ins = f"{first},{second}->{out}", "product", (a, b)
        else:
            spec, kind, ins = f"{first}->{first[0]}", "sum", (a,)
        if len(ins) == 2 and ins[0] == ins[1]:
            spec, kind, ins = f"{first}->{first[::-1]}", "turn", (a,)
        out = spec.rpartition("->")[2]
        letters = sorted({c for c in spec if c.isalpha()})
        linear = [(0, 1)] if kind == "add" else [(k,) for k in range(len(ins))]
        made = nest(spec, {c: LETTERS[c] for c in letters}, name=f"{kind}{number}", linear=linear, flops=flops)
        name = f"v{number}"
        operations.append(Operation(made, kind, ins, (Array(name, tuple(LETTERS[c] for c in out), "float32"),)))
        if len(out) == 2 and out in ("ij", "jk", "ik"):
            known.append((name, out))
    read = {name for operation in operations for name in operation.ins}
    outputs = tuple(operation.outs[0].name for operation in operations if operation.outs[0].name not in read)
    return Graph(tuple(inputs), tuple(operations), outputs).used()


def problem(
    graph: Graph, mesh: str, profile: str = "gpu", ties: float = 0.0, moves: Moves | None = None
) -> SearchProblem:
    on = machine(profile)
    return SearchProblem(Facts(graph, on, moves or Moves(Mesh.of(mesh), on)), weights=Weights(ties=ties))


def traced(function: Callable[..., Any], args: tuple[Any, ...], mesh: str) -> SearchProblem:
    """What `rd.search` would search, without pins."""
    return problem(prepare(function, args, Mesh.of(mesh), None, None, None).traced.graph, mesh)


def least(choices: ChoiceGraph) -> float:
    """The least price of all choices at once, as one table over all nodes."""
    sizes = [len(node.prices) for node in choices.nodes]
    total = np.zeros(sizes)
    for k, node in enumerate(choices.nodes):
        total = total + np.array(node.prices).reshape([-1 if n == k else 1 for n in range(len(sizes))])
    for edge in choices.edges:
        table = edge.table({node: range(size) for node, size in enumerate(sizes)})
        total = total + table.reshape([size if n in edge.nodes else 1 for n, size in enumerate(sizes)])
    return float(total.min())


def peak(program: ProgramData) -> int:
    """The most bytes that a device holds.

    Programs of a search call no others, and every value lies on all devices alike, so that one device stands for all.
    """
    held = (moment.held[program.devices[0]] + moment.scratch for moment in moments(program))
    return max(sum(value.tile_bytes for value in program.inputs), *held)
