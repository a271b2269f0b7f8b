"""Programs as text: places and nests by label, a line for each operation, called programs before their callers.

`to_text` writes it and `redistrib.programs.ir.parse.parse` reads it back. Bodies of nests are Python and have no text:
they are written by name, and `bodies_of` says which is which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeAlias

from redistrib.digests import digest_of_parts
from redistrib.plans.plan import Plan
from redistrib.programs.ir.data import Call, Compute, Loop, Move, Op, ProgramData
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.value import Place, Value

Body: TypeAlias = Callable[..., Any]

PLAIN = re.compile(r"[A-Za-z_][\w.'/]*", re.ASCII)
WORDS = ("place", "nest", "plan", "program", "return", "windows")


def digest_of(program: ProgramData) -> str:
    """A digest of a program, equal on all ranks with an equal one. Of the bodies of its nests only the names count."""
    return digest_of_parts([to_text(program)])


def to_text(program: ProgramData) -> str:
    """A program as text.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.programs.ir.builder import Builder
    >>> from redistrib.programs.ir.spec import nest
    >>> b = Builder("product")
    >>> a = b.input("a", "[4{x}8, 8]", Place(Mesh.of("x=2")))
    >>> print(to_text(b.build(b.compute(nest("ij->i", (8, 8), name="sum"), a, cut={"i": "x"}))))
    place p0 = {x:2} @ 0, 1
    nest n0 = sum[i: 8, j: 8] (a[i, j]) -> (out[i]) {combine: j sum; linear: (0); flops: 1; body: sum}
    program f0 = product(%a: [4{x}8, 8] float32 @p0) {
      compute sum @p0 n0 cut [4{x}8, 8] (a = %a) -> (out = %sum: [4{x}8] float32 @p0)
      return %sum
    }
    """
    return "\n".join(_Printer(program).lines())


def bodies_of(program: ProgramData) -> dict[str, Body]:
    """The bodies of a program's nests, under the names that its text has for them."""
    return _Printer(program).bodies


def quoted(name: str) -> str:
    """A name as the text has it: plain where it can be, else as JSON has a string.

    >>> quoted("h.1"), quoted("ij->i")
    ('h.1', '"ij->i"')
    """
    return name if PLAIN.fullmatch(name) and name not in WORDS else json.dumps(name)


