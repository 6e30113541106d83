"""Certified robustness by randomized smoothing.

Layers; each may import what is below it:

    code                                fingerprints of the code itself, for the pipeline
    train_cell, certify_cell,           one cell, one answer or the whole study, from files to files
    predict_cell, report, study
    certify, train, recipe              the loops, and how params.yaml sets them up
    methods                             one training method a file, over one contract
    pool, ensemble_card, ensemble,      ensembles before smoothing: rules, one noise pass for all, margins under
    perturb, theory, weights              perturbation, their bounds, optimal weights
    smoothing, artefacts, data          the smoothed classifier; models and images on disk
    models, attack, soft, noise         torch maths
    tables, figures, rows, metrics      from certificate rows to numbers, tables and pictures
    radius                              the statistics: bounds and radii
    params, files, work, errors         the edge
"""

from __future__ import annotations

from typing import Any

_EXPORTS = {
    "ABSTAIN": "rs.rows",
    "Certificate": "rs.smoothing",
    "SmoothedClassifier": "rs.smoothing",
}
__all__ = ["ABSTAIN", "Certificate", "SmoothedClassifier"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that the pure modules do not cost the second that torch takes."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rs' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
