"""The most bytes that a schedule's program holds, found without it: never less than the program, nor far above it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from redistrib.lang.mesh import Mesh
from redistrib.programs.search import moves as moves_module
from redistrib.programs.search.classes import classes_of
from redistrib.programs.search.evaluation import evaluated, held_at_most
from redistrib.programs.search.facts import Facts
from redistrib.programs.search.found import FeasibleResult, SearchResult
from redistrib.programs.search.held_bounds import _Lives, most_held
from redistrib.programs.search.layers import fold, harmonized, options_of, unfold
from redistrib.programs.search.moves import Moves
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.starting import starting
from redistrib.programs.time.constants import machine
from tests.programs.search import models, oracle
from tests.programs.search.test_flash import QKV, gradients
from tests.programs.search.test_large import problem as blocks
from tests.programs.search.test_peaks import schedules

NAMES = ("v5e", "h100", "gpu", "cpu")


def on(problem: SearchProblem, name: str, *, flash: bool = False) -> SearchProblem:
    """The same problem on another machine."""
    to, given = replace(machine(name), flash=flash), problem.given
    return replace(problem, facts=Facts(problem.graph, to, Moves(problem.moves.mesh, to)), given=given)


def drawn(seed: int) -> Iterator[SearchProblem]:
    """Random programs, a step of training, and attentions by flash kernels, with arguments that are given away."""
    random = Random(seed)
    name = NAMES[seed % len(NAMES)]
    problems = [
        oracle.problem(oracle.program(random, most=8), "{x:2,y:2}", name),
        on(oracle.traced(normalised, (models.form(64, 32), models.form(32, 32), models.form(8)), "{d:4,e:1}"), "v5e"),
        on(
            oracle.traced(masked, (*QKV, jax.ShapeDtypeStruct((1, 1, 512, 512), "bfloat16")), "{d:4}"),
            "v5e",
            flash=True,
        ),
        on(blocks(1, Mesh.of({"d": 2, "t": 2})), name)
        if seed % 2
        else on(oracle.traced(gradients, QKV, "{d:4}"), "v5e", flash=True),
    ]
    for problem in problems:
        names = [array.name for array in problem.graph.inputs]
        yield replace(problem, donated=tuple(random.sample(names, (len(names) + 1) // 2)))


def normalised(x: jax.Array, w: jax.Array, unread: jax.Array) -> jax.Array:
    """Values that are computed inside kernels: for a sum, for a product, and again for the result."""
    y = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
    z = jnp.tanh(y / jnp.sum(y, axis=1, keepdims=True)) @ w
    half, _ = jnp.split(y, 2)
    return z.T * jnp.sum(z, axis=1) + y.T[: z.shape[1]] + jnp.sum(half, axis=0)[:, None]


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """An attention with a mask, which is read between its two products."""
    scores = jnp.einsum("bshd,bthd->bhst", q, k) + jnp.tanh(mask)
    return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, -1), v)


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("seed", [0, 13, 15, *(pytest.param(n, marks=pytest.mark.long) for n in range(16, 26))])
def test_no_program_holds_more(seed: int, planned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether moves have the prices of plans or closed ones; the schedules keep what they move, or for few operations.

    What is counted moment by moment is never above the bound.
    """
    if not planned:
        monkeypatch.setattr(moves_module, "PLANNED", 0)
    ratios, random = [], Random(seed)
    for own in drawn(seed):
        for decisions in schedules(own, seed, 3):
            kept = decisions.kept(random.choice([None, None, 0, 1, 3]))
            most, counted = most_held(own, kept, options_of(own, kept)), held_at_most(own, kept)
            found = FeasibleResult(own, SearchResult(kept, 0.0, False), "p", evaluated(own, kept))
            assert found.figures.memory <= counted <= most < math.inf
            ratios.append(most / counted)
    assert statistics.median(ratios) < 1.25 and max(ratios) < 3


def test_layers_are_cut_as_those_that_stand_for_them() -> None:
    own = fold(blocks(12, profile="v5e"))
    assert own.folded is not None and own.whole is not None
    for decisions in starting(own):
        alike = harmonized(own, decisions, classes_of(own))
        whole, every = unfold(own, alike)
        options = options_of(own, alike)
        assert [*options] == [whole.facts.decided(every, k) for k in range(len(whole.graph.operations))]
        assert held_at_most(whole, every) <= most_held(whole, every, options) <= 1.2 * held_at_most(whole, every)


def test_what_a_flash_kernel_reads_is_counted_from_its_start_to_its_end() -> None:
    """Also what is computed inside of it, as the hyperbolic tangent of a mask."""
    own = on(oracle.traced(masked, (*QKV, models.form(1, 1, 512, 512)), "{d:4}"), "v5e", flash=True)
    decisions = next(starting(own))
    spans = _Lives(decisions, own, options_of(own, decisions)).spans
    names = [operation.name for operation in own.graph.operations]
    first, last, inside = (names.index(name) for name in ("dot_general", "transpose", "tanh"))
    assert first < inside < last and spans[first] == spans[inside] == spans[last] == (first, last)


def test_of_a_loop_nothing_is_known() -> None:
    own = oracle.traced(lambda xs: jax.lax.scan(lambda a, x: (a + x, a), xs[0], xs), (models.form(4, 8),), "{d:4}")
    decisions = next(starting(own))
    assert most_held(own, decisions, options_of(own, decisions)) == math.inf
