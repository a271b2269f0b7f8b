"""Which pictures the page has, and what of the results each of them shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.dtensor_page import PLANNERS
from bench.results import Results
from bench.summary import OURS, XLA, timed

# title of a panel, the sets it shows, and the TPU topology they were compiled for
CURVES = (
    ("U, (2, 2, 2)", ("U222",), "v5e:2x4"),
    ("H, (2, 2, 2)", ("H222",), "v5e:2x4"),
    ("U, 24 devices: (4, 6), (2, 3, 4)", ("U46", "U234"), ""),
    ("U, 64 devices: (4, 4, 4), (8, 8)", ("U444", "U88"), ""),
    ("small dimensions, (2, 3, 4)", ("S234",), ""),
    ("layouts from practice, P1 to P4", ("layouts", "paper"), ""),
)


def draw(found: Results, folder: Path) -> list[str]:
    """Draw the pictures for which there are results; their names, without the ending."""
    from bench import pictures

    made = []

    def picture(name: str, make: Callable[[Path], None]) -> None:
        make(folder / f"{name}.png")
        made.append(name)

    panels = {
        title: found.records(name)
        for name, title in (
            ("cluster", "emulated cluster, 4 hosts x 2 devices"),
            ("xla_cpu", "virtual CPU devices of one process"),
        )
        if timed(found.records(name))
    }
    if panels:
        picture("run-times", lambda path: pictures.run_times(panels, path))
        picture("ratios", lambda path: pictures.ratios(panels, path))
    curves = _byte_curves(found)
    if curves:
        picture("bytes-over-bound", lambda path: pictures.over_bound(curves, path))
    memory = _scratch_curves(found)
    if memory:
        picture("scratch", lambda path: pictures.scratch(memory, path))
    if found.records("scaling"):
        limit = float(found.settings("scaling")["limit_s"])
        picture("planning", lambda path: pictures.planning(found.records("scaling"), limit, path))
    if any("times" in record for record in found.records("pipelines")):
        picture("pipelines", lambda path: pictures.predicted(found.records("pipelines"), path))
    return made


def _byte_curves(found: Results) -> dict[str, dict[str, tuple[list[float], int]]]:
    from bench.pictures import over_bound_values

    panels = {}
    for title, names, topology in CURVES:
        systems = {}
        cpu = found.of_set("xla_cpu", *names)
        tpu = [r for r in found.of_set("tpu", *names) if r["topology"] == topology]
        planners = found.of_set("dtensor", *names)
        if cpu:
            systems["ours"] = over_bound_values(cpu, OURS)
            systems["XLA"] = over_bound_values(cpu, XLA)
        if tpu:
            systems["ours, TPU"] = over_bound_values(tpu, OURS)
            systems["XLA, TPU"] = over_bound_values(tpu, XLA)
        for key, label in PLANNERS.items():
            if planners:
                systems[label] = over_bound_values(planners, key)
        if systems:
            panels[title] = systems
    return panels


def _scratch_curves(found: Results) -> dict[str, dict[str, list[float]]]:
    from bench.pictures import scratch_values

    panels = {}
    for title, names in (("U and H, (2, 2, 2)", ("U222", "H222")), ("U, 24 devices", ("U46", "U234"))):
        cpu, tpu = found.of_set("xla_cpu", *names), found.of_set("tpu", *names)
        systems = {"ours": scratch_values(cpu, OURS), "XLA": scratch_values(cpu, XLA)} if cpu else {}
        if tpu:
            systems |= {"ours, TPU": scratch_values(tpu, OURS), "XLA, TPU": scratch_values(tpu, XLA)}
        if systems:
            panels[title] = systems
    return panels
