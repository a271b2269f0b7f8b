"""Plans kept from one version to the next: calls of `synthesize` in a file, each beside what was made of it.

    python -m tests.synthesis.kept_plans            # from the root of the repository: answers every call anew
    python -m tests.synthesis.kept_plans --draw     # draws the calls anew, too
    python -m tests.synthesis.kept_plans --long     # the file of two thousand calls, which only long tests read

Whoever changes what the search chooses sees in the file's difference which plans became other ones, and at what price.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import redistrib as rd
from redistrib.backends.ranks.host_memory import HostMemory
from redistrib.backends.ranks.move import RankMove
from redistrib.backends.ranks.runners import runner_of
from redistrib.backends.stages import StagedPlan, staged
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import DtypeError, RedistribError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.memory import scratch
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllReduce, AllToAll, Exchange, Step, Unreduce
from redistrib.theory.boxes import Box
from redistrib.theory.topology import Topology
from redistrib.theory.torus import Torus
from tests.fuzz import problems
from tests.ranks.in_process import InProcessWire, Post
from tests.sets.cases import PAIRS, SETS

KEPT = Path(__file__).with_name("kept_plans.jsonl")
LONG = Path(__file__).with_name("kept_plans_long.jsonl")
PROFILE: dict[str, Any] = {
    "latency": {"allgather": (2e-4, 1e-4), "alltoall": (2e-4, 2e-4), "allpermute": (4e-4, 0.0)},
    "bandwidth": 4e8, "memory_bandwidth": 2e9, "slow_bandwidth": 6e7,
}  # fmt: skip
MOST_DEVICES = 40
MOST_ELEMENTS = 1 << 24
Call = dict[str, Any]


# ---------------------------------------------------------------------------------------------- a call, answered


def plan_of(call: Call) -> Plan:
    """What `synthesize` makes of a call in the form of the file."""
    given = dict(call)
    for name in ("mesh", "target_mesh"):
        if name in given:
            axes, *order = given[name]
            made = Mesh(tuple(Axis(axis, size) for axis, size in axes))
            given[name] = Mesh(made.axes, tuple(order[0])) if order else made
    if "cost_model" in given:
        model = given.pop("cost_model")
        given["machine"] = problems.profile(model) if isinstance(model, dict) else model
    if "torus" in given:
        torus = {name: tuple(map(_tupled, value)) for name, value in given.pop("torus").items()}
        hosts = tuple(given.pop("topology", ()))
        given["topology"] = Topology(len(torus["coords"]), hosts, torus=Torus(**torus))
    return rd.synthesize(**given)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def answer(call: Call) -> dict[str, Any]:
    """What is kept of a plan, or the error in the place of one."""
    try:
        plan = plan_of(call)
    except RedistribError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    form = json.loads(plan.to_json())
    told = {name: form[name] for name in ("placements", "steps")}
    return {
        "steps": "; ".join(map(_told, plan.steps)),
        "elements": [max(plan.received), sum(plan.received), sum(plan.lower_bound), max(plan.sent), plan.crossing],
        "cost": f"{plan.cost:.6g}",
        "whole": _digest(told),
        **_ranks(plan),
        "scratch": [scratch(plan.steps), scratch(plan.steps, sequential=True)],
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _ranks(plan: Plan) -> dict[str, Any]:
    """A digest of what all ranks do, and their memory, or why no rank has arrays of this element type."""
    try:
        stages = [staged(plan, device) for device in range(plan.devices)]
    except DtypeError as error:
        return {"ranks": str(error)}
    return {"ranks": _digest(list(map(_rank, stages, range(plan.devices)))), "staging": _staging(plan, stages)}


def _rank(stages: StagedPlan, device: int) -> list[Any]:
    """What one rank does: the memory each stage reads and writes, and every (partner, box, round) of its messages."""
    rows: list[Any] = [stages.last, list(stages.middle)]
    for stage in stages.stages:
        row: list[Any] = [stage.step.kind, stage.reads, stage.writes, _box(stage.source), _box(stage.target())]
        if isinstance(stage.step, AllReduce):  # the platform chooses its messages
            row += [stage.step.group_of(device), stage.step.parts]
        else:
            table = stage.transfers
            columns = table.sender.tolist(), table.receiver.tolist(), table.round.tolist(), table.box.rows()
            row += [sorted([*ends, _box(box)] for *ends, box in zip(*columns, strict=True))]
            row += [[_box(box) for box in stage.retained]]
        rows.append(row)
    return rows


def _staging(plan: Plan, stages: Sequence[StagedPlan]) -> list[Any]:
    """The words of staging memory of the rank that has most, and a digest of all scratch of all ranks.

    Of messages one by one, as PyTorch sends them, and of messages end to end and collectives, as those of MPI.
    """
    memory, most, rows = HostMemory(dtype_of(plan.dtype)), [], []
    for is_mpi in (False, True):
        moves = []
        for device, ways in enumerate(stages):
            wire = InProcessWire(Post(), device, joined=is_mpi, has_collectives=is_mpi)
            runners = [runner_of(stage, wire, memory) for stage in ways.stages]
            moves.append(RankMove(ways, device, runners, memory, plan.itemsize))
        most.append(max(move.staging for move in moves))
        rows.append([[move.staging, move.scratch_bytes, move.middle_bytes] for move in moves])
    return [*most, _digest(rows)]


def _box(box: Box) -> list[list[int]]:
    return [list(box.start), list(box.size)]


def _told(step: Step) -> str:
    words = [step.kind]
    match step:
        case AllGather() | AllToAll() | AllReduce():
            words.append(f"of {step.groups.shape[1]}")
        case AllPermute():
            words.append(f"{len(step.pairs)}")
        case Exchange():
            words.append(f"{len(step.shares)} {step.implementation}")
        case Unreduce():
            pass
        case _:
            words.append(step.implementation if hasattr(step, "implementation") else "")
    return " ".join(word for word in words if word)


# ------------------------------------------------------------------------------------------------------ the file


def kept(file: Path = KEPT) -> list[tuple[Call, dict[str, Any]]]:
    """The calls of a file with their answers."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [(entry["call"], entry["plan"]) for entry in map(json.loads, lines)]


