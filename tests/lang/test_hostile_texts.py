"""Texts and values that no user means: one error each, soon, with a message that can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redistrib import errors
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DimType, DistType
from tests.hostile import soon

LONG = 100_000
PIECES = [
    '"',
    '\\"',
    "[",
    "{",
    "1",
    "1,",
    "x",
    "x,",
    "[1{x}",
    "1{x}2,",
    '"a",',
    "x=1,",
    "sum{",
    "sum{x}",
    "{x:1}",
    "\n",
    "\x00",
    "é",
    " ",
]


@pytest.mark.parametrize("read", [DistType.parse, Mesh.of], ids=["type", "mesh"])
@pytest.mark.parametrize("piece", PIECES)
def test_long_texts_are_refused_soon(read: Callable[[str], object], piece: str) -> None:
    with soon():
        for start in ("", "[", "[1{", "{", "x=", "[1] sum{", "[1] "):
            with pytest.raises(errors.RedistribError) as caught:
                read(start + piece * (LONG // len(piece)) + "!")
            assert len(str(caught.value)) < 2000


def test_a_string_without_end_is_pointed_at_within_a_long_line() -> None:
    with pytest.raises(errors.NotationError) as caught, soon():
        DistType.parse("[1, " * 1 + '1{"' + '\\"' * 24_000)
    assert str(caught.value) == (
        "expected a closing '\"', found none: this string does not end (characters 6 to 48007)\n"
        '    [1, 1{"' + ('\\"' * 100)[:199] + "...\n" + " " * 10 + "^" * 200
    )


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "an axis of 4,300 digits": (
        lambda: Mesh((Axis("x", 10**4299),)),
        errors.MeshError,
        f"axis 'x' has size 1{'0' * 76}...; a mesh axis has at most 1048576 devices",
    ),
    "an axis of digits that Python does not write": (
        lambda: Mesh.of({"x": 10**5000}),
        errors.MeshError,
        "axis 'x' has size a value of type int that is too large to print; a mesh axis has at most 1048576 devices",
    ),
    "an axis of fewer than none": (
        lambda: Mesh.of({"x": -(10**5000)}),
        errors.MeshError,
        "axis 'x' has size a value of type int that is too large to print; a mesh axis has a positive integer number "
        "of devices",
    ),
    "65 axes": (
        lambda: Mesh(tuple(Axis(f"a{k}", 1) for k in range(65))),
        errors.MeshError,
        "mesh {" + ", ".join(f"a{k}:1" for k in range(65))[:196] + "... has 65 axes and at most 64 are possible; take "
        "a smaller mesh",
    ),
    "a device number of digits that Python does not write": (
        lambda: Mesh((Axis("x", 1),), (10**5000,)),
        errors.MeshError,
        "mesh {x:1} needs 1 different device numbers, from 0 to 1,048,575, got a value of type list that is too large "
        "to print; leave them out to number devices row by row",
    ),
    "a tile of digits that Python does not write": (
        lambda: DimType(10**5000, (), 1),
        errors.TypeFormError,
        "the tile a value of type int that is too large to print of a dimension is not an integer from 0 to 2**63 - 1",
    ),
    "65 dimensions": (
        lambda: DistType((DimType(1, (), 1),) * 65),
        errors.TypeFormError,
        "the type has 65 dimensions, and at most 64 are possible; take a smaller array",
    ),
    "elements beyond floats": (
        lambda: DistType.parse("[" + ", ".join(["9223372036854775807"] * 9) + "]"),
        errors.TypeFormError,
        "the type has too many elements, and at most 2**512 are possible; take a smaller array",
    ),
    "65 axes of partial sums": (
        lambda: DistType.parse("[1] sum{" + ",".join(f"a{k}" for k in range(65)) + "}"),
        errors.NotationError,
        "expected at most 64 axis names, found 'a64' (characters 254 to 257)\n    ..."
        + ("[1] sum{" + ",".join(f"a{k}" for k in range(65)) + "}")[54:]
        + "\n"
        + " " * 207
        + "^^^",
    ),
    "65 axes of partial sums, not read": (
        lambda: DistType((), tuple(f"a{k}" for k in range(65)), "sum"),
        errors.TypeFormError,
        "the type has 65 partial axes, and at most 64 are possible; take a smaller array",
    ),
    "a reduction without end": (
        lambda: DistType((), ("x",), "sum" * LONG),  # type: ignore[arg-type]
        errors.TypeFormError,
        f"the partial axes are 'x' and the reduction is '{('sum' * 26)[:76]}...; give at least one axis, and one of "
        "the reductions 'sum', 'max', 'min'",
    ),
    "no text": (
        lambda: DistType.parse(7),  # type: ignore[arg-type]
        errors.TypeFormError,
        "7 does not describe a distributed type; give a DistType, its notation such as '[3{x}12, 24]', or a sequence "
        "of DimType",
    ),
    "axes past the end of a mesh": (
        lambda: Mesh.of(",".join(f"a{k}=1" for k in range(65))),
        errors.NotationError,
        "expected at most 64 axis names, found 'a64' (characters 374 to 377)\n    ..."
        + ",".join(f"a{k}=1" for k in range(65))[174:]
        + "\n"
        + " " * 207
        + "^^^",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_large_is_refused_with_the_limit(name: str) -> None:
    make, error, message = REFUSED[name]
    with pytest.raises(errors.RedistribError) as caught, soon():
        make()
    assert (type(caught.value), str(caught.value)) == (error, message)


def test_many_large_axes_are_not_multiplied() -> None:
    with pytest.raises(errors.MeshError) as caught, soon():
        Mesh.of({f"a{k}": 10**4000 for k in range(4000)})
    assert caught.value.rule == "axis size"


def test_an_array_of_device_numbers_is_an_order() -> None:
    order: Any = np.array([1, 0])
    assert Mesh((Axis("x", 2),), order).devices == (1, 0)


def test_as_many_axes_and_dimensions_as_an_array_has_are_read() -> None:
    mesh = Mesh.of(",".join(f"a{k}=1" for k in range(64)))
    text = "[" + ", ".join(f"1{{a{k}}}1" for k in range(64)) + "]"
    DistType.parse(text).check(mesh)
    assert str(DistType.parse(text)) == text
