"""Programs as an intermediate representation: built by hand, checked, interpreted, transformed, seen rank by rank.

The functions and classes of `redistrib.programs` and `redistrib.programs.stages` that work on programs;
docs/programs.md shows each. The import loads neither JAX nor MPI.
"""

from __future__ import annotations

from redistrib.programs.ir.abstract import Mixed, Register
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.check import check
from redistrib.programs.ir.collectives import recognised
from redistrib.programs.ir.interpret import interpret
from redistrib.programs.ir.live import moments, peak_bytes
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.ops import REGISTER
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.project import project, run_ranks
from redistrib.programs.ir.reductions import reductions
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.ir.text import to_text
from redistrib.programs.ir.value import Place, Value
from redistrib.programs.schedule.graph_cuts import ArrayDim, WorkDim
from redistrib.programs.schedule.tactics import Tactic
from redistrib.programs.stages.grid import LAYOUTS, grid, register_layouts
from redistrib.programs.stages.orders import ORDERS, PipelineTask, gpipe, interleaved, one_f_one_b, register_order
from redistrib.programs.stages.recompute import recomputed
from redistrib.programs.stages.spreading import spread
from redistrib.programs.time.kernels.allocation import allocate, intervals

__all__ = [
    "LAYOUTS",
    "ORDERS",
    "REGISTER",
    "Access",
    "ArrayDim",
    "Builder",
    "Mixed",
    "Nest",
    "PipelineTask",
    "Place",
    "Register",
    "Tactic",
    "Value",
    "WorkDim",
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
