"""`rd.torch.redistribute` inside `torch.compile`, on 2 ranks."""

from __future__ import annotations

from pathlib import Path

from ranks import Ranks


def test_moves_in_compiled_functions() -> None:
    with Ranks(2) as launched:
        assert launched.run("compiled.functions", longest=115.0)[0] == ["cast", "method", "elsewhere"]


def test_programs_on_disk_are_those_of_the_rank(tmp_path: Path) -> None:
    """A rank gets its own program from a folder of all ranks; from DTensor's own move, that of another rank."""
    with Ranks(2) as launched:
        found = launched.run("compiled.cached", str(tmp_path), longest=240.0)
    for rank in found:
        assert [right for right, _ in rank["ours"]] == [True, True], found
        assert rank["ours"][1][1], "nothing came from the folder"
    if all(right for rank in found for right, _ in rank["theirs"]):
        raise AssertionError(
            f"PyTorch has mended its caches: take `on_rank` and the words in docs/torch.md out ({found})"
        )
