"""The classifiers that a pool is certified as: its members, and its ensembles with the weights solved for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from rs.ensemble.outputs import ROUNDING
from rs.ensemble.pool import Entry
from rs.ensemble.rules import Ensemble, LogitAverage, SoftmaxAverage
from rs.ensemble.spec import EnsembleCard, Member, read
from rs.errors import InputError
from rs.models import checkpoint
from rs.storage import files, tsv


@dataclass(frozen=True)
class Candidate:
    """A classifier to certify."""

    who: dict[str, Any]  # what it is, for the sidecar
    at: Callable[[int], Entry]  # what it is for an image; the same for all, unless it is of scope per-image


def single_models(members: Sequence[Member], models: Sequence[nn.Module]) -> dict[str, Candidate]:
    """The members themselves, by the names of their row files."""
    return {
        f"{member.method}-{member.seed}": Candidate(
            {"model": member.path, "classifier": checkpoint.fingerprint(model), "scope": "model"},
            partial(_same, Entry((number,), LogitAverage())),
        )
        for number, (member, model) in enumerate(zip(members, models, strict=True))
    }


def combined(
    members: Sequence[Member],
    models: Sequence[nn.Module],
    cards: Mapping[str, EnsembleCard],
    ensembles: Path,
    weights: Path,
) -> dict[str, Candidate]:
    """The ensembles, with the weights that were solved for them, by the names of their row files."""
    made = {}
    for slug, card in cards.items():
        own = tuple(members.index(member) for member in card.members)
        mine = [models[number] for number in own]
        if card.how.scope == "per-image":
            path = weights / f"{slug}.tsv"
            frozen = read_weights(path, len(own))
            base, at = Ensemble(mine, SoftmaxAverage()), partial(_frozen, own, frozen, path)
            who = {"model": str(ensembles / f"{slug}.json"), "weights": files.sha256(path)}
        else:
            path = (weights if card.how.solved else ensembles) / f"{slug}.json"
            rule = _solution(card, path).build_rule()
            base, at = Ensemble(mine, rule), partial(_same, Entry(own, rule))
            who = {"model": str(path)}
        made[slug] = Candidate(who | {"classifier": checkpoint.fingerprint(base), "scope": card.how.scope}, at)
    return made


def _same(entry: Entry, index: int) -> Entry:
    return entry


def _frozen(members: tuple[int, ...], weights: Mapping[int, Sequence[float]], path: Path, index: int) -> Entry:
    if index not in weights:
        raise InputError(f"{path} must have weights for image {index}; make it again with python -m stages.weights")
    return Entry(members, SoftmaxAverage(weights[index]))


def _solution(card: EnsembleCard, path: Path) -> EnsembleCard:
    """The ensemble in ``path``: ``card`` itself, with its weights solved."""
    found = read(path)
    if replace(found, solution=None) != card:
        raise InputError(f"{path} must be the ensemble {card.name} as it is now; make it again")
    return found


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
