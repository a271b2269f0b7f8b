"""The table of every suite, from its saved records; the page and the terminal share the renderer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from bench import gpt_step, survivors, wire
from bench import torch_cluster as torch_methods
from bench.distir import TABLE_3, winners
from bench.dtensor import PLANNERS
from bench.eager import MODEL, with_python
from bench.problems import Problem
from bench.programs import compared
from bench.programs.written import LAYOUTS
from bench.results import Record, Results
from bench.sets import DIRECT, HOST, SOCKETS, times_faster
from bench.stats import bootstrap_geomean, geomean, paired_ratio, quantile, spearman
from bench.summary import (
    OURS,
    XLA,
    Sides,
    by_set,
    bytes_ratio,
    compiled,
    fate,
    reason,
    set_name,
    sides,
    slower_than,
    speed,
    speed_of,
    timed,
)
from bench.weights import EACH, EARLY, FUSED, LATE, ONE, over_floor

CLOSE = 1.3  # times the measured seconds, or less by as much
MEGABYTE = 10**6
SUMMANDS = {"exact": "ours, exact", "default": "ours, default", "cpu": "XLA, CPU", "tpu": "XLA, TPU"}


class Table(NamedTuple):
    """A table: its head and its rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        """In Markdown."""
        if not self.rows:
            return ""
        head, *body = (f"| {' | '.join(line)} |" for line in (self.head, *self.rows))
        return "\n".join([head, "|---" * len(self.head) + "|", *body])


def paired(results: Results, *names: str) -> Table:
    """Their run times over ours, and with hosts both over the least time of the links: a row for each set."""
    rows = []
    for name in names:
        moves = wire.rows_of(results.records(name), results.settings(name))
        for key, group in by_set(timed(results.records(name))).items():
            values = [speed(r).value for r in group]
            of_set = [move for move in moves if move["set"] == key]
            over_links = (
                [f"{geomean([move[side] for move in of_set]):.2f}" for side in (OURS, XLA)] if of_set else ["-"]
            )
            rows.append(
                [f"{name} {key}", str(len(group)), str(speed_of(group)), f"{min(values):.2f}/{max(values):.2f}",
                 str(len(slower_than(group, 0.95))), "/".join(over_links)]
            )  # fmt: skip
    return Table(["set", "problems", "theirs/ours", "worst/best", "slower", "links"], rows)


def counted(results: Results, *names: str) -> Table:
    """Bytes and memory of both compiled programs, ours / XLA's: a row for each set."""
    groups: dict[str, list[Record]] = {}
    for record in [record for name in names for record in results.records(name)]:
        groups.setdefault(f"{record.get('topology', 'CPU')} {set_name(record)}", []).append(record)
    texts: dict[str, Callable[[Sides], str]] = {
        "bytes/bound": lambda side: f"{side.over_bound[0]:.2f}",
        "largest": lambda side: f"{side.over_bound[2]:.2f}",
        "over": lambda side: f"{side.over_tile:.0%}",
        "scratch, GB": lambda side: f"{side.scratch_total / 1e9:.2f}",
    }
    rows = []
    for key, group in groups.items():
        both = [sides(group, side) for side in (OURS, XLA)]
        rows.append([key, *("/".join(text(s) if s.problems else "-" for s in both) for text in texts.values())])
    return Table(["set", *texts], rows)


def dtensor(results: Results, name: str) -> Table:
    """Bytes of DTensor's two planners over the bound, shipped / Dijkstra."""
    rows = []
    for key, group in by_set(results.records(name)).items():
        both = {planner: [r for r in group if compiled(r, planner)] for planner in PLANNERS}
        texts: list[list[str]] = [
            [f"{geomean([bytes_ratio(r, p) for r in done]):.2f}" for p, done in both.items()],
            [f"{max((bytes_ratio(r, p) for r in done), default=0):.1f}" for p, done in both.items()],
            [f"{sum(r[p]['largest'] > r['tile'] for r in done) / max(1, len(done)):.0%}" for p, done in both.items()],
        ]
        rows.append([key, *map("/".join, texts)])
    return Table(["set", "bytes/bound", "largest", "over"], rows)


