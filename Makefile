# make demo    analyze a sample trace (makes a virtual environment first)
# make test    run the tests
# make quick   run the tests that need neither TensorFlow nor a browser (a minute)
# make lint    style, types, import contracts
# make bench   speed and memory against peers, on a trace that it makes (minutes)
# make docs    write gold files and the generated parts of pages anew

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist loadfile

.PHONY: demo test quick lint bench docs clean

demo: $(VENV)/.runtime
	$(BIN)/tfperf analyze sample_traces/input_bound

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not timing" $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest -m timing

quick: $(VENV)/.test
	$(BIN)/python -m pytest -m "not (tensorflow or browser or timing)" --hypothesis-profile quick $(SIDE_BY_SIDE)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench.py

docs: $(VENV)/.dev
	$(BIN)/python -m pytest --update-gold

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e .
	$(BIN)/python -m compileall -q src
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[test]"
	$(BIN)/python -m compileall -q src
	touch $@ $(VENV)/.runtime

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	$(BIN)/python -m compileall -q src
	touch $@ $(VENV)/.test $(VENV)/.runtime

clean:
	rm -rf $(VENV)
