"""Jobs of several processes that are to make the same calls, and of which one makes others, or has an error.

Whatever is drawn, all processes that raise raise the same error of the library, within seconds, and what they get
otherwise is right; and the next call that all make alike is right.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.guard import Failure
from tests.processes import outputs_of

JOBS = ((2, 2), (4, 1), (2, 1), (4, 2))  # processes, and devices of each
ROUNDS = 12  # of a job
SECONDS = 15.0  # that a call may take, compilation included, before processes count as having waited in vain
_WORKER = Path(__file__).with_name("disagreements_worker.py")


def check(seed: int, index: int) -> str:
    """Run the job of this number; what became of it.

    Raises:
        Failure: where it is not right.
    """
    processes, devices_each = JOBS[index % len(JOBS)]
    numbers = ",".join(str(ROUNDS * index + k) for k in range(ROUNDS))
    with tempfile.TemporaryDirectory() as folder:
        try:
            outputs = outputs_of(_WORKER, processes, devices_each, folder, str(seed), numbers)
        except AssertionError as error:
            raise Failure("crash", str(error)[-3000:]) from None
    for rounds in zip(*map(_rounds, outputs), strict=True):
        _judge(rounds)
    return f"{processes} processes of {devices_each}"


def _rounds(output: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("ROUND ")) for line in output.splitlines() if line.startswith("ROUND ")]


def _judge(rounds: tuple[dict[str, Any], ...]) -> None:
    """Judge what the processes of a job say of one round."""
    case = json.dumps(rounds, indent=1)
    errors = Counter(text for one in rounds for text in {*one["errors"]})
    for text, count in errors.items():
        if text.startswith("FOREIGN"):
            raise Failure("exception", text, case=case)
        if count == 1:
            raise Failure("wrong", f"one process alone has the error {text}", case=case)
    if not all(one["right"] for one in rounds) or any(one["after"] for one in rounds):
        raise Failure("wrong", "other values, or no further call", case=case)
    if max(one["seconds"] for one in rounds) > SECONDS:
        raise Failure("slow", "processes waited for each other", case=case)
