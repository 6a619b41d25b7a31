# Two commands do all the set-up: `make demo` and `make test`. Everything runs in .venv, which `make install` creates.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test lint bench-speed bench-density results clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev,demo,report]"
	touch $(STAMP)

demo: install
	$(BIN)/sfumato demo

test: install
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-speed: install
	$(BIN)/python -m benchmarks.speed

bench-density: install
	$(BIN)/python -m benchmarks.density

results: install
	$(BIN)/python -m benchmarks.results

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis demo-output
