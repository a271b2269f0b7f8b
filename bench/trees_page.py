"""What the report says of whole models, and of the quirks that show on them."""

from __future__ import annotations

from bench import quirks
from bench.markdown import table
from bench.results import Results
from bench.stats import paired_ratio, quantile
from bench.summary import Record

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


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    models, switched = found.records("trees"), found.records("quirks")
    made = [TREES.format(**found.settings("trees")), _trees(models)] if models else []
    return [*made, *([QUIRKS, table(quirks.HEAD, quirks.rows(switched))] if switched else [])]


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
