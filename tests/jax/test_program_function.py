"""Programs of `rd.partition` and of a builder as functions of global arrays, and `rd.verify` of programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import ForeignMeshError, ProgramError, TracedError, VerificationError
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Compute, Move, Place, Program, Value
from redistrib.programs.ir.reference import run_whole
from tests.messages import exactly
from tests.programs.ir.nests import CASES, Case, arrays_for

FOUR = Place(rd.Mesh.of("d=4"))


def mesh_for(program: Program, kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    (place,) = {value.place for value in program.values.values()}
    shape = place.mesh.shape or (1,)
    names = place.mesh.names or ("one",)
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    return jax.sharding.Mesh(devices, names, axis_types=(kind,) * len(names))


def placed(f: Any, arrays: Any) -> list[jax.Array]:
    kinds = [value.dtype for value in f.program.inputs]
    pairs = zip(arrays, kinds, f.in_shardings, strict=True)
    return [jax.device_put(np.asarray(array).astype(kind), to) for array, kind, to in pairs]


def grids(one: Nest, parts: int) -> list[tuple[int, ...]]:
    """The grids of so many parts that divide the iteration space."""
    found = []
    for grid in product(*([n for n in (1, 2, 3, 4, 6) if size % n == 0] for size in one.sizes)):
        whole = all(count == 1 or name not in one.whole for name, count in zip(one.position, grid, strict=True))
        if whole and math.prod(grid) == parts:
            found.append(grid)
    return found


# ----------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("case", [one for one in CASES if one.nest.name not in ("windows", "scatter-add")])
def test_a_partitioned_nest_computes_what_numpy_does(case: Case) -> None:
    arrays = arrays_for(case.nest)
    wanted = case.numpy(*arrays)
    ran = 0
    for parts in (1, 4, 6):
        for grid in grids(case.nest, parts):
            try:
                program = rd.partition(case.nest, {case.nest.name: grid}, dtype="int32")
            except ProgramError:  # a factor below one that is not cut into single elements
                continue
            f = rd.to_jax(program, mesh_for(program))
            results = f(*placed(f, arrays))
            ran += 1
            for result, one, to in zip(
                results, wanted if isinstance(wanted, tuple) else (wanted,), f.out_shardings, strict=True
            ):
                np.testing.assert_array_equal(result, one)
                assert result.dtype == np.int32
                assert result.sharding.is_equivalent_to(to, result.ndim)
    assert ran


def test_operations_that_follow_each_other_with_moves_between() -> None:
    nests = [
        rd.nest("ij,jk->ik", (8, 8, 8), name="first", reads=["x", "v"], writes="h"),
        rd.nest("ik->ik", (8, 8), name="relu", fn=lambda h: np.maximum(h, 0), reads=["h"], writes="r"),
        rd.nest("ik,kl->il", (8, 8, 8), name="second", reads=["r", "w"], writes="y"),
    ]
    x, v, w = (np.random.default_rng(k).integers(-4, 5, (8, 8)).astype(np.float32) for k in range(3))
    program = rd.partition(nests, {"first": {"j": 4}, "relu": {"k": 4}, "second": {"i": 2, "l": 2}})
    assert program.moves
    for kind in (AxisType.Auto, AxisType.Explicit):
        f = rd.to_jax(program, mesh_for(program, kind))
        arrays = placed(f, [{"x": x, "v": v, "w": w}[value.name] for value in program.inputs])
        (y,) = f(*arrays)
        np.testing.assert_array_equal(y, np.maximum(x @ v, 0) @ w)
        (traced,) = jax.jit(lambda *arrays, f=f: [f(*arrays)[0] * 2])(*arrays)  # type: ignore[misc]
        np.testing.assert_array_equal(traced, 2 * (np.maximum(x @ v, 0) @ w))


def test_fused_nests_that_write_one_array_are_combined() -> None:
    for combine in ("sum", "max", "min"):
        parts = [
            rd.nest("ij->i", (8, 4), name=name, combine=combine, reads=[name], writes="out") for name in ("p", "q")
        ]
        grid = {"p": {"i": 4}, "q": {"i": 4}}
        program = rd.partition(parts, grid, groups={"both": ["p", "q"]}, dtype="int32")
        f = rd.to_jax(program, mesh_for(program))
        arrays = [np.random.default_rng(k).integers(-9, 9, (8, 4)).astype(np.int32) for k in range(2)]
        np.testing.assert_array_equal(f(*placed(f, arrays))[0], run_whole(program, arrays)[0])


def test_products_are_multiplied_block_by_block() -> None:
    x = np.random.default_rng(0).integers(-2, 3, (4, 12)).astype(np.int32)
    for grid in ((2, 4), (1, 8), (4, 2)):
        program = rd.partition(rd.nest("ij->i", (4, 12), combine="prod", name="p"), {"p": grid}, dtype="int32")
        f = rd.to_jax(program, mesh_for(program))
        np.testing.assert_array_equal(f(*placed(f, [x]))[0], x.prod(1, dtype=np.int32))


def test_arrays_that_no_cut_divides_begin_and_end_on_one_device() -> None:
    for sizes, grid in (((7, 4, 5), (2, 1, 2)), ((3, 5, 1), (1, 8, 1))):
        program = rd.partition(rd.nest("ij,jk->ik", sizes), {"matmul": grid}, root=True, outputs={"out": None})
        f = rd.to_jax(program, jax.make_mesh((8,), ("d",)))
        arrays = [
            np.random.default_rng(3).integers(-9, 9, value.array_shape).astype(np.float32) for value in program.inputs
        ]
        (result,) = f(*placed(f, arrays))
        np.testing.assert_array_equal(result, arrays[0] @ arrays[1])
        assert result.sharding.is_equivalent_to(f.out_shardings[0], result.ndim)


@pytest.mark.parametrize("root", [False, True])
def test_arguments_without_elements(root: bool) -> None:
    program = rd.partition(rd.nest("i,i->", (0,), name="dot"), {"dot": (4,)}, root=root)
    f = rd.to_jax(program, jax.make_mesh((8,), ("d",)) if root else mesh_for(program))
    assert f(*placed(f, [np.zeros(0, np.float32)] * 2))[0].tolist() == 0


def test_padded_dimensions_are_filled_with_nothing() -> None:
    for spec, combine in (("ij,jk->ik", "sum"), ("ij->i", "max"), ("ij->j", "min"), ("ij->", "sum")):
        sizes = (5, 7, 3)[: len(set(spec) - set(",->"))]
        one = rd.nest(spec, sizes, name="op", combine=combine)
        program = rd.partition(one, {"op": {"i": 2, "j": 2}})
        f = rd.to_jax(program, mesh_for(program))
        arrays = [
            np.random.default_rng(3).integers(-9, 9, value.array_shape).astype(np.float32) for value in program.inputs
        ]
        (result,) = f(*placed(f, arrays))
        np.testing.assert_array_equal(result, run_whole(program, arrays)[0])
        assert result.sharding.is_equivalent_to(f.out_shardings[0], result.ndim)


BODIES: dict[str, Callable[..., Any]] = {
    "jax": lambda x: jnp.tanh(x) + 1,
    "operators": lambda x: x * 2 - 1,
    "methods": lambda x: (x * 2).clip(-1, 1).astype(x.dtype),
    "NumPy": lambda x: np.where(np.abs(x) > 1, np.exp(-np.square(x)), x),
    "a NumPy function": np.tanh,
    "indexed": lambda x: np.flip(np.concatenate([x[..., :2], x[..., 2:]], -1), -1),
    "reduced": lambda x: x - np.add.reduce(x, axis=-1, keepdims=True) + np.linalg.norm(x, axis=-1, keepdims=True),
    "counted": lambda x: x * len(x) + x.shape[-1] + x.ndim,
}


@pytest.mark.parametrize("kind", BODIES)
def test_bodies_are_traced_whether_they_are_of_jax_or_of_numpy(kind: str) -> None:
    one = rd.nest("ij->ij", (1, 4), name="op", fn=BODIES[kind])
    program = rd.partition(one, {"op": (1, 1)})
    x = np.array([[-2.0, 0.5, 1.5, -0.25]], np.float32)
    f = rd.to_jax(program, mesh_for(program))
    np.testing.assert_allclose(f(*placed(f, [x]))[0], BODIES[kind](x), rtol=1e-6)
    assert "callback" not in str(jax.make_jaxpr(f)(*placed(f, [x])))


def test_what_a_body_makes_is_of_the_element_type_of_the_value() -> None:
    for made, declared, kept in (
        ("float32", "bfloat16", True),
        ("int32", "float32", True),
        ("float32", "int32", False),
    ):
        one = rd.nest("i->i", (4,), name="op", fn=lambda x, made=made: x.astype(made))
        program = rd.partition(one, {"op": (4,)}, dtype={"out": declared})
        f = rd.to_jax(program, mesh_for(program))
        arrays = placed(f, [np.arange(4)])
        if kept:
            (out,) = f(*arrays)
            assert str(out.dtype) == declared
            np.testing.assert_array_equal(out.astype(np.float32), np.arange(4))
        else:
            why = "operation 'op', array 'out': the body makes float32, and the value is of int32"
            with pytest.raises(ProgramError, match=exactly(why)):
                f(*arrays)


def test_programs_of_a_builder_and_of_distribute_run_too() -> None:
    b = Builder("product")
    x, w = b.input("x", "[2{d}8, 8]", FOUR), b.input("w", "[8, 8]", FOUR)
    y = b.compute(rd.nest("ij,jk->ik", (8, 8, 8)), x, w, cut={"i": "d"})
    program = b.build(b.move(y, plan=rd.synthesize(y.type, "[8, 2{d}8]", FOUR.mesh)), y)
    one, other = (np.random.default_rng(k).integers(-4, 5, (8, 8)).astype(np.float32) for k in range(2))
    f = rd.to_jax(program, mesh_for(program), schedule="sequential")
    moved, made = f(*placed(f, [one, other]))
    np.testing.assert_array_equal(moved, one @ other)
    np.testing.assert_array_equal(made, one @ other)
    assert (moved.sharding.spec, made.sharding.spec) == (P(None, "d"), P("d", None))

    d = rd.distribute(
        lambda x, w: jnp.cumsum(x @ w, 1) + jnp.arange(8), (one, other), {"d": 4}, schedule=rd.along("d", {"x": 0})
    )
    g = rd.to_jax(d.program, mesh_for(d.program))
    np.testing.assert_array_equal(g(*placed(g, [one, other]))[0], d(one, other))


# --------------------------------------------------------------------------------------------- refusals


def doubled(**changes: Any) -> Program:
    return rd.partition(rd.nest("i->i", (8,), name="op", fn=lambda x: x * 2), {"op": (4,)}, **changes)


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (lambda f: [1.0] * 8, "and no array; place it with jax.device_put(array, f.in_shardings[0])"),
        (lambda f: jnp.ones(4), "it is float32[4], and the program takes float32[8]"),
        (lambda f: jnp.ones(8, jnp.int8), "it is int8[8], and the program takes float32[8]"),
        (
            lambda f: jax.device_put(jnp.ones(8), jax.devices()[0]),
            "on mesh {r0:4}; place it with jax.device_put(array, f.in_shardings[0])",
        ),
    ],
)
def test_other_arrays_are_refused_by_name(array: Any, why: str) -> None:
    f = rd.to_jax(doubled(), mesh_for(doubled()))
    with pytest.raises(ProgramError) as error:
        f(array(f))
    assert why in str(error.value)
    assert (error.value.operation, error.value.array, error.value.rule) == ("main", "a", "Arguments")


def test_other_counts_of_arrays_and_places_are_refused() -> None:
    f = rd.to_jax(doubled(), mesh_for(doubled()))
    with pytest.raises(ProgramError, match="it has the inputs a, and 0 arrays are given"):
        f()
    with pytest.raises(ForeignMeshError):
        rd.to_jax(doubled(), jax.make_mesh((4,), ("x",), devices=jax.devices()[:4]))
    with pytest.raises(ForeignMeshError):
        rd.to_jax(doubled(), jax.make_mesh((2,), ("r0",), devices=jax.devices()[:2]))
    with pytest.raises(ProgramError, match="jax_enable_x64"):
        rd.to_jax(doubled(dtype="float64"), mesh_for(doubled()))
    explicit = mesh_for(doubled(), AxisType.Explicit)
    with pytest.raises(ProgramError, match="reshard it first"):
        jax.jit(rd.to_jax(doubled(), explicit))(jax.device_put(jnp.ones(8), NamedSharding(explicit, P())))
    mesh = mesh_for(doubled())
    with pytest.raises(TracedError):
        jax.shard_map(rd.to_jax(doubled(), mesh), mesh=mesh, in_specs=P(), out_specs=P("r0"))(jnp.ones(8))


def test_summands_windows_and_nests_without_bodies_are_refused() -> None:
    b = Builder()
    x = b.input("x", "[2{d}8]", FOUR)
    total = b.compute(rd.nest("i->", (8,), name="sum"), x, cut={"i": "d"})
    with pytest.raises(ProgramError, match="begin and end with whole arrays"):
        rd.to_jax(b.build(total), mesh_for(doubled()))
    silent = Nest("silent", {"i": 8}, [Access("a", (("i",),))], [Access("out", (("i",),))])
    program = rd.partition(silent, {"silent": (4,)})
    with pytest.raises(ProgramError, match="has no body; give one to run it"):
        rd.to_jax(program, mesh_for(program))
    windows = next(case.nest for case in CASES if case.nest.name == "windows")
    program = rd.partition(windows, {"windows": {"i": 4}})
    with pytest.raises(ProgramError, match="tiles that overlap"):
        rd.to_jax(program, mesh_for(program))


def test_a_body_that_jax_cannot_trace_is_refused_with_a_way_out() -> None:
    def in_place(x: Any) -> Any:
        out = np.zeros_like(np.asarray(x))
        out[...] = x
        return out

    def by_value(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    for body in (in_place, by_value):
        one = rd.nest("i->i", (8,), name="op", body=lambda at, x, body=body: body(x))
        program = rd.partition(one, {"op": (4,)})
        f = rd.to_jax(program, mesh_for(program))
        with pytest.raises(ProgramError, match=r"JAX cannot trace the body of nest 'op': .*; write it with jax.numpy"):
            f(*placed(f, [np.ones(8)]))


# ----------------------------------------------------------------------------------------------- verify


def test_programs_are_verified_and_returned() -> None:
    program = rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}})
    assert rd.verify(program) is program
    plan = program.moves[0].plan
    assert plan is not None
    assert rd.verify(plan) is plan


def test_a_wrong_program_is_refused_by_verify() -> None:
    program = rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}})
    with pytest.raises(ProgramError, match="does not hold"):
        rd.verify(replace(program, outputs=("nothing",)))
    compute = next(op for op in program.ops if isinstance(op, Compute))
    (array, value), *_ = compute.outs
    whole = replace(compute, outs=((array, Value(value.name, rd.DistType.of("[8, 8]"), value.place)),))
    with pytest.raises(ProgramError, match="it makes"):
        rd.verify(replace(program, ops=tuple(whole if op is compute else op for op in program.ops)))


def test_the_plans_of_a_program_are_verified() -> None:
    program = rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}})

    def without_steps(op: Any) -> Any:
        return replace(op, plan=replace(op.plan, steps=())) if isinstance(op, Move) else op

    with pytest.raises(VerificationError):
        rd.verify(replace(program, ops=tuple(map(without_steps, program.ops))))


def test_what_is_neither_plan_nor_program_is_refused() -> None:
    for call in (
        lambda: rd.verify("plan"),  # type: ignore[type-var]
        lambda: rd.to_jax("plan", None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ProgramError, match=r"a Plan or a Program .*, and not 'plan'"):
            call()
    with pytest.raises(ProgramError, match="a bound is for the tiles of one plan"):
        rd.verify(doubled(), bound=4)
