"""Operations that call back into Python: they run once in a call, in order.

As under `jax.jit`, a callback runs once, on whole arrays: every device has the arrays, and the first device of the mesh
calls. All devices receive the results from it. Other effects are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import io_callback

from redistrib.errors import ProgramError
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Effects
from redistrib.programs.rules.equation import At, Equation, rule

_WAYS_OUT = {
    "check": "give the function that jax.experimental.checkify.checkify returns",
    "new_ref": "return the new value in the place of writing into a reference",
}


def require_arrays(operation: str, avals: Sequence[Any]) -> None:
    """Refuse values that are no arrays, for example references to mutable arrays.

    Raises:
        ProgramError: names the operation and the type.
    """
    for aval in avals:
        if not isinstance(aval, jax.core.ShapedArray):
            raise ProgramError(
                operation, "", "Effect", f"a value of type {aval} is no array, and what reads and writes it in place "
                f"cannot be distributed; {_WAYS_OUT['new_ref']}",
            )  # fmt: skip


def effects_of(eqn: Any) -> tuple[Any, ...]:
    """The effects of an equation; that it names an axis of a mesh, as collectives do, is none."""
    effects = eqn.effects
    return tuple([effect for effect in effects if type(effect).__name__ != "NamedAxisEffect"]) if effects else ()


def require_known(eqn: Any, has_rule: bool) -> None:
    """Refuse an equation with an effect that is not supported.

    Raises:
        ProgramError: names the operation and its effects.
    """
    kind = eqn.primitive.name
    require_arrays(kind, [var.aval for var in (*eqn.invars, *eqn.outvars)])
    effects = effects_of(eqn)
    if effects and not has_rule and record_of(kind).effects is Effects.REFUSED:
        names = ", ".join(sorted({type(effect).__name__ for effect in effects}))
        way_out = _WAYS_OUT.get(kind, "leave the operation out, or give a rule for it in rules=")
        raise ProgramError(kind, "", "Effect", f"it has the effect {names}, which is not carried; {way_out}")
    if not has_rule and eqn.params.get("partitioned") and record_of(kind).effects is Effects.CALLBACK:
        raise ProgramError(
            kind, "", "Effect", "with partitioned=True it shows the part of each device, and how arrays are cut is not "
            "known before they are distributed; leave partitioned=False",
        )  # fmt: skip


def require_no_axes(eqn: Any) -> None:
    """Refuse an equation without a rule that names axes of a mesh, in a region: it would run along other axes.

    Raises:
        ProgramError: names the operation.
    """
    if len(effects_of(eqn)) < len(eqn.effects):
        raise ProgramError(
            eqn.primitive.name, "", "Region", "it has collectives of a region of jax.shard_map inside, and no rule "
            "says how it runs; write it with jax.lax operations, or call it outside of the region",
        )  # fmt: skip


def params_of(eqn: Any) -> dict[str, Any]:
    """The parameters of an equation without the device that calls back, which a program of many devices cannot name."""
    calls = eqn.primitive.name in ("io_callback", "pure_callback")
    return {**eqn.params, "sharding": None} if calls else dict(eqn.params)


@rule("debug_print", "debug_callback", "io_callback")
def _callback(equation: Equation) -> Nest:
    """A callback on whole arrays; it cannot be cut."""
    ins, outs = ([("",) * len(form.shape) for form in side] for side in (equation.ins, equation.outs))

    def body(at: At, *tiles: Any) -> tuple[jax.Array, ...]:
        return _on_the_first(equation, equation.operands(tiles))

    return equation.nest({}, ins, outs, body=body, flops=0)


def _on_the_first(equation: Equation, operands: Sequence[Any]) -> tuple[jax.Array, ...]:
    """Call back on the first of the devices that run this together; all of them get the results."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(mesh.manual_axes)
    alone = math.prod(mesh.shape[axis] for axis in axes) == 1
    call = partial(_call, equation, alone=alone)
    if alone:
        return tuple(call(*operands))

    def nothing(*arrays: Any) -> list[jax.Array]:
        return [jnp.zeros(form.shape, form.dtype) for form in equation.outs]

    results = lax.cond(lax.axis_index(axes) == 0, call, nothing, *operands)
    return tuple(_sum_of_bits(result, axes) for result in results)


def _call(equation: Equation, *arrays: Any, alone: bool) -> list[Any]:
    params = equation.params
    in_order = params.get("ordered") or str(params.get("effect")) == "OrderedDebug"
    if alone or not in_order or equation.kind == "io_callback":
        return list(equation.primitive.bind(*arrays, **params))

    def show(*values: Any) -> None:
        equation.primitive.bind(*values, **params)

    # JAX keeps debugging effects in order on one device alone, and input and output on any number of devices.
    io_callback(show, None, *arrays, ordered=True)
    return []


def _sum_of_bits(array: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """The array of the first device, by a sum of integers: the other devices add zeros, so all bits stay."""
    dtype = array.dtype
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return lax.complex(_sum_of_bits(array.real, axes), _sum_of_bits(array.imag, axes))
    if jnp.issubdtype(dtype, jnp.floating):
        bits = lax.bitcast_convert_type(array, f"uint{jnp.finfo(dtype).bits}")
        return lax.bitcast_convert_type(_sum_of_bits(bits, axes), dtype)
    if dtype == jnp.bool_ or jnp.iinfo(dtype).bits < 8:
        wide: jax.Array = lax.psum(array.astype(jnp.int32), axes)
        return wide.astype(dtype)
    whole: jax.Array = lax.psum(array, axes)
    return whole
