"""Reductions of tensors on a device have the bits of those in memory of the host; here the device is a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from redistrib.backends.torch.dtypes import torch_dtype
from redistrib.backends.torch.sums import TensorAccumulator
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.reduction import Accumulator

NAMES = (
    "bool", "uint8", "uint16", "uint32", "int8", "int64", "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip


@pytest.mark.parametrize("reduction", ["sum", "max", "min"])
@pytest.mark.parametrize("name", NAMES)
def test_elements_without_a_value_are_the_identity(name: str, reduction: str) -> None:
    if (name, reduction) == ("bool", "sum"):
        return
    dtype, rng = dtype_of(name), np.random.default_rng(1)
    into = torch.empty(4, 3, dtype=torch_dtype(name))
    totals = Accumulator((4, 3), dtype, reduction), TensorAccumulator(dtype, reduction, None, into)
    for offset, size in (((0, 0), (2, 3)), ((1, 0), (2, 2))):
        part = rng.integers(0, 2, size).astype(dtype)
        totals[0].add(offset, part)
        totals[1].add(offset, torch.from_numpy(part.view(np.uint8)).view(into.dtype))
    assert totals[1].result().view(torch.uint8).numpy().tobytes() == totals[0].result().tobytes()
