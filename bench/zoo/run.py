"""Run every program of the zoo, with a process per module, and write docs/zoo.md: `python -m bench.zoo.run`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.zoo.program import Program
from bench.zoo.table import PAGE, RESULTS, page

MODULES = ("layers", "training", "sampling", "solving", "physics", "decisions")
BEGIN = "begin "  # tells these lines from those that libraries print
FLAGS = "--xla_force_host_platform_device_count=8"


def programs(module: str) -> dict[str, Program]:
    """The programs of a module, by library and name."""
    listed: Iterator[Program] = importlib.import_module(f"bench.zoo.{module}").programs()
    return {f"{program.library}: {program.name}": program for program in listed}


def measured(program: Program) -> dict[str, Any]:
    """Compile and run a program by ours, by XLA and on one device; compare bytes, work and results."""
    import jax
    import numpy as np

    import redistrib as rd
    from bench.zoo.work import work
    from redistrib.explain.profiling.inspect import inspect

    record: dict[str, Any] = {"name": program.name, "library": program.library, "note": program.note}
    start = time.perf_counter()
    schedule = [rd.along(axis, dict(arrays)) for axis, arrays in program.cuts]
    f = rd.distribute(program.function, program.args, dict(program.mesh), schedule=schedule)
    record["distribute_s"] = time.perf_counter() - start
    start = time.perf_counter()
    ours = f.lower().compile()
    record["compile_s"] = time.perf_counter() - start
    record["predicted"] = f.compiled_received_bytes
    record["opaque"] = sorted({name.split("_")[0] for name, _, _ in f.opaque})
    start = time.perf_counter()
    jitted = jax.jit(lambda *args: program.function(*args), in_shardings=f.in_shardings, out_shardings=f.out_shardings)
    theirs = jitted.lower(*program.args).compile()
    record["xla_compile_s"] = time.perf_counter() - start
    alone = jax.jit(lambda *args: program.function(*args)).lower(*program.args).compile()
    whole = work(alone)
    for name, compiled in (("ours", ours), ("xla", theirs)):
        record[name] = {"received": inspect(compiled).received_bytes, "share": work(compiled) / max(whole, 1)}
    record["away"] = _difference(f(*program.args), alone(*program.args), np)
    record["right"] = record["away"] <= program.tolerance
    return record


def _difference(results: Any, expected: Any, np: Any) -> float:
    """The largest difference of any result, over its largest element."""
    import jax

    most = 0.0
    for pair in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        arrays = map(jax.random.key_data, pair) if jax.numpy.issubdtype(pair[0].dtype, jax.dtypes.prng_key) else pair
        a, b = (np.asarray(array).astype(np.float64) for array in arrays)
        if a.size:
            most = max(most, float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-6)))
    return most


def inside(module: str, skipped: Sequence[str], part: str) -> None:
    """Measure the programs of a module; print a line with the name of each and a line with its record."""
    import jax

    for name, program in programs(module).items():
        if part not in name or name in skipped:
            continue
        print(BEGIN + name, flush=True)
        try:
            record = measured(program)
        except Exception as error:  # libraries and compilers may raise any exception; it is the program's result
            record = _failed(name, f"{type(error).__name__}: {error}")
        print(json.dumps(record), flush=True)
        jax.clear_caches()


def children(module: str, part: str) -> Iterator[dict[str, Any]]:
    """The records of a module's programs, measured in a process that starts again after a program has killed it."""
    environment = {**os.environ, "XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
    done: list[str] = []
    while True:
        command = [sys.executable, "-m", "bench.zoo.run", "--only", part, "--inside", module, *done]
        begun = ""
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
                    begun = ""
                elif line.startswith(BEGIN):
                    begun = line.removeprefix(BEGIN).strip()
                    done.append(begun)
        if not begun:
            return
        yield _failed(begun, f"the process ended with {process.returncode}")


def _failed(name: str, error: str) -> dict[str, Any]:
    library, program = name.split(": ", 1)
    return {"library": library, "name": program, "error": error.splitlines()[0][:300]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the name of a program or library; other records stay")
    parser.add_argument("--draw", action="store_true", help="write the page from the saved results")
    parser.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        module, *skipped = options.inside
        inside(module, skipped, options.only)
        return 0
    records = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    if not options.draw:
        new = {}
        for record in (record for module in MODULES for record in children(module, options.only)):
            new[record["library"], record["name"]] = record
            print(json.dumps(record), flush=True)
        stay = {(record["library"], record["name"]): record for record in records} if options.only else {}
        records = list((stay | new).values())
        RESULTS.write_text("\n".join(map(json.dumps, records)) + "\n")
    PAGE.write_text(page(records))
    return int(any("error" in record or not record["right"] for record in records))


if __name__ == "__main__":
    sys.exit(main())
