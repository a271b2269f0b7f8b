"""A program as a function of local tiles, for a single `shard_map`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import numpy as np
import numpy.typing as npt
from jax import lax

from redistrib.backends.jax.context import LoweringContext, context_of
from redistrib.backends.jax.lowering import after, local_program
from redistrib.backends.jax.names import named, scope_name
from redistrib.backends.jax.offsets import integers_for
from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.rows import over_program_tiles
from redistrib.backends.jax.sharding import JaxMesh, named_sharding, partition_spec
from redistrib.backends.jax.values import as_integer_bits
from redistrib.errors import ProgramError
from redistrib.plans.data import Schedule
from redistrib.plans.plan import Plan
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import inlined, with_steps
from redistrib.programs.ir.program import Compute, Loop, Move, Program, Value
from redistrib.programs.run.jax.halos import part_of_halos, with_halos
from redistrib.programs.run.region import TracedRange
from redistrib.theory.placement import Int64, placement_of

Compiled: TypeAlias = Callable[[Compute, Mapping[str, jax.Array]], dict[str, jax.Array]]


def mapped(
    program: Program,
    mesh: JaxMesh,
    schedule: Schedule | None = None,
    *,
    in_order: bool = False,
    compute: Compiled | None = None,
) -> Callable[..., Any]:
    """The program as a function of global arrays: a single `shard_map` over the mesh.

    Args:
        program: the program.
        mesh: a JAX mesh with the axes of the program's mesh.
        schedule: of the plans, see `to_jax`.
        in_order: whether a move begins only after the operation before it. Otherwise the compiler may start all moves
            at the beginning, and reuse the result of an equal move.
        compute: from an operation and tiles by name to its results; by default bodies get the start of a part as a
            traced number.
    """
    require_tiles_apart(program)
    flat = inlined(program)
    specs = [partition_spec(value.type) for value in flat.inputs]
    ends = [partition_spec(flat.values[name].type) for name in flat.outputs]
    platform = Platform.of(mesh)

    def local(*tiles: jax.Array) -> list[jax.Array]:
        return run_local(flat, tiles, platform, schedule, in_order=in_order, compute=compute)

    return over_program_tiles(local, mesh, specs, ends)


def require_tiles_apart(program: Program) -> None:
    """Refuse a program whose tiles overlap, except for halos of its moves; JAX has no such arrays.

    Raises:
        ProgramError: for the first value with such tiles.
    """
    for value in (value for inner in with_steps(program) for value in inner.values.values()):
        if value.windows and (not value.has_halos or value in program.inputs):
            raise ProgramError("", value.name, "Window", "tiles that overlap run through MPI, not in JAX")


def shardings(values: Sequence[Value], mesh: JaxMesh) -> list[jax.sharding.NamedSharding]:
    """The shardings of values on a JAX mesh."""
    return [named_sharding(value.type, value.place.mesh, mesh) for value in values]


def run_local(
    program: ProgramData,
    tiles: Sequence[jax.Array],
    platform: Platform,
    schedule: Schedule | None = None,
    *,
    in_order: bool = False,
    compute: Compiled | None = None,
) -> list[jax.Array]:
    """The outputs' tiles from the inputs' tiles on the running device; traced under manual axes."""

    def run(inner: ProgramData, tiles: Sequence[jax.Array]) -> list[jax.Array]:
        return run_local(inner, tiles, platform, schedule, in_order=in_order, compute=compute)

    env = {value.name: tile for value, tile in zip(program.inputs, tiles, strict=True)}
    latest: jax.Array | None = None
    for op in program.ops:
        match op:
            case Compute():
                with jax.named_scope(scope_name(op.name)):
                    results = (compute or _compute)(op, env)
                env |= results
                latest = next((tile for tile in results.values() if tile.size), latest)
            case Move():
                tile = env[op.value]
                if op.plan is not None:
                    if in_order and latest is not None:
                        mesh = op.plan.source_mesh
                        tile = after(latest, tile, LoweringContext(mesh.names, mesh.shape, mesh.devices))
                    with jax.named_scope(scope_name(op.value)):
                        tile = _moved(op.plan, tile, platform, schedule)
                elif (held := program.values[op.value]).has_halos:
                    tile = part_of_halos(held, op.out, tile)
                elif op.out.has_halos:
                    mesh = op.out.place.mesh
                    context = LoweringContext(mesh.names, mesh.shape, mesh.devices)
                    if in_order and latest is not None:
                        tile = after(latest, tile, context)
                    with jax.named_scope(scope_name(op.value)):
                        tile = with_halos(op.out, tile, context)
                env[op.out.name] = tile
            case Loop():
                left = _looped(op, [env[name] for name in op.ins], run)
                env |= zip((value.name for value in op.outs), left, strict=True)
                latest = next((tile for tile in left if tile.size), latest)
    return [env[name] for name in program.outputs]


def _looped(
    op: Loop, ins: Sequence[jax.Array], run: Callable[[ProgramData, Sequence[jax.Array]], list[jax.Array]]
) -> list[jax.Array]:
    """The results of a loop: the program of a step is traced once, as the body of a loop of JAX."""
    form, condition = op.form, op.condition
    fixed, start, arrays = form.operands(ins)
    if condition is not None:
        state_after = lax.while_loop(
            lambda state: run(condition, [*fixed, *state])[0], lambda state: run(op.program, [*fixed, *state]), [*start]
        )
        return list(state_after)

    def step(state: list[jax.Array], entries: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        left, made = form.results(run(op.program, [*fixed, *state, *entries]))
        return [*left], [*made]

    state, stacked = lax.scan(step, [*start], [*arrays], length=form.steps, reverse=form.reverse)
    return [*state, *stacked]


def _compute(op: Compute, tiles: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    env: dict[str, Any] = {array: tiles[name] for array, name in op.ins}
    mesh = op.place.mesh
    where = LoweringContext(mesh.names, mesh.shape, mesh.devices)
    for part in op.parts:
        nest = part.nest
        assert nest.body is not None
        cut = placement_of(part.cut, mesh)
        at = {}
        for k, ((name, over), tile) in enumerate(zip(nest.ranges, cut.tile, strict=True)):
            start: Any = over.start
            if name in nest.indexed and tile < len(over):
                start = where.lookup(_counted(over.start + cut.start[:, k], over, name, op))
            at[name] = TracedRange(start, tile)
        returned = nest.body(at, *(env[access.array] for access in nest.reads))
        results = returned if isinstance(returned, tuple) else (returned,)
        env.update(zip((access.array for access in nest.writes), results, strict=True))
    return {value.name: env[array] for array, value in op.outs}


def _counted(starts: Int64, over: range, name: str, op: Compute) -> npt.NDArray[np.integer[Any]]:
    """The start of each device's part of an iteration dimension, in integers that count to its end.

    Raises:
        ProgramError: if they need 64 bits, and JAX has none.
    """
    wide = integers_for(over.stop)
    if jax.dtypes.canonicalize_dtype(wide) == wide:
        return starts.astype(wide)
    raise ProgramError(
        op.name, "", "Nest", f"its body counts along {name!r}, of {len(over):,} points, which takes 64 bits; set "
        f"jax_enable_x64, or do not cut {name!r}",
    )  # fmt: skip


def _moved(plan: Plan, tile: jax.Array, platform: Platform, schedule: Schedule | None) -> jax.Array:
    mesh = plan.source_mesh
    context = context_of(plan, mesh.names, mesh.shape, mesh.devices, schedule, platform)
    context = replace(context, gathers_in_shape=True)  # an operation may write into the value that is moved
    return as_integer_bits(named(local_program(plan.steps, context), plan))(tile)
