"""Sums that cannot be: one error, the same words at every door. And the one that can: integers wrap around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.cli import main
from redistrib.errors import LeafError, NotationError, ReductionError, TracedError, TypeFormError
from redistrib.lang.notation import parse_type
from redistrib.lang.types import DistType
from tests.messages import exactly
from tests.reshard.meshes import AUTO, EXPLICIT, on

MESH = "x=4,y=2"
pytestmark = pytest.mark.usefixtures("on_explicit_axes")

TWO_KINDS = "[8] sum{x} max{y}"
ONE_KIND = f"""\
expected one kind of reduction, with all its axes in one pair of braces, found 'max' (characters 11 to 14)
    {TWO_KINDS}
               ^^^"""
CUTS = "axis 'x' cuts the array and is a partial axis too in type [2{x}8] sum{x}; an axis may do one of the two"
TO_MAX = (
    "partial sums by sum cannot become partial sums by max; reduce [8] sum{x} first, and make [8] max{y} of the result"
)
NO_SUM = "elements of bool have no sum; take max for 'any' and min for 'all', or an integer type"
UNKNOWN = (
    "under jit on a mesh of Auto axes XLA chooses where this array lies, and memory_limit= needs a plan from there; "
    "say it with source=, a sharding or a tree of them, or use a mesh of Explicit axes"
)


def summands(value: Any) -> jax.Array:
    """On every device the same value, as a summand along x."""
    tiles = [jax.device_put(value, device) for device in EXPLICIT.devices.flat]
    return jax.make_array_from_single_device_arrays(np.shape(value), on(EXPLICIT, unreduced={"x"}), tiles)


def refused(run: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        run()
    assert type(caught.value) is error
    assert str(caught.value) == message


@pytest.mark.parametrize("read", [parse_type, DistType.parse, DistType.of])
def test_two_kinds_at_once_are_not_read(read: Callable[[str], object]) -> None:
    refused(lambda: read(TWO_KINDS), NotationError, ONE_KIND)


BAD = [
    ("[2{x}8] sum{x}", "[8]", "float32", TypeFormError, CUTS),
    ("[8]", "[2{x}8] sum{x}", "float32", TypeFormError, CUTS),
    (TWO_KINDS, "[8]", "float32", NotationError, ONE_KIND),
    ("[8]", TWO_KINDS, "float32", NotationError, ONE_KIND),
    ("[8] sum{x}", "[8] max{y}", "float32", ReductionError, TO_MAX),
    ("[8] sum{x}", "[8]", "bool", ReductionError, NO_SUM),
    ("[8]", "[8] sum{x}", "bool", ReductionError, NO_SUM),
]


@pytest.mark.parametrize(("source", "target", "dtype", "error", "message"), BAD)
def test_synthesize_and_the_command_refuse(
    source: str, target: str, dtype: str, error: type[Exception], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(lambda: rd.synthesize(source, target, MESH, dtype=dtype), error, message)
    for command in ("plan", "explain", "run"):
        assert main([command, source, target, "--mesh", MESH, "--dtype", dtype]) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", f"redistrib: {message}\n")


def test_reshard_refuses_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX 0.10 has sums only; from 0.11 on a spec says its kind, one for all its axes."""
    array, target = summands(np.ones(8, np.float32)), on(EXPLICIT, unreduced={"y"})
    kinds = getattr(jax.sharding, "UnreducedKind", None)
    if kinds is None:
        kind = property(lambda spec: "max" if "y" in spec.unreduced else "sum")
        monkeypatch.setattr(P, "unreduced_kind", kind, raising=False)
    else:
        target = jax.sharding.NamedSharding(target.mesh, P(unreduced={"y"}, unreduced_kind=kinds.max))
    refused(lambda: rd.reshard({"a": array}, target), LeafError, f"leaf a: {TO_MAX}")
    refused(lambda: jax.jit(lambda a: rd.reshard({"a": a}, target))(array), LeafError, f"leaf a: {TO_MAX}")


def test_reshard_refuses_sums_of_booleans() -> None:
    whole = jax.device_put(np.ones(8, np.bool_), on(EXPLICIT))
    told = f"leaf a: {NO_SUM}"
    refused(lambda: rd.reshard({"a": summands(np.ones(8, np.bool_))}, on(EXPLICIT)), LeafError, told)
    refused(lambda: rd.reshard({"a": whole}, on(EXPLICIT, unreduced={"x"})), LeafError, told)


def test_summands_on_auto_axes_need_a_source() -> None:
    array = jax.device_put(np.ones(8, np.float32), on(AUTO))  # to JAX it is replicated; whether it is, nothing says
    with jax.set_mesh(AUTO):
        options: dict[str, Any] = {"memory_limit": "1MiB"}
        refused(lambda: jax.jit(lambda a: rd.reshard(a, on(AUTO, "x"), **options))(array), TracedError, UNKNOWN)
        leaf = "leaf a: "
        told = leaf + UNKNOWN
        refused(lambda: jax.jit(lambda a: rd.reshard({"a": a}, on(AUTO, "x"), **options))(array), LeafError, told)
        with pytest.raises(
            ValueError,
            match=exactly(
                "Unreduced axes can only refer to mesh axes that is of type `Explicit`. Got unreduced "
                "axes: frozenset({'y'}) and mesh: Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto))"
            ),
        ) as own:
            on(AUTO, unreduced={"y"})
        refused(lambda: rd.reshard({"a": array}, P(unreduced={"y"})), LeafError, f"{leaf}{own.value}")
        said = on(EXPLICIT, unreduced={"x"})
        summed = jax.jit(lambda a: rd.reshard(a, on(AUTO), source=said))(array)
    assert summed.tolist() == [4.0] * 8


@pytest.mark.parametrize("order", ["any", "fixed"])
def test_sums_of_integers_wrap_around(order: Any) -> None:
    array = summands(jnp.full(8, 100, jnp.int8))
    assert rd.reshard(array, on(EXPLICIT), order=order).tolist() == [-112] * 8  # 400 - 512
    assert jax.jit(lambda a: rd.reshard(a, on(EXPLICIT, "x"), order=order))(array).tolist() == [-112] * 8
