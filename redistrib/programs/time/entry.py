"""Programs timed before they run: clocks for each device, and the bytes that each holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from redistrib.cost.presets import MachineLike
from redistrib.errors import ProfileError, ProgramError
from redistrib.plans.plan import Plan
from redistrib.programs.ir.program import Move, Op, Program
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.time.clocks import SimulationCache, StreamOf, run
from redistrib.programs.time.constants import machine as machine_of
from redistrib.programs.time.issue import issued
from redistrib.programs.time.kernels.compiled import compiled
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.result import Simulation, as_program
from redistrib.programs.time.single import is_single, run_once
from redistrib.programs.time.torus_layout import laid
from redistrib.renamed import renamed


@renamed("profile", "machine")
def simulate(
    program: Program | Plan,
    machine: MachineLike = "tpu",
    *,
    streams: Callable[[Op], str] | Literal["moves"] | None = None,
    overlap: bool = False,
    window: int | None = None,
    record: bool = True,
) -> Simulation:
    """Time a program on a machine, and count the live bytes of every device, without running it.

    Operations are taken in the order of the program. A computation runs on each of its devices as soon as that device
    is free; a move starts when all devices that take part are free, and blocks them. The machine's cost model prices
    moves, step by step, on the links between their devices. Where its compiler fuses operations, its kernels are timed,
    and what stays inside one takes no memory; see `redistrib.programs.time.kernels.fusion`.

    Args:
        program: a program that was checked, or a plan, which is a program of one move.
        machine: a `Machine`, or its name (`"v100"`, `"h100"`, `"gpu"`, `"tpu"`, `"cpu"` and others). For programs of
            moves alone the path of a profile, or a cost model in seconds. On a torus the axes of a program's mesh lie
            as it is fastest, unless the machine says how.
        streams: None, one stream for each device; `"moves"`, a second one for moves, so that a device moves and
            computes at the same time; or a function that names the stream of each operation. An operation then waits
            for its stream and for its operands.
        overlap: whether moves run beside computations: a device has two streams, and its moves are issued as early as
            that hides them, and no earlier, see `redistrib.programs.time.two_streams`. Never slower than without.
        window: with `overlap`, the computations by which a move that takes memory is issued early at most; None for any
            number.
        record: whether to keep every operation for the trace; leave it out where thousands of programs are compared.

    Returns:
        Seconds, bytes held and bytes received, by device. Print it for a table.

    Raises:
        ChoiceError: if there is no such machine.
        ProfileError: if the machine does not count seconds, or has no rates for an operation, or there is no such
            choice of streams, or both `streams` and `overlap` are given.
        ProgramError: if it is neither a program nor a plan.

    >>> from redistrib.api import synthesize
    >>> plan = synthesize("[4{x}8, 8]", "[8, 4{x}8]", {"x": 2})
    >>> found = simulate(plan)
    >>> found.seconds == plan.cost, max(found.peak_bytes.values()) == plan.peak_bytes
    (True, True)
    """
    to_run = as_program(program) if isinstance(program, Plan) else program
    if not isinstance(to_run, Program):
        raise ProgramError("", "", "Program", f"a program or a plan is simulated, not a {type(program).__name__}")
    if not (streams is None or streams == "moves" or callable(streams)):
        raise ProfileError(f"streams are None, 'moves', or a function of an operation; got {streams!r}")
    if overlap and streams is not None:
        raise ProfileError("overlap=True has its own two streams; leave streams= out, or overlap=")
    if window is not None and not overlap:
        raise ProfileError(f"window={window!r} says how early moves are issued beside computations; give overlap=True")
    stream_of = by_kind if streams == "moves" else streams
    machines = [machine_of(machine)] if isinstance(program, Plan) else _laid(to_run, machine_of(machine))
    return _on_fastest(machines, to_run, Overlap(window) if overlap else None, stream_of, record=record)


def simulated_with(
    overlap: Overlap | None, program: Program, machine: Machine, cache: SimulationCache | None = None
) -> Simulation:
    """A program whose moves run beside computations as far as a schedule says; the simulation has no events.

    Args:
        overlap: how far; None if they do not.
        program, machine: as for `simulate`.
        cache: results for the programs that it calls, on this machine.
    """
    return _on_fastest(_laid(program, machine), program, overlap, cache=cache, record=False)


def _laid(program: Program, machine: Machine) -> list[Machine]:
    """The machine, once for every way in which the axes of a program's mesh may lie on its torus."""
    places = set(program.places)
    return laid(machine, places.pop().mesh) if len(places) == 1 else [machine]


def _on_fastest(
    machines: list[Machine],
    program: Program,
    overlap: Overlap | None,
    streams: StreamOf | None = None,
    *,
    record: bool,
    cache: SimulationCache | None = None,
) -> Simulation:
    """The program on the machine that runs it fastest."""
    cache = cache if len(machines) == 1 else None  # its results are those of one machine
    if overlap is None:
        runs = (simulated_in_turn(program, machine, streams, record=record, cache=cache) for machine in machines)
    else:
        runs = (simulated_issued(program, machine, overlap.window, record=record) for machine in machines)
    return min(runs, key=lambda simulated: simulated.seconds)


def simulated_in_turn(
    program: Program,
    machine: Machine,
    streams: StreamOf | None = None,
    *,
    record: bool,
    cache: SimulationCache | None = None,
) -> Simulation:
    """A program whose operations run in its order, on each stream.

    Args:
        program, machine, streams, record: as for `simulate`.
        cache: results for the programs that it calls, see `redistrib.programs.time.clocks.run`; kernels call none.
    """
    kernels = compiled(program, machine)
    if streams is None and is_single(kernels):
        return Simulation(program, machine, run_once(kernels, machine, record=record))
    cache = cache if kernels is program else None  # programs of kernels are made anew, and it knows programs by `id`
    return Simulation(program, machine, run(kernels, machine, streams, record=record, cache=cache))


def simulated_issued(program: Program, machine: Machine, window: int | None = None, *, record: bool) -> Simulation:
    """A program whose moves run beside computations, in the order that `issue` gives them, or in that of the program
    where devices do different things and this is faster.

    Args:
        program, machine, record: as for `simulate`.
        window: see `redistrib.programs.time.issue.issued`.
    """
    kernels = compiled(program, machine)
    if is_single(kernels):
        return Simulation(program, machine, run_once(kernels, machine, overlap=True, window=window, record=record))
    runs = (
        run(ordered, machine, by_kind, record=record, in_order=True)
        for ordered in (issued(kernels, machine, window), kernels)
    )
    return min((Simulation(program, machine, one) for one in runs), key=lambda simulation: simulation.seconds)


def by_kind(op: Op) -> str:
    """A stream for moves, and one for all else."""
    return "moves" if isinstance(op, Move) else ""
