"""Files of the rates of a device: timed operations as CSV, and fitted rates as JSON."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

from redistrib.cost.profiles import text_of
from redistrib.errors import DtypeError, ProfileError
from redistrib.errors.base import shown
from redistrib.plans.dtypes import bits_of
from redistrib.programs.ir.work import CLASSES
from redistrib.programs.time.fit import OperationSample
from redistrib.programs.time.machine import RATES_FORMAT, Rates

_COLUMNS = ("bytes", "flops", "seconds")


def load_samples(path: Path) -> list[OperationSample]:
    """The timed operations in a CSV file with the columns `bytes`, `flops` and `seconds`, and any others.

    A column `work` says the class of operations that have one, see `redistrib.programs.ir.work.CLASSES`. A column
    `dtype` says the element type of operations that have rates of their own; without one they share the rates.

    Raises:
        ProfileError: if the file cannot be read, lacks a column, a figure is no number from 0 on, or there is no such
            class.
    """
    rows = csv.DictReader(text_of(path, "file of timed operations").splitlines())
    missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ProfileError(f"{path} has no column {missing[0]!r}; its first line names bytes, flops and seconds")
    return [_sample(path, rows.line_num, row) for row in rows]


def _sample(path: Path, line: int, row: dict[str, Any]) -> OperationSample:
    figures = []
    for name in _COLUMNS:
        try:
            figure = float(row[name])
        except (TypeError, ValueError):
            figure = math.nan
        if not 0 <= figure < math.inf:
            raise ProfileError(f"{path}, line {line}: {name} is {shown(row[name])}; give a number from 0 on")
        figures.append(figure)
    size, flops, seconds = figures
    work = row.get("work") or ""
    if work not in ("", *CLASSES):
        raise ProfileError(f"{path}, line {line}: no class of work {shown(work)}; take one of {', '.join(CLASSES)}")
    dtype = row.get("dtype") or ""
    try:
        if dtype:
            bits_of(dtype)
    except DtypeError as error:
        raise ProfileError(f"{path}, line {line}: {error}") from None
    return OperationSample(round(size), round(flops), seconds, work=work, dtype=dtype)


def load_rates(path: Path) -> Rates:
    """The rates in a file that `redistrib rates` wrote.

    Raises:
        ProfileError: if the file cannot be read, or has no rates.
    """
    text = text_of(path, "file of rates")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("format") != RATES_FORMAT or data.get("version") != 1:
        raise ProfileError(f"{path} has no rates; write some with `redistrib rates -o {path}`")

    def figure(name: str, data: dict[str, Any] = data) -> float:
        value = data.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise ProfileError(f"{path}: {name} is {shown(value)}; write rates with `redistrib rates -o {path}`")
        return float(value)

    def figures(name: str) -> dict[str, float]:
        some = data.get(name, {})
        if not isinstance(some, dict):
            raise ProfileError(f"{path}: {name} are {shown(some)}; write rates with `redistrib rates -o {path}`")
        return {each: figure(each, some) for each in some}

    launch, bandwidth, flops = (figure(name) for name in ("launch", "bandwidth", "flops"))
    return Rates(launch, bandwidth, flops, data.get("form"), figures("classes"), figures("dtypes"))  # type: ignore[arg-type]
