"""A program as users hold it: its data, and the table that it prints as."""

from __future__ import annotations

from redistrib.programs import table
from redistrib.programs.data import Call as Call
from redistrib.programs.data import Compute as Compute
from redistrib.programs.data import Loop as Loop
from redistrib.programs.data import Move as Move
from redistrib.programs.data import Op as Op
from redistrib.programs.data import ProgramData
from redistrib.programs.data import called_by as called_by
from redistrib.programs.data import is_effectful as is_effectful
from redistrib.programs.data import made_by as made_by
from redistrib.programs.data import used_by as used_by
from redistrib.programs.value import Place as Place
from redistrib.programs.value import Value as Value
from redistrib.programs.value import pulled as pulled
from redistrib.report import ShownInNotebooks


class Program(ProgramData, ShownInNotebooks):
    """Operations over devices, in order; `ProgramData` lists its fields and figures."""

    def __str__(self) -> str:
        """A table of the operations, in plain text; see `redistrib.programs.table`."""
        return table.render(self)
