"""Senders chosen so that devices of different hosts do not send to one another, and rounds that hosts share evenly."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redistrib as rd
from redistrib.cost.presets import PRESETS
from redistrib.synthesis import groups
from redistrib.synthesis.half_duplex import without_swaps
from redistrib.synthesis.host_balance import balanced_rounds
from redistrib.synthesis.rounds import edge_colouring
from redistrib.theory.topology import Topology
from tests.plans.columns import table_of

MESH = {"x": 2, "y": 2, "z": 2}
HOSTS = np.arange(8) // 2
TAKES_TURNS = replace(PRESETS["gpu"], name="half duplex", swap_bandwidth=25e9)
MOVES = [
    ("[1{y}2]", "[1{z}2]"),
    ("[4{x}8]", "[2{x,z}8]"),
    ("[4{x}8, 4{y}8]", "[4{y}8, 4{x}8]"),
    ("[1{x,y,z}8]", "[1{z,y,x}8]"),
]


def swaps(pairs, hosts):
    return [(a, b) for a, b in pairs if a < b and (b, a) in pairs and hosts[a] != hosts[b]]


def loads(pairs, hosts):
    """How many tiles each host sends to, and takes from, the others, and how many stay."""
    ends = [(hosts[a], hosts[b]) for a, b in pairs]
    return Counter(a for a, b in ends if a != b), Counter(b for a, b in ends if a != b), sum(a == b for a, b in ends)


def permute(source, target):
    plan = rd.synthesize(source, target, MESH, topology="aabbccdd", machine=TAKES_TURNS)
    (step,) = [step for step in plan.steps if step.kind == "allpermute"]
    rd.verify(plan)
    return [tuple(pair) for pair in step.pairs.tolist()]


def test_a_device_that_keeps_its_tile_sends_it():
    pairs = permute("[1{y}2]", "[1{z}2]")
    assert not swaps(pairs, HOSTS)
    assert {a for a, _ in pairs} - {b for _, b in pairs}  # some only send


def test_swaps_of_equal_tiles_become_a_ring():
    pairs = permute("[4{x}8]", "[2{x,z}8]")
    assert not swaps(pairs, HOSTS)
    assert loads(pairs, HOSTS)[0] == Counter(range(4))


@pytest.mark.parametrize("preset", ["gpu", "tpu"])
def test_presets_of_accelerators_plan_as_if_swaps_were_nothing_special(preset, monkeypatch):
    """Only a profile whose `swap_bandwidth` says so has its senders chosen again."""

    def refused(*_):
        raise AssertionError("senders are chosen again")

    monkeypatch.setattr(groups, "without_swaps", refused)
    for source, target in MOVES:
        rd.synthesize(source, target, MESH, topology="aabbccdd", machine=preset)
    with pytest.raises(AssertionError, match="chosen again"):
        rd.synthesize(*MOVES[0], MESH, topology="aabbccdd", machine=TAKES_TURNS)


@given(st.data())
def test_any_tiles_on_any_hosts(data):
    """The same receivers get the same tiles, no host has more to do, and no swap is new."""
    devices = data.draw(st.integers(2, 10))
    hosts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=devices, max_size=devices)))
    held = np.array(data.draw(st.lists(st.integers(0, 3), min_size=devices, max_size=devices)))
    wanted = held[np.array(data.draw(st.permutations(range(devices))))]
    moving = np.flatnonzero(held != wanted)
    senders = moving[np.argsort(held[moving], kind="stable")]
    receivers = moving[np.argsort(wanted[moving], kind="stable")]
    given_ = np.stack([senders, receivers], axis=1)
    found = without_swaps(given_, held, wanted, hosts)
    before, after = ([tuple(pair) for pair in table.tolist()] for table in (given_, found))
    assert [b for _, b in after] == [b for _, b in before]
    assert all(held[a] == wanted[b] for a, b in after)
    assert len({a for a, _ in after}) == len(after)
    assert loads(after, hosts) == loads(before, hosts)
    assert len(swaps(after, hosts)) <= len(swaps(before, hosts))


def test_who_keeps_a_part_of_its_tile_sends_that_part_alone():
    """Source tiles 0 and 1 are made of the target tiles 0 and 1, and 2 and 3; devices 0, 1, 6 and 7 keep a part."""
    held, wanted, kept = (np.array(row) for row in ([0] * 4 + [1] * 4, [0, 0, 1, 1] * 2, [0, 1, 2, 3] * 2))
    pairs, hosts = np.array([[4, 2], [5, 3], [2, 4], [3, 5]]), np.array([0, 0, 0, 0, 1, 1, 1, 0])
    assert (held[pairs[:, 0]] == wanted[pairs[:, 1]]).all()
    found = without_swaps(pairs, held, kept, hosts)
    keepers = np.flatnonzero(held == wanted)
    assert [(a, b) for a, b in found.tolist() if a in keepers and kept[a] != kept[b]] == []
    assert (6, 2) in [tuple(pair) for pair in found.tolist()]


def most(shares, hosts):
    """Of every round, the shares through its busiest link."""
    result = []
    for turn in range(shares.rounds):
        rows = shares.round == turn
        pairs = list(zip(shares.sender[rows].tolist(), shares.receiver[rows].tolist(), strict=True))
        out, into, _ = loads(pairs, hosts)
        result.append(max([*out.values(), *into.values()], default=0))
    return result


def table(pairs, rounds):
    start = np.zeros((len(pairs), 1), dtype=np.int64)
    return table_of(
        np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]), start, start + 1, np.array(rounds)
    )


def test_busy_hosts_are_put_into_one_round():
    hosts = [0, 0, 1, 1]
    pairs = [(0, 2), (2, 1), (1, 0), (3, 2)]  # 2 -> 1 and 0 -> 2 leave their hosts, the others stay
    found = balanced_rounds(table(pairs, [0, 1, 0, 1]), Topology.of(hosts))
    assert sum(most(table(pairs, [0, 1, 0, 1]), hosts)) == 2
    assert sum(most(found, hosts)) == 1


@given(st.data())
def test_no_round_is_longer_and_the_same_shares_travel(data):
    devices = data.draw(st.integers(2, 8))
    hosts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=devices, max_size=devices)))
    ends = st.tuples(st.integers(0, devices - 1), st.integers(0, devices - 1)).filter(lambda pair: pair[0] != pair[1])
    pairs = data.draw(st.lists(ends, min_size=1, max_size=20, unique=True))
    given_ = table(pairs, edge_colouring(pairs))
    found = balanced_rounds(given_, Topology.of(hosts.tolist()))
    assert found.rounds == given_.rounds
    assert sorted(zip(found.sender.tolist(), found.receiver.tolist(), strict=True)) == sorted(pairs)
    for turn in range(found.rounds):
        rows = found.round == turn
        assert len(set(found.sender[rows].tolist())) == len(set(found.receiver[rows].tolist())) == rows.sum()
    before, after = most(given_, hosts), most(found, hosts)
    assert sum(after) <= sum(before)
    assert np.count_nonzero(after) <= np.count_nonzero(before)
