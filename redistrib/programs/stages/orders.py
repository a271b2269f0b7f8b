"""Orders: the pipeline tasks of every device, in the order in which it runs them.

An order is a function of the number of devices, of microbatches, and of stages on each device. It returns for every
device its tasks, one after the other. Stage `s` of a pipeline is on device `s % devices`. `gpipe`, `one_f_one_b` and
`interleaved` are orders, called `"gpipe"`, `"1f1b"` and `"interleaved"`. So is every function of this form, with a name
once it is registered. `list_schedule` refuses an order that cannot run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from redistrib.errors import ProgramError
from redistrib.programs.stages.registry import Registry


class PipelineTask(NamedTuple):
    """The pass of one microbatch through one stage.

    Attributes:
        stage: number of the stage.
        microbatch: number of the microbatch.
        backward: whether it is the backward pass.

    >>> one_f_one_b(devices=2, microbatches=1)[0]  # stage 0: forward, and backward after stage 1
    [PipelineTask(stage=0, microbatch=0, backward=False), PipelineTask(stage=0, microbatch=0, backward=True)]
    """

    stage: int
    microbatch: int
    backward: bool = False


Order: TypeAlias = Callable[[int, int, int], list[list[PipelineTask]]]

ORDERS: Registry[Order] = Registry("order", "a function of devices, microbatches and stages on a device")


def register_order(name: str) -> Callable[[Order], Order]:
    """A decorator that gives an order a name, which `Layout`, `ir.grid`, `rd.search` and its command accept.

    Args:
        name: of the order.

    Raises:
        ChoiceError: if the name is empty, or belongs to another order.

    >>> @register_order("each in turn")
    ... def each_in_turn(devices, microbatches, chunks=1):
    ...     tasks = [(m, back) for m in range(microbatches) for back in (False, True)]
    ...     return [[PipelineTask(device, m, back) for m, back in tasks] for device in range(devices)]
    >>> ORDERS.of("each in turn")(2, 1)[1]
    [PipelineTask(stage=1, microbatch=0, backward=False), PipelineTask(stage=1, microbatch=0, backward=True)]
    """
    return ORDERS.register(name)


@register_order("gpipe")
def gpipe(devices: int, microbatches: int, chunks: int = 1) -> list[list[PipelineTask]]:
    """All microbatches forward, then all of them backward (Huang et al., 2019).

    >>> [f"{'B' if task.backward else 'F'}{task.microbatch}" for task in gpipe(2, 2)[0]]
    ['F0', 'F1', 'B0', 'B1']
    """
    rows = []
    for device in range(devices):
        stages = [device + devices * chunk for chunk in range(chunks)]
        forward = [PipelineTask(stage, m) for stage in stages for m in range(microbatches)]
        backward = [PipelineTask(stage, m, True) for stage in reversed(stages) for m in range(microbatches)]
        rows.append(forward + backward)
    return rows


@register_order("1f1b")
def one_f_one_b(devices: int, microbatches: int, chunks: int = 1) -> list[list[PipelineTask]]:
    """Each microbatch goes backward right after its last stage, in turns with the next one (Narayanan et al., 2019).

    >>> [f"{'B' if task.backward else 'F'}{task.microbatch}" for task in one_f_one_b(2, 3)[0]]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    if chunks > 1:
        return interleaved(devices, microbatches, chunks)
    rows = []
    for device in range(devices):
        forward = [PipelineTask(device, m) for m in range(microbatches)]
        backward = [PipelineTask(device, m, True) for m in range(microbatches)]
        rows.append(_in_turns(forward, backward, devices - device - 1))
    return rows


@register_order("interleaved")
def interleaved(devices: int, microbatches: int, chunks: int = 1) -> list[list[PipelineTask]]:
    """Several stages on every device, which a microbatch visits in turns (Narayanan et al., 2021, section 2.2).

    Raises:
        ProgramError: if the devices do not divide the microbatches.

    >>> [f"{'B' if task.backward else 'F'}{task.stage}.{task.microbatch}" for task in interleaved(2, 2, 2)[1]]
    ['F1.0', 'F1.1', 'F3.0', 'B3.0', 'F3.1', 'B3.1', 'B1.0', 'B1.1']
    """
    if microbatches % devices:
        raise ProgramError(
            "", "", "Order", f"{devices} devices take {microbatches} microbatches in turns only if they divide them; "
            f"take a multiple of {devices}, or another order",
        )  # fmt: skip
    rows = []
    for device in range(devices):
        forward, backward = [], []
        for first in range(0, microbatches, devices):
            for chunk in range(chunks):
                group = range(first, first + devices)
                forward += [PipelineTask(device + devices * chunk, m) for m in group]
                backward += [PipelineTask(device + devices * (chunks - 1 - chunk), m, True) for m in group]
        rows.append(_in_turns(forward, backward, 2 * (devices - device - 1) + (chunks - 1) * devices))
    return rows


def _in_turns(forward: list[PipelineTask], backward: list[PipelineTask], ahead: int) -> list[PipelineTask]:
    """`ahead` tasks forward, then one forward and one backward in turns, then the others backward."""
    ahead = min(ahead, len(forward))
    row = forward[:ahead]
    for k, task in enumerate(backward):
        row += [*forward[ahead + k : ahead + k + 1], task]
    return row


def forward_only(rows: Sequence[Sequence[PipelineTask]]) -> list[list[PipelineTask]]:
    """An order without its backward tasks, for programs without a backward pass."""
    return [[task for task in row if not task.backward] for row in rows]


class ScheduledTask(NamedTuple):
    """A task with its start and its end in seconds, where moves take no time."""

    start: float
    end: float
    task: PipelineTask


def list_schedule(
    rows: Sequence[Sequence[PipelineTask]],
    needs: Callable[[PipelineTask], Sequence[PipelineTask]],
    seconds: Callable[[PipelineTask], float] = lambda task: 1.0,
) -> list[ScheduledTask]:
    """The tasks in order of their starts: each starts when its device is free and the tasks that it needs have ended.

    Args:
        rows: for every device its tasks, in order.
        needs: for a task the tasks that must end before it.
        seconds: for a task its duration.

    Raises:
        ProgramError: if tasks wait for each other without end, or for one that no device runs.
    """
    ends: dict[PipelineTask, float] = {}
    schedule: list[ScheduledTask] = []
    position, free = [0] * len(rows), [0.0] * len(rows)
    progressed = True
    while progressed:
        progressed = False
        for device, row in enumerate(rows):
            while position[device] < len(row) and all(need in ends for need in needs(row[position[device]])):
                task = row[position[device]]
                start = max([free[device], *(ends[need] for need in needs(task))])
                ends[task] = free[device] = start + seconds(task)
                schedule.append(ScheduledTask(start, ends[task], task))
                position[device] += 1
                progressed = True
    stuck = [row[k] for k, row in zip(position, rows, strict=True) if k < len(row)]
    if stuck:
        raise ProgramError(
            "", "", "Order", f"{stuck[0]} waits for tasks that come after it, or that no device runs; change the order"
        )
    return sorted(schedule, key=lambda entry: entry.start)
