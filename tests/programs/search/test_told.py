"""Schedules that one process finds and tells the others are the same there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import redistrib as rd
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.model import CostModel, Prices
from redistrib.digests import digest_of_parts
from redistrib.programs.ir.text import digest_of
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.options import ProgramOptions
from redistrib.programs.search.options import SearchOptions
from redistrib.programs.search.told import from_json, to_json
from redistrib.programs.time.constants import machine
from redistrib.programs.time.machine import Machine
from redistrib.theory.topology import Topology
from tests.programs.search.models import block_args, block_step, chain, form


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [
        (chain, ([form(16, 16)] * 3, form(32, 16)), {}),
        (chain, ([form(16, 16)] * 3, form(32, 16)), {"memory_limit": "8KiB", "limit": 2, "machine": "v5e"}),
        (chain, ([form(16, 16)] * 3, form(32, 16)), {"overlap": True, "machine": "h100"}),
        pytest.param(block_step, block_args(4, 16), {"machine": "v5e", "limit": 5}, marks=pytest.mark.long),
    ],
    ids=["chain", "a limit", "overlap", "blocks"],
)
def test_what_is_told_is_the_same_schedule(function: Any, args: Any, options: dict[str, Any]) -> None:
    (found, *_) = rd.search(function, args, {"d": 2, "t": 2}, **options)
    problem = found.feasible.whole[0]
    name = found.feasible.name
    told, none = from_json(to_json([found.feasible, None]), [problem, problem], name)
    assert none is None and told is not None
    other = replace(found, feasible=told)
    assert other.schedule == found.schedule
    assert digest_of(other.program) == digest_of(found.program)
    for figure in ("seconds", "received_bytes", "memory", "bound", "stopped", "improvements"):
        assert getattr(other, figure) == getattr(found, figure), figure
    assert str(other).splitlines()[0] == str(found).splitlines()[0]


class Written(CostModel):
    """A model of a user, which has no text of its own."""

    name, unit, normal_forms_suffice = "written", "seconds", False

    def prices(self, itemsize: int, topology: Topology) -> Prices:
        raise NotImplementedError


def _compared(on: Machine) -> str:
    program = ProgramOptions.of(on, TraceOptions(), None, ())
    options = SearchOptions(
        {"d": 2}, None, None, None, (), {}, program, on, "seconds", False, False, 1.0, None, None, None
    )  # fmt: skip
    return digest_of_parts(options.told)


def test_processes_compare_the_figures_of_machines_and_not_their_names_alone() -> None:
    on = machine("v5p")
    assert isinstance(on.links, LatencyBandwidth)
    of_one_name = [
        on,
        replace(on, chip=None),
        replace(on, links=replace(on.links, bandwidth=1e9)),
        replace(on, memory=1),
        replace(machine("h100"), name="v5p"),
    ]
    assert len({*map(_compared, of_one_name)}) == len(of_one_name)
    assert _compared(on) == _compared(replace(on, links=replace(on.links)))
    assert _compared(replace(on, links=Written())) == _compared(replace(on, links=Written()))
