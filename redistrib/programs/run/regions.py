"""Rules of operations that are whole functions: loops, branches, and proxies.

These operations are cut along the factors of the function's graph, and nothing is moved inside: a loop runs as a
loop on every device, its body once in the program, on the tiles of its carried values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core as jex

from redistrib.errors import ProgramError, RedistribError
from redistrib.errors.base import cut
from redistrib.programs.ir.graph import Array, CountedStep, Graph, Operation
from redistrib.programs.ir.nest import Nest
from redistrib.programs.rules.equation import (
    ArrayForm,
    At,
    CallRule,
    Equation,
    access,
    letters,
    scan_form,
    while_form,
    with_scalar_condition,
)
from redistrib.programs.rules.public import require_run
from redistrib.programs.rules.sums import can_be_summed
from redistrib.programs.run.region import Region, as_integers, nest_of, region_rule
from redistrib.programs.schedule.factors import factors


def _require_no_keys(equation: Equation) -> None:
    """Refuse an effect in a function that takes keys of random numbers: inside, they are integers."""
    if equation.effectful and any(form.key is not None for form in (*equation.ins, *equation.outs)):
        raise ProgramError(
            equation.kind, "", "Effect", "a function with an effect takes or makes keys of random numbers; carry what "
            "jax.random.key_data makes of them, and wrap it inside",
        )  # fmt: skip


def _of_integers(closed: Any, ins: Sequence[ArrayForm]) -> Callable[..., list[Any]]:
    """A function of arrays in which keys of random numbers are their integers."""
    function = jex.jaxpr_as_fun(closed)

    def call(*arrays: Any) -> list[Any]:
        operands = [
            array if form.key is None else jax.random.wrap_key_data(array, impl=form.key)
            for array, form in zip(arrays, ins, strict=True)
        ]
        return [as_integers(result) for result in function(*operands)]

    return call


@region_rule("scan")
def _scan(equation: Equation) -> Nest | None:
    params, loop = equation.params, scan_form(equation.params, equation.ins, equation.outs)
    stacked, stacks = range(loop.held, len(equation.ins)), range(loop.carried, len(equation.outs))
    forms = [form._replace(shape=form.shape[1:]) if k in stacked else form for k, form in enumerate(equation.ins)]
    _require_no_keys(equation)
    again, literals = {loop.constants + k: k for k in range(loop.carried)}, equation.literals
    has_keys = any(form.key is not None for form in (*equation.ins, *equation.outs))
    step_function = _of_integers(params["jaxpr"], forms) if has_keys else params["jaxpr"]
    region = Region(step_function, forms, equation, again)

    def run(parts: At, operands: Sequence[Any]) -> list[Any]:
        fixed, start, arrays = loop.operands(operands)

        def step(carry: Any, entries: Any) -> Any:
            return loop.results(region.run(parts, [*fixed, *carry, *entries]))

        carry, left = lax.scan(step, [*start], [*arrays], length=loop.steps, reverse=loop.reverse)
        return [*carry, *left]

    flops = region.flops * loop.steps
    are_numbers = all(equation.ins[k].key is None and not np.ndim(value) for k, value in literals.items())
    is_plain = are_numbers and not region.constants
    counted = CountedStep(region.graph, loop, literals)
    return nest_of(equation, region.factors, run, flops, stacked, stacks, counted if is_plain else None)


@region_rule("while")
def _while(equation: Equation) -> Nest | None:
    try:
        params, is_other = with_scalar_condition(equation.params)
    except (NameError, ValueError):
        if not equation.axes.names:
            raise
        raise ProgramError(
            equation.kind, "", "Region", "in a region of jax.shard_map it has a condition for each row that jax.vmap "
            "maps over; map the region instead, or go on while any row does",
        ) from None  # fmt: skip
    if is_other:
        return None
    form = while_form(params)
    of_condition, of_step, state = form.operands(equation.ins)
    _require_no_keys(equation)
    carried = {form.constants + k: k for k in range(len(state))}
    region = Region(params["body_jaxpr"], [*of_step, *state], equation, carried)
    test = Region(params["cond_jaxpr"], [*of_condition, *state], equation)
    test.factors = []  # it runs whole on every device
    inner = params["cond_jaxpr"].jaxpr
    read = {id(var) for eqn in inner.eqns for var in eqn.invars} | {id(var) for var in inner.outvars}
    looked_at = [k for k, var in enumerate(inner.invars[form.tested :]) if id(var) in read]
    region.factors = [  # all devices must take the same number of steps
        factor for factor in region.factors if all(factor.outs[k] is None and k not in factor.summed for k in looked_at)
    ]
    while_factors = [
        replace(
            factor, ins=(*[None] * form.tested, *factor.ins), begins=frozenset(k + form.tested for k in factor.begins)
        )
        for factor in region.factors
    ]

    def run(parts: At, operands: Sequence[Any]) -> Any:
        tested, fixed, start = form.operands(operands)
        return lax.while_loop(
            lambda state: test.run({}, [*tested, *state])[0],
            lambda state: region.run(parts, [*fixed, *state]),
            [*start],
        )

    flops = equation.trip_count * (test.flops + region.flops)
    return nest_of(equation, while_factors, run, flops)


@region_rule("cond")
def _cond(equation: Equation) -> Nest | None:
    """Cut a `cond` along dimensions that all branches have in common; all devices run the same branch."""
    _require_no_keys(equation)
    branches = equation.params["branches"]
    regions = [Region(branch, equation.ins[1:], equation) for branch in branches]
    joined = _joined([region.graph for region in regions], len(equation.ins) - 1, equation.outs)
    shared = [
        replace(factor, ins=factor.ins[: len(equation.ins) - 1])
        for factor in factors(joined)
        if all(dim is None for dim in factor.ins[len(equation.ins) - 1 :])
    ]
    first = 0
    for region in regions:
        last = first + len(region.graph.operations)
        region.factors = [
            replace(factor, work={k - first: dim for k, dim in factor.work.items() if first <= k < last})
            for factor in shared
        ]
        first = last

    def run(parts: At, operands: Sequence[Any]) -> Any:
        index, *branch_operands = operands
        return lax.switch(
            index, [lambda *tiles, branch=region: branch.run(parts, tiles) for region in regions], *branch_operands
        )

    cond_factors = [
        replace(factor, ins=(None, *factor.ins), begins=frozenset(k + 1 for k in factor.begins)) for factor in shared
    ]
    return nest_of(equation, cond_factors, run, max(region.flops for region in regions))


def _joined(graphs: Sequence[Graph], shared: int, outs: Sequence[ArrayForm]) -> Graph:
    """Graphs that start from the same arrays as one graph, whose results join those of all: cut equally or not at all.

    Args:
        graphs: the branches.
        shared: how many of their inputs, the first, are the same.
        outs: the results of each.
    """
    inputs = list(graphs[0].inputs[:shared])
    operations: list[Operation] = []
    ends: list[list[str]] = [[] for _ in outs]
    for number, graph in enumerate(graphs):
        names = {array.name: array.name for array in graph.inputs[:shared]}
        names.update({name: f"{number}/{name}" for name in graph.arrays if name not in names})
        inputs += [array._replace(name=names[array.name]) for array in graph.inputs[shared:]]
        for operation in graph.operations:
            made = tuple(array._replace(name=names[array.name]) for array in operation.outs)
            operations.append(replace(operation, ins=tuple(names[name] for name in operation.ins), outs=made))
        for end, name in zip(ends, graph.outputs, strict=True):
            end.append(names[name])
    results = [Array(f"out{k}", form.shape, form.dtype) for k, form in enumerate(outs)]
    for end, result in zip(ends, results, strict=True):
        dims = letters("d", result.shape)
        ins = tuple(access(f"a{k}", list(dims), result.shape) for k in range(len(end)))
        linear = (tuple(range(len(end))),) if can_be_summed(result.dtype) else ()
        nest = Nest(
            result.name,
            tuple((name, range(size)) for name, size in dims.items()),
            ins,
            (access("out", list(dims), result.shape),),
            linear=linear,
        )
        operations.append(Operation(nest, "join", tuple(end), (result,)))
    return Graph(tuple(inputs), tuple(operations), tuple(result.name for result in results))


def proxy(pure: Callable[..., Any], run: Callable[..., Any] | None = None) -> CallRule:
    """A rule of an operation that nothing is known of, by a function that computes the same and can be traced.

    Given to `rd.distribute` in `rules`, by the name of a primitive or of a jitted function (`rules={"flash":
    rd.proxy(attention, run=flash)}` for calls of `flash`). The dimensions along which the proxy may be cut with nothing
    moved inside are those along which the operation may be; the proxy itself never runs.

    Args:
        pure: takes the operands of the operation and makes arrays of the same shapes and types.
        run: called with tiles in the place of the operation; it must take any tile that a cut leaves. By default the
            primitive with its parameters as they are; calls of jitted functions need it.

    Returns:
        The rule. Applied, it raises `ProgramError` where `pure` makes other results, or `run` is missing.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> kernel = jax.jit(lambda x: jax.pure_callback(lambda a: a + 1, x, x))  # such as a kernel in another language
    >>> rules = {"<lambda>": proxy(lambda x: x + 1, run=kernel)}
    >>> rows = rd.along("d", {"x": 0})
    >>> f = rd.distribute(kernel, (jnp.ones((8, 4)),), {"d": 4}, schedule=[rows], rules=rules)
    >>> f.program.received_bytes
    0
    """

    def rule(equation: Equation) -> Nest | None:
        require_run(equation, run, "Proxy")
        others = {kind: other for kind, other in equation.rules.items() if not isinstance(other, CallRule)}
        try:
            region = Region(pure, equation.ins, equation, rules=others)  # a function may call its operation
        except RedistribError:
            raise
        except Exception as error:  # the user's function, which takes other operands
            why = f"its proxy cannot be traced for {_listed(equation.ins)}: {cut(str(error).strip(), 200)}"
            raise ProgramError(equation.kind, "", "Proxy", f"{why}; give a function of its operands") from error
        arrays = region.graph.arrays
        shapes = [(arrays[name].shape, arrays[name].dtype) for name in region.graph.outputs]
        expected = [(form.shape, form.dtype) for form in equation.outs]
        if shapes != expected:
            raise ProgramError(
                equation.kind,
                "",
                "Proxy",
                f"its proxy makes {shapes} and not {expected}; give a function with its results",
            )

        def call(parts: At, operands: Sequence[Any]) -> Sequence[Any]:
            if run is not None:
                return list(jax.tree.leaves(run(*operands)))
            results = equation.primitive.bind(*operands, **equation.params)
            return list(results) if equation.primitive.multiple_results else [results]

        return nest_of(equation, region.factors, call, region.flops)

    return CallRule(rule, run)


def _listed(forms: Sequence[ArrayForm]) -> str:
    return ", ".join(f"{form.dtype}{list(form.shape)}" for form in forms) or "no operands"
