"""A smaller problem that fails in the same way: fewer axes, dimensions, elements and options, greedily."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.check import check_problem
from tests.fuzz.guard import Failure, guarded
from tests.fuzz.problems import Problem, Side

MOST_TRIES = 400


def signature_of(problem: Problem, seed: int = 0) -> str | None:
    """How the problem fails, or None."""
    try:
        with guarded():
            check_problem(problem, random.Random(seed))
    except Failure as failure:
        return failure.signature
    return None


def shrunk(problem: Problem, seed: int = 0) -> Problem:
    """The smallest that greed finds; the problem itself where it does not fail."""
    wanted = signature_of(problem, seed)
    tries, found = 0, wanted is not None
    while found and tries < MOST_TRIES:
        found = False
        for smaller in _smaller(problem):
            tries += 1
            if signature_of(smaller, seed) == wanted:
                problem, found = smaller, True
                break
    return problem


def _smaller(problem: Problem) -> Iterator[Problem]:
    source, target = problem.source, problem.target
    yield from _with_fewer_axes(problem)
    for i in range(len(problem.shape)):
        one, other = (replace(side, cut=(*side.cut[:i], *side.cut[i + 1 :])) for side in (source, target))
        yield replace(problem, shape=(*problem.shape[:i], *problem.shape[i + 1 :]), source=one, target=other)
    least = _shape(problem)
    if least != problem.shape:
        yield replace(problem, shape=least)
    for name in ("source", "target"):
        side: Side = getattr(problem, name)
        plain = tuple(range(problem.devices))
        if side.order != plain:
            yield _with(problem, name, replace(side, order=plain))
        if side.partial:
            yield _with(problem, name, replace(side, partial=side.partial[1:]))
        for i, names in enumerate(side.cut):
            if names:
                yield _with(problem, name, replace(side, cut=(*side.cut[:i], names[1:], *side.cut[i + 1 :])))
    for option, value in (("memory_limit", None), ("accumulate", None), ("summing", "any"),
                          ("algorithm", "best"), ("over_partition", True),
                          ("dtype", "float32"), ("model", "exact"), ("model", "gpu")):  # fmt: skip
        if getattr(problem, option) not in (value, "exact"):
            yield _with(problem, option, value)


def _with(problem: Problem, field: str, value: Any) -> Problem:
    changes: dict[str, Any] = {field: value}
    return replace(problem, **changes)


def _with_fewer_axes(problem: Problem) -> Iterator[Problem]:
    """An axis that both sides have left out or made smaller, and axes of size 1 left out of one side."""
    source, target = problem.source, problem.target
    for name, size in source.axes:
        if dict(target.axes).get(name) == size:
            for less in (1, *range(2, size)):
                made = replace(problem, source=_resized(source, name, less), target=_resized(target, name, less))
                yield replace(made, shape=_shape(made, problem))
    for which in ("source", "target"):
        side: Side = getattr(problem, which)
        for name, size in side.axes:
            if size == 1:
                yield _with(problem, which, _resized(side, name, 1))


def _resized(side: Side, name: str, size: int) -> Side:
    axes = tuple((n, size if n == name else s) for n, s in side.axes if n != name or size > 1)
    cut = side.cut if size > 1 else tuple(tuple(n for n in names if n != name) for names in side.cut)
    partial = side.partial if size > 1 else tuple(n for n in side.partial if n != name)
    devices = math.prod(s for _, s in axes)
    order = side.order if devices == len(side.order) else tuple(range(devices))
    return replace(side, axes=axes, order=order, cut=cut, partial=partial)


def _shape(problem: Problem, like: Problem | None = None) -> tuple[int, ...]:
    """The least shape that both cuts divide, empty dimensions kept; as many times that as in another problem."""
    need = [math.lcm(a, b) for a, b in zip(problem.source.counts, problem.target.counts, strict=True)]
    if like is None:
        return tuple(n if size else 0 for n, size in zip(need, problem.shape, strict=True))
    old = [math.lcm(a, b) for a, b in zip(like.source.counts, like.target.counts, strict=True)]
    return tuple(n * (size // o) for n, o, size in zip(need, old, like.shape, strict=True))
