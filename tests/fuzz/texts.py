"""Hostile texts for everything that reads text: types, meshes, sizes, dtypes, plans, profiles, programs, schedules and
the command line."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
from collections.abc import Callable
from typing import Any

import redistrib as rd
from redistrib import cli
from redistrib.arguments import dtype_name
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.text import to_text
from redistrib.programs.schedule.schedule import Schedule
from redistrib.sizes import parse_size
from tests.fuzz.changes import ODD_TEXTS, OTHERS
from tests.fuzz.forge import sealed
from tests.fuzz.guard import Failure, attempted
from tests.fuzz.problems import draw_axes, draw_profile, profile

PIECES = (
    "[", "]", "{", "}", ",", ":", "=", '"', "\\", '\\"', " ", "\n", "\t", "\0", "0", "1", "2", "3", "12", "007", "-1",
    "1.5", "1e9", "²", "٣", "x", "y", "_", "é", "データ", "💥", "\u202e", "\ud800", "\u00a0", "x0", "3{x}12", "2{y}12",
    "x=4", "{x:4, y:6}", '"a b"', "GiB", "B", "kB", "inf", "nan", "0x10", "1_000", "9" * 30, str(2**63), "'", "#", "%s",
    " sum{y}", "max{", "min",
)  # fmt: skip
GOOD = (
    "[3{x}12, 2{y}12]",
    "[2{y,x}48, 5]",
    "[]",
    "[4{x}16, 8] sum{y}",
    '[1{"a b"}4]',
    "x=4,y=6",
    "{x:4, y:6}",
    "2GiB",
    "1.5 kB",
    "float32",
)
SCHEDULE = json.dumps(
    {
        "format": "redistrib-schedule",
        "version": 1,
        "mesh": {"d": 4, "m": 2},
        "cuts": {"dot_general": {"d": "m0"}},
        "carries": {"add": {"m": 0}},
        "starts": {"x": "[2{d}8, 16]"},
        "ends": [[0, "[2{d}8, 8] sum{m}"]],
        "sources": [["x", "[8, 16]", "[2{d}8, 16]"]],
    }
)
LONG = (20_000, 100_000, 400_000)  # characters
DTYPES = (
    "float32", "bfloat16", "int4", "V8", "S", "U", "O", "M8[ns]", "m8", "float8_e99m99fn", "float8_e4m3", "i4,f8",
    "(2,3)f4",    "key<fry>", "key<x>", "float128", "longdouble", "uint3", "int128", "{'names': []}", "f4\0", "",
)  # fmt: skip


def check(seed: int, index: int) -> str:
    """Read the text of this number: "read" or "refused", either of which is right.

    Raises:
        Failure: for any exception but a `RedistribError`, for taking long, and where what is printed reads otherwise.
    """
    rng = random.Random(f"text/{seed}/{index}")
    return rng.choice(READERS)(rng)


def hostile(rng: random.Random) -> str:
    """A text of pieces, a good text damaged, or one piece very often."""
    kind = rng.random()
    if kind < 0.5:
        return "".join(rng.choices(PIECES, k=rng.randrange(12)))
    if kind < 0.85:
        return _damaged(rng, rng.choice(GOOD))
    piece = rng.choice((*PIECES, '\\"x', '"x",', "1,", "3{x}12,", "x=1,", '["', "[[", "{x", "{x,"))
    length = rng.choice(LONG)
    head, tail = rng.choice(("", "[", "[1{", '[1{"', '"', "{", "x=")), rng.choice(("", "]", "}", '"}1]', "x", "\n"))
    return head + piece * (length // len(piece)) + tail


def _damaged(rng: random.Random, text: str) -> str:
    """A text with one to three pieces put into it, each over up to two characters."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice((*PIECES, "")) + text[at + rng.randrange(3) :]
    return text


def _types(rng: random.Random) -> str:
    return _printed(DistType.parse, hostile(rng))


def _meshes(rng: random.Random) -> str:
    if rng.random() < 0.3:  # as a mapping, of values that no mesh has
        names = rng.choices(("x", "y", "", "é", 3, None, "\ud800"), k=rng.randrange(4))
        sizes = (1, 2, 3, 0, -1, True, 2.0, "4", None, 2**20, 2**64, 10**4300, float("nan"))
        mapping: dict[Any, Any] = {name: rng.choice(sizes) for name in names}
        return _told(lambda: Mesh.of(mapping))
    return _printed(Mesh.of, hostile(rng))


def _printed(read: Callable[[str], Any], text: str, write: Callable[[Any], str] = str) -> str:
    found = attempted(lambda: read(text))
    if isinstance(found, RedistribError):
        return "refused"
    written = write(found)
    if attempted(lambda: read(written)) != found:
        raise Failure("wrong", f"{text[:80]!r} is written as {written[:80]!r}, which reads otherwise")
    return "read"