def torch_cluster(results: Results, name: str) -> Table:
    """DTensor's time over ours on the emulated cluster: a row for each method of DTensor."""
    rows = []
    for method in torch_methods.WAYS:
        ratios = torch_methods.speeds(results.records(name), method)
        slower = sum(ratio < 0.9 for ratio in ratios)
        rows.append([method, f"{len(ratios)}", str(bootstrap_geomean(ratios)), f"{min(ratios):.2f}",
                     f"{max(ratios):.1f}", f"{slower}"])  # fmt: skip
    return Table(["way", "problems", "DTensor's time over ours [95%]", "least", "most", "below 0.9"], rows)


def trees(results: Results, name: str) -> Table:
    """Whole models: times over ours, bytes and memory."""
    rows = []
    for r in results.records(name):
        if "times" not in r:
            rows.append([r["case"], r["status"], *[""] * 6])
            continue
        times, first = r["times"], r.get("first_calls")
        ratio = {side: paired_ratio(times[side], times[OURS]) for side in ("device_put", "jit")}
        resident = [max(r["memory"][side].get("resident", [float("nan")])) for side in (OURS, "device_put", "jit")]
        sizes = [[r["received"][s] for s in (OURS, "jit")], [r["device_peak"][s] for s in (OURS, "jit")], resident]
        rows.append(
            [r["case"], f"{quantile(times[OURS], 0.5):.3f}", *(f"{ratio[side].value:.2f}" for side in ratio),
             f"{paired_ratio(first['jit'], first[OURS]).value:.2f}" if first else "-",
             *("/".join(f"{value / MEGABYTE:.0f}" for value in values) for values in sizes)]
        )  # fmt: skip
    head = ["case", "ours, s", "device_put/ours", "jit/ours", "first call", "received, MB", "device peak", "resident"]
    return Table(head, rows)


def partial(results: Results, name: str) -> Table:
    """Partial sums: bytes over the bound, and the number of XLA's programs that failed."""
    rows = []
    for key, group in by_set(results.records(name)).items():
        for side, label in SUMMANDS.items():
            chosen = [r for r in group if side in r]
            if chosen:
                lost = sum(fate(r[side], XLA) != "ok" for r in chosen) if side in ("cpu", "tpu") else 0
                ratios = [summands_over_bound(chosen, side, reachable) for reachable in (None, True, False)]
                texts = [f"{geomean(group):.3f}" if group else "-" for group in ratios]
                most = f"{max(ratios[0], default=float('nan')):.2f}"
                rows.append([f"{key} {label}", str(lost), "/".join(texts), most])
    return Table(["plans", "lost", "bytes/bound", "largest"], rows)


def summands_over_bound(records: list[Record], side: str, reachable: bool | None = None) -> list[float]:
    """Bytes received over the bound, of all problems, or of those whose bound is `reachable` with tiles of one size."""
    chosen = [r for r in records if reachable in (None, r["reachable"] <= r["bound"] * (1 + 1e-6))]
    if side in ("exact", "default"):
        return [bytes_ratio(r, side) for r in chosen]
    return [r[side][XLA]["received"] / r["bound"] for r in chosen if compiled(r.get(side, {}), XLA)]


def sets(results: Results, name: str) -> Table:
    """Other devices: a row for each case."""
    methods, rows = (DIRECT, HOST, SOCKETS), []
    for record in results.records(name):
        ran = record["status"] == "ok" and "times" in record
        faster = [times_faster(record, method) if ran else None for method in methods]
        ours = f"{1e3 * quantile(record['times'][OURS], 0.5):.0f}" if ran else record["status"]
        label = record["case"] + (" (wrong)" if "wrong" in record else "")
        rows.append([label, ours, "/".join("-" if x is None else f"{x.value:.2f}" for x in faster)])
    return Table(["case", "ours, ms", "/".join(methods)], rows)


