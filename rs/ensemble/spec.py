"""An ensemble on disk: a JSON file that makes an ensemble of model folders one classifier.

The file holds no weights of networks, only where the members are and what they were when the
ensemble was made. It is an ordinary base classifier, one fixed function of the noisy image, whose
certificate is the ordinary one; except that weights of scope ``per-image`` make another classifier
for every image.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import nn

from rs.data.prepared import Meta, data_set_text
from rs.ensemble.base import Cascade, Ensemble, Rule
from rs.ensemble.outputs import on_simplex
from rs.ensemble.rules import RULES, check_rule
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.params import FilePath, NonNegativeCount, Positive, validated
from rs.storage import files
from rs.study.ensembles import Combination, EnsembleDeclaration, Key

REMEDY = (
    "make it with python -m stages.ensemble of a study, or write a function (docs/ensembles.md)"
)
"""What to do where a file of ensembles is broken."""


@validated
class Member:
    """A model folder of an ensemble, and what was in it when the ensemble was made."""

    path: FilePath  # of the model folder, from the folder that commands run in
    method: Key
    seed: NonNegativeCount
    classifier: str  # rs.models.fingerprint.model_fingerprint


@validated
class FittedWeights:
    """Weights that were solved for, once for all images."""

    weights: list[float]  # (L,) on the simplex
    split: str  # of the data set, that they were fitted to
    images: int  # of this split
    # of these images: those that the weights rest on (``global_weights``, ``DisputedDraws``)
    used_share: float
    shrinkage: float  # towards equal weights, 0 to 1, where they maximise the radius; else 0


@validated
class FittedThresholds:
    """Thresholds of a cascade, fitted once for all images; and what they do on the draws that they
    were fitted on.
    """

    thresholds: list[float]  # (L - 1,)
    split: str  # of the data set, that they were fitted to
    images: int  # of this split
    draws: int  # noisy copies of each
    # of the draws, decided otherwise than by all members; at most that of the combination
    share: float
    evaluations: float  # of members, a draw


Fitted = FittedWeights | FittedThresholds
"""What was solved for, once for all images; a cascade has thresholds."""


@validated
class EnsembleSpec:
    """What an ensemble is: all there is in its file, whose parts fit each other."""

    declaration: EnsembleDeclaration  # named after its members, like "advmacer 0 + smoothadv 1-2"
    dataset: str
    sigma: Positive  # noise that every member was trained with, in pixels of [0, 1]
    members: Annotated[list[Member], Field(min_length=1)]  # L of them, those of the declaration
    fitted: Fitted | None  # what the combination leaves to be solved; None if nothing, or not yet

    def __post_init__(self) -> None:
        named = tuple((member.method, member.seed) for member in self.members)
        if named != self.declaration.members:
            raise ValueError(
                f"members must be those of the declaration, {self.declaration.members}, got {named}"
            )
        check_rule(self.combination)
        self.combination.check_members(len(self.members))
        if isinstance(self.fitted, FittedThresholds):
            if self.combination.thresholds is None:
                raise ValueError("fitted thresholds must come with a cascade")
            Cascade(self.fitted.thresholds).check_members(len(self.members))
            return
        if self.fitted is None:
            return
        if not (self.combination.weights_solved and self.combination.scope == "global"):
            raise ValueError(
                "fitted weights must come with weights that are solved for, of scope global"
            )
        if len(on_simplex(self.fitted.weights)) != len(self.members):
            raise ValueError(f"there must be one weight for each of {len(self.members)} members")

    @property
    def combination(self) -> Combination:
        """How the members are combined."""
        return self.declaration.combination

    @property
    def voting(self) -> list[Member]:
        """The members that are evaluated: all, or those that weights have chosen."""
        if self.combination.chosen is None or not isinstance(self.fitted, FittedWeights):
            return self.members
        return [
            member
            for member, weight in zip(self.members, self.fitted.weights, strict=True)
            if weight > 0
        ]

    @property
    def solution(self) -> list[float] | None:
        """The fitted weights, one for each member that votes; or the thresholds; else ``None``."""
        if isinstance(self.fitted, FittedThresholds):
            return self.fitted.thresholds
        if self.fitted is None:
            return None
        return [
            weight
            for weight in self.fitted.weights
            if weight > 0 or self.combination.chosen is None
        ]

    @property
    def rule(self) -> Rule:
        """The rule of the members that vote; of scope ``per-image`` each image has another one."""
        return RULES[self.combination.rule].build(self.combination, len(self.voting), self.solution)

    def write(self, path: Path) -> None:
        """Write the ensemble into a file ``*.json``; equal ensembles make equal bytes."""
        values = asdict(self)
        combination = values["declaration"]["combination"]
        for part in (
            "thresholds",
            "share",
        ):  # of cascades alone: the files of other ensembles do not name them
            if combination[part] is None:
                del combination[part]
        files.write_json(path, values)


def read(path: Path) -> EnsembleSpec:
    """Read the file of an ensemble, without looking at its members.

    Raises:
        InputError: If it is missing, is not JSON, or is not an :class:`EnsembleSpec`; names every
            key at fault.
    """
    return files.read_as(EnsembleSpec, path, "an ensemble", REMEDY)


def load(path: Path) -> tuple[nn.Module, EnsembleSpec, list[str], list[int]]:
    """Load an ensemble and the members that vote, in eval mode, on the CPU.

    Args:
        path: The file; paths in it are relative to the current folder, as DVC runs commands.
    Returns:
        The classifier, images (N, C, H, W) -> scores (N, K); its spec; its K classes; and (C, H, W)
        of an image.
    Raises:
        InputError: If the file, or a member, is missing, damaged or not what it was when the
            ensemble was made; or if the weights are not solved yet, or are chosen image by image.
    """
    spec = read(path)
    models, cards = load_members(spec.voting, spec.dataset, spec.sigma, path)
    if spec.combination.solved and spec.fitted is None:
        raise InputError(
            f"{spec.declaration.name}, {spec.declaration.key}: its weights must be solved once for "
            "all images, by "
            "python -m stages.weights; those of each image are certified by python -m "
            "stages.certify_ensembles"
        )
    return Ensemble(models, spec.rule).eval(), spec, cards[0].classes, cards[0].shape


def first_of_each(
    specs: Mapping[str, EnsembleSpec], key: Callable[[EnsembleDeclaration], Hashable]
) -> dict[str, EnsembleSpec]:
    """Return the first ensemble, in the order of the parameters, of those whose ``key`` is equal."""
    slugs = {key(spec.declaration): slug for slug, spec in reversed(list(specs.items()))}
    return {slug: spec for slug, spec in specs.items() if slugs[key(spec.declaration)] == slug}


def load_members(
    members: Sequence[Member],
    dataset: str | None,
    sigma: float,
    source: Path,
    meta: Meta | None = None,
) -> tuple[list[nn.Module], list[checkpoint.ModelCard]]:
    """Load the members that ``source`` names, in eval mode, on the CPU, and their cards.

    Raises:
        InputError: If one is missing, damaged or not what it was, or they do not classify the same
            images, those of ``meta`` if it is given.
    """
    loaded = [checkpoint.load_model(Path(member.path)) for member in members]
    models: list[nn.Module] = [model for model, _ in loaded]
    cards = [card for _, card in loaded]
    for member, model in zip(members, models, strict=True):
        if model_fingerprint(model) != member.classifier:
            raise InputError(
                f"{member.path} must be the model {source} was made of, but it changed; make "
                f"{source} again"
            )
    check_members(members, cards, dataset, sigma)
    if (
        meta
        and cards
        and (cards[0].shape, cards[0].classes) != (list(meta.shape), list(meta.classes))
    ):
        raise InputError(
            f"{source} must be of classifiers of "
            f"{data_set_text(meta.name, meta.classes, meta.shape)}, but they are of "
            f"{data_set_text(dataset, cards[0].classes, cards[0].shape)}"
        )
    return models, cards


def check_members(
    members: Sequence[Member],
    cards: Sequence[checkpoint.ModelCard],
    dataset: str | None,
    sigma: float,
) -> None:
    """Check that models are those an ensemble names, and classify the same images at the same
    noise.

    Args:
        members: What the ensemble names.
        cards: What the models say of themselves, in the same order.
    Raises:
        InputError: If one of them does not fit; says which and in what.
    """
    for member, card in zip(members, cards, strict=True):
        expected = {
            "method": member.method,
            "seed": member.seed,
            "dataset": dataset,
            "sigma": sigma,
        }
        expected |= {"shape": cards[0].shape, "classes": cards[0].classes}
        for key, value in expected.items():
            if getattr(card, key) != value:
                raise InputError(
                    f"{member.path} must have the {key} {value} in this ensemble, but has "
                    f"{getattr(card, key)}; give "
                    "members of one data set and noise level"
                )
