"""Typing rules: the paper's examples, every failing premise, and soundness against the meaning of types."""

from __future__ import annotations

import pytest

from redistrib.errors import RedistribError, TypeFormError, UnknownAxisError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from tests.primes import prime_type
from tests.specification.errors import RuleError
from tests.specification.rules import (
    PREMISES,
    AllGatherRule,
    AllPermuteRule,
    AllToAllRule,
    AxesCollective,
    Collective,
    DynSliceRule,
    derive,
)

XY = Mesh.of("x=4,y=4")


def ty(text: str) -> DistType:
    return DistType.parse(text)


# -------------------------------------------------------------------------------------- the paper's examples


def test_figure_2_and_listing_3_are_one_alltoall() -> None:
    """Figure 2: over 32 devices, columns of [32, 64] become rows of [1, 2048] by one all-to-all."""
    mesh = Mesh.of('"devs"=32')
    assert AllToAllRule(1, 0, ("devs",)).apply(ty('[32, 64{"devs"}2048]'), mesh) == ty('[1{"devs"}32, 2048]')


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("[64{ydev,xdev}2048, 128]", "[64{xdev,ydev}2048, 128]"),  # swap within dimension
        ("[32{xdev}128, 16{ydev}64]", "[32{ydev}128, 16{xdev}64]"),  # swap across dimensions
        ("[32{xdev}128]", "[32{ydev}128]"),  # swap for replicated axis
    ],
)
def test_example_2_1_and_figure_3_are_permutes(source: str, target: str) -> None:
    mesh = Mesh.of("xdev=4,ydev=4")
    if source.startswith("[64"):  # the figure's 2048 are 16 tiles of 128; its 64 is a slip
        source, target = source.replace("64{", "128{"), target.replace("64{", "128{")
    assert AllPermuteRule(ty(target)).apply(ty(source), mesh) == ty(target)
    assert AllPermuteRule(ty(source)).apply(ty(target), mesh) == ty(source)


def test_figure_4() -> None:
    mesh = Mesh.of("xdev=4,ydev=4")
    assert AllPermuteRule(ty("[32{ydev}128]")).apply(ty("[32{xdev}128]"), mesh) == ty("[32{ydev}128]")
    gathered = AllGatherRule(0, ("xdev",)).apply(ty("[32{xdev,ydev}512, 512]"), mesh)
    assert gathered == ty("[128{ydev}512, 512]")


def move(source: int, target: int, axis: str) -> AllToAllRule:
    return AllToAllRule(source, target, (axis,))


FIGURE_5 = [
    (
        ["[32{x,y}512, 128]", "[32{y,x}512, 128]", "[128{x}512, 32{y}128]"],
        [AllPermuteRule(ty("[32{y,x}512, 128]")), move(0, 1, "y")],
    ),
    (
        ["[32{x,y}512, 128]", "[128{y}512, 32{x}128]", "[128{x}512, 32{y}128]"],
        [move(0, 1, "x"), AllPermuteRule(ty("[128{x}512, 32{y}128]"))],
    ),
    (
        ["[32{x}128, 512, 32{y}128]", "[128, 128{x}512, 32{y}128]", "[128, 32{y,x}512, 128]"],
        [move(0, 1, "x"), move(2, 1, "y")],
    ),
    (
        [
            "[32{x}128, 512, 32{y}128]",
            "[32{x}128, 128{y}512, 128]",
            "[128, 32{x,y}512, 128]",
            "[128, 32{y,x}512, 128]",
        ],
        [move(2, 1, "y"), move(0, 1, "x"), AllPermuteRule(ty("[128, 32{y,x}512, 128]"))],
    ),
    (
        ["[32{x}128, 512, 32{y}128]", "[128, 512, 32{y}128]", "[128, 128{y}512, 128]"],
        [AllGatherRule(0, ("x",)), move(2, 1, "y")],
    ),
    (
        ["[32{x}128, 512, 32{y}128]", "[32{x}128, 128{y}512, 128]", "[128, 128{y}512, 128]"],
        [move(2, 1, "y"), AllGatherRule(0, ("x",))],
    ),
]


@pytest.mark.parametrize(("types", "collectives"), FIGURE_5)
def test_figure_5_both_sides_of_every_row(types: list[str], collectives: list[Collective]) -> None:
    assert [str(t) for t in derive(ty(types[0]), collectives, XY)] == types


def test_both_sides_of_a_row_of_figure_5_do_the_same() -> None:
    for left, right in zip(FIGURE_5[::2], FIGURE_5[1::2], strict=True):
        assert (left[0][0], left[0][-1]) == (right[0][0], right[0][-1])
        assert left[1] != right[1]


