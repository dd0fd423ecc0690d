# make demo    analyze a sample trace (makes a virtual environment first)
# make test    run the tests
# make quick   run the tests that need neither TensorFlow nor a browser, nor a processor for long (about two minutes)
# make lint    style, types, import contracts
# make bench   speed and memory against peers, on a trace that it makes (minutes)
# make fuzz    10,000 damaged profiles through all commands (half an hour; COUNT=300 for a short one)
# make oldest  a part of the tests with the lowest versions of the dependencies that pyproject.toml allows
# make newest  the same with the newest
# make docs    write gold files and the generated parts of pages anew
# make site    the documentation as a site, in build/site
# make dist    wheel and sdist in dist/, tried with every Python that is here (EVERY= for the oldest and the newest)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
COUNT ?= 10000
EVERY ?= --every
# On a machine that forbids Python to keep what it compiled, each process would compile all tests.
export PYTHONDONTWRITEBYTECODE :=
SIDE_BY_SIDE := --numprocesses auto --dist loadfile --no-loadscope-reorder
# uv installs in a fraction of the time that pip takes, which compiles all, also what nobody imports. Where it cannot be
# had, pip installs.
define install
	([ -x $(BIN)/uv ] || $(BIN)/python -m pip install --quiet uv) \
	  && $(BIN)/uv pip install --quiet --python $(BIN)/python -e "$(1)" \
	  || $(BIN)/python -m pip install --quiet -e "$(1)"
	$(BIN)/python -m compileall -q src
endef

.PHONY: demo test quick lint bench fuzz oldest newest docs site dist clean

demo: $(VENV)/.runtime
	$(BIN)/tfperf analyze sample_traces/input_bound

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not timing" $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest -m timing $$(grep -rl --include="*.py" "mark\.timing" tests)

quick: $(VENV)/.test
	$(BIN)/python -m pytest -m "not (tensorflow or browser or timing or stress)" --hypothesis-profile quick $(SIDE_BY_SIDE)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench.py

fuzz: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python tests/hostile/fuzz.py $(COUNT)

oldest newest: $(VENV)/.runtime
	PATH="$(abspath $(BIN)):$$PATH" .ci/versions $@

docs: $(VENV)/.dev
	$(BIN)/python -m pytest --update-gold

# Material says with each build that it is kept until May 2027: see docs/architecture.md.
site: $(VENV)/.dev
	$(BIN)/python tools/site_pages.py build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/python tools/check_site.py build/pages build/site

dist: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --quiet --installer uv
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tools/try_wheel.py dist $(EVERY)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml
	$(call install,.)
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml
	$(call install,.[test])
	touch $@ $(VENV)/.runtime

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(call install,.[dev])
	touch $@ $(VENV)/.test $(VENV)/.runtime

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build dist
