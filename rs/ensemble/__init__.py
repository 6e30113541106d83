"""Ensembles before smoothing: rules, files, weights, and one noise pass for a pool. Declarations
live in rs.study.

An ensemble becomes, one after the other:

- an ``EnsembleDeclaration`` (``rs.study.ensembles``): members and a combination, as params.yaml
  declares them;
- an ``EnsembleSpec`` (``spec.py``): its file, with the identity of each member and what was fitted;
- a ``Rule`` (``base.py``, ``rules.py``): its combination with weights, which turns members' logits
  into scores;
- a ``PoolEntry`` (``pool.py``): the rule and the positions of its members in a pool, for one noise
  pass;
- an ``Ensemble`` (``base.py``): rule and networks as one module, for certificates of this ensemble
  alone.
"""
