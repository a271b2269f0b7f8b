"""One launch of 8 ranks for all tests of this folder; each test runs a function of `programs` on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = ["programs/*"] if find_spec("torch") else ["*.py", "programs/*"]


@pytest.fixture(scope="session")
def ranks() -> Iterator[object]:
    from ranks import Ranks

    with Ranks(8) as launched:
        yield launched
