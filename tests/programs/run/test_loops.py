"""Loops of JAX as loops of programs: what moves inside, what is carried, what is printed."""

from __future__ import annotations

import inspect as source
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.explain.profiling.hlo import parse_module
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.ir.data import used_by
from redistrib.programs.ir.listing import rows_of
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import Loop, Program
from redistrib.programs.ir.project import RankLoop, project, run_ranks
from redistrib.programs.ir.reference import collect, distribute, run_by_rank, run_whole
from redistrib.programs.ir.text import bodies_of, to_text
from redistrib.programs.lower.behind import scattered_behind
from redistrib.programs.rules.equation import form_of, scan_form
from redistrib.programs.schedule.schedule import Schedule
from tests.programs.run.models import whole

LAYERS = 6
CUTS = [rd.along("d", {"x": 0}), rd.along("d", {"up": 1, "down": 1})]


def stack(params: Any, x: Any) -> Any:
    """An MLP with residuals, its layers by scan."""
    return lax.scan(lambda x, layer: (x + (x @ layer["up"]) @ layer["down"], None), x, params)[0]


def loss(params: Any, x: Any) -> Any:
    return stack(params, x).sum()


def arguments(layers: int = LAYERS) -> tuple[Any, Any]:
    """Small integers and many zeros: sums and products stay below 2^24 in the forward pass, and are exact."""
    up, down = (np.float32(whole(layers, *shape) % 5 == 0) for shape in ((8, 16), (16, 8)))
    return {"up": up, "down": down}, whole(16, 8) % 5


def loops_of(program: Any) -> list[Loop]:
    return [op for op in program.ops if isinstance(op, Loop)]


def kinds(program: Any) -> list[str]:
    return [step.kind for move in program.moves for step in move.plan.steps]


def same(f: Any, function: Any, *args: Any, exact: bool = True) -> None:
    """The values of `jax.jit`, and the bytes of the compiled text."""
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-5}
    for found, wanted in zip(*(jax.tree.leaves(run(*args)) for run in (f, jax.jit(function))), strict=True):
        np.testing.assert_allclose(found, wanted, **tolerance)
    assert inspect(f.lower().compile()).received_bytes == f.program.received_bytes


def test_constants_and_carried_values_of_a_scan_are_counted() -> None:
    """Whatever their shapes are: arrays that look like entries, keys, and arrays without elements."""

    def function(a: Any, b: Any, key: Any, xs: Any, keys: Any) -> Any:
        def step(carry: Any, entry: Any) -> Any:
            total, state, empty = carry
            row, other = entry
            return (total + a + b.sum(), jax.random.fold_in(state, 1), empty * 2), (
                row * 2,
                jax.random.fold_in(other, 1),
            )

        return lax.scan(step, (a, key, jnp.zeros((3, 0))), (xs, keys))

    a, key = jnp.ones((3, 3)), jax.random.key(0)
    jaxpr = jax.make_jaxpr(function)(a, jnp.ones((3, 2)), key, jnp.ones((3, 3)), jax.random.split(key, 3))
    (eqn,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]
    forms = [[form_of(var.aval) for var in side] for side in (eqn.invars, eqn.outvars)]
    assert [len(side) for side in forms] == [2 + 3 + 2, 3 + 2]
    assert scan_form(eqn.params, *forms) == (2, 3, 3, False)


def test_weights_are_gathered_in_the_step_that_reads_them() -> None:
    args = arguments()
    f = rd.distribute(stack, args, {"d": 8}, schedule=CUTS, machine="exact")
    same(f, stack, *args)
    (loop,) = loops_of(f.program)
    assert (loop.steps, kinds(f.program), kinds(loop.program)) == (LAYERS, [], ["allgather", "allgather"])
    gathered = 2 * 8 * 16 * 4  # bytes of the weights of one layer, of which each device lacks seven eighths
    assert f.program.received_bytes == LAYERS * 8 * gathered * 7 // 8


