"""Problems against the interpreter: what `synthesize` makes of each, and whether it is right."""

from __future__ import annotations

import random
from dataclasses import replace

import redistrib as rd
from redistrib.errors import MemoryLimitError, RedistribError
from tests.fuzz.guard import Failure, attempted
from tests.fuzz.interpreter import Outcome, Wrong, interpret
from tests.fuzz.problems import MOST_BYTES, Problem, draw


def check(seed: int, index: int) -> str:
    """Plan the problem of this number; "planned", "nothing fits" or "refused" where that is right.

    Raises:
        Failure: where it is not.
    """
    return check_problem(draw(seed, index), random.Random(index))


def check_problem(problem: Problem, rng: random.Random) -> str:
    """See `check`; `rng` says which of the dearer checks are made."""
    found = attempted(problem.plan)
    if problem.flaw:
        if isinstance(found, RedistribError):
            return "refused"
        raise Failure("wrong", f"planned in spite of a flaw: {problem.flaw}")
    if isinstance(found, MemoryLimitError) and problem.memory_limit is not None:
        _check_least(problem, found, rng)
        return "nothing fits"
    if isinstance(found, RedistribError):
        raise Failure("refused", f"{type(found).__name__}: {found}")
    check_plan(found, problem)
    if rng.random() < 0.1:
        str(found)
    if rng.random() < 0.03 and problem.plan() != found:
        raise Failure("wrong", "another plan the second time")
    return "planned"


def check_plan(plan: rd.Plan, problem: Problem) -> None:
    """A plan does what it says, and says what was asked."""
    outcome = carried_out(plan)
    text = plan.to_json()
    if rd.Plan.from_json(text) != plan:
        raise Failure("wrong", "another plan after its JSON was read")
    given = problem.arguments()
    for name, side in (("source", plan.source), ("target", plan.target)):
        if str(side) != str(rd.DistType.parse(given[name])):
            raise Failure("wrong", f"the {name} became {side}")
    if (plan.source_mesh, plan.target_mesh) != (given["mesh"], given["target_mesh"]):
        raise Failure("wrong", "the meshes of the plan are not those asked for")
    if (plan.accumulate, plan.order) != _added(problem):
        raise Failure("wrong", f"added up in {plan.accumulate} in {plan.order} order")
    if not 0 <= plan.cost < float("inf"):
        raise Failure("wrong", f"a cost of {plan.cost}")
    if problem.model == "exact":
        if plan.cost != sum(outcome.received):
            raise Failure("wrong", f"a cost of {plan.cost} for {sum(outcome.received)} elements received")
        free = problem.algorithm == "best" and problem.memory_limit is None and not problem.partial
        if free and outcome.received != outcome.bound:
            raise Failure("wrong", f"receives {sum(outcome.received)} where {sum(outcome.bound)} suffice")


def carried_out(plan: rd.Plan) -> Outcome:
    """What the interpreter makes of a plan's JSON, compared with what the plan says of itself."""
    try:
        outcome = interpret(plan.to_json(), plan.memory_limit)
    except Wrong as error:
        raise Failure("wrong", str(error)) from error
    names = ("received", "lower bound", "least received", "height", "collectives")
    said = (plan.received, plan.lower_bound, plan.least_received, plan.height, plan.collectives)
    counted = (outcome.received, outcome.bound, outcome.least, outcome.height, outcome.collectives)
    for name, one, other in zip(names, said, counted, strict=True):
        if one != other:
            raise Failure("wrong", f"{name} is said to be {one}, counted {other}")
    if any(map(int.__lt__, outcome.received, outcome.bound)) or sum(outcome.received) < outcome.least:
        raise Failure("wrong", "receives less than the lower bound")
    return outcome


def _added(problem: Problem) -> tuple[str | None, str]:
    """In which element type, and in what order, the plan of a problem is to add up."""
    if not problem.partial:
        return None, "any"
    if not problem.source.partial or problem.source.reduction != "sum":
        return None, problem.summing
    within = problem.accumulate or ("float32" if problem.dtype in ("bfloat16", "float16") else problem.dtype)
    return None if within == problem.dtype else within, problem.summing


def _check_least(problem: Problem, error: MemoryLimitError, rng: random.Random) -> None:
    """The least limit that the error tells is above the one given, and fits a plan; one made without it does not."""
    given = problem.memory_limit
    limit = given if isinstance(given, int) else int(str(given).split()[0])
    if error.limit != limit or error.least <= limit:
        raise Failure("wrong", f"nothing fits {limit}, but the error says {error.limit} and {error.least}")
    if rng.random() < 0.3 and error.least <= MOST_BYTES:
        again = attempted(replace(problem, memory_limit=error.least).plan)
        if isinstance(again, RedistribError):
            raise Failure("wrong", f"nothing fits the least limit that was told: {again}")
        carried_out(again)
        free = attempted(replace(problem, memory_limit=None).plan)
        if isinstance(free, rd.Plan) and replace(free, memory_limit=limit).peak_bytes <= limit:
            raise Failure("wrong", f"nothing fits {limit} bytes, but the plan made without a limit does")
