"""Where the traffic of a plan goes."""

from dataclasses import replace
from pathlib import Path

import pytest

import redistrib as rd
from redistrib.errors import PictureError
from redistrib.explain import explain, picture, traffic
from redistrib.programs.ir.listing import draw_program
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from tests.messages import exactly

SWAP = ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6})


@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize("model", ["exact", "paper", "tpu"])
def test_every_received_element_is_accounted_for(algorithm: str, model: str) -> None:
    for problem in (SWAP, ("[2{x}16, 8{y}16]", "[16, 2{x}16]", {"x": 8, "y": 2}), ("[16]", "[2{x}16]", {"x": 8})):
        plan = rd.synthesize(*problem, machine=model, algorithm=algorithm)
        entries = traffic(plan)
        for entry in entries:
            assert entry.needed + entry.passing + entry.again + entry.padding == sum(entry.step.received())
            assert min(entry.needed, entry.passing, entry.again, entry.padding) >= 0
        assert sum(entry.needed for entry in entries) >= sum(plan.lower_bound)


def test_a_plan_at_the_bound_carries_nothing_in_vain() -> None:
    plan = rd.synthesize(*SWAP, machine="exact")
    assert [(entry.needed, entry.passing, entry.again, entry.padding) for entry in traffic(plan)] == [(124, 0, 0, 0)]
    assert explain(plan).endswith("The plan receives exactly the lower bound: no plan can receive less.")


def test_above_the_bound_the_steps_and_reasons_are_named() -> None:
    plan = rd.synthesize(*SWAP, machine="paper", algorithm="paper")
    lines = explain(plan).splitlines()
    assert lines[-1] == (
        "The plan receives 264 elements, 2.13 times the lower bound of 124; machine='paper' prices fewer or "
        "larger collectives below the difference."
    )
    assert (
        "Step 1 (alltoall) brings 68 elements to devices whose target tile they are no part of: they are sent on "
        "later, or dropped."
    ) in lines


def test_padding_is_named() -> None:
    found = rd.synthesize(*SWAP, machine="exact")
    *_, padded = in_rounds(Problem.plain(found.before, found.after))
    plan = replace(found, steps=tuple(padded))
    assert [(entry.needed, entry.passing, entry.again, entry.padding) for entry in traffic(plan)] == [(124, 0, 0, 32)]
    assert (
        "Step 1 (exchange) brings 32 elements of padding: in a round every box travels as large as the largest."
    ) in explain(plan).splitlines()


def test_pictures_show_so_many_devices(tmp_path: Path) -> None:
    plan = rd.synthesize("[1{x}4097]", "[4097]", {"x": 4097})
    with pytest.raises(PictureError, match=exactly("a picture shows at most 4096 devices, this plan has 4097")):
        picture(plan, tmp_path / "many.png")


def test_pictures_are_for_rank_one_and_two(tmp_path: object) -> None:
    plan = rd.synthesize("[2{x}4, 4, 4]", "[4, 2{x}4, 4]", {"x": 2})
    with pytest.raises(ValueError, match=exactly("a picture shows arrays of rank 1 or 2, this one has rank 3")):
        picture(plan, "never.png")


def test_what_is_added_is_told_from_what_is_kept() -> None:
    text = explain(rd.synthesize("[16, 8] sum{x}", "[16, 8]", "x=4,y=2", machine="exact"))
    assert text.splitlines()[0].strip() == "elements received, all devices"
    assert [line.split()[-3:] for line in text.splitlines()[3:6]] == [
        ["0", "0", "0"],
        ["384", "0", "384"],
        ["896", "896", "0"],
    ]
    assert text.endswith("exactly the lower bound from 4 partial sums to whole tiles: no plan can receive less.")
    reduced = explain(rd.synthesize("[7] sum{x}", "[7]", "x=8", machine="exact"))
    assert reduced.splitlines()[3].split()[-3:] == ["98", "49", "49"]
    moved = explain(rd.synthesize("[4] sum{x}", "[4] sum{y}", "x=2,y=2", machine="exact"))
    assert "receives 8 elements; the lower bound is 0, from 2 partial sums to 2 partial sums" in moved
    assert moved.endswith("That bound need not be reached where several devices hold one partial sum of the target.")


def test_pictures_tell_summands_apart(tmp_path: Path) -> None:
    drawn = picture(rd.synthesize("[4] sum{x}", "[2{y}4]", "x=2,y=2"), tmp_path / "sums.svg")
    assert "+ 2,3" in drawn.read_text()


def test_a_picture_has_a_panel_for_each_placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    panels: list[int] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: panels.append(len(figure.axes)))
    plan = rd.synthesize("[16] sum{x}", "[16]", "x=8", machine="exact")
    picture(plan, tmp_path / "panels.png")
    assert panels == [1 + len(plan.steps)]
    product = rd.nest("ij,jk->ik", (16, 16, 16))
    draw_program(rd.partition(product, {"matmul": {"j": 8}}), tmp_path / "bars.png")
    assert panels[1:] == [2]  # work, and what is moved


@pytest.mark.parametrize(
    ("cuts", "says"),
    [
        ({"j": 8}, "main on 8 devices: 14 KiB received in 1 move"),
        ({"i": 1}, "main on 1 device: 0 B received in 0 moves"),
    ],
)
def test_bars_are_headed_by_how_much_is_moved(tmp_path: Path, cuts: dict[str, int], says: str) -> None:
    product = rd.nest("ij,jk->ik", (16, 16, 16))
    drawn = draw_program(rd.partition(product, {"matmul": cuts}), tmp_path / "bars.svg").read_text()
    assert f"<!-- {says} -->" in drawn


def test_many_holders_are_told_by_the_first_and_the_last(tmp_path: Path) -> None:
    drawn = picture(rd.synthesize("[8{x}16]", "[16]", "x=2,y=8"), tmp_path / "holders.svg").read_text()
    assert "0..7" in drawn and "8..15" in drawn and "0..15" in drawn
