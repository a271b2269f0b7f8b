"""DTensors by plans, as `rd.torch`: `redistribute` in place of `DTensor.redistribute`, and whole model states.

The names of this module work where PyTorch is installed; `import redistrib` does not import it.
"""

from __future__ import annotations

from redistrib.dtensor.redistribute import redistribute

__all__ = ["redistribute"]
