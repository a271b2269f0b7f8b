"""The table of figures on the first pages, the README's and that of docs/, from the saved results."""

from __future__ import annotations

from bench.programs import compared
from bench.results import Results
from bench.stats import geomean, paired_ratio
from bench.summary import OURS, XLA, compiled, speed, speed_of, timed
from bench.tables import Table

HEAD = ["what", "beside", "time", "bytes"]
MOVES = {"cluster": "4 emulated hosts, links of 500 Mbit/s", "xla_cpu": "8 to 24 CPU devices"}
# Where each case of a model runs, and the sides that are shown of it.
MODELS = {
    "minilm, tensor parallel 4": ("8 CPU devices", ("device_put", "jit")),
    "minilm, tensor parallel 4, 2 processes": ("in 2 processes", ("device_put",)),
}


def figures(results: Results) -> Table:
    """Moves of arrays and of a model, and programs, beside what JAX does for them: its time and bytes over ours."""
    return Table(HEAD, [*_moves(results), *_models(results), *_programs(results), *_steps(results)])


def _moves(results: Results) -> list[list[str]]:
    rows = []
    for suite, where in MOVES.items():
        records = timed(results.records(suite))
        received = geomean([r[XLA]["received"] / r[OURS]["received"] for r in records if compiled(r, XLA)])
        least, most = (end(speed(r).value for r in records) for end in (min, max))
        time = f"{speed_of(records).value:.2f}, from {least:.2f} to {most:.2f}"
        rows.append([f"{len(records)} moves of one array, {where}", "XLA's reshard", time, f"{received:.2f}"])
    return rows


def _models(results: Results) -> list[list[str]]:
    rows = []
    records = {r["case"]: r for r in results.records("trees")}
    for name, (where, sides) in MODELS.items():
        times, received = records[name]["times"], records[name]["received"]
        what = f"a model of {records[name]['parameters'] / 1e6:.1f} M parameters from FSDP to TP, {where}"
        for side in sides:
            share = f"{received[side] / received[OURS]:.2f}" if side in received else "-"
            rows.append([what, f"`{side}`", f"{paired_ratio(times[side], times[OURS]).value:.2f}", share])
    return rows


def _programs(results: Results) -> list[list[str]]:
    shares = [share for r in results.records("programs") if (share := compared.ratio(r)) is not None]
    received = f"{1 / geomean(shares):.2f}, from {1 / max(shares):.2f}"
    return [[f"{len(shares)} programs over 4 or 8 devices, as compiled", "`jit`, same shardings", "-", received]]


def _steps(results: Results) -> list[list[str]]:
    return [
        [
            f"a step of a GPT of 6 layers, FSDP x TP, {record['name']}, 8 CPU devices",
            "`jit`, same shardings",
            f"{paired_ratio(record['times'][XLA], record['times'][OURS]).value:.2f}",
            f"{record[XLA]['received'] / record[OURS]['received']:.2f}",
        ]
        for record in timed(results.records("gpt_step"))
    ]
