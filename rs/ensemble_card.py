"""An ensemble on disk: a JSON file that makes an ensemble of model folders one classifier.

The file holds no weights of networks, only where the members are and what they were when the ensemble was made. It is
an ordinary base classifier: one fixed function of the noisy image, whose certificate is the ordinary one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from torch import nn

from rs import artefacts, files
from rs.ensemble import RULES, Ensemble, Rule, is_undecided
from rs.errors import InputError
from rs.params import STRICT

SCOPES = {
    "softmax": "global",
    "logits": "global",
    "vote": "global",
    "mme": "noisy-input",
    "consensus": "noisy-input",
}
"""What the weights of each rule depend on.

``global``: on nothing, they were frozen before any test image was seen (equal weights included). ``noisy-input``: on
the noisy image alone. Certificates of both hold. Weights that depend on the image *without* its noise are not of one
classifier, so a file cannot hold them.
"""

WEIGHTED = ("softmax", "logits")
"""Rules that take weights."""

_PART = re.compile(r"(\S+) x([1-9][0-9]*)")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A model folder of an ensemble, and what was in it when the ensemble was made."""

    __pydantic_config__ = STRICT

    path: str  # of the model folder, from the folder that commands run in
    method: str
    seed: int
    classifier: str  # rs.artefacts.fingerprint


@dataclass(frozen=True, kw_only=True)
class EnsembleCard:
    """What an ensemble is: all there is in its file.

    Raises:
        InputError: If rule, weights, consensus, scope and the number of members do not fit each other.
    """

    __pydantic_config__ = STRICT

    name: str  # canonical_name of its members
    dataset: str
    sigma: float  # noise that every member was trained with, in pixels of [0, 1]
    members: list[Member]  # L of them
    rule: str  # a key of rs.ensemble.RULES
    weights: list[float] | None  # (L,) on the simplex, for a rule in WEIGHTED; equal if None
    consensus: int | None  # how many of the first members must agree, for the rule "consensus"
    scope: str  # SCOPES of the rule

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise InputError(f"sigma must be positive and finite, got {self.sigma}")
        if not self.members:
            raise InputError("an ensemble must have at least one member, got none")
        if self.rule not in RULES:
            raise InputError(f"the rule must be one of {', '.join(RULES)}; got {self.rule!r}")
        if self.scope != SCOPES[self.rule]:
            raise InputError(
                f"the scope of the rule {self.rule} must be {SCOPES[self.rule]}, got {self.scope!r}; weights chosen by "
                "the image are not of one classifier, and have no file"
            )
        if self.weights is not None and self.rule not in WEIGHTED:
            raise InputError(f"weights must come with one of the rules {', '.join(WEIGHTED)}, got {self.rule}")
        if (self.consensus is None) == (self.rule == "consensus"):
            raise InputError(
                "the rule consensus, and no other, must be given how many members must agree, got consensus "
                f"{self.consensus} for {self.rule}"
            )
        try:
            is_undecided(self.build_rule(), len(self.members))
        except ValueError as error:
            raise InputError(str(error)) from error

    def build_rule(self) -> Rule:
        """Make the rule that turns the members' logits (L, N, K) into scores (N, K)."""
        if self.rule == "consensus":
            return RULES[self.rule](self.consensus)
        return RULES[self.rule](self.weights) if self.rule in WEIGHTED else RULES[self.rule]()

    def write(self, path: Path) -> None:
        """Write the ensemble; equal ensembles make equal bytes.

        Raises:
            InputError: If the file is not named ``*.json``, by which commands tell an ensemble from a model folder.
        """
        if path.suffix != ".json":
            raise InputError(f"the file of an ensemble must be named *.json, got {path}")
        files.write_json(path, asdict(self))


