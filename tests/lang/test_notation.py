"""The notation: what parses to what, whole messages of every syntax error, and the round trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.errors import NotationError
from redistrib.lang.notation import (
    DimNode,
    TypeNode,
    mesh_at,
    parse_mesh,
    parse_type,
    print_mesh,
    print_type,
    type_at,
)


def dims_of(text: str) -> list[tuple[int, tuple[str, ...], int]]:
    return [(dim.tile, dim.axes, dim.size) for dim in parse_type(text).dims]


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("[3{x}12, 2{y}12]", [(3, ("x",), 12), (2, ("y",), 12)]),
        ("[3{x,y}12]", [(3, ("x", "y"), 12)]),
        ("[12, 12{}12]", [(12, (), 12), (12, (), 12)]),
        ("[5{}12]", [(5, (), 12)]),  # not well-formed, but notation knows no semantics
        ("[]", []),
        (" [ ] ", []),
        ("[0{x}0]", [(0, ("x",), 0)]),
        ("[007]", [(7, (), 7)]),
        ('[8{"devices"}256, 1024]', [(8, ("devices",), 256), (1024, (), 1024)]),
        ('[8{"a,b}]"}256]', [(8, ("a,b}]",), 256)]),
        (r'[8{"say \"hi\" \\"}256]', [(8, ('say "hi" \\',), 256)]),
        ("[8{größe_2}256]", [(8, ("größe_2",), 256)]),
        ("[\n  3 { x , y } 12 ,\n  12\n]", [(3, ("x", "y"), 12), (12, (), 12)]),
    ],
)
def test_types_parse(text: str, dims: list[tuple[int, tuple[str, ...], int]]) -> None:
    assert dims_of(text) == dims


def test_the_tree_says_how_each_dimension_is_cut() -> None:
    assert parse_type('[3{x, "y z"}12,  7]') == TypeNode((DimNode(3, ("x", "y z"), 12), DimNode(7, (), 7)))
    assert parse_type("[3~{}7, 4^{}7, 4{}7+1]").dims == (
        DimNode(3, (), 7, "balanced"),
        DimNode(4, (), 7, "chunk"),
        DimNode(4, (), 7, "even", 1),
    )


TYPE_ERRORS = [  # text, first line of the message, caret line
    ("", "expected '[' at the start of a type, found the end (character 0)", "^"),
    ("3{x}12", "expected '[' at the start of a type, found '3' (characters 0 to 1)", "^"),
    ("[3{x}12", "expected ',' or ']' after a dimension, found the end (character 7)", "       ^"),
    ("[", "expected a dimension or ']', found the end (character 1)", " ^"),
    ("[12,]", "expected a dimension after ',', found ']' (characters 4 to 5)", "    ^"),
    ("[x]", "expected a dimension or ']', found 'x' (characters 1 to 2)", " ^"),
    ("[-3]", "expected a dimension or ']', found '-' (characters 1 to 2)", " ^"),
    ("[12 13]", "expected '{', ',' or ']' after a size, found '13' (characters 4 to 6)", "    ^^"),
    ("[1.5]", "expected '{', ',' or ']' after a size, found '.' (characters 2 to 3)", "  ^"),
    ("[3{x}]", "expected the global size after '}', found ']' (characters 5 to 6)", "     ^"),
    ("[3{x,}12]", "expected an axis name after ',', found '}' (characters 5 to 6)", "     ^"),
    ("[3{4}12]", "expected an axis name or '}', found '4' (characters 3 to 4)", "   ^"),
    ("[3{x y}12]", "expected ',' or '}' after an axis name, found 'y' (characters 5 to 6)", "     ^"),
    ("[3{x}12{y}4]", "expected ',' or ']' after a dimension, found '{' (characters 7 to 8)", "       ^"),
    ("[12] [13]", "expected nothing after the type, found '[' (characters 5 to 6)", "     ^"),
    ("[3{x}twelve]", "expected the global size after '}', found 'twelve' (characters 5 to 11)", "     ^^^^^^"),
    ("['x']", "expected a dimension or ']', found \"'\" (characters 1 to 2)", " ^"),
    (
        '[8{"devices}256]',
        "expected a closing '\"', found none: this string does not end (characters 3 to 16)",
        "   ^^^^^^^^^^^^^",
    ),
    (
        '[8{"a\\n"}256]',
        "expected a closing '\"', found none: this string does not end (characters 3 to 13)",
        "   ^^^^^^^^^^",
    ),
]


@pytest.mark.parametrize(("text", "message", "caret"), TYPE_ERRORS)
def test_a_syntax_error_shows_text_span_caret_and_what_was_expected(text: str, message: str, caret: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_type(text)
    assert str(caught.value) == f"{message}\n    {text}\n    {caret}"
    assert caught.value.text == text


def test_a_syntax_error_in_several_lines_shows_the_one_at_fault() -> None:
    with pytest.raises(NotationError) as caught:
        parse_type("[3{x}12,\n\t2{y 12]")
    assert str(caught.value) == (
        "expected ',' or '}' after an axis name, found '12' (characters 14 to 16)\n     2{y 12]\n         ^^"
    )
    with pytest.raises(NotationError) as caught:
        parse_type("[3{x}12\n\n]12")
    assert str(caught.value) == "expected nothing after the type, found '12' (characters 10 to 12)\n    ]12\n     ^^"


def test_a_syntax_error_carries_its_values() -> None:
    with pytest.raises(NotationError) as caught:
        parse_type("[3{x}twelve]")
    error = caught.value
    assert (error.start, error.end) == (5, 11)
    assert (error.expected, error.found) == ("the global size after '}'", "'twelve'")


def test_a_number_of_absurd_length_is_refused() -> None:
    text = f"[{'9' * 5000}]"
    with pytest.raises(NotationError, match="expected a number of at most 1000 digits"):
        parse_type(text)
    assert parse_type(f"[{'9' * 1000}]").dims[0].size == 10**1000 - 1


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("x=4,y=6", [("x", 4), ("y", 6)]),
        ("{x:4, y:6}", [("x", 4), ("y", 6)]),
        ("x:4", [("x", 4)]),
        ("{}", []),
        ('"a b"=2', [("a b", 2)]),
    ],
)
def test_meshes_parse(text: str, axes: list[tuple[str, int]]) -> None:
    assert parse_mesh(text) == axes


MESH_ERRORS = [
    ("", "expected an axis such as x=4, found the end (character 0)", "^"),
    ("x", "expected '=' or ':' after an axis name, found the end (character 1)", " ^"),
    ("x=", "expected the size of the axis, found the end (character 2)", "  ^"),
    ("x=-4", "expected the size of the axis, found '-' (characters 2 to 3)", "  ^"),
    ("x=4,", "expected an axis name after ',', found the end (character 4)", "    ^"),
    ("x=4 y=6", "expected ',' or the end after an axis size, found 'y' (characters 4 to 5)", "    ^"),
    ("{x:4", "expected ',' or '}' after an axis size, found the end (character 4)", "    ^"),
    ("{4}", "expected an axis name or '}', found '4' (characters 1 to 2)", " ^"),
    ("{x:4} y", "expected nothing after the mesh, found 'y' (characters 6 to 7)", "      ^"),
]


@pytest.mark.parametrize(("text", "message", "caret"), MESH_ERRORS)
def test_a_syntax_error_in_a_mesh_is_shown_alike(text: str, message: str, caret: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_mesh(text)
    assert str(caught.value) == f"{message}\n    {text}\n    {caret}"


names = st.one_of(st.sampled_from(["x", "y", "data"]), st.text(min_size=1))
sizes = st.integers(min_value=0, max_value=2**70)
dimensions = st.tuples(sizes, st.lists(names, max_size=3).map(tuple), sizes)


@given(st.lists(dimensions, max_size=5))
def test_printed_types_parse_to_what_was_printed(dims: list[tuple[int, tuple[str, ...], int]]) -> None:
    text = print_type(dims)
    assert dims_of(text) == dims
    assert print_type(dims_of(text)) == text


@given(st.lists(st.tuples(names, sizes), max_size=5))
def test_printed_meshes_parse_to_what_was_printed(axes: list[tuple[str, int]]) -> None:
    assert parse_mesh(print_mesh(axes)) == axes


@given(st.text(alphabet='[]{},:= \n"\\x3é-'))
def test_any_text_parses_or_is_refused_with_a_span_inside_it(text: str) -> None:
    for parse in (parse_type, parse_mesh):
        try:
            parse(text)
        except NotationError as error:
            assert 0 <= error.start <= error.end <= len(text)
            assert error.start < error.end or error.start == len(text)
            assert str(error).splitlines()[-1].strip(" ^") == ""


@given(st.lists(dimensions, max_size=3), st.text(alphabet='[]{},:= \n"\\x3é-'))
def test_a_type_in_a_text_ends_where_it_ends(dims: list[tuple[int, tuple[str, ...], int]], rest: str) -> None:
    text = print_type(dims)
    assert type_at(f"of {text}{rest}", 3) == text
    assert mesh_at(f"on {{x:4}}{rest}", 3) == "{x:4}"


def test_short_and_long_form_print_as_the_paper_writes_them() -> None:
    assert print_type([(3, ("x", "y"), 12), (12, (), 12), (5, (), 12)]) == "[3{x,y}12, 12, 5{}12]"
    assert print_type([(8, ("a b",), 16), (8, ('"',), 16), (8, ("2x",), 16)]) == r'[8{"a b"}16, 8{"\""}16, 8{"2x"}16]'
