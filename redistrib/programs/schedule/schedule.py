"""Complete schedules: the dimension that each mesh axis cuts, for every operation, argument and result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redistrib.errors import CutError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType, require_even
from redistrib.programs.schedule.graph_cuts import End, cuts_of
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.schedule.propagate import Propagation
from redistrib.report import Printed, rendered

FORMAT = "redistrib-schedule"
VERSION = 1
KEEP = 16  # operations for which a value that was moved is kept, where memory is short

_T = TypeVar("_T")


@dataclass(frozen=True)
class Schedule(Printed):
    """A complete schedule: the result of `rd.search`, and an argument of `rd.distribute` in the place of tactics.

    Attributes:
        mesh: the mesh whose axes it names.
        cuts: for operations, by name, the iteration dimension that each axis cuts; any other operation is replicated.
        carries: for operations the axes whose partial sums pass through them, each with the group of linear reads.
        starts: types of the arguments, by name.
        ends: types of the results, by number.
        sources: for an array and a needed type, the type of the layout version to move, where that is not the
            first version.
        keep: operations for which a value that was moved is kept, so that less memory is held; None: to the end.
        overlap: how far moves run beside computations; None where they do not.
        layout: for mesh axes the number of dimensions of the machine's torus on which each lies; empty where it has
            none.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> found = rd.search(lambda x, w: x @ w, (jnp.ones((64, 8)), jnp.ones((8, 8))), {"d": 4}, progress=False)
    >>> Schedule.from_json(found.schedule.to_json()) == found.schedule
    True
    """

    mesh: Mesh
    cuts: Mapping[str, Mapping[str, str]]
    carries: Mapping[str, Mapping[str, int]]
    starts: dict[str, DistType]
    ends: dict[int, DistType]
    sources: Mapping[tuple[str, DistType], DistType] = field(default_factory=dict)
    keep: int | None = None
    overlap: Overlap | None = None
    layout: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, propagation: Propagation, overlap: Overlap | None = None, layout: Mapping[str, int] | None = None
    ) -> Schedule:
        """The schedule of a propagation in which all ends are decided; `decide` sets it again."""
        names = [operation.name for operation in propagation.graph.operations]
        cuts = {name: dict(axes) for name, axes in zip(names, propagation.cuts, strict=True) if axes}
        carries = {name: dict(axes) for name, axes in zip(names, propagation.carries, strict=True) if axes}
        types = {end: propagation.decided_type(end) for end in {**propagation.ends, **propagation.types}}
        starts = {end: form for end, form in types.items() if isinstance(end, str) and form is not None}
        ends = {end: form for end, form in types.items() if isinstance(end, int) and form is not None}
        sources = propagation.sources or {}
        decided = (cuts, carries, starts, ends, sources, propagation.keep)
        return cls(propagation.mesh, *decided, overlap, layout or {})

    @property
    def types(self) -> dict[End, DistType]:
        """The types of arguments and results together."""
        return dict[End, DistType]([*self.starts.items(), *self.ends.items()])

    def decide(self, propagation: Propagation) -> None:
        """Set everything that a propagation may decide; types that it is given stay.

        Raises:
            CutError: if the schedule is of another function, other shapes or another mesh.
            TypeFormError: if the mesh has no such tiles, or they are of unequal size.
        """
        require_even("a schedule", *self.types.values())
        if self.mesh.axes != propagation.mesh.axes:
            raise CutError(
                "", "", "Schedule", f"the schedule is for the mesh {self.mesh}, and not for {propagation.mesh}"
            )
        numbers = {operation.name: k for k, operation in enumerate(propagation.graph.operations)}
        # Earlier versions wrote results of loops too; they are cut as the values that are carried.
        results = {one.result for loop in propagation.graph.loops for one in loop.carried}
        all_cuts = {name: cuts for name, cuts in self.cuts.items() if name not in results}
        all_carries = {name: carried for name, carried in self.carries.items() if name not in results}
        for name in (*all_cuts, *all_carries):
            if name not in numbers:
                raise CutError(name, "", "Schedule", "there is no such operation: the schedule is of another function")
        for name, form in self.starts.items():
            if name not in propagation.arrays or propagation.arrays[name].shape != form.global_shape:
                raise CutError("", name, "Schedule", "the schedule is of a function of other arguments")
        for number, form in self.ends.items():
            outputs = propagation.graph.outputs
            if number >= len(outputs) or propagation.arrays[outputs[number]].shape != form.global_shape:
                raise CutError("", "", "Schedule", f"result {number} is another: the schedule is of another function")
        for form in self.types.values():
            form.check(self.mesh)
        propagation.order[:] = self.mesh.names
        for name, carried in all_carries.items():
            operation = propagation.graph.operations[numbers[name]]
            if not all(0 <= group < len(operation.nest.linear) for group in carried.values()):
                groups = ", ".join(map(str, carried.values()))
                raise CutError(name, "", "Schedule", f"it has no linear groups {groups}").at(operation.source)
            propagation.carries[numbers[name]] = dict(carried)
        for name, cuts in all_cuts.items():
            operation = propagation.graph.operations[numbers[name]]
            if not set(cuts.values()) <= operation.nest.position.keys():
                error = CutError(name, "", "Schedule", f"it has no dimensions {', '.join(cuts.values())}")
                raise error.at(operation.source)
            propagation.cuts[numbers[name]] = dict(cuts)
        for end, form in self.types.items():
            propagation.ends[end] = cuts_of(form)
            if end not in propagation.types and propagation.decided_type(end) != form:  # its axes are in another order
                propagation.types[end] = form
        propagation.sources, propagation.keep = dict(self.sources), self.keep

    def to_json(self) -> str:
        """The schedule as JSON text; `from_json` reads it back."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "mesh": {axis.name: axis.size for axis in self.mesh.axes},
            "cuts": {name: dict(cuts) for name, cuts in self.cuts.items()},
            "carries": {name: dict(carries) for name, carries in self.carries.items()},
            "starts": {name: str(form) for name, form in self.starts.items()},
            "ends": [[number, str(form)] for number, form in self.ends.items()],
            "sources": [[name, str(form), str(source)] for (name, form), source in self.sources.items()],
        }
        if self.keep is not None:
            data["keep"] = self.keep
        if self.overlap is not None:
            data["overlap"] = self.overlap._asdict()
        if self.layout:
            data["layout"] = dict(self.layout)
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """The schedule in a JSON text.

        Raises:
            CutError: if the text is no schedule.
        """
        try:
            return cls(*_read(json.loads(text)))
        except (ValueError, RecursionError) as error:
            why = str(error)
        message = f"the text is no schedule: {why}; `redistrib search -o` and `to_json` write one"
        raise CutError("", "", "Schedule", message)

    def _text(self) -> str:
        """A table of the arguments, and of the operations that are cut."""
        rows = [[name, str(form)] for name, form in self.starts.items()]
        rows += [
            [name, ", ".join(f"{dim} by {axis}" for axis, dim in cuts.items())] for name, cuts in self.cuts.items()
        ]
        table = rendered(f"schedule on {self.mesh}", ["argument or operation", "cut"], rows)
        kept = "" if self.keep is None else f"moved values are kept for {self.keep} operations"
        beside = "" if self.overlap is None else "moves run beside operations"
        return "\n".join(filter(None, (table, kept, beside)))


