"""Tables of the default run, on digits."""

from __future__ import annotations

from benchmarks.page_tables.cells import (
    Lines,
    estimated_acr_cell,
    estimated_gain_cell,
    reported,
    reported_gain,
)
from benchmarks.page_tables.committed import Committed
from rs.methods import METHODS
from rs.reporting.tables.formatting import EMPTY

SIGMAS = (0.25, 0.5)


def digits_methods(committed: Committed, *methods: str) -> Lines:
    """Return ACR and clean accuracy of methods, all by default."""
    report = committed.report("digits/main", "method", "sigma")
    lines = [["method", *(f"σ = {sigma}" for sigma in SIGMAS)]]
    for method in methods or METHODS:
        line = [method]
        for sigma in SIGMAS:
            row = report.loc[(method, sigma)]
            acr = reported(row, "acr", "standard_error", "standard_error_with_seeds")
            line.append(f"{estimated_acr_cell(acr)} ({row['clean_accuracy']:.1%})")
        lines.append(line)
    return lines


def digits_ensembles(committed: Committed) -> Lines:
    """Return the cost of ensembles, their ACR, and the difference from equal weights."""
    reports = [committed.ensembles("digits", sigma) for sigma in SIGMAS]
    titles = ["ensemble", "combination"]
    for sigma in SIGMAS:
        titles += ["members per sample", f"σ = {sigma}", "minus average"]
    lines = [titles]
    for ensemble, rule in reports[0].index:
        line = [ensemble, rule]
        for report in reports:
            row = report.loc[(ensemble, rule)]
            line += [f"{row['members_per_draw']:.2f}", f"{row['acr']:.3f}"]
            is_reference = rule == "average"
            line.append(
                EMPTY if is_reference else estimated_gain_cell(reported_gain(row, "reference"))
            )
        lines.append(line)
    return lines
