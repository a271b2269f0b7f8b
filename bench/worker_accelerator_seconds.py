"""Child of `bench.accelerator_seconds`: calibrates rates, times programs on an accelerator, and prices them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import redistrib as rd
from bench.children import serve
from bench.kernel_programs import Program, programs
from bench.pairing import Part
from bench.worker_cpu_seconds import BELOW, prices, whole
from bench.worker_kernels import counted
from redistrib.cost.chips import CHIPS
from redistrib.programs.time.constants import machine
from redistrib.programs.time.fit import OperationSample, RatesFit, fit_rates
from redistrib.programs.time.machine import Machine, Rates
from redistrib.programs.time.operations import measure_operations

REPEATS = 7
AT_LEAST = 0.03  # seconds of a measurement, in which short programs run several times


def chip_of(device: Any) -> str:
    """The name of the machine that is such a device; that of GPUs where none is."""
    kind = device.device_kind.lower()
    return next((name for name in sorted(CHIPS, key=len, reverse=True) if name in kind), "gpu")


def machines(chip: str, rates: Mapping[str, Any]) -> dict[str, Machine]:
    """The machines that price: that of the data sheet; that with measured rates; that where products fuse nothing."""
    calibrated = replace(machine(chip), name="calibrated", rates=Rates(**rates), flops={}, fuses=True)
    return {
        "data sheet": replace(machine(chip), fuses=True),
        "calibrated": calibrated,
        "products alone": replace(calibrated, name="products alone", fuses_products=False),
    }


def drawn(program: Program) -> tuple[Any, ...]:
    """Arguments on the device."""
    leaves, tree = jax.tree.flatten(program.args)
    keys = jax.random.split(jax.random.key(0), len(leaves))

    def value(key: Any, form: Any) -> Any:
        if jnp.issubdtype(form.dtype, jnp.integer):
            return jax.random.randint(key, form.shape, 0, BELOW, form.dtype)
        return (jax.random.normal(key, form.shape, form.dtype) / 8).astype(form.dtype)

    made = jax.jit(lambda keys: [value(key, form) for key, form in zip(keys, leaves, strict=True)])(keys)
    values: tuple[Any, ...] = jax.tree.unflatten(tree, made)
    return values


def seconds_of(run: Callable[[], Any]) -> float:
    """Seconds of a call among many that the device runs one after the other: the median of several measurements."""
    jax.block_until_ready(run())
    times = max(2, math.ceil(AT_LEAST / max(_taken(run, 2), 1e-6)))
    return statistics.median(_taken(run, min(times, 100)) for _ in range(REPEATS))


def _taken(run: Callable[[], Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        result = run()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / times


def handle(task: dict[str, Any], part: Part) -> None:
    device = jax.devices()[0]
    if task.get("calibrate"):
        samples = tuple(OperationSample(*one) for one in measure_operations())
        fit = RatesFit(fit_rates(samples, "roofline"), samples)
        part({"rates": fit.rates.to_json(), "fit": str(fit), "chip": chip_of(device), "kind": device.device_kind})
        return
    if "name" not in task:
        part({"platform": device.platform})
        return
    program = programs()[task["name"]]
    rates = {name: value for name, value in task["rates"].items() if name not in ("format", "version")}
    with whole():
        start = time.perf_counter()
        compiled = jax.jit(program.function).lower(*program.args).compile()
        part({"compile_s": time.perf_counter() - start})
        sizes, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
        peak = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
        part({"peak": peak - sizes.alias_size_in_bytes, "theirs": int(costs.get("bytes accessed", 0))})
        args = drawn(program)
        part({"measured": seconds_of(lambda: compiled(*args))})
        on = machines(task["chip"], rates)
        part({"ours": counted(program), **prices(program.function, program.args, {"d": 1}, (), on)})
        f = rd.distribute(program.function, program.args, {"d": 1})
        part({"predicted_peak": f.compiled_memory})
        placed = jax.device_put(args, f.in_shardings)
        part({"distributed": seconds_of(lambda: f(*placed))})
    jax.clear_caches()


if __name__ == "__main__":
    serve(handle)
