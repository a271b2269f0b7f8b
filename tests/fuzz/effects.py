"""Random JAX functions with effects through `rd.distribute`, beside `jax.jit`: the same calls see the same values.

Statements print, log, hand values to a host or ask it for some, plain and inside loops, branches and derivatives.
Ordered statements are compared in order, those of callbacks for debugging apart from those of `io_callback`, since JAX
orders each kind for itself; all others as a multiset.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import jax
import numpy as np

import redistrib as rd
from tests.fuzz.guard import Failure, attempt
from tests.programs.run.effectful import KINDS, WRAPPERS, Function, Statement, is_allowed, recorded

MOST = 4  # statements of a function
MESHES: tuple[dict[str, int], ...] = ({"d": 2}, {"d": 4}, {"d": 2, "e": 2})
X = np.arange(32, dtype=np.float32).reshape(8, 4) % 3 - 1  # whole numbers, so that sums are exact in any order
W = np.eye(4, dtype=np.float32)[::-1] * 2


def drawn(seed: int, index: int) -> Function:
    """The function of a number; all its statements are ordered, or none is."""
    rng = random.Random(f"effects/{seed}/{index}")
    ordered, count = rng.random() < 0.5, rng.randint(1, MOST)
    some: list[Statement] = []
    while len(some) < count:
        statement = Statement(rng.choice(KINDS), rng.choice(WRAPPERS), rng.random() < 0.5, ordered)
        some += [statement] * is_allowed(statement)
    return Function(tuple(some))


def check(seed: int, index: int) -> str:
    """Distribute the function of this number: "agrees", or "refused" by an error of the library.

    Raises:
        Failure: if results or calls differ, or anything but a `RedistribError` comes out.
    """
    function, rng = drawn(seed, index), random.Random(f"schedule/{seed}/{index}")
    mesh = rng.choice(MESHES)
    schedule = [rd.along("d", {"x": 0}), *[rd.along("e", {"w": rng.choice([0, 1])})] * (len(mesh) > 1)]
    case = f"{function}; on {mesh} by {schedule}"
    wanted, expected = recorded(jax.jit(function), (X, W))
    outcome = attempt(lambda: recorded(rd.distribute(function, (X, W), mesh, schedule=schedule), (X, W)), case)
    if outcome is None:
        return "refused"
    result, calls = outcome
    if not np.array_equal(np.asarray(result), np.asarray(wanted)):
        raise Failure("wrong", "the result differs", case=case)
    if not _alike(function, calls, expected):
        raise Failure("wrong", f"{len(calls)} calls differ from {len(expected)}", case=case)
    return "agrees"


def _alike(function: Function, calls: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> bool:
    """Whether the same calls were made, ordered ones of a kind in the same order."""
    ours, theirs = ([(tag, _seen(tag, value)) for tag, value in entries] for entries in (calls, expected))
    if not function.statements[0].ordered:
        return Counter(ours) == Counter(theirs)
    debugging = {f"s{k}" for k, statement in enumerate(function.statements) if statement.kind in ("print", "debug")}
    return all(
        [seen for tag, seen in ours if (tag in debugging) == kind]
        == [seen for tag, seen in theirs if (tag in debugging) == kind]
        for kind in (False, True)
    )


def _seen(tag: str, value: Any) -> str:
    return f"{tag} {value.dtype}{value.shape} {value.tolist()}"
