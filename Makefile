# Everything runs from .venv, which `setup` makes; nothing is installed outside this folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Where bytecode may not be written, every process of a test run compiles all tests and sources anew.
unexport PYTHONDONTWRITEBYTECODE
# Run once per command that needs Spark: fails with instructions where there is no Java.
JAVA = export JAVA_HOME="$$(scripts/java_home.sh $(BIN)/python $(VENV)/java)"
# The tests' JVMs start from an archive of Spark's classes, in half the time; without it where it cannot be made.
ARCHIVE := $(VENV)/spark-classes.jsa
# Tests run in so many processes, each with a Spark session of its own: most of a test is waiting for one thing at a time.
PROCESSES ?= 3
SECONDS ?= 3600
PYTEST = $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal
# The report's tests open it in a browser: found, or fetched once into .venv.
CHROMIUM = export CHROMIUM="$$(scripts/chromium.sh $(VENV)/chromium $(BIN)/python)"

.PHONY: help setup kernels demo test test-unit test-behaviour test-spark test-crash test-lab test-long soak test-versions check bench clean docs docs-serve
.DEFAULT_GOAL := help

help: ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## make .venv with all that is needed

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Tailrace needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@echo "compiling the kernels (once; they are kept) ..."
	@$(BIN)/tailrace warm
	@touch $@

# Sources of kernels change more often than pyproject.toml. Without this, every process of a test run would compile them.
kernels: setup
	@$(BIN)/tailrace warm

demo: setup ## a windowed query live, then the same stream through Spark's RocksDB store
	@$(JAVA) && $(BIN)/tailrace demo

check: setup ## lint, format, types, import law, unused code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/import_law.py
	$(BIN)/python scripts/unused.py

test: setup kernels check $(ARCHIVE) ## all checks and all tests but the long ones
	@$(JAVA) && $(CHROMIUM) && $(PYTEST) -m "not long"

test-unit: setup kernels ## the inner loop: in under two minutes, without Spark or Java
	$(PYTEST) -m "unit and not long" tests/unit

test-behaviour: setup kernels ## one suite for all stores, operators and aggregates, and the simulated commits; neither Spark nor Java
	$(PYTEST) -m "(behaviour or simulation) and not long" tests/behaviour tests/simulation

test-spark: setup kernels $(ARCHIVE) ## queries through the public interface, on one machine and on clusters
	@$(JAVA) && $(PYTEST) -m "(spark or cluster or examples or docs) and not long"

test-crash: setup kernels $(ARCHIVE) ## crashes, kills and restarts
	@$(JAVA) && $(PYTEST) -m "crash and not long" tests/crash

test-lab: setup kernels $(ARCHIVE) ## benchmarks and workloads, small, and the report in a browser
	@$(JAVA) && $(CHROMIUM) && $(PYTEST) -m "lab and not long" tests/lab

test-long: setup kernels check $(ARCHIVE) ## all tests, with many more examples and kills
	@$(JAVA) && $(CHROMIUM) && TAILRACE_TEST_LONG=1 $(PYTEST)

soak: setup kernels $(ARCHIVE) ## an hour (SECONDS=3600) of kills and of bad links, on a cluster of network namespaces: as root
	@$(JAVA) && $(BIN)/python tests/cluster/soak.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

test-versions: setup ## the core of the Spark tests on every supported PySpark and Python; writes docs/reference/support-matrix.md
	@$(JAVA) && $(BIN)/python scripts/test_versions.py --write

docs: setup ## the documentation as a site, in build/site: strict, links checked, no network needed to read it
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict --quiet

docs-serve: setup ## the same at http://127.0.0.1:8000, built again when a page changes
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs serve

$(ARCHIVE): $(STAMP) tests/support/class_archive.py tests/support/LocalFiles.java
	@$(JAVA) && echo "archiving Spark's classes for the tests (once) ..." \
	    && PYTHONPATH=tests $(BIN)/python -m support.class_archive $@ >$@.log 2>&1 || echo "not archived, so every JVM of the tests starts more slowly; see $@.log: $$(tail -n 1 $@.log)"

bench: setup ## the benchmarks at full size: takes minutes, and wants the machine to itself
	@$(JAVA) && $(BIN)/tailrace bench rmw && $(BIN)/tailrace bench overhead

clean: ## remove what make made, .venv too
	rm -rf $(VENV) .venv-versions .pytest_cache .hypothesis .mypy_cache .ruff_cache build dist spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
