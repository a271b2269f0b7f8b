"""Four hosts of eight devices, joined by links 20 times slower: what crosses them, against its own lower bound."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import redistrib as rd
from bench import problems as drawn
from redistrib.cost.latency import KINDS, Latency, LatencyBandwidth
from redistrib.cost.presets import PRESETS
from redistrib.errors import MeshDevicesError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Exchange, Step
from redistrib.synthesis.phases import single
from redistrib.synthesis.problem import Problem
from redistrib.testing import is_exact
from redistrib.theory.classes import node_of
from redistrib.theory.placement import Int64, Placement, placement_of
from redistrib.theory.topology import Topology, topology_of_mesh
from redistrib.theory.torus import Torus
from tests.plans.columns import table_of

LATENCY = {kind: Latency(5e-6, 1e-6) for kind in ("allgather", "alltoall", "allpermute")}
FAST, SLOW = 100e9, 5e9
BY_HOST = LatencyBandwidth(
    "hosts of eight", LATENCY, bandwidth=FAST, memory_bandwidth=1e12, slow_bandwidth=SLOW, devices_per_host=8
)
BY_AXIS = LatencyBandwidth("slow axis", LATENCY, bandwidth=FAST, memory_bandwidth=1e12, axis_bandwidth={"x": SLOW})
HOSTS = np.arange(32) // 8


def crossing(step: Step, hosts: Int64 = HOSTS) -> int:
    """Elements that a step moves between hosts."""
    if isinstance(step, AllGather | AllToAll):
        share = step.before.tile_size if isinstance(step, AllGather) else math.prod(step.share)
        host = hosts[step.groups]
        return share * int((host[:, :, None] != host[:, None, :]).sum())
    if isinstance(step, AllPermute):
        return step.before.tile_size * int((hosts[step.pairs[:, 0]] != hosts[step.pairs[:, 1]]).sum())
    if isinstance(step, Exchange):
        away = hosts[step.shares.sender] != hosts[step.shares.receiver]
        return sum(volume for volume, far in zip(step.shares.box.volumes(), away, strict=True) if far)
    return 0


def crossing_bound(before: Placement, after: Placement, hosts: Int64 = HOSTS) -> int:
    """Per host, the union of its target tiles less the union of its source tiles; summed, in elements."""
    fine = tuple(math.lcm(b, a) for b, a in zip(before.grid, after.grid, strict=True))
    unit = math.prod(size // count for size, count in zip(before.shape, fine, strict=True))

    def union(placement: Placement, devices: Int64) -> np.ndarray:
        held = np.zeros(fine, dtype=bool)
        scale = [f // g for f, g in zip(fine, placement.grid, strict=True)]
        for index in placement.index[devices]:
            held[tuple(slice(i * s, (i + 1) * s) for i, s in zip(index, scale, strict=True))] = True
        return held

    total = 0
    for host in range(4):
        mine = np.flatnonzero(host == hosts)
        total += int((union(after, mine) & ~union(before, mine)).sum())
    return unit * total


def problems(sizes: tuple[int, ...], count: int, seed: int) -> list[drawn.Problem]:
    rng = random.Random(seed)
    return [drawn.draw(rng, f"{i}", sizes, "U", small_dimensions=False) for i in range(count)]


@pytest.mark.parametrize("model", [BY_HOST, BY_AXIS], ids=lambda model: model.name)
@pytest.mark.parametrize("sizes", [(4, 8), (4, 2, 4), (2, 2, 2, 4)])
def test_slow_links_carry_little_more_than_they_must(model: LatencyBandwidth, sizes: tuple[int, ...]) -> None:
    if sizes[0] != 4 and model is BY_AXIS:
        pytest.skip("its slow axis has four devices")
    ratios = []
    for problem in problems(sizes, 40, seed=12):
        plan = rd.synthesize(problem.source, problem.target, problem.axes, machine=model)
        bound = crossing_bound(plan.before, plan.after)
        crossed = sum(crossing(step) for step in plan.steps)
        assert crossed >= bound
        if bound:
            ratios.append(crossed / bound)
    assert len(ratios) >= 20
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) <= 1.1


def test_equal_links_are_one_class() -> None:
    """With one bandwidth the topology changes nothing: it is the paper's graph."""
    alike = LatencyBandwidth("alike", LATENCY, bandwidth=FAST, memory_bandwidth=1e12)
    by_axis = LatencyBandwidth(
        "alike", LATENCY, bandwidth=FAST, memory_bandwidth=1e12, axis_bandwidth={"x": FAST, "y": FAST}
    )
    for problem in problems((4, 8), 25, seed=3):
        plans = [
            rd.synthesize(problem.source, problem.target, problem.axes, machine=model) for model in (alike, by_axis)
        ]
        assert plans[0].steps == plans[1].steps


