.DEFAULT_GOAL := help
# The newest Python that has everything is 3.11, as PyBullet has no wheel for a later one; where there is none, the
# newest that can make an environment.
PYTHON ?= $(or $(shell for python in python3.11 python3.14 python3.13 python3.12; do \
	$$python -c 'import ensurepip' 2>/dev/null && echo $$python && break; done),python3)
BIN := .venv/bin
# By file, since tests of one file share what they trained.
TESTS := $(BIN)/pytest -n auto --dist loadfile

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# torch first and alone: pip takes the pinned build, and nothing after it asks for another.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,pandas,video]'
	@touch $@

setup: .venv/ready  ## make .venv with the pinned versions

run: .venv/ready  ## watch a trained agent, train one live, and see it beside archived runs: four minutes
	@$(BIN)/pac4sac demo

run-full: .venv/ready  ## the same with the paper's settings, ten minutes of training at most
	@$(BIN)/pac4sac demo --full

test: check  ## formatting, lint, types and the default test suite (under ten minutes on two cores)
	$(TESTS)

test-slow: .venv/ready  ## learning tests, minutes each
	$(BIN)/pytest -m slow

test-fuzz: .venv/ready  ## damaged files and malformed command lines, CASES of each (2000) from the seed SEED (0) on
	PAC4SAC_FUZZ_CASES=$(or $(CASES),2000) PAC4SAC_FUZZ_SEED=$(or $(SEED),0) $(BIN)/pytest -rP tests/fuzz

test-ray: .venv/ready  ## a study on a Ray cluster of two nodes on this machine
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/pytest -m ray tests/ray

test-browser: .venv/ready  ## the report and the docs site in headless Chromium
	@{ command -v chromedriver && { command -v chromium || command -v google-chrome; }; } >/dev/null || { \
	echo "test-browser needs Chromium and its driver; on Debian: apt-get install chromium chromium-driver"; exit 2; }
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[browser,docs]'
	$(BIN)/pytest -m browser tests/browser

report: .venv/ready  ## tables and figures in docs/results, the verdicts in docs/findings.md and the shipped curves, from results/
	$(BIN)/pac4sac report results --out docs/results --pages
	cp docs/results/figures/overview.svg docs/pac4sac-and-sac.svg
	$(BIN)/python tools/findings.py
	$(BIN)/python tools/ship.py curves results

# The variable silences a note on the successor of the theme, which is pinned here.
docs: .venv/ready  ## the docs site, in site/: open site/index.html, it needs neither a server nor a network
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Each library apart, torch first here too; the versions are those that the figures in docs/performance.md are of.
.bench/%/ready: benchmarks/requirements-%.txt
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/pip install -q --disable-pip-version-check "$$(grep ^torch= $<)"
	.bench/$*/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

bench-setup: .bench/sb3/ready .bench/sbx/ready  ## install the libraries that the benchmarks compare with

bench: .venv/ready  ## all benchmarks (half an hour on two cores); what they measure goes to .bench/*.json
	$(BIN)/python benchmarks/tasks.py --out .bench/tasks.json
	$(BIN)/python benchmarks/step.py --out .bench/step.json
	$(BIN)/python benchmarks/scaling.py --out .bench/scaling.json
	$(BIN)/python benchmarks/end_to_end.py --out .bench/end_to_end.json

check: .venv/ready  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and caches
	rm -rf .venv .bench site .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help setup run run-full test test-slow test-fuzz test-ray test-browser report docs check format clean
