"""The command `redistrib search module:function`."""

from __future__ import annotations

from typing import Any

from redistrib.errors import ProgramError
from redistrib.explain.profiling.compare import calibration_devices
from redistrib.lang.mesh import Mesh
from redistrib.programs.search.entry import search
from redistrib.programs.search.result import Searched
from redistrib.programs.show.diagnose_command import returned


def search_target(
    target: str, pairs: dict[str, list[str]], *, pipeline: str | None = None, is_run: bool = False, **options: Any
) -> Searched:
    """The search result for the return value of a function: a function and its arguments.

    Args:
        target: `module:function`.
        pairs: texts `argument=number`, for `state` and for `batch`.
        pipeline: a family of layouts or an order, by its name, for pipelines; the module of the target may register it.
        is_run: whether candidates will run: on accelerators, or on virtual CPU devices where there are none.
        options: of `rd.search`.

    Raises:
        ProgramError: if there is no such function, or it does not return a function and its arguments.
        RunSizeError: if there are fewer devices than candidates take.
    """
    if is_run:
        calibration_devices(max(2, options["devices"] or Mesh.of(options["mesh"]).size))
    function, *args = returned(target, None)
    state, batch = (dict(map(_pair, pairs[name])) for name in ("state", "batch"))
    return search(function, args, state=state, batch=batch or None, pipeline=pipeline or bool(batch), **options)


def _pair(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.removeprefix("-").isdecimal():
        raise ProgramError("", text, "Arguments", "write it as argument=number, such as params=0")
    return name, int(number)
