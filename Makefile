VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
PHOENIX = .venv-phoenix
PHOENIX_STAMP = $(PHOENIX)/.installed

.PHONY: help demo test check crash-sweep soak phoenix record bench

help:
	@echo "make demo         kill a run, resume it, fork it: no key, no network"
	@echo "make test         the tests"
	@echo "make check        ruff, mypy and the tests"
	@echo "make crash-sweep  kill a run of 20 turns x 3 tools at every file operation (minutes)"
	@echo "make soak         ten minutes of random kills on every store, races and stops of 200 rounds (AGENTOR_SOAK_S)"
	@echo "make phoenix      traces in a real Arize Phoenix, with a screenshot for the docs (minutes)"
	@echo "make record       record the cassettes anew: providers with a key, else emulators and a local model"
	@echo "make bench        size and cost per turn"

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/agentor demo

test: $(STAMP)
	$(BIN)/python -m pytest -q -n 2

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2

crash-sweep: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 -m sweep tests/crash

soak: $(STAMP)
	$(BIN)/python -m pytest -rP -m soak tests
	AGENTOR_STORE_EXAMPLES=10000 $(BIN)/python -m pytest -q tests/contract/test_store_machine.py

# Phoenix has a hundred dependencies; none of them may get between agentor's own.
$(PHOENIX_STAMP):
	test -x $(PHOENIX)/bin/python || $(PYTHON) -m venv $(PHOENIX)
	$(PHOENIX)/bin/python -m pip install --quiet --disable-pip-version-check 'arize-phoenix~=20.26' playwright
	touch $(PHOENIX_STAMP)

phoenix: $(STAMP) $(PHOENIX_STAMP)
	AGENTOR_PHOENIX=$(CURDIR)/$(PHOENIX)/bin/python $(BIN)/python -m pytest -q -rs -m acceptance tests/acceptance

record: $(STAMP)
	$(BIN)/python tests/record.py

bench: $(STAMP)
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/listing.py
	$(BIN)/python benchmarks/tracing.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/group_commit.py sqlite
	$(BIN)/python benchmarks/group_commit.py postgres
