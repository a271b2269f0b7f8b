"""The goals of every suite, with the measured figures and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench import survivors, wire
from bench.problems import Problem
from bench.programs import compared
from bench.results import Record, Results
from bench.sets import CASES, DIRECT, FOUR_A_HOST, HOST, SAME_TILES, SOCKETS, times_faster
from bench.stats import bootstrap_geomean, geomean, paired_ratio, quantile, spearman
from bench.summary import OURS, XLA, compiled, set_name, slower_than, speed, speed_of, timed, xla_gathers
from bench.tables import CLOSE, close_of, summands_over_bound
from bench.weights import FUSED, LATE, LOADS, over_floor

PROGRAMS = 15  # whose prices are close to what compilers and processors say


class Goal(NamedTuple):
    """A requirement on a figure.

    Attributes:
        name: the requirement.
        measured: the figure; empty where it was not measured.
        holds: whether the figure meets the requirement; None where it was not measured.
    """

    name: str
    measured: str = ""
    holds: bool | None = None

    @property
    def verdict(self) -> str:
        return {True: "yes", False: "**no**", None: "not measured"}[self.holds]

    def __str__(self) -> str:
        return f"{self.name}: {self.measured or '-'}: {self.verdict}"


def faster(name: str, records: list[Record], least: float) -> Goal:
    """XLA's time over ours in geometric mean is at least `least`."""
    chosen = timed(records)
    if not chosen:
        return Goal(f"{name}: XLA/ours >= {least:g}")
    gain = speed_of(chosen)
    return Goal(f"{name}: XLA/ours >= {least:g}", f"{gain} of {len(chosen)}", gain.value >= least)


def never_slower(name: str, records: list[Record], limit: float) -> Goal:
    """XLA's time over ours is below `limit` on no problem beyond its bootstrap interval."""
    chosen = timed(records)
    goal = f"{name}: no problem below {limit} beyond noise"
    if not chosen:
        return Goal(goal)
    slow, worst = slower_than(chosen, limit), min(speed(r).value for r in chosen)
    return Goal(goal, f"{len(slow)} of {len(chosen)}, worst {worst:.2f}", not slow)


def at_most(name: str, values: Sequence[float], most: float) -> Goal:
    """The geometric mean of `values` is at most `most`."""
    if not values:
        return Goal(f"{name} <= {most}")
    return Goal(f"{name} <= {most}", f"{geomean(values):.4f} of {len(values)}", geomean(values) <= most)


def of_sets(records: list[Record], *names: str) -> list[Record]:
    """The records of the sets `names`."""
    return [record for record in records if set_name(record) in names]


def links(results: Results, name: str, label: str) -> list[Goal]:
    """Time over the least time of the links, in all and by kind of plan."""
    goals = (f"{label}, time/what links allow <= 1.25", f"{label}, no kind of plan above 1.5")
    moves = wire.rows_of(results.records(name), results.settings(name))
    if not moves:
        return [Goal(goal) for goal in goals]
    overall = geomean([move[OURS] for move in moves])
    by_kind = {kind: [move[OURS] for move in moves if move["kind"] == kind] for kind in {m["kind"] for m in moves}}
    kinds = {kind: geomean(values) for kind, values in by_kind.items()}
    worst = max(sorted(kinds), key=kinds.__getitem__)
    return [
        Goal(goals[0], f"{overall:.2f}, {len(moves)} moves", overall <= 1.25),
        Goal(goals[1], f"{worst} {kinds[worst]:.2f}", kinds[worst] <= 1.5),
    ]


def cluster(results: Results) -> list[Goal]:
    records = results.records("cluster")
    values = [speed(r).value for r in timed(records)]
    return [
        faster("cluster, U", of_sets(records, "U222"), 2.0),
        faster("cluster, H", of_sets(records, "H222"), 2.4),
        faster("cluster, where XLA gathers", [r for r in records if xla_gathers(r)], 2.5),
        Goal("cluster, best problem >= 5.7", *((f"{max(values):.2f}", max(values) >= 5.7) if values else ())),
        never_slower("cluster", records, 0.95),
        *links(results, "cluster", "cluster"),
    ]


