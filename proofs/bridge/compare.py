"""Hold `verify` and the Coq checker against each other, plan by plan.

    python -m proofs.bridge.compare            # from the root of the repository; Coq files compiled before

Plans of the search, the same plans changed harmlessly, and the same plans broken; every one is judged by
`redistrib.verify` and, in Coq, by `check_plan_within` under `vm_compute`. Where both accept, they must also count the
same elements received on every device. Exits with 1 on any disagreement, on a refused plan of the search, or on a
corpus that falls short.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TypeAlias

from proofs.bridge.corpus import WAYS, Sample, corpus
from proofs.bridge.corpus_partial import PARTIAL_WAYS, partial_corpus
from proofs.bridge.corpus_sets import SET_WAYS, sets_corpus
from proofs.bridge.export import Form, is_partial, plan_term
from proofs.bridge.mutate import BREAKING, HARMLESS, changed
from redistrib import Plan, verify
from redistrib.errors import RedistribError, VerificationError
from redistrib.plans.serial import from_json

CHECKER = Path(__file__).resolve().parents[1] / "Checker"
LEAST = 500
PREAMBLE = """From Coq Require Import ZArith List.
From Redistrib.Checker Require Import Spec Check Sound PartialSpec PartialCheck PartialSound.
Import ListNotations.
Open Scope Z_scope.
Set Printing Depth 1000000.
"""
VERDICTS = """Eval vm_compute in map (fun q : $plan * Z =>
  if ${check}_within (fst q) (snd q)
  then Some (map ($received (fst q)) (range ($count (fst q)))) else None) plans.
"""
# The kernel computes the checker's answer, and its soundness turns it into the promises.
KEPT = """Theorem kept : Forall (fun q => $promises (fst q) (snd q)) plans.
Proof.
  apply Forall_forall; intros q Hq; apply ${check}_within_sound.
  assert (E : forallb (fun q => ${check}_within (fst q) (snd q)) plans = true) by (vm_compute; reflexivity).
  rewrite forallb_forall in E; exact (E q Hq).
Qed.
Print Assumptions kept.
"""
# What Spec.v and PartialSpec.v call the same things.
WHOLE = {
    "plan": "plan", "check": "check_plan", "received": "plan_received", "count": "device_count", "promises": "promises",
}  # fmt: skip
PARTIAL = {
    "plan": "pplan", "check": "check_partial_plan", "received": "pplan_received", "count": "pdevice_count",
    "promises": "ppromises",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A plan to be judged: what was done to it, its JSON form, the largest tile allowed."""

    change: str
    form: Form
    bound: int


def cases_of(samples: Sequence[Sample], seed: int = 8, breaks: int = 2) -> list[Case]:
    """The samples as they are, each with a harmless change where one applies, and each broken in several ways."""
    rng = random.Random(seed)
    cases = [Case("", sample.form, sample.bound) for sample in samples]
    used: Counter[str] = Counter()
    for sample in samples:
        for changes, wanted in ((HARMLESS, 1), (BREAKING, breaks)):
            # the changes used least come first, so that each kind gets its share
            for name in sorted(changes, key=lambda name: (used[name], rng.random())):
                if wanted == 0:
                    break
                form = changed(changes[name], rng, sample.form)
                if form is not None:
                    cases.append(Case(name, form, sample.bound))
                    used[name] += 1
                    wanted -= 1
    return cases


# ------------------------------------------------------------------------------------------- the verdicts


