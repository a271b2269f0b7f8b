"""Plans over device sets that differ, changed in one place: what must be said of devices that hold nothing."""

from __future__ import annotations

from dataclasses import replace

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllReduce, DynSlice, Exchange, Step, Unreduce
from redistrib.theory.placement import Placement, placement_of
from tests.plans.corrupt import Corruption, forged
from tests.plans.hand import place, plan, shares

HERE, THERE = Mesh.of("x=2"), Mesh.of("x=2", (2, 3))
ROWS, COLUMNS, WHOLE = "[2{x}4, 2]", "[4, 1{x}2]", "[4, 2]"


def on(notation: str, mesh: Mesh) -> Placement:
    """A placement among four devices."""
    return placement_of(DistType.of(notation), mesh, 4)


def crossed() -> Exchange:
    """Rows of the first two devices to the last two."""
    return Exchange(on(ROWS, HERE), on(ROWS, THERE), shares((0, 2, 0, [0, 0], [2, 2]), (1, 3, 0, [2, 0], [2, 2])))


def gathered() -> AllGather:
    """All rows on both of the last two devices."""
    return AllGather(on(ROWS, THERE), on(WHOLE, THERE), [[2, 3]])  # type: ignore[arg-type]  # made an array


def good(*steps: Step, target: str = WHOLE) -> Plan:
    """Rows on two devices to an array that two others hold whole."""
    return plan(ROWS, target, HERE, *(steps or (crossed(), gathered())), target_mesh=THERE)


def _with_shares(*rows: tuple[int, int, int, list[int], list[int]]) -> Plan:
    return good(replace(crossed(), shares=shares(*rows)), gathered())


_FIRST, _SECOND = (0, 2, 0, [0, 0], [2, 2]), (1, 3, 0, [2, 0], [2, 2])
_HALF = forged(on(WHOLE, THERE), index=[[-1, -1], [-1, 0], [0, 0], [0, 0]])


ALONE = placement_of(DistType.of("[4]"), Mesh.of("x=1"), 2)
BOTH, SUMMANDS = place("[4]", "x=2"), place("[4] sum{x}", "x=2")


def _waiting(source: str, target: str) -> Plan:
    """Of whole arrays, but for summands at one end; in the middle the second device holds nothing."""
    moves = DynSlice(BOTH, ALONE), Exchange(ALONE, BOTH, shares((0, 1, 0, [0], [4])))
    if source == "[4]":
        return plan(source, target, "x=2", *moves, Unreduce(BOTH, SUMMANDS, [0]))  # type: ignore[arg-type]
    return plan(source, target, "x=2", AllReduce(SUMMANDS, BOTH, [[0, 1]]), *moves)  # type: ignore[arg-type]


