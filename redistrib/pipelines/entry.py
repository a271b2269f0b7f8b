"""`pipeline`: a JAX function as a program in stages, run on one group of devices after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from redistrib.backends.jax.trace.inline import UNROLLED
from redistrib.cost.model import CostModel
from redistrib.cost.presets import preset_of
from redistrib.distribution.prepared import Prepared, prepare
from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.partitioning.build import build
from redistrib.partitioning.propagate import Propagation
from redistrib.partitioning.tactics import matching
from redistrib.partitioning.versions import LayoutBuilder
from redistrib.pipelines.layout import Layout, Spread
from redistrib.pipelines.parts import GraphInParts, with_parts
from redistrib.pipelines.pipelined import Pipelined
from redistrib.pipelines.roles import BatchedProgram, batch_of
from redistrib.pipelines.runs import in_runs
from redistrib.pipelines.stages import forward_of
from redistrib.pipelines.transform import spread_over
from redistrib.programs.check import check
from redistrib.programs.graph import Array, Graph
from redistrib.programs.program import Program


def pipeline(
    fn: Callable[..., Any],
    args: Sequence[Any],
    batch: Mapping[str, int],
    layout: Layout,
    *,
    devices: Any = None,
    cost_model: CostModel | str | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Pipelined:
    """Run a JAX function in stages: replicas, tensor parts, groups of devices, microbatch by microbatch.

    The function, a training step differentiated inside or a forward pass, is traced as `distribute` does and spread as
    `spread` does. Each stage is one `jax.jit` over the devices of its group, called for each
    microbatch in the order that the layout names; `reshard` moves values between groups. A scan over stacked layers is
    cut into runs of steps, one for each stage, and the arrays stacked over the layers with it. The results are those of
    the function. See docs/simulate.md.

    Args:
        fn: a function of arrays and trees of them. Only a loss, gradients and an update, at its end, may read sums over
            examples; no other operation may mix examples, as a norm over the batch does.
        args: its arguments, as arrays or as `jax.ShapeDtypeStruct`.
        batch: for arguments with examples, by the name of the parameter, the path of a leaf or a pattern, the
            dimension that runs over them.
        layout: how many replicas, tensor parts, groups of devices and microbatches, in which order; `tensor_dims` by
            names as in `batch`.
        devices: of JAX, as many as the layout takes, or a mesh of them; by default the first that JAX has.
        cost_model: the objective of plans inside a group; by default the preset of the devices' platform.
        rules: of primitives, as `distribute` takes them.

    Returns:
        A function of the same arguments, with `program` to print or to simulate, and `transfers`, the values that
        go between groups, with a plan or by `jax.device_put`. A result stacked over layers is an array cut over the
        stages, or a `LayerRuns` where no array has such tiles.

    Raises:
        ProgramError: if examples meet before the end, numbers do not divide, devices are too few, or the order cannot
            run.

    >>> import jax.numpy as jnp
    >>> from redistrib.pipelines.layout import Layout
    >>> x, w = jnp.ones((8, 4)), jnp.ones((4, 2))
    >>> f = pipeline(lambda x, w: x @ w, (x, w), {"x": 0}, Layout(microbatches=2))
    >>> f(x, w).shape
    (8, 2)
    """
    chosen = devices_of(devices, layout)
    model = cost_model or preset_of(chosen[0].platform)

    def traced(unrolled_up_to: int) -> Prepared:
        return prepare(fn, args, Mesh(()), None, None, rules, opens_loops=False, unrolled_up_to=unrolled_up_to)

    # Nothing is moved inside a loop, so that tensor parts take the layers one by one.
    prepared = traced(UNROLLED if layout.tensor > 1 else layout.pipeline * layout.chunks - 1)
    try:
        return _in_stages(prepared, batch, layout, model, chosen)
    except ProgramError as error:
        unrolled = traced(UNROLLED)
        if len(unrolled.traced.graph.operations) == len(prepared.traced.graph.operations):
            raise
        return _in_stages(unrolled, batch, layout, model, chosen, why=str(error))


def _in_stages(
    prepared: Prepared,
    batch: Mapping[str, int],
    layout: Layout,
    model: CostModel | str,
    devices: Sequence[Any],
    why: str = "",
) -> Pipelined:
    """The function in stages; each takes a run of the layers that are scanned.

    Args:
        why: the reason why loops that could be loops are unrolled.
    """
    graph, stages = prepared.traced.graph, layout.pipeline * layout.chunks
    examples = _examples(batch, graph.inputs)
    runs = in_runs(graph, stages, examples, prepared.traced.unstacked)
    parts = with_parts(runs, stages, examples, prepared.traced.out_keys)
    pieces = {array.name: part.names for array, part in zip(graph.inputs, parts.inputs, strict=True)}
    cuts = {name: dim for array, dim, _ in _named(layout.tensor_dims, graph.inputs) for name in pieces[array]}
    seen = batch_of(_built(parts.graph, prepared.name), examples)
    placed = replace(layout, tensor_dims=cuts, starts=layout.starts or _starts(parts, seen, stages))
    spread = Spread(check(spread_over(seen, placed, model)), seen, placed)
    return Pipelined(prepared, spread, devices, parts, [*_unrolled(prepared, layout, why)])


def _unrolled(prepared: Prepared, layout: Layout, why: str) -> Iterator[str]:
    """A line for each loop that is unrolled, though the function does not say so, with the reason."""
    stages = layout.pipeline * layout.chunks
    for source, steps in prepared.traced.unrolled:
        reason = why or ("tensor parts exchange inside its steps" if layout.tensor > 1 else "")
        if steps < stages:
            reason = f"its steps are fewer than {stages} stages"
        yield f"unrolled: scan of {steps} steps, {source}: {reason}"


def _starts(parts: GraphInParts, seen: BatchedProgram, stages: int) -> tuple[str, ...]:
    """The values at which stages begin if each takes the layers of its own weights; empty where work alone decides."""
    number_of = {name: k for pieces in parts.inputs if len(pieces.names) > 1 for k, name in enumerate(pieces.names)}
    starts: list[str] = []
    for n in forward_of(seen):
        for number in sorted({number_of[name] for name in seen.sources[n] if name in number_of}):
            if number == len(starts):
                starts.append(seen.steps[n].op.outs[0][1].name)
            elif number != len(starts) - 1:
                return ()
    return tuple(starts[1:]) if len(starts) == stages else ()


def on_one_device(prepared: Prepared, batch: Mapping[str, int]) -> tuple[Program, dict[str, int]]:
    """A traced function as a program on one device, and for its inputs with examples the dimension of these.

    Raises:
        ProgramError: if the batch names no argument.
    """
    graph = prepared.traced.graph
    return _built(graph, prepared.name), _examples(batch, graph.inputs)


def _built(graph: Graph, name: str) -> Program:
    return build(Propagation(graph.unpinned(), Mesh(())), LayoutBuilder("exact", name=name))


def devices_of(chosen: Any, layout: Layout) -> list[Any]:
    """The JAX devices that a layout takes, by default the first.

    Raises:
        ProgramError: if there are too few, or others are given than it takes.
    """
    devices = list(chosen.devices.flat if isinstance(chosen, jax.sharding.Mesh) else chosen or jax.devices())
    if len(devices) < layout.devices or (chosen is not None and len(devices) > layout.devices):
        raise ProgramError(
            "", "", "Place", f"layout {layout} takes {layout.devices} devices, and {len(devices)} are given"
        )
    return devices[: layout.devices]


def _examples(batch: Mapping[str, int], inputs: Sequence[Array]) -> dict[str, int]:
    """The inputs with examples, each with the dimension that runs over them."""
    return {array: dim % max(len(shape), 1) for array, dim, shape in _named(batch, inputs)}


def _named(by_name: Mapping[str, Any], inputs: Sequence[Array]) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    for pattern, dim in by_name.items():
        arrays = matching(pattern, inputs)
        if not arrays:
            raise ProgramError(
                "", pattern, "Batch", "no argument is called so; give a parameter's name, or a leaf's path"
            )
        yield from ((array.name, dim, array.shape) for array in arrays)
