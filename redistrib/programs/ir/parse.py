"""Programs from text: the parser of `redistrib.programs.ir.text`.

Every parsing function shows in its docstring the piece of the grammar it reads. `NAME` is a plain name or a JSON
string, `NUMBER` an integer, `TYPE` and `MESH` are those of `redistrib.lang.notation`, `JSON` is the rest of a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from typing import NoReturn, TypeVar

from redistrib.errors import ProgramError, RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import mesh_at, type_at
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.ir.check import check
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Call, Compute, Loop, Move, Op, Place, Program, Value
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.record import Fusion, Record, WorkClass
from redistrib.programs.ir.text import PLAIN, Body
from redistrib.programs.ir.value import with_padding
from redistrib.programs.ir.windows import Held, Reach, Stencil, Window

_T = TypeVar("_T")
_Enum = TypeVar("_Enum", bound=StrEnum)

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_NUMBER = re.compile(r"-?[0-9]{1,1000}")
_PLAN = re.compile(r"^plan (\w+) = (.*)$", re.MULTILINE)
_BLANK = re.compile(r"\s*")


def parse(text: str, bodies: Mapping[str, Body] | None = None) -> Program:
    """A program from its text, checked.

    Args:
        text: in the format of `to_text`.
        bodies: the bodies of nests by the names that the text has for them, see `bodies_of`. A nest whose body is not
            among them can be planned but not run.

    Raises:
        ProgramError: if the text cannot be read, or the program is not right.

    >>> halves = "place p0 = {x:2} @ 0, 1 program f0 = halves(%a: [4{x}8] float32 @p0) { return %a }"
    >>> parse(halves).inputs[0].tile
    (4,)
    """
    reader = _Reader(text, bodies or {})
    return check(reader.text())


class _Reader:
    def __init__(self, text: str, bodies: Mapping[str, Body]) -> None:
        self.source, self.at, self.bodies = text, 0, bodies
        self.places: dict[str, Place] = {}
        self.nests: dict[str, Nest] = {}
        self.programs: dict[str, Program] = {}
        self.plans = {label: self._guarded(Plan.from_json, line) for label, line in _PLAN.findall(text)}

    def text(self) -> Program:
        """`text: (place | nest | program | "plan" NAME "=" JSON)*`; the result is the last program."""
        program = None
        self._skip()
        while self.at < len(self.source):
            if self.take("place"):
                self._place()
            elif self.take("nest"):
                self._nest()
            elif self.take("plan"):
                self.at = (self.source.find("\n", self.at) + 1) or len(self.source)
                self._skip()
            elif self.take("program"):
                program = self._program()
            else:
                self._fail("'place', 'nest', 'program' or 'plan'")
        return program if program is not None else self._fail("a program")

    def _place(self) -> None:
        """`place: "place" NAME "=" MESH ("/" numbers)? "@" numbers`."""
        label = self._label()
        mesh = self._guarded(Mesh.of, self._notation(mesh_at, "{", "a mesh"))
        if self.take("/"):
            mesh = Mesh(mesh.axes, self._numbers())
        self.expect("@")
        self.places[label] = Place(mesh, self._numbers())

    def _numbers(self) -> tuple[int, ...]:
        """`numbers: NUMBER ("," NUMBER)*`."""
        numbers = [self.number()]
        while self.take(","):
            numbers.append(self.number())
        return tuple(numbers)

    def _nest(self) -> None:
        """`nest: "nest" NAME "=" NAME "[" ranges "]" "(" accesses ")" "->" "(" accesses ")" "{" options "}"`."""
        label, name = self._label(), self.name()
        ranges = self.listed("[", "]", self._range)
        reads = self.listed("(", ")", self._access)
        self.expect("->")
        writes = self.listed("(", ")", self._access)
        self.expect("{")
        combine: list[tuple[str, str]] = []
        whole = indexed = frozenset[str]()
        linear: list[tuple[int, ...]] = []
        fills, flops, effectful, body = None, Fraction(1), False, None
        replicated, record = frozenset[int](), None
        while not self.take("}"):
            if self.take("combine:"):
                combine = self._separated(lambda: (self.name(), self.name()))
            elif self.take("whole:"):
                whole = frozenset(self._until((";", "}"), self.name))
            elif self.take("linear:"):
                linear = self._until((";", "}"), lambda: self._group(self.number))
            elif self.take("indexed:"):
                indexed = frozenset(self._until((";", "}"), self.name))
            elif self.take("fills:"):
                fills = self.name()
            elif self.take("flops:"):
                flops = Fraction(self.number(), self.number() if self.take("/") else 1)
            elif self.take("effectful:"):
                self.expect("yes")
                effectful = True
            elif self.take("replicated:"):
                replicated = frozenset(self._until((";", "}"), self.number))
            elif self.take("fusion:"):
                record = replace(record or Record(), fusion=self._one_of(Fusion))
            elif self.take("work:"):
                record = replace(record or Record(), work=self._one_of(WorkClass))
            elif self.take("body:"):
                body = self.bodies.get(self.name())
            else:
                self._fail("an option of a nest")
            self.take(";")
        accesses = (tuple(ranges), tuple(reads), tuple(writes))
        self.nests[label] = Nest(
            name, *accesses, tuple(combine), whole, tuple(linear), indexed,
            fills, body, flops, effectful, replicated, record,
        )  # fmt: skip

    def _range(self) -> tuple[str, range]:
        """`range: NAME ":" NUMBER (".." NUMBER "by" NUMBER)?`."""
        name = self.name()
        self.expect(":")
        first = self.number()
        if not self.take(".."):
            return name, range(first)
        stop = self.number()
        self.expect("by")
        return name, range(first, stop, self.number() or self._fail("a step other than 0"))

    def _access(self) -> Access:
        """`access: NAME "[" ((NAME | "(" NAME* ")") ("+" (NUMBER | "(" NUMBER* ")"))? | ":" NUMBER)* "]"`."""
        array, extents, windows = self.name(), list[int](), list[Window]()

        def dim() -> tuple[str, ...]:
            if self.take(":"):
                extents.append(self.number())
                windows.append(1)
                return ()
            names = self._group(self.name) if self.peek("(") else (self.name(),)
            if not self.take("+"):
                windows.append(1)
            elif self.peek("("):
                windows.append(Stencil(*self._many(len(Stencil._fields))))
            else:
                windows.append(self.number())
            return names

        dims = self.listed("[", "]", dim)
        return Access(array, tuple(dims), tuple(extents), tuple(windows))

    def _program(self) -> Program:
        """`program: "program" NAME "=" NAME "(" values ")" ("donated" "(" names ")")? "{" op* "return" names "}"`."""
        label, name = self._label(), self.name()
        inputs = self.listed("(", ")", self._value)
        donated = self.listed("(", ")", self._used) if self.take("donated") else []
        self.expect("{")
        ops: list[Op] = []
        while not self.take("return"):
            ops.append(self._op())
        outputs = [] if self.peek("}") else self._separated(self._used)
        self.expect("}")
        self.programs[label] = Program(tuple(inputs), tuple(ops), tuple(outputs), name, tuple(donated))
        return self.programs[label]

    def _op(self) -> Op:
        """`op: compute | "move" name "->" value ("by" NAME)? | call | loop`."""
        if self.take("compute"):
            return self._compute()
        if self.take("move"):
            value = self._used()
            self.expect("->")
            return Move(value, self._value(), self._defined(self.plans, "plan") if self.take("by") else None)
        if self.take("call"):
            program = self._defined(self.programs, "program")
            ins = self.listed("(", ")", self._used)
            self.expect("->")
            return Call(program, tuple(ins), tuple(self.listed("(", ")", self._value)))
        if self.take("loop"):
            return self._loop()
        return self._fail("an operation, or 'return'")

    def _compute(self) -> Compute:
        """`compute: "compute" NAME ("kind" NAME)? "@" NAME part ("," part)* "(" ins ")" "->" "(" outs ")"`."""
        name = self.name()
        kind = self.name() if self.take("kind") else ""
        self.expect("@")
        place = self._defined(self.places, "place")
        parts = self._separated(self._part)
        ins = self.listed("(", ")", lambda: self._pair(self._used))
        self.expect("->")
        outs = self.listed("(", ")", lambda: self._pair(self._value))
        return Compute(name, tuple(parts), place, tuple(ins), tuple(outs), kind)

    def _loop(self) -> Loop:
        """`loop: "loop" NAME "x" NUMBER "reverse"? NAME ("while" NAME)? ins "->" "(" values ";" values ")"`.

        `ins: "(" names ";" names ";" names ")"`: constants, carried values, arrays with entries for the steps.
        """
        name = self.name()
        self.expect("x")
        steps, reverse = self.number(), self.take("reverse")
        step = self._defined(self.programs, "program")
        condition = self._defined(self.programs, "program") if self.take("while") else None
        constants, carried, arrays = self._lists(self._used, 3)
        self.expect("->")
        left, stacked = self._lists(self._value, 2)
        if len(left) != len(carried):
            self._fail(f"{len(carried)} values that are carried, and not {len(left)}")
        ins, outs = (*constants, *carried, *arrays), (*left, *stacked)
        return Loop(name, step, ins, outs, len(constants), len(carried), steps, reverse, condition)

    def _lists(self, read: Callable[[], _T], count: int) -> list[list[_T]]:
        """Lists between brackets, separated by semicolons."""
        self.expect("(")
        lists = []
        for number in range(count):
            end = ")" if number == count - 1 else ";"
            lists.append([] if self.peek(end) else self._separated(read))
            self.expect(end)
        return lists

    def _part(self) -> ScheduledNest:
        """`part: NAME "cut" TYPE ("carried" ("(" NAME* ")")+)?`."""
        nest = self._defined(self.nests, "nest")
        self.expect("cut")
        cut = self._type()
        if not self.take("carried"):
            return ScheduledNest(nest, cut)
        return ScheduledNest(nest, cut, tuple(self._group(self.name) for _ in nest.linear))

    def _value(self) -> Value:
        """`value: name ":" TYPE ("windows" "(" (NUMBER | "(" NUMBER* ")")* ")")? NAME "@" NAME`."""
        name = self._used()
        self.expect(":")
        form, padding = self._guarded(with_padding, self._notation(type_at, "[", "a type"))
        windows = self.listed("(", ")", self._held) if self.take("windows") else ()
        dtype = self.name()
        self.expect("@")
        return Value(name, form, self._defined(self.places, "place"), dtype, tuple(windows), padding)

    def _held(self) -> Held:
        return Reach(*self._many(len(Reach._fields))) if self.peek("(") else self.number()

    def _many(self, count: int) -> tuple[int, ...]:
        """So many numbers between brackets."""
        numbers = self._group(self.number)
        return numbers if len(numbers) == count else self._fail(f"{count} numbers, and not {len(numbers)}")

    def _type(self) -> DistType:
        return self._guarded(DistType.parse, self._notation(type_at, "[", "a type"))

    def _used(self) -> str:
        """`name: "%" NAME`."""
        self.expect("%")
        return self.name()

    def _pair(self, second: Callable[[], _T]) -> tuple[str, _T]:
        first = self.name()
        self.expect("=")
        return first, second()

    def _group(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        self.expect("(")
        names = self._until((")",), read)
        self.expect(")")
        return tuple(names)

    def _label(self) -> str:
        label = self.name()
        self.expect("=")
        return label

    def _defined(self, table: Mapping[str, _T], kind: str) -> _T:
        start, label = self.at, self.name()
        if label not in table:
            self.at = start
            self._fail(f"a {kind} that is defined above")
        return table[label]

    def _separated(self, read: Callable[[], _T]) -> list[_T]:
        items = [read()]
        while self.take(","):
            items.append(read())
        return items

    def _until(self, ends: tuple[str, ...], read: Callable[[], _T]) -> list[_T]:
        items = []
        while not any(map(self.peek, ends)):
            items.append(read())
        return items

    def listed(self, opening: str, closing: str, read: Callable[[], _T]) -> list[_T]:
        """The items between brackets, separated by commas."""
        self.expect(opening)
        items = [] if self.peek(closing) else self._separated(read)
        self.expect(closing)
        return items

    # ------------------------------------------------------------------------------------------- terminals

    def _skip(self) -> None:
        blank = _BLANK.match(self.source, self.at)
        self.at = blank.end() if blank else self.at

    def peek(self, word: str) -> bool:
        """Whether a word, or a mark, comes next."""
        if not self.source.startswith(word, self.at):
            return False
        longer = PLAIN.match(self.source, self.at)
        return longer is None or longer.group() == word or not word[-1].isalpha()

    def take(self, word: str) -> bool:
        """Read it if it comes next, and say whether it did."""
        is_next = self.peek(word)
        if is_next:
            self.at += len(word)
            self._skip()
        return is_next

    def expect(self, word: str) -> None:
        """Read it."""
        if not self.take(word):
            self._fail(repr(word))

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Read a match of a pattern."""
        match = pattern.match(self.source, self.at)
        if match is None:
            self._fail(expected)
        self.at = match.end()
        self._skip()
        return match.group()

    def _notation(self, read: Callable[[str, int], str], opening: str, expected: str) -> str:
        """`TYPE` or `MESH`: a piece of the notation that begins here."""
        if not self.peek(opening):
            self._fail(expected)
        text = self._guarded(lambda text: read(text, self.at), self.source)
        self.at += len(text)
        self._skip()
        return text

    def name(self) -> str:
        """`NAME`."""
        if self.peek('"'):
            text = self.match(_QUOTED, "a name")
            return str(self._guarded(json.loads, text))
        return self.match(PLAIN, "a name")

    def number(self) -> int:
        """`NUMBER`."""
        return int(self.match(_NUMBER, "a number"))

    def _guarded(self, read: Callable[[str], _T], text: str) -> _T:
        try:
            return read(text)
        except (RedistribError, ValueError) as error:
            raise ProgramError("", "", "Text", f"line {self._line}: {error}") from error

    @property
    def _line(self) -> int:
        return self.source.count("\n", 0, self.at) + 1

    def _one_of(self, classes: type[_Enum]) -> _Enum:
        name = self.name()
        return next((one for one in classes if one == name), None) or self._fail(f"one of {', '.join(classes)}")

    def _fail(self, expected: str) -> NoReturn:
        rest = self.source[self.at :].split("\n", 1)[0]
        actual = repr(rest[:40]) if rest else "the end of the line" if self.at < len(self.source) else "the end"
        raise ProgramError("", "", "Text", f"line {self._line}: expected {expected}, found {actual}")
