"""Loops whose steps are cut as the operations around them are, so that devices exchange inside a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.plans.dtypes import dtype_of
from redistrib.programs.ir.graph import Array, CountedStep, Graph
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Compute, Program
from redistrib.programs.lower.emit import emit
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.stages.roles import BatchedLoop, BatchedProgram, Role, as_carried

_MIXED = "they carry sums over examples in the place of examples; carry the two apart"
_OTHERS = "they carry other examples than the steps before"


class EarlierValues(Protocol):
    """What is known of the values before an operation.

    Attributes:
        roles: of every value.
        makers: for every result the operation that makes it.
    """

    roles: dict[str, Role]
    makers: dict[str, Compute]

    def made_of_rows(self, name: str, dim: int) -> str | None: ...


def is_indexed(batch: BatchedProgram, number: int) -> bool:
    """Whether an operation is told which examples a microbatch has."""
    step = batch.steps[number]
    if isinstance(step.loop, BatchedLoop):
        return any(is_indexed(step.loop.batch, inner) for inner in range(len(step.loop.batch.steps)))
    return step.batch in step.nest.indexed


def require_loops(batch: BatchedProgram) -> None:
    """Require that the steps of all loops on examples can be cut.

    Raises:
        ProgramError: if those of one cannot: they read sums over examples, say.
    """
    for step in batch.steps:
        if isinstance(step.loop, ProgramError):
            raise step.loop
        if step.loop is not None:
            require_loops(step.loop.batch)


def filled(array: Array, value: Any, parts: Mapping[str, int] = MappingProxyType({})) -> Nest:
    """The operation that makes an array whose elements are all one number.

    Args:
        array: the array.
        value: the number; 0 where there are parts.
        parts: further iteration dimensions, with their points: the array is a sum along them.
    """
    dims = {f"d{k}": size for k, size in enumerate(array.shape)}
    number = np.asarray(value, dtype_of(array.dtype))
    write = Access("out", tuple((name,) for name in dims))
    sizes = tuple((name, range(size)) for name, size in (*dims.items(), *parts.items()))
    combine = tuple((name, "sum") for name in parts)
    fills = None if np.any(number) else "sum"
    return Nest(
        array.name,
        sizes,
        (),
        (write,),
        combine,
        body=lambda at: np.full(tuple(len(at[name]) for name in dims), number),
        fills=fills,
        flops=0,
    )


def loop_on_examples(
    op: Compute, step: CountedStep, earlier: EarlierValues, batch_of: Callable[..., BatchedProgram]
) -> tuple[BatchedLoop, dict[str, int]]:
    """A counted loop on examples, and for every operand with examples the dimension that runs over them.

    Args:
        op: the loop.
        step: one step of it.
        earlier: the values before it.
        batch_of: finds the roles of a program's values.

    Raises:
        ProgramError: if its steps read complete sums beside examples, carry other examples than the steps before, or
            read rows of an input that has no examples.
    """
    names, operands = [array.name for array in step.graph.inputs], dict(op.ins)
    examples: dict[str, int] = {}
    finals = set[str]()
    for k, name in enumerate(names):
        role = earlier.roles[operands[name]] if name in operands else Role("constant")
        if role.kind in ("summed", "final"):
            finals.add(name)
        elif role.kind in ("batched", "rows"):
            examples[name] = role.dim - step.form.is_stacked(k)
            if examples[name] < 0:
                raise _refused(op, "they run over the examples")
    zeros = {
        name for k, name in enumerate(names) if _is_zero(step.numbers.get(k), operands.get(name), earlier)
    }  # a sum begins with these; what begins with another number is added up once, from complete sums
    try:
        batch, examples = _carried(op, step, examples, finals, zeros, batch_of)
    except ProgramError as error:
        raise error if error.operation == op.name else _refused(op, f"in a step, {error}") from None
    outside = {name: dim + step.form.is_stacked(names.index(name)) for name, dim in examples.items()}
    for name, dim in outside.items():
        is_constant = name not in operands or earlier.roles[operands[name]].kind == "constant"
        if is_constant and (name not in operands or earlier.made_of_rows(operands[name], dim) is None):
            raise _refused(op, "they carry examples, and begin with a value that has none")
    numbers = {names[k]: number for k, number in step.numbers.items()}
    return BatchedLoop(batch, step.form, numbers), outside


def _carried(
    op: Compute,
    step: CountedStep,
    examples: dict[str, int],
    finals: set[str],
    zeros: set[str],
    batch_of: Callable[..., BatchedProgram],
) -> tuple[BatchedProgram, dict[str, int]]:
    """The step seen from its batch, its carried values with the roles that they end with; its inputs with examples."""
    program, sums = _program(step.graph), set[str]()
    while True:
        unnamed: dict[str, int] = {}
        try:
            batch = _with_rows(batch_of(program, examples, passes_sums=True, sums=sums, finals=finals, unnamed=unnamed))
        except ProgramError:
            if not unnamed or unnamed.keys() <= examples.keys():
                raise
            examples = unnamed | examples
            continue
        changed = False
        begins, ends = step.form.operands(batch.inputs)[1], step.form.results(batch.outputs)[0]
        for begin, end in zip(begins, ends, strict=True):
            before, after = batch.roles[begin.name], as_carried(batch.roles[end])
            if before == after or (before.kind == "final" and after.kind != "batched"):
                continue
            changed = True
            if before.kind == "constant" and after.kind == "batched":
                examples = examples | {begin.name: after.dim}
            elif before.kind == "constant" and after.kind == "summed" and begin.name in zeros:
                sums.add(begin.name)
            elif before.kind in ("constant", "summed") and after.kind in ("summed", "final"):
                sums.discard(begin.name)
                finals.add(begin.name)
            else:
                raise _refused(op, _MIXED if "final" in (before.kind, after.kind) else _OTHERS)
        if not changed:
            return batch, examples


def _with_rows(batch: BatchedProgram) -> BatchedProgram:
    """The step with rows in the place of constants that it hands on and that have rows."""
    rows: dict[str, str | None] = {}
    for (name, _), row in batch.rows.items():
        rows[name] = None if name in rows else row
    return replace(batch, outputs=tuple(rows.get(name) or name for name in batch.outputs))


def _is_zero(number: Any, name: str | None, earlier: EarlierValues) -> bool:
    """Whether an operand, a number or a value, is zero."""
    if name is None:
        return not np.any(number)
    return name in earlier.makers and earlier.makers[name].parts[0].nest.fills == "sum"


def _refused(op: Compute, why: str) -> ProgramError:
    error = ProgramError(op.name, "", "Batch", f"its steps cannot work on parts of the examples: {why}")
    return error.at(op.source)


def _program(graph: Graph) -> Program:
    """A graph as a program of one device."""
    return emit(Propagation(graph.unpinned(), Mesh(())), MovePlanner("exact"), "step")
