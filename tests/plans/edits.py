"""The JSON of correct plans with something changed in it, and a digest that fits."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.plans.hand import GOOD


def sealed(form: dict[str, Any]) -> str:
    """A form with the digest that fits it."""
    form = {name: value for name, value in form.items() if name != "digest"}
    text = json.dumps(form, sort_keys=True, separators=(",", ":"))
    return json.dumps({**form, "digest": hashlib.sha256(text.encode()).hexdigest()})


def edited(name: str, *path: str | int, value: Any) -> str:
    """The JSON of a correct plan with one value replaced, and a digest that fits."""
    form = json.loads(GOOD[name]().to_json())
    place = form
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return sealed(form)


def without(name: str, *path: str | int) -> str:
    form = json.loads(GOOD[name]().to_json())
    place = form
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return sealed(form)
