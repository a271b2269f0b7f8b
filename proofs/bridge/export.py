"""A plan's JSON form as a Coq term of type `plan` (proofs/Checker/Spec.v).

It reads the JSON and nothing of the library, so that the two verdicts on a plan share no code. The names of axes become
positions in the mesh; an axis that the mesh lacks becomes a position that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Form = dict[str, Any]

_DIM = re.compile(r"(?P<tile>\d+)(?:\{(?P<axes>[\w,\s]*)\}(?P<size>\d+))?")


def dimensions(text: str) -> list[tuple[int, list[str], int]]:
    """Tile, axes minor to major and size of every dimension of a type in the notation.

    >>> dimensions("[3{x,y}12, 5]")
    [(3, ['x', 'y'], 12), (5, [], 5)]
    """
    body = text.strip()
    if not (body.startswith("[") and body.endswith("]")):
        raise ValueError(f"{text!r} is no type")
    dims = []
    rest = body[1:-1].strip()
    while rest:
        match = _DIM.match(rest)
        if match is None:
            raise ValueError(f"{text!r} is no type, at {rest!r}")
        tile = int(match["tile"])
        axes = [name.strip() for name in (match["axes"] or "").split(",") if name.strip()]
        dims.append((tile, axes, int(match["size"]) if match["size"] else tile))
        rest = rest[match.end() :].lstrip()
        if rest.startswith(","):
            rest = rest[1:].lstrip()
        elif rest:
            raise ValueError(f"{text!r} is no type, at {rest!r}")
    return dims


def plan_term(form: Form) -> str:
    """The Coq term of a plan."""
    return "Plan {} {} {} {} {} {}".format(
        _type(form["source"]),
        _mesh(form["source"]),
        _type(form["target"]),
        _mesh(form["target"]),
        _list(_placement, form["placements"]),
        _list(_step, form["steps"]),
    )


def _list(term: Callable[[Any], str], values: Iterable[Any]) -> str:
    return "[" + "; ".join(map(term, values)) + "]"


def _int(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"


def _ints(values: Iterable[int]) -> str:
    return _list(_int, values)


def _type(side: Form) -> str:
    axes = side["mesh"]["axes"]
    position = {name: k for k, (name, _) in enumerate(axes)}

    def dim(value: tuple[int, list[str], int]) -> str:
        tile, names, size = value
        return f"Dim {tile} {_ints(position.get(name, len(axes)) for name in names)} {size}"

    return _list(dim, dimensions(side["type"]))


def _mesh(side: Form) -> str:
    mesh = side["mesh"]
    return f"(Mesh {_ints(size for _, size in mesh['axes'])} {_ints(mesh['devices'])})"


def _placement(placement: Form) -> str:
    return f"Placement {_ints(placement['grid'])} {_list(_ints, placement['index'])}"


def _step(step: Form) -> str:
    return f"Step {_int(step['before'])} {_int(step['after'])} {_action(step)}"


def _action(step: Form) -> str:
    match step["kind"]:
        case "dynslice":
            return "DynSlice"
        case "allgather":
            return f"(AllGather {_list(_ints, step['groups'])})"
        case "alltoall":
            return f"(AllToAll {_list(_ints, step['groups'])})"
        case "allpermute":
            return f"(AllPermute {_list(_pair, step['pairs'])})"
        case "exchange":
            how = {"rounds": "Rounds", "ragged": "Ragged"}[step["realisation"]]
            return f"(Exchange {how} {_list(_share, step['shares'])})"
        case kind:
            raise ValueError(f"a step of kind {kind!r} has no Coq term")


def _pair(pair: list[int]) -> str:
    src, dst = pair
    return f"({_int(src)}, {_int(dst)})"


def _share(share: list[Any]) -> str:
    src, dst, number, start, size = share
    return f"Share {_int(src)} {_int(dst)} {_int(number)} {_ints(start)} {_ints(size)}"
