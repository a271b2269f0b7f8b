"""Roles of values: with a dimension of examples, sums over the examples, or neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from redistrib.errors import ProgramError
from redistrib.programs.inline import inlined
from redistrib.programs.nest import Nest
from redistrib.programs.program import Compute, Move, Program, Value

Kind: TypeAlias = Literal["constant", "rows", "batched", "summed", "final"]


class Role(NamedTuple):
    """The relation of a value to the batch.

    Attributes:
        kind: `"constant"`, the same for every batch; `"rows"`, a constant with a row for every example;
            `"batched"`, with a dimension of examples; `"summed"`, a sum over examples; `"final"`, computed from
            complete sums.
        dim: the dimension of examples, for `"batched"` and `"rows"`.
    """

    kind: Kind
    dim: int = 0


class BatchStep(NamedTuple):
    """An operation of the program.

    Attributes:
        op: the operation; moves are left out, so that it reads the value before each move.
        batch: the iteration dimension that runs over the examples; empty if there is none.
        kind: of its results; `"batched"` stands for sums as well, `"constant"` for rows.
    """

    op: Compute
    batch: str
    kind: Kind

    @property
    def nest(self) -> Nest:
        """The nest of the operation."""
        return self.op.parts[0].nest

    @property
    def reads(self) -> dict[str, str]:
        """For each array the value that it reads."""
        return dict(self.op.ins)

    @property
    def flops(self) -> int:
        """Floating-point operations on the whole batch."""
        return self.nest.points * self.nest.flops


@dataclass(frozen=True)
class BatchedProgram:
    """A program whose values have roles.

    Attributes:
        inputs: of the program.
        steps: the operations in order, without moves.
        roles: of every value, by its name.
        outputs: names of the outputs.
        size: the number of examples.
        values: every value by its name.
    """

    inputs: tuple[Value, ...]
    steps: tuple[BatchStep, ...]
    roles: dict[str, Role]
    outputs: tuple[str, ...]
    size: int
    values: dict[str, Value]

    @cached_property
    def makers(self) -> dict[str, int]:
        """For every result of an operation the number of the operation."""
        return {value.name: k for k, step in enumerate(self.steps) for _, value in step.op.outs}

    @cached_property
    def sources(self) -> tuple[tuple[str, ...], ...]:
        """For every operation its operands; a constant is replaced by the inputs that it is computed from.

        Constants are computed where they are read.
        """
        sources: list[tuple[str, ...]] = []
        for step in self.steps:
            names: dict[str, None] = {}
            for name in step.reads.values():
                maker = self.makers.get(name)
                is_constant = maker is not None and self.steps[maker].kind == "constant"
                names |= dict.fromkeys(sources[maker] if maker is not None and is_constant else (name,))
            sources.append(tuple(names))
        return tuple(sources)


def batch_of(program: Program, batch: Mapping[str, int]) -> BatchedProgram:
    """The roles of a program's values.

    Args:
        program: a program; its cuts and moves are ignored.
        batch: for every input with examples the dimension that runs over them.

    Raises:
        ProgramError: if examples are combined except by a sum at the end, or an input has no such dimension.
    """
    flat = inlined(program)
    roles: dict[str, Role] = {}
    for value in flat.inputs:
        roles[value.name] = Role("batched", batch[value.name]) if value.name in batch else Role("constant")
    size = _size(flat, batch)
    called: dict[str, str] = {}
    rows = _Steps(roles, dict(flat.values))
    for op in flat.ops:
        match op:
            case Move():
                called[op.out.name] = called.get(op.value, op.value)
            case Compute():
                ins = tuple((array, called.get(name, name)) for array, name in op.ins)
                rows.add(replace(op, ins=ins))
    outputs = tuple(called.get(name, name) for name in flat.outputs)
    return BatchedProgram(flat.inputs, tuple(rows.steps), roles, outputs, size, rows.values)


def _size(program: Program, batch: Mapping[str, int]) -> int:
    inputs = {value.name: value for value in program.inputs}
    sizes = {}
    for name, dim in batch.items():
        if name not in inputs:
            raise ProgramError("", name, "Batch", f"there is no such input; there are {', '.join(inputs)}")
        shape = inputs[name].type.global_shape
        if not 0 <= dim < len(shape):
            raise ProgramError("", name, "Batch", f"{dim} is no dimension of an array of shape {shape}")
        sizes[name] = shape[dim]
    if not sizes:
        raise ProgramError("", "", "Batch", "no input has examples; name those that do, each with its dimension")
    if len(set(sizes.values())) > 1:
        # a dimension may be made of examples and their elements, as the rows of a flattened array are
        smallest = min(sizes.values())
        odd = next((name for name, size in sizes.items() if size % smallest), None)
        if odd is not None:
            raise ProgramError("", odd, "Batch", f"inputs have {sizes} examples, and the smallest divides not all")
    return min(sizes.values())


@dataclass
class _Steps:
    """The operations so far.

    An operation that reads a constant along the examples, a bias or random bits, reads rows: the operations that
    compute the constant are added a second time, and are cut and run with the examples.

    Attributes:
        roles: of every value.
        values: every value by its name.
    """

    roles: dict[str, Role]
    values: dict[str, Value]
    steps: list[BatchStep] = field(default_factory=list)
    _makers: dict[str, Compute] = field(default_factory=dict)
    _rows: dict[tuple[str, int], str] = field(default_factory=dict)

    def add(self, op: Compute) -> None:
        """Add an operation, after the rows that it reads."""
        over = dict.fromkeys(_examples(op, op.parts[0].nest, self.roles)) if len(op.parts) == 1 else {}
        if len(over) == 1:
            op = self._reading_rows(op, *over) or op
        step = _step(op, self.roles)
        self.steps.append(step)
        self.roles |= dict(_roles_of(step))
        self._makers |= {value.name: op for _, value in op.outs}

    def _reading_rows(self, op: Compute, over: str) -> Compute | None:
        """The operation with rows in the place of constants along an iteration dimension; None if there are none."""
        nest, operands = op.parts[0].nest, dict(op.ins)
        for access in nest.reads:
            dim = next((k for k, names in enumerate(access.dims) if over in names), None)
            if dim is not None and self.roles[operands[access.array]].kind == "constant":
                rows = self._made_of_rows(operands[access.array], dim) if access.dims[dim][0] == over else None
                if rows is None:
                    return None
                operands[access.array] = rows
        return replace(op, ins=tuple(operands.items()))

    def _made_of_rows(self, name: str, dim: int) -> str | None:
        """The name of the rows of a constant along a dimension; None if it has none."""
        op = self._makers.get(name)
        if (name, dim) in self._rows or op is None or len(op.parts) != 1:
            return self._rows.get((name, dim))
        nest, array = op.parts[0].nest, next(array for array, value in op.outs if value.name == name)
        over = next(access for access in nest.writes if access.array == array).dims[dim]
        again = self._reading_rows(op, over[0]) if over and over[0] not in nest.whole else None
        if again is None:
            return None
        new = f"{name}.rows"
        while new in self.values:
            new += "'"
        value = replace(self.values[name], name=new)
        self.values[new], self.roles[new] = value, Role("rows", dim)
        self.steps.append(BatchStep(replace(again, outs=((array, value),)), over[0], "constant"))
        self._rows[name, dim] = new
        return new


def _step(op: Compute, roles: Mapping[str, Role]) -> BatchStep:
    if len(op.parts) != 1:
        raise ProgramError(op.name, "", "Batch", "fused operations are not taken apart; give each nest its own")
    nest, operands = op.parts[0].nest, dict(op.ins)
    if nest.effectful:
        raise ProgramError(
            op.name, "", "Effect", "every microbatch would have the effect of the operation once, in the order of the "
            "stages; leave the operation out, and show a result of the function in its place",
        ).at(op.source)  # fmt: skip
    kinds = {roles[name].kind for name in operands.values()}
    if "batched" not in kinds:
        return BatchStep(op, "", "final" if kinds & {"summed", "final"} else "constant")
    if kinds & {"summed", "final"}:
        raise ProgramError(
            op.name, "", "Batch", "it reads a sum over all examples beside examples, so microbatches would wait for "
            "each other; sum at the end only",
        )  # fmt: skip
    over = dict.fromkeys(_examples(op, nest, roles))
    if len(over) > 1:
        raise ProgramError(op.name, "", "Batch", f"examples run along {', '.join(over)}, so each meets all others")
    (name,) = over
    if name in nest.whole:
        raise ProgramError(op.name, "", "Batch", f"{name!r} runs over the examples and must stay whole")
    for access in nest.reads:
        if name in access.names and roles[operands[access.array]].kind == "constant":
            raise ProgramError(
                op.name, operands[access.array], "Batch", "it has a row for each example, and is not named as an input "
                "with examples",
            )  # fmt: skip
    return BatchStep(op, name, "batched")


def _examples(op: Compute, nest: Nest, roles: Mapping[str, Role]) -> Iterator[str]:
    operands = dict(op.ins)
    for access in nest.reads:
        role = roles[operands[access.array]]
        if role.kind in ("batched", "rows"):
            names = access.dims[role.dim]
            if not names:
                why = (
                    "it reads the examples whole, so that microbatches cannot take them apart; compute it before the "
                    "function, or leave the array out of batch="
                )
                raise ProgramError(op.name, operands[access.array], "Batch", why)
            yield names[0]


def _roles_of(step: BatchStep) -> Iterator[tuple[str, Role]]:
    results = dict(step.op.outs)
    for number, access in enumerate(step.nest.writes):
        if access.array not in results:
            continue
        name = results[access.array].name
        dims = [k for k, names in enumerate(access.dims) if step.batch and step.batch in names]
        if step.kind != "batched":
            yield name, Role(step.kind)
        elif dims and access.dims[dims[0]][0] == step.batch:
            yield name, Role("batched", dims[0])
        elif not dims and step.nest.is_summed(number, step.batch):
            yield name, Role("summed")
        elif number in step.nest.replicated:  # every microbatch makes it, and makes the same
            yield name, Role("constant")
        else:
            raise ProgramError(
                step.op.name, name, "Batch", "examples are combined, and not by a sum, or lie in a minor factor of a "
                "dimension; make them the major one",
            )  # fmt: skip
