"""Modules of PyTorch through the library's moves."""

from __future__ import annotations

from ranks import Ranks


def test_a_module_gets_its_tensors_in_other_layouts(ranks: Ranks) -> None:
    said = ranks.run("modules.resharded")
    assert all(one == said[0] for one in said)
    fsdp, replicas, missing = said[0]
    assert "LeafError" in fsdp and "FSDPTied keeps its parameters itself" in fsdp
    assert "leaf model: DistributedDataParallel keeps" in replicas
    assert "it has no target" in missing


def test_styles_of_tensor_parallelism(ranks: Ranks) -> None:
    assert ranks.run("modules.styles")[0] == ["columns, rows", "sequence", "outputs", "prepared"]
