"""Programs with calls drawn at random: nested, repeated, on values that share bytes, are passed on or never read."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Place, Program, Value
from redistrib.programs.ir.spec import nest
from redistrib.synthesis.synthesize import synthesize

PAIR = Mesh.of("x=2")
PLACES = (Place(Mesh(()), (0,)), Place(Mesh(()), (1,)), Place(PAIR), Place(PAIR, (1, 0)))
SIZES = (2, 4, 10)
DTYPES = ("int8", "float64")


@cache
def op(*sizes: int) -> Nest:
    """An operation that reads whole arrays of these sizes, all but the last, and writes one of the last size."""
    letters = "abcdefg"[: len(sizes)]
    spec = ",".join(letters[:-1]) + "->" + letters[-1]
    return nest(spec, sizes, name="op", fn=lambda *args: sum(args))


@cache
def plan(source: str, target: str) -> Plan:
    return synthesize(DistType.of(source), PAIR, DistType.of(target), PAIR, dtype="float64", model="tpu")


def forms(size: int, place: Place) -> list[str]:
    return [f"[{size}]", f"[{size // 2}{{x}}{size}]"] if place.mesh.axes else [f"[{size}]"]


@st.composite
def programs(draw: st.DrawFn, depth: int = 2, most: int = 6) -> Program:
    """A program on at most two devices whose calls are nested at most `depth` deep."""
    called = draw(st.lists(programs(depth - 1, 4), min_size=1, max_size=2)) if depth else []
    b = Builder(f"depth{depth}")
    held: list[Value] = []
    inputs: list[Value] = []
    for k in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(PLACES))
        form = draw(st.sampled_from(forms(draw(st.sampled_from(SIZES)), place)))
        held.append(b.input(f"in{k}", form, place, draw(st.sampled_from(DTYPES))))
        inputs.append(held[-1])
    kinds = [*["call"] * 3 * bool(called), "op", "op", "rename", "move", "plan"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=2 * depth, max_size=most)):
        value = draw(st.sampled_from(held))
        size = value.shape[0]
        match kind:
            case "op" if value.type.axes:
                held.append(b.compute(nest("i->i", (size,)), value, cut={"i": ("x",)}))
            case "op":
                alike = [one for one in held if one.place == value.place and not one.type.axes]
                args = [value, *draw(st.lists(st.sampled_from(alike), max_size=2))]
                sizes = [*(one.shape[0] for one in args), draw(st.sampled_from(SIZES))]
                held.append(b.compute(op(*sizes), *args, dtype=value.dtype))
            case "rename":
                turned = value.place.mesh.axes and not value.type.axes
                place = Place(PAIR, value.place.devices[::-1]) if turned else value.place
                held.append(b.move(value, place=place))
            case "move":
                place = draw(st.sampled_from(PLACES))
                if place.devices != value.place.devices:
                    held.append(b.move(value, draw(st.sampled_from(forms(size, place))), place))
            case "plan" if value.place.mesh.axes and value.dtype == "float64":
                target = draw(st.sampled_from(forms(size, value.place)))
                held.append(b.move(value, plan=plan(str(value.type), target)))
            case "call":
                program = draw(st.sampled_from(called))
                args = []
                for asked in program.inputs:
                    fit = [one for one in held if one.means(asked) and one.dtype == asked.dtype]
                    if fit:
                        args.append(draw(st.sampled_from(fit)))
                    else:
                        args.append(b.input("more", asked.type, asked.place, asked.dtype))
                outs = b.call(program, *args)
                held += [*args, *(outs if isinstance(outs, tuple) else (outs,))]
            case _:
                pass
    b.donate(*draw(st.lists(st.sampled_from(inputs), max_size=3, unique_by=lambda value: value.name)))
    return b.build(*draw(st.lists(st.sampled_from(held), min_size=depth < 2, max_size=3)))
