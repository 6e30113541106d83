# Two commands for everybody: `make repro` makes the study of the default data set, `make test` checks the project.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2  # cells of the pipeline that `make repro` runs at once
BIN := $(CURDIR)/$(VENV)/bin
CELLS := train train_members certify ensemble weights certify_ensembles

.PHONY: repro test check format setup bench

# `dvc repro` alone does the same, one cell after the other. With -s a cell does not look at what it depends on, so
# several can run at once, group by group; the last line is the plain command, which finds everything done. `code` always
# runs, so the status of the rest is asked for by name.
repro: export PATH := $(BIN):$(PATH)
repro: setup
	@dvc repro code prepare
	@dvc status --quiet $(CELLS) tables || for group in $(CELLS); do \
	    dvc stage list --name-only | grep "^$$group@" | \
	    xargs --max-procs=$(JOBS) --max-args=7 dvc --wait-for-lock repro --single-item || exit 1; done
	dvc repro

test: setup check

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m pytest --doctest-modules

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
