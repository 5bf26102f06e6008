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
test: java $(VENV)/.installed-dev ## everything: the fast lane, then all tests (30 min)
	@$(MAKE) --no-print-directory --jobs=2 lint fetched
	$(PYTEST) $(call WORKERS,3) --durations=25 $(PYTEST_ARGS)

.PHONY: coverage
coverage: java $(VENV)/.installed-dev fetched ## all tests with branch coverage, which takes half as long again
	$(PYTEST) $(call WORKERS,3) --cov --cov-report=term $(PYTEST_ARGS)

.PHONY: soak
soak: java $(VENV)/.installed-dev ## the long versions of the correctness tests (hours)
	$(BIN)/python -m tests.simulation --schedules 100000
	$(BIN)/python -m tests.simulation --schedules 10000 --first 1000000 # two tables
	$(BIN)/python -m tests.simulation --schedules 20000 --first 2000000 # a table with a key
	$(BIN)/python -m tests.simulation --schedules 20000 --first 3000000 # a buffer zone
	$(BIN)/python -m tests.simulation --schedules 20000 --first 4000000 # a buffer zone that audits
	$(BIN)/python -m tests.simulation --schedules 20000 --first 5000000 # a table in a catalog
	$(BIN)/python -m tests.simulation --schedules 20000 --first 6000000 # a table with a key in a catalog
	$(BIN)/python -m tests.processes --commits 100 --kills 50 --cuts 20
	RETENTION_COMMITS=2000 $(BIN)/python -m pytest tests/unit/timeline/test_expiry.py -k bounded_and
	RETENTION_COMMITS=5000 $(BIN)/python -m pytest tests/unit/streaming_sink/upkeep/test_updates_only.py
	STREAMING_SINK_INGEST_FILES=2000 STREAMING_SINK_INGEST_KILLS=30 $(BIN)/python -m pytest tests/spark/test_ingest_kill.py
	STREAMING_SINK_ZONES_KILLS=30 STREAMING_SINK_SPARK=all $(BIN)/python -m pytest tests/spark/test_ingest_kill_zones.py
	STREAMING_SINK_CONNECT_KILLS=30 STREAMING_SINK_SPARK=all $(BIN)/python -m pytest tests/spark/test_ingest_connect.py
	STREAMING_SINK_KAFKA_KILLS=10 $(BIN)/python -m pytest tests/servers/test_kafka_stream.py
	STREAMING_SINK_CATALOG_SECONDS=1800 STREAMING_SINK_CATALOG_WRITERS=4 \
	    $(BIN)/python -m pytest tests/servers/test_catalog_streams.py
	STREAMING_SINK_SPARK=all $(BIN)/python -m pytest tests/spark tests/readers
	STREAMING_SINK_SIPHON_KILLS=30 STREAMING_SINK_SPARK=all $(BIN)/python -m pytest tests/spark/test_siphon_kill.py
	STREAMING_SINK_PYSPARKS=all $(BIN)/python -m pytest tests/spark/test_connect.py
	STREAMING_SINK_SERVERS=all STREAMING_SINK_RACE_COMMITS=50 $(BIN)/python -m pytest tests/servers

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
# PySpark's range here pip fetches the newest release, 450 MB, before it sees that the extras exclude it; and most
# modules of what is installed are never imported, so that those that are get compiled then.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "installing streaming-sink[$*] into $(VENV); the first time this takes a few minutes"
	@$(PIP) install --quiet --use-pep517 --no-compile --editable '.[$*]' 'pyspark<4.2'
	@touch $@

# The tests start dozens of JVMs: they share an archive of Spark's classes.
$(VENV)/spark.jsa: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.jvm

# What the tests wait for, made while the linters, which keep one core busy, run.
.PHONY: fetched
fetched: $(VENV)/spark.jsa
	@$(BIN)/python -m tests.servers.binaries
	@$(BIN)/python -m tests.pysparks

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { \
	    echo "error: no $(PYTHON) found. Install Python 3.10 or newer, or name yours: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "error: $$($(PYTHON) --version) is too old. Install Python 3.10 or newer, or name yours: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	    echo "error: $(PYTHON) cannot make virtual environments. On Debian and Ubuntu: sudo apt-get install -y python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv --upgrade-deps $(VENV) # old releases of pip take a minute to find what fits together
