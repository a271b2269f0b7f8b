"""`reshard` and `reshard_plan`, for arrays and for tracers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import AbstractMesh

from redistrib.arguments import dtype_name
from redistrib.backends.jax.contexts import untraced_context
from redistrib.backends.jax.meetings import processes_of, raised_in_all
from redistrib.backends.jax.virtual import over_virtual_devices
from redistrib.cost.presets import MachineLike
from redistrib.errors import ThroughError, TracedError
from redistrib.lang.mesh import Mesh
from redistrib.plans.data import Order
from redistrib.renamed import renamed
from redistrib.resharding import traced
from redistrib.resharding.checks import check_planned
from redistrib.resharding.copies import Via, via_of
from redistrib.resharding.eager import PreparedReshard
from redistrib.resharding.host_values import owners_of
from redistrib.resharding.interrupts import SignalsPutOff
from redistrib.resharding.leaves import Leaf, Rebuild, matched, on_devices, present
from redistrib.resharding.planning import Planner
from redistrib.resharding.replicas import check_replicas
from redistrib.resharding.value import TreePlan
from redistrib.resharding.wide import mode_of
from redistrib.sizes import parse_size

if TYPE_CHECKING:
    from redistrib.resharding.through.prepared import PreparedThrough
    from redistrib.resharding.through.value import ThroughPlan


@renamed("cost_model", "machine")
def reshard(
    tree: Any,
    shardings: Any,
    *,
    mesh: Any = None,
    source: Any = None,
    logical_shape: Any = None,
    through: Callable[[Any], Any] | None = None,
    donate: bool = False,
    memory_limit: int | str | None = None,
    machine: MachineLike | None = None,
    accumulate: Any = None,
    order: Order | None = None,
    check: bool = False,
    progress: bool | None = None,
    via: Via | None = None,
) -> Any:
    """Move arrays to other shardings by synthesized plans; use it where you would write `jax.device_put`.

    Source and target may be on different meshes, with axes of other names and sizes, over the same devices in any order
    or over other devices, of this process or of several. Nothing goes through the host, except between CPU devices of
    one process, whose memory is the host's: there leaves are copied where that is quicker than collectives; see `via`.
    Under `jit`, where source and target are on the same devices, it is a part of the computation, and under
    differentiation the cotangent travels back by another plan. See docs/reshard.md.

    Partial sums, which JAX calls unreduced and DTensor `Partial`, may be source or target, on the same devices.

    Where devices belong to several processes, each that owns one of the source or of the target calls this with the
    same tree; where it owns none of a source, it passes an array without shards, or a `jax.ShapeDtypeStruct` with the
    source's sharding. Values that every process has are NumPy arrays, or arrays that are not committed to devices. In
    every call the processes first compare their moves, so that different trees, or an error of one process, raise the
    same error in all of them.

    `jax.device_put` moves values that are no `jax.Array`, and copies whole tiles to other devices of one process, or to
    another kind of memory. An array that a plan moves from or to another kind of memory than the devices' default, such
    as `pinned_host`, is copied from there before and to there afterwards; under `jit` too.

    Args:
        tree: any pytree of arrays.
        shardings: a tree like it, a prefix of it, or one sharding for all; or a mapping from patterns of paths, such as
            `{"*/wq/kernel": P("data", "model"), "*": P()}`; or a function of path and leaf. Each is a
            `jax.sharding.Sharding`, a device, or a `PartitionSpec` over `mesh`. A path is the leaf's keys with `/`
            between them. The pattern `*` is for leaves that no other pattern matches. The result of
            `flax.nnx.get_partition_spec` will do. Functions among the leaves of `tree` pass unchanged.
        mesh: of the partition specs, a mesh of JAX, or axes and sizes (`{"d": 2, "t": 4}`, an `rd.Mesh`) over the first
            devices; by default the mesh of `jax.set_mesh`.
        source: the shardings of traced arrays, in the same form. Under `jit` on meshes of Auto axes XLA moves arrays
            without it that come from other operations than those that ask for a sharding, as
            `jax.lax.with_sharding_constraint` does. Ignored for arrays that are not traced.
        logical_shape: for arrays with padding behind the last element of some dimensions, the shape without it: of one
            array, or a tree of shapes and None. The result has the least padding that its sharding needs, all zeros, so
            its shape may differ; or that of a `jax.ShapeDtypeStruct` in the place of its sharding. The source's padding
            is not read.
        through: a function of the tree, of views and element-wise operations (casts, transposes, reshapes, slices,
            concatenations, scaling, sums). Its result is returned, and `shardings` are those of the result. Casts to
            fewer bits come before the move, and parts of a concatenation go straight to their places; see
            docs/weights.md. Goes with `mesh`, `donate`, `memory_limit`, `check` and `progress`, outside `jit`.
        donate: delete every source as soon as its array has moved. No source is deleted before all leaves are checked,
            planned and compiled, and all moves by `jax.device_put` have arrived. An array that stays where it is keeps
            its buffers, shared by both, and a later donation of one leaves the other alive. Exceptions from then on,
            interrupts included, have an attribute `partial`: the tree with the moved arrays, the others unchanged.
        memory_limit: bytes per device that all leaves, before and after, and scratch may take together, as an integer
            or a text such as `"2GiB"`. It decides the order of the leaves, the number that moves together, and the
            number of parts of each. Under `jit` it is the limit of each leaf's plan.
        machine: see `synthesize`; by default the preset of the devices' platform.
        accumulate: the type to add summands in, see `synthesize`.
        order: `"fixed"` or `"any"`, see `synthesize`; by default `"fixed"` for sums of bfloat16 and float16, which
            are then rounded once on every platform, and `"any"` for all others.
        check: first check that all devices with one tile have equal values; see `redistrib.testing.check_replicas`.
        progress: whether to show a bar on stderr; None shows one for long moves on a terminal.
        via: how leaves move between CPU devices of one process: `"collectives"`, always; `"copies"`, each target tile
            assembled from the source tiles that it overlaps, wherever that can be; `"auto"`, the quicker way by rates
            that were measured. None reads the environment variable `REDISTRIB_VIA`, by default `"auto"`. Collectives
            move all leaves on other devices, between processes, and under `jit` or a memory limit, also partial sums,
            padded arrays and PRNG keys.

    Returns:
        The tree, every array committed to exactly its target sharding, with its weak type.

    Raises:
        ChoiceError: if `via` is none of the three.
        LeafError: if the shardings are no prefix of the tree, if a pattern matches no leaf or a leaf matches no pattern
            or two, and for a leaf that cannot be moved; names its path.
        CommunicatorError: in all processes, if they are about to move different trees, or one of them does not call or
            is lost.
        MemoryLimitError: if no plan that was found fits the limit; with the fewest bytes of those found, and whether
            it is proved that no plan can fit.
        TracedError: for a call that cannot be done under `jit`, and for what needs a plan of a traced array on Auto
            axes, without `source`.
        ReplicaError: if `check` finds devices that differ.
        ThroughError: if `through` has an operation that is neither a view nor element-wise, with its name and line.

    >>> import jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> rows = reshard({"w": jnp.ones((8, 8))}, P("x"), mesh={"x": 4})
    >>> columns = reshard(rows, P(None, "x"), mesh={"x": 4})
    >>> tuple(columns["w"].sharding.spec)
    (None, 'x')
    """
    call = _TreeCall(tree, shardings, mesh)
    with raised_in_all("reshard", call.processes):
        planner = Planner(machine, None if accumulate is None else dtype_name(accumulate), order)
        memory_limit, chosen = None if memory_limit is None else parse_size(memory_limit), via_of(via)
        if through is None:
            run: Callable[[bool | None], Any] = call.prepared(
                planner, source, logical_shape, donate=donate, memory_limit=memory_limit, check=check, via=chosen
            )
        else:
            _refuse_with_through(source, logical_shape)
            if any(map(traced.is_traced, jax.tree.leaves(tree))):
                raise ThroughError(
                    "", "through= goes with arrays outside jit; under jit, reshard the function's result"
                )
            if check:
                check_replicas(tree)
            prepared = _prepared_through(tree, shardings, through, mesh, donate, memory_limit)
            prepared.require_values()
            run = prepared.run
    return run(progress)


def move_tree(
    tree: Any,
    shardings: Any,
    planner: Planner,
    logical_shape: Any = None,
    *,
    donate: bool = False,
    progress: bool | None = None,
    agreed: bool = False,
) -> Any:
    """`reshard` with a planner.

    `agreed` says that all processes are known to make the same call, and need not compare it.
    """
    call = _TreeCall(tree, shardings, None)
    with nullcontext() if agreed else raised_in_all("reshard", call.processes):
        run = call.prepared(planner, None, logical_shape, donate=donate, via=via_of(None))
    return run(progress, agreed)


class _TreeCall:
    """A call with a tree, up to where it moves."""

    def __init__(self, tree: Any, shardings: Any, mesh: Any) -> None:
        self._given, self._leaves = (tree, shardings, mesh), list[Leaf]()

    def processes(self) -> set[int]:
        """The processes that make the call, as far as it has come; none under `jit`, where none meet."""
        values = [leaf.value for leaf in self._leaves] or jax.tree.leaves(self._given[0])
        if any(map(traced.is_traced, values)):
            return set()
        if not self._leaves:
            tree, shardings, mesh = self._given
            return processes_of(tree, shardings, mesh=mesh)
        return set().union(*map(owners_of, self._leaves))

    def prepared(
        self,
        planner: Planner,
        source: Any,
        logical_shape: Any,
        *,
        donate: bool,
        memory_limit: int | None = None,
        check: bool = False,
        via: Via,
    ) -> Callable[..., Any]:
        """Check, plan and compile, and move the traced leaves; what is left to do, see `_moved`."""
        tree, shardings, mesh = self._given
        self._leaves, rebuild = matched(tree, shardings, source, logical_shape, mesh)
        if check:
            check_replicas(tree)
        self._leaves = leaves = [traced.as_constant(on_devices(present(leaf))) for leaf in self._leaves]
        inside = [traced.is_traced(leaf.value) for leaf in leaves]
        if donate and any(inside):
            raise TracedError("traced donation")
        moved = [
            traced.moved(leaf, planner, memory_limit) if k else None for leaf, k in zip(leaves, inside, strict=True)
        ]
        outside = [leaf for leaf, is_inside in zip(leaves, inside, strict=True) if not is_inside]
        if not outside:
            return lambda *_: rebuild(moved)
        with untraced_context(), mode_of(outside) as ready:
            prepared = PreparedReshard(ready, planner, donate=donate, memory_limit=memory_limit, via=via)
            prepared.require_values()
        return partial(_moved, prepared, ready, moved, inside, rebuild, donate)


def _moved(
    prepared: PreparedReshard,
    leaves: list[Leaf],
    moved: list[Any],
    inside: list[bool],
    rebuild: Rebuild,
    donate: bool,
    progress: bool | None,
    agreed: bool = False,
) -> Any:
    """Move the leaves that are not traced, and return the tree."""
    placed = [leaf.value for leaf in leaves]
    # Where leaves are donated none is traced, and the moved leaves are the whole tree.
    left = (lambda: rebuild(placed)) if donate else None
    with SignalsPutOff(left) as pause, untraced_context(), mode_of(leaves):  # the others end while signals wait
        prepared.run(placed, progress, pause, agreed)
        if donate:
            return rebuild(placed)
    rest = iter(traced.held(placed, (leaf.target for leaf in leaves)))
    results = [value if is_inside else next(rest) for value, is_inside in zip(moved, inside, strict=True)]
    return rebuild(results)


@renamed("cost_model", "machine")
def reshard_plan(
    tree: Any,
    shardings: Any,
    *,
    mesh: Any = None,
    logical_shape: Any = None,
    through: Callable[[Any], Any] | None = None,
    donate: bool = False,
    memory_limit: int | str | None = None,
    machine: MachineLike | None = None,
    accumulate: Any = None,
    order: Order | None = None,
    via: Via = "collectives",
) -> TreePlan | ThroughPlan:
    """The plan of `reshard` for the same arguments: order, launches, bytes alive at the worst moment, as a value.

    Plans and compiles, which `reshard` then need not do again. Print it for a table. It plans collectives for every
    move, also between CPU devices of one process, unless `via="auto"` asks for what `reshard` does there by default.

    Needs no devices: for `jax.ShapeDtypeStruct`s over an `AbstractMesh` it compiles for virtual CPU devices, and device
    `k` of every `AbstractMesh`, in row-major order, is the same one. `machine` is then theirs.

    Args:
        tree: of arrays, or of `jax.ShapeDtypeStruct` with shardings.
        shardings, mesh, logical_shape, through, donate, memory_limit, machine, accumulate, order, via: as for
            `reshard`.

    Raises:
        LeafError, MemoryLimitError: as `reshard` does.

    >>> import jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> rows = reshard({"w": jnp.ones((8, 8))}, P("x"), mesh={"x": 4})
    >>> reshard_plan(rows, P(None, "x"), mesh={"x": 4}).received_bytes
    192
    """
    planner = Planner(machine, None if accumulate is None else dtype_name(accumulate), order)
    memory_limit, chosen = None if memory_limit is None else parse_size(memory_limit), via_of(via)
    if mesh is not None and not isinstance(mesh, jax.sharding.Mesh | AbstractMesh):
        mesh = Mesh.of(mesh)
    tree, shardings, mesh = over_virtual_devices(tree, shardings, mesh)
    if through is not None:
        _refuse_with_through(None, logical_shape)
        return _prepared_through(tree, shardings, through, mesh, donate, memory_limit).plan
    leaves, _ = matched(tree, shardings, None, logical_shape, mesh)
    leaves = list(map(on_devices, leaves))
    for leaf in leaves:
        check_planned(leaf)
    with mode_of(leaves) as ready:
        return PreparedReshard(ready, planner, donate=donate, memory_limit=memory_limit, via=chosen).plan


def _prepared_through(
    tree: Any, shardings: Any, function: Callable[[Any], Any], mesh: Any, donate: bool, memory_limit: int | None
) -> PreparedThrough:
    from redistrib.resharding.through.prepared import PreparedThrough  # 70 modules that other calls do not need

    return PreparedThrough(tree, shardings, function, mesh=mesh, donate=donate, memory_limit=memory_limit)


def _refuse_with_through(source: Any, logical_shape: Any) -> None:
    if source is not None or logical_shape is not None:
        raise ThroughError(
            "", "through= goes with arrays outside jit and without padding; leave source= and logical_shape= out"
        )
