"""Ensembles before smoothing: rules, files, weights, and one noise pass for a pool.

An ensemble has three forms:

- an ``EnsembleDeclaration`` (``rs.study.ensembles``): members and a combination, as params.yaml
  declares them;
- an ``EnsembleSpec`` (``spec.py``): its file, with the fingerprints of its members and the fitted
  weights. Its ``name`` is the name of its files, and its key wherever ensembles are listed;
- a ``PoolEntry`` (``pool.py``): the positions of its members in a pool, and its ``Rule``
  (``base.py``, ``rules.py``), which turns logits of members into scores.

An ``Ensemble`` (``base.py``) is a rule with its networks: one module, which is certified alone.
"""