def weights(results: Results, name: str) -> Table:
    """Weights: a row for each case, with the times of ours and of two other methods over the least time."""
    rows = []
    for record in results.records(name):
        others = (EARLY, LATE) if record["case"] == FUSED else (EACH, ONE)
        shares = [over_floor(record, method) for method in (OURS, *others)]
        row = [record["case"], f"{record['bytes'] / 1e6:.0f}", f"{record['floor']:.2f}"]
        rows.append([*row, *("-" if share is None else f"{share:.2f}" for share in shares)])
    return Table(["case", "MB", "floor, s", "ours", "each its own/cast first", "one for all/cast last"], rows)


def programs(results: Results, *_: str) -> Table:
    """Programs: bytes over XLA's, with the same pins and searched, and XLA's times over ours."""
    counts, searches = ({r["name"]: r for r in results.records(file)} for file in ("programs", "programs_searched"))
    run = {r["name"]: r for r in timed(results.records("programs_cluster"))}
    layouts = {LAYOUTS[r["name"]][0]: r for r in compared.ran(results.records("searched_cluster"))}
    rows = []
    for program in dict.fromkeys([*counts, *searches, *run, *layouts]):
        share, search, by_hand = compared.ratio(counts.get(program, {})), searches.get(program), layouts.get(program)
        row = [program, "-" if share is None else f"{share:.3f}"]
        row += [f"{search['received'] / search['xla']:.3f}" if search else "-"]
        row += [f"{speed(run[program]).value:.2f}" if program in run else "-"]
        gains = [compared.gain(r, k).value for r in [by_hand] if r for k in (compared.BATCH, compared.best(r))]
        rows.append([*row, "/".join(f"{gain:.2f}" for gain in gains) or "-"])
    return Table(["program", "bytes", "searched", "time", "searched, time"], rows)


def gpu_programs(results: Results, name: str) -> Table:
    """Programs under the GPU compiler: bytes and memory over XLA's, and predicted memory over that."""
    rows = []
    for r in results.records(name):
        ours, xla = (r["full"].get(side, {}) for side in (OURS, XLA))
        if "received" not in ours:
            rows.append([r["name"], str(ours.get("error", r["full"]["status"]))[:40], *["-"] * 2])
            continue
        shares = (_over(ours[key], xla[key]) if key in xla else "-" for key in ("received", "peak"))
        rows.append([r["name"], *shares, f"{ours['predicted_peak'] / ours['peak']:.2f}"])
    return Table(["program", "bytes / XLA's", "memory / XLA's", "predicted memory / memory"], rows)


def _over(ours: float, other: float) -> str:
    return f"{ours / other:.3f}" if other else ("1.000" if not ours else "inf")


def planning(results: Results, name: str) -> Table:
    """One call of `synthesize`: median / 99% / worst in ms, for each algorithm and cost model."""
    cells: dict[str, dict[str, str]] = {}
    for r in results.records(name):
        test, _, parameters = r["test"].removeprefix("test_").rstrip("]").partition("[")
        prefix, _, way = parameters.rpartition("-")
        figures = "/".join(f"{1e3 * r[key]:.1f}" for key in ("median_s", "p99_s", "worst_s"))
        cells.setdefault(f"{test.replace('_', ' ')} {prefix}".strip(), {})[way] = figures
    ways = list(dict.fromkeys(way for row in cells.values() for way in row))
    return Table(["problems", *ways], [[label, *(row.get(way, "-") for way in ways)] for label, row in cells.items()])


def distir(results: Results, name: str) -> Table:
    """Rows in which DistIR's winner is not ours, with the simulated time of theirs over ours."""
    rows = [row for row in winners(results.records(name), results.settings(name)["memory"]) if row[2] != row[3]]
    return Table(["model", "batch", "theirs", "ours", "theirs / ours", "place"], rows)