def test_a_replica_on_the_same_host_is_the_sender() -> None:
    # every host holds the whole array, so nothing needs to cross
    plan = rd.synthesize("[1024{a}2048, 2048]", "[2048, 1024{a}2048]", {"h": 4, "b": 4, "a": 2}, machine=BY_HOST)
    assert sum(crossing(step) for step in plan.steps) == 0


@pytest.mark.parametrize(("source", "target"), [("[n{x}, n]", "[n{z}, n]"), ("[n{x,y}, n]", "[n, n]")])
def test_devices_of_a_host_share_what_comes_from_other_hosts(source: str, target: str) -> None:
    """Every device of a host wants the same tile, or more; each of its bytes comes to the host once."""
    mesh, size = {"x": 2, "y": 2, "z": 2, "u": 4}, 1 << 11

    def of(text: str) -> str:
        for name, cut in (("{x,y}", 4), ("{x}", 2), ("{z}", 2)):
            text = text.replace(f"n{name}", f"{size // cut}{name}{size}")
        return text.replace("n", str(size))

    plan = rd.synthesize(of(source), of(target), mesh, machine=BY_HOST)
    assert sum(crossing(step) for step in plan.steps) == crossing_bound(plan.before, plan.after)


@pytest.mark.parametrize(
    ("source", "mesh"), [("[8{w}24]", {"x": 8, "w": 3}), ("[16, 1{w}6, 3{v}6]", {"y": 2, "v": 2, "w": 6})]
)
def test_what_no_axes_within_and_between_hosts_cut_has_no_node(source: str, mesh: dict[str, int]) -> None:
    """All hosts of eight hold equally many tiles, more than one, in a number that does not divide eight."""
    placement = placement_of(DistType.of(source), Mesh.of(mesh))
    assert node_of(placement, Topology.consecutive(24, 8)) is None
    assert node_of(placement, Topology(24)) == (placement.grid, (1,) * placement.rank)


def test_tiles_in_two_halves_of_three_hosts_have_no_node() -> None:
    """Every host of four holds two of the four tiles, but no axis of two lies between three hosts."""
    placement = Placement((4,), (4,), np.array([[0, 0, 1, 1, 0, 2, 2, 2, 1, 3, 3, 3]]).T)
    assert placement.is_uniform()
    assert node_of(placement, Topology.consecutive(12, 4)) is None


@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize(
    ("source", "target", "mesh", "target_mesh"),
    [
        ("[2{w}16, 6, 6]", "[16, 1{w}6, 3{v}6]", {"w": 8, "u": 3}, {"y": 2, "v": 2, "w": 6}),
        ("[8{w}24]", "[1{w,x}24]", {"x": 8, "w": 3}, None),
        ("[1024{u}6144, 3072{w}6144]", "[3072{w}6144, 1024{u}6144]", {"x": 2, "w": 2, "u": 6}, None),
        ("[2{y}12, 24]", "[12, 1{z}24]", {"w": 4, "y": 6}, {"z": 24}),
    ],
)
def test_axes_that_hosts_do_not_divide(
    source: str, target: str, mesh: dict[str, int], target_mesh: dict[str, int] | None, algorithm: str
) -> None:
    """Tiles that lie on all hosts alike and yet are no node of the weak graph with hosts."""
    plan = rd.synthesize(source, target, mesh, target_mesh=target_mesh, algorithm=algorithm, machine="gpu")
    assert is_exact(plan)


def test_a_permute_to_other_hosts_is_priced_once() -> None:
    """It is in the price of the path already; priced again for the lowering, a dearer path would be taken."""
    model = replace(PRESETS["cpu"], slow_bandwidth=5e8, devices_per_host=4)
    mesh = {"y": 2, "x": 2, "z": 6}
    plan = rd.synthesize("[18{y}36]", "[3{x,z}36]", mesh, algorithm="paper", machine=model)
    assert [step.kind for step in plan.steps] == ["dynslice", "allpermute"]


def test_paths_to_the_wrong_hosts_are_dearer_by_a_permute() -> None:
    """Of two paths of one price the one comes first that needs no permute over slow links."""
    plan = rd.synthesize(
        "[1024, 3, 64, 1{x}8]", "[1024, 3, 8{x}64, 2{v}8]", {"v": 4, "x": 8}, machine=BY_HOST, over_partition=False
    )
    assert [step.kind for step in plan.steps] == ["alltoall", "dynslice"]


