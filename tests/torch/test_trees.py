"""`rd.torch.reshard` on 8 ranks."""

from __future__ import annotations

from kept_plans import answers, kept
from ranks import Ranks


def test_random_trees(ranks: Ranks) -> None:
    launches = ranks.run("trees.random_trees", 1, 12)
    assert all(one == launches[0] for one in launches) and max(launches[0]) <= 6


def test_sums_and_shared_storage(ranks: Ranks) -> None:
    ranks.run("trees.sums_and_shared")


def test_tied_tensors_move_once(ranks: Ranks) -> None:
    ranks.run("trees.tied")


def test_trees_are_planned_as_before(ranks: Ranks) -> None:
    """`python tests/torch/kept_plans.py` renews what is kept."""
    assert answers(ranks) == kept()


def test_containers_of_every_kind(ranks: Ranks) -> None:
    ranks.run("trees.containers")


def test_refusals_are_those_of_every_rank(ranks: Ranks) -> None:
    said = ranks.run("trees.refusals")
    assert all(one == said[0] for one in said)
    words = (
        "give the same on all ranks", "leaf b: it has no target", "rank 3: leaf b", "MemoryLimitError", "rank 4: ",
        "leaf c: [Replicate()] has no mesh, since the tensor is no DTensor; give (mesh, placements)",
    )  # fmt: skip
    for text, word in zip(said[0], words, strict=True):
        assert word in text


def test_a_tensor_that_dtensors_own_steps_move(ranks: Ranks) -> None:
    ranks.run("trees.by_dtensors_steps")


def test_launches_that_differ_between_ranks_are_refused(ranks: Ranks) -> None:
    said = ranks.run("trees.other_bytes_stay", longest=60.0)
    assert all(one == said[0] for one in said)
    assert said[0].startswith("rank 3 gives another plan than rank 0 for reshard of 3 tensors in 2 launches"), said[0]


def test_an_error_names_the_least_limit_of_the_whole_tree(ranks: Ranks) -> None:
    """A later tensor needs more than the first, and has no room once one behind it went before."""
    for told in ranks.run("trees.least_limits"):
        assert [least for least, _ in told] == [1384, 1216]  # the first need 1216 and 600
        assert all(f"is {least:,} bytes" in below for least, below in told)


def test_a_call_that_is_known_looks_at_no_tensor_of_a_mesh(ranks: Ranks) -> None:
    """PyTorch makes it anew at each look, which takes longer than all else that a small leaf needs."""
    assert ranks.run("trees.looks") == [[0, 0]] * 8
