"""Write docs/benchmarks.md and its pictures from the results there are; what has not been run is named as such."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from bench import (
    cluster_mpi,
    gradients,
    hosts_page,
    partial_page,
    pipelines_page,
    quirks,
    results,
    sets,
    survivors,
    tori,
    verdicts,
    wire,
)
from bench.children import ROOT
from bench.dtensor_run import speeds
from bench.fuzz import page
from bench.programs import page as programs_page
from bench.quality import failures
from bench.results import Results
from bench.stats import bootstrap_geomean, geomean, paired_ratio, quantile
from bench.summary import (
    OURS,
    XLA,
    Record,
    by_set,
    bytes_ratio,
    compiled,
    fate,
    sides,
    slower_than,
    speed,
    speed_of,
    timed,
    xla_gathers,
)

BENCHES = {
    "cluster": "the emulated cluster (`python -m bench cluster`)",
    "xla_cpu": "XLA on virtual CPU devices (`python -m bench xla-cpu`)",
    "tpu": "the TPU compiler (`python -m bench tpu`)",
    "tori": "the busiest link of TPU slices (`python -m bench tori`)",
    "dtensor": "DTensor's planners (`python -m bench dtensor`)",
    "dtensor_run": "DTensor on the emulated cluster (`python -m bench dtensor-run`)",
    "trees": "whole models (`python -m bench trees`)",
    "quirks": "quirks of virtual CPU devices (`python -m bench quirks`)",
    "quality": "plans, counted (`python -m bench quality`)",
    "hosts_interleaved": "hosts that take turns (`python -m bench cluster --hosts 0,1,2,3,0,1,2,3 "
    "--against 0,0,1,1,2,2,3,3 --name hosts_interleaved`)",
    "hosts_unequal": "unequal hosts (the same with `--hosts 0,1,1,2,2,3,3,3`, named hosts_unequal)",
    "cluster_mpi": "MPI on the emulated cluster (`python -m bench cluster-mpi`)",
    "partial": "summands, counted (`python -m bench partial`)",
    "partial_cluster": "summands on the emulated cluster (`python -m bench cluster --sets P8 --name partial_cluster`)",
    "gradients": "gradients on the emulated cluster (`python -m bench gradients`)",
    "sets": "other devices on the emulated cluster (`python -m bench sets`)",
    "programs": "programs, counted (`python -m bench programs`)",
    "programs_cluster": "programs on the emulated cluster (`python -m bench programs-cluster`)",
    "programs_searched": "programs, searched (`python -m bench.programs.searched`)",
    "planning": "the time of one plan (`python -m bench planning`)",
    "distir": "DistIR's tables, simulated (`python -m bench distir`)",
    "pipelines": "a transformer in stages on emulated hosts (`python -m bench pipelines`)",
    "scaling": "planning time and quality at scale (`python -m bench scaling`)",
    "fuzz": "the fuzzer (`python -m bench fuzz`)",
    "mutants": "faults put into the code (`python -m bench mutants`)",
}
DTENSOR = {"shipped": "DTensor, shipped", "dijkstra": "DTensor, Dijkstra"}


# title of a panel, the sets it shows, and the TPU topology they were compiled for
CURVES = (
    ("U, (2, 2, 2)", ("U222",), "v5e:2x4"),
    ("H, (2, 2, 2)", ("H222",), "v5e:2x4"),
    ("U, 24 devices: (4, 6), (2, 3, 4)", ("U46", "U234"), ""),
    ("U, 64 devices: (4, 4, 4), (8, 8)", ("U444", "U88"), ""),
    ("small dimensions, (2, 3, 4)", ("S234",), ""),
    ("layouts from practice, P1 to P4", ("layouts", "paper"), ""),
)


def load() -> Results:
    names = (*BENCHES, "xla_cpu_null", "cluster_null")
    return Results({name: file for name in names if (file := results.load(name))})


# ------------------------------------------------------------------------------------------------------- pictures


def draw(found: Results, folder: Path) -> list[str]:
    """The pictures for which there are results; their file names."""
    from bench import pictures

    made = []

    def picture(name: str, make: Callable[[Path], None]) -> None:
        make(folder / name)
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
        picture("run-times.png", lambda path: pictures.run_times(panels, path))
        picture("ratios.png", lambda path: pictures.ratios(panels, path))
    curves = _byte_curves(found)
    if curves:
        picture("bytes-over-bound.png", lambda path: pictures.over_bound(curves, path))
    memory = _scratch_curves(found)
    if memory:
        picture("scratch.png", lambda path: pictures.scratch(memory, path))
    if found.records("scaling"):
        limit = float(found.settings("scaling")["limit_s"])
        picture("planning.png", lambda path: pictures.planning(found.records("scaling"), limit, path))
    if any("times" in record for record in found.records("pipelines")):
        picture("pipelines.png", lambda path: pictures.predicted(found.records("pipelines"), path))
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
        for key, label in DTENSOR.items():
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


# ----------------------------------------------------------------------------------------------------------- text


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def _speeds(records: list[Record], limit: float) -> str:
    rows = []
    for name, group in by_set(timed(records)).items():
        values = [speed(r).value for r in group]
        gathers = [r for r in group if xla_gathers(r)]
        rows.append(
            [name, str(len(group)), str(speed_of(group)), f"{quantile(values, 0.5):.2f}", f"{max(values):.2f}",
             f"{min(values):.2f}", str(len(slower_than(group, limit))),
             f"{speed_of(gathers)} ({len(gathers)})" if gathers else "none"]
        )  # fmt: skip
    head = ["set", "problems", "geomean [95%]", "median", "best", "worst", f"below {limit:g}x beyond noise",
            "geomean where XLA gathers past the tile"]  # fmt: skip
    return table(head, rows)


def _counted(records: list[Record]) -> str:
    rows = []
    for name, group in by_set(records).items():
        for side, label in ((OURS, "ours"), (XLA, "XLA")):
            s = sides(group, side)
            lost = {f: n for f in ("crash", "limit", "error") if (n := sum(fate(r, side) == f for r in group))}
            rows.append(
                [name, label, str(s.problems), ", ".join(f"{n} {f}" for f, n in lost.items()) or "none",
                 " / ".join(f"{x:.2f}" for x in s.over_bound), f"{s.over_tile:.0%}",
                 " / ".join(f"{x:.2f}" for x in s.scratch), f"{s.scratch_total / 1e9:.2f}", f"{s.compile_s:.2f}"]
            )  # fmt: skip
    head = ["set", "", "compiled", "lost", "bytes/bound geomean / p90 / max", "over", "scratch/tile median / p90 / max",
            "scratch in all, GB", "compile s, median"]  # fmt: skip
    return table(head, rows)


def _planners(found: Results) -> str:
    rows = []
    for name, group in by_set(found.records("dtensor")).items():
        for key, label in DTENSOR.items():
            done = [r for r in group if compiled(r, key)]
            values = [bytes_ratio(r, key) for r in done]
            over = sum(r[key]["largest"] > r["tile"] for r in done) / max(1, len(done))
            seconds = [r[key]["plan_s"] for r in done]
            ratio = f"{geomean(values):.2f} / {max(values, default=0):.1f}"
            rows.append([name, label, f"{len(done)} of {len(group)}", ratio, f"{over:.0%}",
                         f"{quantile(seconds, 0.5):.4f} / {max(seconds, default=0):.2f}"])  # fmt: skip
    return table(["set", "planner", "planned", "bytes/bound geomean / max", "over", "seconds median / max"], rows)


def _dtensor_speeds(records: list[Record]) -> str:
    rows = []
    for key, label in DTENSOR.items():
        values = speeds(records, key)
        if values:
            rows.append(
                [label, str(len(values)), str(bootstrap_geomean(values)), f"{max(values):.1f}", f"{min(values):.2f}"]
            )
    return table(["planner", "problems", "DTensor's time over ours, geomean [95%]", "best", "worst"], rows)


def _worst(found: Results) -> str:
    """The ten problems on which ours does worst against XLA, of all timed ones, with the reason the counts give."""
    everything = [(bench, r) for bench in ("cluster", "xla_cpu") for r in timed(found.records(bench))]
    everything.sort(key=lambda item: speed(item[1]).value)
    rows = []
    for bench, record in everything[:10]:
        problem = verdicts.problem_of(record)
        rows.append([bench, f"`{problem.source}` -> `{problem.target}` on {dict(problem.mesh)}".replace("'", ""),
                     str(speed(record)), verdicts.reason(record)])  # fmt: skip
    return table(["bench", "problem", "XLA's time / ours [noise]", "reason"], rows)


def write(found: Results, path: Path) -> None:
    """Pictures beside the page, in a folder of its name, and the page."""
    made = draw(found, path.parent / "benchmarks")
    picture = {name: f"![{name[:-4]}](benchmarks/{name})\n" for name in made}
    parts = [INTRODUCTION, "## What must hold, and whether it does\n", verdicts.goals_table(found)]
    if found.records("cluster"):
        s = found.settings("cluster")
        parts += [CLUSTER.format(**s), _speeds(found.records("cluster"), 0.95),
                  wire.table(found.records("cluster"), s), picture.get("run-times.png", ""),
                  picture.get("ratios.png", ""), verdicts.noise(found, "cluster_null")]  # fmt: skip
    parts += [*hosts_page.parts(found, table), *cluster_mpi.parts(found)]
    if found.records("xla_cpu"):
        parts += [CPU.format(**found.settings("xla_cpu")), _speeds(found.records("xla_cpu"), 0.9),
                  verdicts.noise(found, "xla_cpu_null"), COUNTED, _counted(found.records("xla_cpu")),
                  picture.get("bytes-over-bound.png", ""), picture.get("scratch.png", "")]  # fmt: skip
    if found.records("tpu"):
        parts.append(TPU.format(**found.settings("tpu")))
        for topology in dict.fromkeys(r["topology"] for r in found.records("tpu")):
            parts += [f"**{topology}**\n", _counted([r for r in found.records("tpu") if r["topology"] == topology])]
        parts.append(verdicts.swap(found))
    parts += tori.parts(found, table)
    if found.records("dtensor"):
        parts += [PLANNERS_TEXT.format(**found.settings("dtensor")), _planners(found)]
    if found.records("dtensor_run"):
        parts += [DTENSOR_RUN.format(**found.settings("dtensor_run")), _dtensor_speeds(found.records("dtensor_run"))]
    if found.records("trees"):
        parts += [TREES.format(**found.settings("trees")), _trees(found.records("trees"))]
    if found.records("quirks"):
        parts += [QUIRKS, table(quirks.HEAD, quirks.rows(found.records("quirks")))]
    if found.records("quality"):
        parts += [QUALITY, _quality(found.records("quality"))]
    parts += partial_page.parts(found, table, _speeds)
    parts += gradients.parts(found, table)
    parts += sets.parts(found, table)
    parts += programs_page.parts(found, table)
    if found.records("planning"):
        parts += [PLANNING, _planning(found.records("planning"))]
    if found.records("scaling"):
        parts += [SCALING, picture["planning.png"]]
    parts += pipelines_page.parts(found, table, picture.get("pipelines.png", ""))
    if found.records("fuzz"):
        parts += [page.text(found.settings("fuzz")), table(*page.rows(found.records("fuzz")))]
    if found.records("mutants"):
        text = survivors.TEXT.format(**found.settings("mutants"))
        parts += [text, table(*survivors.rows(found.records("mutants")))]
    if timed(found.records("cluster")) or timed(found.records("xla_cpu")):
        parts += ["## The ten problems where we are worst\n", _worst(found)]
    parts += [verdicts.provenance(found), verdicts.not_measured(found, BENCHES)]
    path.write_text("\n".join(part.rstrip() + "\n" for part in parts if part))


QUALITY = """## Plans, counted

