"""A sample of the fuzzer, which `python -m bench fuzz` runs by the hundred thousand, and faults that it must find."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import redistrib as rd
from bench import goals, tables
from bench.results import Results
from redistrib.backends.jax import offsets
from redistrib.errors import RedistribError
from redistrib.plans import plan as plans
from redistrib.plans.steps import ReduceExchange, Unreduce
from redistrib.programs.ir.primitives import RECORDS
from redistrib.programs.ir.record import Sums
from redistrib.programs.rules import nests
from redistrib.weights import placing
from tests.fuzz import (
    closures,
    compositions,
    disagreements,
    effects,
    files,
    forge,
    functions,
    problems,
    shrink,
    trees,
    values,
)
from tests.fuzz.bench import Run
from tests.fuzz.guard import Failure, guarded
from tests.fuzz.interpreter import Outcome, Wrong, interpret
from tests.fuzz.kinds import KINDS, Tally, run
from tests.fuzz.problems import Problem, Side
from tests.plans.corrupt import Corruption
from tests.plans.corrupt_collectives import COLLECTIVE_CORRUPTIONS
from tests.plans.corrupt_exchanges import EXCHANGE_CORRUPTIONS
from tests.plans.corrupt_plans import PLAN_CORRUPTIONS
from tests.plans.corrupt_reductions import REDUCTION_CORRUPTIONS
from tests.plans.edits import sealed
from tests.plans.hand import GOOD
from tests.plans.hand_partial import PARTIAL
from tests.seams.transformations import TRANSFORMATIONS

SEED = 1
SAMPLE = {
    "problems": 300,
    "forged": 400,
    "texts": 60,
    "trees": 20,
    "compositions": 6,
    "offsets": 12,
    "through": 6,
    "functions": 12,
    "effects": 4,
    "files": 60,
}
LARGER = {
    "problems": 2000,
    "forged": 3000,
    "texts": 1000,
    "trees": 60,
    "compositions": 60,
    "offsets": 60,
    "through": 40,
    "functions": 100,
    "effects": 40,
    "files": 400,
    "disagreements": 5,
}
LARGEST = {
    "problems": 10000,
    "forged": 10000,
    "texts": 2000,
    "trees": 200,
    "compositions": 300,
    "offsets": 300,
    "through": 150,
    "functions": 300,
    "effects": 80,
    "files": 2000,
    "disagreements": 20,
}
# A step of a kind that no JSON has, a bound that only the caller of `verify` knows; and a sum that is right, though the
# numbers of its summands are no run.
UNSEEN = {"unknown step", "tile above bound"}
RIGHT = {"groups that have no runs of partial sums"}


@pytest.mark.parametrize("kind", SAMPLE)
def test_nothing_fails(kind: str) -> None:
    assert run(KINDS[kind], SEED, range(SAMPLE[kind])).failures == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", LARGER)
def test_nothing_fails_in_a_larger_sample(kind: str) -> None:
    assert run(KINDS[kind], SEED, range(SAMPLE.get(kind, 0), LARGER[kind])).failures == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", LARGEST)
def test_nothing_fails_in_the_largest_sample(kind: str) -> None:
    assert run(KINDS[kind], SEED, range(LARGER[kind], LARGEST[kind])).failures == {}


# ----------------------------------------------------------------------------------------- the interpreter


@pytest.mark.parametrize("name", [*GOOD, *PARTIAL])
def test_the_interpreter_finds_a_right_plan_right(name: str) -> None:
    plan = {**GOOD, **PARTIAL}[name]()
    expected = Outcome(plan.received, plan.lower_bound, plan.least_received, plan.height, plan.collectives)
    assert interpret(plan.to_json()) == expected


@pytest.mark.parametrize("kind", ["collectives", "exchanges", "plans", "reductions"])
def test_the_interpreter_finds_every_corruption(kind: str) -> None:
    corruptions: dict[str, list[Corruption]] = {
        "collectives": COLLECTIVE_CORRUPTIONS,
        "exchanges": EXCHANGE_CORRUPTIONS,
        "plans": PLAN_CORRUPTIONS,
        "reductions": REDUCTION_CORRUPTIONS,
    }
    for corruption in corruptions[kind]:
        if corruption.rule not in UNSEEN and corruption.name not in RIGHT:
            with pytest.raises(Wrong):
                interpret(corruption.make().to_json())


def test_the_interpreter_finds_sums_in_another_order() -> None:
    """A plan of fixed order whose sums the platform makes, are sums of sums, or of summands that were numbered anew."""
    plan = rd.synthesize("[4, 8] sum{x,y}", "[2{x}4, 4{y}8]", "x=2,y=2", order="fixed")
    form = json.loads(plan.to_json())
    step = next(step for step in form["steps"] if step["kind"] == "reduce_scatter")
    assert step["implementation"] == "alltoall" and interpret(json.dumps(form)).least == sum(plan.received)
    step["implementation"] = "native"
    with pytest.raises(Wrong, match="the platform adds"):
        interpret(json.dumps(form))
    step["implementation"] = "alltoall"
    label = form["placements"][step["before"]]["summand"]
    form["placements"][step["before"]]["summand"] = [3 - number for number in label]
    with pytest.raises(Wrong, match="another order"):
        interpret(json.dumps(form))


def test_the_interpreter_numbers_summands_along_their_axes_by_name() -> None:
    """Whichever way round the type names them: a plan of fixed order adds in the same order."""
    plan = rd.synthesize("[4, 8] sum{x,y}", "[4, 8]", "x=4,y=2", order="fixed")
    assert "sum{x,y}" in plan.to_json()
    form = json.loads(plan.to_json())
    form["source"]["type"] = form["source"]["type"].replace("{x,y}", "{y,x}")
    text = sealed(form)
    assert rd.Plan.from_json(text).received == plan.received and interpret(text).received == plan.received


def test_the_interpreter_counts_beyond_64_bits() -> None:
    n = 2**62
    plan = rd.synthesize(f"[{n // 4}{{x}}{n}, {n}]", f"[{n}, {n // 4}{{x}}{n}]", {"x": 4}, machine="exact")
    assert interpret(plan.to_json()).received == (3 * n * n // 16,) * 4


def test_the_interpreter_reads_a_mesh_row_by_row_and_axes_minor_to_major() -> None:
    """Device 1 stands first on the mesh; the axis named first moves the tile by one."""
    plan = rd.synthesize("[1{x,y}4]", "[4]", rd.Mesh((rd.Axis("x", 2), rd.Axis("y", 2)), (1, 0, 2, 3)))
    form = json.loads(plan.to_json())
    placed = form["placements"][form["steps"][0]["before"]]["index"]
    assert placed == [[2], [0], [1], [3]]
    assert interpret(plan.to_json()).height == 4
    form["placements"][form["steps"][0]["before"]]["index"] = [[0], [2], [1], [3]]
    with pytest.raises(Wrong, match="starts elsewhere"):
        interpret(json.dumps(form))


# ------------------------------------------------------------------------------------- faults that are found


def test_shards_that_take_the_names_of_earlier_ones_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = placing.shard_names
    monkeypatch.setattr(placing, "shard_names", lambda count, tag: names(count, ""))
    with pytest.raises(Failure, match="a mixed tree"):
        files.deaths(random.Random(9), tmp_path)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, ""),
        ({"errors": ["LeafError: gone"]}, "one process alone has the error"),
        ({"errors": ["FOREIGN ValueError: odd"]}, "FOREIGN"),
        ({"right": False}, "other values"),
        ({"after": ["CommunicatorError: late"]}, "no further call"),
        ({"seconds": 100.0}, "waited for each other"),
    ],
)
def test_processes_that_disagree_in_another_way_are_found(change: dict[str, Any], found: str) -> None:
    said = {"errors": [], "after": [], "right": True, "seconds": 0.1}
    with pytest.raises(Failure, match=found) if found else nullcontext():
        disagreements.judge([said, said | change])
    shared = "LeafError: in all"
    disagreements.judge([said | {"errors": [shared]}] * 2)


def test_a_summand_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Problem.plan

    def losing(problem: Problem) -> rd.Plan:
        plan = made(problem)
        steps = [
            replace(step, splits=(0,) * len(step.splits[:-1]) + step.splits[-1:])
            if isinstance(step, ReduceExchange) and len(step.splits) > 2
            else replace(step, keeps=step.keeps[1:])
            if isinstance(step, Unreduce)
            else step
            for step in plan.steps
        ]
        return replace(plan, steps=tuple(steps))

    monkeypatch.setattr(Problem, "plan", losing)
    signatures = run(KINDS["problems"], SEED, range(80)).failures
    assert any("the whole" in signature for signature in signatures)


def test_problems_have_summands_of_every_kind() -> None:
    drawn = [problems.draw(SEED, index) for index in range(400)]
    sides = {(bool(p.source.partial), bool(p.target.partial)) for p in drawn}
    assert sides == {(False, False), (True, False), (False, True), (True, True)}
    assert {p.source.reduction for p in drawn if p.source.partial} == {"sum", "max", "min"}
    assert {p.summing for p in drawn} == {"any", "fixed"} and any(p.accumulate for p in drawn)
    assert {p.flaw for p in drawn} & set(problems.PARTIAL_FLAWS)
    kinds = Counter(
        step.kind for p in drawn if p.partial and not p.flaw and not p.memory_limit for step in p.plan().steps
    )
    assert {"reduce_scatter", "all_reduce", "reduce_exchange", "unreduce"} <= kinds.keys()


def test_forged_plans_that_nothing_judges_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "verify", lambda plan, bound: plan)
    failures = run(KINDS["forged"], SEED, range(100)).failures
    assert any("accepted a forged plan" in signature for signature in failures)


def test_a_seal_made_here_is_the_one_that_is_read() -> None:
    text = rd.synthesize("[1{x}4, 4]", "[4, 1{x}4]", {"x": 4}).to_json()
    assert rd.Plan.from_json(forge.sealed(json.loads(text))).to_json() == text


def test_a_plan_for_another_device_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Problem.plan

    def turned(problem: Problem) -> rd.Plan:
        plan = made(problem)
        order = plan.target_mesh.devices
        return replace(plan, target_mesh=rd.Mesh(plan.target_mesh.axes, (*order[1:], order[0])))

    monkeypatch.setattr(Problem, "plan", turned)
    assert run(KINDS["problems"], SEED, range(60)).failed > 10


def test_a_plan_that_miscounts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rd.Plan, "received", property(lambda plan: (0,) * plan.devices))
    assert run(KINDS["problems"], SEED, range(60)).failed > 10


def test_a_lost_array_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(tree: dict[str, Any], *_: Any, **__: Any) -> Any:
        for leaf in tree.values():
            if hasattr(leaf, "delete"):
                leaf.delete()
        raise RedistribError("lost")

    monkeypatch.setattr(rd, "reshard", losing)
    failures = run(KINDS["trees"], SEED, range(12)).failures
    assert any("is lost by RedistribError" in signature for signature in failures)


def test_what_stands_moved_in_the_error_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def moving(tree: dict[str, Any], *_: Any, **__: Any) -> Any:
        error = RedistribError("moved")
        moved = {k: leaf.copy() if hasattr(leaf, "delete") else leaf for k, leaf in tree.items()}
        for leaf in tree.values():
            if hasattr(leaf, "delete"):
                leaf.delete()
        error.partial = moved  # type: ignore[attr-defined]
        raise error

    entries = [trees.Entry(jnp.arange(8), np.arange(8, dtype=np.int32), jax.devices()[0])]
    monkeypatch.setattr(rd, "reshard", moving)
    monkeypatch.setattr(trees, "_draw", lambda rng: (entries, ""))
    monkeypatch.setattr(trees, "_interrupted", lambda moment, call: call())
    assert trees.check(SEED, 0) == "refused"


def test_functions_have_operations_and_element_types_of_every_kind() -> None:
    made = [functions.drawn(SEED, index) for index in range(150)]
    names = {step.name.split("[")[0].split(" ")[0] for function in made for step in function.steps}
    assert {"sum", "dot_general", "div", "gather", "scatter-add", "where", "fori_loop", "to", "cumsum", "add"} <= names
    assert {value.dtype for function in made for value in function.values} >= {*values.INTEGERS, *values.FLOATS}
    floats = np.concatenate([
        np.asarray(one, np.float32).ravel()
        for function in made
        for one in function.arguments
        if jnp.issubdtype(one.dtype, jnp.floating)
    ])  # fmt: skip
    assert np.isnan(floats).any() and np.isinf(floats).any() and (np.signbit(floats) & (floats == 0)).any()


def test_functions_have_inner_functions_that_close_over_arrays() -> None:
    names = [step.name for k in range(300) for step in functions.drawn(SEED, k).steps]
    inner = [name.split("[")[0].split() for name in names if name.startswith("inner ")]
    assert {use for _, use, *_ in inner} == {*closures.USES}
    assert {kind for _, _, _, kind, *_ in inner} == {*closures.KINDS}
    assert {place for *_, place in inner} == {*closures.PLACES}


def test_an_offset_that_is_looked_up_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = (19, 29, 32, 38)  # which have such offsets
    assert not run(KINDS["offsets"], SEED, sample).failed
    monkeypatch.setattr(offsets.LargeOffset, "cells", lambda offset, cell: np.int32(offset.values[0] // cell))
    failures = run(KINDS["offsets"], SEED, sample).failures
    assert any("holds other elements" in signature for signature in failures)


def test_compositions_are_of_every_transformation_and_context() -> None:
    made = [compositions.drawn(SEED, index) for index in range(300)]
    assert {name for one in made for name in one.names} == {*TRANSFORMATIONS}
    assert {len(one.names) for one in made} == {0, 1, 2, 3}
    assert {one.context for one in made} == {*compositions.CONTEXTS}
    assert {one.source.mesh.axis_types[0] for one in made} == {AxisType.Auto, AxisType.Explicit}


def test_a_tree_whose_leaves_are_changed_in_a_composition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rd, "reshard", lambda tree, *_, **__: jax.tree.map(lambda leaf: 2 * leaf, tree))
    failures = run(KINDS["compositions"], SEED, range(4)).failures
    assert any("other numbers" in signature for signature in failures)


def test_functions_have_every_primitive_that_partial_sums_pass() -> None:
    met: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            met.add(eqn.primitive.name)
            for inner in jax.tree.leaves(eqn.params, is_leaf=lambda value: hasattr(value, "eqns")):
                if hasattr(inner, "eqns"):
                    walk(inner.jaxpr if hasattr(inner, "jaxpr") else inner)

    for function in (functions.drawn(1, index) for index in range(200)):
        with jax.enable_x64(function.wide):
            walk(jax.make_jaxpr(function)(*function.arguments).jaxpr)
    nothing_is_lowered_to = {"copy", "copy_p", "expand_dims", "scatter_add"}
    passed = {kind for kind, record in RECORDS.items() if record.sums is not Sums.NONE}
    assert passed - nothing_is_lowered_to <= met


def test_a_partial_sum_that_is_divided_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As integers, which the law of `redistrib.programs.rules.sums` does not allow."""
    monkeypatch.setattr(nests, "passing", lambda equation: ((0,),) if equation.kind == "div" else ())
    function = values.Function(random.Random(0))
    function.arguments.append(np.arange(32, dtype=np.int32).reshape(8, 4))
    function.values.append(values.Value((8, 4), "int32"))
    assert function.add("sum", lambda x: x.sum(0), 0) and function.add(
        "div", lambda x: jax.lax.div(x, jnp.full_like(x, 3)), 1
    )
    monkeypatch.setattr(functions, "drawn", lambda seed, index: function)
    with pytest.raises(Failure, match=r"wrong: result 0 has [0-9]+ and not [0-9]+ at element 0"):
        functions.check(SEED, 0)


