"""A function before anything is cut: traced to a graph, with the types that its shardings ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from redistrib.backends.jax.memory_kinds import HOST, form_in_default, other_kind
from redistrib.backends.jax.tree_paths import path_text
from redistrib.collection import uncollected
from redistrib.errors import LeafError, ProgramError, RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_named_sharding, from_partition_spec
from redistrib.lang.types import DistType, require_even
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Opens
from redistrib.programs.rules.axes import MeshAxes
from redistrib.programs.rules.inline import trace
from redistrib.programs.rules.traced import Traced, TraceOptions
from redistrib.programs.run import regions, shard_maps  # noqa: F401  # their rules are in the table
from redistrib.programs.run.arguments import leaf_names, parameter_names, require_values
from redistrib.programs.run.region import REGIONS
from redistrib.programs.schedule.graph_cuts import End


@dataclass(frozen=True)
class Prepared:
    """A function before anything is cut.

    Attributes:
        name: of the function.
        traced: the function as a graph.
        args: its arguments.
        parameters: their names.
        types: of inputs and outputs that are given.
        options: how it was traced.
        traced_with: traces it with other options.
    """

    name: str
    traced: Traced
    args: tuple[Any, ...]
    parameters: tuple[str, ...]
    types: dict[End, DistType]
    options: TraceOptions
    traced_with: Callable[[TraceOptions], Traced]

    def again(self, options: TraceOptions) -> Prepared:
        """The same, traced with other options."""
        return replace(self, options=options, traced=self.traced_with(options))


def prepare(
    function: Callable[..., Any],
    args: Any,
    mesh: Mesh,
    in_shardings: Any,
    out_shardings: Any,
    options: TraceOptions | None,
) -> Prepared:
    """Trace a function, and read the shardings of its arguments and results; by default, loops are opened."""
    args = jax.tree.map(form_in_default, tuple(args) if isinstance(args, tuple | list) else (args,))
    options = options or TraceOptions(opens_loops=True)
    rules = {
        kind: rule
        for kind, rule in REGIONS.items()
        if not (options.opens_loops and record_of(kind).opens is Opens.LOOP)
    }
    axes = MeshAxes({axis.name: axis.size for axis in mesh.axes})
    options = replace(options, rules={**rules, **options.rules}, parts=mesh.size, axes=axes)
    names = leaf_names(function, args)
    traced_with = partial(trace, function, args, names)
    with uncollected(lasts=True):
        try:
            traced = traced_with(options)
        except (TypeError, ValueError, OverflowError):
            require_values(args, names)
            raise
    if traced.host_results:
        number = traced.host_results[0]
        raise ProgramError(
            "", "", "Place", f"the function puts result {number} in {HOST}, and the arrays of a program are in the "
            "devices' own memory; leave it there, and move the result with redistrib.reshard after the call",
        )  # fmt: skip
    arrays, graph = traced.graph.arrays, traced.graph
    paths, shapes = [array.name for array in graph.inputs], [array.shape for array in graph.inputs]
    inputs = _types("in_shardings", in_shardings, args, paths, shapes, mesh)
    tree = jax.tree_util.tree_unflatten(traced.out_tree, traced.outputs)
    paths = [path_text(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    shapes = [arrays[name].shape for name in graph.outputs]
    types = dict[End, DistType](_types("out_shardings", out_shardings, tree, paths, shapes, mesh).items())
    types |= {graph.inputs[number].name: form for number, form in inputs.items()}
    parameters = tuple(parameter_names(function, args))
    return Prepared(getattr(function, "__name__", "main"), traced, args, parameters, types, options, traced_with)


def _types(
    option: str, shardings: Any, tree: Any, paths: Sequence[str], shapes: Sequence[tuple[int, ...]], mesh: Mesh
) -> dict[int, DistType]:
    """The types that a tree of shardings, or a prefix of one, asks for, by number of the leaf.

    Raises:
        LeafError: if it is no prefix of the tree, or a sharding does not fit its leaf.
    """
    if shardings is None:
        return {}

    def is_leaf(value: Any) -> bool:
        return value is None or isinstance(value, PartitionSpec | NamedSharding | str | DistType)

    try:
        flat = jax.tree.leaves(jax.tree.broadcast(shardings, tree, is_leaf=is_leaf), is_leaf=is_leaf)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise LeafError("", f"{option} is no tree like that of the arrays, and no prefix of one: {reason}") from None
    types = {}
    for k, spec in enumerate(flat):
        if spec is not None:
            try:
                types[k] = _type(spec, shapes[k], mesh)
            except RedistribError as error:
                if isinstance(error, ProgramError) or not paths[k]:
                    raise
                raise LeafError(paths[k], f"{option}: {error}") from error
    return types


def _type(spec: Any, shape: tuple[int, ...], mesh: Mesh) -> DistType:
    if isinstance(spec, str | DistType):
        form = DistType.of(spec)
        require_even("distribute", form)
        return form
    if isinstance(spec, NamedSharding):
        if kind := other_kind(spec):
            raise ProgramError(
                "", "", "Place", f"a sharding of {spec.spec} is in {kind}, and the arrays of a program are in the "
                "devices' own memory; leave the kind out, and move a result with redistrib.reshard after the call",
            )  # fmt: skip
        form, other = from_named_sharding(spec, shape)
        for axis in form.axes:
            if axis not in mesh.names or mesh.axis(axis).size != other.axis(axis).size:
                raise ProgramError(
                    "", "", "Place", f"a sharding of {form} is over the mesh {other}, and the function is distributed "
                    f"over {mesh}; give shardings over axes of that mesh",
                )  # fmt: skip
        return form
    return from_partition_spec(spec, shape, mesh)