`cost_model="exact"`, and where the column says so the latency-bandwidth preset `"tpu"`. Shares are of a set's problems;
"still" are those whose lower bound is zero, which no other bench draws. "Wrong" adds up problems on which a plan under
`"exact"` misses the lower bound, has a tile above the larger of source and target, receives more than the paper's
algorithm or needs more collectives at equal bytes. The last column counts problems on which the paper's algorithm,
given all the time it wants, finds what the preset models as faster; `"best"` runs it on a short leash.
"""


def _quality(records: list[Record]) -> str:
    rows = []
    for r in (r for r in records if "at_most" in r):
        shares = [f"{100 * r['at_most'][k]:.0f}%" for k in r["at_most"]]
        tpu = [f"{r['tpu_over_bound']:.3f}", *(f"{100 * r['tpu_at_most'][k]:.0f}%" for k in ("1", "2"))]
        dearer = str(r["tpu_dearer_than_paper"])
        rows.append(
            [r["set"], str(r["problems"]), str(r["still"]), str(failures(r)), *shares, str(r["most"]), *tpu, dearer]
        )
    levels = [f"at most {k}" for k in next((r["at_most"] for r in records if "at_most" in r), {})]
    tpu_head = ["TPU: bytes/bound", "TPU: at most 1", "TPU: at most 2", "TPU: paper's faster"]
    head = ["set", "problems", "still", "wrong", *levels, "most", *tpu_head]
    text = table(head, rows)
    for r in (r for r in records if "more_than_xla" in r):
        text += (
            f"\n\nAgainst what XLA compiled on {r['problems']} problems of the benches above: more bytes on "
            f"{r['more_than_xla']}, more collectives at equal bytes on {r['tie_more_collectives']}.\n"
        )
    return text


PLANNING = """## Planning, problem by problem

