# `make` lists the targets. PYTHON=python3 uses that interpreter as it is; without it a virtual environment is built.
PYTHON ?=
VENV ?= .venv
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BUDGET ?= 60s
SUBJECT ?= impl
DEVICE ?= auto
ONLY ?=
SEED ?=
CASE ?=
FUZZ_ARGS ?=
PROFILE ?= functions
XFAILS ?=
CONFORM_ARGS ?=
GPUS ?=
RAY ?=
SHARD ?=
DIRS ?= reports/campaigns
MERGE_ARGS ?=
NIGHTLY_ARGS ?=
PROVE_ARGS ?=
SCRIPT ?=
SANITIZE_ARGS ?=
OUT ?= build/bench
BENCH_ARGS ?=
TRACE ?=
VLLM ?=
VLLM_PATH ?=
SGLANG ?=
SGLANG_PATH ?=
TRANSFORMERS ?=
TRANSFORMERS_PATH ?=
MLX_LM ?=
MLX_LM_PATH ?=
XLLAMACPP ?=
XLLAMACPP_PATH ?=
LLAMACPP_PATH ?=
MODELS ?=
RELEASES ?=
BISECT_ARGS ?=
REQUESTS ?=
FACTOR ?=
RUNNER ?=
REPLAY_ARGS ?=
PYTEST_ARGS ?=
WORKERS ?=
FILES ?=
SAMPLE ?=
EXAMPLES ?=
AGAIN ?=
PLANTED ?=
SEEDS ?=
HUNT_ARGS ?=

# One shell word, whatever the value contains.
quote = '$(subst ','\'',$(1))'

ifeq ($(strip $(PYTHON)),)
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
else
PY := $(call quote,$(PYTHON))
READY :=
TOOLS :=
endif

GIVEN := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
ifneq ($(GIVEN),)
MISSPELT := $(shell $(if $(PYTHON),$(PY),python3) statecheck/cli/make.py $(firstword $(MAKEFILE_LIST)) $(GIVEN) 2>/dev/null)
$(if $(MISSPELT),$(error $(MISSPELT)))
endif

# OUT is the folder of whatever writes one; mutants have another one by default.
MUTANTS = $(if $(filter file,$(origin OUT)),build/mutants,$(OUT))

# Where make was called: every command line that a run prints runs there.
PYTHON_OF_MAKE = STATECHECK_FOLDER=$(call quote,$(PWD)) $(PY)
RUN = $(PYTHON_OF_MAKE) -m statecheck
CHOICE = --subject $(call quote,$(SUBJECT)) --device $(call quote,$(DEVICE))
# A release that is named is the subject, where no other one is; INSIDE is a module that is put into it.
VARIABLES = VLLM VLLM_PATH SGLANG SGLANG_PATH TRANSFORMERS TRANSFORMERS_PATH MLX_LM MLX_LM_PATH XLLAMACPP XLLAMACPP_PATH
CHOSEN = $(strip $(foreach name,$(VARIABLES),$($(name))))
SEQUENCES = $(if $(TRANSFORMERS)$(TRANSFORMERS_PATH),transformers,$(if $(MLX_LM)$(MLX_LM_PATH),mlx_lm,$(if $(XLLAMACPP)$(XLLAMACPP_PATH)$(LLAMACPP_PATH),llamacpp)))
RELEASED = $(or $(SEQUENCES),$(if $(SGLANG)$(SGLANG_PATH),sglang,vllm$(addprefix +,$(INSIDE))))
RELEASE = $(foreach name,$(VARIABLES),$(if $($(name)),$(name)=$(call quote,$($(name)))))
RELEASED_CHOICE = $(if $(and $(CHOSEN),$(filter file,$(origin SUBJECT))),--subject $(call quote,$(RELEASED)) --device $(call quote,$(DEVICE)),$(CHOICE))
CAMPAIGN_OF_SEQUENCES = $(if $(MODELS),STATECHECK_MODELS=$(call quote,$(MODELS)) )$(RELEASE) $(RUN) fuzz --subject $(SEQUENCES) --budget $(if $(filter file,$(origin BUDGET)),5m,$(call quote,$(BUDGET))) --device cpu \
	$(if $(ONLY),--only $(call quote,$(ONLY))) $(if $(SEED),--seed $(call quote,$(SEED))) $(FUZZ_ARGS)
