"""What users call. A backend is imported inside the function that needs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redistrib.arguments import dtype_name, is_sharding, numbered, typed
from redistrib.cost.profiles import load_profile as load_profile
from redistrib.lang.mesh import Mesh
from redistrib.plans.plan import Plan
from redistrib.search import search
from redistrib.sizes import parse_size as parse_size
from redistrib.synthesis.synthesize import synthesize as _synthesize
from redistrib.theory.topology import Topology, topology_of_mesh

if TYPE_CHECKING:
    from redistrib.cache import CacheInfo
    from redistrib.cost.fit import Fit
    from redistrib.cost.model import CostModel
    from redistrib.distribution.diagnosis import Diagnosis
    from redistrib.distribution.entry import Distributed
    from redistrib.plans.data import Order
    from redistrib.programs.program import Program
    from redistrib.resharding.value import TreePlan


def synthesize(
    source: Any,
    target: Any,
    mesh: Mesh | Mapping[str, int] | str | Any | None = None,
    *,
    target_mesh: Mesh | Mapping[str, int] | str | Any | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = "float32",
    cost_model: CostModel | str | None = None,
    algorithm: str = "best",
    over_partition: bool = True,
    memory_limit: int | str | None = None,
    accumulate: Any = None,
    order: str = "any",
    topology: Topology | Iterable[Hashable] | None = None,
) -> Plan:
    """Find a plan that moves an array from one distributed type to another, and verify it.

    Args:
        source, target: a type, its notation such as `"[3{x}12, 2{y}12]"`, or a `jax.sharding.NamedSharding`
            (then `shape` is needed, and the sharding brings its own mesh). Tiles may be of unequal size:
            `"[3~{x}11]"`, see docs/uneven.md.
        mesh: the devices: a `Mesh`, a dict or text of axis sizes (`{"x": 4}`, `"x=4,y=6"`), or a `jax.sharding.Mesh`.
        target_mesh: the mesh of the target type where it is another one, over the same devices or others: those whose
            numbers it gives, as in `Mesh.of("x=4", range(4, 8))`.
        shape: global shape in elements, for shardings.
        dtype: element type: a name, or anything with one.
        cost_model: what to minimise: a `CostModel` or one of `"exact"` (elements received), `"paper"` (Figure 11),
            or a latency-bandwidth preset, `"tpu"` (the default), `"gpu"`, `"cpu"`.
        algorithm: `"best"`, or `"paper"` for the paper's search and lowering alone.
        over_partition: whether the paper's search may slice along replicated axes (Figure 12).
        memory_limit: bytes per device that source, target and scratch may take together: an integer or a text such as
            `"2GiB"`. Without one, no tile on the way is larger than the larger of source and target.
        accumulate: element type to add summands in where the library adds by itself, and rounds once; by default
            float32 for bfloat16 and float16, and `dtype` for all others. Sums of integers wrap around.
        order: `"fixed"` to add summands in their order, in one step and by the library itself, so that sums are the
            same in every bit wherever they are made; by default `"any"`, which lets the platform add.
        topology: where the devices stand, for models with slower links between hosts: a `Topology`, or the host of
            every device, by its number. By default it is read off the devices of shardings and JAX meshes (the slice
            of each accelerator, the process of each CPU device), and else is what the model assumes.

    Returns:
        A verified plan.

    Raises:
        RedistribError: one subclass for each thing that can be wrong with the arguments; `MemoryLimitError` if
            nothing fits the limit.

    >>> plan = synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6}, cost_model="exact")
    >>> plan.height, sum(plan.received) == sum(plan.lower_bound)
    (6, True)
    """
    source_type, source_mesh = typed(source, mesh, shape)
    target_type, other_mesh = typed(target, target_mesh if target_mesh is not None else mesh, shape)
    known = topology_of_mesh(source.mesh if is_sharding(source) else mesh)
    if is_sharding(source) and is_sharding(target):
        source_mesh, other_mesh, known = numbered(source.mesh, target.mesh, source_mesh, other_mesh)
    return _synthesize(
        source_type,
        source_mesh,
        target_type,
        other_mesh,
        dtype=dtype_name(dtype),
        model=DEFAULT_COST_MODEL if cost_model is None else cost_model,
        algorithm=algorithm,
        over_partition=over_partition,
        memory_limit=None if memory_limit is None else parse_size(memory_limit),
        accumulate=None if accumulate is None else dtype_name(accumulate),
        order=order,
        topology=known if topology is None else topology if isinstance(topology, Topology) else Topology.of(topology),
    )


DEFAULT_COST_MODEL = "tpu"


def to_jax(plan: Plan, mesh: Any, **options: Any) -> Any:
    """A function of one global `jax.Array` that carries out a plan; see `redistrib.backends.jax.to_jax`."""
    from redistrib.backends import jax

    return jax.to_jax(plan, mesh, **options)


def to_mpi(plan: Plan | Program, comm: Any, *, memory_limit: int | str | None = None, **options: Any) -> Any:
    """A persistent executor of a plan or a program on an `mpi4py` communicator.

    See `redistrib.backends.mpi.to_mpi` and `redistrib.backends.mpi.program_to_mpi`.
    """
    from redistrib.backends import mpi

    limit = None if memory_limit is None else parse_size(memory_limit)
    if isinstance(plan, Plan):
        return mpi.to_mpi(plan, comm, memory_limit=limit, **options)
    return mpi.program_to_mpi(plan, comm, memory_limit=limit, **options)


def calibrate(backend: str = "jax", *, devices: int | None = None, name: str = "calibrated") -> Fit | None:
    """Measure the collectives of a backend on the devices at hand and fit a latency-bandwidth profile.

    Args:
        backend: `"jax"`, or `"mpi"` under an MPI launcher.
        devices: how many devices to measure on; on a machine without accelerators, virtual CPU devices. Default: all.
        name: recorded in the profile.

    Returns:
        The profile with its samples and residuals; None on all ranks but the first under MPI.

    Raises:
        RunSizeError: if nothing can be measured on so many devices, or there are fewer.
        CommunicatorError: if there is only one rank.
    """
    from redistrib.cost.fit import fit_profile

    if backend == "mpi":
        from redistrib.backends.mpi import calibrate as mpi

        found = mpi.measure()
        if found is None:
            return None
        fit = fit_profile(found, name, "measured with MPI")
        return replace(fit, profile=replace(fit.profile, fused_exchange=True))
    from redistrib.backends.jax.measure.calibrate import measure
    from redistrib.backends.jax.measure.compare import calibration_devices

    chosen = calibration_devices(devices)
    kind = getattr(chosen[0], "device_kind", chosen[0].platform)
    return fit_profile(measure(chosen), name, f"measured on {len(chosen)} x {kind}")


def reshard(
    tree: Any,
    shardings: Any,
    *,
    source: Any = None,
    logical_shape: Any = None,
    donate: bool = False,
    memory_limit: int | str | None = None,
    cost_model: CostModel | str | None = None,
    accumulate: Any = None,
    order: Order | None = None,
    check: bool = False,
    progress: bool | None = None,
) -> Any:
    """Move arrays to other shardings by synthesized plans; use it where you would write `jax.device_put`.

    Source and target may be on different meshes, with axes of other names and sizes, over the same devices in any order
    or over other devices, of this process or of several. Nothing goes through the host. Under `jit`, where source and
    target are on the same devices, it is a part of the computation, and under differentiation the cotangent travels
    back by a plan of its own. See docs/reshard.md.

    Arrays that JAX calls unreduced, whose tiles are summands, are taken and made on either side, on the same devices.

    Where devices belong to several processes, each that owns one of the source or of the target calls this with the
    same tree; where it owns none of a source, it passes an array without shards, or a `jax.ShapeDtypeStruct` with the
    source's sharding. The processes tell each other what they are about to do first, so that different trees raise.

    Handed to `jax.device_put`: values that are no `jax.Array`, other kinds of memory or devices, and inside one process
    tiles that go to other devices as they are, which it copies one by one.

    Args:
        tree: any pytree of arrays.
        shardings: a tree like it, a prefix of it, or one sharding for all. Each is a `jax.sharding.Sharding`, a device,
            or, under `jax.set_mesh`, a `PartitionSpec`.
        source: where traced arrays are, in the same form. Needed under `jit` on meshes of Auto axes, where nothing else
            says it; not needed on Explicit axes, and not looked at for arrays that are not traced.
        logical_shape: for arrays with padding behind the last element of some dimensions, the shape without it: of one
            array, or a tree of shapes and None. The result has the least padding that its sharding needs, all zeros, so
            its shape may be another; or that of a `jax.ShapeDtypeStruct` in the place of its sharding. Of the source's
            padding nothing is read.
        donate: give every source up as soon as its array has moved. Nothing is given up before all leaves have been
            checked, planned and compiled for, and what `jax.device_put` moves has arrived. An array that stays where it
            is keeps its buffers, shared by both, and a later donation of one leaves the other alive. Exceptions from
            then on, interrupts included, have an attribute `partial`: the tree with what has moved, and the rest as it
            was.
        memory_limit: bytes per device that all leaves, before and after, and scratch may take together, as an integer
            or a text such as `"2GiB"`. It decides the order of the leaves, how many travel together, and in how many
            parts. Under `jit` it is the limit of each leaf's plan.
        cost_model: see `synthesize`; by default the preset of the devices' platform.
        accumulate: the type to add summands in, see `synthesize`.
        order: `"fixed"` or `"any"`, see `synthesize`; by default `"fixed"` for sums of bfloat16 and float16, which
            are then rounded once on every platform, and `"any"` for all others.
        check: look first whether devices that hold one tile hold the same; see `redistrib.testing.check_replicas`.
        progress: whether to show a bar on stderr; None shows one for long moves on a terminal.

    Returns:
        The tree, every array committed to exactly the sharding asked for, weak types kept.

    Raises:
        LeafError: if the shardings are no prefix of the tree, and for what is wrong with one leaf; names its path.
        CommunicatorError: if processes are about to move different trees, or one of them does not call.
        MemoryLimitError: if nothing fits the limit; tells the least that something fits.
        TracedError: for what cannot be done under `jit`, and for a traced array on Auto axes without `source`.
        ReplicaError: if `check` finds devices that differ.
    """
    from redistrib.resharding import entry

    limit = None if memory_limit is None else parse_size(memory_limit)
    return entry.reshard(
        tree,
        shardings,
        source,
        logical_shape,
        donate=donate,
        memory_limit=limit,
        model=cost_model,
        accumulate=None if accumulate is None else dtype_name(accumulate),
        order=order,
        check=check,
        progress=progress,
    )


def reshard_plan(
    tree: Any,
    shardings: Any,
    *,
    logical_shape: Any = None,
    donate: bool = False,
    memory_limit: int | str | None = None,
    cost_model: CostModel | str | None = None,
    accumulate: Any = None,
    order: Order | None = None,
) -> TreePlan:
    """What `reshard` will do with the same arguments: order, launches, bytes alive at the worst moment, as a value.

    Plans and compiles, which `reshard` then need not do again. Print it for a table.

    Args:
        tree: of arrays, or of `jax.ShapeDtypeStruct` with shardings.
        shardings, logical_shape, donate, memory_limit, cost_model, accumulate, order: as for `reshard`.

    Raises:
        LeafError, MemoryLimitError: as `reshard` does.
    """
    from redistrib.resharding import entry

    limit = None if memory_limit is None else parse_size(memory_limit)
    return entry.reshard_plan(
        tree,
        shardings,
        logical_shape,
        donate=donate,
        memory_limit=limit,
        model=cost_model,
        accumulate=None if accumulate is None else dtype_name(accumulate),
        order=order,
    )


def distribute(
    fn: Callable[..., Any],
    args: Sequence[Any],
    mesh: Any,
    *,
    schedule: Any = (),
    in_shardings: Any = None,
    out_shardings: Any = None,
    memory_limit: int | str | None = None,
    cost_model: CostModel | str | None = None,
    rules: Mapping[str, Any] | None = None,
    donate: Sequence[str] = (),
) -> Distributed:
    """Distribute a JAX function: cut its operations by a schedule, derive every layout, plan every move.

    The function is traced, as `jax.jit` does, and differentiated, if it is to be, before: give a training step. Each
    operation becomes a nest; the schedule cuts some, propagation the rest; where producer and consumer differ, a plan
    moves the array. All of it runs as one `shard_map` in one `jit`. What no rule covers runs whole on every device. See
    docs/distribute.md.

    Args:
        fn: a function of arrays and trees of them.
        args: its arguments, as arrays or as `jax.ShapeDtypeStruct`.
        mesh: a `jax.sharding.Mesh`, or axes and sizes (`{"d": 2, "t": 4}`) over the first devices that JAX has.
        schedule: tactics, in order, each of one mesh axis: `rd.along("d", {"batch": 0})` cuts arguments,
            `rd.work("t", {"dot_general*": "n0"})` cuts operations. What a tactic decides, later ones leave. Or the
            schedule of a search, or `"auto"`, to search for one; see `search`.
        in_shardings, out_shardings: shardings, partition specs or types of arguments and results, as a tree like
            them or a prefix of one; None leaves open what the schedule then decides. They come before the schedule.
        memory_limit: bytes per device that the program may hold at its worst moment, predicted.
        cost_model: what the plans of moves minimise; by default the preset of the devices' platform.
        rules: for primitives, by name, a function from an equation (`redistrib.backends.jax.trace.equation.Equation`)
            to a `Nest`, or None to leave it whole; or `rd.proxy(...)`. They come before those of the library.
        donate: arguments, by names as in `rd.along`, whose memory the call may use for its results: they are given up.

    Returns:
        A function of the same arguments, with `program`, `lower`, `cost`, `memory`, `choices` and `opaque`.

    Raises:
        CutError: if the schedule names what is not there, or cuts what cannot be cut.
        ProgramError: a subclass for each rule of derivation; names operation, array and source line.
        MemoryLimitError: if the program needs more than the limit; tells how much.

    >>> import jax.numpy as jnp
    >>> f = distribute(lambda x, w: x @ w, (jnp.ones((8, 4)), jnp.ones((4, 2))), {"d": 1}, schedule=())
    >>> f(jnp.ones((8, 4)), jnp.ones((4, 2))).shape
    (8, 2)
    """
    from redistrib.distribution import entry

    if isinstance(schedule, str) and schedule == "auto":
        found = search(
            fn,
            args,
            mesh,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            memory_limit=memory_limit,
            profile=cost_model,
            rules=rules,
        )
        return found[0].distributed
    limit = None if memory_limit is None else parse_size(memory_limit)
    return entry.distribute(
        fn,
        args,
        mesh,
        schedule=schedule,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        memory_limit=limit,
        cost_model=cost_model,
        rules=rules,
        donate=(donate,) if isinstance(donate, str) else donate,
    )


def diagnose(fn: Callable[..., Any], *args: Any, cost_model: CostModel | str | None = None) -> Diagnosis:
    """What the compiler made a jitted function communicate, by source line, and what our plans would receive instead.

    Args:
        fn: what `jax.jit` returned, or what `.lower(...)` or `.compile()` of it did.
        args: its arguments, placed as they are when it runs: arrays, or `jax.ShapeDtypeStruct` with shardings.
        cost_model: what our plans minimise; by default the preset of the devices' platform.

    Returns:
        Every collective with its source line, bytes received and largest temporary, the involuntary gathers first.
        Print it for a table; `as_dict()` is for JSON.
    """
    from redistrib.distribution import diagnosis

    return diagnosis.diagnose(fn, *args, model=cost_model)


def cache_info() -> dict[str, CacheInfo]:
    """Hits, misses, size and limit of `reshard`'s caches: `"trees"`, `"routes"`, `"plans"` and `"programs"`."""
    from redistrib.resharding import planning

    return planning.cache_info()


def clear_caches() -> None:
    """Forget all that `reshard` has planned and compiled."""
    from redistrib.resharding import planning

    planning.clear_caches()
