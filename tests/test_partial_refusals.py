"""What takes whole tiles only says so, of types whose tiles are summands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import PartialTypeError, RedistribError
from redistrib.explain import explain, picture, traffic, weak_graph
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllReduce, Unreduce
from redistrib.plans.verify import verify
from redistrib.plans.writes import schedule
from tests.messages import exactly
from tests.plans.hand import place, plan
from tests.plans.hand_partial import PARTIAL


@pytest.mark.parametrize("ends", [("[4] sum{x}", "[4]"), ("[4]", "[4] max{x}"), ("[4] sum{x}", "[4] sum{x}")])
def test_the_weak_graph_and_its_search(ends: tuple[str, str]) -> None:
    at_fault = next(text for text in ends if "{" in text)
    why = (
        f"takes arrays whose tiles are parts of the array, and those of {at_fault} are partial sums; "
        "reduce it first, for example with jax.lax.psum or MPI's Allreduce"
    )
    plan = rd.synthesize(*ends, "x=2")
    refused = {
        "the paper's algorithm": lambda: rd.synthesize(*ends, "x=2", algorithm="paper"),
        "traffic": lambda: traffic(plan),
        "the weak graph": lambda: weak_graph(plan),
    }
    for what, do in refused.items():
        with pytest.raises(PartialTypeError) as caught:
            do()
        assert str(caught.value) == f"{what} {why}"


TAKES = (
    "{} takes arrays whose tiles are parts of the array, and those of the step {} are partial sums; reduce it first, "
    "for "
    "example with jax.lax.psum or MPI's Allreduce"
)


def between() -> Plan:
    """Whole tiles at both ends, and summands between."""
    mesh = "x=2,y=2"
    cut, partial, whole = (place(text, mesh) for text in ("[2{x}4]", "[4] sum{x}", "[4]"))
    steps = Unreduce(cut, partial, np.arange(4)), AllReduce(partial, whole, np.array([[0, 2], [1, 3]]))
    return verify(plan("[2{x}4]", "[4]", mesh, *steps))


def test_summands_between_whole_ends(tmp_path: Path) -> None:
    made = between()
    assert "to be added" in explain(made)
    assert picture(made, tmp_path / "plan.png").exists()
    for what, do in {"traffic": traffic, "the weak graph": weak_graph}.items():
        with pytest.raises(PartialTypeError, match=exactly(TAKES.format(what, "unreduce"))):
            do(made)


@pytest.mark.parametrize("name", ["reduce-scatter", "partial sums that move", "replicated to partial"])
def test_writes(name: str) -> None:
    step = PARTIAL[name]().steps[0]
    with pytest.raises(PartialTypeError, match=exactly(TAKES.format("a list of writes", step.kind))):
        schedule(step.before, step)


def test_it_is_an_error_of_the_library() -> None:
    assert issubclass(PartialTypeError, RedistribError)
