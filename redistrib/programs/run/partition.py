"""`partition`: nests and their grids in, or a JAX function with annotations; a program out. Nests need no JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from redistrib.arguments import dtype_name
from redistrib.cost.presets import MachineLike, cost_model
from redistrib.errors import ProgramError
from redistrib.errors.base import shown
from redistrib.extras import need
from redistrib.lang.types import DistType
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Program
from redistrib.programs.lower.gridded import partitioned
from redistrib.programs.lower.padding import padded
from redistrib.programs.schedule.blocks import in_blocks
from redistrib.programs.schedule.options import PartitionOptions
from redistrib.renamed import renamed


@renamed("cost_model", "machine")
def partition(
    nests: Nest | Iterable[Nest] | Callable[..., Any],
    grids: Mapping[str, Sequence[int] | Mapping[str, int]] | Any,
    *,
    args: Sequence[Any] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    ranks: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | Sequence[str] = (),
    root: bool = False,
    dtype: Any = "float32",
    machine: MachineLike | None = None,
) -> Program:
    """Cut the work of operations by grids, derive the types of their arrays, and move arrays between different types.

    Operations are joined by the names of their arrays: one reads results of an earlier one. Arrays that none
    writes are the inputs; they begin as their first reader needs them. The axes of the devices are called `r0`,
    `r1`, ... after the grid that takes most devices. For the other grids they are chosen, for all operations together.
    Where there are at most 4,096 ways to choose them, no other way receives fewer bytes in all. Larger programs are
    searched in part: they receive no more than if every operation in turn were bound nearest to its arrays.

    A JAX function is traced, and cut by the annotations inside it, `rd.cut`, and what follows from them: the program is
    that of `rd.distribute` without a schedule.

    A grid need not divide a range, and may have more parts than the range has points. The first devices then have
    `ceil(n / p)` points each, and the last ones have fewer, or none. Tiles are of one size, so that of such an array
    the last ones end in padding, `[4{r0}7+1]`: no operation works on it, and inputs and outputs are without it.

    Args:
        nests: the operations, in order; see `rd.nest`. Or a JAX function, with `args`.
        grids: for every operation the number of parts of each iteration dimension, in order or by name. For a function
            the mesh whose axes its annotations name, as `rd.distribute` takes it; no devices are needed.
        args: of the function, as arrays or as `jax.ShapeDtypeStruct`; all other options but `machine` are for nests.
        groups: operations that are fused, by the name of the kernel they become: nothing may move inside.
        ranks: devices of the machine; else as many as the largest grid takes. A grid that takes fewer has its work
            repeated on the others where it divides them, and else leaves them idle.
        inputs: types of inputs that begin in another type, by array, over the axes named above.
        outputs: arrays to end with; else those that nothing reads. A mapping gives types as well; None leaves an array
            as it was made, its summands reduced.
        root: whether inputs begin and outputs end whole on device 0.
        dtype: element type of all arrays, a name or anything with one; or a mapping from arrays to theirs, float32 for
            missing ones.
        machine: the machine of moves, see `rd.synthesize`; by default `"exact"`, and for a function the preset of the
            platform.

    Returns:
        A checked program. A `Move` stands where producer and consumer differ, and nowhere else.

    Raises:
        DtypeError: for the name of no element type.
        CutError: a grid is missing, of another rank, or takes more devices than there are; or it does not divide a
            range that is read in windows, that is no major factor of an array dimension, or whose result every
            part writes.
        ProgramError: if a function comes without arguments, or with options of nests.
        CutInnerFactorError, NoCombinerError, InconsistentGroupError: see docs/programs.md.

    >>> from redistrib.programs.ir.spec import nest
    >>> program = partition(nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"i": 4}})
    >>> [f"{value.name}: {value.type}" for value in program.inputs], len(program.moves)
    (['a: [2{r0}8, 8]', 'b: [8, 8]'], 0)
    """
    if callable(nests) and not isinstance(nests, Nest):
        ignored = {"groups": groups, "ranks": ranks, "inputs": inputs, "outputs": outputs, "root": root}
        extra = [name for name, option in ignored.items() if option] + (["dtype"] if dtype != "float32" else [])
        if args is None or extra:
            why = (
                "needs args=, its arguments or their shapes" if args is None else f"takes no {extra[0]}=; leave it out"
            )
            raise ProgramError("", "", "Arguments", f"{shown(nests)} is a function: it {why}")
        return _of_function(nests, args, grids, machine)
    if args is not None:
        raise ProgramError("", "", "Arguments", "args= are those of a function; nests have none, so leave it out")
    operations: Sequence[Nest] = (nests,) if isinstance(nests, Nest) else tuple(nests)
    begins = {array: DistType.of(form) for array, form in (inputs or {}).items()}
    forms = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    ends = {array: None if form is None else DistType.of(form) for array, form in forms.items()}
    operations, grids = in_blocks(operations, grids, groups or {})
    operations, padding = padded(operations, grids)
    by_array = isinstance(dtype, Mapping)
    kinds = {array: _element_type(kind) for array, kind in dtype.items()} if by_array else _element_type(dtype)
    options = PartitionOptions(ranks, begins, ends, root, kinds, cost_model(machine or "exact"), padding)
    return partitioned(operations, grids, groups or {}, options)


def _element_type(dtype: Any) -> str:
    name = dtype_name(dtype)
    itemsize_of(name)  # refuses what is none
    return name


def _of_function(function: Callable[..., Any], args: Sequence[Any], mesh: Any, machine: MachineLike | None) -> Program:
    """The program of a function that is cut by its annotations alone."""
    need("jax")
    from redistrib.backends.jax.platforms import Platform
    from redistrib.programs.rules.traced import TraceOptions
    from redistrib.programs.run.devices import meshes
    from redistrib.programs.run.entry import distributed
    from redistrib.programs.run.options import ProgramOptions
    from redistrib.programs.run.prepared import prepare

    jax_mesh, axes = meshes(mesh)
    options = ProgramOptions(machine, TraceOptions(opens_loops=True, platform=Platform.of(jax_mesh).name))
    prepared = prepare(function, args, axes, None, None, options.tracing)
    return distributed(prepared, jax_mesh, axes, (), options).program
