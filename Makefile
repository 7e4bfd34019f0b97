# Hoot's commands. GNU make and a Python 3.11 or newer with its venv module are all they need: no Java, no root.
SHELL := /bin/sh
.DEFAULT_GOAL := help

# Interpreters to try in turn for the virtual environment; `make venv PYTHON=/path/to/python` names one.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

TEST_ARGS ?=
WORKERS ?= auto
DEMO_ARGS ?=
BENCH_ARGS ?= live --with-floor
RECORD ?=
SEEDS ?= 1000
FIRST ?= 0
MINUTES ?= 3
SEED ?=
RUNS ?= 1
NIGHTLY_RUNS ?= 5
HBASE_ARGS ?=

# Tests, bench and demo start Python hundreds of times. Where the environment forbids bytecode files, each of these would
# compile all of Hoot anew, which is half of what a short command costs; an empty value allows them.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help venv check format test test-slower nightly simulate test-chaos chaos hbase hbase-stop test-hbase demo bench build clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

venv: $(STAMP) ## make .venv with everything in it (once; again when pyproject.toml changes)

$(STAMP): pyproject.toml
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		chosen=; \
		for python in $(PYTHON); do \
			if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
			then chosen="$$python"; break; fi; \
		done; \
		if [ -z "$$chosen" ]; then \
			echo "make: Hoot needs Python 3.11 or newer with its venv module; tried: $(PYTHON)." >&2; \
			echo "make: name one with 'make venv PYTHON=/path/to/python3.11'" \
				"(on Debian and Ubuntu the venv module is the package python3-venv)." >&2; \
			exit 1; \
		fi; \
		echo "Making $(VENV) with $$("$$chosen" --version)"; \
		"$$chosen" -m venv --clear $(VENV); \
	fi
	@echo "Installing Hoot and its tools into $(VENV) (PySpark is some 460 MB, downloaded once)"
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $@

check: $(STAMP) ## lint, format, types, layers, duplicates
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/tools/duplicates.py delivery subscriber

format: $(STAMP) ## apply the formatter and the linter's safe fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# In the order of the folders the many short unit tests come last, and no worker has a long file left when the others end.
# How many workers there are and what is not to be divided between them stands in tests/workers.py.
test: $(STAMP) ## every test but the nightly ones, several files at a time (TEST_ARGS="-k window", WORKERS=0)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --no-loadscope-reorder $(TEST_ARGS)

# Every Python of the run begins with tests/slower/sitecustomize.py.
test-slower: $(STAMP) ## the same in a world where watches, flushes and threads come late, each by another time (12 minutes)
	PYTHONPATH="$(CURDIR)/tests/slower$${PYTHONPATH:+:$$PYTHONPATH}" $(MAKE) test TEST_ARGS="--timeout 300 $(TEST_ARGS)"

nightly: $(STAMP) ## the long runs: many seeds and examples, random kills, and five seeds of chaos for three minutes each
	$(BIN)/python -m pytest -m nightly --timeout 3600 $(TEST_ARGS)
	$(BIN)/python -m pytest -m "hypothesis and not hbase" --hypothesis-profile nightly --timeout 3600 $(TEST_ARGS)
	$(BIN)/python -m tests.chaos --minutes 3 --seed 100 --runs $(NIGHTLY_RUNS)

simulate: $(STAMP) ## a simulated region under faults, seed after seed (SEEDS=1000 FIRST=0)
	$(BIN)/python -m tests.simulation --first $(FIRST) --seeds $(SEEDS)

test-chaos: $(STAMP) ## three hosts and a ZooKeeper ensemble through the rows of the fault table (3 minutes)
	$(BIN)/python -m pytest -m chaos $(TEST_ARGS)

chaos: $(STAMP) ## real hosts, ZooKeepers and subscribers under random faults, checked (MINUTES=3 SEED=7 RUNS=1)
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --runs $(RUNS) $(if $(SEED),--seed $(SEED))

hbase: $(STAMP) ## a real HBase in the background, from Maven's jars (HBASE_ARGS=--distributed)
	$(BIN)/python -m tests.hbase start $(HBASE_ARGS)

hbase-stop: $(STAMP) ## end it
	$(BIN)/python -m tests.hbase stop

test-hbase: $(STAMP) ## the tests on a real HBase, which they boot and end themselves
	$(BIN)/python -m pytest -m "hbase and not nightly" --timeout 600 $(TEST_ARGS)

demo: $(STAMP) ## 336,776 flights through kills and restarts, archived, replayed, audited (DEMO_ARGS="--events 40000")
	$(BIN)/hoot demo $(DEMO_ARGS)

bench: $(STAMP) ## measure, against the last recorded run (BENCH_ARGS="latency --rate 1000" RECORD=1)
	$(BIN)/python -m tests.bench.history $(if $(RECORD),--record) $(BENCH_ARGS)

build: $(STAMP) ## source archive and wheel in dist/
	rm -rf dist
	$(BIN)/python -m build

clean: ## remove what was built and cached, but not .venv
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find delivery subscriber tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