# ------------------------------------------------------------------------------------------- the machinery


def _forever() -> None:
    while True:
        pass


def test_a_case_that_does_not_end_is_cut_off() -> None:
    with pytest.raises(Failure, match=r"slow: not done after 0\.1 s"), guarded(0.1):
        _forever()


@pytest.mark.parametrize("error", [AssertionError(), ValueError("odd"), RecursionError(), MemoryError()])
def test_foreign_exceptions_fail(error: Exception) -> None:
    with pytest.raises(Failure, match=f"exception: {type(error).__name__}"), guarded():
        raise error


def test_failures_alike_have_one_signature() -> None:
    one, other = Failure("wrong", "device 3 holds '[0]' (1, 2)"), Failure("wrong", "device 14 holds 'x' (1, 2, 3)")
    assert one.signature == other.signature
    assert one.signature != Failure("wrong", "step 3 holds '[0]' (1, 2)").signature


def test_cases_are_made_by_seed_and_number() -> None:
    assert str(problems.draw(5, 7)) == str(problems.draw(5, 7))
    assert str(problems.draw(5, 7)) != str(problems.draw(6, 7))
    assert forge.forgery(5, 7) == forge.forgery(5, 7)


def test_a_problem_can_be_typed() -> None:
    from redistrib.cost.latency import LatencyBandwidth
    from redistrib.lang.mesh import Axis, Mesh

    names = {"rd": rd, "Axis": Axis, "Mesh": Mesh, "LatencyBandwidth": LatencyBandwidth}
    typed = 0
    for index in range(40):
        problem = problems.draw(SEED, index)
        if not problem.flaw and problem.memory_limit is None and 0 not in problem.shape:
            assert eval(str(problem), names) == problem.plan()
            typed += 1
    assert typed > 10


