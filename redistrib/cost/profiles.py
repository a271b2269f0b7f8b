"""Latency-bandwidth profiles from files, or the JSON objects of files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import ProfileError
from redistrib.errors.base import shown

_MOST = 1 << 24  # bytes of a file


def text_of(path: Path, kind: str) -> str:
    """The text of a file that is to be of a kind, `"profile"` for instance.

    Raises:
        ProfileError: if it cannot be read, is too large, or is not text in UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
    except OSError as error:
        raise ProfileError(f"cannot read the {kind} {path}: {error.strerror}") from None
    if len(data) > _MOST:
        raise ProfileError(f"{path} is no {kind}: it has more than {_MOST:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProfileError(f"{path} is no {kind}: it is not text in UTF-8") from None


def load_profile(path: Path) -> LatencyBandwidth:
    """The cost model in a profile that `redistrib calibrate` wrote.

    Raises:
        ProfileError: if the file is no profile.
    """
    return LatencyBandwidth.from_json(text_of(path, "profile"))


def profile_in(value: Mapping[str, Any]) -> LatencyBandwidth:
    """The profile in the object of a JSON file.

    Raises:
        ProfileError: if it is none.
    """
    try:
        text = json.dumps(dict(value))
    except (TypeError, ValueError):
        raise ProfileError(f"{shown(value)} is no profile; give what `redistrib calibrate` writes") from None
    return LatencyBandwidth.from_json(text)