def partial_cluster(results: Results) -> list[Goal]:
    records = results.records("partial_cluster")
    cut = [r for r in records if not Problem.from_json(r["problem"]).replicates]
    return [faster("cluster, summands", records, 1.5), faster("cluster, summands to cut targets", cut, 2.0)]


def xla_cpu(results: Results) -> list[Goal]:
    records = results.records("xla_cpu")
    return [
        faster("8 CPU devices, U", of_sets(records, "U222"), 1.2),
        faster("24 CPU devices, U234", of_sets(records, "U234"), 2.0),
        never_slower("CPU devices", records, 0.9),
    ]


def tpu(results: Results) -> list[Goal]:
    aligned = of_sets(results.records("tpu"), "A222")
    records = [r for r in of_sets(results.records("tpu"), "U222") if r["topology"] == "v5e:2x4"]
    goals = [
        "TPU v5e 2x4, U: every problem compiles",
        "TPU, U: median compile time <= half of XLA's",
        "TPU, U: never more bytes than XLA",
        "TPU, U: scratch <= half of XLA's",
        "TPU, aligned tiles >= 128 MiB: scratch <= 2 tiles",
    ]
    ours = [r for r in records if compiled(r, OURS)]
    if not ours or not aligned:
        return [Goal(goal) for goal in goals]
    both = [r for r in ours if compiled(r, XLA)]
    ours_s = quantile([r[OURS]["compile_s"] + r[OURS].get("plan_s", 0.0) for r in ours], 0.5)
    xla_s = quantile([r[XLA]["compile_s"] if compiled(r, XLA) else float("inf") for r in records], 0.5)
    more = [r for r in both if r[OURS]["received"] > r[XLA]["received"] * (1 + 1e-9)]
    scratch, xla_scratch = (sum(r[side]["scratch"] or 0 for r in both) / 1e9 for side in (OURS, XLA))
    tiles = {s: max(r[s]["scratch"] / r["tile"] for r in aligned if compiled(r, s)) for s in (OURS, XLA)}
    return [
        Goal(goals[0], f"{len(ours)} of {len(records)}", len(ours) == len(records)),
        Goal(goals[1], f"{ours_s:.2f} s against {xla_s:.2f} s", ours_s <= xla_s / 2),
        Goal(goals[2], f"more on {len(more)} of {len(both)}", not more),
        Goal(goals[3], f"{scratch:.2f} GB against {xla_scratch:.2f} GB", scratch <= xla_scratch / 2),
        Goal(goals[4], f"{tiles[OURS]:.2f}; XLA's {tiles[XLA]:.1f}", tiles[OURS] <= 2),
    ]


def partial(results: Results) -> list[Goal]:
    records = results.records("partial")
    exact, default = summands_over_bound(records, "exact", True), summands_over_bound(records, "default")
    return [
        at_most("summands, exact, reachable bound: bytes/bound", exact, 1.01),
        at_most("summands by default: bytes/bound", default, 1.05),
    ]


def sets(results: Results) -> list[Goal]:
    by_case = {r["case"]: r for r in results.records("sets") if r["status"] == "ok" and "wrong" not in r}

    def ratio(case: str, way: str) -> float | None:
        gain = times_faster(by_case[case], way) if case in by_case else None
        return None if gain is None else gain.value

    goals = []
    for many, case in ((2, "rows to replicated"), (4, FOUR_A_HOST[0])):
        gain = ratio(case, DIRECT)
        goal = f"other devices, rows to replicated, {many} a host: direct pull/ours >= 2"
        goals.append(Goal(goal, *(() if gain is None else (f"{gain:.2f}, bytes allow {many}", gain >= 2))))
    sockets = [gain for case in SAME_TILES if (gain := ratio(case, SOCKETS)) is not None]
    host = {case: gain for case in CASES if (gain := ratio(case, HOST)) is not None}
    slow = min(host, key=lambda case: host[case], default="")
    return [
        *goals,
        Goal(
            "other devices, same tiles: ours/JAX's sockets <= 1.5",
            f"{max(1 / gain for gain in sockets):.2f}" if sockets else "",
            all(gain >= 1 / 1.5 for gain in sockets) if len(sockets) == len(SAME_TILES) else None,
        ),
        Goal(
            "other devices: never slower than through the host",
            f"least {host[slow]:.2f} ({slow}), {len(host)} cases" if host else "",
            all(gain >= 1 for gain in host.values()) if len(host) == len(CASES) else None,
        ),
    ]