def _told(call: Callable[[], Any]) -> str:
    return "refused" if isinstance(attempted(call), RedistribError) else "read"


def _sizes(rng: random.Random) -> str:
    odd: tuple[Any, ...] = (0, -1, 2**63, 10**400, True, None, 1.5, float("inf"), b"1", [], "9" * 400, "1." + "9" * 400)
    exact = str(rng.randrange(1, 2**70))
    value = rng.choice(
        (hostile(rng), exact, f"{exact} B", rng.choice(odd), f"{rng.random() * 100}{rng.choice(PIECES)}")
    )
    found = attempted(lambda: parse_size(value))
    if isinstance(found, RedistribError):
        return "refused"
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise Failure("wrong", f"{value!r:.80} became {found!r:.80}")
    if isinstance(value, str) and value.removesuffix(" B") == exact and found != int(exact):
        raise Failure("wrong", f"{value} became {found}")
    return "read"


def _dtypes(rng: random.Random) -> str:
    value = rng.choice((*DTYPES, hostile(rng), *OTHERS))
    found = attempted(lambda: itemsize_of(dtype_name(value)))
    if isinstance(found, RedistribError):
        return "refused"
    if value in ("V8", "M8[ns]", "m8", "float8_e99m99fn") or not isinstance(found, int) or found < 1:
        raise Failure("wrong", f"{value!r:.80} counts as an element type of {found} bytes")
    return "read"


def _plans(rng: random.Random) -> str:
    return _told(lambda: rd.Plan.from_json(_hostile_plan(rng)))


def _hostile_plan(rng: random.Random) -> str:
    """A text that is no plan, or a plan with one field of hostile size or form, sealed."""
    many = rng.choice((1_000, 20_000, 60_000))
    if rng.random() < 0.3:
        return rng.choice(
            (
                hostile(rng),
                "[" * many + "]" * many,
                '{"a":' * many + "1" + "}" * many,
                "{" + ",".join(f'"k{k}": 1' for k in range(many)) + ', "k0": 2}',
                '{"format": "redistrib-plan", "version": ' + "1" * many + "}",
                '"' + "\\u0000" * many + '"',
                "[" + "1," * many + "1]",
                "[" + "-" * many,
                '"' + "x" * many,
            )
        )
    form = json.loads(rd.synthesize("[1{x}4, 4]", "[4, 1{x}4]", {"x": 4}).to_json())
    side, placement = form[rng.choice(("source", "target"))], form["placements"][0]
    changes: tuple[Callable[[], Any], ...] = (
        lambda: side.update(type=hostile(rng)),
        lambda: side["mesh"].update(axes=[["x", 2]] * many),
        lambda: side["mesh"].update(axes=[["x", 10**4000], ["y", 10**4000]]),
        lambda: side["mesh"].update(axes=[[f"x{k}", 1] for k in range(many)]),
        lambda: side["mesh"].update(axes=[["x", 2**40]]),
        lambda: side["mesh"].update(devices=list(range(many))),
        lambda: side["mesh"].update(axes=[["x", many]], devices=list(range(many))),
        lambda: form.update(placements=[placement] * many),
        lambda: form.update(placements=[{"grid": [1] * many, "index": [[0] * many] * 4}]),
        lambda: form.update(steps=form["steps"] * many),
        lambda: form.update(steps=[{"kind": "dynslice", "before": 0, "after": 0}] * many),
        lambda: form.update(dtype=rng.choice((*DTYPES, hostile(rng)))),
        lambda: form.update(algorithm=hostile(rng), cost_model=hostile(rng)),
        lambda: form.update(cost=10 ** rng.choice((400, 4000)), memory_limit=10 ** rng.choice((400, 4000))),
        lambda: form.update({f"k{k}": rng.choice(OTHERS) for k in range(many)}),
        lambda: form.update(steps=[_shares(rng, min(many, 20_000), placements=len(form["placements"]))]),
        lambda: form.update(cost=(rng.choice(ODD_TEXTS) * many)[: LONG[-1]]),
    )
    rng.choice(changes)()
    return sealed(form)