_PARTS = ("mesh", "cuts", "carries", "starts", "ends", "sources")
_OPTIONAL = ("keep", "overlap", "layout")  # where they say something


def _read(data: Any) -> tuple[Any, ...]:
    """The fields of a schedule, in order, from the data of its JSON text.

    Raises:
        ValueError: names the first field that is missing or malformed.
    """
    form = _object(data, "the whole")
    if (form.get("format"), form.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"its format is no {FORMAT} of version {VERSION}")
    for part in (*_PARTS, *form):
        if part not in form:
            raise ValueError(f"it has no {part!r}")
        if part not in (*_PARTS, *_OPTIONAL, "format", "version"):
            raise ValueError(f"it has a part {part!r}, which schedules have not")
    mesh = Mesh.of(_object(form["mesh"], "'mesh'"))

    def dist_type(value: Any, where: str) -> DistType:
        result = DistType.of(_text(value, where))
        result.check(mesh)
        return result

    def by_axis(part: str, read: Callable[[Any, str], _T]) -> dict[str, dict[str, _T]]:
        result = {}
        for name, axes in _object(form[part], repr(part)).items():
            where = f"{name!r} of {part!r}"
            for axis in _object(axes, where):
                mesh.axis(axis)
            result[name] = {axis: read(value, f"axis {axis!r} of {where}") for axis, value in axes.items()}
        return result

    return (
        mesh,
        by_axis("cuts", _text),
        by_axis("carries", _number),
        {
            name: dist_type(value, f"{name!r} of 'starts'")
            for name, value in _object(form["starts"], "'starts'").items()
        },
        {
            _number(number, "a result of 'ends'"): dist_type(value, f"result {number} of 'ends'")
            for number, value in _rows(form["ends"], "ends", 2)
        },
        {
            (_text(name, "a value of 'sources'"), dist_type(value, f"{name!r} of 'sources'")): dist_type(
                source, f"{name!r} of 'sources'"
            )
            for name, value, source in _rows(form["sources"], "sources", 3)
        },
        _number(form["keep"], "'keep'") if "keep" in form else None,
        _overlap(_object(form["overlap"], "'overlap'")) if "overlap" in form else None,
        _layout(_object(form.get("layout", {}), "'layout'"), mesh),
    )


def _layout(form: dict[str, Any], mesh: Mesh) -> dict[str, int]:
    for axis in form:
        mesh.axis(axis)
    return {axis: _number(dims, f"axis {axis!r} of 'layout'") for axis, dims in form.items()}


def _overlap(form: dict[str, Any]) -> Overlap:
    if {*form} != {*Overlap._fields}:
        raise ValueError(f"'overlap' has the parts {shown([*form])}, and not {', '.join(Overlap._fields)}")
    window, *names = (form[part] for part in Overlap._fields)
    for part in names:
        if not isinstance(part, list):
            raise ValueError(f"'overlap' has {shown(part)}, and not a list of names")
    ahead, behind = (tuple(_text(name, "a name of 'overlap'") for name in part) for part in names)
    return Overlap(None if window is None else _number(window, "the window of 'overlap'"), ahead, behind)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {shown(value)}, and not an object")  # of a text, not of a caller
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} is {shown(value)}, and not a text")
    return value


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{where} is {shown(value)}, and not an integer from 0 on")
    return value


def _rows(value: Any, part: str, size: int) -> list[list[Any]]:
    if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == size for row in value):
        raise ValueError(f"{part!r} is {shown(value)}, and not a list of lists of {size}")
    return value
