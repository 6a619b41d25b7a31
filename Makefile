# Two commands do all the set-up: `make demo` and `make test`. Everything runs in .venv, which `make install` creates.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install browser demo test test-all lint bench-speed bench-opacus bench-density bench-mixtures bench-hflow bench-hflow-figures bench-gan bench-tbart bench-accountants bench-detection bench-lifesci audit report-adult results clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev,demo,report]"
	touch $(STAMP)

# The report is tested in a real browser. Where there is none and none can be installed, those tests say that they skip.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no Chromium: tests of the report in a browser will be skipped"

demo: install
	$(BIN)/sfumato demo

# Examples in these folders are compiled as users compile them, those in all others roughly.
STRICT := src/sfumato/privacy src/sfumato/audit

# Two ways of compiling (tests/conftest.py); the second runs even where the first fails.
test: install
	SFUMATO_TESTS=strict $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests $(STRICT); first=$$?; \
	SFUMATO_TESTS=rough $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests src $(STRICT:%=--ignore=%) && exit $$first

# With the tests that show of one more method what another shows of the same code (tests/thorough.py).
test-all:
	SFUMATO_TESTS_ALL=1 $(MAKE) test

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-speed: install
	$(BIN)/python -m benchmarks.speed

# PyTorch and Opacus are needed for this comparison alone and have an environment of their own. PyTorch comes first, so
# that Opacus does not choose it.
TORCH := .venv-torch
$(TORCH)/.installed:
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0
	$(TORCH)/bin/python -m pip install --quiet "opacus==1.6.*"
	touch $(TORCH)/.installed

bench-opacus: install $(TORCH)/.installed
	$(BIN)/python -m benchmarks.speed --export $(TORCH)/spline_flow.npz
	$(TORCH)/bin/python -m benchmarks.opacus_step --check $(TORCH)/spline_flow.npz
	$(BIN)/python -m benchmarks.results

bench-density: install
	$(BIN)/python -m benchmarks.density
	$(BIN)/python -m benchmarks.density --method hflow --tasks lifesci --epsilons 0.5 1 4

# What benchmarks/results/mixtures.json holds already is not fitted again; hours on two cores.
bench-mixtures: install
	$(BIN)/python -m benchmarks.mixtures
	$(BIN)/python -m benchmarks.results

# Hours on two cores; the phase `fit` can run elsewhere (benchmarks/README.md). What is there already is not done again.
bench-hflow: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks.hflow_tables all private-hflow/tables private-hflow/out
	$(BIN)/python -m benchmarks.results

bench-gan: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks.gan_ablation all private-hflow/tables private-hflow/gan
	$(BIN)/python -m benchmarks.results

# Many hours on two cores, for the same reason.
bench-hflow-figures: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks.hflow_figures all private-hflow/tables private-hflow/figures
	$(BIN)/python -m benchmarks.results

# Hours on two cores, for the same reason. Both folders hold what was computed from real rows.
bench-tbart: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks.tbart all private-tbart/tables private-tbart/out
	$(BIN)/python -m benchmarks.results

bench-accountants: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks.accountants
	$(BIN)/python -m benchmarks.results

# Half an hour on two cores; Life Science is needed for the first.
bench-detection: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks.detection figure5
	$(BIN)/python -m benchmarks.detection figure8
	$(BIN)/python -m benchmarks.detection pictures
	$(BIN)/python -m benchmarks.detection_kills -o benchmarks/results/detection_kills.json
	$(BIN)/python -m benchmarks.results

# Hours on two cores. What benchmarks/results/lifesci.json holds already is not fitted again.
bench-lifesci: install
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks.lifesci fit
	$(BIN)/python -m benchmarks.lifesci pictures
	$(BIN)/python -m benchmarks.results

audit: install
	$(BIN)/python -m benchmarks.audit

report-adult: install
	$(BIN)/python -m benchmarks.report
	PYTHONPATH=tests $(BIN)/python -m benchmarks.screenshots private-adult/report.html

results: install
	$(BIN)/python -m benchmarks.results
	$(BIN)/python -m benchmarks.metrics

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis demo-output