def test_gradients_are_scattered_in_the_step_that_makes_them() -> None:
    args = arguments()
    types = {"up": f"[{LAYERS}, 1{{d}}8, 16]", "down": f"[{LAYERS}, 2{{d}}16, 8]"}
    function = jax.value_and_grad(loss)
    f = rd.distribute(function, args, {"d": 8}, schedule=CUTS, out_shardings=(None, types), machine="exact")
    same(f, function, *args, exact=False)
    _, backward = loops_of(f.program)
    assert backward.reverse
    assert sorted(kinds(backward.program)) == ["allgather", "allgather", "reduce_scatter", "reduce_scatter"]


def test_the_program_does_not_grow_with_the_layers() -> None:
    few, many = (
        rd.distribute(jax.grad(loss), arguments(layers), {"d": 8}, schedule=CUTS, machine="exact") for layers in (2, 50)
    )
    assert len(few.program.ops) == len(many.program.ops)
    assert many.program.received_bytes == 25 * few.program.received_bytes
    assert str(many).count("\n") == str(few).count("\n")
    assert "loop x 50" in str(many)


def test_a_picture_counts_all_steps_of_a_loop() -> None:
    f = rd.distribute(jax.grad(loss), arguments(), {"d": 8}, schedule=CUTS, machine="exact")
    rows = rows_of(f.program)
    assert sum(row.received for row in rows) == f.program.received_bytes
    assert sum(row.flops for row in rows) == f.program.flops == f.cost.flops
    assert any(row.label.endswith(f", x {LAYERS}") for row in rows)


def test_a_scan_is_unrolled_where_it_says_so() -> None:
    def function(x: Any) -> Any:
        return lax.scan(lambda c, _: (c * 2, None), x, length=4, unroll=4)[0]

    f = rd.distribute(function, (whole(16, 3),), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    assert not loops_of(f.program)
    same(f, function, whole(16, 3))


def test_the_text_of_a_program_with_loops_reads_back() -> None:
    function = jax.grad(loss)
    f = rd.distribute(function, arguments(), {"d": 8}, schedule=CUTS, machine="exact")
    text = to_text(f.program)
    again = parse(text, bodies_of(f.program))
    assert again == f.program
    assert to_text(again) == text
    leaves = jax.tree.leaves(arguments())
    for run in (run_by_rank, run_whole):
        for found, wanted in zip(run(again, leaves), jax.tree.leaves(jax.jit(function)(*arguments())), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_while_runs_by_rank_as_it_does_in_jax() -> None:
    def until(x: Any) -> Any:
        return lax.while_loop(lambda x: x.sum() < 10_000, lambda x: x * 2 + x.sum(), abs(x) + 1)

    x = whole(16, 4)
    f = rd.distribute(until, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    wanted = jax.jit(until)(x)
    np.testing.assert_array_equal(f(x), wanted)
    np.testing.assert_array_equal(run_by_rank(f.program, [x])[0], wanted)
    text = to_text(f.program)
    assert parse(text, bodies_of(f.program)) == f.program


def test_what_no_step_changes_is_computed_before_the_loop() -> None:
    def function(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, _: (c + x @ w, None), jnp.zeros((16, 4)), length=LAYERS)[0]

    args = (whole(16, 8), whole(8, 4))
    f = rd.distribute(function, args, {"d": 8}, schedule=rd.along("d", {"x": 1}), machine="exact")
    assert kinds(f.program) == ["all_reduce"]
    same(f, function, *args)


def test_a_transposition_that_a_step_reads_stays_in_the_step() -> None:
    """The product that reads it takes no copy of the matrix, which would be held through the loop."""

    def powers(matrix: Any, x: Any) -> Any:
        return lax.fori_loop(0, 4, lambda _, x: matrix.T @ (matrix @ x) / 64, x)

    matrix = whole(64, 64) % 3
    f = rd.distribute(powers, (matrix, whole(64) % 2), {"d": 8}, schedule=[rd.along("d", {"matrix": 0})])
    same(f, powers, matrix, whole(64) % 2, exact=False)
    memory = f.lower().compile().memory_analysis()
    assert memory.temp_size_in_bytes < matrix.size * 4 // 8


def test_a_scan_of_no_steps() -> None:
    def function(x: Any) -> Any:
        return lax.scan(lambda c, e: (c + e, c.sum()), x, jnp.zeros((0, 16, 3)))

    x = whole(16, 3)
    f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    same(f, function, x)
    assert run_by_rank(f.program, [x])[1].shape == (0,)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": -1}, "-1 steps, 0 constants and 1 carried are no loop of 3 values"),
        ({"steps": LAYERS + 1}, "as entries of a step"),
        ({"carried": 0}, "as entries of a step"),
        ({"outs": ()}, "at the end a step"),
    ],
)
def test_loops_that_do_not_fit(change: dict[str, Any], says: str) -> None:
    from dataclasses import replace

    from redistrib.programs.ir.check import check

    program = rd.distribute(stack, arguments(), {"d": 8}, schedule=CUTS, machine="exact").program
    (loop,) = loops_of(program)
    broken = tuple(replace(op, **change) if op is loop else op for op in program.ops)
    with pytest.raises(ProgramError, match=f"operation 'scan': .*{says}.*"):
        check(Program(program.inputs, broken, program.outputs))


def test_a_while_with_a_condition_for_each_row() -> None:
    """Under `vmap` a step follows while any row wants one, and changes those rows alone."""

    def function(x: Any, limit: Any) -> Any:
        def row(x: Any, limit: Any) -> Any:
            return lax.while_loop(lambda s: s[0].sum() < limit, lambda s: (s[0] * 2 + 1, s[1] + 1), (x, 0))

        return jax.vmap(row)(x, limit)

    args = (np.abs(whole(16, 3)) + 1, np.arange(16, dtype=np.float32) * 50)
    f = rd.distribute(function, args, {"d": 8}, schedule=rd.along("d", {"x": 0, "limit": 0}), machine="exact")
    assert f.opaque == ()
    same(f, function, *args)


def test_loops_in_loops() -> None:
    def function(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.fori_loop(0, 3, lambda k, d: d + k, c), c.sum()), x, length=5)

    x = whole(16, 3)
    f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    same(f, function, x)
    (outer,) = loops_of(f.program)
    assert [inner.steps for inner in loops_of(outer.program)] == [3]
    assert kinds(outer.program) == ["all_reduce"]


def test_layers_that_are_computed_again_in_the_backward_pass() -> None:
    def remat(params: Any, x: Any) -> Any:
        @jax.checkpoint
        def layer(x: Any, layer: Any) -> Any:
            return x + jnp.tanh(x @ layer["up"]) @ layer["down"], None

        return lax.scan(layer, x, params)[0].sum()

    args = arguments()
    function = jax.grad(remat)
    f = rd.distribute(function, args, {"d": 8}, schedule=CUTS, machine="exact")
    same(f, function, *args, exact=False)
    assert [loop.steps for loop in loops_of(f.program)] == [LAYERS, LAYERS]


@pytest.mark.parametrize("flag", [True, False])
def test_branches_are_cut_by_the_join_of_their_layouts(flag: bool) -> None:
    """The second branch ties no argument to the other; the first does."""

    def function(flag: Any, x: Any, y: Any) -> Any:
        return lax.cond(flag, lambda x, y: (x + y, 2 * y), lambda x, y: (x, y), x, y)

    args = (np.bool_(flag), whole(16, 8), whole(16, 8))
    f = rd.distribute(function, args, {"d": 8}, schedule=rd.along("d", {"x": 0}))
    assert (f.opaque, f.program.moves) == ((), ())
    same(f, function, *args)


def test_a_function_with_a_form_for_each_platform_is_that_of_the_devices() -> None:
    x = whole(16, 16)
    f = rd.distribute(jnp.diagonal, (x,), {"d": 8}, schedule=rd.along("d", {"a": 0}), machine="exact")
    assert not any(op.name.startswith(("cond", "platform")) for op in f.program.ops if hasattr(op, "name"))
    same(f, jnp.diagonal, x)


