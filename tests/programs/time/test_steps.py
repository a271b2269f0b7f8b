"""The steps of a plan as its simulation prints them: links, rounds, bytes and time, against counts made here."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest

import redistrib as rd
from redistrib.cost.presets import PRESETS
from redistrib.plans.steps import AllReduce, Exchange

HEAD = "steps, one after the other"
PROBLEMS = [
    ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6"),
    ("[6{x}12, 4{y}12]", "[4{y}12, 6{x}12]", "x=2,y=3"),
    ("[4{x,y}64, 96]", "[64, 6{y,x}96]", "x=2,y=8"),
    ("[8{y}64, 96]", "[64, 12{y}96]", "x=2,y=8"),
    ("[4{x}16, 8] sum{y}", "[16, 8]", "x=4,y=4"),
    ("[16, 8] sum{y}", "[16, 8]", "x=8,y=2"),
]


def table(text: str) -> list[dict[str, str]]:
    """The rows of the table of steps by column; columns are at least three spaces apart."""
    lines = text.splitlines()
    (start,) = [k for k, line in enumerate(lines) if line == HEAD]
    head, rule, *rows = lines[start + 1 :]
    assert set(rule.strip()) == {"-"}
    ends = [match.end() for match in re.finditer(r"\S+(?: \S+)*", head)]
    names = [match[0] for match in re.finditer(r"\S+(?: \S+)*", head)]
    return [
        {name: row[:end].rpartition("   ")[2].strip() if name != "step" else re.split(r"   +", row.strip())[0]
         for name, end in zip(names, ends, strict=True)}
        for row in rows
    ]  # fmt: skip


def largest_by_round(step: Exchange) -> list[int]:
    """Bytes of the largest share of each round, of float32."""
    volumes: Counter[int] = Counter()
    for number, size in zip(step.shares.round.tolist(), step.shares.box.size.tolist(), strict=True):
        volumes[number] = max(volumes[number], 4 * math.prod(size))
    return [volumes[number] for number in sorted(volumes)]


def sizes_in(text: str) -> list[int]:
    """`2 x 16, 8` as 16, 16, 8."""
    parts = [part.rpartition(" x ") for part in text.split(", ")]
    return [int(size.replace(",", "")) for count, _, size in parts for _ in range(int(count or 1))]


@pytest.mark.parametrize("profile", ["tpu", "gpu"])
@pytest.mark.parametrize(("source", "target", "mesh"), PROBLEMS)
def test_a_row_for_each_step(source: str, target: str, mesh: str, profile: str) -> None:
    for model in (profile, "exact"):
        plan = rd.synthesize(source, target, mesh, machine=model)
        found = rd.simulate(plan, profile)
        rows = table(str(found))
        assert [row["step"].split()[:2] for row in rows] == [
            [str(k), step.kind] for k, step in enumerate(plan.steps, 1)
        ]
        assert [int(row["bytes received"].replace(",", "")) for row in rows] == [
            4 * max(step.received()) for step in plan.steps
        ]
        assert sum(float(row["ms"]) for row in rows) == pytest.approx(1e3 * found.seconds, abs=5e-4 * len(rows))
        hosts = PRESETS[profile].topology(plan.source_mesh).host
        for row, step in zip(rows, plan.steps, strict=True):
            if isinstance(step, Exchange):
                assert sizes_in(row["bytes by round"]) == largest_by_round(step)
            else:
                assert not row.get("bytes by round")
            if hosts and hasattr(step, "groups"):
                crosses = any(len({hosts[device] for device in group}) > 1 for group in step.groups.tolist())
                assert row["links"] == ("between hosts" if crosses else "inside hosts")
            elif not hosts:
                assert "links" not in row


def test_rounds_are_listed_with_their_largest_shares() -> None:
    plan = rd.synthesize("[6{x}12, 4{y}12]", "[4{y}12, 6{x}12]", "x=2,y=3")
    (row,) = table(str(rd.simulate(plan, "tpu")))
    (step,) = plan.steps
    assert isinstance(step, Exchange)
    largest = largest_by_round(step)
    assert len(set(largest)) == len(largest) == 3
    assert row["bytes by round"] == ", ".join(map(str, largest))
    assert row["groups or boxes"] == "12 boxes in 3 rounds, padded"


def test_an_all_reduce_inside_hosts_crosses_none() -> None:
    """A host has the eight devices of one x: groups along y are inside a host, and groups along x are not."""
    for axis, said in (("y", "inside hosts"), ("x", "between hosts")):
        plan = rd.synthesize(f"[4096, 8] sum{{{axis}}}", "[4096, 8]", "x=2,y=8", machine="gpu")
        assert axis == "x" or all(isinstance(step, AllReduce) for step in plan.steps)
        assert {row["links"] for row in table(str(rd.simulate(plan, "gpu")))} == {said}


def test_programs_keep_the_table_of_operations_and_what_does_not_move_has_no_steps() -> None:
    program = rd.partition(rd.nest("ij,jk->ik", (64, 64, 64)), {"matmul": {"j": 4}})
    assert HEAD not in str(rd.simulate(program, "v100"))
    assert HEAD not in str(rd.simulate(rd.synthesize("[2{x}8]", "[2{x}8]", "x=4"), "v100"))
