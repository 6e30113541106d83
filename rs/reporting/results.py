"""The results of a study, one for each method, noise level and seed, grouped by comparability; and
the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from rs.errors import InputError
from rs.statistics import metrics
from rs.statistics.certificate import UNSOUND
from rs.statistics.comparison import Estimate, Sample, estimate, fewest_seeds_of, sample
from rs.statistics.metrics import Terms
from rs.statistics.resampling import SPLITS, Split, two_sided
from rs.storage.provenance import Provenance
from rs.study.ensembles import composition, members_text

MUST_AGREE = {"images": "images", "seed": "noise seed"}
"""What all rows of a study share: keys of sidecars, and their names."""

CODES = ("code of models", "code of pools")
"""Versions of the code that rows were made by: by the stage for a model, or for further seeds and
ensembles.
"""

PUBLISHED = Path(__file__).with_name("published.csv")
"""The figures that the paper prints."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The certificate rows of one method at one noise level and one training seed."""

    name: str  # of its row in tables: a training method, or an ensemble
    sigma: float
    seed: int | None  # None: of an ensemble, or not known
    rows: pd.DataFrame
    subset: str  # which images, in words
    training_seconds: float | None = None
    classes: int | None = (
        None  # K, needed for two-sided radii only; None for a classifier with votes for no class
    )
    scope: str = "model"  # what the classifier is, one of rs.statistics.certificate.SCOPES
    ensemble: str | None = (
        None  # which members, like "advmacer x1 + smoothadv x2"; None for a single model
    )
    combination: str | None = (
        None  # how they are combined: a key of `combinations` in the parameters
    )
    members: tuple[tuple[str, int], ...] = ()  # training method and seed of each member
    provenance: Provenance = field(default_factory=Provenance)  # empty without a sidecar
    source: Mapping[str, Any] = field(
        default_factory=dict
    )  # MUST_AGREE and one of CODES, as far as they are stated
    chosen: dict[str, int] | None = (
        None  # which of the members vote, and how often, where weights have chosen them
    )

    @property
    def full_name(self) -> str:
        """Method, members, noise level and seed, in words: no other result has the same."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        trained = members_text(self.members)
        members = f" of {trained}" if self.members and self.ensemble != trained else ""
        return f"{self.name}{members} at sigma {self.sigma}{seed}"

    @property
    def seeds(self) -> frozenset[int]:
        """Training seeds that it depends on; empty where they are not known."""
        seeds = [seed for _, seed in self.members] if self.members else [self.seed]
        return frozenset(seed for seed in seeds if seed is not None)

    @property
    def kind(self) -> str:
        """Method without training seeds: the same for all ensembles of as many members of the same
        methods.
        """
        return (
            self.name
            if self.ensemble is None
            else self.name.replace(self.ensemble, composition(self.members), 1)
        )

    @property
    def members_per_draw(self) -> float:
        """Evaluations of members that a noisy image takes: counted of a cascade, else the number
        that vote.
        """
        if "evaluations" not in self.rows:
            return float(len(self.chosen or self.members) or 1)
        return float(self.rows["evaluations"].sum() / (self.rows["n0"] + self.rows["n"]).sum())

    @property
    def training_methods(self) -> list[str]:
        """Training methods of the members, each once, sorted."""
        return sorted({method for method, _ in self.members})

    @cached_property
    def terms(self) -> Terms:
        """What other results must share with it to be compared."""
        return metrics.terms_of(self.rows)

    @cached_property
    def acr_two_sided(self) -> dict[Split, float]:
        """ACRs of the two-sided certificates from the same votes; none where the number of classes
        is not known.
        """
        by_split = two_sided(self.rows, self.classes) if self.classes else {}
        return {split: metrics.acr(rows) for split, rows in by_split.items()}

    @property
    def sound(self) -> bool:
        """Whether the certificate covers the classifier as it is deployed."""
        return self.scope != UNSOUND


@dataclass(frozen=True)
class Group:
    """The results of one method at one noise level: one for each training seed, or sub-ensemble of
    the seeds.
    """

    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The first result; all have its noise level, kind, combination and scope."""
        return self.results[0]

    @cached_property
    def rows(self) -> list[pd.DataFrame]:
        """Rows of every seed."""
        return [result.rows for result in self.results]

    @cached_property
    def sample(self) -> Sample:
        """Scores of all results, with the seeds that each depends on."""
        return self.sample_of(self.rows)

    def sample_of(self, rows: Sequence[pd.DataFrame], radius: float | None = None) -> Sample:
        """Return the scores of rows of the same classifiers
        (:func:`rs.statistics.comparison.sample`).
        """
        seeds = [result.seeds for result in self.results]
        return sample(rows, seeds, radius, self.fewest_seeds)

    @property
    def fewest_seeds(self) -> int | None:
        """Number of training seeds of the member's method that has the fewest; ``None`` for single
        models.
        """
        return fewest_seeds_of(result.members for result in self.results)

    @cached_property
    def acr(self) -> Estimate:
        """ACR with its errors."""
        return estimate(self.sample)

    def difference_to(self, other: Group) -> Estimate:
        """Return the difference of the ACR to another group's, with its errors."""
        return estimate(self.sample, other.sample)

    @property
    def sound(self) -> bool:
        """Whether the certificates cover the classifier as deployed."""
        return all(result.sound for result in self.results)

    @property
    def training_seconds(self) -> float | None:
        """Mean over the seeds, or ``None`` if a seed does not say."""
        seconds = [
            result.training_seconds
            for result in self.results
            if result.training_seconds is not None
        ]
        return sum(seconds) / len(seconds) if len(seconds) == len(self.results) else None

    def accuracy(self, radius: float) -> float:
        """Return the certified accuracy at ``radius``, mean over the seeds."""
        return fmean(float(metrics.certified_accuracy(rows, radius)) for rows in self.rows)

    @cached_property
    def numbers(self) -> dict[str, float | int]:
        """Headline numbers by name, none of them NaN; ``standard_error`` is that over images."""
        numbers = {
            "acr": self.acr.value,
            "standard_error": self.acr.error_images,
            "clean_accuracy": self.accuracy(0.0),
            "images": self.acr.images,
            "seeds": self.acr.seeds,
        }
        if self.acr.error is not None:
            numbers["standard_error_with_seeds"] = self.acr.error
        if all(result.acr_two_sided for result in self.results):
            for split in SPLITS:
                name = "acr_two_sided" if split == "even" else f"acr_two_sided_{split}"
                numbers[name] = fmean(result.acr_two_sided[split] for result in self.results)
        return numbers