DEVICE_CORRUPTIONS = [
    Corruption(
        "a group of devices that hold nothing",
        lambda: good(crossed(), replace(gathered(), groups=[[2, 3], [0, 1]])),
        "nothing held",
        2,
        0,
        "step 2 (allgather) has device 0 send its tile, but it holds nothing; leave it out",
    ),
    Corruption(
        "a member that holds nothing",
        lambda: good(crossed(), replace(gathered(), groups=[[2, 1]])),
        "nothing held",
        2,
        1,
        "step 2 (allgather) has device 1 send its tile, but it holds nothing; leave it out",
    ),
    Corruption(
        "no group of those that hold a tile",
        lambda: good(crossed(), replace(gathered(), groups=[[2]])),
        "missing member",
        2,
        3,
        "step 2 (allgather) has device 3 in no group; groups partition the devices, a device with nothing to do "
        "included",
    ),
    Corruption(
        "a gather that brings a tile to one in no group",
        lambda: good(crossed(), replace(gathered(), after=on(WHOLE, Mesh.of("x=3", (1, 2, 3))))),
        "idle tile",
        2,
        1,
        "step 2 (allgather) gives device 1, which held nothing and is in no group, [0:4, 0:2]",
    ),
    Corruption(
        "a permute from one that holds nothing",
        lambda: good(crossed(), AllPermute(on(ROWS, THERE), on(ROWS, THERE), [[0, 1]]), target=ROWS),  # type: ignore[arg-type]
        "nothing held",
        2,
        0,
        "step 2 (allpermute) has device 0 send its tile, but it holds nothing; leave it out",
    ),
    Corruption(
        "a share of one that holds nothing",
        lambda: _with_shares(_FIRST, (2, 3, 0, [2, 0], [2, 2])),
        "share not held",
        1,
        2,
        "step 1 (exchange) has device 2 send [2:4, 0:2], but it holds nothing",
    ),
    Corruption(
        "a share in front of the array",
        lambda: _with_shares(_FIRST, (2, 3, 0, [-2, -2], [2, 2])),
        "share not held",
        1,
        2,
        "step 1 (exchange) has device 2 send [-2:0, -2:0], but it holds nothing",
    ),
    Corruption(
        "a share to one that ends with nothing",
        lambda: _with_shares(_FIRST, _SECOND, (0, 1, 1, [0, 0], [2, 2])),
        "share not wanted",
        1,
        1,
        "step 1 (exchange) has device 1 receive [0:2, 0:2], but it ends with nothing",
    ),
    Corruption(
        "a share left out",
        lambda: _with_shares(_FIRST),
        "uncovered tile",
        1,
        3,
        "step 1 (exchange) fills only 0 of the 4 elements [2:4, 0:2] of device 3; what it keeps and what it receives "
        "must fill its tile",
    ),
    Corruption(
        "a slice of nothing",
        lambda: good(DynSlice(on(ROWS, HERE), on(ROWS, THERE)), gathered()),
        "slice outside tile",
        1,
        2,
        "step 1 (dynslice) leaves device 2 with [0:2, 0:2], which is not part of the nothing it held",
    ),
    Corruption(
        "an end on too few devices",
        lambda: good(crossed(), gathered(), DynSlice(on(WHOLE, THERE), on(WHOLE, Mesh.of("x=1", (2,))))),
        "wrong end",
        3,
        3,
        "the plan ends with device 3 holding nothing, where the target [4, 2] gives it [0:4, 0:2]",
    ),
    Corruption(
        "an index that is -1 in part",
        lambda: good(crossed(), replace(gathered(), after=_HALF)),
        "tile index",
        2,
        1,
        "step 2 gives device 1 the tile (-1, 0), which is not on the grid (1, 1)",
    ),
    Corruption(
        "partial sums after a device held nothing",
        lambda: _waiting("[4]", "[4] sum{x}"),
        "summands everywhere",
        1,
        1,
        "after step 1 (dynslice) device 1 holds nothing, and after step 3 (unreduce) tiles are partial sums; in a plan "
        "that has partial sums every device holds a tile all the way",
    ),
    Corruption(
        "a device that holds nothing after partial sums",
        lambda: _waiting("[4] sum{x}", "[4]"),
        "summands everywhere",
        2,
        1,
        "after step 2 (dynslice) device 1 holds nothing, and at the source tiles are partial sums; in a plan "
        "that has partial sums every device holds a tile all the way",
    ),
    Corruption(
        "a source on some devices, and partial sums on the way",
        lambda: plan(
            "[4]",
            "[4]",
            Mesh.of("x=1"),
            Exchange(ALONE, BOTH, shares((0, 1, 0, [0], [4]))),
            Unreduce(BOTH, SUMMANDS, [0]),  # type: ignore[arg-type]
            AllReduce(SUMMANDS, BOTH, [[0, 1]]),  # type: ignore[arg-type]
            target_mesh=Mesh.of("x=2"),
        ),
        "summands everywhere",
        None,
        1,
        "at the source device 1 holds nothing, and after step 2 (unreduce) tiles are partial sums; in a plan "
        "that has partial sums every device holds a tile all the way",
    ),
]

# The others have no text: it tells what crosses between the devices of the ends, which is not known of summands.
WAITING_IN_TEXTS = [
    corruption
    for corruption in DEVICE_CORRUPTIONS
    if corruption.rule == "summands everywhere" and not corruption.make().leaves_devices_out
]
