"""Moves without a plan, from one device or to one, are priced as the collectives that MPI runs."""

from __future__ import annotations

from math import ceil, isclose, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.cost.latency import KINDS, Latency, LatencyBandwidth
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.direct import direct_transfers
from redistrib.programs.ir.program import Place, Program
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.result import Simulation

LAUNCH, MEMBER, LINK, COPY = 1e-5, 1e-6, 5e10, 9e11
ALIKE = Machine(
    "alike",
    None,
    LatencyBandwidth(
        "alike",
        {kind: Latency(LAUNCH, 0.0 if kind == "allpermute" else MEMBER) for kind in KINDS},
        bandwidth=LINK,
        memory_bandwidth=COPY,
    ),
)
HOSTS = Machine(
    "hosts",
    None,
    LatencyBandwidth(
        "hosts",
        {kind: Latency(LAUNCH) for kind in KINDS},
        bandwidth=1e9,
        memory_bandwidth=1e30,
        slow_bandwidth=1e8,
        devices_per_host=4,
    ),
)
ROOT = Place(Mesh(()), (0,))


def moved(source: str, here: Place, target: str, there: Place) -> Program:
    b = Builder()
    return b.build(b.move(b.input("x", source, here), target, there))


def stages(found: Simulation) -> dict[str, float]:
    return {stage.name: stage.seconds for event in found.events[:1] for stage in event.stages}


def among(devices: int, first: int = 0) -> Place:
    return Place(Mesh.of(f"x={devices}"), tuple(range(first, first + devices)))


SIZE = 1 << 26  # bytes


def test_a_large_broadcast_is_a_scatter_and_an_all_gather() -> None:
    """67 MB from a device to 8: not 7 sends in turn, which take 9.9 ms."""
    found = rd.simulate(moved("[16777216]", ROOT, "[16777216]", among(8)), ALIKE)
    halves = sum(LAUNCH + part * (1 / LINK + 1 / COPY) for part in (SIZE / 2, SIZE / 4, SIZE / 8))
    gathered = LAUNCH + 7 * MEMBER + 7 / 8 * SIZE / LINK + SIZE / COPY
    assert isclose(found.seconds, halves + gathered, rel_tol=1e-9)
    assert 0.0025 < found.seconds < 0.0026
    assert list(stages(found)) == ["broadcast"]


def test_a_small_broadcast_goes_down_a_tree() -> None:
    for devices in (3, 4, 5, 8, 9):
        found = rd.simulate(moved("[256]", ROOT, "[256]", among(devices)), ALIKE)
        assert isclose(found.seconds, ceil(log2(devices)) * (LAUNCH + 1024 * (1 / LINK + 1 / COPY)), rel_tol=1e-9)


def test_a_root_that_keeps_nothing_is_a_member_of_the_broadcast() -> None:
    found = rd.simulate(moved("[256]", ROOT, "[256]", among(8, 1)), ALIKE)
    assert isclose(found.seconds, 4 * (LAUNCH + 1024 * (1 / LINK + 1 / COPY)), rel_tol=1e-9)


@pytest.mark.parametrize("there", [among(1, 1), Place(Mesh(()), (1,)), Place(Mesh.of("x=2"))])
def test_to_one_other_device_it_is_a_send(there: Place) -> None:
    found = rd.simulate(moved("[256]", ROOT, "[256]", there), ALIKE)
    assert isclose(found.seconds, LAUNCH + 1024 * (1 / LINK + 1 / COPY), rel_tol=1e-9)
    assert list(stages(found)) == ["send"]


def test_a_scatter_is_one_call() -> None:
    """The root packs a tile for each of the others; every device writes its own."""
    tile = 1024 / 8
    found = rd.simulate(moved("[256]", ROOT, "[32{x}256]", among(8)), ALIKE)
    one_call = LAUNCH + 7 * MEMBER + 7 * tile / LINK + (2 * 7 + 1) * tile / COPY
    assert isclose(found.seconds, one_call, rel_tol=1e-9)
    assert list(stages(found)) == ["scatter"]
    back = rd.simulate(moved("[32{x}256]", among(8), "[256]", ROOT), ALIKE)
    assert isclose(back.seconds, one_call, rel_tol=1e-9)
    assert list(stages(back)) == ["gather"]


