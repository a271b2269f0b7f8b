"""Permutes between processes in two turns: which pairs go when, and that nothing else changes."""

import itertools
import re
from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redistrib as rd
from redistrib.backends.jax.platforms import Platform, quirks_of
from redistrib.backends.jax.xla_cpu.half_duplex import _oriented, relayed, two_turns
from redistrib.cost.presets import PRESETS
from redistrib.explain.profiling.hlo import parse_module, replica_groups


def load(pairs, processes):
    """The most tiles that a process sends, or receives, from elsewhere."""
    crossing = [(processes[a], processes[b]) for a, b in pairs if processes[a] != processes[b]]
    return max((n for k in (0, 1) for n in Counter(pair[k] for pair in crossing).values()), default=0)


def meets(pairs, processes):
    """Whether two devices of different processes send to one another."""
    return any((b, a) in set(pairs) and processes[a] != processes[b] for a, b in pairs)


def checked(pairs, processes):
    """The turns, which have all pairs between them, no swap, and not much more for the busiest process to do."""
    turns = two_turns(np.array(pairs).reshape(-1, 2), processes)
    if turns is None:
        return None
    found = [[tuple(pair) for pair in turn.tolist()] for turn in turns]
    assert sorted(found[0] + found[1]) == sorted(pairs)
    assert not any(meets(turn, processes) for turn in found)
    assert sum(load(turn, processes) for turn in found) <= 1.25 * load(pairs, processes)
    return found


def test_every_permutation_of_six_devices_on_three_hosts():
    """Two turns are found wherever there are any that are worth it."""
    processes = (0, 0, 1, 1, 2, 2)
    for order in itertools.permutations(range(6)):
        pairs = list(enumerate(order))
        crossing = [pair for pair in pairs if processes[pair[0]] != processes[pair[1]]]
        found = checked(pairs, processes)
        assert (found is not None) == (meets(pairs, processes) and worth_it(crossing, processes)), pairs


def worth_it(crossing, processes):
    for late in itertools.product((False, True), repeat=len(crossing)):
        turns = [[pair for pair, is_late in zip(crossing, late, strict=True) if is_late == turn] for turn in (0, 1)]
        apart = not any(meets(turn, processes) for turn in turns)
        if apart and sum(load(turn, processes) for turn in turns) <= 1.25 * load(crossing, processes):
            return True
    return False


def test_two_hosts_that_swap_send_half_of_it_each_way_in_each_turn():
    processes = [0, 0, 0, 0, 1, 1, 1, 1]
    turns = checked([(k, k ^ 4) for k in range(8)], processes)
    assert [load(turn, processes) for turn in turns] == [2, 2]


def test_one_pair_alone_cannot_but_meet():
    assert checked([(0, 1), (1, 0)], [0, 1]) is None


def test_a_ring_never_meets():
    assert checked([(k, (k + 1) % 4) for k in range(4)], range(4)) is None


def test_within_a_process_nothing_waits():
    assert checked([(0, 1), (1, 0)], [0, 0]) is None


@st.composite
def permutes(draw, most):
    """The pairs of a permute of some of at most so many devices, and the process of each device."""
    devices = draw(st.integers(2, most))
    processes = draw(st.lists(st.integers(0, 3), min_size=devices, max_size=devices))
    receivers = draw(st.permutations(range(devices)))
    kept = draw(st.lists(st.booleans(), min_size=devices, max_size=devices))
    return [pair for pair, keep in zip(enumerate(receivers), kept, strict=True) if keep], processes


@given(permutes(12))
def test_any_pairs_on_any_hosts(permute):
    checked(*permute)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda ends: ends[0] != ends[1])))
def test_swaps_are_directed_so_that_every_process_sends_as_often_as_it_receives(hosts):
    """Swap k is between the devices 2k and 2k + 1; several swaps may have the same two processes."""
    processes = [process for ends in hosts for process in ends]
    swaps = [(2 * k, 2 * k + 1) for k in range(len(hosts))]
    directed = _oriented(swaps, processes) if swaps else set()
    assert {tuple(sorted(pair)) for pair in directed} == set(swaps) and len(directed) == len(swaps)
    sent, received = (Counter(processes[pair[k]] for pair in directed) for k in (0, 1))
    for process in set(processes):
        assert abs(sent[process] - received[process]) == (sent[process] + received[process]) % 2


def handed_on(pairs, processes):
    """What comes where: after the pairs of a permute, and after those that hand on; checked to be what was asked."""
    found = relayed(np.array(pairs, np.int64).reshape(-1, 2), processes)
    if found is None:
        return None
    first, second = ([tuple(pair) for pair in turn.tolist()] for turn in found)
    assert not meets(first, processes)
    assert load(first, processes) == load(pairs, processes)
    assert all(processes[a] == processes[b] for a, b in second)
    for turn in (first, second):
        assert all(len(set(ends)) == len(turn) for ends in zip(*turn, strict=True))
    came = {b: a for a, b in first}
    late = {b: came[a] for a, b in second}
    end = {b: late.get(b, came.get(b)) for _, b in pairs}
    assert end == {b: a for a, b in pairs}
    assert not {a for a, _ in second} & {b for _, b in pairs}  # who hands on receives nothing of its own
    return first, second


def test_every_permutation_of_some_of_six_devices_on_three_hosts():
    """A swap of devices whose hosts have others that receive nothing is always handed on."""
    processes = (0, 0, 1, 1, 2, 2)
    seen = 0
    for order in itertools.permutations(range(6)):
        pairs = [(a, b) for a, b in enumerate(order) if a != b]
        free = set(range(6)) - {b for _, b in pairs}
        swaps = [(a, b) for a, b in pairs if a < b and (b, a) in pairs and processes[a] != processes[b]]
        found = handed_on(pairs, processes)
        assert found is None or swaps
        if len(swaps) == 1 and {processes[k] for k in free} & {processes[k] for k in swaps[0]}:
            assert found is not None
            seen += 1
    assert seen


@given(permutes(10))
def test_any_pairs_handed_on_among_any_hosts(permute):
    handed_on(*permute)


CASES = [  # on hosts of two devices each: swaps, an all-to-all over all hosts, sums, gathers of two
    ("[512{x}1024, 1024]", "[1024, 512{x}1024]"),
    ("[512{x}1024, 512{y}1024]", "[512{y}1024, 512{x}1024]"),
    ("[512{x,y}2048, 2048]", "[2048, 512{x,y}2048]"),
    ("[256{x,y}1024, 1024]", "[512{x}1024, 1024]"),
    ("[1024, 1024] sum{x}", "[512{x}1024, 1024]"),
    ("[1024, 1024] sum{x,y}", "[256{x,y}1024, 1024]"),
    ("[1024{x,z}4096, 1024{y}2048]", "[1024{z,x}4096, 1024{y}2048]"),  # one swap a host: handed on
]


def compiled(source, target, dtype="float32", hosts=None, **options):
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=(jax.sharding.AxisType.Explicit,) * 3)
    model = "tpu" if hosts is None else replace(PRESETS["tpu"], name="half duplex", swap_bandwidth=1e9)
    plan = rd.synthesize(source, target, {"x": 2, "y": 2, "z": 2}, dtype=dtype, topology=hosts, machine=model)
    return plan, rd.to_jax(plan, mesh, stacked="sum" in source, **options)


def sends(text):
    """The pairs of every permute of a compiled program."""
    found = re.findall(r"collective-permute\(.*source_target_pairs=\{\{(.*?)\}\}", text)
    return [[tuple(map(int, pair.split(","))) for pair in one.split("},{")] for one in found]


def gathered(text):
    """The groups of every all-gather of a compiled program, whose notation depends on the version of JAX."""
    module = parse_module(text)
    return [
        replica_groups(instruction, module.devices)
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if instruction.opcode == "all-gather"
    ]


@pytest.fixture
def two_devices_a_process(monkeypatch):
    """Eight devices as four processes would have them: what is lowered for them, run here."""
    monkeypatch.setattr(Platform, "of", classmethod(lambda cls, mesh: Platform("cpu", (0, 0, 1, 1, 2, 2, 3, 3))))
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)  # then no sum is left to the platform


@pytest.mark.parametrize(("source", "target"), CASES)
def test_the_same_values_and_no_swap(source, target, two_devices_a_process):
    plan, move = compiled(source, target)
    summands = plan.before.summands if "sum" in source else 1
    values = (
        np.arange(summands * plan.source.global_size, dtype=np.float32).reshape(-1, *plan.source.global_shape) % 251
    )
    given_ = jax.device_put(values if "sum" in source else values[0], move.source_sharding)
    result = move(given_)
    np.testing.assert_array_equal(np.asarray(result), values.sum(0))
    text = jax.jit(move).lower(given_).compile().as_text()
    sent = sends(text)
    assert sent
    assert not any(meets(pairs, (0, 0, 1, 1, 2, 2, 3, 3)) for pairs in sent)
    assert "all-to-all(" not in text
    assert {*gathered(text)} <= {((0, 1), (2, 3), (4, 5), (6, 7))}  # within hosts