def test_example_3_1_on_the_prime_mesh_never_exceeds_a_tile_of_6() -> None:
    """Example 3.1: all-to-alls and permutes by turns, every tile of 6 elements, where the plain mesh gathers 144."""
    mesh = Mesh.of("x=4,y=6")
    prime = mesh.prime().mesh
    source = prime_type(ty("[3{x}12, 2{y}12]"), mesh)
    target = prime_type(ty("[2{y}12, 3{x}12]"), mesh)
    types = derive(
        source,
        [
            move(1, 0, "y0"),
            AllPermuteRule(ty("[1{x0,y0,x1}12, 6{y1}12]")),
            move(0, 1, "x0"),
            AllPermuteRule(target),
        ],
        prime,
    )
    assert [str(t) for t in types] == [
        "[3{x0,x1}12, 2{y0,y1}12]",
        "[1{y0,x0,x1}12, 6{y1}12]",
        "[1{x0,y0,x1}12, 6{y1}12]",
        "[2{y0,x1}12, 3{x0,y1}12]",
        "[2{y0,y1}12, 3{x0,x1}12]",
    ]
    assert [t.local_size for t in types] == [6] * 5


def test_example_3_1_needs_no_permute_between_the_two_low_level_alltoalls() -> None:
    mesh = Mesh.of("x=4,y=6")
    prime = mesh.prime().mesh
    source = prime_type(ty("[3{x}12, 2{y}12]"), mesh)
    middle, after_mesh = move(1, 0, "y0").lower(source, prime)
    assert (str(middle), after_mesh) == ("[1{y0,x0,x1}12, 6{y1}12]", prime)
    after, after_mesh = move(0, 1, "x0").lower(middle, prime)
    assert str(after) == "[2{y0,x1}12, 3{x0,y1}12]"
    assert after_mesh != prime


def test_sequence_10_of_example_6_8_takes_the_major_axis() -> None:
    mesh = Mesh.of("c0=2,c1=2,c2=2")
    at, on = ty("[1{c0,c1,c2}8, 8{}8]"), mesh
    seen = []
    for axis in ("c2", "c1", "c0"):
        at, on = move(0, 1, axis).lower(at, on)
        seen.append(str(at))
    assert seen == ["[2{c0,c1}8, 4{c2}8]", "[4{c0}8, 2{c1,c2}8]", "[8, 1{c0,c1,c2}8]"]
    final, home = AllPermuteRule(ty("[8, 1{c0,c1,c2}8]"), onto=mesh).lower(at, on)
    assert (str(final), home) == ("[8, 1{c0,c1,c2}8]", mesh)


def test_example_7_1_is_one_alltoall_over_three_axes_and_no_permute() -> None:
    mesh = Mesh.of("c=8").prime().mesh
    names = ("c0", "c1", "c2")
    after = AllToAllRule(0, 1, names).lower(ty("[1{c0,c1,c2}8, 8]"), mesh)
    assert after == (ty("[8, 1{c0,c1,c2}8]"), mesh)


def test_figure_12_types_both_sides() -> None:
    mesh = Mesh.of("x=4,y=2,z=4")
    left = derive(ty("[1{y,x}8, 8, 8, 4]"), [move(0, 1, "y"), move(0, 2, "x")], mesh)
    right = derive(
        ty("[1{y,x}8, 8, 8, 4]"),
        [DynSliceRule(3, ("z",)), move(0, 1, "y"), move(0, 2, "x"), AllGatherRule(3, ("z",))],
        mesh,
    )
    assert left[-1] == right[-1] == ty("[8, 4{y}8, 2{x}8, 4]")
    assert [t.local_size for t in right] == [256, 64, 64, 64, 256]


# ----------------------------------------------------------------------------------------- failing premises

