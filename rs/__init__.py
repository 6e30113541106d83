"""Certified robustness by randomized smoothing.

Layers; each may import what is below it:

    code                                fingerprints of the code itself, for the pipeline
    train_cell, certify_cell,           one cell, one answer or the whole study, from files to files
    ensemble_cell, weights_cell,
    pool_cell, predict_cell, report
    study, study_pool, outside          what a study has on the disk
    certify, publishing, train,         the loops, and how params.yaml sets them up
    training, recipe
    candidates, seen, classifier,       what is certified, by its name in parameters and files; how it runs, in
    engine, training_engine               certification and in training
    methods                             one training method a file, over one contract
    pool, pool_cache, ensemble_card,    ensembles before smoothing: how they are declared and stored, rules, one noise
    combination, ensemble, outputs,       pass for all, margins under perturbation, their bounds, optimal weights
    perturb, theory, weights
    smoothing, stop, artefacts, data    the smoothed classifier, when it has drawn enough; models and images on disk
    models, attack, soft, noise,        torch maths; one training by several processes; what both engines share; a
    distributed, compiling, describe      model as text, for its fingerprint
    tables, ensemble_tables,            from certificate rows to numbers, tables and pictures
    theory_tables, figures, rows,
    results, comparison, metrics
    radius, sequential                  the statistics: bounds and radii, for one look at the votes and for many
    arithmetic, params, files, work,    the edge
    ranks, device, errors
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