def drawn(seed: int = 7, scale: int = 1) -> Iterator[Call]:
    """Calls of every kind; `scale` times as many of random types."""
    rng = random.Random(seed)
    some = (problems.draw(seed, number) for number in itertools.count())
    fit = (problem for problem in some if problem.devices <= MOST_DEVICES and math.prod(problem.shape) < MOST_ELEMENTS)
    for problem in itertools.islice(fit, 260 * scale):
        yield _call(problem)
    for problem in itertools.islice((problem for problem in fit if problem.devices > 2), 220 * scale):
        yield _on_links(rng, problem)
    yield from _between_sets(rng)
    for _ in range(scale):
        yield from _uneven(rng)


def _mesh(mesh: Mesh) -> list[Any]:
    axes = [[axis.name, axis.size] for axis in mesh.axes]
    return [axes] if mesh.devices == tuple(range(mesh.size)) else [axes, list(mesh.devices)]


def _call(problem: problems.Problem) -> Call:
    given = problem.arguments()
    call = {**given, "mesh": _mesh(given["mesh"]), "target_mesh": _mesh(given["target_mesh"])}
    call["cost_model"] = problem.model if isinstance(call.pop("machine"), LatencyBandwidth) else given["machine"]
    defaults = {"dtype": "float32", "algorithm": "best", "over_partition": True, "memory_limit": None,
                "accumulate": None, "order": "any"}  # fmt: skip
    if call["target_mesh"] == call["mesh"]:
        del call["target_mesh"]
    return {name: value for name, value in call.items() if name not in defaults or value != defaults[name]}


