"""DTensors by plans, as `rd.torch`: `redistribute` in place of `DTensor.redistribute`, and whole model states.

The names of this module work where PyTorch is installed; `import redistrib` does not import it.
"""

from __future__ import annotations

from redistrib.dtensor.redistribute import redistribute
from redistrib.dtensor.trees import LaunchGroup, StatePlan, reshard, reshard_plan

__all__ = ["LaunchGroup", "StatePlan", "redistribute", "reshard", "reshard_plan"]
