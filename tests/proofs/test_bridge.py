"""The Coq checker and `verify` agree, here on a sample; `make -C proofs bridge` holds them together on all plans."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from proofs.bridge import compare
from proofs.bridge.compare import CHECKER, Case, Judged, cases_of, coq_verdicts, faults, judge, shortfalls
from proofs.bridge.corpus import Sample, corpus
from proofs.bridge.corpus_partial import PARTIAL_WAYS, partial_corpus
from proofs.bridge.corpus_sets import SET_WAYS, sets_corpus
from proofs.bridge.export import dimensions, plan_term
from proofs.bridge.mutate import BREAKING, HARMLESS, changed
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans import verify, verify_exchange, verify_groups, verify_reductions, verify_tiles
from redistrib.plans.steps import AllPermute
from redistrib.theory.placement import Placement, placement_of
from tests.plans.corrupt_devices import WAITING_IN_TEXTS
from tests.plans.corrupt_reductions import REDUCTION_CORRUPTIONS
from tests.plans.hand_partial import PARTIAL

pytestmark = pytest.mark.long  # its sample of plans takes longer to make than most tests to run

GATHER = {
    "source": {"type": "[2{x}4, 3]", "mesh": {"axes": [["x", 2]], "devices": [0, 1]}},
    "target": {"type": "[4, 3]", "mesh": {"axes": [["y", 1], ["x", 2]], "devices": [1, 0]}},
    "placements": [{"grid": [2, 1], "index": [[0, 0], [1, 0]]}, {"grid": [1, 1], "index": [[0, 0], [0, 0]]}],
    "steps": [{"kind": "allgather", "before": 0, "after": 1, "groups": [[0, 1]]}],
}


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return corpus(50) + partial_corpus(30) + sets_corpus(30)


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled checker."""
    if shutil.which("coqc") is None:
        pytest.skip("Coq is not installed")
    folder = tmp_path_factory.mktemp("Checker")
    partial = ("PartialSpec", "PartialCheck", "Totals", "PartialSteps", "PartialSound")
    for name in ("Spec", "Check", "Vectors", "Steps", "Counts", "Sound", *partial):
        shutil.copy(CHECKER / f"{name}.v", folder)
        command = ["coqc", "-q", "-Q", str(folder), "Redistrib.Checker", str(folder / f"{name}.v")]
        subprocess.run(command, check=True)
    return folder


def test_a_plan_that_leaves_devices_alone_on_the_way_has_no_summands() -> None:
    """It is of version 2, as plans with summands are, and tells of no traffic, as both its ends are everywhere."""
    rows: list[dict[str, object]] = [{"grid": [2, 1], "index": [[0, 0], [-1, -1]]}]
    between = {**GATHER, "version": 2, "placements": GATHER["placements"] + rows}  # type: ignore[operator]
    assert plan_term(between).startswith("Plan [")
    assert plan_term({**GATHER, "version": 2}).startswith("PPlan (PType ")


def test_a_type_is_read_as_it_is_written() -> None:
    assert dimensions("[3{x,y_0}12, 5,2{}2]") == [(3, ["x", "y_0"], 12), (5, [], 5), (2, [], 2)]
    assert dimensions("[]") == []


@pytest.mark.parametrize("text", ["3", "[3{x]", "[x]", "[3 4]"])
def test_what_is_no_type_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="is no type"):
        dimensions(text)


def test_a_plan_as_a_term() -> None:
    assert plan_term(GATHER) == (
        "Plan [Dim 2 [0] 4; Dim 3 [] 3] (Mesh [2] [0; 1]) [Dim 4 [] 4; Dim 3 [] 3] (Mesh [1; 2] [1; 0]) "
        "[Placement [2; 1] [[0; 0]; [1; 0]]; Placement [1; 1] [[0; 0]; [0; 0]]] [Step 0 1 (AllGather [[0; 1]])]"
    )


def test_an_exchange_as_a_term() -> None:
    share = [0, 1, 2, [3, -4], [5, 6]]
    step = {"kind": "exchange", "before": 0, "after": 1, "realisation": "ragged", "shares": [share]}
    assert plan_term({**GATHER, "steps": [step]}).endswith(
        "[Step 0 1 (Exchange Ragged [Share 0 1 2 [3; (-4)] [5; 6]])]"
    )


