# Every target works alone on a fresh machine that has Python 3.10+ and, where Spark runs, Java 17+.
# `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# More arguments for pytest, for example: make test PYTEST_ARGS="-k fencing -x"
PYTEST_ARGS ?=
PYTEST := $(BIN)/python -m pytest
# Each worker has a file at a time, in the order of the files: the long ones stand before the many short.
# Two keep two cores busy; of the tests of Spark, servers and kills, which wait a good part of their time, three do.
WORKERS = --numprocesses=$(1) --dist=loadfile --no-loadscope-reorder

# Workers must run the Python that has pyarrow; PySpark would take the first python3 on PATH.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(abspath $(BIN)/python)

# Hundreds of processes of the tests import the same modules: what the first one compiles is kept for the others.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: java $(VENV)/.installed-demo ## stream real flights through Iceberg's sink and ours, side by side (2 min)
	@$(BIN)/python -m demo

.PHONY: demo-ingest
demo-ingest: java $(VENV)/.installed-demo ## push 2,000 small files into a buffer zone, and land them as few (1 min)
	@$(BIN)/python -m demo.ingest

.PHONY: check
check: lint unit ## the fast lane: linters, types, walls and the tests without Spark (3 min)

.PHONY: test
test: java $(VENV)/.installed-dev ## everything: the fast lane, then all tests (25 to 30 min)
	@$(MAKE) --no-print-directory --jobs=3 lint fetched compiled
	$(PYTEST) $(call WORKERS,3) --durations=25 $(PYTEST_ARGS)

.PHONY: coverage
coverage: java $(VENV)/.installed-dev fetched ## all tests with branch coverage, which takes half as long again
	$(PYTEST) $(call WORKERS,3) --cov --cov-report=term $(PYTEST_ARGS)

# How many times as far the soak counts as it does by itself.
SOAK ?= 1

.PHONY: soak
soak: java $(VENV)/.installed-dev ## the long versions of the correctness tests (up to 2 hours; SOAK=4 goes further)
	@STREAMING_SINK_SOAK=$(SOAK) $(MAKE) --no-print-directory --jobs=2 simulated longer

# One table; planned clusterings; two tables; keys; the key index; buffer zones; audits; catalogs; keys there; names
# of both; columns of partitions.
SIMULATED := 0:4000 500000:1000 1000000:1000 2000000:2000 2500000:700 3000000:3000 4000000:3000 5000000:2000 \
    6000000:1500 900000:400 5900000:400 5800000:600

.PHONY: simulated
simulated: $(VENV)/.installed-dev
	for range in $(SIMULATED); do \
	    $(BIN)/python -m tests.simulation --processes 1 --first $${range%:*} \
	        --schedules $$(($${range#*:} * $(SOAK))); \
	done

.PHONY: longer
longer: fetched
	$(PYTEST) $(call WORKERS,2) --durations=25 -m 'soak or longer' $(PYTEST_ARGS)

.PHONY: lint
lint: $(VENV)/.installed-dev ## ruff, mypy --strict and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: unit
unit: $(VENV)/.installed-dev ## the tests that start no Spark
	$(PYTEST) $(call WORKERS,2) tests/unit $(PYTEST_ARGS)

.PHONY: format
format: $(VENV)/.installed-dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: clean
clean: ## remove what the other targets made, the virtual environment included
	rm -rf $(VENV) demo-output .coverage .coverage.* htmlcov .hypothesis .import_linter_cache .mypy_cache \
	    .pytest_cache .ruff_cache build dist spark-warehouse artifacts derby.log metastore_db
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: java
java:
	@.ci/require-java

# A stamp per set of extras: each target installs what it needs, and only when pyproject.toml has changed. Without
# PySpark's range here pip fetches the newest release, 450 MB, before it sees that the extras exclude it. Its wheel
# is built here, of JARs: 28 s of a processor where they are compressed once more, and 17 s where they are not. Most
# modules of what is installed are never imported, so that those that are get compiled then.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "installing streaming-sink[$*] into $(VENV); the first time this takes a few minutes"
	@$(PIP) install --quiet --no-compile --no-deps --config-settings=--build-option=--compression=stored 'pyspark<4.2'
	@$(PIP) install --quiet --use-pep517 --no-compile --editable '.[$*]' 'pyspark<4.2'
	@touch $@

# The tests start dozens of JVMs: they share an archive of Spark's classes.
$(VENV)/spark.jsa: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.jvm

# What the tests wait for, made while the linters, which keep one core busy, run.
.PHONY: fetched
fetched: $(VENV)/spark.jsa fetched-servers

.PHONY: fetched-servers
fetched-servers: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.servers.binaries
	@$(BIN)/python -m tests.pysparks

# Else each worker rewrites the assertions of all tests, and compiles them.
.PHONY: compiled
compiled: $(VENV)/.installed-dev
	@$(PYTEST) --collect-only --quiet > /dev/null || true

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { \
	    echo "error: no $(PYTHON) found. Install Python 3.10 or newer, or name yours: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "error: $$($(PYTHON) --version) is too old. Install Python 3.10 or newer, or name yours: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	    echo "error: $(PYTHON) cannot make virtual environments. On Debian and Ubuntu: sudo apt-get install -y python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv --upgrade-deps $(VENV) # old releases of pip take a minute to find what fits together
