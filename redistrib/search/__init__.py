"""Schedules that nobody wrote: how to cut every operation of a program so that it takes the least time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redistrib.cost.model import CostModel
    from redistrib.search.moves import Objective
    from redistrib.search.result import Searched
    from redistrib.simulate.machine import Machine


def search(
    fn: Callable[..., Any],
    args: Sequence[Any],
    mesh: Any = None,
    *,
    devices: int | None = None,
    pipeline: bool = False,
    batch: Mapping[str, int] | None = None,
    microbatches: tuple[int, int] = (2, 128),
    in_shardings: Any = None,
    out_shardings: Any = None,
    pins: Any = (),
    state: Mapping[str, int] | None = None,
    memory_limit: int | str | None = None,
    profile: Machine | CostModel | str | None = None,
    objective: Objective = "seconds",
    limit: float | None = None,
    progress: bool | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Searched:
    """Find the schedule of a JAX function: how to cut every operation so that a call takes the least time.

    Each mesh axis is decided by an exact integer program, given the others: one cut of every operation, and one
    conversion of a value for all that read it so, at the price of its synthesized plan. Axes are taken in several
    orders, and again until nothing changes. See docs/search.md.

    Args:
        fn, args, mesh, in_shardings, out_shardings, rules: as for `rd.distribute`. The mesh may have more devices than
            there are, as long as nothing is run.
        devices: in the place of a mesh: all meshes of so many devices are searched.
        pipeline: whether pipelines on that many devices are simulated as well: every layout of powers of two of
            replicas, tensor parts and stages, see `redistrib.pipelines.layout`.
        batch: for a pipeline, the arguments with examples, each with the dimension that runs over them.
        microbatches: the fewest and the most that a pipeline has.
        pins: tactics that hold, of arguments and operations: `rd.along("d", {"batch": 0})`.
        state: arguments, by name, each with the number of the result that takes its place in the next call; the two
            are laid out alike. `{"params": 0}` is that of a training step.
        memory_limit: bytes per device that the program may hold at its worst moment, predicted.
        profile: the machine, or its name, as for `simulate`; by default the preset of the devices' platform.
        objective: `"seconds"`, or `"bytes"` for what all devices together receive, every product being cut by every
            axis that can cut it.
        limit: seconds after which the best so far is taken.
        progress: whether to show on stderr what goes on; None does so on a terminal.

    Returns:
        Candidates, the best first. `found.schedule` is one for `distribute`, `found.distributed` the function; print
        it for a report.

    Raises:
        CutError: if a pin names what is not there, or cuts what cannot be cut.
        MemoryLimitError: if nothing fits the limit; tells the least that something fits.

    >>> import jax.numpy as jnp
    >>> found = search(lambda x, w: x @ w, (jnp.ones((8, 4)), jnp.ones((4, 2))), {"d": 1})
    >>> found.distributed(jnp.ones((8, 4)), jnp.ones((4, 2))).shape
    (8, 2)
    """
    from redistrib.search import entry
    from redistrib.sizes import parse_size

    return entry.search(
        fn,
        args,
        mesh,
        devices=devices,
        pipeline=pipeline,
        batch=batch,
        microbatches=microbatches,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        pins=pins,
        state=state,
        memory_limit=None if memory_limit is None else parse_size(memory_limit),
        profile=profile,
        objective=objective,
        limit=limit,
        progress=progress,
        rules=rules,
    )
