"""Elements below a byte: packed in programs, searches and simulations as XLA packs them; whole bytes in plans."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import redistrib as rd
from redistrib.errors import MemoryLimitError
from redistrib.programs.ir.listing import rows_of

BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "int8": 8}


def twice(x: Any) -> Any:
    return jnp.concatenate([x, x])


@pytest.mark.parametrize("dtype", BITS)
def test_a_program_holds_what_xla_says(dtype: str) -> None:
    f = rd.distribute(twice, (jax.ShapeDtypeStruct((64, 128), dtype),), {"d": 4}, schedule=[rd.along("d", {"x": 1})])
    tile = 64 * 32 * BITS[dtype] // 8
    compiled = f.lower().compile().memory_analysis()
    assert compiled.argument_size_in_bytes == tile
    assert f.memory == tile + 2 * tile == compiled.argument_size_in_bytes + compiled.output_size_in_bytes


@pytest.mark.parametrize("profile", ["cpu", "gpu", "tpu", "v5e", "h100"])
@pytest.mark.parametrize("dtype", BITS)
def test_a_gather_receives_and_holds_it_everywhere(dtype: str, profile: str) -> None:
    """Program, simulation and search have one count; the plan, of arrays as NumPy has them, a byte for each."""
    form, whole = jax.ShapeDtypeStruct((4096, 1024), dtype), 4096 * 1024 * BITS[dtype] // 8
    ends = {"in_shardings": ("[1024{d}4096, 1024]",), "out_shardings": "[4096, 1024]"}
    f = rd.distribute(lambda x: x, (form,), {"d": 4}, **ends)
    found = rd.search(lambda x: x, (form,), {"d": 4}, machine=profile, progress=False, **ends)[0]
    assert f.program.received_bytes == found.received_bytes == 3 * whole
    assert f.memory == max(rd.simulate(f.program, profile).peak_bytes.values()) == found.memory == whole + whole // 4
    plan = rd.synthesize("[1024{d}4096, 1024]", "[4096, 1024]", {"d": 4}, dtype=dtype)
    assert plan.peak_bytes == (4096 + 1024) * 1024 == jnp.zeros(((4096 + 1024), 1024), dtype).nbytes


def test_received_bytes_are_counted_alike_where_no_device_receives_whole_bytes() -> None:
    """Each of four devices receives 15 elements of `int4`, which take 8 bytes: not 15, nor a quarter of 30."""
    form, ends = jax.ShapeDtypeStruct((4, 5), "int4"), {"in_shardings": ("[1{d}4, 5]",), "out_shardings": "[4, 5]"}
    program = rd.distribute(lambda x: x, (form,), {"d": 4}, **ends).program
    assert program.received_bytes == sum(map(program.received_bytes_of, program.moves)) == 32
    assert [row.received for row in rows_of(program)] == [32]
    assert [line.split()[3] for line in str(program).splitlines() if " allgather " in line] == ["32"]
    found = rd.search(lambda x: x, (form,), {"d": 4}, objective="bytes", progress=False, **ends)[0]
    assert found.rank[0] == found.received_bytes == 32
    assert [(cost.held, cost.moves) for cost in found.pin_costs()] == [(32, (("x", 32),))] * 2


def test_a_limit_counts_packed_bytes() -> None:
    form, options = jax.ShapeDtypeStruct((64, 128), "int4"), {"schedule": [rd.along("d", {"x": 1})]}
    assert rd.distribute(twice, (form,), {"d": 4}, memory_limit=3 * 1024, **options).memory == 3 * 1024
    with pytest.raises(MemoryLimitError):
        rd.distribute(twice, (form,), {"d": 4}, memory_limit=3 * 1024 - 1, **options)
