"""The doors of every backend, here for PyTorch; see `redistrib/backends/README.md`."""

from __future__ import annotations

from typing import Any

from redistrib.backends.refusals import refusal
from redistrib.backends.torch import calibrate
from redistrib.backends.torch import executor as executors
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample


def run(plan: Plan, where: Any = None, **options: Any) -> executors.TorchExecutor:
    """The function of local tensors that carries out a plan on a process group; collective.

    Args:
        plan: a plan, which moves one array.
        where: a process group with one rank per device of the plan; the default group if None.
        options: those of `to_torch`.

    Raises:
        RedistribError: as `to_torch` does.
    """
    return executors.to_torch(plan, where, **options)


def can(plan: Plan) -> str | None:
    """The reason why no process group can carry out a plan, in one line; None if one can."""
    return refusal(executors.require, plan)


def measure(where: Any = None, **options: Any) -> list[Sample] | None:
    """Time this backend's transports; collective.

    Args:
        where: the process group, of at least 2 ranks; the default group if None.
        options: those of `redistrib.backends.torch.calibrate.measure`.

    Returns:
        On rank 0 samples for `redistrib.cost.fit.fit_profile`, in seconds and bytes; None elsewhere.

    Raises:
        CommunicatorError: if there is only one rank.
    """
    return calibrate.measure(where, **options)