# ---------------------------------------------------------------------------------------- hosts that are told

BY_TWO = replace(BY_HOST, name="hosts of two", devices_per_host=2)


def crossings(hosts: Int64, sizes: tuple[int, ...], told: bool) -> list[tuple[int, int]]:
    """Elements between hosts and their bound, of random problems planned with what is told, or with what is assumed."""
    found = []
    for problem in problems(sizes, 25, seed=5):
        plan = rd.synthesize(
            problem.source,
            problem.target,
            problem.axes,
            machine=BY_TWO if len(hosts) == 8 else BY_HOST,
            topology=hosts.tolist() if told else None,
        )
        found.append(
            (sum(crossing(step, hosts) for step in plan.steps), crossing_bound(plan.before, plan.after, hosts))
        )
    return found


def geomean(pairs: list[tuple[int, int]]) -> float:
    ratios = [crossed / bound for crossed, bound in pairs if bound]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def test_hosts_need_not_be_consecutive() -> None:
    """Devices dealt out to hosts like cards: what crosses is near its bound, and was not under the assumption."""
    hosts = np.arange(8) % 4
    told, assumed = (
        [p for sizes in ((4, 2), (2, 2, 2), (8,)) for p in crossings(hosts, sizes, k)] for k in (True, False)
    )
    assert all(crossed >= bound for crossed, bound in told)
    assert not any(crossed for crossed, bound in told if not bound)
    assert geomean(told) <= 1.05
    assert geomean(assumed) >= 1.25


def test_groups_form_inside_unequal_hosts() -> None:
    """Of four pairs, three find both their members on one host, which a sort by hosts misses."""
    hosts = np.array([0, 1, 1, 2, 2, 3, 3, 3])
    mesh = Mesh.of("x=4,y=2")
    before, after = (placement_of(DistType.of(text), mesh) for text in ("[512{y}1024, 64]", "[1024, 64]"))
    steps = single(Problem.plain(before, after, Topology.of(hosts.tolist())))
    assert steps is not None
    (step,) = steps
    assert isinstance(step, AllGather)
    assert (hosts[step.groups[:, 0]] != hosts[step.groups[:, 1]]).sum() == 1


def test_a_topology_must_fit_the_mesh() -> None:
    with pytest.raises(MeshDevicesError) as caught:
        rd.synthesize("[8]", "[2{x}8]", "x=4", topology="aab")
    assert str(caught.value) == (
        "the topology says where 3 devices stand, and the source mesh has 4; give the host of every device, in the "
        "order of their numbers"
    )