def _shares(rng: random.Random, many: int, placements: int) -> dict[str, Any]:
    """An exchange of many shares of one element, with one element missing or one doubled."""
    shares = [[k % 4, (k + 1) % 4, k // 4, [k % 4, (k + 1) % 4], [1, 1]] for k in range(many)]
    if rng.random() < 0.5:
        shares[-1] = shares[0]
    return {"kind": "exchange", "realisation": "rounds", "before": 0, "after": placements - 1, "shares": shares}


def _profiles(rng: random.Random) -> str:
    """A profile with a field changed; one that is read must also serve for planning."""
    axes = draw_axes(rng, 12)
    data = json.loads(profile(draw_profile(rng, axes)).to_json())
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(data))
        values = (
            *OTHERS,
            -1,
            0,
            10**400,
            1e-320,
            float("inf"),
            float("nan"),
            "1e9",
            {"x": 0},
            {"x": [1]},
            hostile(rng),
        )
        if name == "latency" and isinstance(data[name], dict) and data[name]:
            data[name][rng.choice(sorted(data[name]))] = rng.choice(
                (*values, [-1, 0], [0], [1, float("nan")], [0, "x"])
            )
        elif rng.random() < 0.1:
            del data[name]
        else:
            data[name] = rng.choice(values)
    text = json.dumps(data) if rng.random() < 0.9 else rng.choice((hostile(rng), "[" * 100_000, json.dumps(data)[:-5]))
    found = attempted(lambda: LatencyBandwidth.from_json(text))
    if isinstance(found, RedistribError):
        return "refused"
    cut = [name for name, size in axes if size > 1][:1]
    types = f"[{12 // dict(axes)[cut[0]]}{{{cut[0]}}}12, 12]", "[12, 12]"
    attempted(lambda: str(rd.synthesize(*types, dict(axes), machine=found)))
    return "read"


def _programs(rng: random.Random) -> str:
    """The text of a program, damaged, with lines that are gone or stand elsewhere, or with a piece very often."""
    text = rng.choice(_program_texts())
    if rng.random() < 0.3:
        lines = text.split("\n")
        lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
        text = "\n".join(lines)
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice((*PIECES, "[", "("))[:20] * (LONG[0] // 2) + text[at:]
    return _told(lambda: parse(_damaged(rng, text) if rng.random() < 0.8 else text))


@functools.cache
def _program_texts() -> tuple[str, ...]:
    """A product by rows and one by summands, and two products with a move between them."""
    product = rd.nest("ij,jk->ik", (8, 8, 8), name="product")
    then = [
        rd.nest("ij,jk->ik", (8, 8, 8), name="first", reads=["x", "v"], writes="h"),
        rd.nest("ij,jk->ik", (8, 8, 8), name="second", reads=["h", "w"], writes="y"),
    ]
    made = (
        rd.partition(product, {"product": {"i": 4}}),
        rd.partition(product, {"product": {"j": 4}}),
        rd.partition(then, {"first": {"i": 2}, "second": {"j": 2}}),
    )
    return tuple(map(to_text, made))


def _schedules(rng: random.Random) -> str:
    """The text of a schedule, damaged, or with a field of another form; one that is read prints as it reads."""
    form = json.loads(SCHEDULE)
    if rng.random() < 0.5:
        values = (*OTHERS, 10**400, float("inf"), float("nan"), hostile(rng)[:200], [[1, 2]], {"x": {"d": []}})
        form[rng.choice(sorted(form))] = rng.choice(values)
        return _printed(Schedule.from_json, json.dumps(form), Schedule.to_json)
    odd = (hostile(rng), "[" * 100_000, '{"a":' * 100_000, "9" * 5000)
    text = _damaged(rng, SCHEDULE) if rng.random() < 0.8 else rng.choice(odd)
    return _printed(Schedule.from_json, text, Schedule.to_json)


def _commands(rng: random.Random) -> str:
    """`redistrib plan` on hostile arguments: it ends with 0 or 2, and says so in a few lines."""
    given = ["plan", "[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "--mesh", "x=4,y=6"]
    for _ in range(rng.randint(1, 2)):
        options = ("--dtype", "--memory-limit", "--target-mesh", "--machine", "--algorithm", "--json", "--mesh")
        name = rng.choice((*options, 1, 2, 4))
        if isinstance(name, int):
            given[name] = hostile(rng)[:2000]
        else:
            given += [name] if name == "--json" else [name, rng.choice((hostile(rng)[:2000], rng.choice(DTYPES)))]
    out, errors = io.StringIO(), io.StringIO()
    code: Any
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = cli.main(given)
        except SystemExit as end:
            code = end.code
    if code not in (0, 2) or (code == 2 and not errors.getvalue()):
        raise Failure("wrong", f"redistrib {given!r:.200} ended with {code}")
    return "read" if code == 0 else "refused"


READERS: tuple[Callable[[random.Random], str], ...] = (
    _types, _types, _meshes, _sizes, _dtypes, _plans, _plans, _profiles, _profiles, _programs, _schedules, _commands,
)  # fmt: skip
