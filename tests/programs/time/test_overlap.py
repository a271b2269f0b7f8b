"""Moves beside computations: two streams of a device, the order in which they are given work, and what is held."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.errors import ProfileError
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import peak_bytes
from redistrib.programs.ir.program import Move, Place, Program
from redistrib.programs.ir.reference import run_by_rank
from redistrib.programs.ir.spec import nest
from redistrib.programs.lower.versions import still_read
from redistrib.programs.time.clocks import run
from redistrib.programs.time.entry import by_kind
from redistrib.programs.time.issue import issued
from redistrib.programs.time.single import is_single, run_once
from redistrib.programs.time.timeline import Run
from redistrib.programs.time.two_streams import Task, in_order, overlapped
from tests.programs.time.drawn import arrays_for, programs
from tests.programs.time.mlp import on
from tests.programs.time.test_laws import HOSTS, critical_path

few = settings(max_examples=60, deadline=None)


def drawn(random: Random, most: int) -> list[Task]:
    """Tasks of whole seconds, each reading some before it."""
    tasks: list[Task] = []
    for number in range(random.randint(1, most)):
        reads = random.sample(range(number), random.randint(0, min(2, number)))
        kind = random.random()
        tasks.append(
            Task(
                float(random.randint(0, 4)), tuple(sorted(reads)), 0.1 < kind < 0.6, random.random() < 0.5, kind <= 0.1
            )
        )
    return tasks


def longest_chain(tasks: list[Task]) -> float:
    end: list[float] = []
    for task in tasks:
        end.append(task.seconds + max((end[k] for k in task.reads), default=0.0))
    return max(end)


def require_order(tasks: list[Task], window: int | None) -> float:
    """A legal timeline of tasks: streams do one thing at a time, and nothing starts before what it reads."""
    timeline = overlapped(tasks, window)
    assert sorted(timeline.order) == list(range(len(tasks)))
    computed = [k for k in timeline.order if not tasks[k].moves]
    assert computed == sorted(computed)
    for number, task in enumerate(tasks):
        assert all(timeline.end[k] <= timeline.start[number] for k in task.reads)
        assert timeline.end[number] == timeline.start[number] + task.seconds
    for one, other in itertools.combinations(range(len(tasks)), 2):
        together = tasks[one].moves == tasks[other].moves or tasks[one].is_loop or tasks[other].is_loop
        if together and tasks[one].seconds and tasks[other].seconds:
            apart = timeline.end[one] <= timeline.start[other] or timeline.end[other] <= timeline.start[one]
            assert apart
    return timeline.seconds


def test_random_tasks() -> None:
    """No less than the longer stream and the longest chain, no more than one after the other."""
    for seed in range(2000):
        tasks = drawn(Random(seed), 12)
        for window in (None, 2, 0):
            seconds = require_order(tasks, window)
            streams = [sum(task.seconds for task in tasks if task.moves or task.is_loop)]
            streams.append(sum(task.seconds for task in tasks if not task.moves))
            assert max(*streams, longest_chain(tasks)) <= seconds <= sum(task.seconds for task in tasks), seed


def test_the_best_order_of_moves_is_nearly_found() -> None:
    """Beside all orders in which moves may be issued: the least seconds in most cases, and never twice as many."""
    met = 0
    for seed in range(300):
        tasks = drawn(Random(seed), 7)
        best = min(
            in_order(tasks, order).seconds
            for order in itertools.permutations(range(len(tasks)))
            if all(order.index(k) < order.index(n) for n, task in enumerate(tasks) for k in task.reads)
            and [k for k in order if not tasks[k].moves] == [k for k in range(len(tasks)) if not tasks[k].moves]
        )
        found = overlapped(tasks).seconds
        assert best <= found <= max(2 * best, 1e-12), seed
        met += found == best
    assert met >= 270


def test_a_chain_takes_the_sum() -> None:
    tasks = [Task(1.0 + k, (k - 1,) if k else (), moves=k % 2 == 1, grows=True) for k in range(9)]
    assert overlapped(tasks).seconds == sum(task.seconds for task in tasks)


def layers(count: int, product: float, gather: float) -> list[Task]:
    """Products in a row, each of a weight that is gathered for it."""
    tasks: list[Task] = []
    for k in range(count):
        tasks.append(Task(gather, (), moves=True, grows=True))
        tasks.append(Task(product, tuple(t for t in (2 * k - 1, 2 * k) if t >= 0)))
    return tasks


def test_weights_are_gathered_beside_products_and_no_earlier_than_need_be() -> None:
    """Shorter gathers than products hide but for the first; each is issued one product ahead. Longer ones decide."""
    timeline = overlapped(layers(4, 3.0, 2.0))
    assert timeline.seconds == 2.0 + 4 * 3.0
    assert timeline.order == (0, 2, 1, 4, 3, 6, 5, 7)
    assert overlapped(layers(4, 2.0, 3.0)).seconds == 4 * 3.0 + 2.0
    assert overlapped(layers(4, 3.0, 2.0), 0).seconds == 4 * 5.0


def test_gradients_are_scattered_behind() -> None:
    """A scatter does not hold up a gather that comes after it in the program and is read before."""
    tasks: list[Task] = []
    for k in range(3):
        tasks.append(Task(1.0, (), moves=True, grows=True))  # the weight
        tasks.append(Task(4.0, tuple(t for t in (3 * k - 2, 3 * k) if t >= 0)))
        tasks.append(Task(2.0, (3 * k + 1,), moves=True))  # its gradient
    assert overlapped(tasks).seconds == 1.0 + 3 * 4.0 + 2.0


# ------------------------------------------------------------------------------------------------ programs


@few
@given(programs())
def test_a_program_takes_no_longer_than_without(program: Program) -> None:
    one, two = rd.simulate(program, HOSTS), rd.simulate(program, HOSTS, overlap=True)
    assert two.seconds <= one.seconds * (1 + 1e-12)
    assert two.seconds >= critical_path(program, HOSTS) * (1 - 1e-12)
    assert two.program is program
    assert max(two.peak_bytes.values()) >= max(
        sum(v.tile_bytes for v in program.inputs if d in v.place.devices) for d in program.devices
    )


@given(programs(most=16, everywhere=True), st.sampled_from([None, 2, 0]))
@settings(max_examples=200, deadline=None)
def test_a_block_and_clocks_agree(drawn_program: Program, window: int | None) -> None:
    """Where all devices do the same, one block of tasks takes as long as their clocks, and holds as much."""
    program = inlined(drawn_program)
    assert is_single(program)
    assert run_once(program, HOSTS).peak == run(program, HOSTS).peak
    program = replace(program, ops=tuple(still_read(program.ops, program.outputs)))  # a name that nobody reads
    require_as_clocks(run_once(program, HOSTS), run(program, HOSTS))  # is given at another place in another order
    ordered = run(issued(program, HOSTS, window), HOSTS, by_kind, in_order=True)
    require_as_clocks(run_once(program, HOSTS, overlap=True, window=window), ordered)


def test_an_input_that_only_has_another_name_is_given_up() -> None:
    b = Builder()
    x, other = b.input("x", "[8]", on(0)), b.input("other", "[8]", on(0))
    b.move(x)  # the last that reads it, before any task
    b.donate(x)
    program = b.build(b.compute(nest("i->i", (8,), name="twice"), other))
    assert rd.simulate(program, HOSTS).peak_bytes == peak_bytes(program) == {0: 64}


def require_as_clocks(one: Run, two: Run) -> None:
    """Two runs of a program are equal, seconds to rounding."""
    assert (one.clock_of, one.peak, one.height, one.met) == (two.clock_of, two.peak, two.height, two.met)
    for each, other in ((one.now, two.now), (one.busy, two.busy)):
        assert {key: seconds for key, seconds in each.items() if seconds} == pytest.approx(
            {key: seconds for key, seconds in other.items() if seconds}
        )
    for event, same in zip(one.events, two.events, strict=True):
        assert event._replace(start=0.0, end=0.0) == same._replace(start=0.0, end=0.0)
        assert (event.start, event.end) == pytest.approx((same.start, same.end))


@few
@given(programs())
def test_a_program_that_is_reordered_computes_the_same(program: Program) -> None:
    ordered = issued(program, HOSTS)
    assert [op for op in ordered.ops if isinstance(op, Move)] != [] or ordered.ops == program.ops
    one, two = (run_by_rank(each, arrays_for(program)) for each in (program, ordered))
    assert all((a == b).all() for a, b in zip(one, two, strict=True))


def test_what_is_in_flight_is_held() -> None:
    """A weight that is gathered ahead is there from the start of its gather; without overlap only for its product."""
    place, layers_ = Place(rd.Mesh.of("x=4")), 4
    b = Builder("fsdp")
    h = b.input("h", "[2048{x}8192, 512]", place)
    weights = [b.input(f"w{k}", "[128{x}512, 512]", place) for k in range(layers_)]
    product = rd.nest("bi,io->bo", (8192, 512, 512), name="product")
    for w in weights:
        h = b.compute(
            product,
            h,
            b.move(w, "[512, 512]", plan=rd.synthesize("[128{x}512, 512]", "[512, 512]", {"x": 4}, machine="tpu")),
            cut={"b": ("x",)},
        )
    program = b.build(h)
    one, two = rd.simulate(program, "tpu"), rd.simulate(program, "tpu", overlap=True)
    moved = {event.name: event.end - event.start for event in two.events if event.kind == "move"}
    computed = [event.end - event.start for event in two.events if event.kind == "compute"]
    gather = next(iter(moved.values()))
    assert two.seconds == pytest.approx(max(gather + sum(computed), sum(moved.values()) + computed[-1]), rel=1e-9)
    assert two.seconds < one.seconds
    whole = 512 * 512 * 4
    assert 0 <= max(two.peak_bytes.values()) - max(one.peak_bytes.values()) <= 2 * whole


def test_no_streams_beside_overlap() -> None:
    program = Builder("none").build()
    with pytest.raises(ProfileError, match="overlap=True has its own two streams"):
        rd.simulate(program, "tpu", streams="moves", overlap=True)
