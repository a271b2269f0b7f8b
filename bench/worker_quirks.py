"""Child of `bench.quirks`: one quirk of XLA on CPUs, on and off in turns, on a model's tree or on one array."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from bench import models
from bench.children import serve
from bench.library import plan_of
from bench.pairing import Case, Part, compile_timed, counts
from bench.problems import Problem
from bench.worker_cluster import ADDRESS, barrier, start
from bench.worker_trees import Tree, measure_memory, warm_up
from redistrib.backends.jax import xla_cpu
from redistrib.packing import buckets
from redistrib.packing.buckets import BUCKET_LEAVES

ON, OFF = "on", "off"
SHIPPED = xla_cpu.ONE_PROCESS
_TREES: dict[tuple[Any, ...], Tree] = {}  # the last one, as tasks of one case follow one another


def switch(name: str, side: str) -> None:
    """Ship as it is, or with one quirk off; what was made before is forgotten."""
    off = getattr(xla_cpu.Quirks(), name)
    xla_cpu.ONE_PROCESS = SHIPPED if side == ON else replace(SHIPPED, **{name: off})
    rd.clear_caches()
    jax.clear_caches()
    gc.collect()


def in_turns(turns: int) -> list[tuple[int, str]]:
    return [(turn, side) for turn in range(turns) for side in ((ON, OFF) if turn % 2 == 0 else (OFF, ON))]


class SmallLeaves(Tree):
    """Leaves of a few KiB and thirty sizes, twice each, from cut to whole."""

    def __init__(self) -> None:
        self._values = {f"{k}": np.arange(64 * (3 + k // 2), dtype=np.float32) for k in range(60)}
        line = models.mesh(x=len(jax.devices()))
        cut, whole = (NamedSharding(line, PartitionSpec(*names)) for names in (("x",), ()))
        self.shapes = {name: value.shape for name, value in self._values.items()}
        self.targets = dict.fromkeys(self._values, whole)
        self.arrays = {name: jax.device_put(value, cut) for name, value in self._values.items()}


def tree_of(task: dict[str, Any]) -> Tree:
    buckets.BUCKET_LEAVES = task.get("leaves", BUCKET_LEAVES)
    key = (task["model"], task["layers"], task["ways"])
    if key not in _TREES:
        _TREES.clear()
        _TREES[key] = SmallLeaves() if task["model"] == "small leaves" else Tree(*key)
        warm_up(_TREES[key])
    return _TREES[key]


def on_tree(task: dict[str, Any], part: Part) -> None:
    """Seconds of a first call, of all processors in it, and of later calls; bytes of the plan; what arrives wrong."""
    tree, several = tree_of(task), jax.process_count() > 1
    first: dict[str, list[float]] = {ON: [], OFF: []}
    busy: dict[str, list[float]] = {ON: [], OFF: []}
    later: dict[str, list[float]] = {ON: [], OFF: []}
    peak: dict[str, int] = {}
    for turn, side in in_turns(task["turns"]):
        switch(task["quirk"], side)
        tree.renew()
        if several:
            barrier()
        begin, processor = time.perf_counter(), time.process_time()
        plan = rd.reshard_plan(tree.arrays, tree.targets)
        busy[side].append(time.process_time() - processor)
        first[side].append(time.perf_counter() - begin)
        peak[side] = plan.peak_bytes
        for call in range(task["calls"] + 1):
            tree.renew()
            if several:
                barrier()
            begin = time.perf_counter()
            moved = jax.block_until_ready(rd.reshard(tree.arrays, tree.targets))
            if call:
                later[side].append(time.perf_counter() - begin)
            elif turn == 0 and (wrong := tree.wrong(moved)):
                part({"wrong": {side: wrong[:3]}})
            del moved
        part({"first": first, "busy": busy, "call": later, "peak": peak})


def on_problem(task: dict[str, Any], part: Part) -> None:
    """Seconds to compile one plan and to run it, and its scratch; nothing where both programs are one."""
    case = Case(Problem.from_json(task["problem"]), jax.devices())
    plan, _ = plan_of(case.problem, {"cost_model": "cpu"})
    first: dict[str, list[float]] = {ON: [], OFF: []}
    busy: dict[str, list[float]] = {ON: [], OFF: []}
    texts, programs, entry = set(), {}, {}
    for turn, side in in_turns(task["compiles"]):
        switch(task["quirk"], side)
        function = case.ours(plan, {})
        if turn == 0:
            texts.add(function.lower(case.argument).as_text())
            if (turn, side) == (0, OFF) and len(texts) == 1:
                part({"same": True})
                return
        processor = time.process_time()
        programs[side], seconds = compile_timed(function, case.argument)
        busy[side].append(time.process_time() - processor)
        first[side].append(seconds)
    for side, program in programs.items():
        entry[side] = counts(program, case.problem)["scratch"] + plan.before.tile_size * 4 + plan.after.tile_size * 4
    part({"first": first, "busy": busy, "peak": entry})
    x = case.array()
    for side, program in programs.items():
        if wrong := case.check(program(x)):
            part({"wrong": {side: wrong}})
    times: dict[str, list[float]] = {ON: [], OFF: []}
    for _, side in in_turns(task["turns"]):
        begin = time.perf_counter()
        programs[side](x).block_until_ready()
        times[side].append(time.perf_counter() - begin)
    part({"call": times})


def handle(task: dict[str, Any], part: Part) -> None:
    if task["what"] == "problem":
        on_problem(task, part)
    elif task["what"] == "memory":
        switch(task["quirk"], task["switched"])
        measure_memory(tree_of(task), {**task, "side": "ours", "budget": None}, part)
    else:
        on_tree(task, part)


if __name__ == "__main__":
    if ADDRESS in os.environ:
        start()
    serve(handle)
