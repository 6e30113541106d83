.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
# Cells of the pipeline that `make repro` runs at once, and tests that `make test` does.
JOBS ?= 2
BIN := $(CURDIR)/$(VENV)/bin

.PHONY: help repro study times test trust audit licenses vulnerabilities test-portable check format pages docs setup setup-hashed bench

# uv installs packages without bytecode: where none may be written, each process would compile them again.
unexport PYTHONDONTWRITEBYTECODE

# Print the targets for users.
help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

# `dvc repro` does the same, one cell after the other.
repro: setup ## install, then make the study that params.yaml describes, several cells at once
	@$(BIN)/python -m stages.repro --jobs $(JOBS)

# As much of a study as fits into MINUTES (all of it without), and the rest the next time: what is stopped, by Ctrl-C too,
# continues from its last checkpoint or image. A cell that fails stops those that need it and no others. DATASET, and its
# grid if it has one, are written into params.yaml. TARGETS is a regular expression of names of cells, such as
# 'certify@cifar10-.*-1.0-0', instead of the whole study. The commands run in a process group of their own, which is told
# to stop as a whole. EXECUTOR=slurm submits all cells that are missing to SLURM instead, and ends.
study: export PATH := $(BIN):$(PATH)
study: SHELL := /bin/bash
study: setup ## a long study piece by piece: DATASET=, MINUTES=, TARGETS=, EXECUTOR=
	$(if $(DATASET),$(BIN)/python -m stages.choose $(DATASET))
	$(if $(EXECUTOR),$(if $(MINUTES)$(TARGETS),$(error EXECUTOR submits all cells: leave out MINUTES and TARGETS)))
	@$(if $(EXECUTOR),SBATCH='$(SBATCH)' exec examples/$(EXECUTOR)/submit.sh;) \
	cells=$$(dvc stage list --name-only | grep -E '$(or $(TARGETS),.)') || { echo "no cell is called $(TARGETS)"; exit 2; }; \
	set -m; trap 'kill %1; wait %1; exit 130' INT TERM; \
	timeout --kill-after=30 $(or $(MINUTES),0)m dvc repro --keep-going $$cells & \
	wait %1; code=$$?; \
	if [ $$code = 124 ] || [ $$code = 137 ]; then echo "The time is over; the same command continues."; else exit $$code; fi

# What the study cost, by the wall times that its cells have left in logs/.
times: setup ## what the study cost
	@dataset=$$(sed -n 's/^dataset: *\([^ #]*\).*/\1/p' params.yaml); \
	$(BIN)/python -m stages.tables $$dataset --results results/$$dataset --weights weights/$$dataset \
	    --logs logs/$$dataset --out times/$$dataset

test: setup check ## install, then lint, types and tests: what continuous integration runs

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest --doctest-modules --numprocesses=$(JOBS) --dist=worksteal

# Tests that try to break the guarantees: attacks on certificates, fuzzing, faults.
trust: setup ## attacks, fuzzing, faults and kills
	$(BIN)/python -m pytest -q -m trust_only --numprocesses=$(JOBS) --dist=worksteal

# The tests under settings that imitate other processors, other BLAS kernels and another number of threads: the fast
# ones, or all with TESTS=. Haswell and Prescott are kernels of OpenBLAS; without a setting it picks the machine's own.
TESTS ?= -m 'not slow and not trust_only'
MACHINE.native =
MACHINE.avx2 = ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
MACHINE.sse = ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41
MACHINE.haswell = OPENBLAS_CORETYPE=Haswell
MACHINE.prescott = OPENBLAS_CORETYPE=Prescott
MACHINE.threads = OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 MKL_NUM_THREADS=2
MACHINES = native avx2 sse haswell prescott threads

test-portable: $(addprefix test-on-,$(MACHINES))

test-on-%: setup
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(MACHINE.$*) $(BIN)/python -m pytest -q $(TESTS)

# The licenses of the installed packages, and the known vulnerabilities of the versions in the lock file. The second part
# asks a service, and fails without an answer.
audit: licenses vulnerabilities

licenses: setup
	$(BIN)/python -m pip install --quiet pip-licenses
	$(BIN)/pip-licenses --format=markdown --order=license

vulnerabilities: setup
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

format: ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pages: setup ## fill the tables and draw the pictures of the pages
	$(BIN)/python -m benchmarks.pages
	$(BIN)/rs predict docs/horse.png --model zoo:cifar10-advmacer-0.25 --seed 0 --picture docs/idea.svg

# The pages as a site, in build/docs; a warning is an error.
docs: setup ## the pages as a site, in build/docs
	$(BIN)/python -m sphinx --fail-on-warning --quiet docs build/docs

# uv takes a quarter of pip's time; pip is for machines whose package index only pip knows.
PINNED := --constraint constraints.txt --editable '.[dev]'

setup: $(VENV)/.installed ## install into .venv

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(PINNED) || $(BIN)/python -m pip install --quiet $(PINNED)
	touch $@

# As `setup`, but pip refuses any file whose SHA-256 differs from the lock file. pip takes no editable project together with
# hashes, so this project comes second, and without its dependencies.
setup-hashed:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(VENV)/.installed

requirements.lock: constraints.txt
	sed '/^#/!d' $@ > $@.part
	$(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate --python-version 3.11.5 $< >> $@.part
	mv $@.part $@

# Measurements, side by side in one run; never part of the tests. Their tables go into RESULTS.
# LOGS is a folder of published certification logs, ART the Python
# of an environment with adversarial-robustness-toolbox.
RESULTS ?= benchmarks/results
MEASURED = forwards steps steps-64 $(if $(LOGS),sequential)
MEASURED.forwards = $(if $(ART),--art $(ART))
MEASURED.steps = $(if $(ART),--art $(ART))
MEASURED.steps-64 = --images 64 --methods advmacer
MEASURED.sequential = --logs $(LOGS) $(ROWS:%=--rows %)

bench: setup $(addprefix bench-,$(MEASURED))

bench-%: setup
	@mkdir -p $(RESULTS)
	$(BIN)/python -m benchmarks.$(firstword $(subst -, ,$*)) $(MEASURED.$*) > $(RESULTS)/$*.md.part
	mv $(RESULTS)/$*.md.part $(RESULTS)/$*.md
