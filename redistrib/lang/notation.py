"""The notation of types and meshes: tokenizer, recursive-descent parser, syntax tree and printer.

This module reads and writes text. It does not check that a type is well-formed. The docstring of every parsing function
is its rule of the grammar; terminals are quoted or in capitals:

* `NUMBER`: one or more digits 0 to 9.
* `NAME`: a letter or underscore, then letters, digits and underscores.
* `STRING`: any characters between double quotes, with `\\"` and `\\\\` for a quote and a backslash.

Blanks between terminals are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, NoReturn, TypeAlias, TypeVar, cast, get_args

from redistrib.errors import NotationError
from redistrib.errors.base import shown

TokenKind: TypeAlias = Literal["blank", "number", "name", "string", "mark", "end", "stray"]
Reduction: TypeAlias = Literal["sum", "max", "min"]
Cut: TypeAlias = Literal["even", "balanced", "chunk"]

REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
CUTS: dict[Cut, str] = {"even": "", "balanced": "~", "chunk": "^"}  # the mark printed after the tile size

_TOKEN = re.compile(
    r"""
    (?P<blank> \s+ )
  | (?P<number> [0-9]+ )
  | (?P<name> [^\W\d]\w* )
  | (?P<string> "(?:[^"\\]|\\["\\])*+" )
  | (?P<mark> [\[\]{},:=~^+] )
  | (?P<stray> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_MOST_DIGITS = 1000  # Python refuses to read an integer of more than 4300
_T = TypeVar("_T")

MAX_RANK = 64  # of a NumPy array, and so the most axes of a jax.sharding.Mesh


# ------------------------------------------------------------------------------------------- syntax tree


class DimNode(NamedTuple):
    """One dimension: tile size, axes minor to major, global size. An unpartitioned `12` has tile and size 12.

    `cut` is the kind of cut, even or uneven. `padding` counts the elements of all tiles beyond the global size.
    """

    tile: int
    axes: tuple[str, ...]
    size: int
    cut: Cut = "even"
    padding: int = 0


class TypeNode(NamedTuple):
    """A distributed type, and the axes along which tiles are partial sums with their reduction, as `print_type`."""

    dims: tuple[DimNode, ...]
    partial: tuple[str, ...] = ()
    reduction: Reduction | None = None


# --------------------------------------------------------------------------------------------- tokenizer


class _Token(NamedTuple):
    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _tokens(text: str, start: int) -> Iterator[_Token]:
    """The tokens, read one at a time: after an unterminated string, the parser fails before the rest is read."""
    for match in _TOKEN.finditer(text, start):
        if match.lastgroup != "blank":
            yield _Token(match.lastgroup, match.group(), match.start())  # type: ignore[arg-type]
    yield _Token("end", "", len(text))


# ------------------------------------------------------------------------------------------------ parser


def parse_type(text: str) -> TypeNode:
    """Read a distributed type.

    type := "[" ( dim ( "," dim )* )? "]" partial?
    partial := ( "sum" | "max" | "min" ) "{" axis ( "," axis )* "}"

    Raises:
        NotationError: the text does not match the grammar; the error has the wrong span and the expected text.

    >>> [dim.tile for dim in parse_type("[3{x}12, 2{y}12]").dims]
    [3, 2]
    """
    parser = _Parser(text)
    node = parser.dist_type()
    parser.end("the type")
    return node


def parse_mesh(text: str) -> list[tuple[str, int]]:
    """Read the name and size of every axis of a mesh, as a user types it or as it is printed.

    mesh := entry ( "," entry )* | "{" ( entry ( "," entry )* )? "}"

    Raises:
        NotationError: the text does not match the grammar; the error has the wrong span and the expected text.

    >>> parse_mesh("x=4,y=6")
    [('x', 4), ('y', 6)]
    """
    parser = _Parser(text)
    axes = parser.mesh()
    parser.end("the mesh")
    return axes


def type_at(text: str, start: int) -> str:
    """The distributed type that begins at a character of a text, which goes on after it.

    Raises:
        NotationError: as `parse_type` does.

    >>> type_at("cut [3{x}12] carried", 4), type_at("%a: [3{x}12] sum{y} float32", 4)
    ('[3{x}12]', '[3{x}12] sum{y}')
    """
    parser = _Parser(text, start)
    parser.dist_type(goes_on=True)
    return text[start : parser.last_end]


def mesh_at(text: str, start: int) -> str:
    """The mesh between braces that begins at a character of a text, which goes on after it.

    Raises:
        NotationError: as `parse_mesh` does.
    """
    parser = _Parser(text, start)
    parser.mesh()
    return text[start : parser.last_end]


class _Parser:
    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        self.tokens = _tokens(text, start)
        self.token = next(self.tokens)
        self.last_end = 0  # where the last consumed token ends

    def at(self, mark: str) -> bool:
        return self.token.text == mark  # tokens of other kinds never have the text of a mark

    def take(self) -> _Token:
        token = self.token
        self.last_end = token.end
        self.token = next(self.tokens, token)
        return token

    def skip(self, mark: str) -> bool:
        """Take the mark if it comes next."""
        if self.token.text == mark:
            self.take()
            return True
        return False

    def require(self, mark: str, expected: str) -> None:
        if not self.skip(mark):
            self.fail(expected)

    def follow(self, marks: tuple[str, ...], expected: str) -> None:
        """Fail here unless one of the marks comes next: here the message can still name the context."""
        if not any(self.at(mark) for mark in marks):
            self.fail(expected)

    def fail(self, expected: str) -> NoReturn:
        token = self.token
        if token.kind == "stray" and token.text == '"':
            start = token.start
            raise NotationError(self.text, start, len(self.text), "a closing '\"'", "none: this string does not end")
        actual = "the end" if token.kind == "end" else shown(token.text)
        raise NotationError(self.text, token.start, token.end, expected, actual)

    def end(self, noun: str) -> None:
        if self.token.kind != "end":
            self.fail(f"nothing after {noun}")

    def number(self, expected: str) -> int:
        """NUMBER"""
        if self.token.kind != "number":
            self.fail(expected)
        if len(self.token.text) > _MOST_DIGITS:
            self.fail(f"a number of at most {_MOST_DIGITS} digits")
        return int(self.take().text)

    def comma_separated(self, read: Callable[[str], _T], noun: str, expected: str) -> list[_T]:
        """One or more items, separated by commas; an error at the first item says `expected`."""
        article = "an" if noun[0] in "aeiou" else "a"
        items = [read(expected)]
        while self.skip(","):
            if len(items) == MAX_RANK:
                self.fail(f"at most {MAX_RANK} {noun}s")
            items.append(read(f"{article} {noun} after ','"))
        return items

    def axis(self, expected: str) -> str:
        """axis := NAME | STRING"""
        if self.token.kind not in ("name", "string"):
            self.fail(expected)
        token = self.take()
        name = token.text
        if token.kind == "string":
            name = re.sub(r"\\(.)", r"\1", name[1:-1])
        return name

    def dist_type(self, *, goes_on: bool = False) -> TypeNode:
        """type := "[" ( dim ( "," dim )* )? "]" partial?"""
        self.require("[", "'[' at the start of a type")
        dims: list[DimNode] = []
        if not self.at("]"):
            dims = self.comma_separated(self.dim, "dimension", "a dimension or ']'")
        self.take()  # a ']': comma_separated and dim fail at every other token
        is_partial = self.token.text in REDUCTIONS if goes_on else self.token.kind == "name"
        return TypeNode(tuple(dims), *self.partial()) if is_partial else TypeNode(tuple(dims))

    def partial(self) -> tuple[tuple[str, ...], Reduction]:
        """partial := ( "sum" | "max" | "min" ) "{" axis ( "," axis )* "}" """
        if self.token.text not in REDUCTIONS:
            self.fail("'sum', 'max' or 'min' after a type")
        kind = self.take()
        self.require("{", f"'{{' after {kind.text!r}")
        axes = self.comma_separated(self.axis, "axis name", "an axis name after '{'")
        self.require("}", "',' or '}' after an axis name")
        if self.token.text in REDUCTIONS:
            self.fail("one kind of reduction, with all its axes in one pair of braces")
        return tuple(axes), cast(Reduction, kind.text)

    def dim(self, expected: str) -> DimNode:
        """dim := NUMBER | NUMBER ( "~" | "^" )? "{" ( axis ( "," axis )* )? "}" NUMBER ( "+" NUMBER )?"""
        tile = size = self.number(expected)
        cut: Cut = "balanced" if self.skip("~") else "chunk" if self.skip("^") else "even"
        axes: list[str] = []
        padding = 0
        if self.skip("{"):
            if not self.at("}"):
                axes = self.comma_separated(self.axis, "axis name", "an axis name or '}'")
            self.require("}", "',' or '}' after an axis name")
            size = self.number("the global size after '}'")
            if cut == "even" and self.skip("+"):
                padding = self.number("the padding after '+'")
            self.follow((",", "]"), "',' or ']' after a dimension")
        elif cut != "even":
            self.fail(f"'{{' after {CUTS[cut]!r}")
        else:
            self.follow(("{", ",", "]"), "'{', ',' or ']' after a size")
        return DimNode(tile, tuple(axes), size, cut, padding)

    def mesh(self) -> list[tuple[str, int]]:
        """mesh := entries | "{" entries? "}"; entries := entry ( "," entry )*"""
        braces = self.skip("{")
        entries: list[tuple[str, int]] = []
        if not (braces and self.at("}")):
            first = "an axis name or '}'" if braces else "an axis such as x=4"
            entries = self.comma_separated(self.entry, "axis name", first)
        if braces:
            self.require("}", "',' or '}' after an axis size")
        elif self.token.kind != "end":
            self.fail("',' or the end after an axis size")
        return entries

    def entry(self, expected: str) -> tuple[str, int]:
        """entry := axis ( "=" | ":" ) NUMBER"""
        axis = self.axis(expected)
        if not self.skip("="):
            self.require(":", "'=' or ':' after an axis name")
        return axis, self.number("the size of the axis")


# ----------------------------------------------------------------------------------------------- printer


def print_axis(name: str) -> str:
    """An axis name in the notation: quoted unless it is a NAME.

    >>> print_axis("x"), print_axis("model.head")
    ('x', '"model.head"')
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def print_dim(tile: int, axes: Sequence[str], size: int, cut: Cut = "even", padding: int = 0) -> str:
    """One dimension in the notation; just its size if it is unpartitioned.

    >>> print_dim(3, ("x", "y"), 24), print_dim(12, (), 12)
    ('3{x,y}24', '12')
    >>> print_dim(3, ("x",), 11, "balanced"), print_dim(3, ("x",), 11, "chunk"), print_dim(3, ("x",), 11, "even", 1)
    ('3~{x}11', '3^{x}11', '3{x}11+1')
    """
    if not axes and tile == size and cut == "even" and not padding:
        return str(size)
    suffix = f"+{padding}" if padding else ""
    return f"{tile}{CUTS[cut]}{{{','.join(print_axis(name) for name in axes)}}}{size}{suffix}"


def print_type(
    dims: Iterable[tuple[int, Sequence[str], int] | tuple[int, Sequence[str], int, Cut, int]],
    partial: Sequence[str] = (),
    reduction: Reduction | None = None,
) -> str:
    """A distributed type in the notation.

    Args:
        dims: the arguments of `print_dim` for each dimension.
        partial: the axes along which tiles are partial sums.
        reduction: the reduction of these axes.

    >>> print_type([(3, ("x",), 12), (12, (), 12)])
    '[3{x}12, 12]'
    >>> print_type([(3, ("x",), 12)], ("y", "z"), "sum")
    '[3{x}12] sum{y,z}'
    """
    suffix = f" {reduction}{{{','.join(map(print_axis, partial))}}}" if partial else ""
    return f"[{', '.join(print_dim(*dim) for dim in dims)}]{suffix}"


def print_mesh(axes: Iterable[tuple[str, int]]) -> str:
    """A mesh in the notation, from the name and size of every axis.

    >>> print_mesh([("x", 4), ("y", 6)])
    '{x:4, y:6}'
    """
    return f"{{{', '.join(f'{print_axis(name)}:{size}' for name, size in axes)}}}"
