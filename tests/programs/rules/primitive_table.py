"""docs/primitives.md: what may be cut of each primitive; `python -m tests.programs.rules.primitive_table` writes it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax.extend import core as jex

from redistrib.backends.jax.private import INLINED, implementation
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.primitives import RECORDS, record_of
from redistrib.programs.ir.record import Blocks, Effects, Opens, Tails
from redistrib.programs.rules.collectives import COLLECTIVES
from redistrib.programs.rules.equation import RULES, Equation, ValueRange
from redistrib.programs.rules.inline import trace
from redistrib.programs.rules.shard_maps import REGION
from redistrib.programs.rules.sums import passing
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.arguments import leaf_names
from redistrib.programs.run.prepared import REGIONS
from tests.programs.schedule.test_shardy import ALL

PAGE = Path(__file__).parents[3] / "docs" / "primitives.md"
MODULES = (
    "jax.lax", "jax.lax.linalg", "jax.numpy", "jax.numpy.fft", "jax.numpy.linalg", "jax.nn", "jax.random", "jax.image",
    "jax.scipy.fft", "jax.scipy.linalg", "jax.scipy.ndimage", "jax.scipy.signal", "jax.scipy.special",
    "jax.scipy.stats", "jax.experimental.sparse",
)  # fmt: skip
DTYPES = {"integers": "int32", "floats": "float32", "complex": "complex64"}
CALLBACKS = [kind for kind, record in RECORDS.items() if record.effects is Effects.CALLBACK]
APART = re.compile("pallas|mosaic|cudnn|hijax|export|tpu")  # kernels and tools, imported or not
TRACED = ("device_put", "platform_index", "random_unwrap", "random_wrap", "reshard", "sharding_constraint")

BECOMES = {
    "traced": "inlined, or the operand itself; `device_put`, `reshard` and `sharding_constraint` pin a layout",
    "loops": "stays a loop or a branch, see [loops](distribute.md)",
    "regions": "pinned to its specs, and its body runs as it is written, see [regions](distribute.md)",
    "collectives": "runs in such a region; dimensions that it does not exchange may be cut by further axes",
    "effects": "called on whole arrays by the first device",
    "opened": "replaced by the operations that it is made of, where it can be traced; else as those below",
    "whole": "runs whole on every device, and `f.opaque` lists its name, or is refused by name if it has an effect; "
    "among these are references",
}

HEAD = """# Primitives: what may be cut

What `rd.distribute` knows of every primitive of `jax.lax`, `jax.numpy`, `jax.nn`, `jax.scipy`, `jax.random` and
`jax.image`, drawn from the rules by `python -m tests.programs.rules.primitive_table`; a test holds the page against
them. Every rule runs cut along each of its dimensions beside the function itself
(`tests/programs/rules/test_rules.py`), and gradients beside `jax.jit` (`test_primitives.py`). What to do about a
primitive that is not here: [rules of your own](distribute.md).

**May be cut** names the dimensions of operands and results: a letter may be cut, along all arrays that have it, with
nothing moved, but where `~` stands behind it: there a part receives a halo of its neighbours' elements beside its own;
`(r d)` is one dimension made of two, the first the slower one; `.` is whole on every device. Numbers are
those of one example. A dimension in **combined** may be cut too: the results are then partial sums, or the largest or
least of parts, and are combined as late as may be. **Partial sums pass**: operands, by number, that may be partial
sums, and the element types for which that is right; `if finite` is where the other operands are certainly finite.

**Fused as** is how `rd.simulate` and `rd.search` take compilers to fuse it; empty where its nest says whether it is a
loop, a reduction or a product. `redistrib/programs/ir/record.py` explains the others. **Class of work** names the rate
that a machine may have for it. **Tails** of uneven cuts go through it as they are where nothing is said. They are
`masked` where elements are combined; `positioned`, `looked up` and `added` are told their place in the array.
"""
PARTS = """Along a dimension that stands as `.` in the table, these are made of others where a schedule cuts it, see
[distribute](distribute.md): {kinds}. Blocks of it are computed where they lie; one result of each moves, or `k`.
"""


@cache
def equations() -> dict[str, list[Equation]]:
    """Of every kind the equations of the cases of the tests."""
    found: dict[str, list[Equation]] = {}

    def recorded(kind: str) -> Any:
        def rule(equation: Equation) -> Nest | None:
            found.setdefault(kind, []).append(equation)
            return RULES[kind](equation)

        return rule

    kinds = {kind: recorded(kind) for kind in RULES if kind not in CALLBACKS}
    for function, args in ALL.values():
        trace(function, args, leaf_names(function, args), TraceOptions({**REGIONS, **kinds}))
    return found


def rows() -> list[str]:
    """A row for every primitive that has a rule and a case; those with equal cells together."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for kind, own in equations().items():
        nests = [(one, nest) for one in own if (nest := RULES[kind](one)) is not None]
        if nests:
            equation, nest = max(nests, key=lambda pair: (len(pair[1].ranges), -len(pair[0].literals)))
            pointwise = RULES[kind].__name__ == "_pointwise"
            cut = "all dimensions, operands and results alike" if pointwise else _cut(nest)
            kinds.setdefault((cut, _combined(nest), _passed(equation), *_said(kind)), []).append(kind)
    lines = [(", ".join(f"`{kind}`" for kind in sorted(own)), *cells) for cells, own in kinds.items()]
    return [f"| {' | '.join(cells)} |" for cells in sorted(lines)]


