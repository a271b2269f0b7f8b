"""Traces: the Trace Event Format, and what must hold of one that Perfetto is to show."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import redistrib as rd
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.spec import nest
from redistrib.programs.time.picture import _boxes
from tests.programs.time.drawn import programs
from tests.programs.time.mlp import Sizes, on, pipelined

# What the format asks of each phase, by the fields that an event of it has.
FIELDS: dict[str, dict[str, Any]] = {
    "X": {"name": str, "cat": str, "ph": str, "ts": float, "dur": float, "pid": int, "tid": int, "args": dict},
    "M": {"name": str, "ph": str, "pid": int, "tid": int, "args": dict},
    "C": {"name": str, "ph": str, "ts": float, "pid": int, "tid": int, "args": dict},
}


def check_trace(trace: dict[str, Any]) -> None:
    """Check an object against the Trace Event Format as far as it is used."""
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"} and trace["displayTimeUnit"] in ("ms", "ns")
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    counters: dict[int, float] = defaultdict(float)
    for event in trace["traceEvents"]:
        fields = FIELDS[event["ph"]]
        assert set(event) == set(fields)
        assert all(isinstance(event[name], kind) for name, kind in fields.items())
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "C":
            assert all(isinstance(value, int) and value >= 0 for value in event["args"].values())
            assert event["ts"] >= counters[event["pid"]]
            counters[event["pid"]] = event["ts"]
    for spans in lanes.values():  # in one lane, one event is over before the next begins, or inside it
        open_until: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start + 1e-9:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-9
            open_until.append(end)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_every_trace_is_in_the_format(program: Program) -> None:
    for streams in (None, "moves"):
        check_trace(rd.simulate(program, "v100", streams=streams).chrome())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "event",
    [
        {"name": "a", "cat": "c", "ph": "X", "ts": 0.0, "pid": 0, "tid": 0, "args": {}},  # no duration
        {"name": "a", "cat": "c", "ph": "X", "ts": 0.0, "dur": -1.0, "pid": 0, "tid": 0, "args": {}},
        {"name": "a", "ph": "?", "ts": 0.0, "pid": 0, "tid": 0, "args": {}},
        {"name": "bytes", "ph": "C", "ts": 0.0, "pid": 0, "tid": 0, "args": {"live": -1}},
    ],
)
def test_the_check_of_the_format_finds_what_is_wrong(event: dict[str, Any]) -> None:
    trace = {"traceEvents": [event], "displayTimeUnit": "ms", "otherData": {}}
    with pytest.raises((AssertionError, KeyError)):
        check_trace(trace)


def test_d10_a_trace_of_the_pipeline_is_written(tmp_path: Path) -> None:
    found = rd.simulate(pipelined(Sizes(256, 64, 64, 64), dtype="float16"), "v100")
    found.to_chrome(tmp_path / "step.json")
    trace = json.loads((tmp_path / "step.json").read_text())
    check_trace(trace)
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names == {"device 0", "device 1", "operations"}
    assert all(set(event["args"]) == {"bytes"} for event in trace["traceEvents"] if event["ph"] == "X")
    sends = [event for event in trace["traceEvents"] if event["name"] == "move as_1"]
    assert {event["pid"] for event in sends} == {0, 1} and len({event["ts"] for event in sends}) == 1
    last = max(event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X")
    assert abs(last - found.seconds * 1e6) < 1e-6


def test_the_steps_of_a_plan_are_inside_its_move() -> None:
    plan = rd.synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6", machine="tpu")
    assert len(plan.steps) > 1
    trace = rd.simulate(plan).chrome()
    own = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == 7]
    assert [event["name"] for event in own] == ["move source", *(step.kind for step in plan.steps)]


def test_names_in_a_picture_are_cut_where_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = pytest.importorskip("matplotlib.axes")
    shown: list[str] = []
    own = axes.Axes.text

    def text(self: Any, x: float, y: float, said: str, *rest: Any, **keywords: Any) -> Any:
        shown.append(said)
        return own(self, x, y, said, *rest, **keywords)

    monkeypatch.setattr(axes.Axes, "text", text)
    b = Builder()
    a = b.input("a", "[64, 64]", on(0))
    for name in ("a name that is long", "another"):
        a = b.compute(nest("ij,jk->ik", (64, 64, 64), name=name), a, a)
    for _ in range(9):
        a = b.compute(nest("ij,jk->ik", (64, 64, 64), name="x" * 30), a, a)
    rd.simulate(b.build(a), "v100").draw(tmp_path / "step.png")
    assert [text for text in shown if text][:3] == ["a name that is long"[:8] + "…", "another", "xxxxxxxx…"]


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = rd.simulate(pipelined(Sizes(256, 64, 64, 64), dtype="float16"), "v100", streams="moves")
    found.draw(tmp_path / "step.png")
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_a_plan_has_boxes_for_steps_lines_for_rounds_and_a_colour_for_links() -> None:
    plan = rd.synthesize("[6{x}12, 4{y}12]", "[4{y}12, 6{x}12]", "x=2,y=3")
    assert [step.kind for step in plan.steps] == ["exchange"] and plan.steps[0].shares.rounds == 3
    (event,) = rd.simulate(plan, "tpu").events
    (box,) = _boxes(event)
    assert box.name == "move source: exchange" and box.links == ""
    assert len(box.rounds) == 3 and box.rounds[0] == event.start
    assert list(box.rounds) == sorted(set(box.rounds)) and box.rounds[-1] < event.end
    hosts = rd.synthesize("[4{x,y}64, 96]", "[64, 6{y,x}96]", "x=2,y=8", machine="gpu")
    assert {box.links for event in rd.simulate(hosts, "gpu").events for box in _boxes(event)} == {"between hosts"}
    inside = rd.synthesize("[8{y}64, 96]", "[64, 12{y}96]", "x=2,y=8", machine="gpu")
    assert {box.links for event in rd.simulate(inside, "gpu").events for box in _boxes(event)} == {"inside hosts"}
