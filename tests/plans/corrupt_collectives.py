"""Every way a gather, an all-to-all or a permute can be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll
from tests.plans.corrupt import Corruption, gather_4, moved, with_after, with_step
from tests.plans.hand import place, plan


def _gathered(groups: Any) -> Plan:
    return plan("[2{x}8, 4]", "[8, 4]", "x=4", AllGather(*gather_4(), groups))


def _permuted(pairs: Any) -> Plan:
    return with_step("permute", 1, pairs=np.array(pairs))


COLLECTIVE_CORRUPTIONS = [
    # groups
    Corruption(
        "a device beyond the mesh in a group",
        lambda: _gathered([[0, 1, 2, 4]]),
        "device number",
        1,
        4,
        "step 1 (allgather) names device 4 in a group; the devices are 0 to 3",
    ),
    Corruption(
        "a negative device in a group",
        lambda: _gathered([[0, 1, 2, -1]]),
        "device number",
        1,
        -1,
        "step 1 (allgather) names device -1 in a group; the devices are 0 to 3",
    ),
    Corruption(
        "a device twice in a group",
        lambda: _gathered([[0, 1, 2, 2]]),
        "duplicate member",
        1,
        2,
        "step 1 (allgather) names device 2 2 times, in groups [0]; groups partition the devices",
    ),
    Corruption(
        "a device in two groups",
        lambda: _gathered([[0, 1, 2, 3], [3, 2, 1, 0]]),
        "duplicate member",
        1,
        0,
        "step 1 (allgather) names device 0 2 times, in groups [0, 1]; groups partition the devices",
    ),
    Corruption(
        "a device in no group",
        lambda: _gathered([[0, 1, 2]]),
        "missing member",
        1,
        3,
        (
            "step 1 (allgather) has device 3 in no group; groups partition the devices, a device with "
            "nothing to do included"
        ),
    ),
    Corruption(
        "no groups",
        lambda: _gathered(np.zeros((0, 4), int)),
        "missing member",
        1,
        0,
        (
            "step 1 (allgather) has device 0 in no group; groups partition the devices, a device with "
            "nothing to do included"
        ),
    ),
    Corruption(
        "groups too small",
        lambda: _gathered([[0, 1], [2, 3]]),
        "group size",
        1,
        None,
        ("step 1 (allgather) has groups of 2, but goes from the grid (4, 1) to (1, 1), which merges 4 tiles into one"),
    ),
    Corruption(
        "groups too large",
        lambda: with_step("gather off axis", 1, groups=np.arange(6).reshape(1, 6)),
        "group size",
        1,
        None,
        ("step 1 (allgather) has groups of 6, but goes from the grid (6,) to (2,), which merges 3 tiles into one"),
    ),
    Corruption(
        "members out of order",
        lambda: _gathered([[0, 2, 1, 3]]),
        "member order",
        1,
        2,
        (
            "step 1 (allgather) lists device 2 as member 1 of group 0, but its tile is part 2 of what "
            "the group merges; list [0, 1, 2, 3]"
        ),
    ),
    Corruption(
        "members out of order over two dimensions",
        lambda: with_step("gather two dimensions", 1, groups=np.array([[0, 3, 1, 4, 2, 5]])),
        "member order",
        1,
        3,
        (
            "step 1 (allgather) lists device 3 as member 1 of group 0, but its tile is part 3 of what "
            "the group merges; list [0, 1, 2, 3, 4, 5]"
        ),
    ),
    Corruption(
        "members of an all-to-all in the order of the target",
        lambda: with_step("alltoall shuffled", 1, groups=np.array([[1, 3, 0, 2]])),
        "member order",
        1,
        1,
        (
            "step 1 (alltoall) lists device 1 as member 0 of group 0, but its tile is part 1 of what "
            "the group merges; list [0, 1, 2, 3]"
        ),
    ),
    Corruption(
        "members with the same tile",
        lambda: plan(
            "[2{x}4, 4]",
            "[4, 4]",
            "x=2,y=2",
            AllGather(place("[2{x}4, 4]", "x=2,y=2"), place("[4, 4]", "x=2,y=2"), [[0, 1], [2, 3]]),
        ),
        "repeated chunk",
        1,
        0,
        (
            "step 1 (allgather) has devices 0 and 1 in one group, both holding [0:2, 0:4]; a group "
            "merges different tiles"
        ),
    ),
    # gathers
    Corruption(
        "a gather that makes tiles smaller",
        lambda: plan("[8, 4]", "[2{x}8, 4]", "x=4", AllGather(*gather_4()[::-1], [[0], [1], [2], [3]])),
        "gather grid",
        1,
        None,
        (
            "step 1 (allgather) goes from the grid (1, 1) to (4, 1); a gather merges equally many tiles"
            " everywhere, so each count must divide the one before"
        ),
    ),
    Corruption(
        "a gather of tiles from elsewhere",
        lambda: with_step("gather off axis", 1, groups=np.array([[0, 1, 3], [2, 4, 5]])),
        "disjoint members",
        1,
        0,
        (
            "step 1 (allgather) has devices 3 and 0 in one group, but device 3 holds [6:8], none of it "
            "part of the [0:6] that device 0 ends with"
        ),
    ),
    Corruption(
        "a gather that ends elsewhere",
        lambda: with_after("gather off axis", 4, [0]),
        "disjoint members",
        1,
        4,
        (
            "step 1 (allgather) has devices 3 and 4 in one group, but device 3 holds [6:8], none of it "
            "part of the [0:6] that device 4 ends with"
        ),
    ),
    # all-to-alls
    Corruption(
        "an all-to-all from 4 to 6 tiles",
        lambda: plan(
            "[3{x}12]",
            "[2{y}12]",
            "x=4,y=6",
            AllToAll(place("[3{x}12]", "x=4,y=6"), place("[2{y}12]", "x=4,y=6"), np.arange(24).reshape(24, 1)),
        ),
        "all-to-all grid",
        1,
        None,
        (
            "step 1 (alltoall) goes from the grid (4,) to (6,); its boxes are of one shape only where "
            "in every dimension one count divides the other; an exchange has no such rule"
        ),
    ),
    Corruption(
        "an all-to-all with members that hold nothing of each other's tiles",
        lambda: with_step("alltoall", 1, groups=np.array([[0, 1, 6, 7], [4, 5, 2, 3]])),
        "disjoint members",
        1,
        0,
        (
            "step 1 (alltoall) has devices 6 and 0 in one group, but device 6 holds [4:8, 4:6], none of"
            " it part of the [0:1, 0:8] that device 0 ends with"
        ),
    ),
    Corruption(
        "an all-to-all that ends with what the group does not hold",
        lambda: plan(
            "[2{x}4, 2{y}4]",
            "[4, 1{y,x}4]",
            "x=2,y=2",
            AllToAll(
                place("[2{x}4, 2{y}4]", "x=2,y=2"), moved(place("[4, 1{x,y}4]", "x=2,y=2"), 2, [0, 2]), [[0, 2], [1, 3]]
            ),
        ),
        "disjoint members",
        1,
        2,
        (
            "step 1 (alltoall) has devices 0 and 2 in one group, but device 0 holds [0:2, 0:2], none of"
            " it part of the [0:4, 2:3] that device 2 ends with"
        ),
    ),
    Corruption(
        "an all-to-all between devices with the same tile",
        lambda: plan(
            "[2{a}4, 4]",
            "[4, 2{a}4]",
            "a=2,b=2",
            AllToAll(place("[2{a}4, 4]", "a=2,b=2"), place("[4, 2{a}4]", "a=2,b=2"), [[0, 1], [2, 3]]),
        ),
        "repeated chunk",
        1,
        0,
        ("step 1 (alltoall) has devices 0 and 1 in one group, both holding [0:2, 0:4]; a group merges different tiles"),
    ),
    # permutes
    Corruption(
        "a permute that changes the grid",
        lambda: plan("[2{x}8, 4]", "[8, 4]", "x=4", AllPermute(*gather_4(), [[0, 1]])),
        "permute grid",
        1,
        None,
        ("step 1 (allpermute) goes from the grid (4, 1) to (1, 1); a permute moves whole tiles, so the grid stays"),
    ),
    Corruption(
        "a pair beyond the mesh",
        lambda: _permuted([[2, 4], [1, 2]]),
        "device number",
        1,
        4,
        "step 1 (allpermute) names device 4 in a pair; the devices are 0 to 3",
    ),
    Corruption(
        "a device sending to itself",
        lambda: _permuted([[2, 1], [1, 2], [3, 3]]),
        "self send",
        1,
        3,
        "step 1 (allpermute) has device 3 send to itself; leave the pair out",
    ),
    Corruption(
        "a device sending twice",
        lambda: _permuted([[2, 1], [1, 2], [1, 3]]),
        "duplicate sender",
        1,
        1,
        ("step 1 (allpermute) has device 1 send 2 tiles; a permute moves at most one tile from and to each device"),
    ),
    Corruption(
        "a device receiving twice",
        lambda: _permuted([[2, 1], [0, 2], [1, 2]]),
        "duplicate receiver",
        1,
        2,
        ("step 1 (allpermute) has device 2 receive 2 tiles; a permute moves at most one tile from and to each device"),
    ),
    Corruption(
        "a pair from the wrong sender",
        lambda: _permuted([[3, 1], [1, 2]]),
        "permuted tile",
        1,
        1,
        ("step 1 (allpermute) sends device 1 the [4:8, 8:16] that device 3 holds, yet it ends with [4:8, 0:8]"),
    ),
    Corruption(
        "a pair left out",
        lambda: _permuted([[1, 2]]),
        "idle tile",
        1,
        1,
        "step 1 (allpermute) sends device 1 nothing, yet it goes from [0:4, 8:16] to [4:8, 0:8]",
    ),
    Corruption(
        "no pairs",
        lambda: _permuted(np.zeros((0, 2), int)),
        "idle tile",
        1,
        1,
        "step 1 (allpermute) sends device 1 nothing, yet it goes from [0:4, 8:16] to [4:8, 0:8]",
    ),
]
