# make demo    analyze a sample trace (creates a virtual environment first)
# make test    run the tests
# make quick   run the fast tests that need neither TensorFlow nor a browser (about two minutes)
# make lint    style, types, import contracts
# make bench   speed and memory compared with other tools, on a generated trace (minutes)
# make fuzz    all commands on 10,000 damaged profiles (half an hour; COUNT=300 for a short run)
# make oldest  some tests with the lowest versions of the dependencies that pyproject.toml allows
# make newest  some tests with the newest versions
# make docs    regenerate gold files and the generated parts of pages
# make site    the documentation as a site, in build/site
# make dist    wheel and sdist in dist/, tested with every installed Python (EVERY= for the oldest and the newest only)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
COUNT ?= 10000
EVERY ?= --every
# If the machine disables bytecode files, every process compiles all tests again.
export PYTHONDONTWRITEBYTECODE :=
SIDE_BY_SIDE := --numprocesses auto --dist loadfile --no-loadscope-reorder
# uv is much faster than pip, which also compiles modules that are never imported. pip is the fallback.
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

# Material prints an end-of-support notice (May 2027) in each build: see docs/architecture.md.
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
