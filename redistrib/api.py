"""Public functions. Each imports the backend that it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

from redistrib.arguments import dtype_name, has_devices, is_sharding, numbered, numbered_ranks, require_mesh_of, typed
from redistrib.cost.presets import cost_model
from redistrib.cost.profiles import load_profile as load_profile
from redistrib.errors import ProgramError
from redistrib.errors.base import shown
from redistrib.extras import need
from redistrib.lang.mesh import Mesh
from redistrib.lang.placements import is_device_mesh
from redistrib.plans.data import PlanData
from redistrib.plans.plan import Plan
from redistrib.plans.verify import verify as verify_plan
from redistrib.renamed import renamed
from redistrib.sizes import parse_size as parse_size
from redistrib.synthesis.synthesize import synthesize as _synthesize
from redistrib.theory.topology import Topology, topology_of_mesh

if TYPE_CHECKING:
    from redistrib.cost.fit import Fit
    from redistrib.cost.presets import MachineLike
    from redistrib.programs.ir.program import Program
    from redistrib.programs.run.distributed import Distributed
    from redistrib.programs.time.fit import OperationSample, RatesFit
    from redistrib.programs.time.machine import RatesForm

_Verified = TypeVar("_Verified", bound="Plan | Program")


@renamed("cost_model", "machine")
def synthesize(
    source: Any,
    target: Any,
    mesh: Mesh | Mapping[str, int] | str | Any | None = None,
    *,
    target_mesh: Mesh | Mapping[str, int] | str | Any | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = "float32",
    machine: MachineLike | None = None,
    algorithm: str = "best",
    over_partition: bool = True,
    memory_limit: int | str | None = None,
    accumulate: Any = None,
    order: str = "any",
    topology: Topology | Iterable[Hashable] | None = None,
) -> Plan:
    """Find a plan that moves an array from one distributed type to another, and verify it.

    Args:
        source, target: a type, its notation such as `"[3{x}12, 2{y}12]"`, a `jax.sharding.NamedSharding` (which
            brings its own mesh) or a `jax.sharding.PartitionSpec`; the last two need `shape`. Tiles may be of unequal
            size: `"[3~{x}11]"`, see docs/uneven.md. Or the placements of a DTensor, such as `[Shard(0), Replicate()]`
            (then `shape` and the mesh are needed).
        mesh: the devices: a `Mesh`, a dict or text of axis sizes (`{"x": 4}`, `"x=4,y=6"`), a `jax.sharding.Mesh`, a
            `jax.sharding.AbstractMesh`, for which no devices are needed, or a `DeviceMesh` of PyTorch, whose devices
            are numbered in the order of their ranks.
        target_mesh: the mesh of the target type where it is another one, over the same devices or others: those whose
            numbers it gives, as in `Mesh.of("x=4", range(4, 8))`.
        shape: global shape in elements, for shardings.
        dtype: element type: a name, or anything with one.
        machine: what the plan is made for: a name, `"tpu"` (the default), `"gpu"`, `"cpu"`, `"h100"`, `"v5e"` and more,
            the path of a profile that `redistrib calibrate` wrote, a `CostModel`, or a machine of the simulator. Or
            what to count in place of seconds: `"exact"`, elements received, or `"paper"`, the prices of Figure 11.
        algorithm: `"best"`, or `"paper"` for the paper's search and lowering alone.
        over_partition: whether the paper's search may slice along replicated axes (Figure 12).
        memory_limit: bytes per device that source, target and scratch may take together: an integer or a text such as
            `"2GiB"`. Without one, no tile on the way is larger than the larger of source and target.
        accumulate: element type in which the library adds partial sums, which are then rounded once; by default
            float32 for bfloat16 and float16, and `dtype` for all others. Sums of integers wrap around.
        order: `"fixed"`: the library adds partial sums in ascending order, in one step, so that sums have equal bits
            everywhere; by default `"any"`, which lets the platform add.
        topology: the hosts of the devices, for models with slower links between hosts: a `Topology`, or the host of
            every device, by its number. By default it is that of the devices of shardings and JAX meshes (the slice of
            each accelerator, the process of each CPU device), or else the assumption of the model.

    Returns:
        A verified plan. On a `DeviceMesh` its table says at the end what DTensor's planners would do.

    Raises:
        RedistribError: one subclass for each fault of the arguments; `MemoryLimitError` if no plan fits the
            limit.

    >>> plan = synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6}, machine="exact")
    >>> plan.height, sum(plan.received) == sum(plan.lower_bound)
    (6, True)
    """
    if is_sharding(target):
        require_mesh_of(target, target_mesh, "target_mesh")
        if is_sharding(source):
            require_mesh_of(source, mesh, "mesh")
    source_type, source_mesh = typed(source, mesh, shape)
    target_type, other_mesh = typed(target, target_mesh if target_mesh is not None else mesh, shape)
    if is_device_mesh(mesh):
        source_mesh, other_mesh = numbered_ranks(source_mesh, other_mesh)
    hosts = None if is_device_mesh(mesh) else topology_of_mesh(source.mesh if is_sharding(source) else mesh)
    both = is_sharding(source) and is_sharding(target)
    if both and has_devices(source.mesh) and has_devices(target.mesh):
        source_mesh, other_mesh, hosts = numbered(source.mesh, target.mesh, source_mesh, other_mesh)
    plan = _synthesize(
        source_type,
        source_mesh,
        target_type,
        other_mesh,
        dtype=dtype_name(dtype),
        model=cost_model(DEFAULT_MACHINE if machine is None else machine),
        algorithm=algorithm,
        over_partition=over_partition,
        memory_limit=None if memory_limit is None else parse_size(memory_limit),
        accumulate=None if accumulate is None else dtype_name(accumulate),
        order=order,
        topology=hosts if topology is None else topology if isinstance(topology, Topology) else Topology.of(topology),
    )
    if is_device_mesh(mesh):
        from redistrib.dtensor.against import beside

        plan = replace(plan, beside=beside)
    return plan


DEFAULT_MACHINE = "tpu"


def to_jax(plan: Plan | Program, mesh: Any, **options: Any) -> Any:
    """A function of one global `jax.Array` that carries out a plan, or of several that runs a program.

    See `redistrib.backends.jax.to_jax` and `redistrib.programs.run.jax.placed_function.program_to_jax`.

    >>> import jax
    >>> move = to_jax(synthesize("[8{x}8]", "[8]", {"x": 1}), jax.make_mesh((1,), ("x",)))
    >>> move(jax.numpy.ones(8)).shape
    (8,)
    """
    need("jax")
    if _is_program(plan):
        from redistrib.programs.run.jax.placed_function import program_to_jax

        return program_to_jax(plan, mesh, **options)
    from redistrib.backends import jax

    return jax.run(_plan_or_program(plan), mesh, **options)


def verify(plan: _Verified, bound: int | None = None) -> _Verified:
    """Check a plan or a program, and return it.

    Args:
        plan: a plan, or a program, wherever it came from. Of a program the types must follow from the cuts, and the
            plan of every move must be right.
        bound: of a plan, the largest tile allowed on the way, in elements; by default the larger of the source tile and
            the target tile, or none where the plan was made under a memory limit.

    Raises:
        VerificationError: for the first rule that a plan breaks, with step, device and values.
        TypeFormError: if a type of a plan is not well-formed over its mesh.
        ProgramError: for the first rule that a program breaks; names the operation. And for anything else than the two,
            or a bound for a program.

    >>> plan = synthesize("[2{x}8, 8]", "[8, 2{x}8]", {"x": 4})
    >>> verify(plan) is plan
    True
    """
    if _is_program(plan):
        from redistrib.programs.ir.verify import verify_program

        if bound is not None:
            raise ProgramError(plan.name, "", "Arguments", "a bound is for the tiles of one plan; leave it out")
        verify_program(plan)
    else:
        verify_plan(_plan_or_program(plan, "is verified"), bound)
    return plan


def _is_program(value: Any) -> TypeGuard[Program]:
    """Whether a value is a program. Where there is one its module is loaded, and moves of arrays load none."""
    module = sys.modules.get("redistrib.programs.ir.data")
    return module is not None and isinstance(value, module.ProgramData)


def _plan_or_program(plan: Any, verb: str = "runs") -> Any:
    if not isinstance(plan, PlanData):
        raise ProgramError("", "", "Arguments", f"a Plan or a Program {verb}, and not {shown(plan)}")
    return plan


@renamed("profile", "machine")
def to_mpi(plan: Plan | Program, comm: Any, *, memory_limit: int | str | None = None, **options: Any) -> Any:
    """A persistent executor of a plan or a program on an `mpi4py` communicator.

    See `redistrib.backends.mpi.to_mpi` and `redistrib.programs.run.mpi.program.program_to_mpi`.

    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> with to_mpi(synthesize("[8{x}8]", "[8]", {"x": 1}), MPI.COMM_SELF) as move:
    ...     print(move(np.ones(8, np.float32)).shape)
    (8,)
    """
    need("mpi4py")
    if _is_program(plan):
        from redistrib.programs.run.mpi.program import program_to_mpi

        return program_to_mpi(plan, comm, memory_limit=memory_limit, **options)
    from redistrib.backends import mpi

    return mpi.run(cast("Plan", plan), comm, memory_limit=memory_limit, **options)  # which tells all ranks of errors


def to_torch(plan: Plan, group: Any = None, *, memory_limit: int | str | None = None, **options: Any) -> Any:
    """A persistent executor of a plan on a process group of `torch.distributed`.

    See `redistrib.backends.torch.to_torch`.

    >>> import torch
    >>> import torch.distributed as dist
    >>> move = to_torch(synthesize("[1{x}8]", "[8]", {"x": 8}))  # under torchrun with 8 ranks
    >>> move(torch.tensor([float(dist.get_rank())]))
    tensor([0., 1., 2., 3., 4., 5., 6., 7.])
    """
    need("torch")
    from redistrib.backends import torch

    return torch.run(plan, group, memory_limit=memory_limit, **options)  # which tells all ranks of errors


def calibrate(backend: str = "jax", *, devices: int | None = None, name: str = "calibrated") -> Fit | None:
    """Measure the collectives of a backend on the devices at hand and fit a latency-bandwidth profile.

    Args:
        backend: `"jax"`, `"mpi"` under an MPI launcher, or `"torch"` where a process group is initialised.
        devices: how many devices to measure on; on a machine without accelerators, virtual CPU devices. Default: all.
        name: recorded in the profile.

    Returns:
        The profile with its samples and residuals; None on all ranks but the first under MPI and PyTorch.

    Raises:
        RunSizeError: if nothing can be measured on so many devices, or there are fewer.
        CommunicatorError: if there is only one rank.
    """
    from redistrib.cost.fit import fit_profile

    if backend == "mpi":
        need("mpi4py")
        from redistrib.backends import mpi

        samples = mpi.measure()
        if samples is None:
            return None
        fit = fit_profile(samples, name, "measured with MPI")
        return replace(fit, profile=replace(fit.profile, fused_exchange=True))
    if backend == "torch":
        need("torch")
        from redistrib.backends import torch

        timed = torch.measure()
        if timed is None:
            return None
        fit = fit_profile(timed, name, "measured with PyTorch")
        return replace(fit, profile=replace(fit.profile, fused_exchange=True))
    need("jax")
    from redistrib.backends import jax
    from redistrib.explain.profiling.compare import calibration_devices

    chosen = calibration_devices(devices)
    kind = getattr(chosen[0], "device_kind", chosen[0].platform)
    return fit_profile(jax.measure(chosen), name, f"measured on {len(chosen)} x {kind}")


def calibrate_rates(samples: Sequence[OperationSample] | None = None, *, form: RatesForm = "roofline") -> RatesFit:
    """Fit the rates of a device to timed operations, by non-negative least squares on relative errors.

    Args:
        samples: timed operations, three or more; by default products and sums are timed on the first device of JAX.
        form: how bytes and operations combine, see `redistrib.programs.time.machine.Rates`.

    Raises:
        ProfileError: if there are fewer than three samples, or one took no time.
    """
    need("redistrib.programs.time", "calibrate_rates")
    from redistrib.programs.time.fit import OperationSample, RatesFit, fit_rates

    if samples is None:
        need("jax")
        from redistrib.programs.time.operations import measure_operations

        samples = [OperationSample(*timed) for timed in measure_operations()]
    return RatesFit(fit_rates(samples, form), tuple(samples))


@renamed("cost_model", "machine")
def distribute(
    fn: Callable[..., Any],
    args: Sequence[Any],
    mesh: Any,
    *,
    schedule: Any = (),
    in_shardings: Any = None,
    out_shardings: Any = None,
    memory_limit: int | str | None = None,
    machine: MachineLike | None = None,
    rules: Mapping[str, Any] | None = None,
    donate: Sequence[str] = (),
    exact: bool = False,
    trip_count: int = 1,
    ahead: bool = False,
) -> Distributed:
    """Distribute a JAX function: cut its operations by a schedule, derive every layout, plan every move.

    The function is traced, as `jax.jit` does; for gradients give a training step that contains them. Each operation
    becomes a nest; the schedule cuts some, propagation the rest; where producer and consumer differ, a plan moves the
    array. The result is one `shard_map` in one `jit`. An operation without a rule runs whole on every device. See
    docs/distribute.md.

    Args:
        fn: a function of arrays and trees of them.
        args: its arguments, as arrays or as `jax.ShapeDtypeStruct`.
        mesh: a `jax.sharding.Mesh`, or axes and sizes (`{"d": 2, "t": 4}`, a `Mesh`, an `AbstractMesh` of JAX) over the
            first devices that JAX has. Where there are too few, all but a call works.
        schedule: tactics, in order, each of one mesh axis: `rd.along("d", {"batch": 0})` cuts arguments, `rd.work("t",
            {"dot_general*": "n0"})` cuts operations. Earlier tactics win. Or the schedule of a search, or `"auto"`, to
            search for one; see `search`.
        in_shardings, out_shardings: shardings, partition specs or types of arguments and results, as a tree like
            them or a prefix of one; None leaves the choice to the schedule. They come before the schedule.
        memory_limit: bytes per device that the program may hold at its worst moment, predicted.
        machine: the machine of moves, see `synthesize`; by default the preset of the devices' platform.
        rules: for primitives, by name, a function from an equation (`redistrib.programs.rules.equation.Equation`)
            to a `Nest`, or None to leave it whole; or `rd.rule(...)`, or `rd.proxy(...)`. They come before those of the
            library.
        donate: arguments, by names as in `rd.along`, whose memory the call may use for its results: they are deleted.
        exact: whether partial sums are added directly after the operation that makes them. By default they pass
            operations that are linear in them, and are added later, where fewer bytes move; floats may then round
            differently. See docs/distribute.md.
        trip_count: the steps that every `while_loop` counts with in bytes received, FLOPs and seconds. Running it takes
            as many steps as its condition says.
        ahead: whether a step of a loop gathers the entry that the next step reads of a stacked array (the weights of
            layers), so that no operation waits for the gather. Another entry is then live, and there is one more gather
            than steps.

    Returns:
        A function of the same arguments, with `program`, `lower`, `cost`, `memory`, `choices` and `opaque`.

    Raises:
        CutError: if the schedule names an array or a dimension that does not exist, or one that cannot be cut.
        ProgramError: a subclass for each rule of derivation; names operation, array and source line.
        MemoryLimitError: if the program needs more than the limit; says how much it needs.

    >>> import jax.numpy as jnp
    >>> f = distribute(lambda x, w: x @ w, (jnp.ones((8, 4)), jnp.ones((4, 2))), {"d": 1}, schedule=())
    >>> f(jnp.ones((8, 4)), jnp.ones((4, 2))).shape
    (8, 2)
    """
    need("redistrib.programs.run", "rd.distribute")
    need("jax")
    from redistrib.backends.jax.platforms import Platform
    from redistrib.programs.rules.traced import TraceOptions
    from redistrib.programs.run.devices import meshes
    from redistrib.programs.run.entry import distributed
    from redistrib.programs.run.options import ProgramOptions
    from redistrib.programs.run.prepared import prepare

    if not isinstance(ahead, bool):
        raise ProgramError("", "", "Arguments", f"ahead is {ahead!r}; give True or False")
    if isinstance(schedule, str) and schedule == "auto":
        from redistrib.programs.search.entry import search

        result = search(
            fn, args, mesh, in_shardings=in_shardings, out_shardings=out_shardings, memory_limit=memory_limit,
            machine=machine, rules=rules, donate=donate, exact=exact, trip_count=trip_count,
        )  # fmt: skip
        if not ahead:
            return result[0].distributed
        schedule = result.schedule
    jax_mesh, axes = meshes(mesh)
    tracing = TraceOptions(rules or {}, exact, True, Platform.of(jax_mesh).name, trip_count)
    options = ProgramOptions.of(machine, tracing, memory_limit, donate)
    prepared = prepare(fn, args, axes, in_shardings, out_shardings, tracing)
    return distributed(prepared, jax_mesh, axes, schedule, options, ahead)