def read(path: Path) -> EnsembleCard:
    """Read the file of an ensemble, without looking at its members.

    Raises:
        InputError: If it is missing, is not JSON, or is not an :class:`EnsembleCard`; names every key at fault.
    """
    text = json.dumps(files.read_json(path))
    try:
        return TypeAdapter(EnsembleCard).validate_json(text)
    except ValidationError as error:
        faults = "; ".join(_fault(item["type"], item["loc"], item["msg"]) for item in error.errors())
        raise InputError(
            f"{path} must be an ensemble, but: {faults}; make it with python -m stages.ensemble"
        ) from error


def _fault(kind: str, place: tuple[int | str, ...], message: str) -> str:
    key = ".".join(map(str, place))
    match kind:
        case "missing":
            return f"{key} is missing"
        case "unexpected_keyword_argument":
            return f"{key} is not a known key"
        case "value_error":
            return message.removeprefix("Value error, ")
        case _:
            return f"{key}: {message}" if key else message


def load(path: Path) -> tuple[nn.Module, EnsembleCard, list[str], list[int]]:
    """Load an ensemble and its members, in eval mode, on the CPU.

    Args:
        path: The file; paths in it are relative to the current folder, as DVC runs commands.
    Returns:
        The classifier, images (N, C, H, W) -> scores (N, K); its card; its K classes; and (C, H, W) of an image.
    Raises:
        InputError: If the file, or a member, is missing, damaged or not what it was when the ensemble was made.
    """
    card = read(path)
    models, cards = zip(*(artefacts.load(Path(member.path)) for member in card.members), strict=True)
    for member, model in zip(card.members, models, strict=True):
        if artefacts.fingerprint(model) != member.classifier:
            raise InputError(f"{member.path} must be the model {path} was made of, but it changed; make {path} again")
    check_members(card, cards)
    return Ensemble(models, card.build_rule()).eval(), card, cards[0].classes, cards[0].shape


def check_members(card: EnsembleCard, cards: Sequence[artefacts.Card]) -> None:
    """Check that models are those an ensemble names, and classify the same images at the same noise.

    Args:
        card: The ensemble.
        cards: What the models say of themselves, in the order of its members.
    Raises:
        InputError: If one of them does not fit; says which and in what.
    """
    for member, own in zip(card.members, cards, strict=True):
        expected = {
            "method": member.method,
            "seed": member.seed,
            "dataset": card.dataset,
            "sigma": card.sigma,
            "shape": cards[0].shape,
            "classes": cards[0].classes,
        }
        for key, value in expected.items():
            if getattr(own, key) != value:
                raise InputError(
                    f"{member.path} must have the {key} {value} in this ensemble, but has {getattr(own, key)}; give "
                    "members of one data set and noise level"
                )


def members_named(text: str) -> dict[str, int]:
    """Read the name of an ensemble: how many members each method gives it, in the order of the name.

    Raises:
        InputError: If it is not ``METHOD xNUMBER``, joined by ``+``, with each method once, or a method is unknown.

    >>> members_named("advmacer x1 + smoothadv x2")
    {'advmacer': 1, 'smoothadv': 2}
    """
    parts = [_PART.fullmatch(" ".join(part.split())) for part in text.split("+")]
    counts = {part[1]: int(part[2]) for part in parts if part}
    if len(counts) != len(parts):
        raise InputError(f"an ensemble must be named like 'advmacer x1 + smoothadv x2', each method once; got {text!r}")
    # Not by an import statement: the code of all methods would become a part of what certificates are made by.
    methods = import_module("rs.methods").METHODS
    unknown = [method for method in counts if method not in methods]
    if unknown:
        raise InputError(f"the methods of an ensemble must be among {', '.join(methods)}; got {unknown[0]!r}")
    return counts


def canonical_name(counts: Mapping[str, int]) -> str:
    """Write the name that :func:`members_named` reads; the order stays, because members and weights follow it.

    >>> canonical_name(members_named(" advmacer  x1+smoothadv x2"))
    'advmacer x1 + smoothadv x2'
    """
    return " + ".join(f"{method} x{count}" for method, count in counts.items())