def _cut(nest: Nest) -> str:
    sides = [", ".join(_array(nest, access) for access in side) for side in (nest.reads, nest.writes)]
    return f"`{sides[0]} -> {sides[1]}`".replace("` ->", "`->")


def _array(nest: Nest, access: Access) -> str:
    def name(dim: Sequence[str], window: object) -> str:
        if not dim or set(dim) & nest.whole:
            return "."
        named = dim[0] if len(dim) == 1 else f"({' '.join(dim)})"
        return named if window == 1 else f"{named}~"

    return f"[{' '.join(map(name, access.dims, access.windows or [1] * len(access.dims)))}]"


def _combined(nest: Nest) -> str:
    return ", ".join(f"{name} by {kind}" for name, kind in nest.combine)


def _said(kind: str) -> tuple[str, str, str]:
    """What the record says of fusion, work and tails; empty where it says nothing in particular."""
    record = record_of(kind)
    fusion = "" if record.fusion == "nest" else str(record.fusion)
    return fusion, str(record.work), "" if record.tails is Tails.FREE else record.tails.name.lower().replace("_", " ")


def _passed(equation: Equation) -> str:
    finite = {k: ValueRange(1.0, 2.0) for k in range(len(equation.ins))}
    said: dict[str, list[str]] = {}
    for name, dtype in DTYPES.items():
        ins, outs = (
            tuple(form if form.dtype == "bool" else form._replace(dtype=dtype) for form in side)
            for side in (equation.ins, equation.outs)
        )
        with suppress(Exception):  # parameters of a type that the primitive does not take
            one = replace(equation, ins=ins, outs=outs, literals={k: v for k, v in equation.literals.items() if k})
            plain, all_finite = passing(replace(one, ranges={})), passing(replace(one, ranges=finite))
            groups = plain or all_finite
            if groups:
                text = " or ".join("+".join(map(str, group)) for group in groups)
                said.setdefault(text + ("" if plain else " if finite"), []).append(name)
    return "; ".join(f"{text}: {', '.join(names)}" for text, names in said.items())


@cache
def primitives() -> dict[str, Any]:
    """Every primitive that is found in modules of JAX once the public ones are imported, by name.

    Beginnings and ends of collectives are left out: XLA makes them of collectives.
    """
    for module in MODULES:
        importlib.import_module(module)
    where = ("jax._src.", "jax.experimental.sparse")
    modules = [one for name, one in list(sys.modules.items()) if name.startswith(where) and not APART.search(name)]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, jex.Primitive)]
    return {value.name: value for value in found if not value.name.endswith(("_start", "_done"))}


def classes() -> dict[str, list[str]]:
    """Every primitive without a rule, by what becomes of it; each in one class."""
    found: dict[str, list[str]] = {name: [] for name in BECOMES}
    for name, primitive in sorted(primitives().items()):
        if name in RULES and name not in CALLBACKS:
            continue
        if name in INLINED or record_of(name).opens is Opens.OPERAND or name in TRACED:
            found["traced"].append(name)
        elif name == REGION:
            found["regions"].append(name)
        elif name in COLLECTIVES:
            found["collectives"].append(name)
        elif name in REGIONS:
            found["loops"].append(name)
        elif name in CALLBACKS:
            found["effects"].append(name)
        elif implementation(primitive) is not None:
            found["opened"].append(name)
        else:
            found["whole"].append(name)
    return found


def page() -> str:
    def names(these: Iterable[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(these))

    apart = classes()
    unseen = sorted(set(RULES) - set(equations()) - set(CALLBACKS))
    return "\n".join(
        [
            HEAD,
            "| primitive | may be cut | combined | partial sums pass | fused as | class of work | tails |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows(),
            "",
            PARTS.format(kinds=names(kind for kind, record in RECORDS.items() if record.blocks is not Blocks.NONE)),
            f"The same rules hold for {names(unseen)}, which no public function that was tried is lowered to here.",
            "",
            "## Without a rule",
            "",
            f"JAX {jax.__version__} has these besides.",
            "",
            "| what becomes of it | primitives |",
            "| --- | --- |",
            *(f"| {what} | {names(apart[name])} |" for name, what in BECOMES.items()),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
