# Two commands from nothing, on a machine with Python 3.10 or newer (with pip) and gcc:
#   make demo   sets up and shows the main job: a real `vllm serve` that fails, and serves with a patch
#   make test   sets up and runs lint, types and the tests, on the releases of ascend_hotfix/sim/matrix.py
# Further: make test-longer, make bench, make clean. PYTHON=... picks the interpreter.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready
BUILD := $(BIN)/python -m ascend_hotfix.sim.envs build

.PHONY: help demo test test-longer lint environments bench clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   *//p; s/^# //p' Makefile

demo: $(READY)
	$(BUILD) 0.30.0rc2
	$(BIN)/python -m ascend_hotfix.sim.demo

test: lint environments
	$(BIN)/python -m pytest --durations=15 $(PYTEST_ARGS)

test-longer: $(READY)
	$(BUILD) --all
	$(BIN)/python -m pytest -m longer --durations=15 $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

environments: $(READY)
	$(BUILD)

bench: $(READY)
	$(BIN)/python benchmarks/startup.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "$(PYTHON) is older than Python 3.10; say make PYTHON=/path/to/python3.11"; exit 1; }
	@command -v "$${CC:-gcc}" >/dev/null \
	  || { echo "no C compiler: install gcc, or set CC"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "$(PYTHON) makes no virtual environments: install its venv module (Debian: python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@
