"""What people look at, kept from one version to the next: pictures as what is drawn in them, tables, and options.

    python -m tests.kept_outputs      # from the root of the repository: makes them all anew

Whoever changes a picture or a text sees in the file's difference which others change with it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import matplotlib
import matplotlib.colors
import matplotlib.figure
import numpy as np

import redistrib as rd
from redistrib.cli import parser as command_line
from redistrib.explain import draw_graph, explain, picture
from redistrib.plans.steps import AllPermute
from redistrib.programs.ir.listing import draw_program
from redistrib.programs.ir.program import Program
from redistrib.programs.run.partition import partition
from redistrib.programs.time.constants import MACHINES
from redistrib.programs.time.entry import simulate
from tests.plans import hand

SERIES = matplotlib.__version__.rpartition(".")[0]
KEPT = Path(__file__).with_name("kept_outputs.json")
TAKE = {"x": 4, "y": 2}


def plans() -> dict[str, rd.Plan]:
    """Plans of every kind that `explain` tells apart."""
    low, high = rd.Mesh.of("x=4", range(4)), rd.Mesh.of("x=4", range(4, 8))
    swap = ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6})
    plain, exact = {"machine": "paper", "algorithm": "paper"}, {"machine": "exact"}
    return {
        "swap, exact": rd.synthesize(*swap, **exact),
        "swap, paper": rd.synthesize(*swap, **plain),
        "gathered": rd.synthesize("[2{x}8]", "[8]", {"x": 4}),
        "cut": rd.synthesize("[64]", "[8{x}64]", {"x": 8}),
        "rows to columns": rd.synthesize("[2{x}8, 8]", "[8, 2{x}8]", {"x": 4}),
        "replicas": rd.synthesize("[1{x}2, 4]", "[2, 4]", {"x": 2, "y": 6}),
        "uneven": rd.synthesize("[3~{x}10, 4]", "[10, 1{x}4]", {"x": 4}),
        "summands": rd.synthesize("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", TAKE, **exact),
        "summands to all": rd.synthesize("[16] sum{y}", "[16]", TAKE),
        "summands by halves": rd.synthesize("[4{x}16, 8] sum{y}", "[16, 8]", TAKE, order="fixed"),
        "other devices": rd.synthesize("[2{x}8, 8]", "[8, 2{x}8]", low, target_mesh=high),
        "other devices, replicated": rd.synthesize("[2{x}8, 8]", "[8, 8]", low, target_mesh=high),
        "other devices, small": rd.synthesize("[2{x}8]", "[8]", low, target_mesh=high, machine="tpu"),
        "to summands": rd.synthesize("[16]", "[16] sum{x}", {"x": 4, "y": 2}),
        "summands anew": rd.synthesize("[4{x}16] sum{y}", "[8{y}16] sum{x}", {"x": 4, "y": 2}),
        "there and back": hand.plan("[8{x}32]", "[8{x}32]", "x=4", *there_and_back()),
        "nothing": rd.synthesize("[8, 2{x}8]", "[8, 2{x}8]", {"x": 4}),
        "no elements": rd.synthesize("[0{x}0, 4]", "[0, 2{x}4]", {"x": 2}),
    }


def there_and_back() -> list[AllPermute]:
    """Two steps after which all is where it was."""
    place, turned = (hand.place("[8{x}32]", rd.Mesh.of("x=4", order)) for order in (range(4), (1, 0, 3, 2)))
    pairs = np.array([[0, 1], [1, 0], [2, 3], [3, 2]])
    return [AllPermute(place, turned, pairs), AllPermute(turned, place, pairs)]


def programs() -> dict[str, Program]:
    """Short programs, and one of more rows than a picture shows."""
    product = rd.nest("ij,jk->ik", (8, 8, 8))
    chain = [
        rd.nest("ab,bc->ac", (16, 16, 16), name="first", reads=["x", "v"], writes="h"),
        rd.nest("ac,cd->ad", (16, 16, 16), name="second", reads=["h", "w"], writes="y"),
    ]
    long = [
        rd.nest("ab,bc->ac", (16, 16, 16), name=f"step {k}", reads=[f"h{k}", "w"], writes=f"h{k + 1}")
        for k in range(140)
    ]
    return {
        "summed": partition(product, {"matmul": {"j": 4}}),
        "by rows": partition(product, {"matmul": {"i": 4}}),
        "two by rows": partition(chain, {"first": {"a": 4}, "second": {"a": 4}}),
        "three by rows": partition(long[:3], {f"step {k}": {"a": 4} for k in range(3)}),
        "moved": partition(chain, {"first": {"a": 4}, "second": {"c": 4}}),
        "long": partition(long, {f"step {k}": {"ac"[k % 2]: 4} for k in range(140)}),
    }


# ---------------------------------------------------------------------------------------------------- pictures


def drawn(draw: Callable[[Path], object]) -> list[Any]:
    """What is drawn in the figure that a function saves: its size, and of every panel its labels and its shapes."""
    seen: list[Any] = []

    def keep(figure: matplotlib.figure.Figure, path: Any, **options: Any) -> None:
        size = json.dumps([_rounded(figure.get_size_inches()), options])
        titles = [_sized(figure._suptitle)] if figure._suptitle else []
        seen.append([size, *titles, *map(_panel, figure.axes)])

    with TemporaryDirectory() as folder, patch.object(matplotlib.figure.Figure, "savefig", keep):
        draw(Path(folder) / "drawn.png")
    return seen


def _panel(axes: Any) -> dict[str, Any]:
    legend = axes.get_legend()
    ticks = [[_sized(label) for label in axis.get_ticklabels()] for axis in (axes.xaxis, axes.yaxis)]
    return {
        "labels": [_sized(label) for label in (axes.title, axes.xaxis.label, axes.yaxis.label)],
        "limits": json.dumps(_rounded([*axes.get_xlim(), *axes.get_ylim()])),
        "ticks": json.dumps(ticks),
        "on": bool(axes.axison),
        "legend": [_sized(text) for text in legend.get_texts()] + [str(legend._loc)] if legend else [],
        "shapes": [json.dumps(told) for child in axes.get_children() for told in _shape(child, axes)],
    }


def _sized(text: Any) -> str:
    """What is written, and in which size."""
    return f"{text.get_text()} ({text.get_fontsize():g})" if text.get_text() else ""


def _shape(shape: Any, axes: Any) -> Iterator[list[Any]]:
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyArrowPatch, Patch
    from matplotlib.text import Text

    if shape is axes.patch or shape in axes.spines.values():
        return
    match shape:
        case Text() if shape.get_text() and shape not in (axes.title, axes._left_title, axes._right_title):
            words = [shape.get_text(), shape.get_ha(), shape.get_va(), _colour(shape.get_color())]
            yield ["text", *words, _rounded([*shape.get_position(), shape.get_fontsize()])]
        case FancyArrowPatch():
            yield ["arrow", _colour(shape.get_edgecolor()), round(shape.get_linewidth(), 4)]
        case Patch():
            box = shape.get_patch_transform().transform_path(shape.get_path()).get_extents().bounds
            colours = [_colour(shape.get_facecolor()), _colour(shape.get_edgecolor())]
            yield ["patch", _rounded(box), *colours, round(shape.get_linewidth(), 4)]
        case Line2D() if len(shape.get_xydata()):
            yield ["line", _rounded(shape.get_xydata().ravel()), _colour(shape.get_color())]
        case Collection():
            colours = [list(map(_colour, some)) for some in (shape.get_facecolors(), shape.get_edgecolors())]
            sizes = _rounded(shape.get_sizes()) if hasattr(shape, "get_sizes") else []
            yield ["points", _rounded(shape.get_offsets().ravel()), *colours, sizes]


def _colour(colour: Any) -> str:
    return matplotlib.colors.to_hex(colour, keep_alpha=True)


def _rounded(numbers: Any) -> list[float]:
    return [float(f"{float(number):.5g}") for number in numbers]


def pictures() -> dict[str, Callable[[Path], object]]:
    """What draws each picture."""
    made, run = plans(), programs()
    tiles = ("swap, exact", "gathered", "cut", "rows to columns", "replicas", "summands", "other devices")
    graphs = ("swap, exact", "gathered", "rows to columns")
    timed = {"swap, paper": simulate(made["swap, paper"]), "moved": simulate(run["moved"], "gpu")}

    def called(draw: Callable[..., object], *given: Any, **options: Any) -> Callable[[Path], object]:
        return lambda path: draw(*given, path, **options)

    return {
        **{f"tiles of {name}": called(picture, made[name]) for name in tiles},
        "tiles with a title": called(picture, made["gathered"], title="a title of one's own"),
        **{f"graph of {name}": called(draw_graph, made[name]) for name in graphs},
        **{f"program {name}": called(draw_program, program) for name, program in run.items()},
        **{f"timeline of {name}": found.draw for name, found in timed.items()},
    }


# ----------------------------------------------------------------------------------------------- texts, options


def texts() -> dict[str, list[str]]:
    """Tables and what is said of plans, programs, and what they take, line by line."""
    made, run = plans(), programs()
    said = {
        **{f"plan {name}": str(plan) for name, plan in made.items()},
        **{f"explain {name}": explain(plan) for name, plan in made.items()},
        **{f"program {name}": str(program) for name, program in run.items() if name != "long"},
        **{f"simulated {name}": str(simulate(program, "gpu")) for name, program in run.items()},
        **{f"machine {name}": repr(machine).replace(", ", ",\n") for name, machine in MACHINES.items()},
    }
    traced = {"swap, paper": simulate(made["swap, paper"]), "moved": simulate(run["moved"], "gpu")}
    return {
        **{name: text.splitlines() for name, text in said.items()},
        **{f"trace of {name}": list(_trace(found.chrome())) for name, found in traced.items()},
    }


def _trace(trace: dict[str, Any]) -> Iterator[str]:
    """The events of a trace, times to five digits, and what it says of itself."""
    for event in trace.pop("traceEvents"):
        yield json.dumps({key: _rounded([own])[0] if isinstance(own, float) else own for key, own in event.items()})
    yield json.dumps(trace)


def options() -> dict[str, list[str]]:
    """Of every command its arguments, with their defaults and what their help says."""
    parser = command_line()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {
        name: [
            json.dumps(told, default=str)
            for told in (*map(_argument, one._actions), *map(_either, one._mutually_exclusive_groups))
        ]
        for name, one in commands.choices.items()
    }


def _argument(action: argparse.Action) -> dict[str, Any]:
    told = {name: getattr(action, name) for name in ("dest", "nargs", "default", "metavar", "help", "required")}
    kind = action.type.__name__ if isinstance(action.type, type) else None
    return {"names": list(action.option_strings), **told, "choices": list(action.choices or ()), "type": kind}


def _either(group: Any) -> dict[str, Any]:
    return {"one of": [action.dest for action in group._group_actions], "required": group.required}


def outputs() -> dict[str, Any]:
    """All of it, as the file has it."""
    found = {
        "matplotlib": SERIES,
        "pictures": {name: drawn(draw) for name, draw in pictures().items()},
        "texts": texts(),
        "options": options(),
    }
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    found = outputs()
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{KEPT.name}: " + ", ".join(f"{len(found[name])} {name}" for name in ("pictures", "texts", "options")))


if __name__ == "__main__":
    main()
