# make demo    analyze a sample trace (makes a virtual environment first)
# make test    run the tests
# make lint    style, types, import contracts
# make bench   speed and memory against peers, on a trace that it makes (minutes)
# make docs    regenerate docs/commands.md and the gold files

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs clean

demo: $(VENV)/.runtime
	$(BIN)/tfperf analyze sample_traces/input_bound

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not timing" --numprocesses auto --maxprocesses 4 --dist loadfile
	$(BIN)/python -m pytest -m timing

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench.py

docs: $(VENV)/.dev
	$(BIN)/python -m pytest tests/test_gold.py tests/test_docs.py --update-gold
	$(BIN)/python -m pytest tests/test_ci_page.py -k limits_and_grammar --update-gold

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e .
	$(BIN)/python -m compileall -q src
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	$(BIN)/python -m compileall -q src
	touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV)
