# `make demo` and `make test` work on a fresh machine with Python >= 3.11: they make .venv here and install into it.
PYTHON ?= python3
BIN := .venv/bin
# One process for each core; a file's tests stay together, because they share servers and trained runs.
PYTEST := $(BIN)/python -m pytest -n logical --dist loadfile

.PHONY: reproduce-small demo test test-slow test-all check install clean

demo: .venv/.installed
	$(BIN)/calibrant demo

test: .venv/.installed
	$(PYTEST)

test-slow: .venv/.installed
	$(PYTEST) -m "slow and not gpu"

# Both at once: files whose quick and slow tests share a trained run or a server make it once.
test-all: .venv/.installed
	$(PYTEST) -m "not gpu" --durations=40

check: .venv/.installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/python -m pytest tests/test_layout.py tests/test_types.py

# One table of each of the four sources from nothing, equal to the committed ones; under an hour on two cores.
DATA ?= ../shared/data
WEIGHTS ?= ../shared/weights/tf_efficientnet_lite0.safetensors
reproduce-small: .venv/.installed
	$(BIN)/python bench/reproduce_small.py --data $(DATA) --weights $(WEIGHTS)

install: .venv/.installed

# Installed anew when pyproject.toml changes; source files are used from the checkout.
.venv/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Calibrant needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --progress-bar off --quiet --editable ".[all,dev]"
	@touch $@

clean:
	rm -rf build dist .venv calibrant-demo
