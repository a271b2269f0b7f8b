"""A schedule that leaves nothing open: how each axis cuts every operation, argument and result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redistrib.errors import CutError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.partition.propagate import Propagation
from redistrib.report import rendered

FORMAT = "redistrib-schedule"
VERSION = 1


@dataclass(frozen=True)
class Schedule:
    """A whole schedule, as `rd.search` finds it; `rd.distribute` takes it where tactics may stand.

    Attributes:
        mesh: the mesh it is for.
        cuts: for operations, by name, the iteration dimension that each axis cuts; those left out are run whole.
        carries: for operations the axes of summands that pass through them, each with the group of linear reads.
        starts: types of the arguments, by name.
        ends: types of the results, by number.
        sources: for values as they are needed the type to move them from, where that is not the one they were made in.
    """

    mesh: Mesh
    cuts: Mapping[str, Mapping[str, str]]
    carries: Mapping[str, Mapping[str, int]]
    starts: dict[str, DistType]
    ends: dict[int, DistType]
    sources: Mapping[tuple[str, DistType], DistType] = field(default_factory=dict)

    def decide(self, found: Propagation) -> None:
        """Cut everything.

        Raises:
            CutError: if it was made for another function, other shapes or another mesh.
        """
        if self.mesh.axes != found.mesh.axes:
            raise CutError("", "", "Schedule", f"the schedule is for the mesh {self.mesh}, and not for {found.mesh}")
        number = {operation.name: k for k, operation in enumerate(found.graph.operations)}
        for name in (*self.cuts, *self.carries):
            if name not in number:
                raise CutError(name, "", "Schedule", "there is no such operation: the schedule is of another function")
        for name, form in self.starts.items():
            if name not in found.arrays or found.arrays[name].shape != form.global_shape:
                raise CutError("", name, "Schedule", "the schedule is of a function of other arguments")
        found.order[:] = self.mesh.names
        for name, carried in self.carries.items():
            found.carries[number[name]] = dict(carried)
        for name, cuts in self.cuts.items():
            operation = found.graph.operations[number[name]]
            if not set(cuts.values()) <= operation.nest.position.keys():
                error = CutError(name, "", "Schedule", f"it has no dimensions {', '.join(cuts.values())}")
                raise error.at(operation.source)
            found.cuts[number[name]] = dict(cuts)

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
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """The schedule in a JSON text.

        Raises:
            CutError: if the text is none.
        """
        try:
            data: dict[str, Any] = json.loads(text)
            if data.get("format") != FORMAT or data.get("version") != VERSION:
                raise ValueError(f"its format is no {FORMAT} of version {VERSION}")
            return cls(
                Mesh.of(data["mesh"]),
                {name: dict(cuts) for name, cuts in data["cuts"].items()},
                {name: dict(carries) for name, carries in data["carries"].items()},
                {name: DistType.of(form) for name, form in data["starts"].items()},
                {int(number): DistType.of(form) for number, form in data["ends"]},
                {(name, DistType.of(form)): DistType.of(source) for name, form, source in data["sources"]},
            )
        except KeyError as error:
            why = f"it has no {error}"
        except (TypeError, AttributeError):
            why = "a part is of another type"
        except (ValueError, OverflowError, RecursionError) as error:
            why = str(error)
        message = f"the text is no schedule: {why}; `redistrib search -o` and `to_json` write one"
        raise CutError("", "", "Schedule", message)

    def __str__(self) -> str:
        """A table of the arguments, and of the operations that are cut."""
        rows = [[name, str(form)] for name, form in self.starts.items()]
        rows += [
            [name, ", ".join(f"{dim} by {axis}" for axis, dim in cuts.items())] for name, cuts in self.cuts.items()
        ]
        return rendered(f"schedule on {self.mesh}", ["argument or operation", "cut"], rows)
