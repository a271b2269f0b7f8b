"""What is predicted of compiled memory, beside what the compiler reports, for forty programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import pytest

import redistrib as rd
from bench.programs.all import cases
from bench.programs.case import Case
from tests.programs.run.others import held_out, known


def near(case: Case) -> bool:
    """Whether the prediction is within a tenth of the arguments, results and temporaries that the compiler reports."""
    f = case.distributed(machine="exact")
    found = f.lower().compile().memory_analysis()
    taken = found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes
    return bool(abs(f.compiled_memory / taken - 1) <= 0.1)


# Programs of the bench whose prediction is off by more: look-ups that are added as bits take scratch that is not
# predicted, and a product that the compiler makes again is predicted as held.
OUTSIDE = {"embedding and cross-entropy", "LayerNorm backward"}


def test_random_numbers_of_one_key_take_the_memory_that_they_take_on_one_device() -> None:
    def dropped(key: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * 2, 0)

    x, key = jax.ShapeDtypeStruct((1 << 17,), "float32"), jax.random.key(0)
    f = rd.distribute(dropped, (key, x), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    ours, whole = (
        run.lower(*args).compile().memory_analysis() for run, args in ((f, ()), (jax.jit(dropped), (key, x)))
    )
    assert ours.temp_size_in_bytes <= 1.02 * whole.temp_size_in_bytes / 8
    taken = ours.temp_size_in_bytes + ours.argument_size_in_bytes + ours.output_size_in_bytes
    assert abs(f.compiled_memory / taken - 1) <= 0.02


@pytest.mark.long
def test_the_benchs_programs_that_are_predicted_worse_are_known() -> None:
    assert {name for name, case in cases("full").items() if not near(case)} == OUTSIDE


@pytest.mark.long
@pytest.mark.parametrize(
    ("programs", "most"), [(known, 6), (held_out, 9)], ids=["seen while rules were written", "held out"]
)
def test_memory_is_predicted_within_a_tenth_of_what_is_reported(
    programs: Callable[[], Iterable[Case]], most: int
) -> None:
    assert sum(map(near, programs())) >= most
