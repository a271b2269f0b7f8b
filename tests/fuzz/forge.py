"""Forged plans: the JSON of a right plan, changed at random, most of them sealed again, so that `verify` must judge."""

from __future__ import annotations

import hashlib
import json
import random
from functools import lru_cache

import redistrib as rd
from redistrib.errors import RedistribError
from tests.fuzz.changes import CHANGES, Form
from tests.fuzz.guard import Failure, attempted
from tests.fuzz.interpreter import Outcome, TooLarge, Wrong, interpret
from tests.fuzz.problems import draw

PER_PLAN = 16  # forgeries of one plan
MOST_TEXT = 60_000  # characters of a plan worth forging


def check(seed: int, index: int) -> str:
    """Read the forgery of this number; "refused", "accepted" where it is right all the same, or "too large" to tell.

    Raises:
        Failure: if a wrong plan is accepted, or anything but a `RedistribError` comes out.
    """
    return judge(forgery(seed, index))


def judge(text: str) -> str:
    """See `check`, for one text."""
    found = attempted(lambda: rd.Plan.from_json(text))
    if isinstance(found, RedistribError):
        return "refused"
    try:
        outcome: Outcome = interpret(text)
    except TooLarge:
        return "too large"
    except Wrong as error:
        raise Failure("wrong", f"accepted a forged plan: {error}") from error
    if (found.received, found.height) != (outcome.received, outcome.height):
        raise Failure("wrong", "a forged plan is read as another one than it says")
    str(found)
    if rd.verify(rd.Plan.from_json(found.to_json())) != found:
        raise Failure("wrong", "a forged plan changes when it is written again")
    return "accepted"


def forgery(seed: int, index: int) -> str:
    """The text of this number; always the same one."""
    rng = random.Random(f"forged/{seed}/{index}")
    original = _original(seed, index // PER_PLAN)
    form = json.loads(original)
    if rng.random() < 0.04:
        return sealed(form)  # the plan itself, which shows that seals made here are accepted
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        change = rng.choices(list(CHANGES), list(CHANGES.values()))[0]
        form = change(form, rng) if isinstance(form, dict) else form
    text = sealed(form) if rng.random() < 0.9 else json.dumps(form)
    return _spoilt(text, rng) if rng.random() < 0.06 else text


def sealed(form: Form) -> str:
    """The text of a plan's form with the digest that fits it."""
    if not isinstance(form, dict):
        return json.dumps(form)
    rest = {name: value for name, value in form.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps({**rest, "digest": hashlib.sha256(text.encode()).hexdigest()})


@lru_cache(maxsize=4)
def _original(seed: int, number: int) -> str:
    """A right plan of at least one step, mostly, and not too long."""
    for attempt in range(40):
        problem = draw(seed, 10**9 + 40 * number + attempt)
        if problem.flaw or problem.devices > 48:
            continue
        try:
            plan = problem.plan()
        except Exception:  # whatever it is, the problems find it
            continue
        text = plan.to_json()
        if (plan.steps or attempt > 30) and len(text) <= MOST_TEXT:
            return text
    return rd.synthesize("[1{x}4, 4]", "[4, 1{x}4]", {"x": 4}).to_json()


def _spoilt(text: str, rng: random.Random) -> str:
    """The text itself damaged: cut, a character changed or doubled, a field twice, nested, no number."""
    at = rng.randrange(len(text))
    kind = rng.choice(("cut", "character", "insert", "twice", "nested", "constant", "long", "tail"))
    if kind == "cut":
        return text[:at]
    if kind == "character":
        return text[:at] + rng.choice('0919"[]{},:-e.\\ \n\0é') + text[at + 1 :]
    if kind == "insert":
        return text[:at] + text[at : at + rng.randrange(1, 80)] + text[at:]
    if kind == "twice":
        return '{"cost": 1, ' + text[1:]
    if kind == "nested":
        depth = rng.choice((10, 1000, 100_000))
        return '{"steps": ' + "[" * depth + "]" * depth + "," + text[1:]
    if kind == "tail":
        return text + rng.choice((" ", "\n", "x", "{}", text, "\0"))
    word = rng.choice(("NaN", "Infinity", "-Infinity", "1e999")) if kind == "constant" else "9" * rng.choice((20, 5000))
    return text.replace('"cost": ', f'"cost": {word}', 1)
