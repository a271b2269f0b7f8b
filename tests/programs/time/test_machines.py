"""Machines of today: every figure has a source, arithmetic goes by element type, axes are laid onto the torus."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib.cost.chips import CHIPS
from redistrib.lang.mesh import Mesh
from redistrib.programs.time.constants import MACHINES, machine
from redistrib.programs.time.torus_layout import described, laid

ASKED = ("a100", "h100", "h200", "b200", "gb200", "mi300x", "v4", "v5e", "v5p", "v6e", "tpu7x")


@pytest.mark.parametrize("name", ASKED)
def test_a_machine_has_all_figures_and_their_source(name: str) -> None:
    found, chip = machine(name), CHIPS[name]
    assert len(chip.source) > 60
    assert any(word in chip.source for word in ("data sheet", "system architecture"))
    assert found.memory == chip.memory > 10**10
    assert found.rates is not None
    assert found.rates.flops == chip.flops["bfloat16"]
    assert 10 < chip.flops["bfloat16"] / chip.memory_bandwidth < 1000  # operations for a byte
    assert chip.link > chip.network
    assert (chip.torus > 0) == (chip.ring > 0)


def test_the_table_names_no_others() -> None:
    assert {*CHIPS} == {*ASKED}
    assert {*CHIPS} < {*MACHINES}


@pytest.mark.parametrize(
    ("name", "dtype", "flops"),
    [
        ("h100", "bfloat16", 989e12),
        ("h100", "float8_e4m3fn", 1979e12),
        ("h100", "int8", 1979e12),
        ("h100", "float32", 494e12),
        ("a100", "int4", 1248e12),
        ("h100", "int4", 1979e12),
        ("v4", "int8", 275e12),
        ("v5e", "int8", 393e12),
        ("v5e", "int4", 393e12),
        ("v5p", "float8_e4m3fn", 459e12),
        ("v5e", "float32", 197e12),
        ("tpu7x", "float8_e4m3fn", 4614e12),
        ("tpu7x", "int8", 2307e12),
        ("gb200", "float4_e2m1fn", 10e15),
    ],
)
def test_a_product_takes_the_arithmetic_of_its_element_type(name: str, dtype: str, flops: float) -> None:
    """Of a large product the seconds are its operations over the figure of the table, and the launch."""
    assert CHIPS[name].flops.get(dtype, CHIPS[name].flops["bfloat16"]) == flops
    on = machine(name)
    n = 8192

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.dot(a, b, preferred_element_type=jnp.float32)

    form = jax.ShapeDtypeStruct((n, n), dtype)
    program = rd.distribute(product, (form, form), {"d": 1}).program
    assert on.rates is not None
    assert rd.simulate(program, on).seconds == pytest.approx(2 * n**3 / flops + on.rates.launch, rel=1e-6)


def test_of_two_element_types_the_wider_counts() -> None:
    assert machine("h100").rates_of("dot", ("int8", "bfloat16")).flops == 989e12
    assert machine("h100").rates_of("dot", ()).flops == 989e12
    assert machine("a100").rates_of("dot", ("int4", "int8")).flops == 624e12
    assert machine("h100").rates_of("cond", ("int32", "float32")).flops == 494e12  # the number of a branch, and arrays
    assert machine("gpu").rates_of("dot", ("int8",)).flops == machine("gpu").rates_of("dot").flops


def _speeds(name: str, mesh: dict[str, int]) -> list[dict[str, float]]:
    return [dict(one.links.axis_bandwidth) for one in laid(machine(name), Mesh.of(mesh))]  # type: ignore[attr-defined]


def test_axes_take_the_links_of_the_dimensions_that_they_lie_on() -> None:
    """Both neighbours along each dimension of a ring, one where it does not close; the network between slices."""
    assert _speeds("v5p", {"data": 64}) == [{"data": 540e9}]
    assert _speeds("v5p", {"data": 16, "model": 4}) == [
        {"data": 360e9, "model": 180e9},
        {"data": 180e9, "model": 180e9},  # two sides of 2, which do not close
    ]
    assert _speeds("v5e", {"data": 16, "model": 8}) == [{"data": 90e9, "model": 45e9}]
    assert _speeds("v5e", {"slices": 4, "data": 16, "model": 16})[0]["slices"] == 3.125e9
    assert _speeds("v5p", {"data": 2}) == [{"data": 90e9}]  # two devices have one link between them
    assert _speeds("v5p", {"data": 7}) == [{"data": 90e9}]
    assert _speeds("v5p", {"data": 4}) == [{"data": 180e9}]
    assert _speeds("v5p", {"data": 2, "model": 4}) == [{"data": 90e9, "model": 180e9}, {"data": 90e9, "model": 180e9}]
    assert _speeds("h100", {"data": 16, "model": 8}) == [{}]
    assert [dict(one.layout) for one in laid(machine("v5p"), Mesh.of("a=4,b=4,c=4,d=4"))] == [dict.fromkeys("abcd", 1)]


def test_the_search_lays_the_axis_that_moves_most_onto_most_links() -> None:
    """A product that sums over one axis and nothing along the other."""

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w) @ w.T

    args = (jax.ShapeDtypeStruct((4096, 8192), np.float32), jax.ShapeDtypeStruct((8192, 8192), np.float32))
    pins = [rd.along("data", {"x": 0, "w": None}), rd.along("model", {"w": 0, "x": None})]
    result = rd.search(function, args, {"data": 16, "model": 16}, pins=pins, machine="v5p", progress=False)
    assert len(result) == 2
    assert result[0].seconds < result[1].seconds
    assert "on 2 dimensions of the torus" in result[0].name
    assert result[0].problem.machine.layout == {"data": 1, "model": 2}


def test_the_chip_of_a_machine_says_how_axes_lie_and_its_name_says_nothing() -> None:
    """v5p under another name keeps its torus; an H100 with its name has hosts and no torus."""
    mesh = {"data": 16, "model": 4}
    renamed, impostor = replace(machine("v5p"), name="mine"), replace(machine("h100"), name="v5p")
    over = Mesh.of(mesh)
    assert laid(renamed, over) == [replace(way, name="mine") for way in laid(machine("v5p"), over)]
    assert laid(impostor, over) == [impostor]
    assert described(impostor, over) == "data inside and between hosts, model inside a host"

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w) @ w.T

    args = (jax.ShapeDtypeStruct((4096, 8192), np.float32), jax.ShapeDtypeStruct((8192, 8192), np.float32))
    for other, name in ((renamed, "v5p"), (impostor, "h100")):
        found, expected = (rd.search(product, args, mesh, machine=on, progress=False) for on in (other, name))
        assert [(one.name, one.seconds) for one in found] == [(one.name, one.seconds) for one in expected]


@pytest.mark.parametrize(
    ("name", "mesh", "text"),
    [
        ("h100", "data=16,model=8", "data between hosts, model inside a host"),
        ("h100", "data=2,model=16", "data between hosts, model inside and between hosts"),
        ("h100", "data=4,seq=2,model=4", "data between hosts, seq inside a host, model inside a host"),
        ("h100", "data=12", "data inside and between hosts"),
        ("h100", "data=2,model=4", ""),
        ("gb200", "data=2,model=72", "data between racks, model inside a rack"),
        ("gb200", "data=8,model=8", ""),
        ("v5p", "data=16,model=4", "data on 2 dimensions of the torus, model on a ring of the torus"),
        ("v5p", "data=16,model=2", "data on 2 dimensions of the torus, model on a line of the torus"),
        ("gpu", "data=16,model=8", ""),
    ],
)
def test_a_result_says_where_axes_lie(name: str, mesh: str, text: str) -> None:
    over = Mesh.of(mesh)
    assert described(laid(machine(name), over)[0], over) == text


# ------------------------------------------------------------------------------------------- below a byte


@pytest.mark.parametrize(("dtype", "bits"), [("int4", 4), ("uint4", 4), ("float4_e2m1fn", 4), ("float8_e4m3fn", 8)])
def test_elements_below_a_byte_are_packed(dtype: str, bits: int) -> None:
    """Memory, traffic and prices of a gather and of a product, counted by hand."""
    whole, tile = 4096 * 1024 * bits // 8, 4096 * 1024 * bits // 32
    form = jax.ShapeDtypeStruct((4096, 1024), dtype)
    ends = {"in_shardings": ("[1024{d}4096, 1024]",), "out_shardings": "[4096, 1024]"}
    gather = rd.distribute(lambda x: x, (form,), {"d": 4}, **ends).program
    found = rd.simulate(gather, "v5e")
    assert max(found.peak_bytes.values()) == whole + tile
    assert max(rd.simulate(gather, "tpu").peak_bytes.values()) == whole + tile
    eight = rd.distribute(lambda x: x, (jax.ShapeDtypeStruct((4096, 1024), "int8"),), {"d": 4}, **ends).program
    launch = machine("v5e").links.latency["allgather"].seconds(4)  # type: ignore[attr-defined]
    ratio = (found.seconds - launch) / (rd.simulate(eight, "v5e").seconds - launch)
    assert ratio == pytest.approx(bits / 8)

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ w.astype(jnp.bfloat16)

    args = (jax.ShapeDtypeStruct((8, 8192), "bfloat16"), jax.ShapeDtypeStruct((8192, 32768), dtype))
    candidate = rd.search(product, args, {"model": 4}, machine="v5e", progress=False)[0]
    chip, rates = CHIPS["v5e"], machine("v5e").rates
    assert rates is not None
    size = 8 * 8192 * 2 + 8192 * 8192 * bits // 8 + 8 * 8192 * 2  # the product converts its operand
    assert candidate.memory == size
    assert candidate.seconds == pytest.approx(rates.launch + size / chip.memory_bandwidth, rel=1e-6)
