# Two commands do everything: `make run` serves, `make test` tests. Each makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.py')
# Two cores are what CI has; a laptop may say JOBS=8.
JOBS ?= 2
INTERPRETED := MAINSTEM_EXPECT=interpreted PYTHONPATH=src $(BIN)/python
COMPILED := MAINSTEM_EXPECT=compiled PYTHONPATH=build/compiled $(BIN)/python

.PHONY: help run test lint types test-interpreted test-compiled test-crash test-protocol test-compat test-client \
	test-kgo test-differential test-sim test-mutations test-spark compiled bench demo clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

# What serving needs: seconds, where all that testing needs is minutes.
$(VENV)/.serves: pyproject.toml
	@echo "Setting up .venv with what the broker needs (once, under a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@MAINSTEM_COMPILE=0 $(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.ready: $(VENV)/.serves
	@echo "Adding what building and testing need (once, a minute or two) ..."
	$(BIN)/pip install -q --upgrade pip
	MAINSTEM_COMPILE=0 $(BIN)/pip install -q -e '.[dev]'
	@touch $@

# What is in the folder is what the sources say now: a module that is gone must not be found there.
build/compiled/.ready: $(VENV)/.ready setup.py $(SOURCES)
	@echo "Compiling the hot modules with mypyc (a minute or two after a change) ..."
	@rm -rf build/compiled
	MAINSTEM_COMPILE=auto $(BIN)/python setup.py -q build --build-lib build/compiled
	@# As an installer does: or every start would compile what is left interpreted, where nothing may be written.
	$(BIN)/python -m compileall -q build/compiled
	@touch $@

## make compiled          build the hot modules with mypyc into build/compiled
compiled: build/compiled/.ready

## make run               serve on 127.0.0.1:9092, from the compiled build where there is one of these sources
run: $(VENV)/.serves
	@if [ -e build/compiled/.ready ] && [ -z "$$(find src setup.py -name '*.py' -newer build/compiled/.ready)" ]; then \
	  PYTHONPATH=build/compiled exec $(BIN)/python -m mainstem up; \
	else \
	  echo "This is the interpreted build; 'make compiled' takes two or three minutes and makes the fast one."; \
	  PYTHONPATH=src exec $(BIN)/python -m mainstem up; \
	fi

## make test              lint, types, and all tests, both interpreted and compiled
# What checks the sources keeps one core busy, and so does the first half of compiling them: they go side by side.
test: $(VENV)/.ready
	@echo "Checking the sources and compiling the hot modules (some minutes) ..."
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types compiled
	@$(MAKE) --no-print-directory test-interpreted
	@$(MAKE) --no-print-directory test-compiled

## make lint              ruff and the import contracts
lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

## make types             mypy, strict
types: $(VENV)/.ready
	$(BIN)/mypy

# Other people's clients, Kafka and Spark are processes that take long and meet the broker over a socket or its files:
# one build is enough for them, the compiled one where one was made.
ONE_BUILD := --ignore tests/compat --ignore tests/spark
HAS_COMPILED := find build/compiled -name '*.so' 2>/dev/null | grep -q .
test-interpreted: $(VENV)/.ready
	$(INTERPRETED) -m pytest -n $(JOBS) -m 'not campaign' $$($(HAS_COMPILED) && echo $(ONE_BUILD))

# Mutations replace functions, which compiled code does not notice: they run interpreted only.
test-compiled: build/compiled/.ready
	@if $(HAS_COMPILED); then \
	  set -x; $(COMPILED) -m pytest -n $(JOBS) -m 'not campaign' --ignore tests/mutations --ignore-glob 'tests/sim/test_client_*'; \
	else echo "There is no C compiler, or no Python.h, so there is no compiled build to test."; fi

## make test-crash        every crash of small workloads on a simulated disk, and long random runs beside a model
test-crash: build/compiled/.ready
	$(COMPILED) -m pytest -n $(JOBS) tests/crash tests/model --timeout 1800

## make test-protocol     every message and many mutations of it, against kio and Kafka's own classes
test-protocol: build/compiled/.ready
	$(COMPILED) -m pytest -n $(JOBS) tests/unit/protocol tests/fuzz tests/compat/test_messages.py --timeout 1800

