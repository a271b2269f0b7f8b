"""What a function is traced to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from redistrib.backends.jax.host_values import digest_of_host_value, is_of_host
from redistrib.digests import digest_of_parts
from redistrib.errors import ProgramError
from redistrib.programs.ir.graph import Graph
from redistrib.programs.rules.axes import MeshAxes
from redistrib.programs.rules.equation import Rule
from redistrib.programs.rules.identity import text_of

_SET = re.compile(r"frozenset\(\{(.*?)\}\)")
UNROLLED = 128  # steps of the longest scan that is unrolled: the layers of deep models


@dataclass(frozen=True)
class TraceOptions:
    """How a function is traced.

    Attributes:
        rules: of primitives, which override the library's.
        exact: whether no partial sum may pass an operation.
        opens_loops: whether loops become loops of the graph; else each is one operation, or is unrolled if it is short.
        platform: of the devices, as JAX calls it; by default JAX's default.
        trip_count: the number of steps that a `while` counts as.
        unrolled_up_to: steps of the longest scan that is unrolled where loops do not become loops of the graph.
        parts: devices that reductions and cumulative operations may be cut over, see `in_parts`.
        divided: numbers among `Traced.divisible` of those that are made so that they can be cut.
        axes: the mesh axes that the function may name; by default none.

    Raises:
        ProgramError: if `exact` is neither true nor false, or `trip_count` is no integer from 0 on.
    """

    rules: Mapping[str, Rule] = field(default_factory=dict)
    exact: bool = False
    opens_loops: bool = False
    platform: str = ""
    trip_count: int = 1
    unrolled_up_to: int = UNROLLED
    parts: int = 1
    divided: frozenset[int] = frozenset()
    axes: MeshAxes = field(default_factory=MeshAxes)

    def __post_init__(self) -> None:
        if not isinstance(self.exact, bool):
            raise ProgramError("", "", "Arguments", f"exact is {self.exact!r}; give True or False")
        count: Any = self.trip_count
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            why = f"trip_count is {count!r}; give the steps of a while, an integer"
            raise ProgramError("", "", "Arguments", why)


@dataclass
class Traced:
    """A function as a graph.

    Attributes:
        graph: the operations; its inputs are the leaves of the arguments, then the constants.
        constants: arrays that the function closes over.
        in_keys, out_keys: the implementation of random keys among inputs and outputs, by number.
        out_tree: structure of the results.
        outputs: shapes and element types of the results, as the function returns them.
        divisible: operations that `in_parts` can make of others, by name; empty for those that it has made.
        unstacked: arrays of which scans that are unrolled read an entry in each step.
        host_results: numbers of the results that the function puts in pinned memory of the host.
        unrolled: for scans that are unrolled, though the function does not say so, their lines, `file:line`, and steps.
        jaxpr: the equations.
        wide: whether JAX had elements of 64 bits then.
    """

    graph: Graph
    constants: tuple[Any, ...]
    in_keys: Mapping[int, Any]
    out_keys: Mapping[int, Any]
    out_tree: Any
    outputs: tuple[Any, ...]
    divisible: tuple[str, ...] = ()
    unstacked: frozenset[str] = frozenset()
    unrolled: tuple[tuple[str, int], ...] = ()
    host_results: tuple[int, ...] = ()
    jaxpr: Any = None
    wide: bool = field(default_factory=lambda: _is_wide())

    @cached_property
    def digest(self) -> str:
        """Of the equations with their numbers and of captured values, equal in processes that trace one function."""
        # The order of a set is the process's.
        text = _SET.sub(lambda members: ", ".join(sorted(members[1].split(", "))), text_of(self.jaxpr))
        return digest_of_parts([text, *map(digest_of_host_value, filter(is_of_host, self.constants))])

    def mode(self) -> AbstractContextManager[Any]:
        """A context in which operations have the element types that they were traced with, whatever is set now."""
        return nullcontext() if _is_wide() == self.wide else jax.enable_x64(self.wide)


def _is_wide() -> bool:
    """Whether JAX has elements of 64 bits now."""
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)
