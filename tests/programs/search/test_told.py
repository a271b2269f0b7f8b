"""Schedules that one process finds and tells the others are the same there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import redistrib as rd
from redistrib.programs.ir.text import digest_of
from redistrib.programs.search.told import from_json, to_json
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
