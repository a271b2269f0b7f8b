"""Programs as an intermediate representation: built by hand, checked, interpreted, transformed, seen rank by rank.

The functions and classes of `redistrib.programs` and `redistrib.pipelines` that work on programs;
docs/programs.md shows each. The import loads neither JAX nor MPI.
"""

from __future__ import annotations

from redistrib.pipelines.grid import LAYOUTS, grid, register_layouts
from redistrib.pipelines.orders import ORDERS, PipelineTask, gpipe, interleaved, one_f_one_b, register_order
from redistrib.pipelines.recompute import recomputed
from redistrib.pipelines.spreading import spread
from redistrib.programs.abstract import Mixed, Register
from redistrib.programs.allocation import allocate, intervals
from redistrib.programs.builder import Builder
from redistrib.programs.check import check
from redistrib.programs.collectives import recognised
from redistrib.programs.interpret import interpret
from redistrib.programs.live import moments, peak_bytes
from redistrib.programs.nest import Access, Nest
from redistrib.programs.ops import REGISTER
from redistrib.programs.parse import parse
from redistrib.programs.project import project, run_ranks
from redistrib.programs.reductions import reductions
from redistrib.programs.reference import run_by_rank, run_whole
from redistrib.programs.text import to_text
from redistrib.programs.value import Place, Value

__all__ = [
    "LAYOUTS",
    "ORDERS",
    "REGISTER",
    "Access",
    "Builder",
    "Mixed",
    "Nest",
    "PipelineTask",
    "Place",
    "Register",
    "Value",
    "allocate",
    "check",
    "gpipe",
    "grid",
    "interleaved",
    "interpret",
    "intervals",
    "moments",
    "one_f_one_b",
    "parse",
    "peak_bytes",
    "project",
    "recognised",
    "recomputed",
    "reductions",
    "register_layouts",
    "register_order",
    "run_by_rank",
    "run_ranks",
    "run_whole",
    "spread",
    "to_text",
]
