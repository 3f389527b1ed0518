.DEFAULT_GOAL := help
# Python 3.11 if there is one, because PyBullet has no wheels for later versions; otherwise the newest
# Python that can make a virtual environment.
PYTHON ?= $(or $(shell for python in python3.11 python3.14 python3.13 python3.12; do \
	$$python -c 'import ensurepip' 2>/dev/null && echo $$python && break; done),python3)
BIN := .venv/bin
INSTALL := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt
# Distribute whole files, because the tests of a file share trained runs.
TESTS := $(BIN)/pytest -n auto --dist loadfile

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# pip first, because --group needs pip 25.1. Then torch alone: pip takes the pinned build, and no later
# package asks for another one.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) pip
	$(INSTALL) torch
	$(INSTALL) --group dev -e '.[pandas,video,pygame,tune,slurm,hub,minari]'
	@touch $@

setup: .venv/ready  ## make .venv with the pinned versions and the tools of developers

run: .venv/ready  ## watch a trained agent and train one (four minutes)
	@$(BIN)/pac4sac demo

run-full: .venv/ready  ## the same with the paper's settings (at most ten minutes of training)
	@$(BIN)/pac4sac demo --full

test: check  ## formatting, lint, types and the default test suite (under ten minutes on two cores)
	$(TESTS)

test-slow: .venv/ready  ## learning tests (minutes each)
	$(BIN)/pytest -m slow

test-fuzz: .venv/ready  ## damaged files and wrong command lines: CASES=2000 of each, SEED=0
	PAC4SAC_FUZZ_CASES=$(or $(CASES),2000) PAC4SAC_FUZZ_SEED=$(or $(SEED),0) $(BIN)/pytest -rP tests/fuzz

test-kills: .venv/ready  ## kill and resume trainings of all algorithms: KILLS=200 times, SEED=0
	$(BIN)/python tools/kills.py --kills $(or $(KILLS),200) --seed $(or $(SEED),0)

test-ray: .venv/ready  ## a study on a Ray cluster of two nodes on this machine
	$(INSTALL) -e '.[ray]'
	$(BIN)/pytest -m ray tests/ray

test-browser: .venv/ready  ## the report and the docs site in headless Chromium
	@{ command -v chromedriver && { command -v chromium || command -v google-chrome; }; } >/dev/null || { \
	echo "test-browser needs Chromium and its driver; on Debian: apt-get install chromium chromium-driver"; exit 2; }
	$(INSTALL) --group browser --group docs
	$(BIN)/pytest -m browser tests/browser

report: .venv/ready  ## docs/results, the tables in docs/findings.md and the shipped curves, from results/
	$(BIN)/pac4sac report results --paper --out docs/results --pages
	cp docs/results/figures/overview.svg docs/pac4sac-and-sac.svg
	$(BIN)/python tools/findings.py
	$(BIN)/python tools/ship.py curves results

# Without two packages: uv takes the place of pip, and one pinned version is not for all Pythons.
lock:  ## uv.lock with the versions of constraints.txt, for `uv sync`; needs uv
	uv lock $$(grep == constraints.txt | grep -v -e ^pip= -e ^pymdown | sed 's/^/--upgrade-package /')

docs-files: .venv/ready  ## docs/files.md, from the docstrings of all modules
	$(BIN)/python tools/file_table.py

# The variable hides a note about the theme's next version; the version used here is pinned.
docs: .venv/ready  ## the docs site: open site/index.html, no server or network needed
	$(INSTALL) --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# One environment per library, torch first. The versions are those of docs/performance.md.
.bench/%/ready: benchmarks/requirements-%.txt
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/pip install -q --disable-pip-version-check "$$(grep ^torch= $<)"
	.bench/$*/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

bench-setup: .bench/sb3/ready .bench/sbx/ready  ## install the libraries that benchmarks compare with

bench: .venv/ready  ## all benchmarks, into .bench/*.json (hours on two cores)
	$(BIN)/python benchmarks/tasks.py --out .bench/tasks.json
	$(BIN)/python benchmarks/step.py --out .bench/step.json
	$(BIN)/python benchmarks/scaling.py --out .bench/scaling.json
	$(BIN)/python benchmarks/end_to_end.py --out .bench/end_to_end.json
	$(BIN)/python benchmarks/short_trainings.py --out .bench/short_trainings.json

bench-quick: .venv/ready  ## ratios to stored ones; fails above 1.25 (five minutes)
	$(BIN)/python benchmarks/quick.py

check: .venv/ready  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and caches
	rm -rf .venv .bench site .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help setup run run-full test test-slow test-fuzz test-kills test-ray test-browser report lock \
	docs docs-files bench-setup bench bench-quick check format clean
