"""Layouts, and programs spread by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from redistrib.arith import as_integer
from redistrib.errors import ProgramError
from redistrib.errors.base import shown
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.reference import Tile
from redistrib.programs.schedule.tactics import Tactic
from redistrib.programs.stages.orders import ORDERS, Order, PipelineTask, one_f_one_b
from redistrib.programs.stages.roles import BatchedProgram


@dataclass(frozen=True)
class Layout:
    """A way to spread a program over `data * tensor * pipeline` devices.

    Device `(p * data + d) * tensor + t` is in pipeline position `p`, replica `d`, tensor part `t`.

    Attributes:
        data: replicas, each with its part of every microbatch.
        tensor: parts that the work of a layer is cut into.
        pipeline: groups of devices that the stages are assigned to.
        microbatches: parts of the batch, one after the other.
        chunks: stages on each group of devices, more than one for the interleaved order.
        order: of the tasks of a group, a function or its name: `"1f1b"`, `"gpipe"`, `"interleaved"`, or one that was
            registered; see `redistrib.programs.stages.orders`. The attribute is the function.
        zero: 0, every replica has all state; 1, the update and the state of the optimizer are cut over the replicas;
            2, the sums of gradients as well; 3, the parameters as well (Rajbhandari et al., 2020).
        starts: the value whose operation begins each stage but the first; by default stages of equal work.
        tensor_dims: dimensions of inputs that tensor parts cut, None for none; by default derived from the accesses. In
            `rd.pipeline` tactics as well, along the axis `t`, which cut arguments.

    Raises:
        ProgramError: if a number is not an integer from 1 on, or `zero` not one from 0 to 3.
        ChoiceError: if no order has the name.

    >>> layout = Layout(data=2, tensor=2, pipeline=2, microbatches=4)
    >>> layout.devices
    8
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 1
    chunks: int = 1
    order: Order | str = one_f_one_b
    zero: int = 0
    starts: tuple[str, ...] = ()
    tensor_dims: Mapping[str, int | None] | Tactic | Sequence[Tactic] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "microbatches", "chunks"):
            number = as_integer(getattr(self, name))
            if number is None or number < 1:
                raise ProgramError(
                    "", "", "Layout", f"{name} is {getattr(self, name)!r}; give an integer from 1 on, 1 for none"
                )
        if as_integer(self.zero) not in range(4):
            raise ProgramError("", "", "Layout", f"zero is {self.zero!r}; give 0, 1, 2 or 3")
        object.__setattr__(self, "starts", tuple(self.starts))
        object.__setattr__(self, "order", ORDERS.of(self.order))

    @property
    def devices(self) -> int:
        """Devices that it takes."""
        return self.data * self.tensor * self.pipeline

    @property
    def rows(self) -> list[list[PipelineTask]]:
        """For every group of devices its tasks, in order.

        Raises:
            ProgramError: if the order gives anything else than tasks.
        """
        order = ORDERS.of(self.order)
        rows = [list(row) for row in order(self.pipeline, self.microbatches, self.chunks)]
        for task in (task for row in rows for task in row if not isinstance(task, PipelineTask)):
            raise ProgramError(
                "", "", "Order", f"order {ORDERS.name_of(order)!r} has {shown(task)} among its tasks; give for every "
                f"group of devices a list of ir.PipelineTask",
            )  # fmt: skip
        return rows

    @property
    def input_dims(self) -> Mapping[str, int | None]:
        """The dimensions of inputs that tensor parts cut.

        Raises:
            ProgramError: if tactics say it, which are of a function and not of a program.
        """
        if not isinstance(self.tensor_dims, Mapping):
            why = f"tensor_dims is {shown(self.tensor_dims)}; tactics are for functions, so give {{input: dimension}}"
            raise ProgramError("", "", "Layout", why)
        return self.tensor_dims

    def __str__(self) -> str:
        """Data replicas, tensor parts, pipeline stages and microbatches, and the order where it is another one."""
        return f"{self.data}/{self.tensor}/{self.pipeline}/{self.microbatches}{self._order_behind}"

    @property
    def in_words(self) -> str:
        """The numbers that are not 1, by their names, and the order where it is another one."""
        names = ("data", "tensor", "pipeline", "microbatches")
        numbers = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) != 1]
        return f"{', '.join(numbers) or 'one device'}{self._order_behind}"

    @property
    def _order_behind(self) -> str:
        return "" if self.order is one_f_one_b else f" {ORDERS.name_of(ORDERS.of(self.order))}"


@dataclass(frozen=True)
class Spread:
    """A program spread over devices, and conversions of the original program's arrays to its arrays and back.

    Attributes:
        program: over the devices. Inputs with examples come microbatch by microbatch: `x.0`, `x.1`, ...; so do outputs.
        batch: the original program.
        layout: how it is spread.
    """

    program: Program
    batch: BatchedProgram = field(repr=False)
    layout: Layout

    def arguments(self, arrays: Sequence[npt.ArrayLike]) -> list[Tile]:
        """The arrays for the inputs of `program` from arrays for the inputs of the original program."""
        parts: list[Tile] = []
        for value, array in zip(self.batch.inputs, arrays, strict=True):
            role, whole = self.batch.roles[value.name], np.asarray(array)
            split = role.kind == "batched" and self.layout.microbatches > 1
            parts += np.split(whole, self.layout.microbatches, role.dim) if split else [whole]
        return parts

    def results(self, arrays: Sequence[npt.ArrayLike]) -> list[Tile]:
        """The outputs of the original program from the outputs of `program`."""
        left, whole = [np.asarray(array) for array in arrays], []
        for name in self.batch.outputs:
            role = self.batch.roles[name]
            count = self.layout.microbatches if role.kind == "batched" else 1
            whole.append(left[0] if count == 1 else np.concatenate(left[:count], role.dim))
            left = left[count:]
        return whole
