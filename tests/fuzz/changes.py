"""Changes at random to the form of a plan, as accident or a forger would make them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.interpreter import ITEMSIZE

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30)
OTHERS: tuple[Any, ...] = (None, True, False, 1.0, 0.5, -0.0, 1e308, "", "0", "x", "[]", [], [[]], {}, [0], [None])
ODD_TEXTS = ("\0", "é", "\ud800", "[1{x}1]", "x" * 5000, '"', "{x:2}", "float32 ", "1e999", "💥")

Form = Any  # of JSON
Path = tuple[Any, ...]


def _paths(form: Form, wanted: Callable[[Any], bool], most: int = 20_000) -> list[Path]:
    """Where in a form such values stand."""
    found: list[Path] = []
    todo: list[tuple[Path, Any]] = [((), form)]
    while todo and len(found) < most:
        path, value = todo.pop()
        if path and wanted(value):
            found.append(path)
        if isinstance(value, dict):
            todo += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            todo += [((*path, k), item) for k, item in enumerate(value)]
    return found


def _at(form: Form, path: Path) -> Any:
    for key in path:
        form = form[key]
    return form


def _put(form: Form, path: Path, value: Any) -> Form:
    if not path:
        return value
    _at(form, path[:-1])[path[-1]] = value
    return form


def _pick(form: Form, wanted: Callable[[Any], bool], rng: random.Random) -> Path | None:
    """One of these places; among the parts of a plan first, then inside, so that small parts are met as often."""
    keys = list(form)
    rng.shuffle(keys)
    for key in keys:
        found = [((key, *path)) for path in _paths(form[key], wanted)] + ([(key,)] if wanted(form[key]) else [])
        if found:
            return rng.choice(found)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(form: Form, rng: random.Random) -> Form:
    """One number a little more or less, another one of the plan, or one on an edge."""
    path = _pick(form, _is_number, rng)
    if path is None:
        return form
    value = _at(form, path)
    near = (value + 1, value - 1, -value, value * 2, value // 2, rng.randrange(24))
    return _put(form, path, rng.choice(near if rng.random() < 0.8 else NUMBERS))


def _list_change(form: Form, rng: random.Random) -> Form:
    """An entry of a list left out, doubled, swapped; the list turned, reversed or cut short."""
    path = _pick(form, lambda value: isinstance(value, list) and bool(value), rng)
    if path is None:
        return form
    rows: list[Any] = _at(form, path)
    one, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    kind = rng.choice(("swap", "swap", "delete", "double", "copy", "turn", "reverse", "cut", "shuffle"))
    if kind == "swap":
        rows[one], rows[other] = rows[other], rows[one]
    elif kind == "delete":
        del rows[one]
    elif kind == "double":
        rows.insert(other, copy.deepcopy(rows[one]))
    elif kind == "copy":
        rows[one] = copy.deepcopy(rows[other])
    elif kind == "turn":
        rows[:] = rows[1:] + rows[:1]
    elif kind == "reverse":
        rows.reverse()
    elif kind == "cut":
        del rows[one:]
    else:
        rng.shuffle(rows)
    return form


def _exchange_parts(form: Form, rng: random.Random) -> Form:
    """Two values of one kind anywhere change places."""
    kind = rng.choice((int, list, dict, str))
    places = _paths(form, lambda value: type(value) is kind)
    if len(places) < 2:
        return form
    one, other = rng.sample(places, 2)
    if one == other[: len(one)] or other == one[: len(other)]:
        return form
    a, b = _at(form, one), _at(form, other)
    return _put(_put(form, one, b), other, a)


def _another_type(form: Form, rng: random.Random) -> Form:
    """A value of a type that does not belong there, or nested deeply."""
    path = _pick(form, lambda _: True, rng)
    value: Any = copy.deepcopy(rng.choice(OTHERS if rng.random() < 0.8 else ODD_TEXTS))
    if rng.random() < 0.1:
        for _ in range(rng.choice((2, 50, 400))):
            value = [value]
    return form if path is None else _put(form, path, value)


def _keys(form: Form, rng: random.Random) -> Form:
    """A field left out, added, or called otherwise."""
    path = _pick({"": form}, lambda value: isinstance(value, dict) and bool(value), rng)
    if path is None:
        return form
    part = _at({"": form}, path)
    name = rng.choice(sorted(part))
    kind = rng.choice(("delete", "add", "rename"))
    if kind != "add":
        value = part.pop(name)
        if kind == "rename":
            part[rng.choice(("", name.upper(), name + " ", "groups", "shares", "pairs", "keeps", "splits"))] = value
    else:
        part[rng.choice(("", "extra", "groups", "shares", "pairs", "realisation", "summand"))] = rng.choice(OTHERS)
    return form


def _devices(form: Form, rng: random.Random) -> Form:
    """Two devices change places in one part of the plan: a placement, a mesh, or what a step names."""
    number = len(form["source"]["mesh"]["devices"]) if isinstance(form.get("source"), dict) else 0
    if number < 2:
        return form
    one, other = rng.sample(range(number), 2)
    part = rng.choice(("placements", "steps", "source", "target"))
    if part == "placements" and form["placements"]:
        entry = rng.choice(form["placements"])
        for table in rng.choice(([entry["index"]], [entry["index"], entry.get("summand", [])], [entry.get("summand")])):
            if table:
                table[one], table[other] = table[other], table[one]
    elif part == "steps" and form["steps"]:
        swapped = {one: other, other: one}
        step = rng.choice(form["steps"])
        for key in ("groups", "pairs"):
            if key in step:
                step[key] = [[swapped.get(d, d) for d in row] for row in step[key]]
        if "keeps" in step:
            step["keeps"] = sorted(swapped.get(d, d) for d in step["keeps"])
        if "shares" in step:
            step["shares"] = [[swapped.get(a, a), swapped.get(b, b), *rest] for a, b, *rest in step["shares"]]
    elif part in ("source", "target"):
        order = form[part]["mesh"]["devices"]
        order[one], order[other] = order[other], order[one]
    return form


def _share(form: Form, rng: random.Random) -> Form:
    """One share to another device, in another round, of another box, cut in two, or merged away."""
    steps = [step for step in form["steps"] if step.get("shares")]
    if not steps:
        return _number(form, rng)
    shares = rng.choice(steps)["shares"]
    share = rng.choice(shares)
    kind = rng.choice(("src", "dst", "round", "start", "size", "cut", "renumber", "twice"))
    dim = rng.randrange(len(share[3])) if share[3] else None
    if kind in ("src", "dst"):
        share[kind == "dst"] = rng.choice(shares)[kind == "dst"]
    elif kind == "round":
        share[2] = rng.choice(shares)[2] + rng.choice((0, 0, 1))
    elif kind == "renumber":
        for row in shares:
            row[2] += 1
    elif kind == "twice":
        shares.append([*share[:2], max(row[2] for row in shares) + 1, *copy.deepcopy(share[3:])])
    elif dim is not None and kind == "cut" and share[4][dim] > 1:
        piece, at = copy.deepcopy(share), rng.randrange(1, share[4][dim])
        share[4][dim], piece[4][dim] = at, piece[4][dim] - at
        piece[3][dim] += at
        piece[2] = max(row[2] for row in shares) + rng.choice((0, 1, 1, 1))
        shares.append(piece)
    elif dim is not None:
        share[3 if kind == "start" else 4][dim] += rng.choice((-1, 1))
    return form


def _summands(form: Form, rng: random.Random) -> Form:
    """Summands numbered otherwise, split otherwise, more or fewer of them, added twice or not at all."""
    partial = [entry for entry in form["placements"] if "summand" in entry]
    splits = [step["splits"] for step in form["steps"] if "splits" in step]
    keeps = [step["keeps"] for step in form["steps"] if "keeps" in step]
    kinds = [kind for kind, parts in (("label", partial), ("splits", splits), ("keeps", keeps)) for _ in parts]
    kind = rng.choice((*kinds, "version", "axes"))
    if kind == "label":
        entry = rng.choice(partial)
        label, count = entry["summand"], entry["summands"]
        turned = rng.sample(range(count), count)
        way = rng.choice(("one", "all", "count", "reduction", "whole", "tile"))
        if way == "one":
            label[rng.randrange(len(label))] = rng.randrange(count)
        elif way == "all":  # the same summands by other numbers
            entry["summand"] = [turned[number] for number in label]
        elif way == "count":
            entry["summands"] = rng.choice((1, count - 1, count + 1, 2 * count))
        elif way == "reduction":
            for other in partial if rng.random() < 0.5 else [entry]:
                other["reduction"] = rng.choice(("sum", "max", "min", "prod"))
        elif way == "whole":
            for name in ("summand", "summands", "reduction"):
                del entry[name]
        else:  # numbers of its own in one tile
            row = rng.choice(entry["index"])
            entry["summand"] = [
                turned[number] if at == row else number for at, number in zip(entry["index"], label, strict=True)
            ]
    elif kind == "splits":
        points = rng.choice(splits)
        points[rng.randrange(len(points))] += rng.choice((-1, 1))
    elif kind == "keeps":
        kept = rng.choice(keeps)
        if rng.random() < 0.5 and kept:
            del kept[rng.randrange(len(kept))]
        else:
            kept.append(rng.randrange(len(form["source"]["mesh"]["devices"])))
            kept.sort()
    elif kind == "version" and form["version"] == 1 and rng.random() < 0.6:  # as a whole plan of the later version
        form |= {"version": 2, "accumulate": None, "order": "any"}
        for step in form["steps"]:
            if "realisation" in step:
                step["implementation"] = step.pop("realisation")
    elif kind == "version":
        form["version"] = 3 - form["version"]
    else:
        side = form[rng.choice(("source", "target"))]
        names = [name for name, _ in side["mesh"]["axes"] if name.isidentifier()]
        summed = f" {rng.choice(('sum', 'max', 'min'))}{{{','.join(rng.sample(names, min(len(names), 2)))}}}"
        side["type"] = side["type"].split("]")[0] + "]" + (summed if rng.random() < 0.7 else "")
    return form


def _head(form: Form, rng: random.Random) -> Form:
    """Another dtype, limit, cost, type or version, as a forger would write it."""
    fields = ("dtype", "memory_limit", "cost", "type", "version", "algorithm", "unit", "kind", "realisation",
              "implementation", "order", "accumulate")  # fmt: skip
    field = rng.choice(fields)
    if field == "type":
        text = form[rng.choice(("source", "target"))]
        if isinstance(text, dict) and isinstance(text.get("type"), str) and len(text["type"]) > 2:
            k = rng.randrange(len(text["type"]))
            text["type"] = text["type"][:k] + rng.choice("0123{},[]x ") + text["type"][k + rng.randrange(2) :]
    elif field in ("realisation", "implementation", "kind"):
        for step in form["steps"]:
            if field in step and rng.random() < 0.5:
                kinds = ("dynslice", "allgather", "alltoall", "allpermute", "exchange", "reduce_scatter", "all_reduce",
                         "reduce_exchange", "unreduce")  # fmt: skip
                step[field] = rng.choice(kinds if field == "kind" else ("rounds", "ragged", "native", "alltoall"))
    else:
        values: dict[str, tuple[Any, ...]] = {
            "dtype": (*ITEMSIZE, "float33", "V8", "M8[ns]", "float8_e99m99fn", "O", "S0", "i4,f8", "complex256"),
            "memory_limit": (None, 1, 8, 64, 1000, 2**40, 10**40),
            "cost": (0, 1, 0.5, 1e308, 10**400, 10**4000, -1, 5e-324),
            "version": (1, 2, True, 1.0, "1", 0, 3),
            "order": ("any", "fixed", "", None),
            "accumulate": (None, *ITEMSIZE),
            "algorithm": ("best", "paper", "", "by hand", "\n", "x" * 300),
            "unit": ("elements", "seconds", "bytes", None),
        }
        form[field] = rng.choice(values[field])
    return form


def _careful(change: Callable[[Form, random.Random], Form]) -> Callable[[Form, random.Random], Form]:
    """A change that expects a whole plan, on what earlier changes left of it."""

    def tried(form: Form, rng: random.Random) -> Form:
        try:
            return change(form, rng)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError):
            return form

    return tried


CHANGES: dict[Callable[[Form, random.Random], Form], float] = {
    _careful(change): weight
    for change, weight in (
        (_number, 5),
        (_list_change, 5),
        (_share, 4),
        (_summands, 3),
        (_devices, 3),
        (_exchange_parts, 2),
        (_head, 2),
        (_another_type, 1.5),
        (_keys, 1),
    )
}