## make test-compat       every client, Kafka's own tools, kill -9, and whole directories that move to Kafka and back
# The kills come last and alone: each restart has a second, of which other tests would take their part.
test-compat: build/compiled/.ready
	$(COMPILED) -m pytest -n $(JOBS) --timeout 600 \
	  tests/compat/test_round_trip.py tests/compat/test_clients.py tests/compat/test_transactions.py \
	  tests/compat/test_tools.py tests/compat/test_kcat.py tests/compat/test_exactly_once.py \
	  tests/compat/test_moving.py tests/compat/test_transaction_log.py
	$(COMPILED) -m pytest --timeout 600 tests/compat/test_kill.py

## make test-client       our client and the command line against our broker, Kafka 4.3 and Kafka 3.9, and through 30 kill -9
# Its seeds in a simulated network run interpreted, as in `make test`.
test-client: build/compiled/.ready
	$(COMPILED) -m pytest -n $(JOBS) --dist loadgroup --timeout 600 tests/client tests/cli
	$(INTERPRETED) -m pytest -n $(JOBS) --timeout 1800 tests/sim/test_client_producer.py tests/sim/test_client_consumer.py

## make test-kgo          franz-go's own tests against our broker; what is left out is in tests/compat/kgo_left_out.txt
test-kgo: build/compiled/.ready
	$(COMPILED) -m pytest -s tests/compat/test_kgo.py

## make test-differential the same random requests to Kafka and to us, answers and files; MAINSTEM_SEEDS, MAINSTEM_STEPS
test-differential: build/compiled/.ready
	$(COMPILED) -m pytest tests/compat/differential

## make test-sim          many simulated runs with faults; SEEDS=20000 for a campaign, FROM=0 is the first seed
SEEDS ?= 2000
FROM ?= 0
test-sim: build/compiled/.ready
	PYTHONHASHSEED=0 PYTHONPATH=build/compiled $(BIN)/python -m mainstem.sim --seeds $(SEEDS) --from $(FROM) --jobs $(JOBS)

## make test-mutations    historical bugs put back: the simulator must find each (docs/track-record.md); BUG=name for one
test-mutations: $(VENV)/.ready
	$(INTERPRETED) -m pytest -n $(JOBS) tests/mutations --timeout 1800 -rP -k '$(BUG)'

## make bench [ROW=name]  Apache Kafka and Mainstem side by side; writes the tables of docs/benchmarks.md
bench: build/compiled/.ready
	PYTHONPATH=build/compiled:. $(BIN)/python -m bench $(ROW)

## make test-spark        source, sink and pipelines on Spark, against Mainstem and Kafka; SPARKS="4.2.0 4.3.0"
SPARKS ?= 4.2.0 4.3.0
test-spark: build/compiled/.ready
	@for version in $(SPARKS); do $(MAKE) --no-print-directory test-spark-$$version || exit 1; done

# Each version of Spark has an environment of its own, beside what the rest needs.
test-spark-%: build/compiled/.ready build/spark-%/.ready
	MAINSTEM_EXPECT=compiled PYTHONPATH=build/compiled build/spark-$*/bin/python -m pytest tests/spark --timeout 900

# Or make would take it for a step in between, remove it at the end, and set all up again the next time.
.PRECIOUS: build/spark-%/.ready
build/spark-%/.ready: pyproject.toml
	@echo "Setting up PySpark $* in build/spark-$* (once, some minutes) ..."
	@$(PYTHON) -m venv build/spark-$*
	@MAINSTEM_COMPILE=0 build/spark-$*/bin/pip install -q -e '.[spark]' 'pyspark==$*' pytest pytest-timeout hypothesis confluent-kafka
	@# It only makes starts quicker: whoever lacks Java is told by the tests.
	@build/spark-$*/bin/python -m tests.spark.quick >/dev/null 2>&1 || echo "There is no archive of Spark's classes; its tests start slowly."
	@touch $@

## make demo              a broker, a shop's orders, pipelines on Spark, a plot and an audit, in two minutes
demo: build/compiled/.ready
	@PYTHONPATH=build/compiled $(BIN)/python -m mainstem.spark.demo

## make clean             remove what was built
clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
