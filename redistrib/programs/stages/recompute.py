"""Rematerialisation: results of the forward pass are computed again for the backward pass (Chen et al., 2016)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from redistrib.errors import ProgramError
from redistrib.programs.ir.check import check
from redistrib.programs.ir.program import Compute, Program
from redistrib.programs.ir.value import fresh
from redistrib.programs.stages.examples import batch_of
from redistrib.programs.stages.roles import BatchedProgram
from redistrib.programs.stages.stages import forward_of


def recomputed(program: Program, batch: Mapping[str, int], kept: Collection[str]) -> Program:
    """The program with most results of the forward pass dropped and rematerialised.

    Args:
        program: a training step on one device.
        batch: of every input with examples the dimension that runs over them.
        kept: names of the values to keep; every other value that the backward pass reads is computed again, once.

    Raises:
        ProgramError: if a value to keep is no result of the forward pass, or as `redistrib.ir.spread` does.

    >>> from redistrib import ir
    >>> from redistrib.programs.stages.models import mlp
    >>> step = mlp(4, 256, 1024)  # 4 layers of 256 features, 1024 examples
    >>> activations = [op.outs[0][1].name for op in step.ops if op.name == "relu"]
    >>> ir.peak_bytes(step), ir.peak_bytes(recomputed(step, {"x": 0, "y": 0}, activations[1::2]))
    ({0: 6291456}, {0: 4718592})
    """
    seen = batch_of(program, batch)
    forward = forward_of(seen)
    makers = {name: seen.makers[name] for k in forward for name in _results(seen, k)}
    for name in kept:
        if name not in makers:
            raise ProgramError("", name, "Recompute", "nothing that goes forward makes this value")
    result = _Rematerialised(seen, makers, {*kept})
    last = max(forward, default=-1)
    for k, step in enumerate(seen.steps):
        result.add(k, first=k <= last or step.kind != "batched")
    return check(Program(seen.inputs, tuple(result.ops), seen.outputs, program.name))


def _results(batch: BatchedProgram, number: int) -> list[str]:
    return [value.name for _, value in batch.steps[number].op.outs]


class _Rematerialised:
    def __init__(self, batch: BatchedProgram, makers: Mapping[str, int], kept: set[str]) -> None:
        self.batch, self.makers, self.kept = batch, makers, kept
        self.ops: list[Compute] = []
        self.now: dict[str, str] = {}
        self.taken = {*batch.values}

    def add(self, number: int, *, first: bool) -> None:
        """Add an operation, after the operations that rematerialise its operands."""
        op = self.batch.steps[number].op
        if not first:
            op = replace(op, ins=tuple((array, self._rematerialised(name)) for array, name in op.ins))
        self.ops.append(op)

    def _rematerialised(self, name: str) -> str:
        if name in self.kept or name not in self.makers:
            return name
        if name not in self.now:
            op = self.batch.steps[self.makers[name]].op
            ins = tuple((array, self._rematerialised(read)) for array, read in op.ins)
            outs = tuple((array, replace(value, name=self._new(value.name))) for array, value in op.outs)
            self.ops.append(replace(op, ins=ins, outs=outs))
        return self.now[name]

    def _new(self, name: str) -> str:
        self.now[name] = fresh(f"{name}.again", self.taken)
        return self.now[name]
