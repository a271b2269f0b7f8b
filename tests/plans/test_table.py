"""What `print(plan)` shows."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import numpy as np
import pytest

from redistrib.lang.mesh import Mesh
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllToAll, DynSlice
from redistrib.plans.table import step_name
from tests.plans.hand import GOOD, place, plan

THREE_PHASES = """\
[4{x}8, 8] -> [8, 4{x}8]
float32 over 8 devices, mesh {x:2, y:2, z:2}; algorithm by hand, cost in elements by machine='exact'

#   step            groups          type after           tile   received per device   cost
------------------------------------------------------------------------------------------
    source                          [4{x}8, 8]     32 (128 B)
1   dynslice 0                      [2{y,x}8, 8]    16 (64 B)                     0      0
2   alltoall 0->1   2 groups of 4   [8, 2{y,x}8]    16 (64 B)             12 (48 B)     96
3   allgather 1     4 groups of 2   [8, 4{x}8]     32 (128 B)             16 (64 B)    128
------------------------------------------------------------------------------------------
    total           2 collectives                                        28 (112 B)    224

lower bound: 16 (64 B) per device; received is 1.75 times the bound
height: 32 (128 B), the largest tile on the way; predicted peak 512 B per device"""

FOUR_TO_SIX = """\
[3{x}12] -> [2{y}12]
float32 over 24 devices, mesh {x:4, y:6}; algorithm by hand, cost in elements by machine='exact'

#   step         groups                 type after       tile       received per device   cost
----------------------------------------------------------------------------------------------
    source                              [3{x}12]     3 (12 B)
1   exchange 0   24 boxes in 6 rounds   [2{y}12]      2 (8 B)   1.50 (6 B), max 2 (8 B)
----------------------------------------------------------------------------------------------
    total        6 collectives                                  1.50 (6 B), max 2 (8 B)     36

