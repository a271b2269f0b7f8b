"""Plans of trees, diagnoses and searches as data of a page. They come with JAX, which this module does not import."""

from __future__ import annotations

import os
from typing import Any

from redistrib.programs.show.content import Cell, Content, Table, megabytes, microseconds, number
from redistrib.programs.show.plans import plan_data
from redistrib.programs.show.programs import MOST_PLANS, simulation_content
from redistrib.report import counted


def tree_content(tree: Any) -> Content:
    """The page of a `TreePlan`: its launches, and the plans that leaves share."""
    rows: list[list[Cell]] = []
    plans = []
    for launch, batch in enumerate(tree.batches, start=1):
        for group, entry in batch.parts:
            plan = entry.plan
            plans.append(plan)
            paths = [item.path or "the array" for item in group]
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            received = len(group) * entry.times * sum(plan.received) * plan.itemsize
            rows.append(
                [
                    number(launch, str(launch)),
                    f"{paths[0]}{more}",
                    f"{plan.dtype}{list(plan.shape)}",
                    f"{plan.source} -> {plan.target}",
                    " + ".join(step.kind for step in plan.steps),
                    number(received),
                    number(batch.peak_bytes),
                ]
            )
    columns = ["launch", "leaves", "array", "plan", "steps", "received bytes", "peak bytes"]
    limit = "" if tree.memory_limit is None else f" of {megabytes(tree.memory_limit)} allowed"
    lines = [
        f"{counted(len(tree.order), 'leaf', 'leaves')} in {counted(len(tree.batches), 'launch', 'launches')}; "
        f"in place already: {len(tree.kept)}, by jax.device_put: {len(tree.by_device_put)}",
        f"{megabytes(tree.received_bytes)} received by all devices, {megabytes(tree.lower_bound_bytes)} at least; "
        f"{megabytes(tree.peak_bytes)} on a device at the peak{limit}",
    ]
    different = list(dict.fromkeys(plans))[:MOST_PLANS]
    return Content("Plan of a tree", lines, [Table("Launches", columns, rows)], [plan_data(plan) for plan in different])


def diagnosis_content(diagnosis: Any) -> Content:
    """The page of a `Diagnosis`: XLA's collectives by source line, and the plans for its reshards."""
    rows: list[list[Cell]] = []
    plans = []
    for finding in diagnosis.findings:
        plans += finding.reshards
        rows.append(
            [
                os.path.basename(finding.source) + (" (involuntary)" if finding.involuntary else ""),
                finding.operation,
                " + ".join(f"{count} {kind}" for kind, count in finding.collectives.items()),
                number(finding.received),
                number(finding.largest),
                "; ".join(f"{plan.source} -> {plan.target}" for plan in dict.fromkeys(finding.reshards)),
                "" if finding.planned is None else number(finding.planned, f"{finding.planned:,}"),
            ]
        )
    columns = ["line", "operation", "collectives", "received bytes", "largest bytes", "a reshard of", "our plan, bytes"]
    devices = counted(diagnosis.devices, "device", "devices")
    lines = [f"{megabytes(diagnosis.received)} received by {devices}", *diagnosis.advice]
    different = list(dict.fromkeys(plans))[:MOST_PLANS]
    return Content(
        f"Diagnosis of {diagnosis.name}",
        lines,
        [Table("What XLA communicates", columns, rows)],
        [plan_data(plan) for plan in different],
    )


def search_content(result: Any) -> Content:
    """The page of a search result: the candidates, and the program of the first."""
    rows: list[list[Cell]] = [
        [row.name, (f"{row.seconds * 1e3:,.3f}", row.seconds), number(row.received_bytes), number(row.memory)]
        for row in result
    ]
    best = candidate_content(result[0])
    table = Table("Candidates", ["devices", "ms", "received bytes", "peak bytes"], rows)
    return Content("Search", best.lines, [table, *best.tables], best.plans, best.timeline)


def candidate_content(candidate: Any) -> Content:
    """The page of a candidate of a search: its program."""
    from redistrib.programs.time.entry import simulate

    content = simulation_content(simulate(candidate.program, candidate.machine))
    rows: list[list[Cell]] = [
        [
            row.name,
            number(row.times, str(row.times)),
            row.axis,
            row.taken,
            row.other,
            microseconds(row.loss),
        ]
        for row in getattr(candidate, "decisions", [])
    ]
    columns = ["what", "times", "axis", "taken", "next best", "loss, µs"]
    tables = [Table("Decisions", columns, rows), *content.tables] if rows else content.tables
    return Content(f"{candidate.name}: {content.title}", content.lines, tables, content.plans, content.timeline)
