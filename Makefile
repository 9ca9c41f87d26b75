# The two commands of the README: `make results` and `make test`. Both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALLED := $(VENV)/.installed
# Or envs/requirements.lock: indirect dependencies pinned too, and every file checked by its hash. Said once, it stays.
REQUIREMENTS ?= $(or $(firstword $(shell cat $(READY) 2> /dev/null)),envs/requirements.txt)
# The lock holds setuptools, too, with which this package is built: nothing else is fetched for that.
ISOLATION := $(if $(findstring .lock,$(REQUIREMENTS)),--no-build-isolation)
# Rules call `python`: it must be the environment's.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help environment results test test-cluster check pictures clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

environment: $(INSTALLED) ## make .venv, install the pinned requirements and this package

# What .venv was made from; another file, or another content of it, makes it anew.
WANTED := $(REQUIREMENTS) $(firstword $(shell cksum < $(REQUIREMENTS)))
ifneq ($(WANTED),$(shell cat $(READY) 2> /dev/null))
.PHONY: $(READY)
endif

# Marked ready only when the whole install has ended well, so a killed install is done again.
$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -r $(REQUIREMENTS)
	echo '$(WANTED)' > $@

# Editable, so that it is installed once; only for use from Python: the workflow runs the scripts where they lie.
$(INSTALLED): pyproject.toml $(READY)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps $(ISOLATION) --editable .
	touch $@

results: $(INSTALLED) ## run the study of config.yaml: tables and figures under results/
	python src/wait_for_lock.py
	snakemake --cores all all

test: $(INSTALLED) check ## run the style checks and all tests
	python -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder

test-cluster: $(INSTALLED) ## run the tests of the cluster profiles on a one-node Slurm (as root; Debian: slurmctld slurmd slurm-client munge)
	LASTITEM_TEST_CLUSTER=1 python -m pytest tests/slurm

check: $(INSTALLED) ## style of Python and Snakemake files, types of the library
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check .
	snakemake --lint

pictures: $(INSTALLED) ## docs/examples/ from results/ of the default study (needs Chromium)
	python docs/take_pictures.py

clean: ## remove results, logs and Snakemake's records; keeps data/ and .venv
	find results/ -mindepth 1 ! -name README.md -delete
	rm -rf logs .snakemake