def _links(rng: random.Random, devices: int) -> Call:
    """A profile, and where the devices are: hosts of any sizes, or a torus."""
    model = dict(PROFILE)
    more = {"host_bandwidth": 6e7, "swap_bandwidth": 3e7, "fused_exchange": True}
    model |= {name: value for name, value in more.items() if rng.random() < 0.35}
    if rng.random() < 0.25:
        shape = rng.choice([(devices,), *((n, devices // n) for n in range(2, devices) if devices % n == 0)])
        model["link_bandwidth"] = 1e8
        coords = [[k // shape[-1], k % shape[-1]][-len(shape) :] for k in range(devices)]
        rng.shuffle(coords)
        wraps = [rng.random() < 0.6 for _ in shape]
        return {"cost_model": model, "torus": {"shape": shape, "wraps": wraps, "coords": coords}}
    hosts: list[int] = []
    while len(hosts) < devices:
        hosts += [len(set(hosts))] * rng.choice((1, 2, 2, 3, 4))
    hosts = hosts[:devices]
    if rng.random() < 0.4:
        rng.shuffle(hosts)
    return {"cost_model": model, "topology": hosts}


def _on_links(rng: random.Random, problem: problems.Problem) -> Call:
    larger = tuple(size * rng.choice((1, 64, 4096)) for size in problem.shape)
    call = _call(replace(problem, shape=larger, model="exact", algorithm="best", flaw="", memory_limit=None))
    return {**call, **_links(rng, problem.devices)}


def _between_sets(rng: random.Random) -> Iterator[Call]:
    for here, there in PAIRS.values():
        for model in ("exact", "gpu", {**PROFILE}):
            sides = [Mesh.of(mesh, devices) for mesh, devices, _ in (here, there)]
            yield {
                "source": here[2], "target": there[2], "mesh": _mesh(sides[0]), "target_mesh": _mesh(sides[1]),
                "cost_model": model,
            }  # fmt: skip
    for here, there in SETS.values():
        for cuts in rng.sample(range(12), 4):
            one, other = (_some_mesh(rng, devices) for devices in (here, there))
            shape = [24, 12 * (1 + cuts % 3)]
            call = {
                "source": _some_type(rng, one, shape), "target": _some_type(rng, other, shape),
                "mesh": _mesh(one), "target_mesh": _mesh(other),
            }  # fmt: skip
            yield {**call, **_links(rng, max(one.span, other.span))} if rng.random() < 0.6 else call


def _some_mesh(rng: random.Random, devices: Any) -> Mesh:
    count = len(devices)
    first = rng.choice([n for n in range(1, count + 1) if count % n == 0])
    return Mesh((Axis("x", first), Axis("y", count // first)), tuple(devices))


def _some_type(rng: random.Random, mesh: Mesh, shape: list[int], uneven: str = "") -> str:
    cuts: list[list[str]] = [[] for _ in shape]
    for axis in rng.sample(mesh.axes, len(mesh.axes)):
        if rng.random() < 0.75:
            rng.choice(cuts).append(axis.name)
    sizes = {axis.name: axis.size for axis in mesh.axes}
    dims = []
    for size, names in zip(shape, cuts, strict=True):
        parts = 1
        for name in names:
            parts *= sizes[name]
        if not names:
            dims.append(str(size))
        elif size % parts == 0:
            dims.append(f"{size // parts}{{{','.join(names)}}}{size}")
        else:
            tile = size
            for name in reversed(names):
                tile = -(-tile // sizes[name])
            dims.append(f"{tile}{uneven}{{{','.join(names)}}}{size}")
    return f"[{', '.join(dims)}]"


def _uneven(rng: random.Random) -> Iterator[Call]:
    for _ in range(60):
        devices = range(rng.choice((3, 4, 6, 8)))
        one, other = _some_mesh(rng, devices), _some_mesh(rng, devices)
        shape = [rng.choice((5, 7, 11, 12, 13, 50)) for _ in range(rng.choice((1, 2, 2)))]
        cut = rng.choice("~~^")
        call = {
            "source": _some_type(rng, one, shape, cut), "target": _some_type(rng, other, shape, cut),
            "mesh": _mesh(one), "target_mesh": _mesh(other),
        }  # fmt: skip
        yield {**call, **_links(rng, len(devices))} if rng.random() < 0.5 else call


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer the kept calls of `synthesize` anew.")
    parser.add_argument("--draw", action="store_true", help="draw the calls anew, too")
    parser.add_argument("--long", action="store_true", help="of the longer file")
    options = parser.parse_args()
    file, draws = LONG if options.long else KEPT, options.draw
    calls = (drawn(36, 5) if options.long else drawn()) if draws else (call for call, _ in kept(file))
    answered = [(call, answer(call)) for call in calls]
    if draws:  # most of those in which nothing is to be done are left out
        answered = [pair for number, pair in enumerate(answered) if pair[1].get("steps") != "" or number % 6 == 0]
    lines = [json.dumps({"call": call, "plan": plan}, ensure_ascii=False) for call, plan in answered]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{file.name}: {len(lines)} calls")


if __name__ == "__main__":
    main()
