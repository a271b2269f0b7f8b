"""Programs built operation by operation, in the order in which devices run them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redistrib.errors import CutError, ProgramError
from redistrib.lang.types import DistType
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.programs.ir.check import check
from redistrib.programs.ir.cuts import cut_of
from redistrib.programs.ir.groups import Group, group_of
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Call, Compute, Move, Op, Place, Program, Value
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.value import with_padding

WorkCut = DistType | str | Mapping[str, Sequence[str]] | None


class Builder:
    """A program in the making.

    `input`, `compute`, `move` and `call` add an operation and return its values.

    Attributes:
        name: of the program.
        inputs: the inputs so far.
        ops: the operations so far.
        plan: plans the move of a value to another; None is a move without a plan.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.programs.ir.spec import nest
    >>> both = Place(Mesh.of("x=2"))
    >>> b = Builder("product")
    >>> a, w = b.input("a", "[4{x}8, 8]", both), b.input("w", "[8, 8]", both)
    >>> y = b.compute(nest("ij,jk->ik", (8, 8, 8)), a, w, cut={"i": "x"})
    >>> print(y.type, len(b.build(y).ops))
    [4{x}8, 8] 1
    """

    def __init__(
        self,
        name: str = "main",
        plan: Callable[[Value, Value], Plan | None] = lambda value, out: None,
        reserved: Iterable[str] = (),
    ) -> None:
        """An empty program; names that are `reserved` are given to no value that the builder names."""
        self.name, self.plan = name, plan
        self.inputs: list[Value] = []
        self.ops: list[Op] = []
        self._donated: list[str] = []
        self._namesakes = dict.fromkeys(reserved, 0)  # for every name the last number that was added to it
        self._uncut: dict[
            tuple[int, Place], tuple[tuple[ScheduledNest, ...], Group]
        ] = {}  # of nests that the operations keep

    def input(
        self, name: str, form: DistType | str, place: Place, dtype: str = "float32", windows: Sequence[int] = ()
    ) -> Value:
        """A value that the program starts from; where tiles overlap, of the type of its points, see `Value`.

        Raises:
            DtypeError: if there is no such element type.
        """
        itemsize_of(dtype)
        even, padding = with_padding(form)
        value = Value(self._named(name), even, place, dtype, tuple(windows), padding)
        self.inputs.append(value)
        return value

    def compute(
        self,
        nest: Nest,
        *args: Value,
        cut: WorkCut = None,
        place: Place | None = None,
        names: Sequence[str] = (),
        dtype: str | None = None,
    ) -> Any:
        """One operation on values, one for each array that the nest reads.

        Args:
            nest: the operation.
            args: the values, in the order of the nest's reads; summands pass through linear reads.
            cut: how the work is cut: a type on the iteration space, or for each iteration dimension the axes that cut
                it, minor to major; else not at all.
            place: the devices; those of the first value unless given.
            names: of the results; else made of the operation's name.
            dtype: of the results; that of the values unless given, which they must have in common.

        Returns:
            The value it makes; a tuple of them if it makes several.

        Raises:
            CutError: if the cut does not divide the iteration space, or cuts a dimension that must stay whole.
            ProgramError: if a value is of another shape than the nest reads, there are too few or too many, or they are
                of different element types and `dtype` is not given.
        """
        arrays = list(dict.fromkeys(access.array for access in nest.reads))
        if len(arrays) != len(args):
            raise ProgramError(nest.name, "", "SSA", f"it reads {len(arrays)} arrays and {len(args)} values are given")
        operands = dict(zip(arrays, args, strict=True))
        for access in nest.reads:
            value = operands[access.array]
            if value.shape != nest.shape(access):
                raise ProgramError(
                    nest.name,
                    access.array,
                    "Nest",
                    f"it reads an array of shape {nest.shape(access)}, and value {value.name!r} has shape "
                    f"{value.shape}",
                )
        if place is None and not args:
            raise ProgramError(nest.name, "", "Place", "it reads nothing, so nothing says where it runs; give place=")
        place = place or args[0].place
        carried = tuple(operands[nest.reads[group[0]].array].type.partial for group in nest.linear)
        if cut is None and not any(carried) and (id(nest), place) in self._uncut:
            parts, group = self._uncut[id(nest), place]
        else:
            parts = (ScheduledNest(nest, _cut(nest, cut, place), carried if any(carried) else ()),)
            group = group_of(nest.name, parts, place)
            if cut is None and not any(carried):
                self._uncut[id(nest), place] = parts, group
        kind = _element_type(nest, operands, dtype)
        results = [
            (array, Value(self._named(names[k] if k < len(names) else nest.name, bool(names)), form, place, kind))
            for k, (array, form) in enumerate(group.writes.items())
        ]
        ins = tuple((array, value.name) for array, value in operands.items())
        self.ops.append(Compute(nest.name, parts, place, ins, tuple(results)))
        return results[0][1] if len(results) == 1 else tuple(value for _, value in results)

    def move(
        self,
        value: Value,
        form: DistType | str | None = None,
        place: Place | None = None,
        *,
        plan: Plan | None = None,
        name: str = "",
        windows: Sequence[int] = (),
    ) -> Value:
        """The value with another type, or on other devices, by a plan where the devices are the same.

        Args:
            value: the value to move.
            form: the type it becomes: its own unless given, or that of the plan's target.
            place: where it goes; where it is unless given.
            plan: how, between the same devices.
            name: of the new value.
            windows: of tiles that overlap; the form is then the type of the points, see `Value`.
        """
        if form is None:
            form = value.type if plan is None else plan.target
        if place is None:
            place = value.place if plan is None else Place(plan.target_mesh, value.place.devices)
        named = self._named(name or value.name, bool(name))
        out = Value(named, with_padding(form)[0], place, value.dtype, tuple(windows), value.padding)
        self.ops.append(Move(value.name, out, plan))
        return out

    def donate(self, *inputs: Value) -> None:
        """Let the memory of inputs be free after their last reader."""
        self._donated += [value.name for value in inputs]

    def call(self, program: Program, *args: Value, names: Sequence[str] = ()) -> Any:
        """Another program on values of this one; returns its result, or a tuple of its results."""
        outs = []
        for k, output in enumerate(program.outputs):
            inner = program.values[output]
            name = self._named(names[k] if k < len(names) else program.name, k < len(names))
            outs.append(replace(inner, name=name))
        self.ops.append(Call(program, tuple(value.name for value in args), tuple(outs)))
        return outs[0] if len(outs) == 1 else tuple(outs)

    def build(self, *outputs: Value) -> Program:
        """The program that ends with these values, checked.

        Raises:
            ProgramError: as `check` does; it names the operation.
        """
        return check(self.unchecked(*outputs))

    def unchecked(self, *outputs: Value) -> Program:
        """The program that ends with these values."""
        names = tuple(value.name for value in outputs)
        return Program(tuple(self.inputs), tuple(self.ops), names, self.name, tuple(self._donated))

    def empty(self, name: str) -> Builder:
        """An empty program whose moves are planned as those of this one."""
        return Builder(name, self.plan)

    def new_name(self, name: str) -> str:
        """The name, or the first of `name.1`, `name.2`, ... that no value has."""
        unique = name
        while unique in self._namesakes:
            self._namesakes[name] += 1
            unique = f"{name}.{self._namesakes[name]}"
        self._namesakes[unique] = 0
        return unique

    def reserve(self, names: Collection[str]) -> bool:
        """Take names if no value has any of them; else return False."""
        free = self._namesakes.keys().isdisjoint(names)
        if free:
            self._namesakes.update(dict.fromkeys(names, 0))
        return free

    def _named(self, name: str, fixed: bool = False) -> str:
        if not fixed:
            return self.new_name(name)
        self._namesakes.setdefault(name, 0)
        return name

    def moved_to(self, source: Value, target: Value) -> Value:
        """A value moved to what `target` means, under a new name like its own."""
        out = replace(target, name=self.new_name(target.name))
        self.ops.append(Move(source.name, out, self.plan(source, out)))
        return out


def _element_type(nest: Nest, operands: Mapping[str, Value], dtype: str | None) -> str:
    """The element type of a nest's results: the given one, or that of all its operands."""
    if dtype is not None:
        itemsize_of(dtype)
        return dtype
    kinds = dict.fromkeys(value.dtype for value in operands.values())
    if len(kinds) > 1:
        each = ", ".join(f"{value.name!r} of {value.dtype}" for value in operands.values())
        raise ProgramError(
            nest.name, "", "Nest", f"it reads {each}, and nothing says of which element type its result is; give "
            f"dtype=, or make the values alike first",
        )  # fmt: skip
    return next(iter(kinds), "float32")


def _cut(nest: Nest, cut: WorkCut, place: Place) -> DistType:
    if isinstance(cut, DistType | str):
        return DistType.of(cut)
    by_name = {name: [axes] if isinstance(axes, str) else axes for name, axes in (cut or {}).items()}
    for name in by_name:
        if name not in nest.position:
            raise CutError(nest.name, "", "Nest", f"no iteration dimension {name!r}; it has {', '.join(nest.position)}")
    cut = cut_of(nest, by_name, place.mesh)
    if cut is None:
        raise CutError(nest.name, "", "Nest", f"the cut {by_name} over {place.mesh} does not divide {nest.ranges}")
    return cut