def test_where_jax_devices_stand() -> None:
    """By slices on accelerators, whatever process drives them; by processes elsewhere."""

    def device(process: int, platform: str = "gpu", **told: int) -> SimpleNamespace:
        return SimpleNamespace(process_index=process, platform=platform, **told)

    assert Topology.of_devices([device(k // 2) for k in range(4)]) == Topology.consecutive(4, 2)
    assert Topology.of_devices([device(k, slice_index=k // 2) for k in range(4)]) == Topology.consecutive(4, 2)
    assert Topology.of_devices([device(k, slice_index=0) for k in range(4)]) == Topology(4)
    assert Topology.of_devices([device(k // 2, "cpu", slice_index=0) for k in range(4)]) == Topology.consecutive(4, 2)
    grid = np.array([[device(0), device(1)], [device(1), device(0)]])
    assert topology_of_mesh(SimpleNamespace(devices=grid)) == Topology.of("abba")
    assert topology_of_mesh(Mesh.of("x=2,y=2")) is None
    for name in ("tpu", "gpu", "cpu"):  # every preset knows how much slower links between hosts are
        known = PRESETS[name].topology(Mesh.of("x=2,y=2"), Topology.of("abba"))
        assert known == replace(Topology.of("abba"), half_duplex=name == "cpu")
    assert BY_AXIS.topology(Mesh.of("x=2,y=2"), Topology.of("abba")).axes  # links by axes say more


def shared_link(**figures: float) -> LatencyBandwidth:
    """Two devices a host, whose link takes a byte a second each way; all else takes no time."""
    nothing = {kind: Latency(0.0, 0.0) for kind in KINDS}
    figures = {"slow_bandwidth": 1.0, "host_bandwidth": 1.0, **figures}
    return LatencyBandwidth("shared", nothing, bandwidth=1e30, memory_bandwidth=1e30, devices_per_host=2, **figures)


@pytest.mark.parametrize(
    ("source", "target", "alone", "shared"),
    [  # tiles of 16 int8; hosts (x, y) of two devices along z
        ("[16{x}32]", "[16{z}32]", 16, 16),  # of each host of the first or of the second half one device gets its tile
        ("[16{x}32]", "[16{y}32]", 16, 32),  # both devices of the hosts that swap
        ("[16{x}32]", "[32]", 16, 32),  # the same
        ("[8{z,x}32]", "[32]", 16, 24),  # around rings of two hosts: three shares pass every link
        ("[8{x,z}32]", "[32]", 16, 24),  # the same, however the group is ordered
    ],
)
def test_devices_of_a_host_share_its_link(source: str, target: str, alone: float, shared: float) -> None:
    """Seconds of a step of one tile for each device, and of the same where hosts have a link for all of them."""
    plan = rd.synthesize(source, target, {"x": 2, "y": 2, "z": 2}, dtype="int8")
    (step,) = plan.steps
    for model, seconds in ((shared_link(host_bandwidth=1e30), alone), (shared_link(), shared)):
        topology = model.topology(plan.source_mesh)
        assert model.prices(1, topology).step(step) == pytest.approx(seconds)


def test_links_of_a_torus_are_left_out_where_axes_have_a_speed() -> None:
    """A topology told apart by mesh axes has no use for the links between neighbours, whatever it knows of them."""
    mesh = Mesh.of({"x": 4, "y": 4})
    torus = Torus((4, 4), (True, True), tuple((k // 4, k % 4) for k in range(16)))
    topology = replace(Topology.along(mesh, ["x"]), torus=torus)
    plan = rd.synthesize("[1{x,y}16, 16]", "[16, 1{y,x}16]", mesh, dtype="int8")
    linked = replace(BY_AXIS, link_bandwidth=1.0)  # a byte a second, a hundred billion times slower
    for step in plan.steps:
        assert linked.prices(1, topology).step(step) == BY_AXIS.prices(1, topology).step(step) < 1
        assert linked.prices(1, Topology(16, torus=torus)).step(step) > 1


def seconds_of(rounds: list[list[tuple[int, int]]], hosts: str, **figures: float) -> float:
    """Of an exchange of shares of 8 bytes in these rounds, where only links between hosts take time."""
    pairs = [(k, a, b) for k, row in enumerate(rounds) for a, b in row]
    number, src, dst = np.array(pairs, dtype=np.int64).T
    full = Placement((16,), (2,), np.array([[0]] * len(hosts)))
    start, size = np.zeros((len(pairs), 1), np.int64), np.full((len(pairs), 1), 8)
    step = Exchange(full, full, table_of(src, dst, start, size, number))
    return shared_link(**figures).prices(1, Topology.of(hosts)).step(step)


def test_a_device_does_not_wait_for_rounds_that_it_has_no_part_in() -> None:
    """Two rounds of one link each cost both links where a device has part in both, else the dearer."""
    assert seconds_of([[(0, 1)], [(2, 3)]], "abcd") == pytest.approx(8)
    assert seconds_of([[(0, 1)], [(1, 2)]], "abcd") == pytest.approx(16)
    assert seconds_of([[(0, 1)], [(1, 2), (0, 3)], [(3, 2)]], "abcd") == pytest.approx(24)
    assert seconds_of([[(0, 2), (1, 3)], [(2, 0)]], "aabb") == pytest.approx(24)  # two through one link, then one


def test_two_devices_that_swap_alone_go_one_after_the_other() -> None:
    """Where links of hosts carry 1 byte a second, and a swap half of that."""
    half = {"swap_bandwidth": 0.5}
    assert seconds_of([[(0, 1), (1, 0)]], "ab") == pytest.approx(8)
    assert seconds_of([[(0, 1), (1, 0)]], "ab", **half) == pytest.approx(16)
    assert seconds_of([[(0, 1), (1, 2), (2, 0)]], "abc", **half) == pytest.approx(8)  # nobody sends to who sends to it
    both = [(0, 2), (2, 0), (1, 3), (3, 1)]
    assert seconds_of([both], "aabb", **half) == pytest.approx(16)  # one of them each way, then the other
    assert seconds_of([[(0, 2), (2, 0)]], "aab", **half) == pytest.approx(8)  # the other device of a takes it in
    assert seconds_of([[(0, 2), (2, 0)]], "aba", **half) == pytest.approx(0, abs=1e-20)  # no link between hosts
    plan = rd.synthesize("[8{x}16]", "[16]", "x=2", dtype="int8")
    (gather,) = plan.steps
    assert isinstance(gather, AllGather)
    for figures, seconds in (({}, 8), (half, 16)):
        assert shared_link(**figures).prices(1, Topology.of("ab")).step(gather) == pytest.approx(seconds)
