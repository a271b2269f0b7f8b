"""Results that nothing reads: a branch need not compute them, nor have their operands moved for it.

XLA leaves them out when it compiles, for example the operands that an error check passes through. A program from which
they were not left out would predict moves that are never made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from jax.extend import core as jex

from redistrib.backends.jax.private import without_dead_code
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Fusion


@dataclass
class JaxprReads:
    """What is read in a jaxpr, by the ids of its variables.

    Attributes:
        jaxpr: the equations.
        used: whether a result is read; None: all are.
    """

    jaxpr: Any = None
    used: Sequence[bool] | None = None

    @cached_property
    def uses(self) -> Counter[int]:
        """How often a variable is read."""
        read = chain(self.jaxpr.outvars, *(eqn.invars for eqn in self.jaxpr.eqns))
        return Counter(map(id, read))

    @cached_property
    def live(self) -> set[int]:
        """The variables that the used results, or effects, need."""
        live = {id(var) for k, var in enumerate(self.jaxpr.outvars) if self.used is None or self.used[k]}
        for eqn in reversed(self.jaxpr.eqns):
            if eqn.effects or any(id(var) in live for var in eqn.outvars):
                live.update(map(id, eqn.invars))
        return live


class ReadResults(NamedTuple):
    """A `cond` of the results that are read alone.

    Attributes:
        eqn: the equation.
        ins: the places of its operands among those of the whole equation.
    """

    eqn: Any
    ins: tuple[int, ...]


def read_results(eqn: Any, used: Sequence[bool]) -> ReadResults | None:
    """A `cond` without the results that nothing reads; None where all are read, or none, or JAX cannot tell."""
    if all(used) or not any(used):
        return None
    branches = eqn.params["branches"]
    pruned = [without_dead_code(branch.jaxpr, used) for branch in branches]
    if None in pruned:
        return None
    needed = [any(column) for column in zip(*(branch[1] for branch in pruned if branch), strict=True)]
    live = [without_dead_code(branch.jaxpr, used, needed) for branch in branches]
    closed = tuple(jex.ClosedJaxpr(new[0], old.consts) for new, old in zip(live, branches, strict=True) if new)
    ins = (0, *(k + 1 for k, is_needed in enumerate(needed) if is_needed))
    outs = [var for var, is_used in zip(eqn.outvars, used, strict=True) if is_used]
    params = {**eqn.params, "branches": closed}
    return ReadResults(eqn.replace(invars=[eqn.invars[k] for k in ins], outvars=outs, params=params), ins)


def passed_on(eqn: Any) -> dict[int, int]:
    """The results of a `cond` that are an operand, by the numbers of the two.

    In its derivative the branch that needs an operand later returns it, and the others leave that result empty: what
    stands there is never read, so that it may be the operand as well, which has no reason to lie as the others do.
    """
    by_result = zip(*(_sources(branch.jaxpr) for branch in eqn.params["branches"]), strict=True)
    passed = {}
    for k, sources in enumerate(by_result):
        arguments = {*sources} - {_EMPTY}
        if len(arguments) == 1 and (number := arguments.pop()) is not None:
            passed[k] = number + 1  # after the number of the branch
    return passed


_EMPTY = -1


def _sources(jaxpr: Any) -> list[int | None]:
    """For each result the number of the argument that it is, `_EMPTY` for one without a value, None for others."""
    sources: dict[int, int | None] = {id(argument): number for number, argument in enumerate(jaxpr.invars)}
    for eqn in jaxpr.eqns:
        kind = eqn.primitive.name
        repeats = record_of(kind).fusion is Fusion.BROADCAST and sources.get(id(eqn.invars[0])) == _EMPTY
        if repeats or kind in ("empty", "empty2"):
            sources[id(eqn.outvars[0])] = _EMPTY
    return [sources.get(id(var)) for var in jaxpr.outvars]
