"""Ensembles before smoothing: rules, files, weights, and one noise pass for a pool. Declarations live in rs.study."""

from rs import lazily

_NAMES = {
    **dict.fromkeys(
        (
            "RULES",
            "Cascade",
            "Ensemble",
            "HardVote",
            "KConsensus",
            "LogitAverage",
            "MaxMargin",
            "MaxMarginEnsemble",
            "Polytope",
            "SoftmaxAverage",
            "WeightedEnsemble",
        ),
        "rs.ensemble.rules",
    ),
}
__all__ = [*_NAMES]
__getattr__ = lazily(__name__, _NAMES)