class _Printer:
    def __init__(self, program: ProgramData) -> None:
        self.places: dict[Hashable, str] = {}
        self.nests: dict[int, tuple[str, Nest]] = {}
        self.plans: dict[int, tuple[str, Plan]] = {}
        self.programs: dict[int, tuple[str, ProgramData]] = {}
        self.bodies: dict[str, Body] = {}
        self.programs_text: list[str] = []
        self._place_lines: list[str] = []
        self._add(program)

    def lines(self) -> Iterator[str]:
        yield from self._place_lines
        for label, nest in self.nests.values():
            yield f"nest {label} = {self._nest(nest)}"
        yield from self.programs_text
        for label, plan in self.plans.values():
            yield f"plan {label} = {json.dumps(json.loads(plan.to_json()))}"

    def _add(self, program: ProgramData) -> str:
        if id(program) in self.programs:
            return self.programs[id(program)][0]
        ops = [self._op(op) for op in program.ops]  # called programs come first
        label = f"f{len(self.programs)}"
        self.programs[id(program)] = (label, program)
        inputs = ", ".join(map(self._value, program.inputs))
        donated = f" donated ({_names(program.donated)})" if program.donated else ""
        self.programs_text.append(f"program {label} = {quoted(program.name)}({inputs}){donated} {{")
        self.programs_text += [f"  {line}" for line in ops]
        self.programs_text.append(f"  return {_names(program.outputs)}".rstrip())
        self.programs_text.append("}")
        return label

    def _place(self, place: Place) -> str:
        if place not in self.places:
            label = f"p{len(self.places)}"
            order = place.mesh.devices
            order_text = "" if order == tuple(range(place.mesh.size)) else f" / {', '.join(map(str, order))}"
            self._place_lines.append(
                f"place {label} = {place.mesh}{order_text} @ {', '.join(map(str, place.devices))}"
            )  # fmt: skip
            self.places[place] = label
        return self.places[place]

    def _value(self, value: Value) -> str:
        return f"%{quoted(value.name)}: {value.form} {quoted(value.dtype)} @{self._place(value.place)}"

    def _op(self, op: Op) -> str:
        match op:
            case Compute():
                parts = ", ".join(map(self._part, op.parts))
                ins = ", ".join(f"{quoted(array)} = %{quoted(name)}" for array, name in op.ins)
                outs = ", ".join(f"{quoted(array)} = {self._value(value)}" for array, value in op.outs)
                kind = "" if op.kind == op.name else f" kind {quoted(op.kind)}"
                return f"compute {quoted(op.name)}{kind} @{self._place(op.place)} {parts} ({ins}) -> ({outs})"
            case Move():
                by = "" if op.plan is None else f" by {self._plan(op.plan)}"
                return f"move %{quoted(op.value)} -> {self._value(op.out)}{by}"
            case Call():
                label = self._add(op.program)
                return f"call {label} ({_names(op.ins)}) -> ({', '.join(map(self._value, op.outs))})"
            case Loop():
                return self._loop(op)

    def _loop(self, op: Loop) -> str:
        step = self._add(op.program)
        test = "" if op.condition is None else f" while {self._add(op.condition)}"
        ins = "; ".join(map(_names, op.form.operands(op.ins)))
        outs = "; ".join(", ".join(map(self._value, part)) for part in op.form.results(op.outs))
        order = " reverse" if op.reverse else ""
        return f"loop {quoted(op.name)} x {op.steps}{order} {step}{test} ({ins}) -> ({outs})"

    def _part(self, part: ScheduledNest) -> str:
        nest = part.nest
        if id(nest) not in self.nests:
            self.nests[id(nest)] = (f"n{len(self.nests)}", nest)
            self._body(nest)
        carried = "".join(f" ({' '.join(map(quoted, axes))})" for axes in part.carried)
        return f"{self.nests[id(nest)][0]} cut {part.cut}" + (f" carried{carried}" if part.carried else "")

    def _plan(self, plan: Plan) -> str:
        return self.plans.setdefault(id(plan), (f"q{len(self.plans)}", plan))[0]

    def _body(self, nest: Nest) -> str:
        """The name of a nest's body: that of the nest, with a number where another body has it."""
        key, k = nest.name, 1
        while self.bodies.get(key, nest.body) is not nest.body:
            k += 1
            key = f"{nest.name}/{k}"
        if nest.body is not None:
            self.bodies[key] = nest.body
        return key

    def _nest(self, nest: Nest) -> str:
        ranges = ", ".join(f"{quoted(name)}: {_range(over)}" for name, over in nest.ranges)
        reads, writes = (", ".join(map(_access, accesses)) for accesses in (nest.reads, nest.writes))
        order = nest.position.__getitem__
        options = {
            "combine": ", ".join(f"{quoted(name)} {kind}" for name, kind in nest.combine),
            "whole": " ".join(map(quoted, sorted(nest.whole, key=order))),
            "linear": " ".join(f"({' '.join(map(str, group))})" for group in nest.linear),
            "indexed": " ".join(map(quoted, sorted(nest.indexed, key=order))),
            "fills": nest.fills or "",
            "flops": str(nest.flops),
            "effectful": "yes" if nest.effectful else "",
            "replicated": " ".join(map(str, sorted(nest.replicated))),
            "fusion": nest.record.fusion if nest.record else "",
            "work": nest.record.work if nest.record else "",
            "body": "" if nest.body is None else quoted(self._body(nest)),
        }
        texts = "; ".join(f"{key}: {text}" for key, text in options.items() if text)
        return f"{quoted(nest.name)}[{ranges}] ({reads}) -> ({writes}) {{{texts}}}"


def _range(over: range) -> str:
    return str(over.stop) if over == range(over.stop) else f"{over.start}..{over.stop} by {over.step}"


def _access(access: Access) -> str:
    extents = iter(access.extents)
    dims = [
        quoted(dim[0]) if len(dim) == 1 else f"({' '.join(map(quoted, dim))})" if dim else f":{next(extents)}"
        for dim in access.dims
    ]
    for k, window in enumerate(access.windows):
        if window != 1:
            dims[k] += f" +{window}"
    return f"{quoted(access.array)}[{', '.join(dims)}]"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"%{quoted(name)}" for name in names)
