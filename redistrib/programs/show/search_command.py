"""What the command `redistrib search module:function` searches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redistrib.errors import ProgramError
from redistrib.explain.profiling.compare import calibration_devices
from redistrib.programs.show.diagnose_command import returned


def to_search(target: str, devices: int | None) -> tuple[Any, ...]:
    """The return value of a function of a module: a function and its arguments.

    Args:
        target: `module:function`.
        devices: those of candidates that will run: accelerators, or virtual CPU devices where there are none; None
            where no candidate will.

    Raises:
        ProgramError: if there is no such function, or it does not return a function and its arguments.
        RunSizeError: if there are fewer devices than candidates take.
    """
    if devices is not None:
        calibration_devices(max(2, devices))
    return returned(target, None)


def numbers(texts: Iterable[str]) -> dict[str, int]:
    """The numbers of arguments, by name, of texts `argument=number`.

    Raises:
        ProgramError: if a text is none.
    """
    return dict(map(_pair, texts))


def _pair(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.removeprefix("-").isdecimal():
        raise ProgramError("", text, "Arguments", "write it as argument=number, such as params=0")
    return name, int(number)
