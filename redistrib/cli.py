"""The command line `redistrib`: arguments and exit codes only.

Exit codes: 0, success; 1, a check failed; 2, the input is invalid or the output cannot be written, and a line on
standard error gives the reason; 141, the reader of the output closed it, as `head` does.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from redistrib import __version__
from redistrib.cli_options import add_machine, add_problem
from redistrib.completion import SHELLS, script
from redistrib.errors import MissingPackageError, RedistribError
from redistrib.extras import PROGRAMS, lacks_programs, quiet_xla, to_install
from redistrib.report import LINES, lines_shown, writing

PIPE_CLOSED = 128 + 13  # the exit code that a shell reports when SIGPIPE ends a process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the encoding may lack characters of an axis name
    options = parser().parse_args(arguments)
    try:
        with lines_shown(LINES if sys.stdout.isatty() else None, "`| less` shows all"):
            code = int(options.command(options))
        sys.stdout.flush()
    except RedistribError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        if lacks_programs(error.name):
            return _failed(str(MissingPackageError(str(error.name), PROGRAMS, "this command")))
        return _failed(f"this command needs {error.name}; install it with pip install {to_install(error.name or '')}")
    except BrokenPipeError:  # the reader closed the pipe
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:
        _drop_output()
        return _failed(f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    return code


def _failed(reason: str) -> int:
    print(f"redistrib: {reason}", file=sys.stderr)
    return 2


def _drop_output() -> None:
    """Redirect standard output to the null device, because Python flushes it again at exit, which would fail."""
    with contextlib.suppress(OSError):
        output = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; its result has the function of the command as `command`."""
    result = argparse.ArgumentParser(
        prog="redistrib", description="Move distributed arrays between layouts by short sequences of collectives."
    )
    result.add_argument("--version", action="version", version=f"redistrib {__version__}")
    commands = result.add_subparsers(required=True, metavar="COMMAND")

    plan = commands.add_parser("plan", help="print the plan from one type to another")
    add_problem(plan)
    plan.add_argument("--against", choices=("dtensor",), help="also say what PyTorch's DTensor would do")
    plan.set_defaults(command=_plan)

    explain = commands.add_parser("explain", help="say where a plan's traffic goes, and draw it")
    add_problem(explain)
    explain.add_argument("-o", "--output", type=Path, help="also draw the plan into this PNG, PDF or SVG file")
    explain.add_argument("--graph", action="store_true", help="draw the weak graph with the plan's path, not the tiles")
    explain.set_defaults(command=_explain, parser=explain)

    run = commands.add_parser("run", help="run a plan, check every element, and compare with XLA's own reshard")
    add_problem(run)
    run.add_argument("--no-xla", action="store_true", help="leave XLA's own reshard out")
    run.add_argument("--backend", choices=("jax", "mpi"), help="default: mpi under mpiexec, else jax on virtual CPUs")
    run.set_defaults(command=_run)

    demo = commands.add_parser("demo", help="reshard a real transformer's weights from training to serving")
    demo.add_argument("--json", action="store_true", help="print the figures as JSON")
    demo.set_defaults(command=_demo)

    simulate = commands.add_parser("simulate", help="time a program, or a plan, on a machine without running it")
    simulate.add_argument(
        "what", nargs="+", metavar="WHAT",
        help="module:function or file.py:function that makes a program, a program's text, a plan's JSON, or two types",
    )  # fmt: skip
    simulate.add_argument("--mesh", help="axes and sizes, such as x=4,y=6; passed to a function that takes a mesh")
    add_machine(simulate, "--profile")
    simulate.add_argument("--rates", type=Path, metavar="FILE", help="rates of operations that `redistrib rates` wrote")
    simulate.add_argument("--dtype", default="float32", help="element type, of two types (default: %(default)s)")
    simulate.add_argument("--streams", choices=("moves",), help="give every device a second stream, for moves")
    simulate.add_argument("--overlap", action="store_true", help="run moves beside computations, issued ahead")
    simulate.add_argument(
        "-o", "--output", type=Path, action="append", default=[], metavar="FILE",
        help="a trace for Perfetto (.json), or a picture of the timeline (.png, .pdf, .svg); may be given twice",
    )  # fmt: skip
    simulate.set_defaults(command=_simulate)

    view = commands.add_parser("view", help="write a page with tiles, tables and timelines that a browser shows")
    view.add_argument(
        "what", nargs="+", metavar="FILE",
        help="a plan's JSON, a program's text, module:function or file.py:function that makes what the page shows, or "
        "two types",
    )  # fmt: skip
    view.add_argument("--mesh", help="axes and sizes, such as x=4,y=6; passed to a function that takes a mesh")
    view.add_argument("-o", "--output", type=Path, default=Path("page.html"), help="default: %(default)s")
    view.set_defaults(command=_view)

    diagnose = commands.add_parser("diagnose", help="list what XLA makes a jitted function communicate, by source line")
    diagnose.add_argument(
        "target", metavar="MODULE:FUNCTION", help="a function without parameters that returns (jitted, arg, arg, ...)"
    )
    diagnose.add_argument("--devices", type=int, help="virtual CPU devices to compile for; default: all devices of JAX")
    diagnose.add_argument("--json", action="store_true", help="print the figures as JSON")
    diagnose.set_defaults(command=_diagnose)

    search = commands.add_parser("search", help="find a schedule for a JAX function, and explain it")
    search.add_argument(
        "target", metavar="MODULE:FUNCTION", help="a function without parameters that returns (function, arg, arg, ...)"
    )
    machine_size = search.add_mutually_exclusive_group(required=True)
    machine_size.add_argument("--devices", type=int, help="search all meshes of this number of devices")
    machine_size.add_argument("--mesh", help="axes and sizes, such as data=2,model=4")
    add_machine(search, "--profile")
    search.add_argument("--memory-limit", help="bytes per device that the program may hold, such as 16GiB")
    search.add_argument("--limit", type=float, metavar="SECONDS", help="stop the search after this time")
    search.add_argument(
        "--objective", choices=("seconds", "bytes"), default="seconds", help="default: %(default)s of a call"
    )
    search.add_argument("--overlap", action="store_true", help="count moves beside operations where nothing waits")
    search.add_argument("--flash", action="store_true", help="count each pass of an attention as one flash kernel")
    search.add_argument(
        "--state", action="append", default=[], metavar="ARGUMENT=RESULT",
        help="an argument, and the number of the result that takes its place in the next call, such as params=0",
    )  # fmt: skip
    search.add_argument(
        "--batch", action="append", default=[], metavar="ARGUMENT=DIMENSION",
        help="an argument with examples and their dimension: pipelines are simulated as well",
    )  # fmt: skip
    search.add_argument("--pipeline", metavar="NAME", help="with --batch: family of layouts, or order (default: 1f1b)")
    search.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write the schedule to, as JSON")
    search.add_argument("--measure", type=int, metavar="TOP", help="run so many of the best, and rank them by seconds")
    search.add_argument("--picture", type=Path, metavar="FILE", help="draw what --measure predicted and measured")
    search.set_defaults(command=_search, parser=search)

    load = commands.add_parser("load", help="say what loading weights onto a mesh reads and moves")
    load.add_argument("path", type=Path, help="a safetensors file, an index, or a folder")
    load.add_argument("--plan", action="store_true", required=True, help="only print the plan; the library loads")
    load.add_argument("--mesh", required=True, help="axes and sizes, such as fsdp=4,tp=2; each cuts what it divides")
    load.add_argument("--hosts", type=int, help="hosts to which the devices belong, in order; default: one")
    load.add_argument("--dtype", help="element type of floating-point tensors; default: as in the file")
    add_machine(load, "--profile", default="gpu")
    load.set_defaults(command=_load)

    calibrate = commands.add_parser("calibrate", help="measure a latency-bandwidth profile on the devices at hand")
    calibrate.add_argument("--backend", choices=("jax", "mpi"), default="jax", help="default: %(default)s")
    calibrate.add_argument("--devices", type=int, help="devices to measure on (virtual ones on CPU); default: all")
    calibrate.add_argument("--name", default="calibrated", help="name recorded in the profile and in plans")
    calibrate.add_argument("-o", "--output", type=Path, help="file to write the JSON profile to; default: print it")
    calibrate.add_argument("--storage", type=Path, metavar="FILE", help="also measure how fast this large file is read")
    calibrate.set_defaults(command=_calibrate)

    rates = commands.add_parser("rates", help="fit the rates of a device to timed operations, by least squares")
    rates.add_argument(
        "samples", nargs="?", type=Path, help="CSV with columns bytes, flops and seconds; default: time JAX's device"
    )
    rates.add_argument(
        "--form",
        choices=("roofline", "sum"),
        default="roofline",
        help="how work and bytes add up (default: %(default)s)",
    )
    rates.add_argument("-o", "--output", type=Path, help="file to write the JSON rates to; default: print it")
    rates.set_defaults(command=_rates)

    completion = commands.add_parser("completion", help="print a script that completes commands and options in a shell")
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(command=_completion)
    return result


