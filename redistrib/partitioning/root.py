"""The place of arrays on one device, from which calls spread them and to which they bring them back."""

from __future__ import annotations

from redistrib.lang.mesh import Mesh
from redistrib.programs.program import Place

ROOT = Place(Mesh(()), (0,))
