"""A plan's JSON form as a Coq term: a `plan` (proofs/Checker/Spec.v), or a `pplan` (PartialSpec.v) if it has summands.

It reads the JSON and nothing of the library, so that the two verdicts on a plan share no code. The names of axes become
positions in the mesh; an axis that the mesh lacks becomes a position that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Form = dict[str, Any]

_SUMMANDS = re.compile(r"(?P<dims>.*\])\s*(?P<reduction>sum|max|min)\s*\{(?P<axes>[\w,\s]*)\}\s*", re.DOTALL)
_DIM = re.compile(r"(?P<tile>\d+)(?:\{(?P<axes>[\w,\s]*)\}(?P<size>\d+))?")


def summands(text: str) -> tuple[str, str, list[str]]:
    """A type without its summands, their reduction, and the axes along which tiles are summands.

    >>> summands("[3{x}12] max{y,z}")
    ('[3{x}12]', 'max', ['y', 'z'])
    >>> summands("[3{x}12]")
    ('[3{x}12]', 'sum', [])
    """
    match = _SUMMANDS.fullmatch(text)
    if match is None:
        return text, "sum", []
    return match["dims"], match["reduction"], [name.strip() for name in match["axes"].split(",") if name.strip()]


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


def is_between_sets(form: Form) -> bool:
    """Whether a form is of a plan that leaves devices without data, at an end or on the way.

    >>> is_between_sets({"placements": [{"grid": [2], "index": [[0], [-1], [1]]}]})
    True
    >>> is_between_sets({"placements": [{"grid": [1], "index": [[0], [-1]], "summand": [0, 1], "summands": 2}]})
    False
    """
    if "traffic" in form:
        return True
    if any("summand" in placement for placement in form["placements"]):
        return False
    return any(set(row) == {-1} for placement in form["placements"] for row in placement["index"])


def is_partial(form: Form) -> bool:
    """Whether a form is of the version that knows summands, and may have some."""
    return bool(form.get("version", 1) > 1) and not is_between_sets(form)


def plan_term(form: Form) -> str:
    """The Coq term of a plan: of type `pplan` if its form may have summands, else of type `plan`."""
    partial = is_partial(form)
    return "{} {} {} {} {} {} {}".format(
        "PPlan" if partial else "Plan",
        _ptype(form["source"]) if partial else _type(form["source"], form["source"]["type"]),
        _mesh(form["source"]),
        _ptype(form["target"]) if partial else _type(form["target"], form["target"]["type"]),
        _mesh(form["target"]),
        _list(_pplacement if partial else _placement, form["placements"]),
        _list(_pstep if partial else _step, form["steps"]),
    )


def _list(term: Callable[[Any], str], values: Iterable[Any]) -> str:
    return "[" + "; ".join(map(term, values)) + "]"


def _int(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"


def _ints(values: Iterable[int]) -> str:
    return _list(_int, values)


def _type(side: Form, text: str) -> str:
    def dim(value: tuple[int, list[str], int]) -> str:
        tile, names, size = value
        return f"Dim {tile} {_ints(_positions(side, names))} {size}"

    return _list(dim, dimensions(text))


def _ptype(side: Form) -> str:
    whole, reduction, names = summands(side["type"])
    return f"(PType {_type(side, whole)} {_ints(_positions(side, names))} {reduction.title()})"


def _positions(side: Form, names: Iterable[str]) -> list[int]:
    axes = side["mesh"]["axes"]
    position = {name: k for k, (name, _) in enumerate(axes)}
    return [position.get(name, len(axes)) for name in names]


def _mesh(side: Form) -> str:
    mesh = side["mesh"]
    return f"(Mesh {_ints(size for _, size in mesh['axes'])} {_ints(mesh['devices'])})"


def _placement(placement: Form) -> str:
    return f"Placement {_ints(placement['grid'])} {_list(_ints, placement['index'])}"


def _pplacement(placement: Form) -> str:
    label = placement.get("summand", [0] * len(placement["index"]))
    reduction = placement.get("reduction", "sum").title()
    return f"PPlacement ({_placement(placement)}) {_ints(label)} {_int(placement.get('summands', 1))} {reduction}"


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
            return f"(Exchange {_how(step)} {_list(_share, step['shares'])})"
        case kind:
            raise ValueError(f"a step of kind {kind!r} has no Coq term")


def _pstep(step: Form) -> str:
    return f"PStep {_int(step['before'])} {_int(step['after'])} {_paction(step)}"


def _paction(step: Form) -> str:
    match step["kind"]:
        case "reduce_scatter":
            return f"(ReduceScatter {_list(_ints, step['groups'])})"
        case "all_reduce":
            return f"(AllReduce {_list(_ints, step['groups'])})"
        case "reduce_exchange":
            return f"(ReduceExchange {_how(step)} {_list(_share, step['shares'])} {_ints(step['splits'])})"
        case "unreduce":
            return f"(Unreduce {_ints(step['keeps'])})"
        case _:
            return f"(Move {_action(step)})"


def _how(step: Form) -> str:
    """How shares travel; version 1 has another name for it."""
    return str(step.get("implementation", step.get("realisation"))).title()


def _pair(pair: list[int]) -> str:
    src, dst = pair
    return f"({_int(src)}, {_int(dst)})"


def _share(share: list[Any]) -> str:
    src, dst, number, start, size = share
    return f"Share {_int(src)} {_int(dst)} {_int(number)} {_ints(start)} {_ints(size)}"