def weights(results: Results) -> list[Goal]:
    records = {r["case"]: r for r in results.records("weights") if r["status"] == "ok"}
    names = ("cluster, loads: time/floor <= 1.25", "cluster, fused: cast later/ours >= 2")
    shares = {case: over_floor(records[case], OURS) or float("inf") for case in LOADS if case in records}
    if len(shares) < len(LOADS) or FUSED not in records:
        return [Goal(name) for name in names]
    gain = paired_ratio(*(records[FUSED]["times"][way] for way in (LATE, OURS)))
    measured = ", ".join(f"{case} {share:.2f}" for case, share in shares.items())
    return [
        Goal(names[0], measured, max(shares.values()) <= 1.25),
        Goal(names[1], str(gain), gain.value >= 2),
    ]


def programs(results: Results) -> list[Goal]:
    goal = "programs, same pins: never more bytes than XLA"
    shares = [share for record in results.records("programs") if (share := compared.ratio(record)) is not None]
    if not shares:
        return [Goal(goal)]
    more = sum(share > 1 for share in shares)
    return [Goal(goal, f"geomean {geomean(shares):.3f}, more on {more} of {len(shares)}", not more)]


def programs_searched(results: Results) -> list[Goal]:
    goal = "programs searched: bytes/XLA's <= 0.7, never more"
    shares = [record["received"] / record["xla"] for record in results.records("programs_searched")]
    if not shares:
        return [Goal(goal)]
    more = sum(share > 1 for share in shares)
    text = f"geomean {geomean(shares):.3f}, more on {more} of {len(shares)}"
    return [Goal(goal, text, geomean(shares) <= 0.7 and not more)]


def searched_cluster(results: Results) -> list[Goal]:
    goals = (
        "searched: predicted time never above the best by hand",
        "cluster, searched: XLA by batch/ours >= 1.5",
        "cluster, searched: not slower than XLA in the best layout by hand",
    )
    records = results.records("searched_cluster")
    ran = compared.ran(records)
    if not ran:
        return [Goal(goal) for goal in goals]
    shares = [compared.share(record) for record in records]
    above = sum(share > 1 + 1e-6 for share in shares)
    batch = bootstrap_geomean([compared.gain(record, compared.BATCH).value for record in ran])
    by_hand = bootstrap_geomean([compared.gain(record, compared.best(record)).value for record in ran])
    slower = [record["name"] for record in ran if compared.gain(record, compared.best(record)).high < 1]
    lost = f", slower on {', '.join(slower)}" if slower else ""
    return [
        Goal(goals[0], f"above on {above} of {len(shares)}, geomean {geomean(shares):.3f}", not above),
        Goal(goals[1], f"{batch} of {len(ran)}", batch.value >= 1.5),
        Goal(goals[2], f"{by_hand}{lost}", by_hand.high >= 1),
    ]


def planning(results: Results) -> list[Goal]:
    goals = (
        "planning, 8 devices: median < 2 ms, 99% < 20 ms",
        "planning, rank 6 on 4,096 devices < 0.5 s",
        "planning, 65,536 devices < 5 s, 1 GB",
    )
    tests = {r["test"]: r for r in results.records("planning")}
    names = [f"test_8_devices[{name}-{way}]" for name in ("U222", "H222") for way in ("default", "exact")]
    small = [tests[name] for name in names if name in tests]
    middle, large = ([r for name, r in tests.items() if name.startswith(f"test_{n}_")] for n in (4096, 65536))
    if not (small and middle and large):
        return [Goal(goal) for goal in goals]
    median, tail = (max(r[key] for r in small) for key in ("median_s", "p99_s"))
    slow, slower = (max(r["worst_s"] for r in chosen) for chosen in (middle, large))
    peak = max(r["peak_mib"] for r in large)
    return [
        Goal(goals[0], f"{1e3 * median:.2f} ms, {1e3 * tail:.1f} ms", median < 2e-3 and tail < 20e-3),
        Goal(goals[1], f"{slow:.2f} s", slow < 0.5),
        Goal(goals[2], f"{slower:.2f} s, {peak:.0f} MiB", slower < 5 and peak < 953),
    ]


