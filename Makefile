# Each target sets itself up from a bare clone. `make serve` and `make test` are all you need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml $(wildcard runtime/native/* web/package-lock.json web/*.mjs web/src/* web/src/*/*)

.PHONY: help serve demo test check format fuzz mutants bench interop soak chaos clean
help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(BIN)/python:
	@echo "making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# $(call installing,WHAT): pip says nothing until it is done
define installing
@echo "installing $(1) and what it needs into $(VENV), compiling the kernels and bundling the dashboard:"
@echo "some minutes the first time, as the network and the compiler allow"
endef

$(VENV)/.installed: $(INPUTS) | $(BIN)/python
	$(call installing,starshade)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable .
	@touch $@

$(VENV)/.installed-test: $(INPUTS) | $(BIN)/python
	$(call installing,starshade with its tests' tools)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[test]'
	@touch $@ $(VENV)/.installed

serve: $(VENV)/.installed  ## start the whole product with a real model
	@exec $(BIN)/starshade up $(ARGS)

demo: $(VENV)/.installed  ## attack a worker three ways and see each one refused
	@exec $(BIN)/starshade demo $(ARGS)

test: $(VENV)/.installed-test  ## run every test this machine has the resources for
	@$(BIN)/starshade models pull || echo "make test: no model; tests marked 'model' will be skipped"
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-test  ## format, lint, types, imports, TypeScript types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory types-web

.PHONY: types-web
types-web:
	@if command -v npm >/dev/null; then \
	  cd web && npm ci --ignore-scripts --silent && npx --no-install tsc --noEmit; \
	else echo "make check: no Node.js; TypeScript types not checked"; fi

format: $(VENV)/.installed-test  ## rewrite the Python sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

FUZZ_INPUTS ?= 1000000
FUZZ_PARSERS ?=
fuzz: $(VENV)/.installed-test  ## damaged inputs for every parser of outside bytes; hours
	$(BIN)/python -m tests.fuzz --inputs $(FUZZ_INPUTS) $(addprefix --parser ,$(FUZZ_PARSERS)) $(ARGS)

mutants: $(VENV)/.installed-test  ## would the tests notice faults in what judges Evidence?
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(VENV)/.installed-test  ## this engine and the peers that are installed, in turn
	@$(BIN)/starshade models pull
	$(BIN)/python -m tests.bench $(ARGS)

INTEROP := build/interop
$(INTEROP)/.installed: tests/interop/requirements.txt tests/interop/package.json
	$(PYTHON) -m venv $(INTEROP)/venv
	$(INTEROP)/venv/bin/python -m pip install --disable-pip-version-check --quiet -r tests/interop/requirements.txt
	cp tests/interop/package.json tests/interop/.npmrc $(INTEROP)/
	@if command -v npm >/dev/null; then cd $(INTEROP) && npm install --ignore-scripts --silent; \
	else echo "make interop: no Node.js; the npm packages are not tried"; fi
	@touch $@

interop: $(VENV)/.installed-test $(INTEROP)/.installed  ## other people's clients, unmodified, against the gateway
	$(BIN)/python -m pytest -m interop tests/interop $(ARGS)

SOAK_REQUESTS ?= 100000
soak: $(VENV)/.installed-test  ## short requests with aborts and faults; minutes
	$(BIN)/python -m tests.soak --requests $(SOAK_REQUESTS) $(ARGS)

chaos: $(VENV)/.installed-test  ## crowds of strangers: do others still get their first token in time?
	$(BIN)/python -m tests.chaos $(ARGS)

clean:  ## remove what was built, keep the virtual environment
	rm -rf build dist web/static .mypy_cache .ruff_cache .pytest_cache .hypothesis test-artifacts
