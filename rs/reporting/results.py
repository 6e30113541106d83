"""The results of a study, grouped by noise level and method, and the published figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rs.errors import InputError
from rs.statistics import metrics
from rs.statistics.certificate import PER_IMAGE_SCOPE
from rs.statistics.comparison import Estimate, Sample, estimate, fewest_seeds_of, sample
from rs.statistics.metrics import Terms
from rs.statistics.resampling import two_sided
from rs.storage.provenance import Provenance
from rs.study.ensembles import composition, members_text

MUST_AGREE = {"images": "images", "seed": "noise seed"}
"""What all rows of a study share: fields of their provenance, and their names."""

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
    classes: int | None = None  # of two-sided radii; None: these are not computed
    scope: str = "model"  # what the classifier is, one of rs.statistics.certificate.SCOPES
    ensemble: str | None = None  # members, like "advmacer x1 + smoothadv x2"; None: a single model
    combination: str | None = None  # a key of `combinations` in the parameters
    members: tuple[tuple[str, int], ...] = ()  # training method and seed of each member
    provenance: Provenance = field(default_factory=Provenance)  # empty without a sidecar
    stage: str | None = None  # of the study, "models" or "pools": its code made the rows
    # ``file`` and ``command`` of the rows, and in a study their ``parameters``
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """Method, members, noise level and seed, in words: no other result has the same."""
        name = self.name
        if self.members and self.ensemble != members_text(self.members):
            name += f" of {members_text(self.members)}"
        name += f" at sigma {self.sigma}"
        return name if self.seed is None else f"{name}, seed {self.seed}"

    @property
    def seeds(self) -> set[int]:
        """Training seeds that it depends on; empty where they are not known."""
        if self.members:
            return {seed for _, seed in self.members}
        return set() if self.seed is None else {self.seed}

    @property
    def kind(self) -> str:
        """Name without training seeds: the number of members of each method, and how combined."""
        if self.ensemble is None:
            return self.name
        return self.name.replace(self.ensemble, composition(self.members), 1)

    @property
    def members_per_draw(self) -> float:
        """Evaluations of members per noisy image: as rows count them, or the members that vote."""
        if "evaluations" not in self.rows:
            return float(len(self.members) or 1)
        return float(self.rows["evaluations"].sum() / (self.rows["n0"] + self.rows["n"]).sum())

    @property
    def training_methods(self) -> list[str]:
        """Training methods of the members, each once, sorted."""
        return sorted({method for method, _ in self.members})

    @cached_property
    def terms(self) -> Terms:
        """Mode, budget and images, which comparable results share."""
        return metrics.terms_of(self.rows)

    @cached_property
    def acr_two_sided(self) -> float:
        """ACR of the two-sided certificates of the same votes; NaN without ``classes``."""
        if self.classes is None:
            return math.nan
        return metrics.acr(two_sided(self.rows, self.classes))

    @property
    def sound(self) -> bool:
        """Whether the certificate covers the classifier as it is deployed."""
        return self.scope != PER_IMAGE_SCOPE


@dataclass(frozen=True)
class Group:
    """The results of one method at one noise level, by training seed or sub-ensemble of seeds."""

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
    def member_sets(self) -> list[tuple[tuple[str, int], ...]]:
        """Training method and seed of the members of every result."""
        return [result.members for result in self.results]

    @cached_property
    def sample(self) -> Sample:
        """Scores of all results, with the seeds that each depends on."""
        return self.sample_of(self.rows)

    def sample_of(self, rows: Sequence[pd.DataFrame], radius: float | None = None) -> Sample:
        """Return scores of rows of the same classifiers (``rs.statistics.comparison.sample``)."""
        seeds = [result.seeds for result in self.results]
        return sample(rows, seeds, radius, fewest_seeds_of(self.member_sets))

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
        return self.first.sound

    @property
    def training_seconds(self) -> float | None:
        """Mean over the results, or ``None`` if the time of one is not known."""
        seconds = []
        for result in self.results:
            if result.training_seconds is None:
                return None
            seconds.append(result.training_seconds)
        return sum(seconds) / len(seconds)

    @property
    def members_per_draw(self) -> float:
        """Evaluations of members per noisy image, mean over the results."""
        return fmean(result.members_per_draw for result in self.results)

    def accuracies(self, radii: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the certified accuracy at each of ``radii``, mean over the seeds."""
        shares = [metrics.certified_accuracy(rows, radii) for rows in self.rows]
        return np.mean(shares, axis=0)

    def accuracy(self, radius: float) -> float:
        """Return the certified accuracy at ``radius``, mean over the seeds."""
        return fmean(float(metrics.certified_accuracy(rows, radius)) for rows in self.rows)

    @cached_property
    def numbers(self) -> dict[str, float | int]:
        """Headline numbers by name, without NaN; ``standard_error`` is the error over images."""
        numbers = {
            "acr": self.acr.value,
            "standard_error": self.acr.error_images,
            "clean_accuracy": self.accuracy(0.0),
            "images": self.acr.images,
            "seeds": self.acr.seeds,
        }
        if self.acr.error is not None:
            numbers["standard_error_with_seeds"] = self.acr.error
        two_sided_acr = fmean(result.acr_two_sided for result in self.results)
        if not math.isnan(two_sided_acr):
            numbers["acr_two_sided"] = two_sided_acr
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
    complete: Groups = {}
    for sigma, methods in groups.items():
        complete[sigma] = {method: Group(tuple(seeds)) for method, seeds in methods.items()}
    return complete