PIP_INSTALL = $(VENV)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
TARGETS := help test fuzz conform exhaust nightly merge replay bisect sanitize replay-trace bench mutants hunt prove vllm sglang transformers mlx llamacpp compatibility lint types table check-table site wheel ci clean
.PHONY: $(TARGETS)

# `make fuzz BUDGET=5 minutes` would run for five seconds, and then fail on the second word.
STRAY := $(firstword $(filter-out $(TARGETS) $(VENV)/.ready $(VENV)/.tools,$(MAKECMDGOALS)))
UNIT = $(if $(filter s sec% second%,$(STRAY)),s,$(if $(filter m min% minute%,$(STRAY)),m,$(if $(filter h hour%,$(STRAY)),h)))
ifneq ($(STRAY),)
$(error $(STRAY) is no target$(if $(and $(UNIT),$(filter-out file,$(origin BUDGET))),; write BUDGET=$(BUDGET)$(UNIT)); `make` lists the targets)
endif

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  BUDGET=$(BUDGET) SUBJECT=$(SUBJECT) DEVICE=$(DEVICE) ONLY=<expr> SEED=<int> CASE=<case.json> PYTEST_ARGS=<args>'
	@echo '  of nightly: BUDGET=8h GPUS=0,1,2,3|all RAY=<address> SHARD=2/8; of merge: DIRS="shard0 shard1"'
	@echo '  of replay-trace: TRACE=<file.jsonl> REQUESTS=2000 FACTOR=64 RUNNER=V1|V2 REPLAY_ARGS="--blocks 200"'
	@echo '  of bench: ONLY=builders|align SUBJECT=<module> VLLM=0.33.0 OUT=$(OUT)'
	@echo '  of mutants: FILES="impl/align oracle" SAMPLE=200 WORKERS=4 EXAMPLES=25 SHARD=1/4 BUDGET=8m AGAIN=1 OUT=$(MUTANTS)'
	@echo '  of hunt: PLANTED=stateless,builders,align,engines SEEDS=20 WORKERS=16 BUDGET=8m SHARD=1/4 OUT=build/hunt HUNT_ARGS="--limit 60s"'
	@echo '  of vllm: VLLM=0.33.0 or VLLM_PATH=<checkout> BUDGET=5m INSIDE=<module> FUZZ_ARGS=<args>; of sglang: SGLANG=0.5.23 or SGLANG_PATH=<checkout>; of transformers: TRANSFORMERS=5.24.0; of mlx: MLX_LM=0.32.2; of llamacpp: XLLAMACPP=2026.10.11549 or LLAMACPP_PATH=<library>; of compatibility: RELEASES=0.25.1,0.33.0 BUDGET=3m'
	@echo '  of bisect: CASE=<case.json> RELEASES=0.25.1,0.33.0; BISECT_ARGS=--all'
	@echo '  PYTHON=python3 uses that interpreter as it is instead of building $(VENV)'

test: $(TOOLS)  ## every property and the tests of the harness, on all cores; the slow ones, too: PYTEST_ARGS=--slow
	@$(PY) -m pytest -n auto --dist worksteal -q $(PYTEST_ARGS)

fuzz: $(READY)  ## a campaign with fresh randomness: BUDGET, SUBJECT, DEVICE, ONLY, SEED
	@$(RUN) fuzz --budget $(call quote,$(BUDGET)) $(CHOICE) \
	  $(if $(ONLY),--only $(call quote,$(ONLY))) $(if $(SEED),--seed $(call quote,$(SEED))) $(FUZZ_ARGS)

exhaust: $(READY)  ## all inputs of each decision up to a bound that grows until the time is up: BUDGET, SUBJECT, DEVICE, ONLY, WORKERS; on a release: VLLM=0.33.0
	@$(RELEASE) $(RUN) exhaust --budget $(call quote,$(BUDGET)) $(RELEASED_CHOICE) \
	  $(if $(ONLY),--only $(call quote,$(ONLY))) $(if $(WORKERS),--workers $(call quote,$(WORKERS)))

