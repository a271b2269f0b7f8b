"""What needs no ranks: copies between strided buffers, and the digest of a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mpi4py")

from redistrib.backends.digests import digest_of
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.plans.strided import Strided, copy
from redistrib.theory.placement import Placement, placement_of
from tests.plans.columns import columns_of, table_of

MESH = Mesh.of("x=2, y=2")


def placed(text: str) -> Placement:
    return placement_of(DistType.of(text), MESH)


def plan_of(source: str, target: str, *steps: Step) -> Plan:
    ends = DistType.of(source), MESH, DistType.of(target), MESH
    return Plan(*ends, "float32", 4, steps, "by hand", "none", 0, "elements")


@pytest.mark.parametrize("run", [2049, 3000, 5000])
def test_long_runs_are_copied_whole_at_every_distance(run: int) -> None:
    page = 4096
    source = np.random.default_rng(run).integers(1, 256, 2 * run + 8, np.uint8)
    target = np.empty(2 * run + 2 * page, np.uint8)
    of = Strided(run, (2,), (run + 8,), 0)
    for offset in range(page):
        to = Strided(run, (2,), (run + 5,), offset)
        target[:] = 0
        copy(target, to, source, of)
        assert target[offset : offset + run].tobytes() == source[:run].tobytes(), offset
        assert target[offset + run + 5 : offset + 2 * run + 5].tobytes() == source[run + 8 :].tobytes(), offset
        assert np.count_nonzero(target) == 2 * run, offset


def test_plans_that_differ_anywhere_have_other_digests() -> None:
    rows, columns, third = placed("[8{x}16, 4]"), placed("[16, 2{x}4]"), placed("[8{y}16, 4]")
    pairs, groups = [(0, 2), (2, 0), (1, 3), (3, 1)], [(0, 2), (1, 3)]
    shares = table_of([0, 2], [2, 0], [[0, 2], [8, 0]], [[8, 2], [8, 2]], [0, 0])
    changed = {
        "sender": [1, 2],
        "receiver": [3, 0],
        "start": [[0, 1], [8, 0]],
        "size": [[8, 1], [8, 2]],
        "round": [0, 1],
    }
    steps: list[Step] = [
        AllToAll(rows, columns, groups),
        AllToAll(rows, columns, [(0, 2), (3, 1)]),
        AllToAll(rows, third, groups),
        AllToAll(third, columns, groups),
        AllGather(rows, columns, groups),
        AllPermute(rows, columns, pairs),
        AllPermute(rows, columns, pairs[:2]),
        DynSlice(rows, columns),
        Exchange(rows, columns, shares),
        *[Exchange(rows, columns, table_of(**columns_of(shares) | {name: column})) for name, column in changed.items()],
    ]
    plans = [plan_of("[8{x}16, 4]", "[16, 2{x}4]", step) for step in steps]
    plans += [plan_of("[8{x}16, 4]", "[16, 2{x}4]", steps[0], steps[0]), replace(plans[0], dtype="int32")]
    assert len({digest_of(plan) for plan in plans}) == len(plans)
    assert digest_of(plans[0]) == digest_of(plan_of("[8{x}16, 4]", "[16, 2{x}4]", AllToAll(rows, columns, groups)))
