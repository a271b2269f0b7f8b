"""Types whose tiles are summands along some axes: notation, well-formedness, prime axes."""

from __future__ import annotations

import itertools
import math

import pytest

from redistrib.errors import MeshError, NotationError, TypeFormError, UnknownAxisError
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import parse_type
from redistrib.lang.types import DimType, DistType
from redistrib.testing import all_partial_types
from redistrib.theory.placement import placement_of
from tests.messages import exactly
from tests.primes import prime_type

XY = Mesh.of("x=4,y=2")
SMALL = [(mesh, shape) for mesh in ("x=4", "x=2,y=2", "x=2,y=3") for shape in ((), (12,), (12, 12))]


@pytest.mark.parametrize("text", ["[4{x}16, 8] sum{y}", "[] sum{x,y}", "[16, 8] max{x}", '[8] min{"a b",x}'])
def test_the_notation_is_read_as_it_is_printed(text: str) -> None:
    assert str(DistType.parse(text)) == text


def test_axes_are_a_set() -> None:
    assert DistType.parse("[] sum{y,x}") == DistType.parse("[]sum{ x , y }") == DistType((), ("y", "x"), "sum")
    assert DistType.parse("[] sum{y,x}").partial == ("x", "y")
    assert DistType.parse("[] sum{x}") != DistType.parse("[] max{x}") != DistType.parse("[]")


def test_the_syntax_tree_has_the_axes_in_order_of_the_text() -> None:
    assert parse_type("[8] sum{y,x}")[1:] == (("y", "x"), "sum")
    assert parse_type("[8]")[1:] == ((), None)


ERRORS = [  # text, first line of the message, caret line
    ("[4] mean{x}", "expected 'sum', 'max' or 'min' after a type, found 'mean' (characters 4 to 8)", "    ^^^^"),
    ("[4] sum", "expected '{' after 'sum', found the end (character 7)", "       ^"),
    ("[4] sum{}", "expected an axis name after '{', found '}' (characters 8 to 9)", "        ^"),
    ("[4] sum{x,}", "expected an axis name after ',', found '}' (characters 10 to 11)", "          ^"),
    ("[4] sum{x y}", "expected ',' or '}' after an axis name, found 'y' (characters 10 to 11)", "          ^"),
    (
        "[4] sum{x} max{y}",
        "expected one kind of reduction, with all its axes in one pair of braces, found 'max' (characters 11 to 14)",
        "           ^^^",
    ),
    ("[4] sum{x} [4]", "expected nothing after the type, found '[' (characters 11 to 12)", "           ^"),
]


@pytest.mark.parametrize(("text", "message", "caret"), ERRORS)
def test_a_syntax_error_shows_where(text: str, message: str, caret: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_type(text)
    assert str(caught.value) == f"{message}\n    {text}\n    {caret}"


def test_axes_that_cannot_be_partial_are_refused() -> None:
    whole = (DimType(8, (), 8),)
    with pytest.raises(TypeFormError) as caught:
        DistType.parse("[8] sum{x,x}")
    assert str(caught.value) == "axis 'x' is given twice in sum{x,x}; name it once"
    for axes, kind in ((("x",), None), ((), "sum"), (("x",), "prod")):
        along = "'x'" if axes else "none"
        with pytest.raises(
            TypeFormError,
            match=exactly(
                f"the partial axes are {along} and the reduction is {kind!r}; give at least one axis, and "
                "one of the reductions 'sum', 'max', 'min'"
            ),
        ):
            DistType(whole, axes, kind)  # type: ignore[arg-type]
    with pytest.raises(MeshError) as named:
        DistType(whole, ("",), "sum")
    assert named.value.rule == "axis name"
    with pytest.raises(TypeFormError) as caught:
        DistType.parse("[2{x}8] sum{x}").check(XY)
    assert str(caught.value) == (
        "axis 'x' cuts the array and is a partial axis too in type [2{x}8] sum{x}; an axis may do one of the two"
    )
    with pytest.raises(UnknownAxisError):
        DistType.parse("[8] sum{z}").check(XY)


@pytest.mark.parametrize(("mesh", "shape"), SMALL, ids=str)
def test_every_type_is_read_back_and_means_the_same_over_prime_axes(mesh: str, shape: tuple[int, ...]) -> None:
    over = Mesh.of(mesh)
    prime = over.prime().mesh
    seen = 0
    for dist_type in all_partial_types(over, shape):
        dist_type.check(over)
        assert DistType.parse(str(dist_type)) == dist_type
        finer = prime_type(dist_type, over)
        assert placement_of(finer, prime) == placement_of(dist_type, over)
        assert finer.reduction == dist_type.reduction
        seen += 1
    # of axes that do not cut, any set: an axis cuts one dimension, in any order inside it, or is partial, or neither
    names, rank = len(over.names), len(shape)
    orders = {0: 1, 1: 1, 2: 2}
    expected = sum(
        2 ** places.count(-1) * math.prod(orders[places.count(i)] for i in range(rank))
        for places in itertools.product(range(-1, rank), repeat=names)
    )
    assert seen == expected


def test_an_axis_of_size_1_makes_no_summands() -> None:
    mesh = Mesh.of("x=1,y=2")
    assert placement_of(DistType.parse("[8] sum{x}"), mesh) == placement_of(DistType.parse("[8]"), mesh)
    assert prime_type(DistType.parse("[8] sum{x}"), mesh) == DistType.parse("[8]")
    assert prime_type(DistType.parse("[8] sum{x,y}"), mesh) == DistType.parse("[8] sum{y}")
