"""Of forty programs the same moves are derived as before, at the same bytes, memory and simulated time.

What the bytes ought to be is tested elsewhere; here nothing changes unseen.
`python -m tests.programs.run.kept_programs`
derives them anew, for whoever means to change it.
"""

from __future__ import annotations

import jax
import pytest

from tests.programs.run.kept_programs import MODELS, cases, derived, kept

KEPT = kept()
CASES = cases()


@pytest.mark.skipif(KEPT["jax"] != jax.__version__, reason="another JAX traces functions into other operations")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", CASES)
def test_a_program_is_derived_as_before(name: str, model: str) -> None:
    found = derived(CASES[name], model)
    was = KEPT["programs"][f"{name}, {model}"]
    assert found["moves"] == was["moves"]
    assert found == was


def test_every_program_is_kept() -> None:
    assert set(KEPT["programs"]) == {f"{name}, {model}" for name in CASES for model in MODELS}
    assert len(CASES) == 40