prove: $(TOOLS)  ## lemmas about the kernels' decisions for every int32, each proved or with a case: SUBJECT, ONLY, PROVE_ARGS; on a release: VLLM=0.33.0
	@$(RELEASE) $(PYTHON_OF_MAKE) -m lab.prove --subject $(call quote,$(if $(and $(VLLM)$(VLLM_PATH),$(filter file,$(origin SUBJECT))),$(RELEASED),$(SUBJECT))) \
	  $(if $(ONLY),--only $(call quote,$(ONLY))) $(PROVE_ARGS)

conform: $(READY)  ## the fixed examples of a profile, for a project's own CI: PROFILE, XFAILS, SUBJECT, DEVICE, WORKERS; on a release: VLLM=0.33.0
	@$(RELEASE) $(RUN) conform --profile $(call quote,$(PROFILE)) $(RELEASED_CHOICE) \
	  $(if $(XFAILS),--xfails $(call quote,$(XFAILS))) $(if $(WORKERS),--workers $(call quote,$(WORKERS))) $(CONFORM_ARGS)

nightly: $(READY)  ## a campaign to leave running, with a report: BUDGET (8h here), GPUS, SHARD, RAY, SUBJECT, DEVICE, ONLY; on a release: VLLM=0.33.0
	@$(RELEASE) $(RUN) nightly $(if $(filter-out file,$(origin BUDGET)),--budget $(call quote,$(BUDGET))) \
	  $(RELEASED_CHOICE) $(if $(GPUS),--gpus $(call quote,$(GPUS))) $(if $(RAY),--ray $(call quote,$(RAY))) $(if $(SHARD),--shard $(call quote,$(SHARD))) \
	  $(if $(ONLY),--only $(call quote,$(ONLY))) $(NIGHTLY_ARGS)

merge: $(READY)  ## shards of a campaign into one, with its report: DIRS
	@$(RUN) merge $(DIRS) $(MERGE_ARGS)

sanitize: $(READY)  ## a script of yours, or a case, under the sanitizer: SCRIPT
	$(if $(SCRIPT),,$(error make sanitize needs SCRIPT=path/to/script.py))
	@$(RUN) sanitize $(call quote,$(SCRIPT)) $(SANITIZE_ARGS)

replay: $(READY)  ## one recorded case again, a file or an id of the corpus: CASE, SUBJECT, DEVICE
	$(if $(CASE),,$(error make replay needs CASE=reports/.../case.json, or an id of the corpus))
	@$(RUN) replay $(call quote,$(CASE)) $(CHOICE)

bisect: $(READY)  ## which release of vLLM or SGLang broke a case and which repaired it: CASE, SUBJECT, RELEASES
	$(if $(CASE),,$(error make bisect needs CASE=reports/.../case.json, or an id of the corpus))
	@$(RELEASE) $(RUN) bisect $(call quote,$(CASE)) \
	  --device $(call quote,$(DEVICE)) $(if $(filter file,$(origin SUBJECT)),,--subject $(call quote,$(SUBJECT))) \
	  $(if $(RELEASES),--releases $(call quote,$(RELEASES))) $(BISECT_ARGS)

replay-trace: $(READY)  ## recorded traffic through a release's own engine: VLLM=0.33.0, TRACE, REQUESTS, FACTOR, RUNNER, SUBJECT, SEED
	$(if $(TRACE),,$(error make replay-trace needs TRACE=requests.jsonl))
	@$(RELEASE) $(RUN) replay-trace $(call quote,$(TRACE)) $(RELEASED_CHOICE) \
	  $(if $(REQUESTS),--requests $(call quote,$(REQUESTS))) $(if $(FACTOR),--factor $(call quote,$(FACTOR))) \
	  $(if $(RUNNER),--runner $(call quote,$(RUNNER))) \
	  $(if $(SEED),--seed $(call quote,$(SEED))) $(REPLAY_ARGS)

bench: $(READY)  ## host time of the builders, device time of the copies: ONLY, OUT; beside another: SUBJECT, VLLM=0.33.0
	@$(RELEASE) $(PYTHON_OF_MAKE) -m lab.bench --device $(call quote,$(DEVICE)) --out $(call quote,$(OUT)) \
	  $(if $(VLLM)$(VLLM_PATH),--subject vllm,$(if $(filter file,$(origin SUBJECT)),,--subject $(call quote,$(SUBJECT)))) $(if $(ONLY),--only $(call quote,$(ONLY))) $(BENCH_ARGS)

