"""What a loop is, and what the operations at its edge do.

In a graph the body of a loop stands in the list of operations once, between operations that lead into it and out of
it. These compute nothing, and each is an identity of its operand:

=======  =======================================================================================================
edge     its operand and its result
=======  =======================================================================================================
`CARRY`  the value before the loop, and the one at the end of a step; makes the value at the start of a step
`ENTRY`  an array with one entry for each step along dimension 0; makes the entry of a step
`TEST`   the condition of a `while`, before each step
`STACK`  a value of a step; makes an array of those of all steps along dimension 0
`LEAVE`  the value at the start of a step; makes the value after the last step
=======  =======================================================================================================

A value from before a loop that an operation of the body reads is there at every step.

Whoever makes a loop names these. All others ask an edge what it does, and a loop what it carries, enters and stacks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Edge:
    """What an operation does at the edge of a loop.

    Attributes:
        kind: its name; empty for an operation that stands at none.
        computes: whether it stands at none, so that it has work of its own.
        begins: whether each step begins with its result.
        leaves: whether its result is one of the loop.
        carries: whether it hands a value from each step to the next.
        slices: whether it takes from an array the entry of a step.
        tests: whether another step follows only if its operand is true.
        stacks: whether it makes an array of the values of all steps.
        renames: whether its result is its operand, of the same type and in the same memory.
        reads: how many operands, the first, are read where it stands; None for all. The others are there later.
    """

    kind: str
    computes: bool = False
    begins: bool = False
    leaves: bool = False
    carries: bool = False
    slices: bool = False
    tests: bool = False
    stacks: bool = False
    renames: bool = False
    reads: int | None = None


INNER = Edge("", computes=True)
CARRY = Edge("carry", begins=True, carries=True, reads=1)
ENTRY = Edge("entry", begins=True, slices=True)
TEST = Edge("test", tests=True)
STACK = Edge("stack", leaves=True, stacks=True)
LEAVE = Edge("leave", leaves=True, renames=True, reads=0)
