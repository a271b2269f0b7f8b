"""A kind of step that stands in one place: the rooms that only ask what a step is know it without being told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from redistrib.backends.digests import digest_of
from redistrib.errors import PlanFormError, PlanJsonError, VerificationError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans._json import sealed
from redistrib.plans.fields import DeviceField, Field, WordField
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run, scatter
from redistrib.plans.serial import from_json, to_json
from redistrib.plans.step import KINDS, Step, kind_of_step
from redistrib.plans.transfers import Transfers
from redistrib.plans.verify import verify
from redistrib.report import counted
from redistrib.synthesis.members import Members
from redistrib.theory.placement import Int64, placement_of


@pytest.fixture
def toy() -> Iterator[type[Step]]:
    @kind_of_step
    @dataclass(frozen=True, eq=False)
    class Swap(Step):
        """Two devices swap their tiles."""

        partners: Int64
        how: str = "at once"

        kind: ClassVar[str] = "swap"
        fields: ClassVar[tuple[Field, ...]] = (
            DeviceField("partners", 2),
            WordField("how", ("at once", "in turn"), "a swap"),
        )
        version: ClassVar[int] = 2

        def _transfers(self, device: int | None) -> Transfers:
            one, other = np.asarray(self.partners).T
            both = np.concatenate([one, other]), np.concatenate([other, one])
            return self._between(*both, np.zeros(2 * len(one), dtype=np.int64))

        def received(self) -> list[int]:
            return self.transfers().received(self.devices)

        def received_total(self) -> int:
            return sum(self.received())

        def sent(self) -> list[int]:
            return self.received()

        @property
        def collectives(self) -> int:
            return 1

        @property
        def participants(self) -> str:
            return counted(len(self.partners), "swap", "swaps")

        def scratch(self, sequential: bool) -> int:
            return self.before.tile_size

    yield Swap
    del KINDS["swap"]


def plan_of(kind: type[Step], partners: list[list[int]], how: str = "at once") -> Plan:
    source, mesh, target_mesh = DistType.of("[2{x}8]"), Mesh.of("x=4"), Mesh.of("x=4", (1, 0, 3, 2))
    ends = placement_of(source, mesh), placement_of(source, target_mesh)
    step = kind(*ends, partners=np.array(partners), how=how)  # type: ignore[call-arg]
    return Plan(source, mesh, source, target_mesh, "int8", 1, (step,), "by hand", "none", 0, "elements")


PARTNERS = [[0, 1], [2, 3]]


def test_json_digest_table_and_memory_know_it(toy: type[Step]) -> None:
    plan = plan_of(toy, PARTNERS)
    form = json.loads(to_json(plan))
    assert (form["version"], form["steps"][0]["partners"], form["steps"][0]["how"]) == (2, PARTNERS, "at once")
    assert from_json(Plan, to_json(plan)) == plan
    assert "swap" in str(plan) and "2 swaps" in str(plan)
    assert (plan.received, plan.collectives, plan.peak_bytes) == ((2, 2, 2, 2), 1, 2 + 2 + 2)
    for other in (plan_of(toy, PARTNERS[:1]), plan_of(toy, PARTNERS, "in turn")):
        assert other != plan
        assert digest_of(other) != digest_of(plan)
        assert hash(other.steps[0]) != hash(plan.steps[0])


def test_it_is_renumbered_and_stacked(toy: type[Step]) -> None:
    (step,) = plan_of(toy, PARTNERS).steps
    (among,) = Members(np.array([1, 2, 5, 7]), 8).steps([step])
    assert among.partners.tolist() == [[1, 2], [5, 7]]  # type: ignore[attr-defined]
    assert among.received() == [0, 2, 2, 0, 0, 2, 0, 2]
    assert among.crossing(np.array([0, 0, 1, 1, 1, 1, 1, 1])) == 4
    assert step.stacked().before.shape == (1, 8)


def test_what_is_written_wrong_is_refused(toy: type[Step]) -> None:
    form = json.loads(to_json(plan_of(toy, PARTNERS)))
    del form["digest"]
    form["steps"][0]["how"] = "never"
    with pytest.raises(PlanJsonError, match="is 'never', a swap runs as 'at once' or 'in turn'"):
        from_json(Plan, sealed(form))


def test_those_who_judge_and_run_it_on_their_own_say_that_they_do_not_know_it(toy: type[Step]) -> None:
    plan = plan_of(toy, PARTNERS)
    with pytest.raises(VerificationError, match="step 1 is a Swap; a step is one of DynSlice"):
        verify(plan)
    with pytest.raises(PlanFormError, match="what a step swap does to tiles is not defined here"):
        run(plan, scatter(np.arange(8), plan.before))
