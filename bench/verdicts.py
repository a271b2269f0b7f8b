"""What the report concludes from the records: goals met or not, reasons for losses, where and how it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import gradients, hosts_page, partial_page, sets, survivors, top_ten, tori, wire
from bench.problems import Problem
from bench.programs import searched_page
from bench.programs.page import searched_verdict
from bench.results import Results
from bench.stats import geomean, quantile
from bench.summary import (
    OURS,
    XLA,
    Record,
    compiled,
    fate,
    slower_than,
    speed,
    speed_of,
    timed,
    xla_gathers,
)


def problem_of(record: Record) -> Problem:
    return Problem.from_json(record["problem"])


# ---------------------------------------------------------------------------------------------------------- goals


def _row(goal: str, measured: str, met: bool | None) -> str:
    verdict = {True: "yes", False: "**no**", None: "not measured"}[met]
    return f"| {goal} | {measured} | {verdict} |"


def _speed_goal(goal: str, records: list[Record], least: float) -> str:
    chosen = timed(records)
    if not chosen:
        return _row(goal, "", None)
    found = speed_of(chosen)
    return _row(goal, f"{found} over {len(chosen)} problems", found.value >= least)


def _best_goal(goal: str, records: list[Record], least: float) -> str:
    values = [speed(r).value for r in timed(records)]
    return _row(goal, f"{max(values):.2f}x", max(values) >= least) if values else _row(goal, "", None)


def _floor_goal(goal: str, records: list[Record], limit: float) -> str:
    chosen = timed(records)
    if not chosen:
        return _row(goal, "", None)
    slow = slower_than(chosen, limit)
    worst = min(speed(r).value for r in chosen)
    return _row(goal, f"{len(slow)} of {len(chosen)} are; worst median {worst:.2f}x", not slow)


def goals_table(found: Results) -> str:
    """A row per figure that must hold, with what was measured."""
    cluster, cpu = found.records("cluster"), found.records("xla_cpu")
    tpu = [r for r in found.of_set("tpu", "U222") if r["topology"] == "v5e:2x4"]
    rows = [
        "| goal | measured | holds |\n| --- | --- | --- |",
        _speed_goal("cluster, U: geomean at least 2x XLA", found.of_set("cluster", "U222"), 2.0),
        _speed_goal("cluster, H: geomean at least 2.4x", found.of_set("cluster", "H222"), 2.4),
        _speed_goal(
            "cluster, where XLA gathers past the tile: at least 2.5x", [r for r in cluster if xla_gathers(r)], 2.5
        ),
        _best_goal("cluster, best problem: at least 5.7x", cluster, 5.7),
        _floor_goal("cluster, no problem below 0.95x beyond its noise", cluster, 0.95),
        *_wire_goals(found, "cluster", "cluster"),
        *_wire_goals(found, "cluster_mpi", "cluster by MPI"),
        *_hosts_goals(found),
        _speed_goal("8 CPU devices, U: geomean at least 1.2x", found.of_set("xla_cpu", "U222"), 1.2),
        _speed_goal("24 CPU devices, (2, 3, 4): geomean at least 2x", found.of_set("xla_cpu", "U234"), 2.0),
        _floor_goal("CPU devices, no problem below 0.9x beyond its noise", cpu, 0.9),
        *_tpu_goals(tpu),
        _scratch_goal(
            "TPU v5e 2x4, aligned tiles of 128 MiB and more: scratch at most 2 tiles", found.of_set("tpu", "A222")
        ),
        *(_row(*goal) for goal in tori.goals(found.records("tori"))),
        *_partial_goals(found.records("partial"), found.records("partial_cluster")),
        _row(
            'gradients of MiniLM to FSDP shards, order="fixed": at the bound, the same bits on two device orders',
            *gradients.verdict(found.records("gradients")),
        ),
        _row(
            "programs searched, same pins: bytes at most 0.7x XLA's in geomean, and never more",
            *searched_verdict(found.records("programs_searched")),
        ),
        _row(*top_ten.goal(found.records("pipelines"))),
        *[_row(*goal) for goal in searched_page.goals(found.records("searched_cluster"))],
        *[_row(*goal) for goal in sets.goals(found.records("sets"))],
        *_planning_goals({r["test"]: r for r in found.records("planning")}),
        _mutants_goal(found.records("mutants")),
        _fuzz_goal({r["kind"]: r for r in found.records("fuzz")}),
    ]
    return "\n".join(rows)


def _scratch_goal(goal: str, records: list[Record]) -> str:
    worst = {
        side: max((r[side]["scratch"] / r["tile"] for r in records if compiled(r, side)), default=None)
        for side in (OURS, XLA)
    }
    if worst[OURS] is None or worst[XLA] is None:
        return _row(goal, "", None)
    measured = f"at most {worst[OURS]:.2f} over {len(records)} problems; XLA's {worst[XLA]:.1f}"
    return _row(goal, measured, worst[OURS] <= 2)


def _tpu_goals(records: list[Record]) -> list[str]:
    goals = [
        "TPU v5e 2x4, U: every problem compiles",
        "TPU v5e 2x4, U: median compile time at most half of XLA's",
        "TPU v5e 2x4, U: collective bytes at most XLA's on every problem",
        "TPU v5e 2x4, U: scratch in total at most half of XLA's",
    ]
    if not records:
        return [_row(goal, "", None) for goal in goals]
    ours = [r for r in records if compiled(r, OURS)]
    both = [r for r in ours if compiled(r, XLA)]
    mine = quantile([r[OURS]["compile_s"] + r[OURS].get("plan_s", 0.0) for r in ours], 0.5)
    theirs = quantile([r[XLA]["compile_s"] if compiled(r, XLA) else float("inf") for r in records], 0.5)
    more = [r for r in both if r[OURS]["received"] > r[XLA]["received"] * (1 + 1e-9)]
    own, other = (sum(r[side]["scratch"] or 0 for r in both) for side in (OURS, XLA))
    return [
        _row(goals[0], f"{len(ours)} of {len(records)}; XLA's {sum(compiled(r, XLA) for r in records)}",
             len(ours) == len(records)),
        _row(goals[1], f"{mine:.2f} s against {theirs:.2f} s", mine <= theirs / 2),
        _row(goals[2], f"more on {len(more)} of {len(both)}", not more),
        _row(goals[3], f"{own / 1e9:.2f} GB against {other / 1e9:.2f} GB", own <= other / 2),
    ]  # fmt: skip


def _wire_goals(found: Results, name: str, label: str) -> list[str]:
    goals = (f"{label}, time over what the links allow: at most 1.25 in geomean", f"{label}, no kind of plan above 1.5")
    rows = wire.rows_of(found.records(name), found.settings(name)) if found.records(name) else []
    if not rows:
        return [_row(goal, "", None) for goal in goals]
    all_of_them = geomean([row[OURS] for row in rows])
    kinds = {kind: geomean([row[OURS] for row in rows if row["kind"] == kind]) for kind in {r["kind"] for r in rows}}
    worst = max(sorted(kinds), key=kinds.__getitem__)
    return [
        _row(goals[0], f"{all_of_them:.2f} over {len(rows)} moves of 2 MB a host and more", all_of_them <= 1.25),
        _row(goals[1], f"{worst} {kinds[worst]:.2f}", kinds[worst] <= 1.5),
    ]


def _hosts_goals(found: Results) -> list[str]:
    rows = []
    for name, label in hosts_page.NAMES.items():
        records = found.records(name)
        values = hosts_page.between(records, OURS)
        gain = hosts_page.gain_where_more(records)
        least, most = hosts_page.LEAST_GAIN, hosts_page.MOST_BETWEEN
        rows += [
            _row(f"cluster, hosts {label}: bytes between hosts over their bound at most {most}",
                 f"{geomean(values):.3f} over {len(values)}" if values else "",
                 geomean(values) <= most if values else None),
            _row(f"the same, where a false assumption sends more between hosts: its plan takes {least}x",
                 f"{gain[0]} over {gain[1]} problems" if gain else "", gain[0].value >= least if gain else None),
        ]  # fmt: skip
    return rows


def _partial_goals(counted: list[Record], cluster: list[Record]) -> list[str]:
    goals: dict[tuple[str, bool | None], str] = {
        ("exact", True): 'summands under "exact", where the bound can be reached: bytes/bound geomean at most 1.01',
        ("default", None): "summands by default: bytes/bound geomean at most 1.05",
    }
    rows = []
    for (side, reachable), goal in goals.items():
        values = partial_page.over_bound(counted, side, reachable)
        most = 1.01 if side == "exact" else 1.05
        rows.append(
            _row(goal, f"{geomean(values):.4f} over {len(values)} problems" if values else "",
                 geomean(values) <= most if values else None)
        )  # fmt: skip
    cut = partial_page.split(cluster)["cut"]
    return [
        *rows,
        _speed_goal("cluster, summands: geomean at least 1.5x XLA", cluster, 1.5),
        _speed_goal("cluster, summands, where the target is not replicated: at least 2x", cut, 2.0),
    ]


def _planning_goals(records: Mapping[str, Record]) -> list[str]:
    small = [records.get(f"test_8_devices[{name}-{way}]") for name in ("U222", "H222") for way in ("default", "exact")]
    middle, large = (
        [r for name, r in records.items() if name.startswith(f"test_{devices}_")] for devices in (4096, 65536)
    )
    eight = [r for r in small if r is not None]
    if not (eight and middle and large):
        return [_row("planning", "", None)]
    median, tail = (max(r[key] for r in eight) for key in ("median_s", "p99_s"))
    slow, slower = (max(r["worst_s"] for r in chosen) for chosen in (middle, large))
    peak = max(r["peak_mib"] for r in large)
    return [
        _row("planning, 8 devices: median below 2 ms, 99% below 20 ms",
             f"{1e3 * median:.2f} ms and {1e3 * tail:.1f} ms", median < 2e-3 and tail < 20e-3),
        _row("planning, rank 6 on 4,096 devices: below 0.5 s", f"worst {slow:.2f} s", slow < 0.5),
        _row("planning, 65,536 devices: below 5 s and 1 GB", f"worst {slower:.2f} s, {peak:.0f} MiB",
             slower < 5 and peak < 953),
    ]  # fmt: skip


def _fuzz_goal(records: Mapping[str, Record]) -> str:
    goal = "fuzzer, 100,000 problems and 100,000 forged plans and more: nothing wrong, no case above its limit"
    if not records:
        return _row(goal, "", None)
    failed = sum(r["failed"] for r in records.values())
    enough = all(records.get(kind, {}).get("cases", 0) >= 100_000 for kind in ("problems", "forged"))
    cases = ", ".join(f"{r['cases']:,} {kind}" for kind, r in records.items())
    return _row(goal, f"{failed} failed of {cases}", False if failed else enough or None)


def _mutants_goal(records: list[Record]) -> str:
    goal = f"mutants: at least {100 * survivors.LEAST:.0f}% killed in every folder"
    if not records:
        return _row(goal, "", None)
    rooms = survivors.rooms(records)
    worst = min(rooms, key=lambda room: room.rate)
    killed, counted = (sum(getattr(room, name) for room in rooms) for name in ("killed", "counted"))
    fewest = min(room.counted + room.equivalent for room in rooms)
    measured = f"{killed} of {counted} in {len(rooms)} folders, {fewest} or more of each; "
    measured += f"least in {worst.name}, {100 * worst.rate:.0f}%"
    met = worst.rate >= survivors.LEAST
    return _row(goal, measured, None if met and fewest < survivors.FEWEST else met)


# --------------------------------------------------------------------------------------------------------- reasons


def _kinds(side: Mapping[str, Any]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(side["kinds"].items())) or "nothing"


def reason(record: Record) -> str:
    """Why ours is slow on a problem, as far as the counts of the two compiled programs tell."""
    ours, theirs, tile = record[OURS], record[XLA], record["tile"]
    found = []
    interval = speed(record)
    if interval.low <= 1.0 <= interval.high:
        found.append("within noise of XLA")
    if ours["received"] > theirs["received"] * 1.01:
        found.append(f"receives more: {ours['received'] / record['bound']:.2f} of the bound against "
                     f"{theirs['received'] / record['bound']:.2f}")  # fmt: skip
    mine, other = sum(ours["kinds"].values()), sum(theirs["kinds"].values())
    if mine > other:
        found.append(f"more collectives: {_kinds(ours)} against {_kinds(theirs)}")
    elif ours["kinds"] == theirs["kinds"]:
        found.append(f"the same collectives ({_kinds(ours)})")
    else:
        found.append(f"{_kinds(ours)} against {_kinds(theirs)}")
    if ours["copied"] > theirs["copied"] * 1.2 + 0.05 * tile:
        found.append(
            f"more local copies: {ours['copied'] / tile:.1f} tiles written against {theirs['copied'] / tile:.1f}"
        )
    return "; ".join(found)


def swap(found: Results) -> str:
    """What became of the 80x112 swap."""
    for record in found.of_set("tpu", "swap"):
        words = []
        for side, label in ((OURS, "Ours"), (XLA, "XLA's")):
            if compiled(record, side):
                entry = record[side]
                words.append(f"{label} compiles in {entry['compile_s'] + entry.get('plan_s', 0.0):.1f} s, receives "
                             f"{entry['received'] / record['bound']:.2f} of the bound and takes "
                             f"{(entry['scratch'] or 0) / record['tile']:.2f} tiles of scratch.")  # fmt: skip
            else:
                told = record[side].get("error") or record[side].get("fate", "")
                words.append(f"{label} fails: {told.splitlines()[0] if told else fate(record, side)}")
        problem = problem_of(record)
        return f"The swap `{problem.source}` -> `{problem.target}` on {record['topology']}: {' '.join(words)}\n"
    return ""


# ------------------------------------------------------------------------------------------------ where and how


def noise(found: Results, name: str) -> str:
    """What the harness says of XLA against itself."""
    records = timed(found.records(name))
    if not records:
        return "The harness's own noise (XLA against itself, `--null`) was not measured.\n"
    values = [speed(r).value for r in records]
    slow = len(slower_than(records, 0.95))
    return (
        f"XLA against itself in the same harness: geomean {speed_of(records)}, single problems from {min(values):.2f} "
        f"to {max(values):.2f}, {slow} of {len(records)} below 0.95x beyond their noise.\n"
    )


def provenance(found: Results) -> str:
    """Machine, versions, seed and date of every results file."""
    lines = ["## Where and how this was measured\n", "| bench | date | commit | seed | machine | versions |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for name, file in found.files.items():
        m, s = file["machine"], file["settings"]
        versions = ", ".join(f"{key} {value}" for key, value in m["versions"].items() if key != "torch")
        if "torch" in s:
            versions += f", torch {s['torch']}"
        part = ", cut short by its time budget" if s.get("unfinished") else ""
        part += "".join(f", {e['records']} records on {e['date']} at {e['commit']}" for e in s.get("earlier", []))
        lines.append(
            f"| {name}{part} | {m['date']} | {m['commit']} | {s.get('seed', 'fixed')} | "
            f"{m['processor']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']}, load {m['load']} | "
            f"Python {m['python']}, {versions} |"
        )
    return "\n".join(lines) + "\n"


def not_measured(found: Results, benches: Mapping[str, str]) -> str:
    """What this page does not say."""
    lines = [
        "## What was not measured\n",
        "- No TPU and no network between real hosts took part; the cluster is emulated.",
        "- XLA's flags were left at their defaults.",
        "- The paper's own prototype is not public; `the paper's search` is this library's `algorithm=\"paper\"`.",
    ]
    lines += [f"- Not run: {text}." for name, text in benches.items() if name not in found.files]
    lines += [f"- Cut short by its time budget: {benches.get(name, name)}." for name in found.files
              if found.settings(name).get("unfinished")]  # fmt: skip
    return "\n".join(lines) + "\n"
