# Everything runs in a virtual environment of its own. It is made on first use, and brought up to date whenever
# pyproject.toml or constraints.txt change. Another Python: make PYTHON=python3.12 VENV=.venv-3.12 test

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

# Without bytecode, every process of the tests compiles the package, the tests and their plugins anew.
unexport PYTHONDONTWRITEBYTECODE

# What `hinge demo` needs, a quarter of it, and what the checks need.
DEMO = sim,cli,report,device,server
EXTRAS = test,sim,cli,report,plot,device,litert,openvino,images,server

# The unit tests: the rest starts processes, needs other programs or takes long.
QUICK = not medium and not slow and not server and not docs and not embedded and not peers

.PHONY: help venv demo test quick lint types imports pytest coverage test-random test-interop test-faults test-fuzz test-embedded test-browser test-pythons pictures bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

venv: $(VENV)/.installed ## Set up the virtual environment

# The stamps .installed-… say when the environment last matched the files they depend on.
$(VENV)/.installed-demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Hinge needs Python 3.11 or newer, not $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11"; exit 1; }
	@echo "Setting up $(VENV) (once; a minute or so)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(DEMO)]'
	@touch $@

$(VENV)/.installed: $(VENV)/.installed-demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),bench]'
	@touch $@

demo: $(VENV)/.installed-demo ## Watch a device and an edge server at work on 10 000 images, and write hinge-demo.html
	$(BIN)/hinge demo

# Two at once: mypy takes half a minute of one core, which the tests need not wait for.
test: $(VENV)/.installed ## Run every check
	@$(MAKE) --no-print-directory -j2 lint types imports pytest

lint: $(VENV)/.installed ## Check style and likely bugs (ruff)
	$(BIN)/ruff check .

types: $(VENV)/.installed ## Check types (mypy, strict)
	$(BIN)/mypy

imports: $(VENV)/.installed ## Check that imports run one way (import-linter)
	$(BIN)/lint-imports

# --dist worksteal: each core begins with files of its own, which load what they need once, and takes from another's
# share when it has run out.
quick: $(VENV)/.installed ## Run the short unit tests alone (half a minute on two cores), to be run while editing
	$(BIN)/pytest -q -n auto --dist worksteal --hypothesis-profile=quick -m '$(QUICK)' tests

# Three workers for two cores: a quarter of the time, tests wait for other processes and for time-outs.
pytest: $(VENV)/.installed ## Run the tests, and the examples in docstrings and documentation
	$(BIN)/pytest -n $$($(BIN)/python -c 'import os; print(os.cpu_count() * 3 // 2)') --dist worksteal

coverage: $(VENV)/.installed ## Run the tests and show which lines they run; the report is in build/coverage
	$(BIN)/pytest -n auto --cov --cov-report=term:skip-covered --cov-report=html

test-random: $(VENV)/.installed ## Run the property tests on other examples every time
	$(BIN)/pytest -q -n auto --hypothesis-profile=random -m 'not docs and not embedded' tests

test-pythons: $(VENV)/.installed ## Run the unit tests on every other Python from 3.11 on that is installed, pyenv's too
	$(BIN)/python tools/pythons.py $(TESTS)

test-interop: $(VENV)/.installed ## Test against Triton, KServe, MLServer and llama.cpp, which it installs outside the checkout
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),interop]'
	$(BIN)/pytest tests/interop

test-faults: $(VENV)/.installed ## Break the network, the disk and the process in every way, with full counts (ten minutes)
	HINGE_FULL=1 $(BIN)/pytest tests/faults

test-fuzz: $(VENV)/.installed ## Feed a million damaged messages, states and models to everything that reads them
	HINGE_FUZZ=1000000 $(BIN)/pytest tests/fuzz

test-embedded: $(VENV)/.installed ## Test the C library with every compiler and emulator (docs/microcontrollers.md lists them)
	HINGE_TOOLCHAINS=all $(BIN)/pytest tests/embedded

test-browser: $(VENV)/.installed ## Look at the report and the live page in headless Chromium (/usr/bin/chromium)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),browser]'
	$(BIN)/pytest tests/browser

pictures: $(VENV)/.installed ## Reproduce the paper at full size; take pictures of figures, page and demo, in results/ and docs/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),browser]'
	$(BIN)/hinge reproduce all --out results
	$(BIN)/python tools/pictures.py results/report.html results
	$(BIN)/python tools/screenshots.py docs

bench: $(VENV)/.installed-bench ## Run all benchmarks, beside Triton, KServe and MLServer, and write their pages (an hour)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),bench,interop]'
	$(BIN)/python -m benchmarks.run --results benchmarks/results

docs: $(VENV)/.installed ## Build the documentation, strictly, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## Remove the virtual environment and everything generated in the checkout
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
