"""The doors of the PyTorch backend are those of the README, and say beforehand what it cannot carry out."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import redistrib as rd
from redistrib.backends import torch as on_torch
from redistrib.backends.torch import doors

README = (Path(rd.__file__).parent / "backends" / "README.md").read_text()


def test_the_doors_are_those_of_the_readme() -> None:
    listed = dict(re.findall(r"^\| `(\w+)\(([^)]*)\)` \|", README, re.MULTILINE))
    for door, parameters in listed.items():
        assert door in on_torch.__all__
        assert getattr(on_torch, door) is getattr(doors, door)
        taken = inspect.signature(getattr(doors, door)).parameters.values()
        assert ", ".join(str(each.replace(annotation=each.empty, default=each.empty)) for each in taken) == parameters
    assert set(listed) == {"run", "can", "measure"}


def test_what_it_carries_out() -> None:
    assert on_torch.can(rd.synthesize("[4{x}8, 8]", "[8, 4{x}8]", "x=2")) is None
    assert on_torch.can(rd.synthesize("[4{x}8, 8]", "[8, 4{x}8]", "x=2", dtype="bfloat16")) is None
    assert "int4" in str(on_torch.can(rd.synthesize("[4{x}8, 8]", "[8, 4{x}8]", "x=2", dtype="int4")))