def test_a_failing_problem_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever cuts by `y` fails; nothing else is left of the problem."""

    def wrong(problem: Problem, _: Any) -> str:
        if any("y" in names for names in problem.source.cut):
            raise Failure("wrong", "y")
        return "planned"

    monkeypatch.setattr(shrink, "check_problem", wrong)
    axes = (("x", 4), ("y", 6), ("z", 1))
    source = Side(axes, tuple(range(24))[::-1], (("x",), ("z", "y"), ()))
    target = Side(axes, tuple(range(24)), ((), (), ("y", "x")))
    large = Problem((8, 12, 48), source, target, "int8", "cpu", "paper", False, 1000)
    small = shrink.shrunk(large)
    assert small.source == Side((("y", 2),), (0, 1), (("y",),))
    assert small == Problem((2,), small.source, Side((("y", 2),), (0, 1), ((),)))
    assert str(small) == "rd.synthesize('[1{y}2]', '[2]', {'y': 2}, machine='exact')"
    whole = replace(large, source=replace(source, cut=((), (), ())))
    assert shrink.shrunk(whole) == whole  # does not fail


def test_a_case_that_kills_its_process_is_counted_and_the_others_are_made_again() -> None:
    made = Run({"problems": 10}, SEED, None)
    assert list(made._chunks()) == [("problems", 0, 10)]
    made._note("problems", 0, 10, {"status": "crash", "index": 4, "signal": "SIGSEGV", "log": ""})
    assert made.tallies["problems"].failed == 1
    assert sorted(made._chunks()) == [("problems", 0, 4), ("problems", 5, 10)]
    made._note("problems", 0, 4, {"status": "ok", "tally": run(KINDS["problems"], SEED, range(4)).to_json()})
    assert made.tallies["problems"].cases == 5


def test_a_kind_with_minutes_of_its_own_ends_alone() -> None:
    made = Run({"disagreements": 3, "problems": 1}, SEED, None)
    made._left["disagreements"] = 0.0
    assert [name for name, *_ in made._chunks()] == ["problems"] and made.unfinished


def test_a_tally_survives_json() -> None:
    tally = Tally()
    tally.outcomes["planned"] = 2
    tally.fail(3, Failure("wrong", "odd"))
    tally.took(3, 0.5)
    text = json.dumps(tally.to_json())
    assert json.dumps(Tally.from_json(json.loads(text)).to_json()) == text


@pytest.mark.parametrize(("failed", "word"), [(0, "yes"), (1, "**no**")])
def test_the_report_says_what_was_found(failed: int, word: str) -> None:
    tally = Tally(Counter(planned=100_000 - failed), seconds=700.0, slowest=(1.25, 17))
    if failed:
        tally.fail(5, Failure("wrong", "1|2"))
    records = [{"kind": kind, "asked": 100_000, **tally.to_json()} for kind in ("problems", "forged")]
    settings = {"seed": 1, "jobs": 2, "minutes": 12.5}
    results = Results({"fuzz": {"settings": settings, "records": records}})
    (goal,) = goals.fuzz(results)
    assert (goal.measured, goal.verdict) == (f"{2 * failed} failed of 100,000 problems, 100,000 forged", word)
    head, rows = tables.fuzz(results, "fuzz")
    failures = "1 x `wrong: #/#` (5)" if failed else "none"
    outcomes = f"{100_000 - failed:,} planned"
    assert dict(zip(head, rows[0], strict=True)) == {
        "kind": "problems", "cases": "100,000", "failed": str(failed), "outcomes": outcomes,
        "slowest, s (number)": "1.25 (17)", "failures": failures,
    }  # fmt: skip


def test_an_effect_that_is_had_twice_or_not_at_all_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    function = effects.Function((effects.Statement("debug", "plain", ordered=True),) * 2)
    monkeypatch.setattr(effects, "drawn", lambda seed, index: function)
    assert effects.check(SEED, 0) == "agrees"
    recorded = effects.recorded

    for change in (lambda calls: calls[:-1], lambda calls: [*calls, calls[0]], lambda calls: calls[::-1]):

        def changed(call: Any, args: Any, change: Any = change) -> Any:
            result, calls = recorded(call, args)
            return result, change(calls) if hasattr(call, "program") else calls

        monkeypatch.setattr(effects, "recorded", changed)
        with pytest.raises(Failure, match="calls differ"):
            effects.check(SEED, 0)
