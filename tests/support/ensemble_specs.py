"""Ensembles of the models of ``models_here``, as their files say them."""

from pathlib import Path

from rs.ensemble.base import Cascade, LogitAverage, SoftmaxAverage
from rs.ensemble.rules import HardVote, KConsensus, MaxMargin
from rs.ensemble.spec import EnsembleSpec, FittedThresholds, FittedWeights, Member
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.study.ensembles import Combination, EnsembleDeclaration
from tests.support.combinations import GOOD

GLOBAL, PER_IMAGE = GOOD["optimal"], GOOD["per-image"]


def member(method="macer", seed=0):
    """The model in models/METHOD/SEED as a member."""
    path = f"models/{method}/{seed}"
    return Member(path=path, method=method, seed=seed, classifier=model_fingerprint(network(path)))


def network(path):
    return checkpoint.load_model(Path(path))[0]


def spec(members=None, fitted=None, **combination):
    """An ensemble of the three seeds of macer, equally weighted if nothing else is said."""
    members = members or [member(seed=seed) for seed in (0, 1, 2)]
    return EnsembleSpec(
        declaration=EnsembleDeclaration(
            name="macer 0-1-2",
            members=tuple((one.method, one.seed) for one in members),
            key="some",
            combination=Combination(**combination or GOOD["equal"]),
        ),
        dataset="tiny",
        sigma=0.25,
        members=members,
        fitted=fitted,
    )


def written(made, path="ensemble.json"):
    made.write(Path(path))
    return Path(path)


def fitted(*weights):
    return FittedWeights(
        weights=list(weights), split="train", images=20, used_share=0.75, shrinkage=0.0
    )


MADE = {
    "equal": (GOOD["equal"], None, SoftmaxAverage()),
    "solved": (GLOBAL, fitted(0.0, 0.25, 0.75), SoftmaxAverage([0.0, 0.25, 0.75])),
    "logits": (GOOD["logits"], None, LogitAverage()),
    "vote": (GOOD["vote"], None, HardVote()),
    "mme": (GOOD["mme"], None, MaxMargin()),
    "consensus": (GOOD["consensus"], None, KConsensus(2)),
    "cascade": (
        GOOD["cascade"] | {"share": 0.01},
        FittedThresholds(
            thresholds=[0.4, 0.2],
            split="train",
            images=20,
            draws=100,
            share=0.009,
            evaluations=1.25,
        ),
        Cascade([0.4, 0.2]),
    ),
}


def made(named, **changes):
    combination, weights, _ = MADE[named]
    return spec(fitted=weights, **combination | changes)