def test_a_swap_is_handed_on_by_who_keeps_its_tile(monkeypatch):
    """On hosts of 1, 2, 2 and 3 devices 1 and 6 would swap; 0, 2, 5 and 7 keep what they hold, and get it back."""
    processes = (0, 1, 1, 2, 2, 3, 3, 3)
    monkeypatch.setattr(Platform, "of", classmethod(lambda cls, mesh: Platform("cpu", processes)))
    _, move = compiled("[2097152{x}4194304]", "[1048576{x,z}4194304]", hosts=processes)
    values = np.arange(4194304, dtype=np.float32)
    given_ = jax.device_put(values, move.source_sharding)
    result = move(given_)
    for shard in result.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), values[shard.index])
    text = jax.jit(move).lower(given_).compile().as_text()
    turns = sends(text)
    assert [len(turn) for turn in turns] == [4, 1] and not any(meets(turn, processes) for turn in turns)


@pytest.mark.parametrize(
    ("source", "groups"),
    [
        ("[256{x,z}1024, 1024]", ((0, 1, 4, 5), (2, 3, 6, 7))),  # as told, {0,4,1,5}: from host to host at every device
        ("[1024, 256{x,z}1024]", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("[256{z,x}1024, 1024]", ((0, 1, 4, 5), (2, 3, 6, 7))),  # as told
        ("[128{x,y,z}1024, 1024]", ((0, 1, 2, 3, 4, 5, 6, 7),)),
    ],
)
def test_gathers_go_around_a_ring_of_hosts(source, groups, two_devices_a_process):
    _, move = compiled(source, "[1024, 1024]")
    values = np.arange(1024 * 1024, dtype=np.float32).reshape(1024, 1024)
    given_ = jax.device_put(values, move.source_sharding)
    np.testing.assert_array_equal(np.asarray(move(given_)), values)
    text = jax.jit(move).lower(given_).compile().as_text()
    assert gathered(text) == [groups]


@pytest.mark.parametrize(
    ("source", "target"),
    [("[1024{y}2048, 512]", "[1024{z}2048, 512]"), ("[2048{x}4096, 512]", "[1024{x,z}4096, 512]")],
)
def test_who_keeps_its_tile_sends_it_where_there_are_hosts(source, target, two_devices_a_process):
    plan, move = compiled(source, target, hosts="aabbccdd")
    values = np.arange(plan.source.global_size, dtype=np.float32).reshape(plan.source.global_shape)
    given_ = jax.device_put(values, move.source_sharding)
    np.testing.assert_array_equal(np.asarray(move(given_)), values)
    text = jax.jit(move).lower(given_).compile().as_text()
    (pairs,) = sends(text)  # neither twice, nor on
    assert not meets(pairs, (0, 0, 1, 1, 2, 2, 3, 3))


def test_small_shares_meet(two_devices_a_process):
    _, move = compiled("[4{x}8, 8]", "[8, 4{x}8]")
    text = jax.jit(move).lower(jax.ShapeDtypeStruct((8, 8), "float32", sharding=move.source_sharding)).compile()
    assert "all-to-all(" in text.as_text()


@pytest.mark.parametrize(("schedule", "permutes"), [(None, 2), ("sequential", 1)])
def test_in_sequence_there_is_no_room_for_a_second_buffer(schedule, permutes, two_devices_a_process):
    _, move = compiled("[512{x}1024, 512{y}1024]", "[512{y}1024, 512{x}1024]", schedule=schedule)
    argument = jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=move.source_sharding)
    pairs = re.findall(r"source_target_pairs = dense<(\[\[.*?\]\])>", jax.jit(move).lower(argument).as_text())
    assert len(set(pairs)) == permutes


@pytest.mark.parametrize(("platform", "processes", "least"), [("cpu", 1, None), ("cpu", 4, 2**19), ("gpu", 4, None)])
def test_only_between_processes_on_cpus(platform, processes, least):
    assert quirks_of(platform, processes).half_duplex_bytes == least


@pytest.mark.parametrize(("source", "target"), [CASES[0], ("[512{y}1024, 1024]", "[1024, 1024]")])
def test_turns_choose_between_no_tiles(source, target, two_devices_a_process):
    """Who receives in the other turn writes where something else will stand, rather than what it finds there."""
    _, move = compiled(source, target)
    given_ = jax.ShapeDtypeStruct(move.plan.source.global_shape, np.float32, sharding=move.source_sharding)
    text = jax.jit(move).lower(given_).as_text()
    assert len(re.findall("collective_permute", text)) > 1
    assert not re.search(r"stablehlo\.select.*tensor<\d{2,}", text)
