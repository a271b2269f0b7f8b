"""A schedule at once, of models at real size and without a device: seconds of the processor, whatever else runs."""

from __future__ import annotations

import time
from typing import Any

import pytest

import redistrib as rd
from bench.language_models import LLAMA_70B, decode
from tests.search import sized_models

SECONDS = 5.0


def searched(function: Any, args: Any, mesh: dict[str, int], **options: Any) -> Any:
    began = time.process_time()
    found = rd.search(function, args, mesh, profile="v5p", memory_limit="95GB", progress=False, **options)[0]
    return found, time.process_time() - began


@pytest.mark.parametrize("overlap", [False, True])
def test_a_mixture_of_experts_of_60_layers_on_256_chips(overlap: bool) -> None:
    args = sized_models.mixture_args(256, 4096)
    mesh, options = {"data": 32, "model": 8}, {"state": {"params": 0}, "overlap": overlap}
    found, seconds = searched(sized_models.mixture_step, args, mesh, limit=0.1, **options)
    assert seconds < SECONDS
    assert found.memory <= 95 * 10**9
    assert found.joint_bound <= found.seconds < 2 * found.joint_bound


def test_decoding_with_a_cache_of_32768_tokens_on_64_chips() -> None:
    """What is found in five seconds keeps weights where they are, cut by both axes (Pope et al. 2022)."""
    params = LLAMA_70B.parameters(stacked=True)
    cache = (sized_models.form(80, 64, 8, 32768, 128),) * 2
    args = (params, cache, sized_models.form(64, dtype="int32"), sized_models.form(dtype="int32"))
    mesh, options = {"data": 8, "model": 8}, {"state": {"cache": 0}}
    first, seconds = searched(decode, args, mesh, limit=0.1, **options)
    assert seconds < SECONDS
    assert first.memory <= 95 * 10**9
    found, seconds = searched(decode, args, mesh, limit=60, **options)
    assert seconds < 4 * SECONDS
    assert found.joint_bound <= found.seconds < 1.5 * found.joint_bound
    cut = found.result.decisions.ins
    assert all({*cut[f"params/layers/{name}"]} == {"data", "model"} for name in ("gate", "up", "down"))
