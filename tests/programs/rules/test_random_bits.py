"""Random bits of every width are computed by the device that holds them, whatever dimension is cut."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import redistrib as rd
from redistrib.programs.ir.program import Compute


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "bfloat16", "float64"])
def test_bits_are_those_of_jit_and_nothing_is_received(dtype: str, dim: int) -> None:
    def drawn(key: Any, x: Any) -> Any:
        if "uint" in dtype:
            return jax.random.bits(key, x.shape, dtype) ^ x.astype(dtype)
        return jax.random.uniform(key, x.shape, dtype) + x.astype(dtype)

    with jax.enable_x64(True):
        args = jax.random.key(3), np.zeros((8, 12), np.float32)
        f = rd.distribute(drawn, args, {"d": 4}, schedule=[rd.along("d", {"x": dim})])
        assert f.program.received_bytes == 0
        (bits,) = (op for op in f.program.ops if isinstance(op, Compute) and op.kind == "random_bits")
        assert [value.type.local_size for _, value in bits.outs] == [8 * 12 // 4]
        np.testing.assert_array_equal(np.asarray(f(*args)), np.asarray(jax.jit(drawn)(*args)))
