# `make train` and `make test` need Python 3.11 to 3.13 and nothing else: what they need is installed into .venv, once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

CONFIG ?= deployments/configs/local.yaml
ARGS ?=
BIN := .venv/bin
PACKAGES := flows extras tasks kernels_eval
# A file's tests stay together. Files in their order: the long ones come first, so that no worker ends with one of them alone.
TWO_WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
# Named by content, not by time stamps: a fresh checkout of the same files installs nothing again, a moved folder does.
INSTALLED := .venv/.installed-$(shell { cat pyproject.toml deployments/constraints.txt; pwd; } | cksum | cut -d' ' -f1)

.PHONY: help setup train test long slow quick lint format constraints clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | column -t -s '|' | sed 's/^/  make /'
	@echo '  ARGS passes through:  make train ARGS="--set seed=1"    make test ARGS="-k store -x"'
	@echo '  another interpreter:  make setup PYTHON=/path/to/python3.12'

setup: $(INSTALLED) ## create .venv and install the pinned dependencies (train and test do this themselves)

train: $(INSTALLED) ## the whole loop on this machine, no GPU needed; another run with CONFIG=file.yaml
	$(BIN)/kernelmill train --config $(CONFIG) $(ARGS)

test: $(INSTALLED) ## the tests but the long and the slow ones; nine minutes on two quiet cores
	$(BIN)/python -m pytest -m 'not slow and not long' $(TWO_WORKERS) $(ARGS)

long: $(INSTALLED) ## the whole loop at a small size, and processes that die, hang or wait; half an hour more
	$(BIN)/python -m pytest -m 'long and not slow' $(TWO_WORKERS) $(ARGS)

slow: $(INSTALLED) ## tests that take long or need a machine to themselves, and the property tests on newly drawn examples
	HYPOTHESIS_PROFILE=drawn $(BIN)/python -m pytest -m 'slow or hypothesis' $(ARGS)

quick: $(INSTALLED) ## the tests that take seconds
	$(BIN)/python -m pytest -m 'not slow and not long and not e2e and not gpu' --ignore tests/integration $(ARGS)

lint: $(INSTALLED) ## style, format, types and import rules, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(INSTALLED) ## mend style and format in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

constraints: $(INSTALLED) ## write deployments/constraints.txt anew from what is installed in .venv
	$(BIN)/python .ci/constraints.py

clean: ## remove caches and build output; runs/ and .venv stay
	rm -rf build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	find $(PACKAGES) tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED):
	@python=$$(.ci/find-python $(PYTHON)); \
	if ! [ -x $(BIN)/python ] || ! $(BIN)/python -c 'import os, sys; sys.exit(sys.prefix != os.path.realpath(".venv"))' 2> /dev/null; then \
	  echo "Creating .venv with $$python"; "$$python" -m venv --clear .venv; \
	fi
	@echo 'Installing the pinned dependencies into .venv: a few minutes the first time, seconds afterwards'
	@rm -f .venv/.installed-*
	@$(BIN)/python .ci/install.py .venv/install.log $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c deployments/constraints.txt -e '.[train,dev]'
	@touch $@