vllm: $(READY)  ## a campaign on a released vLLM, or a checkout of it: VLLM=0.33.0 or VLLM_PATH=<folder>, INSIDE, BUDGET (5m here), DEVICE, ONLY, SEED
	$(if $(VLLM)$(VLLM_PATH),,$(error make vllm needs VLLM=<version> or VLLM_PATH=<checkout>))
	@$(RELEASE) $(RUN) fuzz --subject $(call quote,$(RELEASED)) \
	  --budget $(if $(filter file,$(origin BUDGET)),5m,$(call quote,$(BUDGET))) --device $(call quote,$(DEVICE)) \
	  $(if $(ONLY),--only $(call quote,$(ONLY))) $(if $(SEED),--seed $(call quote,$(SEED))) $(FUZZ_ARGS)

sglang: $(READY)  ## a campaign on a released SGLang, or a checkout of it: SGLANG=0.5.23 or SGLANG_PATH=<folder>, BUDGET (5m here), ONLY, SEED
	$(if $(SGLANG)$(SGLANG_PATH),,$(error make sglang needs SGLANG=<version> or SGLANG_PATH=<checkout>))
	@$(RELEASE) $(RUN) fuzz --subject sglang \
	  --budget $(if $(filter file,$(origin BUDGET)),5m,$(call quote,$(BUDGET))) --device $(call quote,$(DEVICE)) \
	  $(if $(ONLY),--only $(call quote,$(ONLY))) $(if $(SEED),--seed $(call quote,$(SEED))) $(FUZZ_ARGS)

transformers: $(READY)  ## a campaign on a release of transformers, or a checkout of it: TRANSFORMERS=5.24.0 or TRANSFORMERS_PATH=<folder>, MODELS, BUDGET (5m here), ONLY, SEED
	$(if $(TRANSFORMERS)$(TRANSFORMERS_PATH),,$(error make transformers needs TRANSFORMERS=<version> or TRANSFORMERS_PATH=<folder>))
	@$(CAMPAIGN_OF_SEQUENCES)

mlx: $(READY)  ## a campaign on a release of mlx-lm, or a checkout of it: MLX_LM=0.32.2 or MLX_LM_PATH=<folder>, MODELS, BUDGET (5m here), ONLY, SEED
	$(if $(MLX_LM)$(MLX_LM_PATH),,$(error make mlx needs MLX_LM=<version> or MLX_LM_PATH=<folder>))
	@$(CAMPAIGN_OF_SEQUENCES)

llamacpp: $(READY)  ## a campaign on the llama.cpp of a release of xllamacpp, or on a library: XLLAMACPP=2026.10.11549 or LLAMACPP_PATH=<file>, MODELS, BUDGET (5m here), ONLY, SEED
	$(if $(XLLAMACPP)$(XLLAMACPP_PATH)$(LLAMACPP_PATH),,$(error make llamacpp needs XLLAMACPP=<version> or LLAMACPP_PATH=<library>))
	@$(if $(LLAMACPP_PATH),LLAMACPP_PATH=$(call quote,$(LLAMACPP_PATH)) )$(CAMPAIGN_OF_SEQUENCES)

compatibility: $(READY)  ## campaigns on releases of vLLM, or of SUBJECT=sglang, and the tables of them: RELEASES, BUDGET (3m each here), DEVICE, ONLY, SEED
	@$(RUN) compatibility --write $(if $(filter file,$(origin SUBJECT)),,--subject $(call quote,$(SUBJECT))) $(if $(RELEASES),--releases $(call quote,$(RELEASES))) \
	  $(if $(filter file,$(origin BUDGET)),,--budget $(call quote,$(BUDGET))) --device $(call quote,$(DEVICE)) \
	  $(if $(ONLY),--only $(call quote,$(ONLY))) $(if $(SEED),--seed $(call quote,$(SEED)))

