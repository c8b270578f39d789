# `make` lists the targets. Everything else is a command or an option of statecheck: .venv/bin/python -m statecheck --help
# PYTHON=python3 uses that interpreter as it is; without it a virtual environment is built in .venv.
PYTHON ?=
VENV ?= .venv
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PYTEST_ARGS ?=

# One shell word, whatever the value contains.
quote = '$(subst ','\'',$(1))'
# The option of a variable that is set here or in the environment.
option = $(if $($(2)),--$(1) $(call quote,$($(2))))

ifeq ($(strip $(PYTHON)),)
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
else
PY := $(call quote,$(PYTHON))
endif

CAMPAIGN = $(call option,budget,BUDGET) $(call option,subject,SUBJECT) $(call option,device,DEVICE) $(call option,only,ONLY)
PIP_INSTALL = $(VENV)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt
LISTED = $(PY) -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*(one for name in sys.argv[1:] for one in (p | p["optional-dependencies"])[name]))'

.DEFAULT_GOAL := help
.PHONY: help test fuzz nightly lint types table check-table docs release clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

test: $(TOOLS)  ## every property and the tests of the harness, on all cores; the slow ones, too: PYTEST_ARGS=--slow
	@$(PY) -m pytest -n auto --dist worksteal -q --durations=10 $(PYTEST_ARGS)

fuzz: $(READY)  ## a campaign with fresh randomness: BUDGET=60s SUBJECT=impl DEVICE=cuda ONLY=<expr> SEED=<int>
	@$(PY) -m statecheck fuzz $(CAMPAIGN) $(call option,seed,SEED)

nightly: $(READY)  ## a campaign to leave running: BUDGET=8h GPUS=0,1 or all SHARD=2/8 SUBJECT DEVICE ONLY
	@$(PY) -m statecheck nightly $(CAMPAIGN) $(call option,gpus,GPUS) $(call option,shard,SHARD)

lint: $(TOOLS)  ## ruff, formatting, import contracts, plain words
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	@$(PY) -m lab.words

types: $(TOOLS)  ## mypy
	@$(PY) -m mypy

table: $(TOOLS)  ## regenerate the tables of README and docs
	@$(PY) -m lab.docs --write

check-table: $(TOOLS)  ## fail if a table is out of date, or a citation or link leads nowhere
	@$(PY) -m lab.docs --check

docs: $(READY)  ## the site of docs/ in build/site; its tools go into build/site-tools
	@$(PY) -m lab.site
	@test -x build/site-tools/bin/mkdocs || { $(PY) -m venv build/site-tools && \
	  build/site-tools/bin/python -m pip install -qq --disable-pip-version-check $$($(LISTED) site); }
	@NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs build --strict --quiet

release: $(READY)  ## wheel and source distribution in build/release, verified in new environments, and the notes of the tag
	@$(PY) -m lab.release

clean:  ## remove the environment and the caches; .hypothesis/ and reports/ stay
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info

# torch is asked for alone: a CPU build on disk is taken by this exact request only. PyPI's build for Linux brings gigabytes of CUDA and insists
# on triton 3.7.1; the pin of triton refuses it, and torch comes from TORCH_INDEX instead. What torch does not need is installed meanwhile.
$(VENV)/.ready: constraints.txt pyproject.toml
	@echo 'statecheck: setting up $(VENV) (once, about half a minute)'
	@for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	done && $$python -m venv $(VENV) || { echo 'statecheck: needs Python 3.11 or newer, with venv' >&2; exit 1; }
	@core=$$($(LISTED) dependencies kernels); $(PIP_INSTALL) $$(printf '%s\n' $$core | grep -v -e torch -e jinja2) 2>/dev/null & \
	$(PIP_INSTALL) torch==2.13.0 2>/dev/null || $(PIP_INSTALL) --extra-index-url $(TORCH_INDEX) torch==2.13.0; \
	wait; $(PIP_INSTALL) $$core
	@touch $@

$(VENV)/.tools: $(VENV)/.ready
	@echo 'statecheck: installing what tests and lint need (once)'
	@$(PIP_INSTALL) $$($(LISTED) dev prove)
	@touch $@
