"""An ensemble on disk: a JSON file that makes an ensemble of model folders one classifier.

The file holds no weights of networks, only where the members are and what they were when the
ensemble was made. It is an ordinary base classifier, one fixed function of the noisy image, whose
certificate is the ordinary one; except that weights of scope ``per-image`` make another classifier
for every image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import nn

from rs.data.meta import Meta, data_set_text
from rs.ensemble.base import Cascade, Ensemble, Rule
from rs.ensemble.outputs import on_simplex
from rs.ensemble.rules import RULES, check_rule
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.architectures import USER_NETWORKS
from rs.models.fingerprint import model_fingerprint
from rs.models.zoo import path_of_model
from rs.params import PIXELS, FilePath, NonNegativeCount, Positive, validated
from rs.storage import files
from rs.study.ensembles import Combination, EnsembleDeclaration, Key, composition

REMEDY = "make it with rs combine, or with python -m stages.ensemble of a study (docs/ensembles.md)"
"""What to do if a file of ensembles is damaged."""


@validated
class Member:
    """A model folder of an ensemble, and what was in it when the ensemble was made."""

    # of the model folder, from the folder of the file or from that in which commands run; zoo:NAME
    path: FilePath
    method: Key
    seed: NonNegativeCount
    classifier: str  # rs.models.fingerprint.model_fingerprint

    def folder(self, source: Path) -> Path:
        """Return the model folder of a member that the file ``source`` names."""
        path = path_of_model(self.path)
        beside = (source.parent / path).resolve()
        return beside if (beside / checkpoint.CARD).is_file() else path


@validated
class FittedWeights:
    """Ensemble weights fitted once on held-out images and then frozen, and how they were fitted."""

    weights: list[float]  # (L,) on the simplex
    split: str  # of the data set, to which they were fitted
    images: int  # number of images of this split
    used_share: float  # of these images, that matter (``global_weights``, ``DisputedDraws``)
    shrinkage: float  # toward equal weights, 0 to 1; of weights of the largest radius, else 0
    # rs.data.prepared.Images.fingerprint of the split; None in studies, which certify another one
    fingerprint: str | None = None


@validated
class FittedThresholds:
    """Thresholds of a cascade fitted once on held-out images, and their effect on the samples."""

    thresholds: list[float]  # (L - 1,)
    split: str  # of the data set, to which they were fitted
    images: int  # number of images of this split
    draws: int  # noise samples of each image
    share: float  # of the samples, decided differently than by all members
    evaluations: float  # of members per sample


Fitted = FittedWeights | FittedThresholds
"""What was fitted once for all images; a cascade has thresholds."""


@validated
class EnsembleSpec:
    """An ensemble: the content of its file, checked for consistency."""

    declaration: EnsembleDeclaration  # its name lists members, like "advmacer 0 + smoothadv 1-2"
    dataset: str
    sigma: Positive  # noise that every member was trained with, in pixels of [0, 1]
    members: Annotated[list[Member], Field(min_length=1)]  # L of them, those of the declaration
    fitted: Fitted | None  # what the combination leaves to be fitted; None if nothing, or not yet

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
        elif self.fitted is not None:
            if not (self.combination.weights_solved and self.combination.scope == "global"):
                raise ValueError("fitted weights must come with weights of scope global to fit")
            if len(on_simplex(self.fitted.weights)) != len(self.members):
                raise ValueError(
                    f"there must be one weight for each of {len(self.members)} members"
                )

    @property
    def name(self) -> str:
        """Name of the ensemble in a pool, and of its files: its members and its combination."""
        return self.declaration.slug

    @property
    def combination(self) -> Combination:
        """How the members are combined."""
        return self.declaration.combination

    @property
    def is_fitted_for_all_images(self) -> bool:
        """Whether the stage ``weights`` fits weights or thresholds once for all images."""
        return self.combination.solved and self.combination.scope != "per-image"

    @property
    def fitted_values(self) -> list[float] | None:
        """The fitted weights of members, or the thresholds; ``None`` if not fitted."""
        if isinstance(self.fitted, FittedThresholds):
            return self.fitted.thresholds
        return None if self.fitted is None else self.fitted.weights

    @property
    def rule(self) -> Rule:
        """The rule of the members; for scope ``per-image``, each image has another one."""
        rule = RULES[self.combination.rule]
        return rule.build(self.combination, self.fitted_values)

    def write(self, path: Path) -> None:
        """Write the ensemble into a file ``*.json``; equal ensembles make equal bytes."""
        values = asdict(self)
        combination = values["declaration"]["combination"]
        for part in ("thresholds", "share"):  # only the files of cascades mention them
            if combination[part] is None:
                del combination[part]
        if isinstance(self.fitted, FittedWeights) and self.fitted.fingerprint is None:
            del values["fitted"]["fingerprint"]
        files.write_json(path, values)


def read(path: Path) -> EnsembleSpec:
    """Read the file of an ensemble, without looking at its members.

    Raises:
        InputError: If it is missing or damaged; names every key at fault.
    """
    return files.read_as(EnsembleSpec, path, "an ensemble", REMEDY)


def load_ensemble(path: Path) -> tuple[nn.Module, EnsembleSpec, list[str], list[int]]:
    """Load an ensemble and its members, in eval mode, on the CPU.

    Args:
        path: The file. Paths in it are relative to its folder, or to the current one, in which DVC
            runs commands.
    Returns:
        The classifier, images (N, C, H, W) -> scores (N, K); its spec; its K classes; and (C, H, W)
        of an image.
    Raises:
        InputError: If the file or a member is missing, damaged or has changed; or if the weights
            are not fitted yet, or differ between images.
    """
    spec = read(path)
    models, cards = load_members(spec.members, spec.dataset, spec.sigma, path)
    if spec.combination.solved and spec.fitted is None:
        raise InputError(
            f"{spec.name} must have weights for all images; fit them with python -m stages.weights "
            "(weights of each image are certified by python -m stages.certify_ensembles)"
        )
    return Ensemble(models, spec.rule).eval(), spec, cards[0].classes, cards[0].shape


def first_of_each(
    specs: Mapping[str, EnsembleSpec], by_combination: bool = True
) -> dict[str, EnsembleSpec]:
    """Keep the first ensemble in params.yaml of each composition (and combination)."""
    first: dict[tuple[str, str], str] = {}
    for name, spec in specs.items():
        key = spec.declaration.key if by_combination else ""
        first.setdefault((composition(spec.declaration.members), key), name)
    return {name: specs[name] for name in first.values()}


def load_members(
    members: Sequence[Member],
    dataset: str | None,
    sigma: float,
    source: Path,
    meta: Meta | None = None,
) -> tuple[list[nn.Module], list[checkpoint.ModelCard]]:
    """Load the members that ``source`` names, in eval mode, on the CPU, and their cards.

    Raises:
        InputError: If one is missing, damaged or has changed, or they do not classify the same
            images, or not those of ``meta``.
    """
    folders = [member.folder(source) for member in members]
    _check_networks(folders)
    loaded = [checkpoint.load_model(folder) for folder in folders]
    models: list[nn.Module] = [model for model, _ in loaded]
    cards = [card for _, card in loaded]
    for member, model in zip(members, models, strict=True):
        if model_fingerprint(model) != member.classifier:
            raise InputError(
                f"{member.path} must be the model {source} was made of, but it has changed; make "
                f"{source} again"
            )
    check_members(members, cards, dataset, sigma)
    if meta and cards:
        card = cards[0]
        if (card.shape, card.classes) != (list(meta.shape), list(meta.classes)):
            needed = data_set_text(meta.name, meta.classes, meta.shape)
            of_members = data_set_text(dataset, card.classes, card.shape)
            raise InputError(
                f"{source} must be of classifiers of {needed}, but they are of {of_members}"
            )
    return models, cards


def _check_networks(folders: Sequence[Path]) -> None:
    """Check that the functions of all members are registered; name all that are not.

    Raises:
        InputError: If one is not.
    """
    names = []
    for folder in folders:
        name = checkpoint.read_card(folder).architecture
        if ":" in name and not name.startswith("torch") and name not in names:
            names.append(name)  # a class of torch is no function that could be given
    missing = [name for name in names if name not in USER_NETWORKS]
    if missing:
        noun = "network" if len(missing) == 1 else "networks"
        raise InputError(
            f"the {noun} {', '.join(missing)} must be given, because a model folder never imports "
            f"code by itself; give --network {','.join(names)}; or in Python network="
        )


def check_members(
    members: Sequence[Member],
    cards: Sequence[checkpoint.ModelCard],
    dataset: str | None,
    sigma: float,
) -> None:
    """Check that cards are those of an ensemble's members, of the same images and noise.

    Raises:
        InputError: If a card does not fit; names the model and the difference.
    """
    for member, card in zip(members, cards, strict=True):
        expected = {
            "method": member.method,
            "seed": member.seed,
            "dataset": dataset,
            "sigma": sigma,
            "shape": cards[0].shape,
            "classes": cards[0].classes,
            "bounds": PIXELS,
        }
        for key, value in expected.items():
            if getattr(card, key) != value:
                raise InputError(
                    f"{member.path} must have the {key} {value} in this ensemble, but has "
                    f"{getattr(card, key)}; give members of one data set and noise level"
                )
