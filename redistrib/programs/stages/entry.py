"""`pipeline`: a JAX function as a program in stages, run on one group of devices after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax

from redistrib.cost.model import CostModel
from redistrib.cost.presets import MachineLike
from redistrib.errors import CutError, ProgramError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.programs.ir.check import check
from redistrib.programs.ir.graph import Array, Graph
from redistrib.programs.ir.program import Program
from redistrib.programs.rules.traced import UNROLLED, TraceOptions
from redistrib.programs.run.options import ProgramOptions
from redistrib.programs.run.prepared import Prepared, prepare
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.tactics import matching, together
from redistrib.programs.stages.cuts import TENSOR
from redistrib.programs.stages.examples import batch_of
from redistrib.programs.stages.layout import Layout, Spread
from redistrib.programs.stages.loops import require_loops
from redistrib.programs.stages.parts import GraphInParts, with_parts
from redistrib.programs.stages.pipelined import Pipelined
from redistrib.programs.stages.prologue import on_one_device, prologue_of
from redistrib.programs.stages.roles import BatchedProgram
from redistrib.programs.stages.runs import in_runs
from redistrib.programs.stages.stages import forward_of
from redistrib.programs.stages.transform import spread_over
from redistrib.renamed import renamed


@renamed("cost_model", "machine")
def pipeline(
    fn: Callable[..., Any],
    args: Sequence[Any],
    batch: Mapping[str, int],
    layout: Layout,
    *,
    devices: Any = None,
    machine: MachineLike | None = None,
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
            examples; no other operation may mix examples, as a norm over the batch does. What depends on no parameter,
            as the sum of a mask, may be read everywhere: a call computes it first.
        args: its arguments, as arrays or as `jax.ShapeDtypeStruct`.
        batch: for arguments with examples, by the name of the parameter, the path of a leaf or a pattern, the
            dimension that runs over them.
        layout: how many replicas, tensor parts, groups of devices and microbatches, in which order; `tensor_dims` by
            names as in `batch`.
        devices: of JAX, as many as the layout takes, or a mesh of them; by default the first that JAX has.
        machine: of moves inside a group, see `rd.synthesize`; by default the preset of the devices' platform.
        rules: of primitives, as `distribute` takes them.

    Returns:
        A function of the same arguments, with `program` to print or to simulate, and `transfers`, the values that
        go between groups, with a plan or by `jax.device_put`. A result stacked over layers is an array cut over the
        stages, or a `LayerRuns` where no array has such tiles.

    Raises:
        ProgramError: if examples meet before the end, numbers do not divide, devices are too few, or the order cannot
            run.

    >>> import jax.numpy as jnp
    >>> from redistrib.programs.stages.layout import Layout
    >>> x, w = jnp.ones((8, 4)), jnp.ones((4, 2))
    >>> f = pipeline(lambda x, w: x @ w, (x, w), {"x": 0}, Layout(microbatches=2))
    >>> f(x, w).shape
    (8, 2)
    """
    chosen = devices_of(devices, layout)
    first, *others = unrolled_up_to(layout)
    tracing = TraceOptions(rules or {}, platform=chosen[0].platform, unrolled_up_to=first)
    model = ProgramOptions(machine, tracing).links
    prepared = prepare(fn, args, Mesh(()), None, None, tracing)
    function = partial(in_stages, batch=batch, stages=layout.pipeline * layout.chunks)
    try:
        return _pipelined(function(prepared), layout, model, chosen, require_parts=True)
    except ProgramError as error:
        unrolled = [prepared.again(replace(prepared.options, unrolled_up_to=steps)) for steps in others]
        if not unrolled or unrolled[0].traced.unrolled == prepared.traced.unrolled:
            return _pipelined(function(prepared), layout, model, chosen)  # tensor parts repeat the work of such loops
        return _pipelined(function(unrolled[0], why=str(error)), layout, model, chosen)


def unrolled_up_to(layout: Layout) -> tuple[int, ...]:
    """The steps of the longest scan that is unrolled; another number is tried where the function is refused so."""
    return (layout.pipeline * layout.chunks - 1, UNROLLED)


