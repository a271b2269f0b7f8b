"""Programs drawn at random: computations, planned and direct moves, and calls on places of up to four devices."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Place, Program, Value
from redistrib.programs.ir.spec import nest
from redistrib.synthesis.synthesize import synthesize

SIZE = 8
SHAPES = {
    "": ["[8, 8]"],
    "x": ["[8, 8]", "[4{x}8, 8]", "[8, 4{x}8]"],
    "xy": ["[8, 8]", "[4{x}8, 4{y}8]", "[2{x,y}8, 8]"],
}
PLACES = {
    "": [Place(Mesh(()), (k,)) for k in range(4)],
    "x": [Place(Mesh.of("x=2"), devices) for devices in ((0, 1), (2, 3), (3, 0))],
    "xy": [Place(Mesh.of("x=2,y=2"), devices) for devices in ((0, 1, 2, 3), (2, 0, 3, 1))],
}
ADD = nest("ij,ij->ij", (SIZE, SIZE), name="add", fn=np.add, linear=[(0, 1)], flops=1)
NEGATE = nest("ij->ij", (SIZE, SIZE), name="negate", fn=np.negative, linear=[(0,)], flops=1)
MATMUL = nest("ij,jk->ik", (SIZE, SIZE, SIZE), name="matmul")


def cut_of(value: Value, nest_dims: str = "ij") -> dict[str, tuple[str, ...]]:
    return {name: dim.axes for name, dim in zip(nest_dims, value.type.dims, strict=True)}


@cache
def less(form: str, place: Place) -> Program:
    """A program to call: a value less itself, and the value negated."""
    b = Builder("less")
    x = b.input("x", form, place, "int64")
    y = b.compute(NEGATE, x, cut=cut_of(x))
    none = b.compute(ADD, x, y, cut=cut_of(x))  # dead before the end
    return b.build(b.compute(NEGATE, none, cut=cut_of(x)), y)


@cache
def plan_between(source: str, target: str, mesh: Mesh) -> Any:
    return synthesize(DistType.of(source), mesh, DistType.of(target), mesh, dtype="int64", model="tpu")


@st.composite
def programs(draw: st.DrawFn, most: int = 9, everywhere: bool = False) -> Program:
    """A program on at most four devices, on integers; `everywhere`, all operations on all of them."""
    b = Builder("drawn")
    kinds = st.sampled_from(["xy"] if everywhere else list(PLACES))

    def somewhere() -> tuple[Place, str]:
        kind = draw(kinds)
        return draw(st.sampled_from(PLACES[kind])), draw(st.sampled_from(SHAPES[kind]))

    held: list[Value] = []
    for k in range(draw(st.integers(1, 3))):
        place, form = somewhere()
        held.append(b.input(f"in{k}", form, place, "int64"))
    inputs = [*held]
    for _ in range(draw(st.integers(1, most))):
        value = draw(st.sampled_from(held))
        match draw(st.sampled_from(["negate", "add", "matmul", "move", "plan", "call", "rename"])):
            case "negate":
                held.append(b.compute(NEGATE, value, cut=cut_of(value)))
            case "add":
                alike = [one for one in held if one.place == value.place and one.type == value.type and one != value]
                if alike:
                    held.append(b.compute(ADD, value, draw(st.sampled_from(alike)), cut=cut_of(value)))
            case "matmul":
                whole = [one for one in held if one.place == value.place and str(one.type) == "[8, 8]"]
                rows = {"i": value.type.dims[0].axes}
                if whole and not value.type.dims[1].axes:
                    held.append(b.compute(MATMUL, value, draw(st.sampled_from(whole)), cut=rows))
            case "move":
                place, form = somewhere()
                if place.devices != value.place.devices:
                    held.append(b.move(value, form, place))
            case "plan":
                kind = "".join(value.place.mesh.names)
                target = draw(st.sampled_from(SHAPES[kind]))
                held.append(b.move(value, plan=plan_between(str(value.type), target, value.place.mesh)))
            case "rename":
                held.append(b.move(value))
            case "call":
                held += b.call(less(str(value.type), value.place), value)
    b.donate(*draw(st.lists(st.sampled_from(inputs), max_size=3, unique_by=lambda one: one.name)))
    return b.build(*draw(st.lists(st.sampled_from(held), min_size=1, max_size=3, unique_by=lambda one: one.name)))


def arrays_for(program: Program) -> list[np.ndarray]:
    """Small integers, different for every input."""
    rng = np.random.default_rng(0)
    return [rng.integers(-9, 9, value.type.global_shape) for value in program.inputs]