def results_of(groups: Groups) -> list[Result]:
    """Return every result of every group."""
    results: list[Result] = []
    for methods in groups.values():
        for group in methods.values():
            results += group.results
    return results


def budget_of(groups: Groups, name: str) -> float:
    """Return the one value of n0, n, alpha or sigma that all results have."""
    terms = [result.terms for result in results_of(groups)]
    return metrics.common_budget(terms, name)


def methods_of(groups: Groups) -> list[str]:
    """Return the methods of all noise levels in the order of their first appearance."""
    names: dict[str, None] = {}
    for methods in groups.values():
        names |= dict.fromkeys(methods)
    return list(names)


def best(methods: Mapping[str, Group]) -> list[str]:
    """Return the sound method of largest ACR and, after it, every sound one that ties with it."""
    sound = [method for method in methods if methods[method].sound]
    if not sound:
        return []
    first = max(sound, key=lambda method: methods[method].acr.value)
    tied = [first]
    for method in sound:
        if method != first and methods[first].difference_to(methods[method]).tie:
            tied.append(method)
    return tied


def published(dataset: str) -> pd.DataFrame:
    """Return the published figures on ``dataset``.

    Returns:
        Columns ``source table dataset sigma method metric radius value unit``, with ``metric`` one
        of ``acr``, ``clean_accuracy``, ``certified_accuracy``, ``training_hours`` and
        ``certificate_seconds``, accuracies as shares of 1, and ``radius`` NaN where there is none.
        The figures are of 500 test images at n0 = 100, n = 100,000 and alpha = 0.001; "clean
        accuracy" is certified accuracy at radius 0.

    >>> figures = published("cifar10").query("method == 'advmacer' and metric == 'acr'")
    >>> figures.query("table == 'table_main'")[["sigma", "value"]].values.tolist()
    [[0.25, 0.554], [0.5, 0.742], [1.0, 0.794]]
    """
    figures = pd.read_csv(PUBLISHED)
    return figures[figures["dataset"] == dataset]


def _check_belongs(seeds: Sequence[Result], result: Result) -> None:
    """Check a result against those that already have its name."""
    for other in seeds:
        if result.ensemble != other.ensemble:
            raise InputError(
                f"{result.full_name} must be one kind of classifier, got an ensemble and a model; "
                "rename one"
            )
        if (result.seed, result.members) == (other.seed, other.members):
            raise InputError(
                f"{result.full_name} must come once, got it twice; remove one of the two"
            )


def _check_shared(first: dict[str, tuple[Result, object]], result: Result) -> None:
    """Compare what all results share with the first result that states it; a budget of 0 does not.

    Adds to ``first`` what the result is the first to state.
    """
    stated: dict[str, Any] = {"subset": result.subset}
    for name, value in result.terms.budget.items():
        if name != "sigma" and value != 0:
            stated[name] = value
    if result.stage is not None:
        for key, name in MUST_AGREE.items():
            stated[name] = getattr(result.provenance, key)
    for name, value in stated.items():
        if value is None:
            continue
        other, expected = first.setdefault(name, (result, value))
        if value != expected:
            raise InputError(
                f"{other.full_name} and {result.full_name} must be certified with the same {name}, "
                f"got {_short(expected)} and {_short(value)}; certify both the same way"
            )


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:16]


def _check_images(a: Result, b: Result) -> None:
    """Check that two results of a noise level are of the same images; the message names both."""
    try:
        metrics.check_comparable([a.terms, b.terms])
    except InputError as error:
        raise InputError(f"{a.full_name} and {b.full_name}: {error}") from error
