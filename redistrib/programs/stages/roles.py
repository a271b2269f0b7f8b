"""Roles of values: with a dimension of examples, sums over the examples, or neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from redistrib.errors import ProgramError
from redistrib.programs.ir.loops import LoopForm
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Value

RoleKind: TypeAlias = Literal["constant", "rows", "batched", "summed", "final"]


class Role(NamedTuple):
    """The relation of a value to the batch.

    Attributes:
        kind: `"constant"`, the same for every batch; `"rows"`, a constant with a row for every example;
            `"batched"`, with a dimension of examples; `"summed"`, a sum over examples; `"final"`, computed from
            complete sums.
        dim: the dimension of examples, for `"batched"` and `"rows"`.
    """

    kind: RoleKind
    dim: int = 0


def as_carried(role: Role) -> Role:
    """The role with which a value leaves a step: rows are examples outside."""
    return Role("batched", role.dim) if role.kind == "rows" else role


class BatchStep(NamedTuple):
    """An operation of the program.

    Attributes:
        op: the operation; moves are left out, so that it reads the value before each move.
        batch: the iteration dimension that runs over the examples; empty if there is none.
        kind: of its results; `"batched"` stands for sums as well, `"constant"` for rows.
        linear: the group of linear reads, by number, that are sums over examples and stay so; None where there is none.
        loop: of a counted loop its step, or the error that says why its steps cannot be cut apart.
    """

    op: Compute
    batch: str
    kind: RoleKind
    linear: int | None = None
    loop: BatchedLoop | ProgramError | None = None

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
        return self.nest.work


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
        rows: for constants of which there are rows, with the dimension of the examples, the name of the rows.
    """

    inputs: tuple[Value, ...]
    steps: tuple[BatchStep, ...]
    roles: dict[str, Role]
    outputs: tuple[str, ...]
    size: int
    values: dict[str, Value]
    rows: Mapping[tuple[str, int], str] = field(default_factory=dict)

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

    @cached_property
    def updates(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The results of operations on complete sums, each with the operands of the operation.

        For a result of a loop those are the loop's operands that the last operation of its step reads.
        """
        updates = []
        for step, names in zip(self.steps, self.sources, strict=True):
            if step.kind == "final" and isinstance(step.loop, BatchedLoop):
                updates += [*step.loop.updates(step.op)]
            elif step.kind == "final":
                updates += [(value.name, names) for _, value in step.op.outs]
        return tuple(updates)


@dataclass(frozen=True)
class BatchedLoop:
    """A counted loop on examples, or on complete sums over them.

    Attributes:
        batch: one step, seen from its batch; its inputs stand for the loop's operands, its outputs for the results.
        form: of the loop.
        numbers: inputs that are single numbers, by name.
    """

    batch: BatchedProgram
    form: LoopForm
    numbers: Mapping[str, Any]

    def updates(self, op: Compute) -> Iterator[tuple[str, tuple[str, ...]]]:
        """For each result of the loop, an operation, the operands of it that the last operation of a step reads."""
        results, ins = dict(op.outs), dict(op.ins)
        for access, output in zip(op.parts[0].nest.writes, self.batch.outputs, strict=True):
            maker = self.batch.makers.get(output)
            names = () if maker is None else self.batch.sources[maker]
            yield results[access.array].name, tuple(ins[name] for name in names if name in ins)
