"""The layer that the bench runs an operation at a time computes what the layer written directly does."""

from __future__ import annotations

import pytest
import torch

from bench.eager_gpt2 import Layer, direct, interpreted, weights


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_operations_from_python_compute_the_layer(parts: int) -> None:
    torch.manual_seed(0)
    layer = Layer(512, parts)
    parameters = {name: value.float() for name, value in weights(512, parts).items()}
    x = torch.randn(3, 8, 512, device=parameters["mask"].device)
    expected = direct(parameters, x)
    assert (interpreted(layer, parameters, x) - expected).abs().max() < 1e-5 * expected.abs().max()
    # Most operations compute shapes; DistIR's Figure 4 numbers its values to 3114, which is 260 for each of 12 layers.
    assert 150 < len(layer.steps) < 3114 // 12
