# Two commands: `make demo` and `make test`. Both set up what they need in .venv.

PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0

# Real data for the tests marked `external`; they are skipped where it is missing.
export HOLDFAST_DATA ?= $(abspath $(wildcard ../shared/data))

.PHONY: demo test fast check bench services clean

demo: .venv/ready ## Break a real job on purpose and watch it
	$(BIN)/holdfast demo

test: .venv/ready ## The whole suite: what needs the machine for itself one by one, the rest side by side
	$(BIN)/python -m pytest -n 2 -m "not alone" --durations=25
	$(BIN)/python -m pytest -m alone --durations=25

fast: .venv/ready ## The part of the suite without real processes
	$(BIN)/python -m pytest -n 2 -m "not processes"

check: .venv/ready ## Style, types, architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

bench: .venv/ready ## Every published figure; takes a while, wants a quiet machine
	@for file in $(filter-out %/common.py %/instances.py %/crew.py %/soak.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# torch first and by its exact version: anything looser, by us or by a dependency, may pull a CUDA build.
.venv/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

PACKAGES := chromium iproute2 postgresql prometheus slurm-wlm slurmdbd munge mariadb-server

services: ## System packages that some tests use (Debian, as root); never installed by a test
	@dpkg-query --show $(PACKAGES) >/dev/null 2>&1 && echo "services: all installed" || \
		{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q $(PACKAGES); }

clean: ## Remove everything that make made
	rm -rf .venv build src/holdfast.egg-info holdfast_runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
