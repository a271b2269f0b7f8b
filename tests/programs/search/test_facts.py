"""Facts of a search problem: its variants share them, and problems of another graph or machine never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any

import pytest

from redistrib.lang.mesh import Mesh
from redistrib.programs.run.prepared import prepare
from redistrib.programs.schedule.given import Given
from redistrib.programs.search.evaluation import Evaluation, evaluated
from redistrib.programs.search.facts import Facts
from redistrib.programs.search.layers import fold
from redistrib.programs.search.moves import Moves
from redistrib.programs.search.options import problem_of
from redistrib.programs.search.problem import SearchProblem, Weights
from redistrib.programs.search.starting import starting
from redistrib.programs.time.constants import machine
from tests.programs.search import models, oracle

GRAPH, OTHER = (oracle.program(Random(seed)) for seed in (3, 4))
MESH, GPU, TPU = Mesh.of("x=4"), machine("gpu"), machine("v5p")


def computed(facts: Facts) -> dict[str, object]:
    """Every fact."""
    return {name: getattr(facts, name) for name, fact in vars(Facts).items() if isinstance(fact, cached_property)}


def priced(problem: SearchProblem) -> list[Evaluation]:
    """What schedules take; options of their operations are priced on the way."""
    return [evaluated(problem, decisions) for decisions in starting(problem)]


def test_variants_of_a_problem_share_its_facts() -> None:
    facts = Facts(GRAPH, GPU, Moves(MESH, GPU))
    problem = SearchProblem(facts)
    kinds = problem.facts.kinds
    variants: list[dict[str, Any]] = [
        {"weights": Weights(ties=0.0)},
        {"given": Given(pins={GRAPH.inputs[0].name: {"x": 0}})},
        {"overlap": True},
        {"donated": (GRAPH.inputs[0].name,)},
    ]
    for change in variants:
        assert replace(problem, **change).facts is facts
        assert replace(problem, **change).facts.kinds is kinds


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: replace(facts, machine=TPU, moves=Moves(MESH, TPU)),
        lambda facts: replace(facts, moves=Moves(MESH, GPU, "bytes")),
        lambda facts: replace(facts, moves=Moves(Mesh.of("x=2"), GPU)),
        lambda facts: replace(facts, graph=OTHER),
    ],
    ids=["machine", "objective", "mesh", "graph"],
)
def test_a_problem_of_another_graph_or_machine_has_facts_of_its_own(change: Callable[[Facts], Facts]) -> None:
    problem = SearchProblem(Facts(GRAPH, GPU, Moves(MESH, GPU)))
    before = computed(problem.facts)
    assert priced(problem)
    assert problem.facts.decided_options
    facts = change(problem.facts)
    assert not facts.options
    assert not facts.decided_options
    alone = Facts(facts.graph, facts.machine, Moves(facts.moves.mesh, facts.machine, facts.moves.objective))
    assert computed(facts) == computed(alone)
    assert priced(SearchProblem(facts)) == priced(SearchProblem(alone))
    assert computed(facts) != before
    assert computed(problem.facts) == before


def test_a_folded_problem_has_facts_of_its_own_graph_and_the_whole_ones_beside_them() -> None:
    def made() -> SearchProblem:
        prepared = prepare(models.block_step, models.block_args(9, 64, 32, 64, 8), MESH, None, None, None)
        return problem_of(prepared, MESH, (), {}, TPU, "seconds")

    whole = made()
    before = computed(whole.facts)
    own = fold(whole)
    assert own.whole is whole
    assert own.facts.whole is whole.facts
    of_each = "copies", "times", "marks", "kernels", "kinds", "heavy"
    for problem in (own, whole):
        counts = {len(fact) for name, fact in computed(problem.facts).items() if name in of_each}  # type: ignore[arg-type]
        assert counts == {len(problem.graph.operations)}
    assert len(own.graph.operations) < len(whole.graph.operations)
    evaluated(own, own.undecided())
    assert computed(whole.facts) == before == computed(made().facts)
    alone = made()
    assert evaluated(whole, whole.undecided()) == evaluated(alone, alone.undecided())
