"""From classifiers to rows: loading, engines, certifying a model or a pool, predicting.

The procedure CERTIFY itself is in ``rs.smoothing``, the rules of ensembles in ``rs.ensemble``, the
row files in ``rs.storage``.
"""