def test_the_root_sends_large_tiles_one_after_the_other_where_that_saves_copies() -> None:
    tile = SIZE / 8
    for source, here, target, there in (
        ("[16777216]", ROOT, "[2097152{x}16777216]", among(8)),
        ("[2097152{x}16777216]", among(8), "[16777216]", ROOT),
    ):
        found = rd.simulate(moved(source, here, target, there), ALIKE)
        assert isclose(found.seconds, 7 * (LAUNCH + tile * (1 / LINK + 1 / COPY)), rel_tol=1e-9)


def test_different_tiles_are_scattered_and_each_is_broadcast() -> None:
    found = rd.simulate(moved("[256]", ROOT, "[128{x}256]", Place(Mesh.of("x=2,y=4"))), ALIKE)
    send = LAUNCH + 512 * (1 / LINK + 1 / COPY)  # one tile goes to one device; then both go down trees of 4 devices
    assert isclose(found.seconds, 3 * send, rel_tol=1e-9)
    assert list(stages(found)) == ["send", "broadcast"]


def test_a_broadcast_crosses_between_hosts_once() -> None:
    found = rd.simulate(moved("[16]", ROOT, "[16]", among(8)), HOSTS)
    assert isclose(found.seconds, 3 * LAUNCH + 64 / 1e8 + 2 * 64 / 1e9, rel_tol=1e-6)
    # As fast where the devices of the hosts take turns in the mesh.
    turns = Place(Mesh.of("x=8"), (0, 4, 1, 5, 2, 6, 3, 7))
    assert isclose(rd.simulate(moved("[16]", ROOT, "[16]", turns), HOSTS).seconds, found.seconds, rel_tol=1e-12)


def test_what_is_there_already_takes_no_time() -> None:
    for there in (ROOT, Place(Mesh.of("x=1"), (0,))):
        assert rd.simulate(moved("[256]", ROOT, "[256]", there), ALIKE).seconds == 0
    assert rd.simulate(moved("[256]", among(8), "[256]", ROOT), ALIKE).seconds == 0
    assert rd.simulate(moved("[0]", ROOT, "[0]", among(8)), ALIKE).seconds == 0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 20),  # every grid divides 30 * 2**2
    st.sampled_from(["[{n}]", "[{tile}{{x}}{n}]", "[{tile}{{y}}{n}]", "[{tile}{{x,y}}{n}]"]),
    st.sampled_from([(1, 1), (1, 3), (2, 3), (4, 2), (5, 1)]),
    st.permutations(range(10)),
    st.booleans(),
    st.sampled_from([ALIKE, HOSTS]),
)
def test_a_collective_is_never_slower_than_sends_in_turn(
    power: int, form: str, grid: tuple[int, int], numbers: list[int], back: bool, machine: Machine
) -> None:
    """And no faster than the links of the device that receives the most.

    Between hosts a tile may cross twice, to the first of its group and on to the others: then at most twice as slow.
    """
    cuts = {"x": grid[0], "y": grid[1], "x,y": grid[0] * grid[1]}
    axes = form.partition("{{")[2].partition("}}")[0]
    n = 30 << power
    mesh = Mesh.of(f"x={grid[0]},y={grid[1]}")
    there = Place(mesh, tuple(numbers[: mesh.size]))
    ends = [(f"[{n}]", ROOT), (form.format(n=n, tile=n // cuts.get(axes, 1)), there)]
    (source, here), (target, there) = ends[::-1] if back else ends
    program = moved(source, here, target, there)
    found = rd.simulate(program, machine)
    (move,) = program.moves
    in_turn = 0.0
    for send in direct_transfers(program.inputs[0], move.out).travelling.rows():
        here, there = (Place(Mesh(()), (device,)) for device in send[:2])
        text = f"[{send.box.size[0]}]"
        in_turn += rd.simulate(moved(text, here, text, there), machine).seconds
    assert found.seconds <= in_turn * (1 if machine is ALIKE else 2) * (1 + 1e-9)
    links = machine.links
    assert isinstance(links, LatencyBandwidth)
    assert found.seconds >= max(found.received_bytes.values()) / links.bandwidth * (1 - 1e-9)
