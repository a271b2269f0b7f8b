"""Child of `bench.programs.searched_cluster`: one process of a `jax.distributed` job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

import redistrib as rd
from bench.children import serve
from bench.pairing import Part, run_paired
from bench.programs.case import Case, shardings
from bench.programs.pair import Pair, placed
from bench.programs.searched_cluster import links
from bench.programs.written import SEARCHED, programs, written
from bench.worker_cluster import agree, barrier, start
from redistrib.programs.schedule.schedule import Schedule


class Layouts(Pair):
    """A program by its searched schedule, and by XLA in each of its written layouts."""

    def __init__(self, case: Case, devices: Any, layouts: dict[str, Case]) -> None:
        super().__init__(case, devices)
        self.layouts = layouts
        self.starts: dict[str, Any] = {}

    def sides(self) -> dict[str, Callable[..., Any]]:
        return {SEARCHED: self._searched, **{name: partial(self._written, name) for name in self.layouts}}

    def _searched(self, options: dict[str, Any]) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
        schedule = Schedule.from_json(options["schedule"])
        model = links(self.case.devices)
        f = rd.distribute(self.case.function, self.case.args, self.mesh, schedule=schedule, machine=model)
        compiled = f.lower().compile()
        self.starts[SEARCHED] = f.in_shardings
        return compiled, {}, lambda args: compiled(*jax.tree.leaves(args[SEARCHED]))

    def _written(self, name: str, _: dict[str, Any]) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
        case = self.layouts[name]
        compiled = case.jitted(self.mesh).lower(*case.args).compile()
        self.starts[name] = shardings(self.mesh, case.ins)
        return compiled, {}, lambda args: compiled(*args[name])

    def array(self) -> Any:
        """The arguments in the layout of each side."""
        values = self.case.values()
        return {name: placed(values, starts) for name, starts in self.starts.items()}

    def check(self, result: Any) -> str | None:
        return self.difference(result)


def handle(task: dict[str, Any], part: Part) -> None:
    case, layouts = programs(task["size"])[task["case"]], written(task["case"], task["size"])
    layouts = {name: layout for name, layout in layouts.items() if name not in task["skip"]}
    sides = Layouts(case, jax.devices(), layouts)
    compiled = sides.compile(task, part, report=jax.process_index() == 0)
    part({"shardy": bool(jax.config.jax_use_shardy_partitioner)})
    if agree(len(compiled) == 1 + len(layouts)):
        run_paired(sides, compiled, task, part, barrier)


if __name__ == "__main__":
    start()
    serve(handle)
