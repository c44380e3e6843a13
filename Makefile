# Needs Python >= 3.10, git and GNU make >= 3.81 (what macOS ships). Everything is installed into .venv.
PYTHON ?= python3
PORT ?= 8000

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
HTML := _build/html
BUILT := _build/.built
PAGES := $(shell find book notebooks results src tools -type f ! -name '*.tmp' ! -path '*/__pycache__/*' 2>/dev/null | tr ' ' '?')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help book html test notebooks lint lock benchmarks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

book: notebooks ## set up, run the notebooks that are out of date, build the book, serve it on localhost
	@$(MAKE) --no-print-directory html
	@$(PY) tools/serve.py $(HTML) --port $(PORT)

html: $(BUILT) ## build the book from the committed notebooks, warnings as errors

# --all: on a second, incremental build Sphinx would not repeat its warnings.
$(BUILT): $(INSTALLED) _config.yml _toc.yml $(PAGES)
	$(PY) tools/build_scorecard.py
	$(VENV)/bin/jupyter-book build --all -W -n --keep-going .
	@touch $@

notebooks: $(INSTALLED) ## execute the notebooks that are out of date into book/
	$(PY) tools/build_notebooks.py

test: lint html ## run the whole suite: style, unit tests, notebooks at the smoke preset, browser
	@$(PY) tools/find_browser.py || $(PY) -m playwright install chromium
	$(PY) tools/smoke_notebooks.py
	CONCEPTBIND_WIDGETS=live CONCEPTBIND_RESULTS="$(CURDIR)/build/smoke/results" \
	$(PY) -m pytest --nbval-lax --nbval-sanitize-with tests/notebooks/sanitize.cfg tests build/smoke

lint: $(INSTALLED) ## check style and formatting
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

benchmarks: $(INSTALLED) ## measure every claim about speed and memory, next to its baseline
	@for script in benchmarks/*.py; do test "$$script" = benchmarks/common.py && continue; \
	echo "$$script"; $(PY) "$$script" || exit 1; done

lock: ## resolve requirements.lock again; UPGRADE=1 takes the newest versions
	@"$(PYTHON)" -m venv build/lock
	@build/lock/bin/python -m pip install --quiet uv
	build/lock/bin/uv pip compile requirements.txt --output-file requirements.lock --universal \
	  --python-version 3.10 --no-annotate --no-emit-package conceptbind --custom-compile-command "make lock" \
	  $(if $(UPGRADE),--upgrade)

clean: ## remove what was built; .venv and the executed notebooks stay
	rm -rf _build build .pytest_cache .ruff_cache .hypothesis

$(INSTALLED): requirements.txt requirements.lock pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { echo "No '$(PYTHON)' found: install Python 3.10 or newer, \
	or name one: make PYTHON=/path/to/python3"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is \
	needed, '$(PYTHON)' is `"$(PYTHON)" -V 2>&1`. Name another: make PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "'$(PYTHON)' cannot make virtual \
	environments. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@test -x $(PY) || "$(PYTHON)" -m venv --clear $(VENV)
	$(PY) -m pip install --disable-pip-version-check --quiet -r requirements.txt -c requirements.lock
	@touch $@
