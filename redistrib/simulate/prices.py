"""What operations take: computations by the rates of a device, moves by the cost model, step by step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from redistrib.cost.model import CostModel, Prices, prices_of
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.parts import waves
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllPermute
from redistrib.programs.data import Compute, Move, Place, ProgramData, Value
from redistrib.programs.direct import pulls
from redistrib.programs.live import renames
from redistrib.simulate.machine import Machine
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology


class PricedStage(NamedTuple):
    """A stretch of an operation.

    Attributes:
        name: what happens in it.
        seconds: how long it takes.
        tile: elements of the largest tile that a device holds of the value that moves; 0 in a computation.
    """

    name: str
    seconds: float
    tile: int = 0


def compute_stages(op: Compute, program: ProgramData, machine: Machine) -> list[PricedStage]:
    """A computation, its arrays read and written once."""
    read = sum(program.values[name].tile_bytes for name in dict.fromkeys(name for _, name in op.ins))
    written = sum(value.tile_bytes for _, value in op.outs)
    return [PricedStage(op.name, machine.rates_of(op.name).seconds(read + written, op.flops))]


def move_stages(op: Move, program: ProgramData, machine: Machine) -> list[PricedStage]:
    """A move, step by step; without a plan, round by round."""
    value = program.values[op.value]
    if op.plan is not None:
        return plan_stages(op.plan, value.place, machine)
    if renames(op, program):
        return []
    return _direct_stages(value, op.out, machine)


def plan_stages(plan: Plan, place: Place, machine: Machine) -> list[PricedStage]:
    """The steps of a plan between the devices of a place; of a plan in parts, all that goes on at once."""
    prices = prices_between(place, plan.itemsize, machine)
    if plan.along is not None:
        each = zip(waves(plan.parts, len(plan.steps)), prices.waves(plan.part, plan.parts), strict=True)
        return [
            PricedStage(" | ".join(plan.steps[k].kind for _, k in wave), seconds, plan.height) for wave, seconds in each
        ]
    return [
        PricedStage(step.kind, prices.step(step), max(step.before.tile_size, step.after.tile_size))
        for step in plan.steps
    ]


def prices_between(place: Place, itemsize: int, machine: Machine) -> Prices:
    """The prices of steps between the devices of a place, with the links looked up once."""
    return prices_of(machine.links, itemsize, topology_of(place, machine.links))


def topology_of(place: Place, links: CostModel) -> Topology:
    """The links between the devices of a place, by their numbers in its mesh.

    Hosts go by the numbers of devices in the machine; axes whose links are told apart are those of the mesh.
    """
    own = links.topology(place.mesh)
    if own.axes:
        return own
    machine = links.topology(Mesh((Axis("device", max(place.devices) + 1),)))
    return Topology(len(place.devices), tuple(machine.host[device] for device in place.devices) if machine.host else ())


def _flat(size: int, devices: int) -> Placement:
    """Tiles of so many elements, of which only the size is looked at."""
    return Placement((size,), (1,), np.zeros((devices, 1), dtype=np.int64))


class _Round(NamedTuple):
    """Sends that go on at once, none of more than `size` elements."""

    size: int
    senders: set[int]
    receivers: set[int]
    pairs: list[tuple[int, int]]


def _direct_stages(value: Value, out: Value, machine: Machine) -> list[PricedStage]:
    """Rounds in which a device sends at most once and receives at most once, the largest boxes first."""
    devices = tuple(sorted({*value.place.devices, *out.place.devices}))
    number = {device: k for k, device in enumerate(devices)}
    rounds: list[_Round] = []
    sent = [(math.prod(pull.size), pull.sender, pull.receiver) for pull in pulls(value, out)]
    for size, sender, receiver in sorted((one for one in sent if one[1] != one[2]), key=lambda one: -one[0]):
        free = (one for one in rounds if sender not in one.senders and receiver not in one.receivers)
        chosen = next(free, None)
        if chosen is None:
            chosen = _Round(size, set(), set(), [])
            rounds.append(chosen)
        chosen.senders.add(sender)
        chosen.receivers.add(receiver)
        chosen.pairs.append((number[sender], number[receiver]))
    place = Place(Mesh((Axis("device", len(devices)),)), devices)
    tile = max(math.prod(value.tile), math.prod(out.tile))
    prices = prices_between(place, itemsize_of(out.dtype), machine)
    stages = []
    for one in rounds:
        held = _flat(one.size, len(devices))
        step = AllPermute(held, held, np.array(one.pairs))
        stages.append(PricedStage("send", prices.step(step), tile))
    return stages
