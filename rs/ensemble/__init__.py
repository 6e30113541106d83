"""Ensembles before smoothing: rules, files, weights, and one noise pass for a pool. Declarations live in rs.study."""