def test_summands_as_a_term() -> None:
    side = {"type": "[4] max{x}", "mesh": {"axes": [["x", 2]], "devices": [0, 1]}}
    whole = {"type": "[4]", "mesh": side["mesh"]}
    held = {"grid": [1], "index": [[0], [0]]}
    summands = {**held, "summand": [0, 1], "summands": 2, "reduction": "max"}
    step = {
        "kind": "reduce_exchange",
        "before": 0,
        "after": 1,
        "implementation": "ragged",
        "shares": [],
        "splits": [0, 2],
    }
    form = {"version": 2, "source": side, "target": whole, "placements": [summands, held], "steps": [step]}
    assert plan_term(form) == (
        "PPlan (PType [Dim 4 [] 4] [0] Max) (Mesh [2] [0; 1]) (PType [Dim 4 [] 4] [] Sum) (Mesh [2] [0; 1]) "
        "[PPlacement (Placement [1] [[0]; [0]]) [0; 1] 2 Max; PPlacement (Placement [1] [[0]; [0]]) [0; 0] 1 Sum] "
        "[PStep 0 1 (ReduceExchange Ragged [] [0; 2])]"
    )


def test_device_sets_as_a_term() -> None:
    """Version 2 says who holds nothing; such a plan has no summands."""
    sides = {"source": {"type": "[2{x}4]", "mesh": {"axes": [["x", 2]], "devices": [0, 1]}},
             "target": {"type": "[4]", "mesh": {"axes": [["x", 1]], "devices": [2]}}}  # fmt: skip
    held = [{"grid": [2], "index": [[0], [1], [-1]]}, {"grid": [1], "index": [[-1], [-1], [0]]}]
    step = {"kind": "exchange", "before": 0, "after": 1, "implementation": "ragged", "shares": []}
    form = {"version": 2, **sides, "placements": held, "steps": [step], "traffic": {}}
    assert plan_term(form) == (
        "Plan [Dim 2 [0] 4] (Mesh [2] [0; 1]) [Dim 4 [] 4] (Mesh [1] [2]) "
        "[Placement [2] [[0]; [1]; [(-1)]]; Placement [1] [[(-1)]; [(-1)]; [0]]] [Step 0 1 (Exchange Ragged [])]"
    )


def test_an_unknown_axis_becomes_one_that_the_mesh_lacks() -> None:
    side = {"type": "[2{w}4, 3]", "mesh": {"axes": [["x", 2]], "devices": [0, 1]}}
    assert plan_term({**GATHER, "source": side}).startswith("Plan [Dim 2 [1] 4; Dim 3 [] 3] (Mesh [2] [0; 1])")


def test_the_corpus_is_the_same_every_time(samples: list[Sample]) -> None:
    assert corpus(50) + partial_corpus(30) + sets_corpus(30) == samples
    assert cases_of(samples) == cases_of(samples)


def test_plans_of_partial_arrays_reduce_in_every_way(samples: list[Sample]) -> None:
    shown = {way for sample in samples for way in sample.ways} & set(PARTIAL_WAYS)
    assert shown > {"reduce-scatter", "all-reduce", "reduce-exchange in rounds", "cut to summands"}


def test_plans_between_device_sets_cross_in_every_way(samples: list[Sample]) -> None:
    shown = {way for sample in samples for way in sample.ways} & set(SET_WAYS)
    assert shown > {"sets apart", "sets that overlap", "pulled directly", "across, then gathered"}


@pytest.mark.parametrize("name", [*BREAKING, *HARMLESS])
def test_every_change_applies_to_some_plan(name: str, samples: list[Sample]) -> None:
    change = {**BREAKING, **HARMLESS}[name]
    assert any(changed(change, random.Random(1), sample.form) is not None for sample in samples)


def test_the_checker_agrees_with_verify(samples: list[Sample], checker: Path) -> None:
    judged = judge(cases_of(samples, breaks=3), checker=checker)
    assert faults(judged) == []
    assert sum(not one.refused for one in judged) > len(samples)
    assert sum(one.refused for one in judged) > 2 * len(samples)


def test_plans_by_hand_and_their_corruptions(checker: Path) -> None:
    """Every kind of step right, and every rule on summands broken once."""
    right = [Case("", json.loads(make().to_json()), 2**20) for make in PARTIAL.values()]
    wrong = [
        Case(corruption.name, json.loads(corruption.make().to_json()), corruption.bound or 2**20)
        for corruption in (*REDUCTION_CORRUPTIONS, *WAITING_IN_TEXTS)
        if corruption.rule != "fixed order" and "nobody made" not in corruption.name  # such a plan has no JSON form
    ]
    judged = judge([*right, *wrong], checker=checker)
    assert faults(judged[: len(right)]) == []
    assert len(wrong) > 20
    assert [one.case.change for one in judged[len(right) :] if one.python or one.coq] == []