Groups = dict[float, dict[str, Group]]
"""By noise level, then by method, both in the order of the results."""


def grouped(results: Sequence[Result]) -> Groups:
    """Group results by noise level and method, and refuse those that cannot be compared.

    Raises:
        InputError: If one comes twice, or they differ in data set, noise seed, subset, n0, n or
            alpha; at one noise level also if they differ in images or sigma.
    """
    first: dict[str, tuple[Result, object]] = {}
    groups: dict[float, dict[str, list[Result]]] = {}
    for result in results:
        metrics.check_radii(result.rows, result.full_name)
        _check_shared(first, result)
        seeds = groups.setdefault(result.sigma, {}).setdefault(result.name, [])
        _check_belongs(seeds, result)
        seeds.append(result)
        _check_images(next(iter(groups[result.sigma].values()))[0], result)
    return {
        sigma: {method: Group(tuple(seeds)) for method, seeds in methods.items()}
        for sigma, methods in groups.items()
    }


def filter_groups(groups: Groups, keep: Callable[[Result], bool]) -> Groups:
    """Return the groups whose first result is to be kept, at the noise levels where there are any."""
    filtered = {
        sigma: {method: group for method, group in methods.items() if keep(group.first)}
        for sigma, methods in groups.items()
    }
    return {sigma: methods for sigma, methods in filtered.items() if methods}


def results_of(groups: Groups) -> list[Result]:
    """Return every result of every group."""
    return [
        result
        for methods in groups.values()
        for group in methods.values()
        for result in group.results
    ]


def methods_of(groups: Groups) -> list[str]:
    """Return the methods of all noise levels in the order of their first appearance."""
    return list(dict.fromkeys(method for methods in groups.values() for method in methods))


def best(methods: Mapping[str, Group]) -> list[str]:
    """Return the sound method of largest ACR and, after it, every sound one that ties with it."""
    sound = {method: group for method, group in methods.items() if group.sound}
    if not sound:
        return []
    first = max(sound, key=lambda method: sound[method].acr.value)
    others = [method for method in sound if method != first]
    return [first, *(method for method in others if sound[first].difference_to(sound[method]).tie)]


def published(dataset: str) -> pd.DataFrame:
    """Return the published figures on ``dataset``.

    Returns:
        Columns ``source table dataset sigma method metric radius value unit``, with ``metric`` one
        of ``acr``, ``clean_accuracy``, ``certified_accuracy``, ``training_hours`` and
        ``certificate_seconds``, accuracies as shares of 1, and ``radius`` NaN where there is none.
        The figures are of 500 test images at n0 = 100, n = 100,000 and alpha = 0.001; "clean
        accuracy" is certified accuracy at radius 0.

    >>> figures = published("cifar10").query("method == 'advmacer' and metric == 'acr' and table == 'table_main'")
    >>> figures[["sigma", "value"]].values.tolist()
    [[0.25, 0.554], [0.5, 0.742], [1.0, 0.794]]
    """
    figures = pd.read_csv(PUBLISHED)
    return figures[figures["dataset"] == dataset].reset_index(drop=True)


def _check_belongs(seeds: Sequence[Result], result: Result) -> None:
    """Check a result against those that bear its name already."""
    if any(result.ensemble != other.ensemble for other in seeds):
        raise InputError(
            f"{result.full_name} must be one kind of classifier, got an ensemble and a model; "
            "rename one"
        )
    if any((result.seed, result.members) == (other.seed, other.members) for other in seeds):
        raise InputError(f"{result.full_name} must come once, got it twice; remove one of the two")


def _check_shared(first: dict[str, tuple[Result, object]], result: Result) -> None:
    """Compare what a result says of what all share with the first one that says it; a budget of 0
    says nothing.
    """
    budget = {
        name: value for name, value in result.terms.budget.items() if name != "sigma" and value != 0
    }
    stated = {name: result.source[key] for key, name in MUST_AGREE.items() if key in result.source}
    for name, value in {
        "subset": result.subset,
        "mode": result.terms.mode,
        **budget,
        **stated,
    }.items():
        other, expected = first.setdefault(name, (result, value))
        if value != expected:
            texts = [
                f"{each:g}" if isinstance(each, float) else str(each)[:16]
                for each in (expected, value)
            ]
            raise InputError(
                f"{other.full_name} and {result.full_name} must be certified with the same {name}, "
                f"got {texts[0]} and "
                f"{texts[1]}; certify both alike"
            )


def _check_images(a: Result, b: Result) -> None:
    """Check that two results of a noise level are of the same images; the message names both."""
    try:
        metrics.check_comparable([a.terms, b.terms])
    except InputError as error:
        raise InputError(f"{a.full_name} and {b.full_name}: {error}") from error
