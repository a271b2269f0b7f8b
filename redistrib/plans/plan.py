"""A plan: a sequence of collectives that can be checked, printed, shipped as JSON, and run without the search."""

from __future__ import annotations

from typing import TypeVar

from redistrib.plans import serial, table
from redistrib.plans.data import PlanData
from redistrib.plans.verify import verify
from redistrib.report import ShownInNotebooks

_Plan = TypeVar("_Plan", bound="Plan")


class Plan(PlanData, ShownInNotebooks):
    """A sequence of collectives from one distributed type to another; `PlanData` lists its fields and figures.

    >>> import redistrib as rd
    >>> plan = rd.synthesize("[2{x}8, 8]", "[8, 2{x}8]", {"x": 4})
    >>> [step.kind for step in plan.steps], plan.received == plan.lower_bound
    (['alltoall'], True)
    """

    def to_json(self) -> str:
        """The plan as JSON, sealed with a digest; `from_json` reads it back.

        Raises:
            PlanFormError: if the plan's itemsize is not that of its dtype.
        """
        return serial.to_json(self)

    @classmethod
    def from_json(cls: type[_Plan], text: str, bound: int | None = None) -> _Plan:
        """A plan from JSON, verified; `bound` is the largest tile allowed, as in `verify`.

        Raises:
            PlanJsonError: if the text is not a plan of a known version, or was changed after it was written.
            VerificationError: if the plan is not correct.
        """
        return serial.from_json(cls, text, lambda plan: verify(plan, bound))

    def _text(self) -> str:
        """A table of the steps, in plain text; see `redistrib.plans.table`."""
        return table.render(self)

    def __repr__(self) -> str:
        steps = ", ".join(step.kind for step in self.steps) or "no steps"
        return f"<Plan {self.source} on {self.source_mesh} -> {self.target} on {self.target_mesh}: {steps}>"
