"""Regions of `jax.shard_map`: operations that are cut as their specs say, and whose body runs as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jax.extend import core as jex

from redistrib.errors import JaxVersionError, ProgramError
from redistrib.programs.ir.graph import Operation, Pinned
from redistrib.programs.rules.effects import effects_of
from redistrib.programs.rules.equation import ArrayForm, Atom, form_of
from redistrib.programs.rules.traced import TraceOptions

REGION = "shard_map"


@dataclass(frozen=True)
class ShardMap:
    """An equation of `jax.shard_map`.

    Attributes:
        shape: sizes of the axes of its mesh.
        manual: the axes along which its body is written by hand.
        ins, outs: for every operand and result, and every dimension that has a spec, the axes that cut it.
        body: of the tiles.
    """

    shape: Mapping[str, int]
    manual: frozenset[str]
    ins: tuple[tuple[tuple[str, ...], ...], ...]
    outs: tuple[tuple[tuple[str, ...], ...], ...]
    body: jex.ClosedJaxpr

    @staticmethod
    def of(params: Mapping[str, Any]) -> ShardMap:
        """The region of an equation's parameters.

        Raises:
            JaxVersionError: if this JAX has other parameters.
        """
        manual = params.get("newly_manual_axes", params.get("manual_axes"))  # the name until JAX 0.9
        if manual is None or "in_specs" not in params:
            import jax

            raise JaxVersionError("what jax.shard_map is traced to", jax.__version__)
        ins, outs = (tuple(map(_axes_of, params[side])) for side in ("in_specs", "out_specs"))
        jaxpr = params["jaxpr"]
        body = jaxpr if isinstance(jaxpr, jex.ClosedJaxpr) else jex.ClosedJaxpr(jaxpr, ())
        return ShardMap(dict(params["mesh"].shape), frozenset(manual), ins, outs, body)


def _axes_of(spec: Any) -> tuple[tuple[str, ...], ...]:
    """For every dimension of a spec the axes that cut it."""
    return tuple(() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in spec)


def shard_dim(axis: str) -> str:
    """The iteration dimension of a region that a mesh axis cuts: one point for each device along it."""
    return f"shard_{axis}"


class RegionTracer(Protocol):
    """The part of a tracer that regions need."""

    operations: list[Operation]
    options: TraceOptions

    def equation(self, eqn: Any, ins: Sequence[Atom], source: str) -> list[Atom]: ...

    def materialized(self, atom: Atom, form: ArrayForm) -> str: ...


def region(tracer: RegionTracer, eqn: Any, ins: Sequence[Atom], source: str) -> list[Atom]:
    """Add a region as one operation, pinned to its specs.

    Raises:
        ProgramError: if its mesh has axes that no axes of the program's mesh stand for, or its body has an effect.
    """
    specs = ShardMap.of(eqn.params)
    own = tracer.options.axes
    axes = own.matched(specs.shape)
    if axes is None:
        ours = str(dict(own.sizes)) if own.sizes else "no mesh with names"
        raise ProgramError(
            REGION, "", "Place", f"it is over the mesh {dict(specs.shape)}, and the function is distributed over "
            f"{ours}; give a mesh with axes of these sizes, or write the region without jax.shard_map and jax.pmap",
        )  # fmt: skip
    if effects_of(eqn):
        raise ProgramError(
            REGION, "", "Effect", "its body has an effect, which each device would have by itself; take it out of the "
            "body",
        )  # fmt: skip
    names = [tracer.materialized(atom, form_of(var.aval)) for atom, var in zip(ins, eqn.invars, strict=True)]
    outs = tracer.equation(eqn, names, source)
    operation = tracer.operations[-1]
    manual = [axis for axis in own.sizes if any(axis in axes[name] for name in specs.manual)]
    cut = tuple((axis, own.sizes[axis], shard_dim(axis)) for axis in manual)
    if not own.is_inside:
        free = frozenset(operation.nest.position) - {dim for _, _, dim in cut}
        tracer.operations[-1] = replace(operation, pinned=Pinned(cut, free))
    return outs