class FunctionInStages(NamedTuple):
    """A function whose scans over layers are runs, one for each stage.

    Attributes:
        prepared: the function.
        parts: its graph, in which arrays stacked over layers are in parts.
        seen: the program of one device, seen from its batch.
        prologue: what each call computes first, from the whole batch; None for nothing.
        starts: the values at which stages begin if each takes the layers of its own weights; empty where work alone
            decides.
        why: the reason why loops that could be loops are unrolled; empty where none are.
    """

    prepared: Prepared
    parts: GraphInParts
    seen: BatchedProgram
    prologue: Program | None
    starts: tuple[str, ...]
    why: str = ""

    def placed(self, layout: Layout) -> Layout:
        """A layout whose arrays have the names of their parts, and whose stages take runs.

        Raises:
            CutError: if tactics name no argument, operations, or another axis than that of tensor parts.
        """
        inputs = self.prepared.traced.graph.inputs
        of_function = self.parts.inputs[: len(inputs)]  # results of the prologue come last
        pieces = {array.name: part.names for array, part in zip(inputs, of_function, strict=True)}
        if isinstance(layout.tensor_dims, Mapping):
            dims = {array: dim for array, dim, _ in _named(layout.tensor_dims, inputs)}
        else:
            propagation = Propagation(self.prepared.traced.graph, Mesh((Axis(TENSOR, layout.tensor),)))
            dims = _cut_by(layout.tensor_dims, propagation)
        cuts = {name: dim for array, dim in dims.items() for name in pieces[array]}
        return replace(layout, tensor_dims=cuts, starts=layout.starts or self.starts)

    def require_parts(self, layout: Layout) -> None:
        """Require that the tensor parts of a layout, if it has any, can exchange inside the steps of all loops.

        Raises:
            ProgramError: if they cannot.
        """
        if layout.tensor > 1:
            require_loops(self.seen)

    def pipelined(self, program: Program, layout: Layout, devices: Sequence[Any]) -> Pipelined:
        """The function that runs a program which spreads it by a layout."""
        spread = Spread(check(program), self.seen, layout)
        return Pipelined(self.prepared, spread, devices, self.parts, self.prologue, [*self._unrolled(layout)])

    def _unrolled(self, layout: Layout) -> Iterator[str]:
        """A line for each loop that is unrolled, though the function does not say so, with the reason."""
        stages = layout.pipeline * layout.chunks
        for source, steps in self.prepared.traced.unrolled:
            reason = f"its steps are fewer than {stages} stages" if steps < stages else self.why
            yield f"unrolled: scan of {steps} steps, {source}: {reason}"


def in_stages(prepared: Prepared, batch: Mapping[str, int], stages: int, why: str = "") -> FunctionInStages:
    """A traced function, its scans over layers in as many runs as there are stages.

    Args:
        why: the reason why loops that could be loops are unrolled.

    Raises:
        ProgramError: if the batch names no argument, or examples meet before the end.
    """
    graph = prepared.traced.graph
    examples = _examples(batch, graph.inputs)
    try:
        return _in_stages(prepared, graph, None, examples, stages, why)
    except ProgramError:
        arguments = len(prepared.traced.graph.inputs) - len(prepared.traced.constants)
        split = prologue_of(graph, examples, [array.name for array in graph.inputs[arguments:]])
        if split is None:
            raise
    return _in_stages(prepared, split.graph, split.program, examples, stages, why)


def _in_stages(
    prepared: Prepared, graph: Graph, prologue: Program | None, examples: Mapping[str, int], stages: int, why: str
) -> FunctionInStages:
    runs = in_runs(graph, stages, examples, prepared.traced.unstacked)
    parts = with_parts(runs, stages, examples, prepared.traced.out_keys)
    seen = batch_of(on_one_device(parts.graph, prepared.name), examples)
    return FunctionInStages(prepared, parts, seen, prologue, _starts(parts, seen, stages), why)


def _pipelined(
    function: FunctionInStages,
    layout: Layout,
    model: CostModel | str,
    devices: Sequence[Any],
    *,
    require_parts: bool = False,
) -> Pipelined:
    if require_parts:
        function.require_parts(layout)
    placed = function.placed(layout)
    return function.pipelined(spread_over(function.seen, placed, model), placed, devices)


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


def devices_of(chosen: Any, layout: Layout) -> list[Any]:
    """The JAX devices that a layout takes, by default the first.

    Raises:
        ProgramError: if there are too few, or others are given than it takes.
    """
    devices = list(chosen.devices.flat if isinstance(chosen, jax.sharding.Mesh) else chosen or jax.devices())
    if len(devices) < layout.devices or (chosen is not None and len(devices) > layout.devices):
        raise ProgramError(
            "", "", "Place", f"layout {layout.in_words} takes {layout.devices} devices, and {len(devices)} are given"
        )
    return devices[: layout.devices]


def _examples(batch: Mapping[str, int], inputs: Sequence[Array]) -> dict[str, int]:
    """The inputs with examples, each with the dimension that runs over them."""
    return {array: dim % max(len(shape), 1) for array, dim, shape in _named(batch, inputs)}


def _cut_by(tactics: Any, propagation: Propagation) -> dict[str, int | None]:
    """The inputs that tactics cut into tensor parts, or leave whole, each with the dimension."""
    for tactic in chain.from_iterable(together(tactics)):
        if tactic.axis != TENSOR:
            why = f"a tactic of tensor_dims is along axis {tactic.axis!r}; tensor parts are along {TENSOR!r}"
            raise CutError("", "", "Schedule", why)
        tactic.begin(propagation)
    if propagation.names_operations:
        raise CutError("", "", "Schedule", "a tactic of tensor_dims cuts operations; those of a pipeline cut arguments")
    return {name: dims[TENSOR] for name, dims in propagation.pins.items()}


def _named(by_name: Mapping[str, Any], inputs: Sequence[Array]) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    for pattern, dim in by_name.items():
        arrays = matching(pattern, inputs)
        if not arrays:
            raise ProgramError(
                "", pattern, "Batch", "no argument is called so; give a parameter's name, or a leaf's path"
            )
        yield from ((array.name, dim, array.shape) for array in arrays)