Wall time of one call of `synthesize`, from the text of the types to a verified plan, a problem's quickest of three
passes over all problems (pytest-benchmark, `bench/test_planning.py`). Sets U and H as above; rank 6 on 4,096 devices;
65,536 devices of two to four mesh axes. "paper" is `algorithm="paper"`. The peak is that of the whole process so far,
in MiB.
"""


def _planning(records: list[Record]) -> str:
    rows = []
    for r in records:
        name, _, way = r["test"].removeprefix("test_").rstrip("]").partition("[")
        seconds = [f"{1e3 * r[key]:.2f}" for key in ("median_s", "p99_s", "worst_s")]
        rows.append([f"{name.replace('_', ' ')}, {way}", str(r["problems"]), *seconds, f"{r['peak_mib']:.0f}"])
    return table(["what", "problems", "median, ms", "99%", "worst", "peak, MiB"], rows)


TREES = """## Whole models

`reshard` of a model's tree from fully sharded to tensor parallel on {devices} virtual CPU devices, paired with
`jax.device_put` and with one `jit` with `out_shardings` on the same values in one run. Every call gets arrays that were
not moved before: `device_put` keeps what it brought to the host with an array, and copies less the next time. Ratios
are theirs over ours, so above 1 ours is faster. MiniLM is all-MiniLM-L6-v2 in float32 (22.7 million parameters),
"billion" a synthetic transformer of a billion in bfloat16. The first call is planning and compiling against what the
`jit` takes to compile, both with empty caches. Device peak is source, target and scratch as the compiler counts them;
resident peak is the kernel's, of the process, beyond what was resident before the first call: the worst of three calls,
the first of which plans and compiles.
"""


def _trees(records: list[Record]) -> str:
    rows = []
    for r in records:
        if "times" not in r:
            rows.append([r["case"], r["status"], "", "", "", "", "", ""])
            continue
        times, first = r["times"], r.get("first_calls")
        resident = [max(r["memory"][side].get("resident", [float("nan")])) for side in ("ours", "device_put", "jit")]
        bytes_of = (
            (r["received"]["ours"], r["received"]["jit"], r["bound"]),
            (r["device_peak"]["ours"], r["device_peak"]["jit"]),
            resident,
        )
        rows.append(
            [
                r["case"],
                f"{quantile(times['ours'], 0.5):.3f}",
                *(str(paired_ratio(times[side], times["ours"])) for side in ("device_put", "jit")),
                str(paired_ratio(first["jit"], first["ours"])) if first else "not taken",
                *(" / ".join(f"{value / 1e6:.0f}" for value in values) for values in bytes_of),
            ]
        )
    head = ["case", "ours, s", "device_put over ours", "jit over ours", "jit's compile over our first call"]
    sizes = ["received, MB: ours / jit / bound", "device peak, MB: ours / jit"]
    return table([*head, *sizes, "resident peak, MB: ours / device_put / jit"], rows)


QUIRKS = """## Quirks of virtual CPU devices

