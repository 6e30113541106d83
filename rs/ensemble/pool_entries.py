"""The classifiers that a pool is certified as: its members, and its ensembles with the weights solved for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from rs.ensemble.declare import PoolSpec
from rs.ensemble.outputs import ROUNDING
from rs.ensemble.pool import PoolEntry
from rs.ensemble.rules import Ensemble, RuleFunction, SoftmaxAverage, WeightsByImage
from rs.ensemble.spec import EnsembleSpec, read
from rs.errors import InputError
from rs.models import checkpoint
from rs.storage import files, tsv


def pool_entries(
    pool: PoolSpec, specs: Mapping[str, EnsembleSpec], models: Sequence[nn.Module], ensembles: Path, weights: Path
) -> dict[str, PoolEntry]:
    """Return the members of a pool and its ensembles, by the names of their row files.

    Args:
        pool, specs: What ``rs.ensemble.declare`` wrote into ``ensembles``.
        models: The members, loaded.
        ensembles, weights: The folders of the ensembles and of their weights (``rs.ensemble.fit_weights``).
    Raises:
        InputError: If weights are missing or damaged, or are those of another ensemble.
    """
    entries = {
        f"{member.method}-{member.seed}": PoolEntry(
            (number,),
            provenance={"model": member.path, "classifier": checkpoint.fingerprint(model), "scope": "model"},
        )
        for number, (member, model) in enumerate(zip(pool.members, models, strict=True))
    }
    for slug, spec in specs.items():
        rule, source, voting = _rule(slug, spec, ensembles, weights)
        numbers = tuple(pool.members.index(spec.members[n]) for n in voting)
        base = Ensemble([models[n] for n in numbers], SoftmaxAverage() if isinstance(rule, WeightsByImage) else rule)
        identity = {"classifier": checkpoint.fingerprint(base), "scope": spec.combination.scope}
        entries[slug] = PoolEntry(numbers, rule, source | identity)
    return entries


def _rule(
    slug: str, spec: EnsembleSpec, ensembles: Path, weights: Path
) -> tuple[RuleFunction | WeightsByImage, dict[str, str], list[int]]:
    """The rule of an ensemble with its weights, where they come from, and the numbers of the members that vote."""
    if spec.combination.scope == "per-image":
        path = weights / f"{slug}.tsv"
        rule = WeightsByImage(read_weights(path, len(spec.members)), path)
        return rule, {"model": str(ensembles / f"{slug}.json"), "weights": files.sha256(path)}, spec.voting
    if not spec.combination.solved:
        return spec.build_rule(), {"model": str(ensembles / f"{slug}.json")}, spec.voting
    path = weights / f"{slug}.json"
    fitted = read(path)
    if replace(fitted, fitted=None) != spec:
        raise InputError(f"{path} must be the ensemble {spec.declaration.name} as it is now; make it again")
    return fitted.build_rule(), {"model": str(path)}, fitted.voting


def read_weights(path: Path, members: int) -> dict[int, list[float]]:
    """Read weights that were solved image by image: by image, (L,).

    Raises:
        InputError: If the file is missing or damaged; names the line.
    """
    names = [f"w{number}" for number in range(members)]
    table = tsv.read(path, {"idx": tsv.whole, "class": tsv.whole} | dict.fromkeys(names, tsv.finite))
    weights = table[names].to_numpy()
    tsv.refuse(path, table["idx"].duplicated(), "idx must be unique")
    off = (weights.min(axis=1) < -ROUNDING) | (abs(weights.sum(axis=1) - 1) > members * ROUNDING)
    tsv.refuse(path, off, "weights must be at least 0 and sum to 1")
    return dict(zip(table["idx"].tolist(), weights.tolist(), strict=True))
