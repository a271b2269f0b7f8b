"""Plans of trees, diagnoses, searches and distributed functions as data of a page; this module imports JAX."""

from __future__ import annotations

import os

from redistrib.backends.jax.sharding import partition_spec
from redistrib.plans.plan import Plan
from redistrib.programs.run.distributed import Distributed
from redistrib.programs.search.report import UNFIT
from redistrib.programs.search.result import Candidate, Searched
from redistrib.programs.search.timed import Timed
from redistrib.programs.show.content import Cell, Content, Table, content_about, duration, number, size
from redistrib.programs.show.diagnosis import Diagnosis
from redistrib.programs.show.plans import plan_data
from redistrib.programs.show.programs import MOST_PLANS, program_content, simulation_content
from redistrib.programs.time.entry import simulate
from redistrib.report import bytes_text, counted
from redistrib.resharding.value import TreePlan


@content_about.register(Distributed)
def distributed_content(distributed: Distributed) -> Content:
    """The page of a distributed function: that of its program."""
    return program_content(distributed.program)


@content_about.register(TreePlan)
def tree_content(tree: TreePlan) -> Content:
    """The page of a `TreePlan`: its leaves by launch, and the plans that they share."""
    rows: list[list[Cell]] = []
    plans: dict[Plan, str] = {}
    for launch, batch in enumerate(tree.batches, start=1):
        for group, entry in batch.parts:
            plan, first = entry.plan, group[0].path
            plans.setdefault(plan, first + (f" and {len(group) - 1:,} more" if len(group) > 1 else ""))
            rows += [
                [
                    item.path or "the array",
                    number(launch, str(launch)),
                    f"{plan.dtype}{list(plan.shape)}",
                    f"{plan.source} -> {plan.target}",
                    " + ".join(step.kind for step in plan.steps),
                    size(entry.times * sum(plan.received) * plan.itemsize),
                    size(batch.peak_bytes),
                ]
                for item in group
            ]
    stays = {"stays": tree.kept, "jax.device_put": tree.by_device_put, "copied": tree.copied, "empty": tree.empty}
    still = [(path or "the array", how) for how, paths in stays.items() for path in paths]
    rows += [[path, number(0), "", "", how, size(0), size(0)] for path, how in still]
    columns = ["leaf", "launch", "array", "plan", "steps", "received", "peak of the launch"]
    limit = "" if tree.memory_limit is None else f" of {bytes_text(tree.memory_limit)} allowed"
    lines = [
        f"{counted(len(tree.order), 'leaf', 'leaves')} in {counted(len(tree.batches), 'launch', 'launches')}; "
        f"in place already: {len(tree.kept)}, by jax.device_put: {len(tree.by_device_put)}",
        f"{bytes_text(tree.received_bytes)} received by all devices, {bytes_text(tree.lower_bound_bytes)} at least; "
        f"{bytes_text(tree.peak_bytes)} on a device at the peak{limit}",
    ]
    drawn = [plan_data(plan, of) for plan, of in [*plans.items()][:MOST_PLANS]]
    return Content("Plan of a tree", lines, tables=[Table("Leaves", columns, rows)], plans=drawn)


@content_about.register(Diagnosis)
def diagnosis_content(diagnosis: Diagnosis) -> Content:
    """The page of a `Diagnosis`: XLA's collectives by source line, and the plans for its reshards."""
    rows: list[list[Cell]] = []
    plans: list[Plan] = []
    for finding in diagnosis.findings:
        plans += finding.reshards
        rows.append(
            [
                os.path.basename(finding.source) + (" (involuntary)" if finding.involuntary else ""),
                finding.operation,
                " + ".join(f"{count} {kind}" for kind, count in finding.collectives.items()),
                size(finding.received),
                size(finding.largest),
                "; ".join(f"{plan.source} -> {plan.target}" for plan in dict.fromkeys(finding.reshards)),
                "" if finding.planned is None else (bytes_text(finding.planned), finding.planned),
            ]
        )
    columns = ["line", "operation", "collectives", "received", "largest", "a reshard of", "our plan"]
    devices = counted(diagnosis.devices, "device", "devices")
    lines = [f"{bytes_text(diagnosis.received)} received by {devices}", *diagnosis.advice]
    different = list(dict.fromkeys(plans))[:MOST_PLANS]
    return Content(
        f"Diagnosis of {diagnosis.name}",
        lines,
        tables=[Table("What XLA communicates", columns, rows)],
        plans=[plan_data(plan) for plan in different],
    )


@content_about.register(Searched)
def search_content(result: Searched) -> Content:
    """The page of a search result: the candidates, and the program of the first."""
    rows: list[list[Cell]] = [
        [row.name, duration(row.seconds), size(row.received_bytes), size(row.memory)] for row in result
    ]
    best = candidate_content(result[0])
    table = Table("Candidates", ["devices", "time", "received", "peak"], rows)
    return Content("Search", best.lines, [table, *best.tables], best.plans, best.timeline, best.summary)


@content_about.register(Timed)
def candidate_content(candidate: Timed) -> Content:
    """The page of a candidate of a search: how its arguments are cut, and its program."""
    content = simulation_content(simulate(candidate.program, candidate.machine))
    specs: list[list[Cell]] = [
        [value.name, str(partition_spec(value.type)), f"{value.dtype}{list(value.shape)}", size(value.tile_bytes)]
        for value in candidate.program.inputs
    ]
    arguments = Table("Argument to PartitionSpec", ["argument", "PartitionSpec", "array", "on a device"], specs)
    rows: list[list[Cell]] = []
    if isinstance(candidate, Candidate):
        figure = duration if candidate.problem.moves.objective == "seconds" else size
        rows = [
            [
                row.name, number(row.times, str(row.times)), row.axis, row.taken, row.other,
                figure(row.loss) if row.fits else UNFIT,
            ]
            for row in candidate.decisions
        ]  # fmt: skip
    columns = ["what", "times", "axis", "taken", "next best", "loss"]
    return Content(
        f"{candidate.name}: {content.title}",
        content.lines,
        [Table("Decisions", columns, rows), *content.tables],
        content.plans,
        content.timeline,
        [arguments, *content.summary],
    )