What XLA does differently where all devices are threads of one process (`redistrib/backends/jax/xla_cpu.py`), each
switched off by itself. On and off take turns in one process; a ratio is off over on, so above 1 the quirk pays. A first
call has empty caches, and of a problem it is the time to compile. Bytes are source, target and scratch as the compiler
counts them, resident peaks the worst of three calls in fresh processes. "Problems" are those of the sets above whose
programs the quirk changes. "Small leaves" are 60 of a few KiB and 30 sizes, moved from cut to whole. The machine was
shared with other work, so processor time says more than seconds. What is gone brought nothing.

TPUs have no quirks here: tiles above 64 MiB travel in slices, as libtpu's figures for v5e ask for (above). Of programs
of many arrays one was compiled for v5e:2x4, with 22 arrays of MiniLM's shapes: coalesced it has 3 collectives, at the
bound; one by one 7, and 2% more bytes. When to coalesce was not measured there. For GPUs nothing was compiled, as there
is no compiler of theirs here: their programs are those of TPUs without slices.
"""


INTRODUCTION = """# Benchmarks

Written by `python -m bench report` from the files in `bench/results`; edit the benches, not this page.

A ratio of run times is XLA's time over ours, so above 1 ours is faster. Both run in one process (one job on the
cluster) on the same input buffer in alternating order; a problem's ratio is the median over rounds of the ratio within
a round, with a 95% bootstrap interval over rounds as its noise. The interval of a geometric mean is over problems.
Every result was compared with the right answer, element by element, before it was timed.

