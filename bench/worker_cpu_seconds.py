"""Child of `bench.cpu_seconds`: calibrates rates, times programs on one core, and prices them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import redistrib as rd
from bench.children import serve
from bench.cpu_seconds import SCHEDULES
from bench.kernel_programs import ONE_CORE, Program, programs
from bench.pairing import Part
from bench.programs.all import cases
from bench.programs.case import _IS_WHOLE
from bench.worker_kernels import counted
from redistrib.backends.jax.calibrate import measure
from redistrib.cost.fit import fit_profile
from redistrib.lang.mesh import Mesh
from redistrib.programs.run.prepared import prepare
from redistrib.programs.search.evaluation import evaluated
from redistrib.programs.search.options import problem_of
from redistrib.programs.search.starting import propagated
from redistrib.programs.time.constants import machine
from redistrib.programs.time.fit import OperationSample, RatesFit, fit_rates
from redistrib.programs.time.machine import Machine, Rates
from redistrib.programs.time.operations import measure_operations

BELOW = 256  # of the integers of arguments: words, labels and positions of all programs
REPEATS, ROUNDS = 7, 9
AT_LEAST = 0.02  # seconds of a measurement, in which short programs run several times
TILES = (4 << 10, 64 << 10, 1 << 20)  # bytes, of collectives
WIDTH, HIDDEN, ROWS = 256, 1024, 256  # of the program with many schedules
MESH = {"d": 2, "t": 4}


def machines(rates: Mapping[str, Any]) -> dict[str, Machine]:
    """The machines that price: the preset; that with measured rates; that with kernels and classes of work too."""
    figures = {name: rates[name] for name in ("launch", "bandwidth", "flops", "form")}
    preset = machine("cpu")
    full = Rates(**figures, classes=rates.get("classes", {}))
    return {
        "preset": preset,
        "unfused": replace(preset, name="unfused", rates=Rates(**figures)),
        "kernels": replace(preset, name="kernels", rates=full, fuses=True, fuses_products=False, several_results=False),
    }


def prices(
    function: Callable[..., Any], args: tuple[Any, ...], mesh: Mapping[str, int], pins: Any, on: Mapping[str, Machine]
) -> dict[str, float]:
    """Seconds of a schedule on each machine, as a search counts them."""
    found, over = {}, Mesh.of(dict(mesh))
    prepared = prepare(function, args, over, None, None, None)
    for name, hardware in on.items():
        problem = problem_of(prepared, over, pins, {}, hardware, "seconds")
        found[name] = evaluated(problem, propagated(problem, over.names)).seconds
    return found


def least(run: Callable[[], Any]) -> float:
    """Processor seconds of a call, the least of several measurements."""
    jax.block_until_ready(run())
    once = cpu_seconds(run, 1)
    times = max(1, round(AT_LEAST / max(once, 1e-6)))
    return min(cpu_seconds(run, times) for _ in range(REPEATS))


def cpu_seconds(run: Callable[[], Any], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        jax.block_until_ready(run())
    return (time.process_time() - start) / times


def program_of(name: str) -> tuple[Program, tuple[Any, ...]]:
    """A program in float32, and values of its arguments."""
    if name not in (known := programs(ONE_CORE)):
        case = cases("medium")[name]
        return Program(case.function, case.args), case.values()
    args = jax.tree.map(_in_float32, known[name].args)
    random = np.random.default_rng(0)

    def drawn(form: Any) -> Any:
        if np.issubdtype(form.dtype, np.integer):
            return random.integers(0, BELOW, form.shape).astype(form.dtype)
        return (random.normal(size=form.shape) / 8).astype(form.dtype)

    return Program(known[name].function, args), jax.tree.map(drawn, args)


def _in_float32(form: Any) -> Any:
    return jax.ShapeDtypeStruct(form.shape, "float32" if form.dtype == "bfloat16" else form.dtype)


@contextmanager
def whole() -> Iterator[None]:
    """Functions of the bench have no constraints of shardings inside."""
    token = _IS_WHOLE.set(True)
    try:
        yield
    finally:
        _IS_WHOLE.reset(token)


def residual_step(params: Any, x: Any, target: Any) -> Any:
    """A step of two residual layers, which can be cut in many ways."""

    def loss(params: Any) -> Any:
        h = x
        for k in range(2):
            h = h + jax.nn.relu(h @ params[f"up{k}"]) @ params[f"down{k}"]
        return jnp.mean((h - target) ** 2)

    return jax.tree.map(lambda p, slope: p - 0.1 * slope, params, jax.grad(loss)(params))


def schedules() -> dict[str, list[Any]]:
    """Schedules that people write, over an axis of 2 and one of 4."""
    data, columns = {"x": 0, "target": 0}, {"params/up0": 1, "params/up1": 1, "params/down0": 0, "params/down1": 0}
    first = dict.fromkeys(columns, 0)
    second = {name: 1 - dim for name, dim in columns.items()}
    cut = rd.along
    return {
        "replicated": [],
        "data, 2": [cut("d", data)],
        "data, 4": [cut("t", data)],
        "data, 8": [cut("d", data), cut("t", data)],
        "FSDP, 2": [cut("d", data), cut("d", first)],
        "FSDP, 4": [cut("t", data), cut("t", first)],
        "FSDP, 8": [cut("d", data), cut("t", data), cut("d", first), cut("t", first)],
        "Megatron, 4": [cut("t", columns)],
        "Megatron, 2": [cut("d", columns)],
        "data, 2, by Megatron, 4": [cut("d", data), cut("t", columns)],
        "data, 4, by Megatron, 2": [cut("t", data), cut("d", columns)],
        "FSDP, 2, by Megatron, 4": [cut("d", data), cut("t", columns), cut("d", second)],
        "weights by rows, 2": [cut("d", first)],
        "weights by the other dimension, 4": [cut("t", second)],
    }


def shared(on: Mapping[str, Machine]) -> dict[str, Machine]:
    """The machines where all devices share one core, with links as measured there; the preset is of such devices."""
    timed = measure(jax.devices(), TILES, progress=False, clock=time.process_time)
    links, share = fit_profile(timed, "one core", "measured").profile, len(jax.devices())

    def of_a_device(rates: Rates) -> Rates:
        by_class = {name: rate / share for name, rate in rates.classes.items()}
        return Rates(rates.launch * share, rates.bandwidth / share, rates.flops / share, rates.form, by_class)

    mended = {
        name: replace(hardware, rates=of_a_device(hardware.rates), links=links)
        for name, hardware in on.items()
        if hardware.rates is not None and name != "preset"
    }
    return {**on, **mended}


def timed_schedules(on: Mapping[str, Machine]) -> list[dict[str, Any]]:
    """Every schedule with its processor seconds, the least of several rounds over all, and its prices."""
    on = shared(on)
    up, down = jnp.full((WIDTH, HIDDEN), 1 / WIDTH), jnp.full((HIDDEN, WIDTH), 1 / HIDDEN)
    params = {f"{name}{k}": value for k in range(2) for name, value in (("up", up), ("down", down))}
    x = jnp.ones((ROWS, WIDTH))
    args = (params, x, 2 * x)
    functions = {
        name: rd.distribute(residual_step, args, MESH, schedule=schedule) for name, schedule in schedules().items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS + 1):  # the first compiles
        for name, function in functions.items():
            seconds[name].append(cpu_seconds(lambda function=function: function(*args), 1))  # type: ignore[misc]
    return [
        {"name": name, "measured": min(seconds[name][1:]), **prices(residual_step, args, MESH, schedule, on)}
        for name, schedule in schedules().items()
    ]


def handle(task: dict[str, Any], part: Part) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if task.get("calibrate"):
        part({"samples": [sample._asdict() for sample in measure_operations(clock=time.process_time)]})
    elif "fit" in task:
        samples = tuple(OperationSample(**sample) for sample in task["fit"])
        fit = RatesFit(fit_rates(samples, "roofline"), samples)
        part({"rates": fit.rates.to_json(), "fit": str(fit)})
    elif "time" in task:
        program, values = program_of(task["time"])
        with whole():
            compiled = jax.jit(program.function).lower(*program.args).compile()
            args = jax.device_put(values)
            part({"measured": least(lambda: compiled(*args))})
            part({"theirs": int(compiled.cost_analysis()["bytes accessed"])})
    elif task["price"] == SCHEDULES:
        part({"schedules": timed_schedules(machines(task["rates"]))})
    else:
        program, _ = program_of(task["price"])
        with whole():
            part(prices(program.function, program.args, {"d": 1}, (), machines(task["rates"])))
            part({"ours": counted(program, products=False, several=False)})
    jax.clear_caches()


if __name__ == "__main__":
    serve(handle)
