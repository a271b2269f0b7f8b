# Included by ../Makefile: on plans of the search, changed and broken ones too, `verify` and the Coq checker must agree.
# PYTHON needs what the library needs (NumPy, SciPy).
.PHONY: bridge

all: bridge

bridge: compile
	PYTHONPATH=.. $(PYTHON) -m proofs.bridge.compare
