# Two commands: `make quickstart` trains and translates, `make test` passes the tests. Both install what they need.
PYTHON ?= python3
BIN := .venv/bin
# Text for the recipes, where it lies beside the checkout.
HEEDFUL_DATA ?= $(if $(wildcard ../shared/data),../shared/data,data)
export HEEDFUL_DATA

.PHONY: quickstart test lint bench clean

quickstart: .venv/installed
	$(BIN)/heedful quickstart

test: .venv/installed-dev
	PYTHON=$(BIN)/python sh tests/on_every_backend.sh

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-dev
	$(BIN)/heedful bench train

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --no-compile --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv
