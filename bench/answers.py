"""Worked answers of others, beside ours, found by search without a schedule to begin from.

"How to Scale Your Model" (jax-ml.github.io/scaling-book, parts 5 and 7) and Pope et al. 2022 (arXiv:2211.05102) say
where links bind a transformer and which cut is then the best. Each question here is a search; its answer is read from
the schedule that was found. Moves run beside operations, as both texts assume.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import jax

import redistrib as rd
from bench.children import progress
from bench.language_models import LLAMA_70B, decode, form
from bench.results import Record
from bench.suite import Settings, Suite, cases, once
from redistrib.errors import MemoryLimitError
from redistrib.programs.search.result import Candidate
from redistrib.programs.time.constants import machine

WIDTH, HIDDEN = 8192, 32768
SECONDS = 16.0  # of one search at most


def block(weights: Any, x: Any) -> Any:
    """A feed-forward block, `[tokens, width]`."""
    return (x @ weights[0]) @ weights[1]


def step(weights: Any, x: Any, slope: Any) -> Any:
    """A block among others, forward and backward: the weights after SGD, its result, and the gradient of `x`."""
    result, back = jax.vjp(block, weights, x)
    slopes, before = back(slope)
    after = tuple(weight - weight.dtype.type(1e-3) * slope for weight, slope in zip(weights, slopes, strict=True))
    return after, result, before


def step_args(tokens: int) -> Any:
    """The arguments of `step`."""
    return (form(WIDTH, HIDDEN), form(HIDDEN, WIDTH)), form(tokens, WIDTH), form(tokens, WIDTH)


STATE = {"weights": 0, "x": 1, "slope": 2}  # what follows a block is cut as what comes before it


def searched(function: Any, args: Any, mesh: dict[str, int], *, overlap: bool = True, **options: Any) -> Candidate:
    """The best schedule that is found in `SECONDS`."""
    candidate = rd.search(function, args, mesh, progress=False, overlap=overlap, limit=SECONDS, **options)[0]
    if not isinstance(candidate, Candidate):
        raise AssertionError("only a search for pipelines finds one")
    return candidate


def is_bound(candidate: Candidate) -> bool:
    """Whether links are busy longer than the devices compute."""
    evaluation = candidate.feasible.evaluation
    if evaluation is None:
        raise AssertionError("a search of machines of today has an evaluation")
    return evaluation.moving > evaluation.computing


def on_torus(**dims: int) -> Any:
    """v5p, with axes on so many dimensions of its torus each."""
    chip = machine("v5p")
    bandwidth = {axis: count * 180e9 for axis, count in dims.items()}
    return replace(chip, links=replace(chip.links, axis_bandwidth=bandwidth))  # type: ignore[type-var]


def sharded_data(dims: int) -> str:
    """Tokens on a chip from which 64 chips are not bound by links."""
    low, high = 256, 4096
    while high - low > 16:
        middle = (low + high) // 2
        bound = is_bound(searched(step, step_args(64 * middle), {"a": 64}, state=STATE, machine=on_torus(a=dims)))
        low, high = (middle, high) if bound else (low, middle)
    return f"{high:,} tokens"


def tensor(dims: int) -> str:
    """Chips, powers of two, that 2,304 tokens are cut over without being bound by links."""
    powers = [2**k for k in range(1, 8)]
    by_chips = {n: searched(step, step_args(2304), {"a": n}, state=STATE, machine=on_torus(a=dims)) for n in powers}
    return f"{max(n for n in powers if not is_bound(by_chips[n]))} chips"


def mixed() -> str:
    """Tokens on a chip from which a split of 64 chips is not bound: tokens on two dimensions, features on the third."""
    low, high = 32, 1024
    while high - low > 16:
        tokens = (low + high) // 32 * 16
        bound = all(map(is_bound, (on_split(data, 64 * tokens) for data in (32, 16, 8, 4))))
        low, high = (tokens, high) if bound else (low, tokens)
    return f"{high:,} tokens"


def on_split(data: int, tokens: int) -> Candidate:
    """Tokens cut by an axis on two dimensions of the torus of 64 chips, and anything by the others on the third."""
    how: dict[str, Any] = {"state": STATE, "pins": [rd.along("data", {"x": 0, "slope": 0})]}
    mesh, links = {"data": data, "model": 64 // data}, on_torus(data=2, model=1)
    return searched(step, step_args(tokens), mesh, machine=links, **how)


def on_cube(data: int) -> list[Candidate]:
    """48,000 tokens on 4 x 4 x 4 chips: every way to lay the mesh, tokens cut by its axis `data`."""
    mesh = {name: size for name, size in (("data", data), ("model", 64 // data)) if size > 1}
    how: dict[str, Any] = {"state": STATE, "machine": "v5p", "pins": [rd.along("data", {"x": 0, "slope": 0})]}
    listed: Any = rd.search(step, step_args(48_000), mesh, overlap=True, limit=SECONDS, progress=False, **how)
    return list(listed)


def cube() -> str:
    """Cuts of tokens that are not bound by links, and the fastest."""
    by_data = {data: on_cube(data) for data in (2, 4, 8, 16, 32, 64)}
    free = [data for data, listed in by_data.items() if not all(map(is_bound, listed))]
    best = min(by_data, key=lambda data: by_data[data][0].seconds)
    return f"tokens cut by {min(free)} to {max(free)}, best by {best}"


def decoding(dtype: str, chips: int, batch: int) -> Candidate | None:
    """Llama 3 70B with a cache of 2,048 tokens for each sequence, on v5e; None where nothing fits."""
    weights = jax.tree.map(lambda leaf: form(*leaf.shape, dtype=dtype), LLAMA_70B.parameters(stacked=True))
    cache = (form(80, batch, 8, 2048, 128),) * 2
    args = (weights, cache, form(batch, dtype="int32"), form(dtype="int32"))
    how: dict[str, Any] = {"machine": "v5e", "memory_limit": 16 * 2**30, "state": {"cache": 0}, "donate": ("cache",)}
    try:
        return searched(decode, args, {"model": chips}, overlap=False, **how)
    except MemoryLimitError:
        return None


def least(dtype: str) -> str:
    """The fewest chips, powers of two, on which a batch of 8 fits."""
    return f"{next(n for n in (2, 4, 8, 16, 32) if decoding(dtype, n, 8))} chips"


def are_gathered(candidate: Candidate, weights: int) -> bool:
    """Whether devices receive more than half of what they hold of weights."""
    return candidate.received_bytes > weights / 2


def full() -> str:
    """The step of the largest batch, a multiple of 16, that 16 chips hold, and whether its weights are gathered."""
    low, high = 16, 512
    while high - low > 16:
        middle = (low + high) // 32 * 16
        low, high = (middle, high) if decoding("bfloat16", 16, middle) else (low, middle)
    candidate = decoding("bfloat16", 16, low)
    if candidate is None:
        return "nothing fits"
    weights = "weights gathered" if are_gathered(candidate, 140 * 10**9) else "weights stay"
    evaluation = candidate.feasible.evaluation
    computing = evaluation.computing if evaluation else 0.0
    return (
        f"{weights}, batch {low}: {computing * 1e3:.0f} ms, and {(candidate.seconds - computing) * 1e3:.0f} ms of links"
    )


def stack(weights: Any, x: Any) -> Any:
    """Feed-forward blocks, one after the other."""
    return jax.lax.scan(lambda x, layer: (x + block(layer, x), None), x, weights)[0]


def stationary(mesh: dict[str, int], tokens: int, layers: int) -> str:
    """How PaLM's feed-forward blocks run on v4: over how many chips weights are gathered, else their cut dimensions.

    Memory has no room for a second copy of the weights, so that an axis that cuts tokens is one that gathers weights.
    """
    args = (form(layers, 18432, 73728), form(layers, 73728, 18432)), form(tokens, 18432)
    candidate = searched(stack, args, mesh, overlap=False, machine="v4", memory_limit=32 * 2**30, state={"x": 0})
    cuts = candidate.schedule.cuts["dot_general"]
    gathered = 1
    for axis, size in mesh.items():
        gathered *= size if cuts.get(axis) == "m0" else 1
    if gathered > 1:
        return f"gathered over {gathered}"
    return f"{len(set(cuts.values()))}D"


def growing() -> str:
    """64 chips and 118 layers, as tokens grow."""
    mesh = {"x": 4, "y": 4, "z": 4}
    answers = [(2**k, stationary(mesh, 2**k, 118)) for k in range(6, 24, 2)]
    changes = [pair for k, pair in enumerate(answers) if not k or pair[1] != answers[k - 1][1]]
    return "; ".join(f"{tokens:,} tokens: {answer}" for tokens, answer in changes)


def few() -> str:
    """512 tokens on chips in two equal axes, with four layers for each chip."""
    sides = (2, 4, 8)
    return "; ".join(f"{side**2} chips: {stationary({'x': side, 'y': side}, 512, 4 * side**2)}" for side in sides)


class Question(NamedTuple):
    """A question with their answer.

    Attributes:
        name: the question.
        theirs: their answer.
        ours: finds ours.
    """

    name: str
    theirs: str
    ours: Callable[[], str]


QUESTIONS = {
    question.name: question
    for question in (
        Question("FSDP, one dimension of v5p", "2,550 tokens", lambda: sharded_data(1)),
        Question("FSDP, three dimensions of v5p", "850 tokens", lambda: sharded_data(3)),
        Question("tensor parallel, one dimension of v5p", "12.9 chips", lambda: tensor(1)),
        Question("tensor parallel, two dimensions of v5p", "25.7 chips", lambda: tensor(2)),
        Question("FSDP by tensor parallel, two dimensions and one of v5p", "397 tokens", mixed),
        Question("48,000 tokens on 4 x 4 x 4 chips", "tokens cut by 8 to 16, best by 16", cube),
        Question("70B in bfloat16 on v5e", "16 chips", lambda: least("bfloat16")),
        Question("70B in int8 on v5e", "8 chips", lambda: least("int8")),
        Question("70B in int4 on v5e", "4 chips", lambda: least("int4")),
        Question("70B in bfloat16 on 16 of v5e, memory full", "weights stay, 19 ms", full),
        Question("PaLM on v4, chips", "1D up to 16 chips, 2D beyond", few),
        Question("PaLM on 64 of v4, tokens", "2D, then gathered over 4, 16, 64", growing),
    )
}


def measure(questions: list[Question], settings: Settings, limit: float) -> Generator[Record]:
    """Our answers."""
    for question in progress(questions, "questions"):
        began = time.process_time()
        with mock.patch("time.monotonic", time.process_time):  # limits are of the processor
            ours = question.ours()
        spent = time.process_time() - began
        yield {"name": question.name, "theirs": question.theirs, "ours": ours, "processor_s": spent}


SUITE = Suite("answers", measure, once(QUESTIONS), problems=cases(QUESTIONS))
