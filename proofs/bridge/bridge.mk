# Included by ../Makefile. Plans of the search, changed and broken ones too: `verify` and the Coq checker must agree.
PYTHON ?= python3

.PHONY: bridge
bridge: Checker/Sound.vo
	cd .. && $(PYTHON) -m proofs.bridge.compare --coqc "$(or $(COQC),coqc)"