def _read_backwards(dist_type: DistType, mesh: Mesh, devices: int | None = None) -> Placement:
    """Axes major to minor, as a `PartitionSpec` has them."""
    dims = tuple(DimType(dim.tile, dim.axes[::-1], dim.size) for dim in dist_type.dims)
    return placement_of(DistType(dims), mesh, devices)


@pytest.mark.parametrize(
    ("module", "name", "instead", "changes", "fault"),
    [
        (
            verify_groups,
            "_check_union",
            lambda *_: None,
            ("members_out_of_order", "members_change_groups"),
            "verify accepts",
        ),
        (verify_tiles, "_check_once", lambda *_: None, ("another_holder_sends", "pair_named_twice"), "verify accepts"),
        (verify, "_check_bound", lambda *_: None, ("oversized_tile",), "verify accepts"),
        (verify_exchange, "_first_outside", lambda *_: None, ("sender_without_data", "moved_share"), "verify accepts"),
        (verify, "placement_of", _read_backwards, ("",), "verify refuses"),
        (verify_exchange, "check_cover", lambda *_: None, ("lost_share", "share_sent_twice"), "verify accepts"),
        (verify_exchange, "_check_rounds", lambda *_: None, ("crowded_round", "gap_in_rounds"), "verify accepts"),
        (verify_reductions, "_check_run", lambda *_: None, ("swapped_summands", "another_summand"), "verify accepts"),
        (verify_reductions, "check_cover", lambda *_: None, ("lost_share", "share_sent_twice"), "verify accepts"),
        (verify_reductions, "_check_parts", lambda *_: None, ("another_keeps", "swapped_summands"), "verify accepts"),
    ],
)
def test_a_verify_that_is_subtly_wrong_is_found_out(
    module: ModuleType,
    name: str,
    instead: Callable[..., object],
    changes: Sequence[str],
    fault: str,
    samples: list[Sample],
    checker: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [case for case in cases_of(samples, breaks=40) if case.change in changes]
    assert len(cases) >= 5
    assert faults(judge(cases, checker=checker)) == []
    monkeypatch.setattr(module, name, instead)
    assert any(found.startswith(fault) for found in faults(judge(cases, checker=checker)))


def test_a_wrong_count_is_found_out(samples: list[Sample], checker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AllPermute, "received", lambda step: [step.before.tile_size] * step.devices)
    cases = [case for case in cases_of(samples) if not case.change and "permute" in str(case.form)]
    found = faults(judge(cases, checker=checker))
    assert any(fault.startswith("the library counts") for fault in found)


def test_a_broken_checker_file_is_an_error_and_no_verdict(samples: list[Sample], tmp_path: Path) -> None:
    if shutil.which("coqc") is None:
        pytest.skip("Coq is not installed")
    with pytest.raises(RuntimeError, match="coqc failed"):
        coq_verdicts([Case("lost_row", samples[0].form, samples[0].bound)], checker=tmp_path)


def test_disagreements_and_refusals_are_faults(samples: list[Sample]) -> None:
    own = Case("", samples[0].form, samples[0].bound)
    broken = Case("lost_row", samples[0].form, samples[0].bound)
    assert len(faults([Judged(own, (1, 2), "", None)])) == 1
    assert len(faults([Judged(broken, None, "wrong end", (1, 2))])) == 1
    assert len(faults([Judged(own, None, "wrong end", None)])) == 1
    assert len(faults([Judged(own, (1, 2), "", (2, 1))])) == 1
    assert faults([Judged(own, (1, 2), "", (1, 2)), Judged(broken, None, "wrong end", None)]) == []


def test_a_corpus_that_is_too_small_falls_short(samples: list[Sample]) -> None:
    judged = [Judged(case, (0,), "", (0,)) for case in cases_of(samples)]
    found = shortfalls(samples, judged)
    assert f"110 plans of the search, fewer than {compare.LEAST}" in found
    assert f"0 broken plans refused, fewer than {compare.LEAST}" in found
    assert "no plan broken by crowded_round was refused" in found
