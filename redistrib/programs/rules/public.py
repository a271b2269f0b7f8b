"""Rules in a line of notation, for kernels and primitives that the library does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax

from redistrib.errors import ProgramError
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.record import Fusion, Record, Tails, WorkClass
from redistrib.programs.rules.equation import At, CallRule, Equation

_FUSIONS = tuple(
    map(str, (Fusion.NEST, Fusion.COSTLY, Fusion.ALONE, Fusion.LAYOUT, Fusion.RESHAPE, Fusion.SLICE, Fusion.CONVERT))
)
_WORKS = tuple(str(work) for work in WorkClass if work not in (WorkClass.NONE, WorkClass.TRANSPOSE))


def rule(
    spec: str,
    run: Callable[..., Any] | None = None,
    *,
    combine: str | Mapping[str, str] = "sum",
    flops: int = 1,
    fusion: str = "",
    work: str = "",
) -> CallRule:
    """A rule for a primitive, or for calls of a jitted function, from the dimensions along which it may be cut.

    Given to `rd.distribute` in `rules`, by name: `rules={"scaled": rd.rule("rows ., . -> rows .")}`. Names before the
    arrow are those of the operands' dimensions, after it those of the results'; operands are parted by commas, and a
    scalar has none. A dimension with a name may be cut, in all arrays that have the name. A dimension `.` is whole on
    every device. The operation must give the tile of its result for tiles of its operands, of any size.

    Args:
        spec: see above. JAX's own `sharding_rule` of `custom_partitioning` has the same form.
        run: called with tiles in the place of the operation, and returns its results; by default the primitive with its
            parameters as they are. Calls of jitted functions, and primitives whose parameters hold shapes, need it.
        combine: how the results along a dimension that no result has are combined: `"sum"`, `"max"` or `"min"`, or one
            for each name.
        flops: floating-point operations at each point of the named dimensions.
        fusion: how compilers fuse the operation: `"nest"` as the spec says (a loop where each element of the results
            is made of one of each operand, a reduction, or a product), `"costly"` so, but computed once, `"alone"` as a
            kernel of its own, or as a part of loops that moves elements: `"layout"`, `"reshape"` in their order,
            `"slice"` or `"convert"`. By default as the library knows the primitive; others as `"nest"`.
        work: its class, of which a machine may have a rate of its own, `"function"` for instance; by default that of
            the primitive, none for those that the library does not know.

    Returns:
        The rule. Applied, it raises `ProgramError` where the spec does not fit the operation, or `run` is missing.

    Raises:
        ProgramError: if the spec has no arrow, a dimension of a result is in no operand, or no class has the name.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> scaled = jax.jit(lambda x, by: x * by)
    >>> rules = {"<lambda>": rd.rule("rows columns, columns -> rows columns", run=scaled)}
    >>> x, by = jnp.ones((8, 4)), jnp.arange(4.0)
    >>> f = rd.distribute(scaled, (x, by), {"d": 4}, schedule=[rd.along("d", {"x": 0})], rules=rules)
    >>> f.program.received_bytes
    0
    """
    sides = [[operand.split() for operand in side.split(",")] for side in spec.split("->")]
    if len(sides) != 2:
        raise ProgramError("", "", "Rule", f"{spec!r} has not one arrow; write it as 'rows k, k n -> rows n'")
    reads, writes = sides
    named = [name for dims in reads for name in dims if name != "."]
    lost = [name for dims in writes for name in dims if name != "." and name not in named]
    if lost:
        raise ProgramError(
            "", "", "Rule", f"{', '.join(lost)} of a result of {spec!r} is in no operand; write '.' for it"
        )
    _require_known("fusion", fusion, _FUSIONS)
    _require_known("work", work, _WORKS)
    combiner = combine if isinstance(combine, Mapping) else dict.fromkeys(named, combine)

    def record_for(known: Record) -> Record:
        return replace(
            known,
            fusion=Fusion(fusion) if fusion else known.fusion,
            work=WorkClass(work) if work else known.work,
            tails=Tails.FREE if known.tails is Tails.NEVER else known.tails,
        )

    def apply(equation: Equation) -> Nest:
        require_run(equation, run, "Rule")
        ins, outs = _fitting(equation, spec, reads, writes)
        sizes = {
            name: size
            for dims, form in zip(ins, equation.ins, strict=True)
            for name, size in zip(dims, form.shape, strict=True)
            if name
        }

        def body(at: At, *tiles: Any) -> Any:
            if run is not None:
                return tuple(jax.tree.leaves(run(*equation.operands(tiles))))
            return equation.run(tiles)

        summed = [name for name in sizes if any(name not in dims for dims in outs)]
        combined = {name: combiner[name] for name in summed if name in combiner}
        record = record_for(equation.record)
        nest = equation.nest(sizes, ins, outs, body=body, combine=combined, flops=flops, record=record)
        for k, read in zip(equation.reads, nest.reads, strict=True):
            if nest.shape(read) != equation.ins[k].shape:
                why = f"{spec!r} gives one name to dimensions of unequal sizes, one in {equation.ins[k].shape}"
                raise ProgramError(equation.kind, read.array, "Rule", f"{why}; give each its own")
        return nest

    return CallRule(apply, run)


def require_run(equation: Equation, run: object, kind: str) -> None:
    """Refuse a call of a jitted function without a function of tiles; `kind` is that of the rule."""
    if equation.called and run is None:
        why = "a jitted function is traced for whole arrays; give run=, which takes tiles"
        raise ProgramError(equation.kind, "", kind, why)


def _require_known(noun: str, name: str, known: tuple[str, ...]) -> None:
    if name and name not in known:
        raise ProgramError("", "", "Rule", f"no class {name!r} of {noun}; take one of {', '.join(known)}")


def _fitting(
    equation: Equation, spec: str, reads: list[list[str]], writes: list[list[str]]
) -> tuple[list[list[str]], list[list[str]]]:
    """The accesses of operands and results, `""` for whole ones; they must have the operation's ranks."""
    for noun, accesses, forms in (("operands", reads, equation.ins), ("results", writes, equation.outs)):
        ranks, expected = [len(dims) for dims in accesses], [len(form.shape) for form in forms]
        if ranks != expected:
            raise ProgramError(
                equation.kind, "", "Rule", f"{spec!r} has {noun} of {ranks} dimensions, and the operation of {expected}"
            )
    ins, outs = ([["" if name == "." else name for name in dims] for dims in side] for side in (reads, writes))
    return ins, outs
