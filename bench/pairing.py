"""Ours beside XLA's reshard, in one process, on the same buffers: counts, compile times, run times."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from bench.elements import numbered
from bench.library import describe, plan_of
from bench.problems import Problem
from bench.rounds import alternate
from bench.summary import OURS, XLA

Part = Callable[[dict[str, Any]], None]
Barrier = Callable[[], None]


class Runnable(Protocol):
    """An input of programs, and the check of their results."""

    def array(self) -> Any: ...

    def check(self, result: Any) -> str | None: ...


DTYPE = np.float32
PLACES = 2557  # summand s is scaled by 3**s: sums of up to 8 are exact, and differ where a summand counts twice


class Case:
    """A problem on JAX devices.

    Attributes:
        mesh: the mesh over the first devices.
        source, target: shardings of the array before and after.
    """

    def __init__(self, problem: Problem, devices: Sequence[Any]) -> None:
        self.problem = problem
        names = tuple(name for name, _ in problem.mesh)
        sizes = tuple(size for _, size in problem.mesh)
        kind = AxisType.Explicit if problem.partial else AxisType.Auto  # JAX has partial arrays on these alone
        self.mesh = Mesh(
            np.array(devices[: math.prod(sizes)], dtype=object).reshape(sizes), names, axis_types=(kind,) * len(names)
        )
        unreduced = {"unreduced": set(problem.partial)} if problem.partial else {}
        self.source = NamedSharding(self.mesh, PartitionSpec(*problem.source_entries, **unreduced))
        self.target = NamedSharding(self.mesh, PartitionSpec(*problem.target_entries))

    @property
    def argument(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.problem.shape, DTYPE, sharding=self.source)

    def ours(self, plan: Any) -> Any:
        """The plan as a jitted function of one global array."""
        return jax.jit(rd.to_jax(plan, self.mesh), in_shardings=self.source)

    def xla(self) -> Any:
        """XLA's reshard: the identity from the source sharding to the target sharding."""
        if self.problem.partial:  # the TPU compiler refuses a reduction by `out_shardings`
            return jax.jit(lambda x: jax.sharding.reshard(x, self.target), in_shardings=self.source)
        return jax.jit(lambda x: x, in_shardings=self.source, out_shardings=self.target)

    def array(self) -> jax.Array:
        """The input: each element is its row-major number, modulo the largest integers of float32."""
        problem = self.problem
        if not problem.partial:
            return jax.make_array_from_callback(
                problem.shape, self.source, lambda index: numbered(problem.shape, index)
            )
        tiles = []
        for number, device in enumerate(self.mesh.devices.flat):
            if device.process_index == jax.process_index():
                tile = numbered(problem.shape, problem.box(problem.source_axes, number), PLACES)
                tiles.append(jax.device_put(tile * np.float32(3 ** problem.summand(number)), device))
        return jax.make_array_from_single_device_arrays(problem.shape, self.source, tiles)

    def expected(self, index: tuple[slice, ...]) -> np.ndarray:
        """A box of the expected result."""
        if not self.problem.partial:
            return numbered(self.problem.shape, index)
        return numbered(self.problem.shape, index, PLACES) * np.float32((3**self.problem.summands - 1) // 2)

    def check(self, result: jax.Array) -> str | None:
        """The first error of a result, or None. Every element on every device of this process is compared."""
        if not result.sharding.is_equivalent_to(self.target, len(self.problem.shape)):
            return f"sharding {result.sharding}, expected {self.target}"
        for shard in result.addressable_shards:
            if not np.array_equal(np.asarray(shard.data), self.expected(shard.index)):
                return f"wrong elements on device {shard.device.id}"
        return None


def counts(compiled: Any, problem: Problem) -> dict[str, Any]:
    """Collectives, bytes and memory of a compiled program, from its HLO; bytes are per device."""
    from redistrib.explain.profiling.inspect import inspect

    report = inspect(compiled)
    largest = report.largest_array()
    return {
        "kinds": dict(report.kinds),
        "received": float(report.received_per_device),
        "scratch": report.scratch,
        "largest": largest.bytes if largest else 0,
        "copied": report.copied_bytes,
        "exact": report.exact,
    }


def compile_timed(function: Any, argument: Any) -> tuple[Any, float]:
    """Trace, lower and compile; return the executable and the seconds of all three."""
    start = time.perf_counter()
    compiled = function.lower(argument).compile()
    return compiled, time.perf_counter() - start


def compile_both(case: Case, options: dict[str, Any], part: Part, report: bool = True) -> dict[str, Any]:
    """Compile ours, then XLA's, which may kill the process; return the executables by name.

    An exception on one side is that side's result. With `options["null"]` both are XLA's: a test of the harness, whose
    ratios must be 1.
    """
    programs: dict[str, Any] = {}
    for name in (OURS, XLA):
        if name in options.get("skip", ()):
            continue
        part({"stage": name})
        entry: dict[str, Any] = {}
        try:
            if name == OURS and not options.get("null"):
                plan, seconds = plan_of(case.problem, options)
                entry.update(describe(plan, seconds, None if case.problem.partial else options.get("hosts")))
                function = case.ours(plan)
            else:
                function = case.xla()
            programs[name], entry["compile_s"] = compile_timed(function, case.argument)
            if report:
                entry.update(counts(programs[name], case.problem))
        except Exception as error:  # a compiler may raise any exception; it is that side's result
            entry["error"] = f"{type(error).__name__}: {error}"[:400]
            programs.pop(name, None)
        part({name: entry})
    return programs


def run_paired(
    case: Runnable, programs: dict[str, Any], options: dict[str, Any], part: Part, barrier: Barrier | None = None
) -> None:
    """Check each result once, then time the programs on one input buffer in alternating order.

    Sends `times`: name -> seconds per round, and `wrong`: name -> error.
    """
    part({"stage": "run"})
    x = case.array()
    for name, program in programs.items():
        if wrong := case.check(program(x)):
            part({"wrong": {name: wrong}})
    repeats = 1 if barrier is not None else _repeats(alternate(_calls(programs, x, 2), 1))
    gc.disable()
    try:
        times = alternate(_calls(programs, x, repeats), options["rounds"], barrier)
    finally:
        gc.enable()
    per_run = {name: [seconds / repeats for seconds in rounds] for name, rounds in times.items()}
    part({"times": per_run, "repeats": repeats, "stage": "done"})


def _calls(programs: dict[str, Any], x: Any, repeats: int) -> dict[str, Callable[[], Any]]:
    def call(program: Any) -> None:
        for _ in range(repeats):
            jax.block_until_ready(program(x))

    return {name: partial(call, program) for name, program in programs.items()}


def _repeats(times: dict[str, list[float]]) -> int:
    """Runs per measurement, equal for all programs, with which the fastest takes about 20 ms; `times` are of 2."""
    quickest = min(seconds / 2 for (seconds,) in times.values())
    return max(1, min(50, math.ceil(0.02 / max(quickest, 1e-6))))
