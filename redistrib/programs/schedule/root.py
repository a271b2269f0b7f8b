"""The device of arrays that are spread over a grid, and that are brought back from one."""

from __future__ import annotations

from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.program import Place

ROOT = Place(Mesh(()), (0,))