def test_a_while_is_counted_with_the_steps_that_are_said() -> None:
    def until(x: Any) -> Any:
        return lax.while_loop(lambda x: x.sum() < 10_000, lambda x: x * 2, abs(x) + 1)

    x = whole(16, 4)
    once, often = (
        rd.distribute(until, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact", trip_count=count)
        for count in (1, 100)
    )
    assert often.program.received_bytes == 100 * once.program.received_bytes > 0
    assert often.cost.flops > 50 * once.cost.flops
    assert "while x 100" in str(often)
    np.testing.assert_array_equal(often(x), jax.jit(until)(x))
    for count in (-1, True, 2.0):
        with pytest.raises(ProgramError, match=r"trip_count is .*; give the steps of a while, an integer"):
            rd.distribute(until, (x,), {"d": 8}, trip_count=count)  # type: ignore[arg-type]


def _taken(f: Any) -> int:
    """Bytes that the compiler reports."""
    found = f.lower().compile().memory_analysis()
    return int(found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes)


def test_what_is_carried_keeps_the_bytes_of_what_it_starts_from() -> None:
    def smooth(x: Any) -> Any:
        return lax.fori_loop(0, 20, lambda k, y: y * 0.5 + jnp.roll(y, 1, 1) * 0.5, jnp.sin(x))

    def power(a: Any, x: Any) -> Any:
        return lax.fori_loop(0, 50, lambda k, y: (lambda z: z / jnp.linalg.norm(z))(a @ y), jnp.cos(x))

    for function, args, cut in (
        (smooth, (whole(1024, 512) % 7,), {"x": 0}),
        (power, (whole(512, 512) % 7, whole(512, 512) % 5), {"a": 0}),
    ):
        f = rd.distribute(function, args, {"d": 8}, schedule=rd.along("d", cut))
        assert 0 <= _taken(f) - f.memory < 256
        assert f.memory == f.compiled_memory


def test_a_start_that_is_read_again_has_bytes_of_its_own() -> None:
    def loop(start: Any) -> Any:
        return lax.fori_loop(0, 20, lambda k, y: y * 0.5 + k, start)

    def memory(function: Any, **options: Any) -> int:
        f = rd.distribute(function, (whole(64, 32),), {"d": 8}, schedule=(), in_shardings="[8{d}64, 32]", **options)
        return int(f.memory)

    tile = 64 * 32 * 4 // 8
    assert memory(lambda x: (lambda y: loop(y) * y)(jnp.sin(x))) == memory(lambda x: loop(jnp.sin(x)) * 2) + tile
    assert memory(loop) == memory(loop, donate=["start"]) + tile


def _by_ranks(f: Any, *args: Any) -> list[Any]:
    """What ranks make that share nothing but their messages."""
    return _ranks_of(f.program, *args)


def _ranks_of(program: Any, *args: Any) -> list[Any]:
    leaves = zip(jax.tree.leaves(args), program.inputs, strict=True)
    tiles = {value.name: distribute(np.asarray(leaf), value) for leaf, value in leaves}
    made = run_ranks(project(program), tiles)
    return [collect(made[name], program.values[name]) for name in program.outputs]


def test_ranks_run_loops_on_their_own() -> None:
    def until(x: Any) -> Any:
        return lax.while_loop(lambda x: x.sum() < 10_000, lambda x: x * 2 + x.sum(), abs(x) + 1)

    def nested(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.fori_loop(0, 3, lambda k, d: d + k, c), c.sum()), x, length=5, reverse=True)

    cases = [(jax.grad(loss), arguments(), CUTS), *((f, (whole(16, 4),), {"x": 0}) for f in (until, nested))]
    for function, args, cuts in cases:
        schedule = rd.along("d", cuts) if isinstance(cuts, dict) else cuts
        f = rd.distribute(function, args, {"d": 8}, schedule=schedule, machine="exact")
        assert any(isinstance(op, RankLoop) for op in project(f.program)[0].ops)
        for found, wanted in zip(_by_ranks(f, *args), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_rank_outside_of_a_condition_cannot_know_how_often_a_loop_runs() -> None:
    from dataclasses import replace

    from redistrib.lang.mesh import Mesh
    from redistrib.programs.ir.value import Place

    f = rd.distribute(
        lambda x: lax.while_loop(lambda x: x.sum() < 99, lambda x: x + 1, x), (whole(16, 4),), {"d": 2}, schedule=()
    )
    (loop,) = loops_of(f.program)
    assert loop.condition is not None
    one = Place(Mesh(()), (0,))
    alone = replace(
        loop.condition,
        inputs=tuple(replace(value, place=one) for value in loop.condition.inputs),
        ops=tuple(
            replace(op, place=one, outs=tuple((array, replace(value, place=one)) for array, value in op.outs))
            for op in loop.condition.ops
        ),
    )
    broken = replace(f.program, ops=tuple(replace(op, condition=alone) if op is loop else op for op in f.program.ops))
    with pytest.raises(ProgramError, match="operation 'while': device 1 takes no part in its condition"):
        project(broken)


def test_a_diagnosis_counts_the_steps_of_a_loop_at_the_line_that_moves() -> None:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    weights = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "d"))

    def layers(ws: Any, x: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            return jnp.tanh(x @ w), None

        return lax.scan(one, x, ws)[0]

    found = {}
    for steps in (3, 30):
        args = (
            jax.ShapeDtypeStruct((steps, 16, 16), "float32", sharding=weights),
            jax.ShapeDtypeStruct((64, 16), "float32", sharding=cut),
        )
        jitted = jax.jit(layers, in_shardings=(weights, cut), out_shardings=cut)
        diagnosis = rd.diagnose(jitted, *args)
        (finding,) = diagnosis.findings
        lines = [_line_of(layers, text) for text in ("@", "lax.scan")]  # from JAX 0.12 on that of the entry of the step
        assert any(finding.source.endswith(f"test_loops.py:{line}") for line in lines)
        assert list(finding.collectives.values()) == [steps]
        found[steps] = finding.received
    assert found[30] == 10 * found[3] > 0


def _line_of(function: Any, text: str) -> int:
    lines, first = source.getsourcelines(function)
    return next(first + k for k, line in enumerate(lines) if text in line)


def test_what_every_step_and_the_result_read_whole_is_carried_whole() -> None:
    """Power iteration: a vector is gathered once a step, and not once more after the loop."""

    def powers(matrix: Any, v: Any) -> Any:
        return lax.fori_loop(0, 10, lambda _, v: (matrix @ v) % 5, v)

    args = (whole(32, 32) % 3, whole(32, 4) % 3)
    for end, carried in ((jax.sharding.PartitionSpec(), 1), (jax.sharding.PartitionSpec("d"), 0)):
        schedule = [rd.along("d", {"matrix": 0}), rd.along("d", {"v": None})]
        f = rd.distribute(powers, args, {"d": 8}, schedule=schedule, out_shardings=end, machine="exact")
        assert sum(choice.why.startswith("carried whole") for choice in f.choices) == carried
        assert f.program.received_bytes == 10 * 7 * 32 * 4 * 4
        same(f, powers, *args)


@pytest.mark.parametrize("begins", ["constant", "cut"])
def test_what_every_step_makes_and_reads_whole_is_carried_whole(begins: str) -> None:
    """Readers after the loop take their parts of the whole result; no step gathers what a step before made whole."""

    def sorted_often(v: Any, y: Any) -> Any:
        v = 64 - lax.broadcasted_iota(v.dtype, v.shape, 1) if begins == "constant" else v
        return lax.fori_loop(0, 10, lambda _, v: lax.sort(v, dimension=1), v) * y

    args = (whole(1, 64) % 5, whole(1, 64) % 3)
    f = rd.distribute(sorted_often, args, {"d": 8}, schedule=[rd.along("d", {"v": 1, "y": 1})], machine="exact")
    (choice,) = (choice for choice in f.choices if choice.why.startswith("carried whole"))
    assert choice.why == "carried whole: every step makes it whole, and reads it so"
    assert f.program.received_bytes == (0 if begins == "constant" else 7 * 64 * 4)
    same(f, sorted_often, *args)


def test_weights_are_gathered_one_step_ahead_where_asked() -> None:
    """What a step gathers is not read in it, and nothing that it gathers is computed in it."""
    args, function = arguments(), jax.value_and_grad(loss)
    now, ahead = (
        rd.distribute(function, args, {"d": 8}, schedule=CUTS, machine="exact", ahead=ahead) for ahead in (False, True)
    )
    same(ahead, function, *args, exact=False)
    gathered = 8 * 8 * 16 * 4 * 7 // 8  # bytes that all devices receive of one weight of one layer
    times = sum(kinds(loop.program).count("allgather") for loop in loops_of(now.program))
    assert times == 4
    assert ahead.program.received_bytes == now.program.received_bytes + times * gathered
    assert ahead.memory > now.memory
    for loop in loops_of(ahead.program):
        entries = {value.name for value in loop.program.inputs[loop.constants + loop.carried :]}
        moves = [move for move in loop.program.moves if "allgather" in [step.kind for step in move.plan.steps]]
        assert len(moves) == 2
        for move in moves:
            assert move.value in entries
            assert move.out.name in loop.program.outputs
            assert not any(move.out.name in used_by(op) for op in loop.program.ops)
    for found, wanted in zip(_by_ranks(ahead, *args), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_in_the_compiled_loop_nothing_waits_for_a_gather_ahead() -> None:
    def waits(ahead: bool) -> int:
        """What in the bodies of loops is computed of what is gathered in the same step."""
        f = rd.distribute(stack, arguments(), {"d": 8}, schedule=CUTS, machine="exact", ahead=ahead)
        module = parse_module(f.lower().compile().as_text())
        loops = [one for each in module.computations.values() for one in each.instructions.values()]
        bodies = [module.computations[dict(one.callees())["body"]] for one in loops if one.opcode == "while"]
        count = 0
        for body in bodies:
            late: set[str] = set()
            for one in body.instructions.values():
                if one.opcode.startswith("all-gather"):
                    late.add(one.name)
                elif late & {*one.operands}:
                    late.add(one.name)
                    count += one.opcode not in ("copy", "bitcast", "tuple")
        return count

    assert waits(False) >= 2
    assert waits(True) == 0


def test_gathers_ahead_in_a_loop_that_is_found_and_in_one_that_reads_its_entries_twice() -> None:
    def twice(ws: Any, x: Any) -> Any:
        return lax.scan(lambda x, w: (x @ w % 7, w * 2), x, ws, reverse=True)

    args = (whole(LAYERS, 16, 16) % 3, whole(16, 16) % 5)
    cuts = [rd.along("d", {"x": 0}), rd.along("d", {"ws": 1})]
    for schedule in (cuts, "auto"):
        f = rd.distribute(twice, args, {"d": 8}, schedule=schedule, ahead=True)
        same(f, twice, *args)
    assert rd.distribute(twice, args, {"d": 8}, schedule=cuts, ahead=True).program.values["ws.turned"]
    few = rd.distribute(twice, (args[0][:0], args[1]), {"d": 8}, schedule=cuts, ahead=True)
    same(few, twice, args[0][:0], args[1])


@pytest.mark.parametrize("reverse", [False, True])
def test_results_are_moved_one_step_behind(reverse: bool) -> None:
    """Each step adds up the partial sums of the step before, which nothing in it makes; the values stay."""

    def products(w: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (c + 1, x.T @ (x @ w)), 0, xs, reverse=reverse)

    args = (whole(8, 8) % 3, whole(LAYERS, 16, 8) % 5)
    f = rd.distribute(products, args, {"d": 8}, schedule=[rd.along("d", {"xs": 1})], machine="exact")
    behind = scattered_behind(f.program)
    (before,), (loop,) = loops_of(f.program), loops_of(behind)
    assert len(loop.program.moves) == len(before.program.moves) == 1
    assert loop.program.moves[0].value in {value.name for value in loop.program.inputs}
    assert behind.received_bytes * LAYERS == f.program.received_bytes * (LAYERS + 1)
    for found, wanted in zip(_ranks_of(behind, *args), jax.tree.leaves(jax.jit(products)(*args)), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert scattered_behind(f.program, ["other"]) == f.program
    few = rd.distribute(products, (args[0], args[1][:0]), {"d": 8}, schedule=[rd.along("d", {"xs": 1})])
    assert scattered_behind(few.program) == few.program


def test_a_simulation_times_a_loop_by_its_steps() -> None:
    from redistrib.programs.time.entry import simulate

    seconds = {}
    for layers in (10, 20, 40):
        f = rd.distribute(jax.grad(loss), arguments(layers), {"d": 8}, schedule=CUTS)
        result = simulate(f.program, "gpu")
        seconds[layers] = result.seconds
        assert max(result.peak_bytes.values()) == f.memory
    first, second = seconds[20] - seconds[10], seconds[40] - seconds[20]
    assert second == pytest.approx(2 * first, rel=1e-3)
    assert seconds[40] > 30 * first / 10


def test_a_carried_value_without_summands_of_others_is_not_carried_as_summands() -> None:
    """Summands pass through its step; nothing adds any, so that a sum after the loop would be for nothing."""

    def turned(x: Any, c: Any) -> Any:
        return lax.fori_loop(0, 4, lambda _, s: (s[0] * 2, -s[1]), (x, c))

    def added(x: Any, c: Any) -> Any:
        return lax.fori_loop(0, 4, lambda _, s: (s[0] * 2, s[0].sum(0) - s[1]), (x, c))

    def summed(x: Any, c: Any) -> Any:
        return lax.fori_loop(0, 4, lambda _, s: (s[0] * 2, -s[1]), (x, x.sum(0) + c))

    for function, received in ((turned, 0), (added, 2 * 7 * 3 * 4), (summed, 2 * 7 * 3 * 4)):
        args = (whole(8, 3), whole(3))
        f = rd.distribute(function, args, {"d": 8}, schedule=[rd.along("d", {"x": 0})], machine="exact")
        assert f.program.received_bytes == received, function.__name__
        same(f, function, *args)


@pytest.mark.parametrize("steps", [2, 4, 8])
def test_examples_that_a_reshape_splits_for_the_steps_of_a_loop_stay_cut(steps: int) -> None:
    """Gradients of microbatches are added up on each device, whether or not the axis divides the number of steps."""

    def accumulated(w: Any, x: Any) -> Any:
        def microbatch(total: Any, rows: Any) -> Any:
            return total + jax.grad(lambda w: ((rows @ w) ** 2).sum())(w), None

        return lax.scan(microbatch, jnp.zeros_like(w), 2 * x.reshape(steps, -1, 16))[0]

    args = (whole(16, 32) % 3, whole(64, 16) % 3)
    f = rd.distribute(accumulated, args, {"d": 8}, schedule=[rd.along("d", {"x": 0})], machine="exact")
    to_microbatches, sums = 64 * 16 * 4 * 7 // 8, 2 * 7 * 16 * 32 * 4
    assert f.program.received_bytes == to_microbatches * (1 if steps == 8 else 2) + sums
    same(f, accumulated, *args)


def test_a_loop_that_begins_with_another_one() -> None:
    """It carries nothing and reads no entry, so that its first operation is one of the loop inside."""

    def f(x: Any, start: Any) -> Any:
        def outer(_: None, __: None) -> Any:
            return None, jax.lax.scan(lambda total, row: (total + row, None), start, x)[0]

        return jax.lax.scan(outer, None, None, length=40)[1]

    x, start = jnp.arange(320.0).reshape(40, 8), jnp.zeros(8)
    g = rd.distribute(f, (x, start), {"d": 4}, schedule=[rd.along("d", {"x": 1})])
    assert len(loops_of(g.program)) == 1 and len(loops_of(loops_of(g.program)[0].program)) == 1
    np.testing.assert_array_equal(g(x, start), f(x, start))


def test_a_schedule_that_cuts_a_result_of_a_loop_apart_is_read() -> None:
    """Earlier versions wrote so; the result has the type of its carried value, and is moved for its readers."""

    def function(x: Any, y: Any) -> Any:
        _, last = lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))
        return last + y

    args = np.ones((64, 8), np.float32), np.arange(512, dtype=np.float32).reshape(64, 8)
    types = [rd.DistType.of(text) for text in ("[64, 8]", "[8{d}64, 8]")]
    starts, cuts = dict(zip("xy", types, strict=True)), {"leave_1": {"d": "d0"}, "add_1": {"d": "d0"}}
    schedule = Schedule(rd.Mesh.of("d=8"), cuts, {}, starts, {0: types[1]})
    result = rd.distribute(function, args, {"d": 8}, schedule=schedule)(*args)
    assert np.allclose(np.asarray(result), function(*args))
