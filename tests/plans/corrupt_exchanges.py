"""Every way an exchange can be wrong."""

from __future__ import annotations

from dataclasses import replace

from redistrib.plans.plan import Plan
from redistrib.plans.steps import Exchange
from tests.plans.columns import columns_of, table_of
from tests.plans.corrupt import Corruption, with_share, with_step, without_share
from tests.plans.hand import GOOD, place, plan, shares


def _twice() -> Plan:
    """Devices 0 and 1 hold one tile, and both send it to device 2."""
    before, after = place("[2{x}4, 3]", "x=2,y=2"), place("[4, 3]", "x=2,y=2")
    rows = [(2, 0, 0), (3, 1, 0), (0, 2, 0), (1, 3, 0), (1, 2, 1)]
    table = shares(*((src, dst, k, [src // 2 * 2, 0], [2, 3]) for src, dst, k in rows))
    return plan("[2{x}4, 3]", "[4, 3]", "x=2,y=2", Exchange(before, after, table))


def _kept_and_sent() -> Plan:
    """Device 1 is sent what it holds already."""
    before, after = place("[2{x}4, 3]", "x=2,y=2"), place("[4, 3]", "x=2,y=2")
    rows = [(2, 0, 0), (3, 1, 0), (0, 2, 0), (1, 3, 0), (0, 1, 1)]
    table = shares(*((src, dst, k, [src // 2 * 2, 0], [2, 3]) for src, dst, k in rows))
    return plan("[2{x}4, 3]", "[4, 3]", "x=2,y=2", Exchange(before, after, table))


def _too_short() -> Plan:
    """All shares of round 0 lack their last column."""
    made = GOOD["exchange split shares"]()
    step = made.steps[0]
    assert isinstance(step, Exchange)
    columns = columns_of(step.shares)
    columns["size"][step.shares.round == 0] = [2, 2]
    return replace(made, steps=(replace(step, shares=table_of(**columns)),))


EXCHANGE_CORRUPTIONS = [
    Corruption(
        "an unknown implementation",
        lambda: with_step("exchange 4 to 6", 1, implementation="carrier pigeon"),
        "implementation",
        1,
        None,
        ("step 1 (exchange) is to run as 'carrier pigeon'; an exchange runs as 'rounds' or 'ragged'"),
    ),
    Corruption(
        "shares of another rank",
        lambda: with_step("exchange 4 to 6", 1, shares=shares((0, 1, 0, [0, 0], [1, 1]))),
        "share rank",
        1,
        None,
        "step 1 (exchange) has boxes of rank 2 and 2 (start and size), its array has rank 1",
    ),
    Corruption(
        "a sender beyond the mesh",
        lambda: with_share("exchange 4 to 6", 0, sender=24),
        "device number",
        1,
        24,
        "step 1 (exchange) names device 24 in a box; the devices are 0 to 23",
    ),
    Corruption(
        "a receiver beyond the mesh",
        lambda: with_share("exchange 4 to 6", 0, receiver=-3),
        "device number",
        1,
        -3,
        "step 1 (exchange) names device -3 in a box; the devices are 0 to 23",
    ),
    Corruption(
        "a share to the sender",
        lambda: with_share("exchange split shares", 0, receiver=2),
        "self send",
        1,
        2,
        "step 1 (exchange) has device 2 send to itself; what a device keeps is no box",
    ),
    Corruption(
        "a share without elements",
        lambda: with_share("exchange split shares", 0, size=[0, 3]),
        "empty share",
        1,
        2,
        ("step 1 (exchange) has device 2 send device 0 a box of size (0, 3); leave out boxes without elements"),
    ),
    Corruption(
        "a share of negative size",
        lambda: with_share("exchange split shares", 0, size=[2, -3]),
        "empty share",
        1,
        2,
        ("step 1 (exchange) has device 2 send device 0 a box of size (2, -3); leave out boxes without elements"),
    ),
    Corruption(
        "a share that its sender does not hold",
        lambda: with_share("exchange split shares", 0, sender=1),
        "share not held",
        1,
        1,
        "step 1 (exchange) has device 1 send [4:6, 0:3], but it holds [0:4, 0:3]",
    ),
    Corruption(
        "a share that sticks out of what its sender holds",
        lambda: with_share("exchange split shares", 4, size=[3, 3]),
        "share not held",
        1,
        3,
        "step 1 (exchange) has device 3 send [6:9, 0:3], but it holds [4:8, 0:3]",
    ),
    Corruption(
        "a share whose end does not fit 64 bits",
        lambda: with_share("exchange split shares", 4, size=[2**63 - 1, 3]),
        "share not held",
        1,
        3,
        "step 1 (exchange) has device 3 send [6:9223372036854775813, 0:3], but it holds [4:8, 0:3]",
    ),
    Corruption(
        "a share that starts too early by more than 64 bits hold",
        lambda: with_share("exchange split shares", 4, start=[-(2**63), 0]),
        "share not held",
        1,
        3,
        (
            "step 1 (exchange) has device 3 send [-9223372036854775808:-9223372036854775806, 0:3], but "
            "it holds [4:8, 0:3]"
        ),
    ),
    Corruption(
        "a share that its receiver does not need",
        lambda: with_share("exchange split shares", 0, receiver=3),
        "share not wanted",
        1,
        3,
        "step 1 (exchange) has device 3 receive [4:6, 0:3], but it ends with [0:4, 0:3]",
    ),
    Corruption(
        "a round number beyond the number of shares",
        lambda: with_share("exchange 4 to 6", 0, round=10**12),
        "round number",
        1,
        6,
        (
            "step 1 (exchange) has a box in round 1000000000000; 24 boxes travel in rounds numbered "
            "from 0, at most to 23"
        ),
    ),
    Corruption(
        "a negative round",
        lambda: with_share("exchange 4 to 6", 0, round=-1),
        "round number",
        1,
        6,
        ("step 1 (exchange) has a box in round -1; 24 boxes travel in rounds numbered from 0, at most to 23"),
    ),
    Corruption(
        "a round left out",
        lambda: with_share("exchange split shares", slice(4, 8), round=2),
        "round number",
        1,
        None,
        ("step 1 (exchange) has no box in round 1, but some in round 2; rounds are numbered without gaps"),
    ),
    Corruption(
        "two sends in a round",
        lambda: with_share("exchange split shares", 0, sender=3),
        "round sender",
        1,
        3,
        ("step 1 (exchange) has device 3 send more than one box in round 0; put them in different rounds"),
    ),
    Corruption(
        "two receipts in a round",
        lambda: with_share("exchange split shares", 0, receiver=1),
        "round receiver",
        1,
        1,
        ("step 1 (exchange) has device 1 receive more than one box in round 0; put them in different rounds"),
    ),
    Corruption(
        "the same elements twice, in part",
        lambda: with_share("exchange split shares", slice(0, 4), start=[[5, 0], [6, 0], [0, 0], [2, 0]]),
        "overlapping shares",
        1,
        0,
        (
            "step 1 (exchange) fills [6:7, 0:3] of device 0 twice: device 2 sends [5:7, 0:3] and device"
            " 3 sends [6:8, 0:3]"
        ),
    ),
    Corruption(
        "the same share from two holders",
        _twice,
        "overlapping shares",
        1,
        2,
        (
            "step 1 (exchange) fills [0:2, 0:3] of device 2 twice: device 0 sends [0:2, 0:3] and device"
            " 1 sends [0:2, 0:3]"
        ),
    ),
    Corruption(
        "a whole meet doubled, another missing",
        lambda: with_share("exchange to larger", 13, sender=2, start=[4, 0], round=3),
        "overlapping shares",
        1,
        5,
        "step 1 (exchange) fills [4:5, 0:4] of device 5 twice: device 2 sends [4:5, 0:4] and device 2 sends [4:5, 0:4]",
    ),
    Corruption(
        "a share doubled, another missing",
        lambda: with_share("exchange split shares", 0, sender=3, start=[6, 0], round=2),
        "overlapping shares",
        1,
        0,
        "step 1 (exchange) fills [6:8, 0:3] of device 0 twice: device 3 sends [6:8, 0:3] and device 3 sends [6:8, 0:3]",
    ),
    Corruption(
        "a share of what the receiver keeps",
        _kept_and_sent,
        "overlapping shares",
        1,
        1,
        ("step 1 (exchange) fills [0:2, 0:3] of device 1 twice: it keeps [0:2, 0:3] and device 0 sends [0:2, 0:3]"),
    ),
    Corruption(
        "a share left out",
        lambda: without_share("exchange split shares", 7),
        "uncovered tile",
        1,
        3,
        (
            "step 1 (exchange) fills only 6 of the 12 elements [0:4, 0:3] of device 3; what it keeps "
            "and what it receives must fill its tile"
        ),
    ),
    Corruption(
        "a whole meet left out",
        lambda: without_share("exchange to larger", -1),
        "uncovered tile",
        1,
        5,
        (
            "step 1 (exchange) fills only 8 of the 12 elements [3:6, 0:4] of device 5; what it keeps "
            "and what it receives must fill its tile"
        ),
    ),
    Corruption(
        "a share too short",
        _too_short,
        "uncovered tile",
        1,
        0,
        (
            "step 1 (exchange) fills only 10 of the 12 elements [4:8, 0:3] of device 0; what it keeps "
            "and what it receives must fill its tile"
        ),
    ),
    Corruption(
        "no shares where some are needed",
        lambda: with_step("exchange split shares", 1, shares=GOOD["exchange nothing"]().steps[0].shares),
        "uncovered tile",
        1,
        0,
        (
            "step 1 (exchange) fills only 0 of the 12 elements [4:8, 0:3] of device 0; what it keeps "
            "and what it receives must fill its tile"
        ),
    ),
]
