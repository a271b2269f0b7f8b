"""Searched schedules on the emulated cluster, against XLA with inputs by batch and in every layout written by hand.

Every program is searched for the links of the cluster, without pins of its arguments, and the time of each layout of
`bench.programs.written` is predicted on the same machine. Both are saved, so that a second run does not search. Then
all of them run in alternating order, each on arguments in its layout. Needs root and iproute2.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from bench import results
from bench.children import progress
from bench.cluster import DEVICES_PER_HOST, HOSTS
from bench.library import model_of
from bench.network import why_not
from bench.programs.cluster import jobs
from bench.programs.written import LAYOUTS, SEARCHED, is_trained, programs, written
from bench.results import Record
from bench.suite import Settings, Suite, once

SCHEDULES = "searched_schedules"  # the results file of the searches


def links(devices: int) -> Any:
    """The cluster's cost model, for `devices` devices on its hosts."""
    assert HOSTS * DEVICES_PER_HOST == 8
    return replace(model_of("cluster"), devices_per_host=devices // HOSTS)


def machine(devices: int) -> Any:
    """The machine of the search: the cluster's links, and the devices of the preset `cpu`."""
    from redistrib.programs.time.constants import MACHINES

    return replace(MACHINES["cpu"], name="cluster", links=links(devices))


def search(names: list[str], size: str, limit: float) -> Generator[Record]:
    """For every program the searched schedule, and the predicted figures of it and of each layout."""
    import jax

    import redistrib as rd

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", HOSTS * DEVICES_PER_HOST)
    for name in progress(names, "searches"):
        case = programs(size)[name]
        chip = machine(case.devices)
        ends = None if is_trained(case) else case.outs
        state = {"params": 0} if is_trained(case) else None
        result = rd.search(
            case.function,
            case.args,
            case.mesh,
            out_shardings=ends,
            state=state,
            machine=chip,
            limit=limit,
            progress=False,
        )[0]
        predicted = {SEARCHED: {"seconds": result.seconds, "received": result.received_bytes, "peak": result.memory}}
        for layout, laid in written(name, size).items():
            f = rd.distribute(
                laid.function,
                laid.args,
                laid.mesh,
                in_shardings=laid.ins,
                out_shardings=laid.outs,
                machine=chip.links,
            )
            simulated = rd.simulate(f.program, chip, record=False)
            predicted[layout] = {
                "seconds": simulated.seconds,
                "received": f.program.received_bytes,
                "peak": max(simulated.peak_bytes.values()),
            }
        yield {
            "name": name,
            "mesh": dict(case.mesh),
            "predicted": predicted,
            "bound": result.bound,
            "complete": result.result.complete,
            "schedule": result.schedule.to_json(),
        }


def searches(names: list[str], size: str, limit: float) -> dict[str, Record]:
    """The searches of programs by name: those saved, and the rest searched now."""
    settings = {"size": size, "limit_s": limit, "profile": "cluster"}
    saved = results.load(SCHEDULES)
    same_settings = saved and {**saved["settings"], "unfinished": None} == {**settings, "unfinished": None}
    records = saved["records"] if saved and same_settings else []
    missing = [name for name in names if name not in {record["name"] for record in records}]
    if missing:
        records = results.collect(SCHEDULES, search(missing, size, limit), settings, earlier=records)
    return {record["name"]: record for record in records if record["name"] in names}


def measure(schedules: list[Record], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program; a layout that kills XLA's process is left out of a second run."""
    by_name, cases = {record["name"]: record for record in schedules}, programs(settings["size"])
    devices = {name: cases[name].devices for name in by_name}
    for name, job in jobs(devices, settings["rate"], "bench.programs.worker_searched"):
        record = by_name[name]
        task = {**settings, "case": name, "schedule": record["schedule"], "skip": []}
        answer = job.ask(task, limit)
        failed = answer.get("stage")
        if "times" not in answer and failed in LAYOUTS[name][1]:
            answer = {**job.ask({**task, "skip": [failed]}, limit), "failed": failed}
        yield {key: record[key] for key in ("name", "mesh", "predicted", "bound", "complete")} | answer


def prepared(settings: Settings) -> Settings:
    """The settings with the cost model and the number of hosts."""
    return {**settings, "cost_model": "cluster", "hosts": HOSTS}


SUITE = Suite(
    "searched_cluster",
    measure,
    once(LAYOUTS),
    options={"size": "medium", "rounds": 9, "rate": "500mbit", "search_limit": 120.0},
    more={"rounds": 25},
    problems=lambda settings: searches([*settings["sets"]], settings["size"], settings["search_limit"]),
    prepared=prepared,
    missing=lambda _: why_not(),
    limit=300.0,
)