lower bound: 1.50 (6 B), max 2 (8 B) per device; received is 1.00 times the bound
height: 3 (12 B), the largest tile on the way; predicted peak 44 B per device"""


def test_a_plan_of_three_phases_with_the_price_of_each_step() -> None:
    assert str(replace(GOOD["three phases"](), step_costs=(0, 96, 128))) == THREE_PHASES


def test_devices_that_receive_different_amounts() -> None:
    assert str(GOOD["exchange 4 to 6"]()) == FOUR_TO_SIX


@pytest.mark.parametrize("name", GOOD)
def test_a_table_is_plain_text_of_bounded_width(name: str) -> None:
    text = str(GOOD[name]())
    assert "\x1b" not in text
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 118
    assert text == "\n".join(line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slice", "dynslice 0,1"),
        ("gather two dimensions", "allgather 0,1"),
        ("alltoall two to one", "alltoall 0,2->1"),
        ("permute", "allpermute"),
        ("exchange 4 to 6 in two dimensions", "exchange 1->0"),
    ],
)
def test_a_step_is_named_with_its_dimensions(name: str, expected: str) -> None:
    assert step_name(GOOD[name]().steps[0]) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slice", ""),
        ("gather two dimensions", "1 group of 6"),
        ("alltoall slicing", "2 groups of 2"),
        ("permute", "2 pairs"),
        ("exchange split shares", "8 boxes in 2 rounds"),
        ("exchange ragged", "24 boxes, ragged"),
    ],
)
def test_who_takes_part(name: str, expected: str) -> None:
    assert GOOD[name]().steps[0].participants == expected


def _over_prime_axes() -> Plan:
    """In between, 2 of the 4 parts of x cut the second dimension: only a prime axis says that."""
    mesh = Mesh.of("x=4")
    prime = mesh.prime().mesh
    halves = place("[4{x1}8, 2{x0}4]", prime)
    first = AllToAll(place("[2{x}8, 4]", mesh), halves, [[0, 1], [2, 3]])
    second = AllToAll(halves, place("[8, 1{x}4]", mesh), [[0, 2], [1, 3]])
    made = plan("[2{x}8, 4]", "[8, 1{x}4]", mesh, first, second)
    # the second step does not reach that target; what is shown is the table alone
    return replace(made, steps=(first, second))


def test_a_type_on_prime_axes_is_explained() -> None:
    text = str(_over_prime_axes())
    assert "[4{x1}8, 2{x0}4]" in text
    assert "\nx is made of x0:2, x1:2, minor to major\n" in text


def test_a_placement_that_no_type_means_is_shown_by_its_grid() -> None:
    made = GOOD["three phases"]()
    odd = replace(made.steps[0].after, index=made.steps[0].after.index[[2, 1, 0, *range(3, 8)]])
    text = str(replace(made, steps=(DynSlice(made.before, odd),)))
    assert "(no type) 2x8 tiles on a 4x1 grid" in text


def test_a_type_on_another_mesh_is_marked() -> None:
    text = str(GOOD["gather off axis"]())
    assert text.startswith("[2{x}12] -> [6{a}12] on {a:2, b:3}\n")
    assert "[6{a}12] on the target mesh" in text
    assert "[8, 1{x}4] on {x:4} in another device order\n" in str(GOOD["alltoall shuffled"]())


def test_a_tile_above_both_ends_is_pointed_out() -> None:
    cut, whole = place("[2{x}8, 4]", "x=4"), place("[8, 4]", "x=4")
    bounce = plan("[2{x}8, 4]", "[2{x}8, 4]", "x=4", AllGather(cut, whole, [[0, 1, 2, 3]]), DynSlice(whole, cut))
    text = str(bounce)
    assert "height: 32 (128 B), the largest tile on the way, above the larger of source and target, 8 (32 B);" in text
    assert "lower bound: 0 per device; nothing need be received" in text


def test_nothing_to_do() -> None:
    assert "lower bound: 0 per device; nothing is received" in str(GOOD["nothing to do"]())


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (45.6e-6, "45.6 us"), (7.8e-9, "7.8 ns"), (0.0, "0 ns")]
)
def test_seconds_are_shown_in_their_unit(seconds: float, shown: str) -> None:
    made = replace(GOOD["alltoall"](), cost=seconds, unit="seconds", step_costs=(seconds,))
    assert len(re.findall(rf"  {shown}$", str(made), re.MULTILINE)) == 2


def test_tiles_are_shown_in_every_unit() -> None:
    for k, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")):
        made = GOOD["alltoall"]()
        assert f" ({made.before.tile_size} {unit})" in str(replace(made, itemsize=1024**k))


def test_sizes_are_shown_in_binary_units_and_long_types_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a{k}" for k in range(12)]
    mesh = Mesh.of(dict.fromkeys(names, 2))
    position = np.arange(4096).reshape(2, -1)
    rest = ", ".join(f"2048{{{name}}}4096" for name in names[1:6])
    source, target = f"[2048{{a0}}4096, {rest}]", f"[4096, {rest}]"
    made = plan(source, target, mesh, AllGather(place(source, mesh), place(target, mesh), position.T))
    monkeypatch.setattr("os.get_terminal_size", lambda fd: os.terminal_size((100, 40)))
    text = str(made)
    assert max(map(len, text.splitlines())) <= 100
    assert "7.379e+19 (256 EiB)" in text
    assert "7.379e+19 (256 EiB)" in text.splitlines()[-5]
    for name in names[:6]:
        assert text.count(f"2048{{{name}}}4096") >= 2


def test_the_table_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("COLUMNS", "40"), ("FORCE_COLOR", "1"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    assert str(GOOD["exchange 4 to 6"]()) == FOUR_TO_SIX


def test_repr_is_one_line() -> None:
    assert repr(GOOD["three phases"]()) == (
        "<Plan [4{x}8, 8] on {x:2, y:2, z:2} -> [8, 4{x}8] on {x:2, y:2, z:2}: dynslice, alltoall, allgather>"
    )
    assert repr(GOOD["nothing to do"]()) == "<Plan [2{x}4] on {x:2} -> [2{x}4] on {x:2}: no steps>"
