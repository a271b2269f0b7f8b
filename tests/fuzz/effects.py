"""Random JAX functions with effects through `rd.distribute`, beside `jax.jit`: the same calls see the same values.

Statements print, log, hand values to a host or ask it for some, plain and inside loops, branches and derivatives.
Ordered statements are compared in order, all others as a multiset.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import jax
import numpy as np

import redistrib as rd
from tests.distribution.effectful import KINDS, WRAPPERS, Function, Statement, is_allowed, recorded
from tests.fuzz.guard import Failure, attempt

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
    ours, theirs = (list(map(_seen, entries)) for entries in (calls, expected))
    if ours != theirs if function.statements[0].ordered else Counter(ours) != Counter(theirs):
        raise Failure("wrong", f"{len(ours)} calls differ from {len(theirs)}", case=case)
    return "agrees"


def _seen(entry: tuple[str, Any]) -> str:
    tag, value = entry
    return f"{tag} {value.dtype}{value.shape} {value.tolist()}"
