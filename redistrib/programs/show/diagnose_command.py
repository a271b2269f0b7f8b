"""The command `redistrib diagnose module:function`."""

from __future__ import annotations

from typing import Any

from redistrib.errors import ProgramError
from redistrib.explain.profiling.compare import virtual_cpu_devices
from redistrib.programs.show.diagnosis import Diagnosis, diagnose
from redistrib.programs.time.load import named


def diagnosed(target: str, devices: int | None) -> Diagnosis:
    """The diagnosis of the return value of a function: a jitted function and its arguments.

    Args:
        target: `module:function` or `file.py:function`; modules of the working folder are found too.
        devices: virtual CPU devices to compile for, unless None.

    Raises:
        ProgramError: if there is no such function, or it does not return a function and its arguments.
    """
    function, *args = returned(target, devices)
    return diagnose(function, *args)


def returned(target: str, devices: int | None) -> tuple[Any, ...]:
    """The return value of a function of a module: a function and its arguments; see `diagnosed`."""
    if devices is not None:
        virtual_cpu_devices(devices)
    if not target.rpartition(":")[0]:
        raise ProgramError("", target, "Arguments", "it names no function; give module:function")
    case = named(target)()
    if not isinstance(case, tuple) or not case or not (callable(case[0]) or hasattr(case[0], "compile")):
        raise ProgramError(
            "", target, "Arguments", "it must return a jitted function and its arguments: return step, params, batch"
        )
    return case