def eager(results: Results, name: str) -> Table:
    """Layouts of GPT-2 175B where Python starts every operation: the six fastest, DistIR's, and ours without Python."""
    of_model = [r for r in results.records("distir") if (r["model"], r["batch"]) == (MODEL, TABLE_3[MODEL][0])]
    simulated = {r["layout"]: r["seconds"] for r in of_model}
    rows = with_python(results.records(name), simulated)
    shown = {TABLE_3[MODEL][1], min(rows, key=lambda row: float(row[1]))[0], *(row[0] for row in rows[:6])}
    head = ["layout", "simulated, s", "Python, s", "sum, s", "H200 by Python, s", "H200 by graph, s"]
    return Table(head, [row for row in rows if row[0] in shown])


def fuzz(results: Results, name: str) -> Table:
    """The fuzzer: the outcomes of the cases of each kind."""
    rows = []
    for r in results.records(name):
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(r["outcomes"].items()))
        seconds, index = r["slowest"]
        failures = "; ".join(
            f"{entry['count']} x `{signature.replace('|', '/')}` ({entry['shown'][0][0]})"
            for signature, entry in r["failures"].items()
        )
        slowest = f"{seconds:.2f} ({index:.0f})"
        rows.append([r["kind"], f"{r['cases']:,}", str(r["failed"]), outcomes, slowest, failures or "none"])
    return Table(["kind", "cases", "failed", "outcomes", "slowest, s (number)", "failures"], rows)


def mutants(results: Results, name: str) -> Table:
    """Folders with mutants that survived the tests."""
    rows = [
        [room.name, f"{room.killed} of {room.counted}", "; ".join(survivors.place(record) for record in room.holes)]
        for room in survivors.rooms(results.records(name))
        if room.holes
    ]
    return Table(["folder", "killed", "outlived the tests"], rows)


def worst(results: Results, count: int = 3) -> Table:
    """The timed problems on which ours is slowest against XLA, with the reasons that the counts show."""
    timings = [(bench, r) for bench in ("cluster", "xla_cpu") for r in timed(results.records(bench))]
    rows = []
    for bench, record in sorted(timings, key=lambda item: speed(item[1]).value)[:count]:
        problem = Problem.from_json(record["problem"])
        mesh = ",".join(f"{axis}={size}" for axis, size in problem.mesh)
        rows.append([bench, f"`{problem.source}` -> `{problem.target}`, {mesh}", str(speed(record)), reason(record)])
    return Table(["suite", "problem", "XLA's time / ours", "reason"], rows)


def scale(results: Results, name: str) -> Table:
    """Models at real size, searched: processor seconds, seconds of the steps found, the bound, and memory."""
    rows = []
    for record in results.records(name):
        if "error" in record:
            rows.append([record["name"], record["error"], *[""] * 5])
            continue
        steps = [record["first_step_s"], record["step_s"], record["joint_bound_s"]]
        rows.append([
            record["name"], f"{record['processor_s']:.0f}", *(f"{seconds:.3f}" for seconds in steps),
            f"{record['bytes'] / 1e9:.1f}", f"{record['rss'] / MEGABYTE:,.0f}",
        ])  # fmt: skip
    head = ["model", "s of the search", "first step, s", "best, s", "bound, s", "GB on a device", "MB of the search"]
    return Table(head, rows)


def answers(results: Results, name: str) -> Table:
    """Worked answers of others, beside those that searches find."""
    rows = [[record["name"], record["theirs"], record["ours"]] for record in results.records(name)]
    return Table(["question", "theirs", "ours"], rows)


def close_of(records: Iterable[Record], ours: str, theirs: str) -> int:
    """How many predictions are within `CLOSE` of the figures, on either side."""
    ratios = (record[ours] / record[theirs] for record in records if ours in record and theirs in record)
    return sum(1 / CLOSE <= ratio <= CLOSE for ratio in ratios)


