"""Measurement of this backend's lowering of each collective on JAX devices."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.lowering import local_program
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.rows import AXIS, line_of, over_tiles, rows_shape, rows_spec
from redistrib.plans.samples import Sample
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Step
from redistrib.theory.placement import Placement

TILES = (4 << 10, 64 << 10, 1 << 20, 8 << 20)  # bytes
WARM_UP = 3
REPEATS = 11


def measure(
    devices: Sequence[Any],
    tiles: Sequence[int] = TILES,
    progress: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Sample]:
    """Time all-gathers, all-to-alls and permutes over groups of every size that divides the devices.

    Args:
        devices: JAX devices, at least two.
        tiles: bytes of float32 tile per device to try.
        progress: whether to show a progress bar on standard error.
        clock: seconds: of the wall, or `time.process_time` where devices share processors.
    """
    cases = [case for tile in tiles for case in _cases(len(devices), tile // 4)]
    if progress:
        from rich.console import Console
        from rich.progress import track

        cases = list(cases)
        return [_timed(*case, devices, clock) for case in track(cases, "calibrating", console=Console(stderr=True))]
    return [_timed(*case, devices, clock) for case in cases]


def _cases(count: int, tile: int) -> Iterator[tuple[Step, str, int, int, int]]:
    """(step, kind, members, bytes received, bytes copied) for tiles of `tile` elements on `count` devices."""
    number = np.arange(count)
    for members in (n for n in range(2, count + 1) if count % n == 0 and tile % n == 0):
        groups = number.reshape(-1, members)
        place = number % members
        cut = Placement((members, tile), (members, 1), np.stack([place, 0 * place], axis=1))
        whole = Placement((members, tile), (1, 1), np.zeros((count, 2), dtype=np.int64))
        yield AllGather(cut, whole, groups), "allgather", members, (members - 1) * tile * 4, members * tile * 4
        turned = Placement((members, tile), (1, members), np.stack([0 * place, place], axis=1))
        share = tile // members
        yield AllToAll(cut, turned, groups), "alltoall", members, (members - 1) * share * 4, 2 * tile * 4
    before = Placement((count, tile), (count, 1), np.stack([number, 0 * number], axis=1))
    after = Placement((count, tile), (count, 1), np.stack([(number + 1) % count, 0 * number], axis=1))
    pairs = np.stack([(number + 1) % count, number], axis=1)
    yield AllPermute(before, after, pairs), "allpermute", 2, tile * 4, tile * 4


def _timed(
    step: Step,
    kind: str,
    members: int,
    received: int,
    copied: int,
    devices: Sequence[Any],
    clock: Callable[[], float],
) -> Sample:
    mesh = line_of(devices)
    context = LoweringContext((AXIS,), (len(devices),), tuple(range(len(devices))), quirks=Quirks(piecewise=True))
    spec = rows_spec(step.before.rank)
    program = jax.jit(over_tiles(local_program([step], context), mesh, spec, spec))
    rows = rows_shape(len(devices), step.before.tile)
    array = jax.jit(lambda: jnp.zeros(rows, jnp.float32), out_shardings=NamedSharding(mesh, spec))()
    seconds = []
    for repeat in range(WARM_UP + REPEATS):
        start = clock()
        program(array).block_until_ready()
        if repeat >= WARM_UP:
            seconds.append(clock() - start)
    low, middle, high = statistics.quantiles(seconds, n=4)
    return Sample(kind, members, received, copied, middle, (high - low) / 2)
