"""Collectives made of sends: recognised by what they do, and timed as what they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

import redistrib as rd
from redistrib.cost.chips import V100_BANDWIDTH, V100_LAUNCH, V100_LINK
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.collectives import recognised
from redistrib.programs.ir.program import Place, Value
from redistrib.programs.ir.spec import nest
from tests.programs.time.mlp import data_parallel, on, pipelined

N = 4


def kinds(b: Builder, *outs: Value) -> list[str]:
    return [found.kind for found in recognised(b.build(*outs))]


def each(b: Builder, name: str) -> list[Value]:
    return [b.input(f"{name}{k}", "[8]", on(k)) for k in range(N)]


def test_a_send() -> None:
    b = Builder()
    assert kinds(b, b.move(b.input("a", "[8]", on(0)), place=on(1))) == ["send"]


@pytest.mark.parametrize("tree", [False, True])
def test_a_broadcast_from_one_or_along_a_tree(tree: bool) -> None:
    b = Builder()
    a = b.input("a", "[8]", on(0))
    first = b.move(a, place=on(1))
    rest = [b.move(first if tree else a, place=on(k)) for k in (2, 3)]
    (found,) = recognised(b.build(first, *rest))
    assert (found.kind, found.devices, found.messages) == ("broadcast", (0, 1, 2, 3), 3)


def test_moves_to_several_devices_at_once() -> None:
    four = Place(rd.Mesh.of("d=4"))
    for form, kind in (("[8]", "broadcast"), ("[2{d}8]", "scatter")):
        b = Builder()
        assert kinds(b, b.move(b.input("a", "[8]", on(0)), form, four)) == [kind]
    b = Builder()
    assert kinds(b, b.move(b.input("a", "[2{d}8]", four), "[8]", on(0))) == ["gather"]


def test_a_permute() -> None:
    b = Builder()
    a = each(b, "a")
    assert kinds(b, *(b.move(a[k], place=on((k + 1) % N)) for k in range(N))) == ["permute"]


def ring(b: Builder, rounds: int = N - 1) -> list[Value]:
    """Every device passes on what it got: after three rounds all have all."""
    held, made = each(b, "a"), []
    for _ in range(rounds):
        held = [b.move(held[(k - 1) % N], place=on(k)) for k in range(N)]
        made += held
    return made


def test_d26_a_ring_is_an_all_gather() -> None:
    b = Builder()
    (found,) = recognised(b.build(*ring(b)))
    assert (found.kind, found.devices, found.messages) == ("allgather", (0, 1, 2, 3), N * (N - 1))


def test_a_round_less_is_none() -> None:
    b = Builder()
    assert kinds(b, *ring(b, N - 2)) == ["sends"]


def test_an_all_to_all() -> None:
    b = Builder()
    a = {(j, k): b.input(f"a{j}{k}", "[8]", on(j)) for j in range(N) for k in range(N) if j != k}
    assert kinds(b, *(b.move(a[j, k], place=on(k)) for j, k in a)) == ["alltoall"]


def test_computations_part_the_runs() -> None:
    b = Builder()
    a = b.input("a", "[8]", on(0))
    there = b.move(a, place=on(1))
    turned = b.compute(nest("i->i", (8,), name="negate", fn=np.negative), there)
    found = recognised(b.build(b.move(turned, place=on(0))))
    assert [(one.kind, one.first, one.last) for one in found] == [("send", 0, 0), ("send", 2, 2)]


def test_d26_the_sends_of_the_figures() -> None:
    assert [one.kind for one in recognised(pipelined())] == ["send"] * 4
    exchanged = [one.kind for one in recognised(data_parallel())]
    assert exchanged.count("send") == 4 and len(exchanged) == 4


def test_a_ring_of_sends_takes_two_turns_a_round() -> None:
    """A send blocks both its ends, so the four sends of a round go two by two."""
    b = Builder()
    found = rd.simulate(b.build(*ring(b)), "v100")
    one = V100_LAUNCH + 32 / V100_LINK + 32 / V100_BANDWIDTH
    assert math.isclose(found.busy[0], 2 * (N - 1) * one)
    assert found.received_bytes == dict.fromkeys(range(N), (N - 1) * 32)