Bytes are counted from the compiled program: what a device receives from others, mean over devices, over the exact lower
bound, which is the part of its target tile that a device does not hold already. *Over* is the share of problems with an
array larger than the larger of source and target tile. Scratch is what the compiler reports as temporary memory.

Sets: `U222` is drawn on a (2, 2, 2) mesh, each axis replicated or cutting one of the dimensions with equal odds; in `H`
it is replicated with odds one half; `S` has small dimensions, on which divisibility binds. `paper` is P1 to P4 of
Figure 13, `layouts` are changes from practice (FSDP to tensor parallel, tensor to expert parallel, sequence to head
parallel, checkpoints onto another topology).
"""

CLUSTER = """## Emulated cluster

4 hosts as network namespaces on one machine, {devices_per_host} JAX CPU devices in each, links of {rate} in each
direction (token bucket), TCP Reno, XLA's gloo collectives; arrays of up to {megabytes:g} MB. Bytes that leave a host
cost what they would cost on such a network; the hosts share this machine's cores.
"""

CPU = """## Virtual CPU devices of one process

Here a collective is a copy in memory, so run times weigh local copies and launches, not a network. Arrays of up to
{megabytes:g} MB; sets of 64 devices and of tiny arrays are compiled and counted, not timed.
"""

COUNTED = """### Counted from the compiled programs

"Lost" are problems on which compiling killed the process (crash), passed the time limit or raised an error.
"""

TPU = """## The TPU compiler

Compiled by libtpu for topologies that are not attached; nothing ran. Arrays have their full size of 64 to 800 MB. Each
side had {limit_s:g} s. Compile seconds of ours include planning. The compiler keeps some small tiles on chip and
reports no scratch for them.
"""

PLANNERS_TEXT = """## DTensor

PyTorch {torch}, planned on pretended process groups, counted by the same rules. "Shipped" is what `redistribute` does
by default, "Dijkstra" the planner behind `use_min_cost_redistribution_plan`. Both have {limit_s:g} s per problem.
"""

DTENSOR_RUN = """### DTensor on the emulated cluster

Wall time of DTensor's public `redistribute` with eight gloo processes on the same network, against ours as above; the
two take turns problem by problem but share no buffers. {left_out} problems were left out because the public interface
cannot order their axes. On gloo DTensor's all-to-all is an all-gather and a slice.
"""

SCALING = """## Planning at scale

Processor seconds to plan one problem, which is one thread's work.
"Ours" weighs exact bytes, "latency model" the TPU profile, for which few collectives may be worth more than bytes.
DTensor's memoisation is cleared before each. Below, received bytes over the lower bound of what was planned.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md", help="where to write the page")


def main(arguments: argparse.Namespace) -> int:
    found = load()
    if not found.files:
        print(f"no results in {results.DIRECTORY}; run a bench first")
        return 1
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    write(found, arguments.page)
    print(f"wrote {arguments.page}")
    return 0
