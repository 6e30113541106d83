# Two commands for everybody: `make repro` makes the study of the default data set, `make test` checks the project.

PYTHON ?= python3
VENV ?= .venv
# Cells of the pipeline that `make repro` runs at once.
JOBS ?= 2
BIN := $(CURDIR)/$(VENV)/bin
CELLS := train train_members certify ensemble weights certify_ensembles

.PHONY: repro test test-portable check format setup bench

# `dvc repro` alone does the same, one cell after the other. With -s a cell does not look at what it depends on, so
# several can run at once, group by group, in as many shares as there are jobs; the last line is the plain command, which
# finds everything done. `fingerprint` always runs, so the status of the rest is asked for by name.
repro: export PATH := $(BIN):$(PATH)
repro: setup
	@dvc repro fingerprint prepare
	@dvc status --quiet $(CELLS) tables || { cells=$$(dvc stage list --name-only) && for group in $(CELLS); do \
	    own=$$(echo "$$cells" | grep "^$$group@") || continue; \
	    share=$$(( ($$(echo "$$own" | wc -l) + $(JOBS) - 1) / $(JOBS) )); \
	    echo "$$own" | xargs --max-procs=$(JOBS) --max-args=$$((share < 7 ? share : 7)) \
	        dvc --wait-for-lock repro --single-item || exit 1; done; }
	dvc repro

test: setup check

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m pytest --doctest-modules

# The tests under settings that imitate other processors, other BLAS kernels and another number of threads: the fast
# ones, or all with TESTS=. Haswell and Prescott are kernels of OpenBLAS; without a setting it picks the machine's own.
TESTS ?= -m 'not slow'
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

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Measurements, side by side in one run; never part of the tests. They take 40 minutes on two cores and go into RESULTS.
# LOGS is a folder of published certification logs, ART the Python of an environment with adversarial-robustness-toolbox.
RESULTS ?= benchmarks/results
MEASURED = forwards memory steps steps-64 growth pool agreement $(if $(LOGS),sequential)
MEASURED.forwards = --picture $(RESULTS)/roofline.png $(if $(ART),--art $(ART))
MEASURED.steps = $(if $(ART),--art $(ART))
MEASURED.steps-64 = --images 64 --methods advmacer
MEASURED.agreement = models/digits/0.5/*/0 --data data/digits
MEASURED.sequential = --logs $(LOGS)

bench: setup $(addprefix bench-,$(MEASURED))

bench-%: setup
	@mkdir -p $(RESULTS)
	$(BIN)/python -m benchmarks.$(firstword $(subst -, ,$*)) $(MEASURED.$*) > $(RESULTS)/$*.md.part
	mv $(RESULTS)/$*.md.part $(RESULTS)/$*.md
