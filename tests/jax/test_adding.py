"""In which element type sums are made."""

import jax.numpy as jnp
import pytest

from redistrib.backends.jax.adding import Adding

BF16, F32 = jnp.dtype("bfloat16"), jnp.dtype("float32")


@pytest.mark.parametrize(
    ("dtype", "accumulate", "travels_as", "made_in"),
    [
        (BF16, F32, "bfloat16", F32),
        (BF16, F32, "uint16", F32),  # bits of the same
        (BF16, None, "bfloat16", BF16),
        (BF16, None, "uint16", BF16),
        (F32, None, "float32", F32),
    ],
)
def test_the_type_that_sums_are_made_in(dtype, accumulate, travels_as, made_in):
    adding = Adding(dtype, accumulate, fixed=True, native=True)
    assert adding.dtype_of_sums(jnp.zeros(2, travels_as)) == made_in
    assert adding.wide(jnp.zeros(2, travels_as)).dtype == made_in
