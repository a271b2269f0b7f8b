"""One process of several: pipelines whose groups are of its devices, of others', and of both, and its own shards."""

import sys

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.config.update("jax_disable_most_optimizations", True)
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

from typing import Any

import numpy as np

import redistrib as rd
from redistrib.errors import CommunicatorError, ProgramError
from redistrib.programs.stages.orders import gpipe, interleaved
from redistrib.programs.stages.stacks import LayerRuns
from tests.programs.run import models
from tests.programs.stages import scans
from tests.programs.stages.steps import ARGS, BATCH, step

LAYOUTS = [
    rd.Layout(2, 2, 2, 2),
    rd.Layout(1, 1, 8, 8, order=gpipe),
    rd.Layout(2, 1, 2, 4, chunks=2, order=interleaved),
    rd.Layout(4, 2, zero=1),
    rd.Layout(2, 1, 4, 2, zero=3),
]

RUNS = [  # layers, and a layout whose stages take runs of one length, of several, or two runs each
    (8, rd.Layout(2, 1, 4, 2)),
    (10, rd.Layout(2, 1, 4, 2)),
    (8, rd.Layout(2, 1, 2, 2, chunks=2, order=interleaved)),
]


def is_refused(read: Any) -> bool:
    """Whether what lies on devices of several processes is refused by its name, with the way out."""
    try:
        read()
    except ProgramError as error:
        return "read addressable_shards of its parts" in str(error)
    return False


def is_told_apart(f: Any, *args: Any) -> bool:
    """Whether a call is refused in which the last process has other values of the host."""
    last = jax.process_index() == jax.process_count() - 1
    try:
        f(*args[:-1], np.asarray(args[-1]) + last)
    except CommunicatorError as error:
        return "call pipeline with different programs, layouts, devices or values of the host" in str(error)
    return False


def wrong(found: Any, wanted: Any, atol: float = 0.0) -> int:
    """Elements of this process's shards that are not what they should be."""
    count = 0
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        whole = np.asarray(other)
        count += (one.shape, one.dtype) != (whole.shape, whole.dtype)
        parts = one.parts if isinstance(one, LayerRuns) else (one,)
        ends = [sum(part.shape[0] for part in parts[: k + 1]) for k in range(len(parts) - 1)]
        for part, there in zip(parts, np.split(whole, ends) if ends else [whole], strict=True):
            for shard in part.addressable_shards:
                count += int((np.abs(np.asarray(shard.data) - there[shard.index]) > atol).sum())
    return count


def main() -> None:
    at_fault, ways = 0, set()
    here = jax.local_devices()[0]
    with jax.default_device(here):
        first = jax.jit(step)(*ARGS)
        second = jax.jit(step)(first[0], *ARGS[1:])
    for layout in LAYOUTS:
        f = rd.pipeline(step, ARGS, BATCH, layout)
        found = f(*ARGS)
        at_fault += wrong(found, first)
        at_fault += wrong(f(found[0], *ARGS[1:]), second)
        ways |= {each.by for each in f.transfers}
    params = models.init()
    args = (params, models.state_of(params), models.TOKENS[:, :-1], models.TOKENS[:, 1:])
    with jax.default_device(here):
        wanted = jax.jit(models.step)(*args)
    f = rd.pipeline(models.step, args, {"tokens": 0, "targets": 0}, rd.Layout(2, 2, 2, 4))
    at_fault += wrong(f(*args), wanted, 1e-5)
    at_fault += not is_told_apart(f, *args)
    scanned = scans.momentum(scans.deep)
    for layers, layout in RUNS:
        args = scans.args_of(layers)
        with jax.default_device(here):
            first = jax.jit(scanned)(*args)
            second = jax.jit(scanned)(*first[:2], *args[2:])
        f = rd.pipeline(scanned, args, scans.BATCH, layout)
        found = f(*args)
        at_fault += isinstance(found[0]["layers"]["w"], LayerRuns) != (
            layers % (layout.pipeline * layout.chunks) > 0 or layout.chunks > 1
        )
        at_fault += wrong(jax.block_until_ready(found), first, 1e-5)
        if isinstance(found[0]["layers"]["w"], LayerRuns):
            runs = found[0]["layers"]["w"]
            at_fault += is_refused(lambda runs=runs: np.asarray(runs)) == runs.is_fully_addressable
        at_fault += wrong(f(*found[:2], *args[2:]), second, 1e-5)  # stacked weights go in as they came out
    print(f"RESULT {jax.process_index()} {len(LAYOUTS) + 1 + len(RUNS)} {at_fault} {','.join(sorted(ways))}")


main()
