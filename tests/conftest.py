"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# Machines that run tests are shared: a slow example is no failure, and a failing one should be easy to repeat.
settings.register_profile("redistrib", deadline=None, print_blob=True)
settings.load_profile("redistrib")