def _synthesize(options: argparse.Namespace, topology: Any = None) -> Any:
    from redistrib.api import synthesize

    return synthesize(
        options.source,
        options.target,
        options.mesh,
        target_mesh=options.target_mesh,
        dtype=options.dtype,
        machine=options.machine,
        algorithm=options.algorithm,
        over_partition=not options.no_over_partition,
        memory_limit=options.memory_limit,
        accumulate=options.accumulate,
        order=options.order,
        topology=topology if options.hosts is None else [host.strip() for host in options.hosts.split(",")],
    )


def _plan(options: argparse.Namespace) -> int:
    plan = _synthesize(options)
    print(plan.to_json() if options.json else plan)
    if options.against == "dtensor" and not options.json:
        from redistrib.dtensor.against import against_dtensor

        print(f"\n{against_dtensor(plan)}")
    return 0


def _explain(options: argparse.Namespace) -> int:
    from redistrib.explain import draw_graph, explain, picture

    if options.graph and options.output is None:
        options.parser.error("--graph draws a picture; say where with -o graph.png")
    plan = _synthesize(options)
    draw = draw_graph if options.graph else picture
    drawn = "" if options.output is None else f"\ndrew {draw(plan, options.output)}"
    print(f"{plan}\n\n{explain(plan)}{drawn}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from redistrib import run

    if options.backend == "mpi" or (options.backend is None and run.under_mpi()):
        return run.on_mpi(_synthesize(options, run.mpi_topology()), as_json=options.json)
    plan = _synthesize(options)
    report = run.on_virtual_devices(plan, with_xla=not options.no_xla)
    print(json.dumps(report.as_dict(), indent=2) if options.json else report)
    return 0 if report.correct else 1


def _demo(options: argparse.Namespace) -> int:
    from redistrib import demo

    result = demo.run(progress=not options.json)
    print(json.dumps(result.as_dict(), indent=2) if options.json else result)
    return 0 if result.correct else 1


def _simulate(options: argparse.Namespace) -> int:
    from redistrib.errors import PictureError
    from redistrib.programs.time.constants import machine
    from redistrib.programs.time.entry import simulate
    from redistrib.programs.time.load import load
    from redistrib.programs.time.rate_files import load_rates

    for path in options.output:
        if path.suffix not in (".json", ".png", ".pdf", ".svg"):
            raise PictureError(f"{path} is neither a trace (.json) nor a picture (.png, .pdf, .svg)")
    chosen = machine(options.machine)
    if options.rates is not None:
        chosen = replace(chosen, rates=load_rates(options.rates), operations={}, flops={})
    program = _loaded_or_planned(options, load, "program or plan", dtype=options.dtype, machine=chosen)
    simulation = simulate(program, chosen, streams=options.streams, overlap=options.overlap)
    for path in options.output:
        (simulation.to_chrome if path.suffix == ".json" else simulation.draw)(path)
    print(simulation)
    for path in options.output:
        print(f"wrote {path}")
    return 0


def _view(options: argparse.Namespace) -> int:
    from redistrib.programs.show.entry import view
    from redistrib.programs.time.load import load_any

    print(f"wrote {view(_loaded_or_planned(options, load_any, 'file or module:function')).save(options.output)}")
    return 0


def _loaded_or_planned(options: argparse.Namespace, load: Callable[..., Any], kind: str, **planning: Any) -> Any:
    """The value that one argument names, or the plan between two types."""
    from redistrib.api import synthesize
    from redistrib.errors import ProgramError
    from redistrib.lang.mesh import Mesh

    mesh = None if options.mesh is None else Mesh.of(options.mesh)
    if len(options.what) == 1:
        return load(options.what[0], mesh)
    if len(options.what) != 2 or mesh is None:
        raise ProgramError("", "", "Program", f"give one {kind}, or two types and --mesh")
    source, target = options.what
    return synthesize(source, target, mesh, **planning)


def _diagnose(options: argparse.Namespace) -> int:
    quiet_xla()
    from redistrib.programs.show.diagnose_command import diagnosed

    diagnosis = diagnosed(options.target, options.devices)
    print(json.dumps(diagnosis.as_dict(), indent=2) if options.json else diagnosis)
    return 0


def _search(options: argparse.Namespace) -> int:
    quiet_xla()
    from redistrib.lang.mesh import Mesh
    from redistrib.programs.search.entry import search
    from redistrib.programs.show.search_command import numbers, to_search

    if options.picture is not None and options.measure is None:
        options.parser.error("--picture draws what was measured; say how many candidates with --measure 10")
    devices = None if options.measure is None else options.devices or Mesh.of(options.mesh).size
    function, *args = to_search(options.target, devices)
    batch = numbers(options.batch)
    result = search(
        function,
        args,
        options.mesh,
        devices=options.devices,
        pipeline=options.pipeline or bool(batch),
        batch=batch or None,
        state=numbers(options.state),
        machine=options.machine,
        memory_limit=options.memory_limit,
        limit=options.limit,
        objective=options.objective,
        overlap=options.overlap,
        flash=options.flash,
    )
    print(result)
    if options.output is not None:
        options.output.write_text(result.schedule.to_json() + "\n")
        print(f"wrote {options.output}")
    if options.measure is not None:
        ranking = result.measure(top=options.measure)
        print(ranking)
        if options.picture is not None:
            print(f"wrote {ranking.picture(options.picture)}")
    return 0


def _completion(options: argparse.Namespace) -> int:
    print(script(parser(), options.shell), end="")
    return 0


def _load(options: argparse.Namespace) -> int:
    from redistrib.weights.planning import command

    print(command(options.path, options.mesh, options.hosts, options.dtype, options.machine))
    return 0


def _calibrate(options: argparse.Namespace) -> int:
    from redistrib.api import calibrate

    speed = None
    if options.storage is not None:
        from redistrib.weights.storage import storage_bandwidth

        speed = storage_bandwidth(options.storage)
        print(f"{options.storage} is read at {speed / 1e6:,.0f} MB/s", file=sys.stderr)
    with writing(options.output) as write:
        fit = calibrate(options.backend, devices=options.devices, name=options.name)
        if fit is not None:  # on MPI only rank 0 has the fit
            print(fit, file=sys.stderr)
            write(replace(fit.profile, storage_bandwidth=speed).to_json() + "\n")
    return 0


def _rates(options: argparse.Namespace) -> int:
    from redistrib.api import calibrate_rates
    from redistrib.programs.time.rate_files import load_samples

    with writing(options.output) as write:
        fit = calibrate_rates(None if options.samples is None else load_samples(options.samples), form=options.form)
        print(fit, file=sys.stderr)
        write(fit.rates.to_json() + "\n")
    return 0