REFUSED = [
    (AllGatherRule(2, ("x",)), "[3{x}12]", RuleError,
     "allgather(2, {x}) acts on dimension 2 of [3{x}12]; its dimensions are 0 to 0"),
    (AllGatherRule(-1, ("x",)), "[3{x}12]", RuleError,
     "allgather(-1, {x}) acts on dimension -1 of [3{x}12]; its dimensions are 0 to 0"),
    (DynSliceRule(0, ("x",)), "[]", RuleError,
     "dynslice(0, {x}) acts on dimension 0 of []; it has rank 0"),
    (AllGatherRule(0, ("y",)), "[3{x}12]", RuleError,
     "allgather(0, {y}) takes axis 'y' from dimension 0 of [3{x}12], which is cut by 'x'; "
     "take an axis that cuts the dimension"),
    (AllToAllRule(1, 0, ("x",)), "[4, 12]", RuleError,
     "alltoall(1, 0, {x}) takes axis 'x' from dimension 1 of [4, 12], which is cut by none; "
     "take an axis that cuts the dimension"),
    (AllGatherRule(0, ("y",)), "[3{x,y}48]", RuleError,
     "allgather(0, {y}) needs its axes at the minor end of dimension 0 of [3{x,y}48], in this order, and the dimension "
     "has 'x', 'y' from minor to major; allpermute first, or use `lower`, where the order is free"),
    (AllGatherRule(0, ("y", "x")), "[3{x,y}48]", RuleError,
     "allgather(0, {y,x}) needs its axes at the minor end of dimension 0 of [3{x,y}48], in this order, and the "
     "dimension has 'x', 'y' from minor to major; allpermute first, or use `lower`, where the order is free"),
    (AllToAllRule(0, 0, ("x",)), "[4{x}16]", RuleError,
     "alltoall(0, 0, {x}) moves axes within one dimension; reorder them there by an allpermute instead"),
    (AllToAllRule(0, 1, ("x",)), "[4{x}16, 6]", RuleError,
     "alltoall(0, 1, {x}) cuts the tile of dimension 1 of [4{x}16, 6] into 4 parts, and its 6 elements are not "
     "divisible by 4; use axes whose sizes divide 6"),
    (DynSliceRule(0, ("x", "y")), "[8]", RuleError,
     "dynslice(0, {x,y}) cuts the tile of dimension 0 of [8] into 16 parts, and its 8 elements are not "
     "divisible by 16; use axes whose sizes divide 8"),
    (DynSliceRule(0, ("x",)), "[8, 4{x}16]", RuleError,
     "dynslice(0, {x}) slices along axis 'x', which already cuts [8, 4{x}16]; free axes: 'y'"),
    (DynSliceRule(0, ("z",)), "[8]", UnknownAxisError,
     "mesh {x:4, y:4} has no axis 'z'; its axes are 'x', 'y'"),
    (AllPermuteRule(ty("[32{xdevs,ydevs}1024, 32]")), "[32{x}128, 64{y}256]", RuleError,
     "allpermute cannot turn [32{x}128, 64{y}256] into [32{xdevs,ydevs}1024, 32]: their global shapes differ; "
     "choose a target of the same global shape"),
    (AllPermuteRule(ty("[3{x}12, 12]")), "[12, 3{x}12]", RuleError,
     "allpermute cannot turn [12, 3{x}12] into [3{x}12, 12]: it moves whole tiles, and these are (1, 4) tiles of shape "
     "(12, 3) against (4, 1) tiles of shape (3, 12); slice, gather or exchange axes between dimensions first"),
    # proofs: equal local types alone would let this through
    (AllPermuteRule(ty("[4{}16]")), "[4{x}16]", RuleError,
     "allpermute to [4{}16], which is not well-formed: dimension 0 of [4{}16]: 1 tile of 4 makes 4 elements, "
     "not 16; write 16"),
    (AllPermuteRule(ty("[4]")), "[4{x}16]", RuleError,
     "allpermute cannot turn [4{x}16] into [4]: their global shapes differ; choose a target of the same global shape"),
    (AllPermuteRule(ty("[0]")), "[0{x}0]", RuleError,
     "allpermute cannot turn [0{x}0] into [0]: it moves whole tiles, and these are (4,) tiles of shape (0,) against "
     "(1,) tiles of shape (0,); slice, gather or exchange axes between dimensions first"),
    (AllGatherRule(0, ("x",)), "[5{x}16]", TypeFormError,
     "dimension 0 of [5{x}16]: 4 tiles of 5 make 20 elements, not 16; write 4{x}16"),
]  # fmt: skip


@pytest.mark.parametrize(("collective", "source", "kind", "message"), REFUSED)
def test_a_failing_premise_has_its_own_error(
    collective: Collective, source: str, kind: type[RedistribError], message: str
) -> None:
    with pytest.raises(RedistribError) as caught:
        collective.apply(ty(source), XY)
    assert type(caught.value) is kind
    assert str(caught.value) == message
    if caught.value.rule != "axes not minor":  # the one premise that Figure 10 drops
        with pytest.raises(kind) as caught:
            collective.lower(ty(source), XY)
        assert str(caught.value) == message


def test_a_collective_names_axes_and_each_once() -> None:
    with pytest.raises(RuleError) as none:
        AllGatherRule(0, ())
    assert str(none.value) == "allgather needs at least one mesh axis; leave it out where nothing moves"
    with pytest.raises(RuleError) as twice:
        AllToAllRule(0, 1, ("x", "y", "x"))
    assert str(twice.value) == "alltoall(0, 1, {x,y,x}) names axis 'x' twice; name every axis once"


def test_a_permute_needs_the_same_number_of_devices() -> None:
    with pytest.raises(RuleError) as caught:
        AllPermuteRule(ty("[3{x}12]"), onto=Mesh.of("x=4")).lower(ty("[3{x}12]"), XY)
    assert str(caught.value) == (
        "allpermute to [3{x}12]: mesh {x:4, y:4} has 16 devices and mesh {x:4} has 4; "
        "both must be made of the same devices"
    )


def test_collectives_print_as_they_are_written() -> None:
    assert [str(c) for c in (AllGatherRule(0, ("x",)), DynSliceRule(1, ("x", "a b")), AllToAllRule(2, 0, ("y",)))] == [
        "allgather(0, {x})",
        'dynslice(1, {x,"a b"})',
        "alltoall(2, 0, {y})",
    ]
    assert str(AllPermuteRule(ty("[3{x}12]"))) == "allpermute to [3{x}12]"


def test_every_rule_is_in_the_table() -> None:
    assert set(PREMISES) == set(AxesCollective.__subclasses__())
    assert all(premise.__doc__ for premises in PREMISES.values() for premise in premises)
