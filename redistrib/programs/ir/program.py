"""A program as users hold it: its data, and the table that it prints as."""

from __future__ import annotations

from redistrib.programs.ir import table
from redistrib.programs.ir.data import Call as Call
from redistrib.programs.ir.data import Compute as Compute
from redistrib.programs.ir.data import Loop as Loop
from redistrib.programs.ir.data import Move as Move
from redistrib.programs.ir.data import Op as Op
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.data import called_by as called_by
from redistrib.programs.ir.data import is_effectful as is_effectful
from redistrib.programs.ir.data import made_by as made_by
from redistrib.programs.ir.data import used_by as used_by
from redistrib.programs.ir.value import Place as Place
from redistrib.programs.ir.value import Value as Value
from redistrib.programs.ir.value import pulled as pulled
from redistrib.report import ShownInNotebooks


class Program(ProgramData, ShownInNotebooks):
    """Operations over devices, in order; `ProgramData` lists its fields and figures.

    >>> import redistrib as rd
    >>> program = rd.partition(rd.nest("ij,jk->ik", (4, 6, 4), name="product"), {"product": (2, 1, 1)})
    >>> [op.name for op in program.ops], program.received_bytes
    (['product'], 0)
    """

    def _text(self) -> str:
        """A table of the operations, in plain text; see `redistrib.programs.ir.table`."""
        return table.render(self)
