# Included by ../Makefile: on plans of the search, changed and broken ones too, `verify` and the Coq checker must agree.
# Needs what the library needs (NumPy, SciPy), so the project's environment comes before the system's Python.
BRIDGE_PYTHON ?= $(firstword $(wildcard ../.venv/bin/python) $(PYTHON))

.PHONY: bridge

PARTS += bridge

bridge: compile
	PYTHONPATH=.. $(BRIDGE_PYTHON) -m proofs.bridge.compare