mutants: $(READY)  ## small changes of a subject's source, and which no property notices: FILES, SAMPLE, SUBJECT, WORKERS, EXAMPLES, SHARD, BUDGET, SEED, AGAIN, OUT
	@$(PYTHON_OF_MAKE) -m lab.mutants --subject $(call quote,$(SUBJECT)) --out $(call quote,$(MUTANTS)) $(if $(FILES),--files $(FILES)) \
	  $(if $(SAMPLE),--sample $(call quote,$(SAMPLE))) $(if $(WORKERS),--workers $(call quote,$(WORKERS))) \
	  $(if $(EXAMPLES),--examples $(call quote,$(EXAMPLES))) $(if $(SHARD),--shard $(call quote,$(SHARD))) \
	  $(if $(filter file,$(origin BUDGET)),,--budget $(call quote,$(BUDGET))) $(if $(SEED),--seed $(call quote,$(SEED))) $(if $(AGAIN),--again)

hunt: $(READY)  ## how many examples and CPU seconds it takes to find each planted defect: PLANTED, ONLY, SEEDS, BUDGET, WORKERS, SHARD, OUT
	@$(PY) -m lab.hunt $(if $(PLANTED),--groups $(call quote,$(PLANTED))) $(if $(ONLY),--only $(call quote,$(ONLY))) $(if $(SEEDS),--seeds $(call quote,$(SEEDS))) \
	  $(if $(filter file,$(origin BUDGET)),,--budget $(call quote,$(BUDGET))) $(if $(WORKERS),--workers $(call quote,$(WORKERS))) \
	  $(if $(filter file,$(origin OUT)),,--out $(call quote,$(OUT))) $(HUNT_ARGS)

lint: $(TOOLS)  ## ruff, formatting, import contracts, plain words
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	@$(PY) -m lab.words

types: $(TOOLS)  ## mypy
	@$(PY) -m mypy

table: $(TOOLS)  ## regenerate the tables of README and docs
	@$(PYTHON_OF_MAKE) -m lab.docs --write

check-table: $(TOOLS)  ## fail if a table is out of date, or a citation or link leads nowhere
	@$(PYTHON_OF_MAKE) -m lab.docs --check

site: $(READY)  ## the site of docs/ in build/site; its tools go into build/site-tools (the extra `site`)
	@$(PY) -m lab.site
	@test -x build/site-tools/bin/mkdocs || { $(PY) -m venv build/site-tools && \
	  build/site-tools/bin/python -m pip install -qq --disable-pip-version-check $$($(PY) -c 'import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["site"])'); }
	@NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs build --strict --quiet
	@echo 'site: build/site/index.html'

wheel: $(READY)  ## the package as a wheel in build/wheel, for a project that keeps it in its own repository
	@$(PY) -m pip wheel -qq --disable-pip-version-check --no-deps -w build/wheel .
	@ls build/wheel/statecheck-*.whl

ci: test lint types check-table  ## test, lint, types and check-table; .ci/run has the slow tests, too (PYTEST_ARGS=--slow)

clean:  ## remove the environment and the caches; .hypothesis/ and reports/ stay
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info
	find impl oracle properties statecheck subjects tests lab -name __pycache__ -type d -prune -exec rm -rf {} +

# torch is asked for alone: a CPU build on disk is taken by this exact request only. PyPI's build for Linux brings gigabytes of CUDA and insists
# on triton 3.7.1; the pin of triton refuses it, and torch comes from TORCH_INDEX instead. To run on a GPU, bring an interpreter that has torch
# and triton: PYTHON=python3. What torch does not need is installed meanwhile; the last request finds all in place, or says what is missing.
$(VENV)/.ready: constraints.txt pyproject.toml
	@echo 'statecheck: setting up $(VENV) (once, about half a minute)'
	@for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	done && $$python -m venv $(VENV) || { echo 'statecheck: needs Python 3.11 or newer, with venv' >&2; exit 1; }
	@core=$$($(NEEDED) dependencies); \
	others=$$(printf '%s\n' $$core | grep -v -e torch -e jinja2); \
	$(PIP_INSTALL) $$others 2>/dev/null & \
	$(PIP_INSTALL) torch==2.13.0 2>/dev/null || $(PIP_INSTALL) --extra-index-url $(TORCH_INDEX) torch==2.13.0; \
	wait; $(PIP_INSTALL) $$core
	@touch $@

NEEDED = $(VENV)/bin/python -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*(one for name in sys.argv[1:] for one in (p | p["optional-dependencies"])[name]))'

$(VENV)/.tools: $(VENV)/.ready
	@echo 'statecheck: installing what tests, lint and proofs need (once)'
	@$(PIP_INSTALL) $$($(NEEDED) dev prove)
	@touch $@
