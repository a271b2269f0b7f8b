"""Names that the user's source gives to arrays of a compiled module."""

from __future__ import annotations

import ast
import linecache

from redistrib.explain.profiling.hlo import Instruction
from redistrib.programs.run.annotations import Lines, label


def name_of(instruction: Instruction, lines: Lines) -> str:
    """The argument or the variable that holds the result of an instruction; empty where the source does not tell.

    A variable is known where the instruction's line assigns to it alone.
    """
    if instruction.opcode == "parameter":
        return label(instruction)
    return assigned(lines.of(instruction))


def assigned(source: str) -> str:
    """The variable to which a line, `file:line`, assigns; empty where it assigns to none, or to several.

    >>> assigned("no such file:3")
    ''
    """
    file, _, number = source.rpartition(":")
    try:
        (statement,) = ast.parse(linecache.getline(file, int(number)).strip()).body
    except (SyntaxError, ValueError):  # a statement of several lines, or no line
        return ""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
