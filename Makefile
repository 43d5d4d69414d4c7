# cputune: what a newcomer types. `make help` lists it.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
# GCC before 12.4 and 13.3 drops the stores to an AMX tile configuration (GCC bug 114098): llama.cpp built so
# crashes on the first prompt. Without that optimization the build is right; pip's cache may hold a wrong one.
UNSOUND_GCC := $(shell $${CXX:-c++} -dumpfullversion 2>/dev/null | \
	awk -F. '$$1 < 12 || ($$1 == 12 && $$2 < 4) || ($$1 == 13 && $$2 < 3) { print $$0 }')
SOUND_FLAGS := $(if $(UNSOUND_GCC),CFLAGS="$(CFLAGS) -fno-dse" CXXFLAGS="$(CXXFLAGS) -fno-dse")
LLAMA_CPP := $(SOUND_FLAGS) $(INSTALL) $(if $(UNSOUND_GCC),--no-cache-dir) llama-cpp-python
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
ARGS ?=
WHEEL := build/wheel
# What needs package data, the command line and the store; the rest does not care where it was installed from.
WHEEL_TESTS := tests/profiles $(addprefix tests/tuner/cli/test_cli_,answers.py db.py help.py) \
	tests/tuner/export tests/service/test_web_files.py

# One engine a process, in tests too: their thread pools and runtimes don't bear each other.
ALONE := tests/tuner/engines/onnxruntime tests/tuner/engines/openvino

.DEFAULT_GOAL := help
.PHONY: help search test test-torch test-wheel lint format system-deps fuzz bench bench-serve chaos peers clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

search: $(VENV)/.demo ## install cputune with the demo model and search this machine (ARGS='--budget 60s')
	@$(BIN)/cputune search $(ARGS)

test: $(VENV)/.dev ## run the tests (ARGS='tests/probes -x' for a part)
	@$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(addprefix --ignore=,$(ALONE)))
	@$(if $(ARGS),,set -e; for part in $(ALONE); do $(BIN)/python -m pytest $$part; done)

test-torch: $(VENV)/.torch ## run the tests that need PyTorch (its CPU build: see README.md)
	@$(BIN)/python -m pytest -m torch $(ARGS)

test-wheel: $(VENV)/.dev ## run a part of the tests against the built wheel (ARGS=tests/tuner for another part)
	@rm -rf build && mkdir -p $(WHEEL)/run
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir $(WHEEL) .
	@$(PIP) install --quiet --no-deps --target $(WHEEL)/site $(WHEEL)/*.whl
	@cp -r tests pyproject.toml $(WHEEL)/run
	@cd $(WHEEL)/run && export PYTHONPATH=$(abspath $(WHEEL))/site:$(abspath $(WHEEL))/run \
		&& $(abspath $(BIN))/python -P -c 'import tuner; assert "$(WHEEL)/site" in tuner.__file__, tuner.__file__' \
		&& $(abspath $(BIN))/python -P -m pytest $(if $(ARGS),$(ARGS),$(WHEEL_TESTS))

lint: $(VENV)/.dev ## ruff, mypy (strict), import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.dev ## rewrite the code in its style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

system-deps: ## install what tests and benchmarks need from Debian's packages
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; }
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends chromium; }
	@command -v wrk >/dev/null \
		|| { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq wrk; }

fuzz: $(VENV)/.dev ## 10,000 mutated model headers (ARGS='--count 100000 --seed 1')
	@$(BIN)/python -m tests.fuzz.run $(ARGS)

bench: $(VENV)/.dev ## measure what docs and issues claim, on a quiet machine
	@$(BIN)/python -m tests.benchmarks.run $(ARGS)

bench-serve: $(VENV)/.dev ## measure the service against the bare engine and other servers, on a quiet machine
	@$(BIN)/python -m tests.benchmarks.bench_serve $(ARGS)

chaos: $(VENV)/.dev ## bad clients and dying workers for 10 minutes (ARGS='--seconds 60')
	@$(BIN)/python -m tests.support.chaos $(ARGS)

peers: $(VENV)/.dev ## build llama-bench, llama-server and llama-optimus to compare with, in the user's cache folder
	@$(SOUND_FLAGS) $(BIN)/python -m tests.benchmarks.peers.build

clean: ## remove the environment and caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "cputune needs Python 3.11 or newer: install it, or name it with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) can't make virtual environments: install it with apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(call need-compiler)
	@echo "installing cputune (llama.cpp is compiled once, about 5 minutes on 2 cores)"
	@$(LLAMA_CPP)
	@$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(call need-compiler)
	@echo "installing cputune with its tests' needs (llama.cpp is compiled once, about 5 minutes on 2 cores)"
	@$(LLAMA_CPP)
	@$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.torch: $(VENV)/.dev
	@echo "installing PyTorch, Transformers and what conversions need"
	@$(INSTALL) --editable '.[dev,transformers,convert]'
	@touch $@

# An engine that is installed already needs no compiler; otherwise say so before the build starts.
define need-compiler
$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("llama_cpp"))' \
	|| { command -v "$${CC:-cc}" >/dev/null && command -v "$${CXX:-c++}" >/dev/null; } \
	|| { echo "no C/C++ compiler found (looked for $${CC:-cc} and $${CXX:-c++}): llama.cpp is built from source; install one with apt-get install build-essential" >&2; exit 1; }
endef
