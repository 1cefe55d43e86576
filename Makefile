# Two commands: `make quickstart` trains and translates, `make test` passes the tests. Both install what they need.
PYTHON ?= python3
BIN := .venv/bin
# Text for the recipes, where it lies beside the checkout.
HEEDFUL_DATA ?= $(if $(wildcard ../shared/data),../shared/data,data)
export HEEDFUL_DATA

.PHONY: quickstart test lint bench docs docs-serve clean

quickstart: .venv/installed
	$(BIN)/heedful quickstart

test: .venv/installed-dev
	PYTHON=$(BIN)/python sh tests/on_every_backend.sh

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks.bench train

# The site, in docs/_build/html. Pages with code cells run; set HEEDFUL_DOCS_EXECUTE=0 to leave that out.
docs: .venv/installed-docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

docs-serve: docs
	$(PYTHON) -m http.server --directory docs/_build/html --bind 127.0.0.1 8000

.venv/installed-docs: .venv/installed
	$(BIN)/pip install --quiet --no-compile --editable '.[docs]'
	touch $@

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --no-compile --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv
