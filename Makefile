# Two commands do everything: `make run` serves, `make test` tests. Each makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.py')
# Two cores are what CI has; a laptop may say JOBS=8.
JOBS ?= 2

.PHONY: help run test lint types test-interpreted test-compiled test-crash test-model test-sim test-mutations compiled bench clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml
	@echo "Setting up .venv with what building and testing need (once, a minute or two) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	MAINSTEM_COMPILE=0 $(BIN)/pip install -q -e '.[dev]'
	@touch $@

build/compiled/.ready: $(VENV)/.ready setup.py $(SOURCES)
	@echo "Compiling the hot modules with mypyc (a minute or two after a change) ..."
	MAINSTEM_COMPILE=auto $(BIN)/python setup.py -q build --build-lib build/compiled
	@touch $@

## make compiled          build the hot modules with mypyc into build/compiled
compiled: build/compiled/.ready

## make run               serve on 127.0.0.1:9092
run: build/compiled/.ready
	@PYTHONPATH=build/compiled $(BIN)/python -m mainstem up

## make test              lint, types, and all tests, both interpreted and compiled
test: lint types test-interpreted test-compiled

## make lint              ruff and the import contracts
lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

## make types             mypy, strict
types: $(VENV)/.ready
	$(BIN)/mypy

test-interpreted: $(VENV)/.ready
	MAINSTEM_EXPECT=interpreted PYTHONPATH=src $(BIN)/python -m pytest -n $(JOBS) -m 'not campaign'

test-compiled: build/compiled/.ready
	MAINSTEM_EXPECT=compiled PYTHONPATH=build/compiled $(BIN)/python -m pytest -n $(JOBS) -m 'not campaign'

## make test-crash        every crash of small workloads on a simulated disk, and recovery from each
test-crash: $(VENV)/.ready
	MAINSTEM_EXPECT=interpreted PYTHONPATH=src $(BIN)/python -m pytest -n $(JOBS) tests/crash tests/model --timeout 1800

## make test-sim          many simulated runs with faults; SEEDS=20000 for a campaign, FROM=0 is the first seed
SEEDS ?= 2000
FROM ?= 0
test-sim: $(VENV)/.ready
	PYTHONHASHSEED=0 PYTHONPATH=src $(BIN)/python -m mainstem.sim --seeds $(SEEDS) --from $(FROM) --jobs $(JOBS)

## make test-mutations    historical bugs put back: the simulator must find each (docs/track-record.md)
test-mutations: $(VENV)/.ready
	MAINSTEM_EXPECT=interpreted PYTHONPATH=src $(BIN)/python -m pytest -n $(JOBS) tests/mutations --timeout 1800

## make bench             what bench/ measures, in one run; the tables are in docs/benchmarks.md
bench: build/compiled/.ready
	PYTHONPATH=build/compiled:. $(BIN)/python -m bench

## make clean             remove what was built
clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
