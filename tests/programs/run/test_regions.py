"""Loops that run as loops, and operations of which a proxy says how they may be cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.backends.jax import private
from redistrib.errors import CutError, ProgramError
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.ir.program import Compute, Loop
from redistrib.programs.rules.traced import UNROLLED
from tests.messages import exactly
from tests.programs.rules.primitives import CASES
from tests.programs.run.models import recurrent, whole

LONG = UNROLLED + 6


def kinds(f: Any) -> list[str]:
    return [step.kind for move in f.program.moves for step in move.plan.steps]


def same(f: Any, function: Any, *args: Any, atol: float = 0) -> None:
    for found, wanted in zip(*(jax.tree.leaves(run(*args)) for run in (f, function)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=atol)
    assert inspect(f.lower().compile()).received_bytes == f.program.received_bytes


# ------------------------------------------------------------------------------------------ scans


def test_a_long_scan_is_one_loop_and_its_gradients_are_added_up_after_it() -> None:
    params, x = {"w": whole(4, 8) / 8, "v": whole(8, 8) / 16}, whole(LONG, 16, 4)
    f = rd.distribute(jax.grad(recurrent), (params, x), {"d": 8}, schedule=rd.along("d", {"x": 1}), machine="exact")
    assert f.opaque == ()
    assert [op.name for op in f.program.ops if isinstance(op, Loop)] == ["scan", "scan_1"]
    assert kinds(f) == [
        "unreduce",
        "unreduce",
        "all_reduce",
        "all_reduce",
    ]  # sums begin with zeros, without bytes
    same(f, jax.grad(recurrent), params, x, atol=1e-6 * LONG * 16)  # sums of so many terms of up to 1 in another order
    loops = [line for line in f.lower().as_text().splitlines() if "stablehlo.while" in line]
    assert len(loops) == 2


def test_what_a_loop_carries_goes_in_as_it_comes_out() -> None:
    """The carry turns at every step: cut, it is exchanged at the end of each."""

    def turning(x: Any, y: Any) -> Any:
        return lax.scan(lambda c, e: (c.T + 1, c.sum() + e), x, y)

    x, y = whole(8, 8), whole(LONG, 16)
    for cut, inside in (({"x": 0}, ["all_reduce", "alltoall"]), ({"y": 1}, [])):
        f = rd.distribute(turning, (x, y), {"d": 8}, schedule=rd.along("d", cut), machine="exact")
        same(f, turning, x, y)
        assert kinds(f) == []
        (loop,) = (op for op in f.program.ops if isinstance(op, Loop))
        assert [step.kind for move in loop.program.moves for step in move.plan.steps] == inside


def test_what_is_alike_on_all_devices_is_counted_once() -> None:
    """A counter beside an array that is cut, both carried and both read after the loop."""

    def counted(x: Any) -> Any:
        number, x = lax.fori_loop(0, LONG, lambda _, s: (s[0] + 2, s[1] + s[0]), (jnp.int32(0), x))
        return x + number

    x = whole(16, 3)
    f = rd.distribute(counted, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert f.out_shardings.spec[0] == "d"
    same(f, counted, x)


def test_summands_are_carried_from_what_they_begin_with() -> None:
    def added(total: Any, x: Any, w: Any) -> Any:
        return lax.scan(lambda c, e: (c + e.T @ w, None), total, x)[0]

    args = (whole(3, 5), whole(LONG, 16, 3), whole(16, 5))
    f = rd.distribute(added, args, {"d": 8}, schedule=rd.along("d", {"x": 1}), machine="exact")
    assert kinds(f) == ["unreduce", "all_reduce"]
    same(f, added, *args)


def test_scans_in_a_branch_stay_scans() -> None:
    def branched(x: Any, w: Any) -> Any:
        def layers(c: Any) -> Any:
            return lax.scan(lambda c, _: (lax.scan(lambda d, _: (d @ w, None), c, length=3)[0], None), c, length=5)[0]

        return lax.cond(x.sum() > 0, layers, lambda c: c * 2, x)

    args = (whole(16, 4), whole(4, 4))
    f = rd.distribute(branched, args, {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert f.lower().as_text().count("dot_general") == 1  # and not 15
    same(f, branched, *args)


def test_a_loop_in_a_loop() -> None:
    def nested(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.fori_loop(0, LONG, lambda i, d: d + i, c), None), x, length=LONG)[0]

    x = whole(16, 3)
    f = rd.distribute(nested, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    assert not f.program.moves
    same(f, nested, x)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_primitive_in_a_loop_under_every_cut_of_its_arguments(name: str) -> None:
    function, args = CASES[name]

    def looped(*own: Any) -> Any:
        return lax.scan(lambda c, _: (c + 1, function(*own)), jnp.int32(0), length=LONG)

    for k, arg in enumerate(args):
        for dim, size in enumerate(np.shape(arg)):
            if size % 3 == 0:
                f = rd.distribute(looped, args, {"d": 3}, schedule=rd.along("d", {f"arg{k}": dim}), machine="exact")
                same(f, looped, *args)


# ------------------------------------------------------------------------------------------ while


def test_a_while_loop_is_cut_along_what_its_test_does_not_read() -> None:
    def until(x: Any, limit: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] * 2, s[1] + s[0]), (jnp.int32(1), x))

    args = (whole(16, 3), np.int32(100))
    f = rd.distribute(until, args, {"d": 8}, schedule=rd.along("d", {"x": 0}))
    assert not f.program.moves or kinds(f) == ["all_reduce"]  # the counter, which is a result
    assert f.opaque == ()
    same(f, until, *args)


def test_a_while_loop_whose_test_reads_what_is_cut_combines_it_before_every_step() -> None:
    def until(x: Any) -> Any:
        return lax.while_loop(lambda x: jnp.max(x) < 100, lambda x: x * 2, x)

    x = whole(16, 8)
    f = rd.distribute(until, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert (kinds(f), f.opaque) == ([], ())
    (loop,) = (op for op in f.program.ops if isinstance(op, Loop))
    assert loop.condition is not None
    assert [step.kind for move in loop.condition.moves for step in move.plan.steps] == ["all_reduce"]
    same(f, until, x)


# ------------------------------------------------------------------------------------------ branches


def test_branches_are_cut_along_what_they_have_in_common() -> None:
    def either(flag: Any, x: Any, w: Any) -> Any:
        return lax.cond(flag, lambda x, w: (x @ w, x.sum(1)), lambda x, w: (x + 1, x[:, 0]), x, w)

    args = (whole(16, 8), whole(8, 8))
    for flag in (True, False):
        f = rd.distribute(either, (flag, *args), {"d": 8}, schedule=rd.along("d", {"x": 0}))
        assert f.opaque == ()
        assert not f.program.moves
        assert f.out_shardings[0].spec[0] == f.out_shardings[1].spec[0] == "d"
        same(f, either, np.bool_(flag), *args)
    f = rd.distribute(either, (flag, *args), {"d": 8}, schedule=rd.along("d", {"x": 1}), machine="exact")
    assert kinds(f) == ["alltoall"]  # the one that they have not in common
    same(f, either, np.bool_(flag), *args)


# ------------------------------------------------------------------------------------------ proxies


def attention(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bst,bte->bse", jax.nn.softmax(jnp.einsum("bse,bte->bst", q, k)), v)


@jax.jit
def flash(q: Any, k: Any, v: Any) -> Any:
    return jax.pure_callback(lambda *own: np.asarray(attention(*own)), jax.ShapeDtypeStruct(q.shape, q.dtype), q, k, v)


def test_a_proxy_says_how_an_opaque_function_is_cut() -> None:
    met = []

    def run(q: Any, k: Any, v: Any) -> Any:
        met.append(q.shape)
        return attention(q, k, v)

    def function(q: Any, k: Any, v: Any) -> Any:
        return flash(q, k, v) * 2

    args = [whole(8, 4, 6) / 4] * 3
    plain = rd.distribute(function, args, {"d": 8}, schedule=rd.along("d", {"q": 0}))
    assert [name for name, _, _ in plain.opaque] == ["pure_callback"]
    for dim, moved in ((0, []), (1, []), (2, ["alltoall"])):
        f = rd.distribute(
            function, args, {"d": 2}, schedule=rd.along("d", {"q": dim}), machine="exact",
            rules={"flash": rd.proxy(attention, run=run)},
        )  # fmt: skip
        assert f.opaque == ()
        assert [op.name for op in f.program.ops if getattr(op, "name", "") in ("flash", "pure_callback")] == ["flash"]
        same(f, function, *args, atol=1e-5)
        assert [kind for kind in kinds(f) if kind != "allgather"] == moved
    assert {(4, 4, 6), (8, 2, 6)} <= set(met)


def test_a_proxy_of_a_primitive() -> None:
    def host(x: Any) -> Any:
        return jax.pure_callback(lambda a: np.cumsum(a, 1), jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    x = whole(16, 3)
    rules = {"pure_callback": rd.proxy(lambda x: jnp.cumsum(x, 1), run=host)}
    f = rd.distribute(host, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), rules=rules)
    assert f.opaque == ()
    assert not f.program.moves
    same(f, host, x)


def test_a_proxy_without_a_function_to_run_runs_the_primitive_with_its_parameters() -> None:
    def backwards(x: Any) -> Any:
        return lax.cumsum(x, 1, reverse=True)

    x, rules = whole(16, 3), {"cumsum": rd.proxy(backwards)}
    f = rd.distribute(backwards, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), rules=rules)
    assert f.out_shardings.spec[0] == "d"
    same(f, backwards, x)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (rd.proxy(attention), "a jitted function is traced for whole arrays; give run=, which takes tiles"),
        (
            rd.proxy(lambda q, k, v: q.sum(0), run=attention),
            (
                "its proxy makes [((4, 6), 'float32')] and not [((8, 4, 6), 'float32')]; give a function "
                "with its results"
            ),
        ),
    ],
)
def test_proxies_that_make_no_sense(rule: Any, says: str) -> None:
    with pytest.raises(ProgramError, match=exactly(f"operation 'flash': {says}")):
        rd.distribute(flash, [whole(8, 4, 6)] * 3, {"d": 8}, schedule=rd.along("d", {"q": 0}), rules={"flash": rule})


def test_what_a_loop_carries_is_cut_by_name() -> None:
    x = whole(16, 3)

    def function(x: Any) -> Any:
        return lax.fori_loop(0, LONG, lambda _, x: x + 1, x)

    f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.work("d", {"carry_1": "d0"}))
    assert f.out_shardings.spec[0] == "d"
    with pytest.raises(CutError, match="no iteration dimension 'f0'; it has d0, d1"):
        rd.distribute(function, (x,), {"d": 8}, schedule=rd.work("d", {"carry_1": "f0"}))


def test_a_branch_is_cut_beside_what_is_the_same_on_all_devices() -> None:
    """Flags and counters cannot be added up, or need not be: they are computed on every device."""

    def stepped(x: Any, done: Any, count: Any) -> Any:
        def step(x: Any, done: Any, count: Any) -> Any:
            return jnp.sin(x), count > 2, count + 1

        return lax.cond(done, lambda *state: state, step, x, done, count)

    def looped(x: Any, done: Any, count: Any) -> Any:
        return lax.scan(lambda state, _: (stepped(*state), None), (x, done, count), length=5)[0]

    args = (whole(16, 3), np.False_, np.int32(1))
    for function in (stepped, looped):
        f = rd.distribute(function, args, {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
        assert f.out_shardings[0].spec[0] == "d" and not f.opaque
        assert f.program.received_bytes == 0
        same(f, function, *args)


def test_a_branch_adds_beside_what_is_the_same_on_all_devices() -> None:
    def branched(x: Any, flag: Any) -> Any:
        return lax.cond(flag, lambda x: (x.sum(0), ~flag), lambda x: (x.sum(0) * 2, flag), x)

    args = (whole(16, 3), np.True_)
    f = rd.distribute(branched, args, {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert kinds(f) == ["all_reduce"] and not f.opaque
    same(f, branched, *args)


def test_a_while_loop_in_a_branch_is_cut_along_what_its_test_does_not_read() -> None:
    def maybe(x: Any, limit: Any) -> Any:
        def until(x: Any) -> Any:
            return lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] * 2, s[1] + s[0]), (jnp.int32(1), x))[1]

        return lax.cond(limit > 3, until, lambda x: x, x)

    args = (whole(16, 3), np.int32(100))
    f = rd.distribute(maybe, args, {"d": 8}, schedule=rd.along("d", {"x": 0}))
    assert (f.program.moves, f.opaque) == ((), ())
    assert f(*args).sharding.spec[0] == "d"
    same(f, maybe, *args)


def checked(x: Any, *, nested: bool) -> Any:
    """Two values of which the caller reads one pass through a check, as those of Equinox do."""

    def check(x: Any, y: Any) -> Any:
        def raised(x: Any, y: Any) -> Any:
            return jnp.full_like(x, jnp.nan), jnp.zeros_like(y)

        return lax.cond(jnp.isfinite(x).all(), lambda x, y: (x, y), raised, x, y)

    run = jax.jit(check) if nested else check
    return run(x, jnp.cumsum(x, axis=1))[0].sum(1)


@pytest.mark.parametrize("nested", [False, True])
def test_results_of_a_branch_that_nothing_reads_are_not_moved(nested: bool) -> None:
    def function(x: Any) -> Any:
        return checked(x, nested=nested)

    x = whole(16, 3)
    f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert "cumsum" not in {op.name for op in f.program.ops if isinstance(op, Compute)}
    assert kinds(f) == ["all_reduce"]  # of the check
    same(f, function, x)
    same(f, function, np.where(x == x.max(), np.inf, x))


def test_without_the_private_function_they_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "_dce_jaxpr", None)
    x = whole(16, 3)

    def function(x: Any) -> Any:
        return checked(x, nested=False)

    f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert "cumsum" in {op.name for op in f.program.ops if isinstance(op, Compute)}
    np.testing.assert_allclose(f(x), function(x))


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_sums_in_a_loop_of_a_branch_begin_at_a_number_once(dtype: str) -> None:
    """What is carried begins at literals: a number, to which steps add sums over parts, and a truth value."""

    def total(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            return (carry[0] + x.sum(dtype=x.dtype), carry[1]), None

        return lax.scan(step, (jnp.asarray(2, x.dtype), True), None, length=3)[0]

    def function(x: Any) -> Any:
        return lax.cond(x[0, 0] < 9, total, lambda x: (x[0, 0], False), x)

    x = (jnp.arange(16).reshape(8, 2) % 2).astype(dtype)
    f = rd.distribute(function, (x,), {"d": 8}, schedule=[rd.along("d", {"x": 0})])
    assert [(one.tolist(), one.dtype) for one in f(x)] == [(26, jnp.dtype(dtype)), (True, jnp.dtype(bool))]


def test_a_branch_that_merges_dimensions_is_cut_by_the_major_one() -> None:
    """Four heads of 16 in one dimension of 64: a part of it is whole heads."""

    def merged(x: Any) -> Any:
        return jnp.tanh(x).reshape(4, 64)

    def function(x: Any, flag: Any) -> Any:
        return lax.cond(flag, merged, lambda x: x.reshape(4, 64) * 2, x)

    x = np.arange(256, dtype=np.float32).reshape(4, 4, 16) / 99
    f = rd.distribute(function, (x, True), {"d": 4}, schedule=[rd.along("d", {"x": 1})])
    assert str(f.program.values[f.program.outputs[0]].type) == "[4, 16{d}64]"
    assert f.program.received_bytes == 0
    for flag in (True, False):
        np.testing.assert_allclose(f(x, flag), function(x, flag), rtol=1e-6)


def test_zeros_of_a_branch_are_summands_beside_those_of_another() -> None:
    def function(x: Any, flag: Any) -> Any:
        return lax.cond(flag, lambda x: x.sum(0), lambda x: jnp.zeros(x.shape[1], x.dtype), x)

    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    f = rd.distribute(function, (x, True), {"d": 8}, schedule=[rd.along("d", {"x": 0})])
    (cond,) = (op for op in f.program.ops if isinstance(op, Compute) and op.kind == "cond")
    assert "d" in cond.parts[0].cut.axes
    for flag in (True, False):
        np.testing.assert_array_equal(f(x, flag), function(x, flag))
