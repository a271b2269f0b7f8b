"""Searched schedules on the emulated cluster, against XLA with inputs by batch and in every layout written by hand.

Every program is searched for the links of the cluster, with nothing said of where its arguments begin, and each layout
of `bench.programs.written` is predicted on the same machine; both are kept, so that a second run searches nothing. Then
all of them run in alternating order, each on arguments that lie as it wants them. Needs root and iproute2.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from bench import results
from bench.children import progress
from bench.cluster import DEVICES_PER_HOST, HOSTS, jax_job
from bench.library import model_of
from bench.network import Network, why_not
from bench.programs.written import FOUND, LAYOUTS, is_trained, programs, written
from bench.results import Record
from bench.suite import Settings, Suite, once

SCHEDULES = "searched_schedules"  # the results file of the searches


def links(devices: int) -> Any:
    """The cluster's cost model, for so many devices on its hosts."""
    assert HOSTS * DEVICES_PER_HOST == 8
    return replace(model_of("cluster"), devices_per_host=devices // HOSTS)


def machine(devices: int) -> Any:
    """The machine of the search: the cluster's links, and devices as the preset for virtual ones has them."""
    from redistrib.simulator.constants import MACHINES

    return replace(MACHINES["cpu"], name="cluster", links=links(devices))


def search(names: list[str], size: str, limit: float) -> Generator[Record]:
    """For every program the schedule found, and its predicted seconds beside those of each layout."""
    import jax

    import redistrib as rd

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", HOSTS * DEVICES_PER_HOST)
    for name in progress(names, "searches"):
        case = programs(size)[name]
        on = machine(case.devices)
        ends = None if is_trained(case) else case.outs
        state = {"params": 0} if is_trained(case) else None
        found = rd.search(
            case.function,
            case.args,
            case.mesh,
            out_shardings=ends,
            state=state,
            profile=on,
            limit=limit,
            progress=False,
        )[0]
        predicted = {FOUND: {"seconds": found.seconds, "received": found.received_bytes, "peak": found.memory}}
        for layout, own in written(name, size).items():
            f = rd.distribute(
                own.function, own.args, own.mesh, in_shardings=own.ins, out_shardings=own.outs, cost_model=on.links
            )
            simulated = rd.simulate(f.program, on, record=False)
            predicted[layout] = {
                "seconds": simulated.seconds,
                "received": f.program.received_bytes,
                "peak": max(simulated.peak_bytes.values()),
            }
        yield {
            "name": name,
            "mesh": dict(case.mesh),
            "predicted": predicted,
            "bound": found.bound,
            "complete": found.result.complete,
            "schedule": found.schedule.to_json(),
        }


def searches(names: list[str], size: str, limit: float) -> dict[str, Record]:
    """Those of programs by name: as they were kept, or searched now."""
    settings = {"size": size, "limit_s": limit, "profile": "cluster"}
    kept = results.load(SCHEDULES)
    known = (
        kept["records"] if kept and {**kept["settings"], "unfinished": None} == {**settings, "unfinished": None} else []
    )
    missing = [name for name in names if name not in {record["name"] for record in known}]
    if missing:
        known = results.collect(SCHEDULES, search(missing, size, limit), settings, earlier=known)
    return {record["name"]: record for record in known}


def measure(found: list[Record], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program; a layout that ends XLA's process is left out the second time."""
    known = programs(settings["size"])
    for devices in sorted({known[record["name"]].devices for record in found}):
        chosen = [record for record in found if known[record["name"]].devices == devices]
        with (
            Network(HOSTS, settings["rate"]) as network,
            jax_job(network, devices // HOSTS, "bench.programs.worker_searched") as job,
        ):
            for record in progress(chosen, f"searched programs on {devices} devices"):
                task = {**settings, "case": record["name"], "schedule": record["schedule"], "skip": []}
                answer = job.ask(task, limit)
                failed = answer.get("stage")
                if "times" not in answer and failed in LAYOUTS[record["name"]][1]:
                    answer = {**job.ask({**task, "skip": [failed]}, limit), "failed": failed}
                yield {key: record[key] for key in ("name", "mesh", "predicted", "bound", "complete")} | answer


def prepared(settings: Settings) -> Settings:
    """With the page's lines on the network."""
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
