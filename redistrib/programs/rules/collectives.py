"""Rules of collectives, which stand in regions of `jax.shard_map`: dimensions that they do not exchange may be cut.

A region runs where all axes of the mesh are manual and JAX does not check which values vary between devices. So its
collectives are those without this check, along the axes of the mesh that stand for the region's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from jax import lax

from redistrib.programs.ir.nest import Nest
from redistrib.programs.rules.equation import At, Equation, EquationBody, Rule, results, rule

COLLECTIVES: dict[str, Rule] = {}
_collective = partial(rule, table=COLLECTIVES)


def _axes(equation: Equation) -> tuple[str, ...]:
    """The axes of the mesh along which a collective runs."""
    return equation.axes.of(equation.params["axes" if "axes" in equation.params else "axis_name"])


def _run(equation: Equation, tiles: Any) -> Any:
    return equation.run(tiles, **{"axes" if "axes" in equation.params else "axis_name": _axes(equation)})


def _nest(
    equation: Equation, exchanged: Collection[int] = (), run: Callable[[Any], Any] | None = None, *, shift: int = 0
) -> Nest:
    """The nest of a collective.

    Args:
        equation: with as many results as operands.
        exchanged: dimensions that stay whole.
        run: from one operand to its result; by default the primitive itself.
        shift: dimensions that the result has more than the operand, the exchanged ones among them.
    """
    sizes: dict[str, int] = {}
    ins: list[list[str]] = []
    outs: list[list[str]] = []
    for k, form in enumerate(equation.ins):
        wide = max(len(form.shape), len(form.shape) + shift)
        names = ["" if i in exchanged else f"a{k}d{i}" for i in range(wide)]
        dropped = [name for i, name in enumerate(names) if i not in exchanged]
        ins.append(dropped if shift > 0 else names)
        outs.append(dropped if shift < 0 else names)
        sizes |= {name: size for name, size in zip(ins[-1], form.shape, strict=True) if name}

    def body(at: At, *tiles: Any) -> Any:
        return _run(equation, tiles) if run is None else results([run(tile) for tile in equation.operands(tiles)])

    return equation.nest(sizes, ins, outs, body=EquationBody(equation, body), flops=0)


@_collective("psum", "psum_invariant")
def _sum(equation: Equation) -> Nest:
    groups = equation.params.get("axis_index_groups")
    return _nest(equation, run=lambda tile: lax.psum(tile, _axes(equation), axis_index_groups=groups))


@_collective("pmax", "pmin", "ppermute", "pbroadcast")
def _of_elements(equation: Equation) -> Nest:
    return _nest(equation)


@_collective("all_gather", "all_gather_invariant")
def _gather(equation: Equation) -> Nest:
    params = equation.params
    along, is_tiled = params["all_gather_dimension"], params["tiled"]

    def run(tile: Any) -> Any:
        groups = params.get("axis_index_groups")
        return lax.all_gather(tile, _axes(equation), axis=along, tiled=is_tiled, axis_index_groups=groups)

    return _nest(equation, {along}, run, shift=0 if is_tiled else 1)


@_collective("reduce_scatter")
def _scatter(equation: Equation) -> Nest:
    return _nest(equation, {equation.params["scatter_dimension"]}, shift=0 if equation.params["tiled"] else -1)


@_collective("all_to_all")
def _exchange(equation: Equation) -> Nest:
    return _nest(equation, {equation.params["split_axis"], equation.params["concat_axis"]})


@_collective("ragged_all_to_all")
def _ragged(equation: Equation) -> Nest:
    ins, outs = ([[""] * len(form.shape) for form in side] for side in (equation.ins, equation.outs))
    body = EquationBody(equation, lambda at, *tiles: _run(equation, tiles))
    return equation.nest({}, ins, outs, body=body, flops=0)


@_collective("axis_index")
def _index(equation: Equation) -> Nest:
    body = EquationBody(equation, lambda at: lax.axis_index(_axes(equation)))
    return equation.nest({}, [], [[]], body=body, flops=0)