def kernels(results: Results) -> list[Goal]:
    """Bytes of kernels under the compiler for each TPU."""
    goal = f"TPUs, bytes of kernels within {CLOSE} on {PROGRAMS} programs"
    by_tpu: dict[str, list[Record]] = {}
    for record in results.records("kernels"):
        by_tpu.setdefault(record["tpu"], []).append(record)
    if not by_tpu:
        return [Goal(goal)]
    close = {tpu: close_of(records, "ours", "theirs") for tpu, records in by_tpu.items()}
    counts = ", ".join(f"{tpu} {count}" for tpu, count in close.items())
    return [Goal(goal, f"{counts} of {max(map(len, by_tpu.values()))}", min(close.values()) >= PROGRAMS)]


def predicted(label: str, records: list[Record], ours: str) -> Goal:
    """Enough predicted seconds are close to those measured."""
    goal = f"{label} within {CLOSE} on {PROGRAMS} programs"
    close = close_of(records, ours, "measured")
    return Goal(goal, f"{close} of {len(records)}", close >= PROGRAMS) if records else Goal(goal)


def cpu_seconds(results: Results) -> list[Goal]:
    records = results.records("cpu_seconds")
    schedules = [s for r in records for s in r.get("schedules", ())]
    ranks = "Spearman of schedules >= without kernels"
    programs = [r for r in records if "schedules" not in r]
    goals = [predicted("CPU, seconds", programs, "kernels")]
    if not schedules:
        return [*goals, Goal(f"CPU, {ranks}")]
    measured = [s["measured"] for s in schedules]
    fused, unfused = (spearman(measured, [s[name] for s in schedules]) for name in ("kernels", "unfused"))
    return [*goals, Goal(f"CPU, {ranks}", f"{fused:.2f} against {unfused:.2f}", fused >= unfused)]


def mutants(results: Results) -> list[Goal]:
    goal = f"mutants: >= {100 * survivors.LEAST:.0f}% killed in every folder"
    rooms = survivors.rooms(results.records("mutants"))
    if not rooms:
        return [Goal(goal)]
    worst = min(rooms, key=lambda room: room.rate)
    killed, counted = (sum(getattr(room, name) for room in rooms) for name in ("killed", "counted"))
    fewest = min(room.counted + room.equivalent for room in rooms)
    measured = f"{killed} of {counted} in {len(rooms)} folders, least {worst.name}, {100 * worst.rate:.0f}%"
    met = worst.rate >= survivors.LEAST
    return [Goal(goal, measured, None if met and fewest < survivors.FEWEST else met)]


def fuzz(results: Results) -> list[Goal]:
    goal = "fuzzer: nothing wrong in 100,000 problems and forged plans"
    kinds = {r["kind"]: r for r in results.records("fuzz")}
    if not kinds:
        return [Goal(goal)]
    failed = sum(r["failed"] for r in kinds.values())
    enough = all(kinds.get(kind, {}).get("cases", 0) >= 100_000 for kind in ("problems", "forged"))
    cases = ", ".join(f"{r['cases']:,} {kind}" for kind, r in kinds.items())
    return [Goal(goal, f"{failed} failed of {cases}", False if failed else enough or None)]


GOALS: dict[str, Callable[[Results], list[Goal]]] = {
    "cluster": cluster,
    "cluster_mpi": lambda results: links(results, "cluster_mpi", "cluster by MPI"),
    "partial_cluster": partial_cluster,
    "xla_cpu": xla_cpu,
    "tpu": tpu,
    "partial": partial,
    "sets": sets,
    "weights": weights,
    "programs": programs,
    "programs_searched": programs_searched,
    "searched_cluster": searched_cluster,
    "planning": planning,
    "kernels": kernels,
    "cpu_seconds": cpu_seconds,
    "accelerator_seconds": lambda results: [
        predicted("H200, seconds", results.records("accelerator_seconds"), "calibrated")
    ],
    "mutants": mutants,
    "fuzz": fuzz,
}


def of(name: str, results: Results) -> list[Goal]:
    """The goals of a suite; an empty list for a suite without goals."""
    return GOALS[name](results) if name in GOALS else []


def every(results: Results) -> list[Goal]:
    """All goals."""
    return [goal for name in GOALS for goal in of(name, results)]