def kernels(results: Results, name: str) -> Table:
    """Bytes of the kernels of programs as searches count them, over those of the TPU compilers."""
    records = [r for r in results.records(name) if "ours" in r]
    tpus, listed = list(dict.fromkeys(r["tpu"] for r in records)), list(dict.fromkeys(r["name"] for r in records))
    found = {(r["tpu"], r["name"]): r for r in records}
    rows = [[name, *(_over_compiled(found.get((tpu, name), {})) for tpu in tpus)] for name in listed]
    within = (close_of((r for r in records if r["tpu"] == tpu), "ours", "theirs") for tpu in tpus)
    rows.append([f"**within {CLOSE}, of {len(listed)}**", *map(str, within)])
    return Table(["program", *(f"ours / {tpu}" for tpu in tpus)], rows)


def _over_compiled(r: Record) -> str:
    """Our bytes over the compiler's."""
    return f"{r['ours'] / r['theirs']:.2f}" if "theirs" in r else str(r.get("status", "not measured"))


def _seconds(results: Results, name: str, prices: Mapping[str, str]) -> tuple[list[str], list[Record], list[list[str]]]:
    """Seconds of programs, predictions over them, and how many are close.

    `prices` are columns by the name of the machine.
    """
    records = [r for r in results.records(name) if all(key in r for key in ("measured", *prices))]
    rows = [
        [r["name"], f"{1e3 * r['measured']:.2f}", *(f"{r[price] / r['measured']:.2f}" for price in prices)]
        for r in records
    ]
    within = [close_of(records, price, "measured") for price in prices]
    rows.append([f"**within {CLOSE}, of {len(records)}**", "", *map(str, within)])
    return ["program", "measured, ms", *prices.values()], records, rows


def _ranked(listed: Sequence[Record], what: str, prices: Iterable[str]) -> list[str]:
    """How well predictions rank."""
    order = [spearman([s["measured"] for s in listed], [s[price] for s in listed]) for price in prices]
    return [f"**Spearman, {len(listed)} {what}**", "", *(f"{one:.2f}" for one in order)]


def cpu_seconds(results: Results, name: str) -> Table:
    """Processor seconds of programs beside predictions; below, how well predictions rank programs and schedules."""
    prices = {"kernels": "kernels / measured", "unfused": "unfused / measured"}
    header, records, rows = _seconds(results, name, prices)
    schedules = [s for r in results.records(name) for s in r.get("schedules", ())]
    for what, listed in (("programs", records), ("schedules", schedules)):
        rows.append(_ranked(listed, what, prices))
    return Table(header, rows)


def accelerator_seconds(results: Results, name: str) -> Table:
    """Seconds of programs on an accelerator beside predictions; below, how well predictions rank programs."""
    prices = {"calibrated": "calibrated / measured", "data sheet": "data sheet / measured"}
    header, records, rows = _seconds(results, name, prices)
    ours = [f"{r['distributed'] / r['measured']:.2f}" if "distributed" in r else "-" for r in records]
    rows = [[*row, figure] for row, figure in zip(rows, [*ours, ""], strict=True)]
    return Table([*header, "distributed / measured"], [*rows, [*_ranked(records, "programs", prices), ""]])


TABLES: dict[str, Callable[..., Table]] = {
    "cluster": paired, "cluster_mpi": paired, "partial_cluster": paired, "xla_cpu": paired, "tpu": counted,
    "gpu": counted,
    "dtensor": dtensor, "torch_cluster": torch_cluster, "trees": trees, "partial": partial, "sets": sets,
    "weights": weights,
    "gpt_step": lambda results, name: Table(gpt_step.HEAD, gpt_step.rows(results.records(name))),
    "programs": programs, "programs_cluster": programs, "programs_searched": programs, "searched_cluster": programs,
    "planning": planning, "distir": distir, "eager": eager, "fuzz": fuzz, "mutants": mutants, "scale": scale,
    "scaling_book": scale,
    "answers": answers, "kernels": kernels, "cpu_seconds": cpu_seconds,
    "accelerator_seconds": accelerator_seconds, "gpu_programs": gpu_programs,
}  # fmt: skip


def of(name: str, results: Results) -> str:
    """The table of a suite, in Markdown; empty where there are no records."""
    return str(TABLES[name](results, name)) if results.records(name) else ""
