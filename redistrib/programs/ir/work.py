"""Classes of work: operations that a device may do at another rate than large products."""

from __future__ import annotations

from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.record import Record, WorkClass

UNITS: dict[str, str] = {
    WorkClass.CONVOLUTION: "FLOP",
    WorkClass.FUNCTION: "FLOP",
    WorkClass.INDEX: " elements",
    WorkClass.RUNNING: " elements",
    WorkClass.SORT: " comparisons",
    WorkClass.FOURIER: "FLOP",
    WorkClass.TRANSPOSE: "B",
}
"""What rates of each class count per second; bytes are those read and written."""
CLASSES = tuple(map(str, UNITS))
"""The names of the classes."""


def work_of(record: Record, nest: Nest) -> WorkClass:
    """The class of an operation. A transposition has one if it moves the last dimension."""
    turned = record.work is not WorkClass.TRANSPOSE or nest.reads[0].dims[-1:] != nest.writes[0].dims[-1:]
    return record.work if turned else WorkClass.NONE


def turns(nest: Nest) -> bool:
    """Whether a product of matrices transposes its first operand: it is summed, but not along its last dimension.

    >>> from redistrib.programs.ir.spec import nest
    >>> turns(nest("ij,jk->ik", (2, 3, 4))), turns(nest("ji,jk->ik", (3, 2, 4)))
    (False, True)
    """
    dims = [dim[0] for dim in nest.reads[0].dims if dim and nest.size(dim[0]) > 1]
    summed = [dim in nest.combiner for dim in dims]
    return any(summed) and not summed[-1]


def is_by_vector(nest: Nest) -> bool:
    """Whether a product of two arrays is one of a matrix and a vector, or of two vectors.

    >>> from redistrib.programs.ir.spec import nest
    >>> is_by_vector(nest("ji,j->i", (3, 2))), is_by_vector(nest("ij,jk->ik", (2, 3, 4)))
    (True, False)
    """
    first, second = ({name for name in access.names if nest.size(name) > 1} for access in nest.reads)
    batch = (first & second).difference(nest.combiner)
    return not batch and (first <= second or second <= first)