def sealed(form: Form) -> str:
    """The JSON text of a form, with the digest that belongs to it."""
    rest = {name: value for name, value in form.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps({**rest, "digest": hashlib.sha256(text.encode()).hexdigest()})


Verdict: TypeAlias = tuple[int, ...] | None
"""Elements received on every device by an accepted plan; None for a refused one."""


def python_verdict(case: Case) -> tuple[Verdict, str]:
    """What the library says of a plan, and the rule it breaks, or the name of the error, if it refuses it.

    What a text tells of traffic is not judged: a change to the steps leaves it as it was.
    """
    try:
        return verify(from_json(Plan, sealed(case.form)), case.bound).received, ""
    except RedistribError as error:
        return None, error.rule if isinstance(error, VerificationError) else type(error).__name__


def coq_file(cases: Sequence[Case], proved: bool) -> str:
    """A Coq file that prints the verdicts on cases of one version, and may prove that all keep their promises."""
    names = PARTIAL if is_partial(cases[0].form) else WHOLE
    terms = ";\n".join(f"({plan_term(case.form)}, {case.bound})" for case in cases)
    plans = f"Definition plans : list ({names['plan']} * Z) := [\n{terms}].\n"
    return f"{PREAMBLE}{plans}{Template(VERDICTS + (KEPT if proved else '')).substitute(names)}"


def coq_verdicts(
    cases: Sequence[Case], coqc: str = "coqc", checker: Path = CHECKER, batch: int = 100, jobs: int = 2
) -> list[Verdict]:
    """What the checker in Coq says of every case.

    Of cases without a change, the search's own, Coq also proves that they keep the promises of Spec.v or PartialSpec.v.

    Raises:
        RuntimeError: if Coq fails where it was not the checker that refused a plan.
    """
    alike: dict[tuple[bool, bool], list[int]] = {}  # by version and whether they are the search's own
    for k, case in enumerate(cases):
        alike.setdefault((is_partial(case.form), not case.change), []).append(k)
    batches = [(own, rows[k : k + batch]) for (_, own), rows in alike.items() for k in range(0, len(rows), batch)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def judge_batch(k: int) -> list[Verdict]:
            proved, rows = batches[k]
            path = Path(folder) / f"batch{k}.v"
            path.write_text(coq_file([cases[row] for row in rows], proved))
            command = [coqc, "-q", "-Q", str(checker), "Redistrib.Checker", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            said = _read_verdicts(done.stdout.partition(": list (option")[0])
            closed = not proved or "Closed under the global context" in done.stdout
            refused = proved and None in said  # then the theorem fails too, and the caller sees why
            if len(said) != len(rows) or not (refused or (done.returncode == 0 and closed)):
                raise RuntimeError(f"coqc failed on {path.name}:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
            return said

        verdicts: list[Verdict] = [None] * len(cases)
        for (_, rows), said in zip(batches, pool.map(judge_batch, range(len(batches))), strict=True):
            for row, verdict in zip(rows, said, strict=True):
                verdicts[row] = verdict
        return verdicts


def _read_verdicts(printed: str) -> list[Verdict]:
    """The verdicts that Coq printed.

    >>> _read_verdicts("= [Some [0; 12]; None]")
    [(0, 12), None]
    """
    said = re.findall(r"None|Some\s+\[([^\]]*)\]", printed)
    words = re.findall(r"None|Some", printed)
    return [
        tuple(int(number) for number in numbers.split(";")) if word == "Some" else None
        for word, numbers in zip(words, said, strict=True)
    ]


# --------------------------------------------------------------------------------------------- the report


@dataclass(frozen=True)
class Judged:
    """A case with both verdicts."""

    case: Case
    python: Verdict
    error: str
    coq: Verdict

    @property
    def refused(self) -> bool:
        """Whether Coq refused it."""
        return self.coq is None


def judge(cases: Sequence[Case], coqc: str = "coqc", checker: Path = CHECKER) -> list[Judged]:
    """Both verdicts on every case; the Coq files in the folder `checker` must be compiled."""
    spoken = [python_verdict(case) for case in cases]
    formal = coq_verdicts(cases, coqc, checker)
    return [Judged(case, python, error, coq) for case, (python, error), coq in zip(cases, spoken, formal, strict=True)]


def faults(judged: Sequence[Judged]) -> list[str]:
    """Disagreements, and verdicts that the kind of change rules out."""
    found = []
    for one in judged:
        where = f"after {one.case.change!r}: {sealed(one.case.form)}"
        if (one.python is None) != one.refused:
            says = ["accepts", "refuses"]
            found.append(f"verify {says[one.python is None]} {one.error}, Coq {says[one.refused]}, {where}")
        elif one.python != one.coq:
            found.append(f"the library counts {one.python} received, Coq {one.coq}, {where}")
        elif one.refused and (not one.case.change or one.case.change in HARMLESS):
            found.append(f"refused ({one.error}), {where}")
    return found


def shortfalls(samples: Sequence[Sample], judged: Sequence[Judged]) -> list[str]:
    """What the corpus lacks."""
    ways = Counter(way for sample in samples for way in sample.ways)
    changes = Counter(one.case.change for one in judged if one.refused)
    found = [f"no plan of the search shows: {way}" for way in (*WAYS, *PARTIAL_WAYS, *SET_WAYS) if not ways[way]]
    found += [f"no plan broken by {name} was refused" for name in BREAKING if not changes[name]]
    if len(samples) < LEAST:
        found.append(f"{len(samples)} plans of the search, fewer than {LEAST}")
    if changes.total() < LEAST:
        found.append(f"{changes.total()} broken plans refused, fewer than {LEAST}")
    return found


def summary(samples: Sequence[Sample], judged: Sequence[Judged]) -> str:
    """Counts, for people."""
    ways = Counter(way for sample in samples for way in sample.ways)
    refused = Counter(one.case.change for one in judged if one.refused)
    taken = Counter(one.case.change for one in judged if not one.refused and one.case.change in BREAKING)
    harmless = Counter(one.case.change for one in judged if one.case.change in HARMLESS)
    errors = Counter(one.error for one in judged if one.error)
    lines = [f"{len(samples)} plans of the search, all accepted by both:"]
    lines += [f"  {ways[way]:5d}  {way}" for way in (*WAYS, *PARTIAL_WAYS, *SET_WAYS)]
    lines += [f"{harmless.total()} harmless changes, all accepted by both:"]
    lines += [f"  {harmless[name]:5d}  {name}" for name in HARMLESS]
    lines += [f"{refused.total()} broken plans refused by both ({taken.total()} changes made another correct plan):"]
    lines += [f"  {refused[name]:5d}  {name}" + (f" (+{taken[name]})" if taken[name] else "") for name in BREAKING]
    lines += ["errors of verify: " + ", ".join(f"{name} {count}" for name, count in errors.most_common())]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold verify and the Coq checker against each other.")
    parser.add_argument("--plans", type=int, default=600, help="plans of the search (default 600)")
    parser.add_argument("--partial", type=int, default=150, help="plans of partial arrays besides (default 150)")
    parser.add_argument("--sets", type=int, default=150, help="plans between device sets besides (default 150)")
    parser.add_argument("--coqc", default="coqc")
    options = parser.parse_args()
    begun = time.monotonic()
    samples = corpus(options.plans) + partial_corpus(options.partial) + sets_corpus(options.sets)
    cases = cases_of(samples)
    searched = time.monotonic()
    judged = judge(cases, options.coqc)
    print(summary(samples, judged))
    print(f"{searched - begun:.0f} s of search, {time.monotonic() - searched:.0f} s of verdicts")
    found = [*faults(judged), *shortfalls(samples, judged)]
    for fault in found:
        print("FAULT:", fault, file=sys.stderr)
    if not found:
        print(
            f"verify and the Coq checker agree on all {len(judged)} plans, elements received on every device included"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
