"""Attack certified images: one row per image with the smallest confirmed perturbation.

A certificate says that no perturbation within its radius changes the smoothed prediction. An attack
bounds the same distance from above. Both statements hold except with a stated probability.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri
from torch import Tensor, nn

from rs.certification.certify_model import report_expected_time
from rs.certification.load import Classifier
from rs.certification.quantize import quantized_identity
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.backend import device_of
from rs.models.fingerprint import model_fingerprint
from rs.params import Count, NonNegativeCount, validated
from rs.runtime import arithmetic, code_fingerprint
from rs.runtime.device import limit_threads
from rs.runtime.streams import Stream, stream
from rs.smoothing.attack import ascend, clip, project
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.gradients import LogProbabilities, margin, vote_gradient
from rs.smoothing.inputs import check_can_predict
from rs.smoothing.noise import BLOCK, GRAY_LEVELS
from rs.smoothing.settings import DrawCount, Draws, SmoothingOptions
from rs.smoothing.soft import gradient_of
from rs.statistics.certificate import ABSTAIN, MIN_ALPHA, UNLABELED
from rs.statistics.radius import predicted_class
from rs.storage import attack_rows, certificate_rows
from rs.storage.attack_rows import ATTEMPTS
from rs.storage.provenance import Provenance
from rs.storage.row_writer import write_rows
from rs.study.subset import share_of

MODULE = "rs/certification/attack_certificates.py"
"""Code that rows depend on."""

START = 2.0
"""Radius of the first ascent, in certified radii."""

CLIMB, WALK, REFINE = 6, 8, 4
"""Steps of the first ascent, and along the boundary with gradients and with votes alone."""

VOTES = 500
"""Noise samples of each step with votes alone, and of each of :data:`LINE` measurements."""

LINE = 6
"""Measurements of the distance of the boundary in one direction."""

CLOSED = 1.01
"""Found radius, in certified radii, from which on no further start is tried."""

MARGIN = 8.0
"""Standard deviations of votes beyond the boundary at which a point is tested first."""

GRADIENT_COST = 3
"""Evaluations that take as long as one evaluation with its gradient."""


@validated
class AttackSettings:
    """How to attack."""

    samples: DrawCount = 100  # noise samples of each gradient
    restarts: Count = 2
    n: DrawCount = 20_000  # fresh samples that confirm a perturbation
    alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)] = 1e-4  # that the upper bound is false
    seed: NonNegativeCount = 0
    limit: Count | None = None  # attack the first images only

    def __post_init__(self) -> None:
        check_can_predict(self.n, self.alpha, ATTEMPTS)

    @property
    def evaluations(self) -> int:
        """The largest number of evaluations of an image; one with a gradient counts as three."""
        gradients = GRADIENT_COST * (CLIMB + WALK) * self.samples
        votes = (REFINE + 2 * LINE) * VOTES
        return self.restarts * (gradients + votes) + ATTEMPTS * self.n


class Perturbation(NamedTuple):
    """The smallest confirmed perturbation."""

    distance: float = math.nan  # in l2, in pixels of [0, 1]
    attack: str = "-"
    counts: tuple[int, ...] = ()  # votes that confirm it


@dataclass
class Target:
    """A certified image under attack."""

    smoothed: SmoothedClassifier
    network: nn.Module  # that gradients are of
    x: Tensor  # (C, H, W)
    label: int  # the certified class
    index: int
    settings: AttackSettings
    classes: int
    used: int = 0  # noise samples of the search so far

    def fresh(self, count: int) -> int:
        """Return the first of ``count`` noise samples that the search has not used."""
        start = self.used
        self.used += math.ceil(count / BLOCK) * BLOCK
        return start

    def clipped(self, u: Tensor) -> Tensor:
        """Return the image at a perturbation, within the bounds of inputs."""
        return clip(self.x + u, self.smoothed.bounds)

    def point(self, u: Tensor) -> Tensor:
        """Return the image at a perturbation: in the bounds, and of 8 bits with grid noise."""
        point = self.clipped(u)
        if self.smoothed.noise_of(self.x) == "grid":
            point = (point * GRAY_LEVELS).round() / GRAY_LEVELS
        return point

    def distance(self, point: Tensor) -> float:
        """Return the l2 distance of a point from the image."""
        return float((point.double() - self.x.double()).norm())

    def lead(self, counts: NDArray[np.int64]) -> tuple[int, float]:
        """Return the best other class, and how far it leads, in noise standard deviations.

        The lead (Phi^-1(p_r) - Phi^-1(p_second)) / 2 changes by at most d / sigma over an
        l2 distance d (Cohen et al. 2019, Theorem 1); it is negative where the class still wins.
        """
        rivals = counts.copy()
        rivals[self.label] = -1
        rival = int(rivals.argmax())
        second = np.delete(counts, rival).max()
        shares = (np.array([counts[rival], second]) + 0.5) / (counts.sum() + 1)
        quantiles = ndtri(shares)
        return rival, float(quantiles[0] - quantiles[1]) / 2

    def soft_slope(self, point: Tensor) -> Tensor:
        """Return the gradient of the soft margin under fresh noise, (1, C, H, W) as the points."""
        key = self.settings.seed, self.index, self.fresh(BLOCK)
        module = LogProbabilities(self.network, self.smoothed.sigma, self.settings.samples, *key)
        labels = torch.tensor([self.label], device=point.device)
        return gradient_of(lambda points: margin(module(points), labels), point)[1]

    def soft_step(self, point: Tensor) -> tuple[float, Tensor]:
        """Return the lead and the direction to the boundary by gradients."""
        samples = self.settings.samples
        counts = self.votes(self.point(point - self.x), samples)
        return self.lead(counts)[1], self.soft_slope(point[None])[0]

    def vote_step(self, point: Tensor) -> tuple[float, Tensor]:
        """Return the lead and the direction to the boundary by votes alone."""
        near = self.point(point - self.x)
        start = self.fresh(VOTES)
        key: dict[str, Any] = {"seed": self.settings.seed, "index": self.index}
        copies, votes = self.smoothed.samples(near, VOTES, **key, stream=Stream.ATTACK, start=start)
        classes = torch.tensor(votes, device=near.device)
        rival, lead = self.lead(np.bincount(votes, minlength=self.classes))
        return lead, vote_gradient(copies, classes, near, rival, self.label)

    def votes(self, point: Tensor, count: int) -> NDArray[np.int64]:
        """Return fresh votes of the search."""
        start = self.fresh(count)
        key = self.settings.seed, Stream.ATTACK, self.index
        return self.smoothed.votes(point, count, *key, start=start)

    def walk(self, u: Tensor, steps: int, step: Callable[[Tensor], tuple[float, Tensor]]) -> Tensor:
        """Return a perturbation at the boundary, turned toward its nearest point.

        Each step moves along the perturbation to where the boundary is by the lead, and turns it
        toward the mean of the directions so far.
        """
        mean = torch.zeros_like(u)
        for _ in range(steps):
            point = self.clipped(u)
            lead, slope = step(point)
            u = point - self.x
            mean = _unit(mean / 2 + _unit(slope))
            length = max(float(u.norm()) - self.smoothed.sigma * lead, 1e-3)
            u = length * _unit(_unit(u) + mean / 2)
        return u

    def boundary(self, u: Tensor) -> float:
        """Return the distance of the boundary in the direction of ``u``, from several estimates."""
        direction = _unit(u)
        length = float(u.norm())
        estimates = []
        for _ in range(LINE):
            point = self.point(length * direction)
            lead = self.lead(self.votes(point, VOTES))[1]
            length = max(self.distance(point) - self.smoothed.sigma * lead, 1e-3)
            estimates.append(length)
        return float(np.mean(estimates[1:]))

    def confirm(self, direction: Tensor, length: float, attack: str) -> Perturbation:
        """Test points a little beyond the boundary by PREDICT, each on fresh samples.

        Each of at most :data:`ATTEMPTS` tests has its share of alpha, so all are right except with
        probability alpha.
        """
        settings = self.settings
        deviation = self.smoothed.sigma * math.sqrt(math.pi / 2 / settings.n)
        blocks = math.ceil(settings.n / BLOCK) * BLOCK
        for attempt in range(ATTEMPTS):
            beyond = MARGIN * 1.6**attempt * deviation
            point = self.point((length + beyond) * direction)
            key = settings.seed, Stream.PREDICT, self.index
            counts = self.smoothed.votes(point, settings.n, *key, start=attempt * blocks)
            predicted = predicted_class(counts, settings.alpha / ATTEMPTS)
            if predicted not in (ABSTAIN, self.label):
                return Perturbation(self.distance(point), attack, tuple(counts.tolist()))
            lead = self.lead(counts)[1]
            length = max(length, self.distance(point) - self.smoothed.sigma * lead)
        return Perturbation()


def _unit(u: Tensor) -> Tensor:
    return u / u.norm().clamp_min(torch.finfo(u.dtype).tiny)


def attack_image(target: Target, radius: float) -> Perturbation:
    """Return the smallest confirmed perturbation that changes the smoothed prediction.

    Each start climbs the soft margin within twice the certified radius (PGD with the expectation
    over noise), and then walks along the boundary: with gradients, and with votes alone.

    Args:
        target: The image.
        radius: Its certified radius.
    """
    settings = target.settings
    rng = stream(settings.seed, Stream.ATTACK, target.index, device=target.x.device)
    images = target.x[None]
    bounds = target.smoothed.bounds
    best = math.inf, torch.zeros_like(target.x), "-"
    for restart in range(settings.restarts):
        start = torch.zeros_like(images)
        if restart > 0:
            noise = torch.randn(images.shape, generator=rng, device=images.device)
            start = project(noise, radius / 2)
        epsilon = START * radius
        u = ascend(target.soft_slope, images, start, CLIMB, epsilon, rng, bounds=bounds)[0]
        for attack, steps, step in (
            ("gradient", WALK, target.soft_step),
            ("votes", REFINE, target.vote_step),
        ):
            u = target.walk(u, steps, step)
            length = target.boundary(u)
            if length < best[0]:
                best = length, _unit(u), attack
        if best[0] <= CLOSED * radius:
            break
    length, direction, attack = best
    return target.confirm(direction, length, attack)


def attack_certificates(
    rows: Path,
    base: Classifier,
    images: Images,
    settings: AttackSettings,
    options: SmoothingOptions,
    *,
    out: Path,
    share: str | None = None,
) -> None:
    """Attack the certified images of a row file that are classified correctly.

    Args:
        rows: Certificate rows.
        base: The classifier that they certify.
        images: Its images.
        settings: How to attack.
        options: Device, batch and calibration images; sigma is that of the rows.
        out: The file of attack rows, ``*.tsv``.
        share: As for :func:`rs.study.subset.share_of`; ``None`` for all images.
    Raises:
        InputError: If the rows are of another classifier or of other images, or certify none.
    """
    limit_threads(images.meta.shape)
    certified = _certified(rows).iloc[: settings.limit]
    stated = Provenance.read(rows, "give rows of rs certify")
    device = options.device or device_of(base.module)
    _check_same(rows, stated, base, images, device)
    smoothed = _smoothed(base, stated, options)
    indices = certified.index.to_numpy()
    if share is not None:
        indices = share_of(indices, share)
    # networks in int8 have versions of their own
    computed = {"versions": checkpoint.library_versions()} | quantized_identity([smoothed.base])
    provenance = replace(
        stated,
        model=base.name,
        n0=None,
        n=settings.n,
        alpha=settings.alpha,
        seed=settings.seed,
        shortcut=None,
        stop=None,
        device=device.type,
        arithmetic=arithmetic.current(),
        rows=len(indices),
        code=code_fingerprint.code_hash(MODULE),
        share=share,
        certificates=hashlib.sha256(rows.read_bytes()).hexdigest(),
        attack=asdict(settings),
        **computed,
    )
    if not out.exists():
        first_image = images.pixels(int(indices[0])).to(device)
        draws = Draws(n0=0, n=settings.evaluations, seed=settings.seed)
        report_expected_time(smoothed, first_image, len(indices), draws)
    classes = len(images.meta.classes)
    with write_rows(
        {out: provenance}, indices, attack_rows.attack_rows_text, verb="attack"
    ) as writer:
        for index in writer.remaining:
            image = images.pixels(index).to(device)
            label = int(certified.loc[index, "predict"])
            radius = float(certified.loc[index, "radius"])
            target = Target(smoothed, base.module, image, label, index, settings, classes)
            perturbation = attack_image(target, radius)
            row = asdict(settings) | {
                "idx": index,
                "predict": label,
                "radius": radius,
                "found": perturbation.distance,
                "attack": perturbation.attack,
                "samples": target.used,
                "classes": classes,
                "counts": perturbation.counts,
            }
            writer.write(index, {out: row})
            if perturbation.distance < radius:
                text = (
                    f"FALSE CERTIFICATE: IMAGE {index} HAS ANOTHER CLASS AT "
                    f"{perturbation.distance:.4f}, INSIDE ITS CERTIFIED RADIUS {radius:.4f}"
                )
                typer.secho(text, bold=True, err=True)


def _certified(rows: Path) -> pd.DataFrame:
    """Return the rows of certified images whose class is right, or not known, by image."""
    frame = certificate_rows.read_rows(rows)
    is_counted = (frame["correct"] == 1) | (frame["label"] == UNLABELED)
    certified = frame[is_counted & (frame["radius"] > 0)].set_index("idx")
    if certified.empty:
        raise InputError(
            f"{rows} must certify an image correctly to be attacked, but certifies none"
        )
    return certified


def _smoothed(
    base: Classifier, stated: Provenance, options: SmoothingOptions
) -> SmoothedClassifier:
    """Return the smoothed classifier that a sidecar is of."""
    arguments: dict[str, Any] = {"engine": stated.engine, "noise": stated.noise}
    is_quantized = stated.engine == "quantized"  # it states the precision of its networks, int8
    arguments["precision"] = "auto" if is_quantized else stated.precision
    arguments |= {"batch": options.batch, "calibration": options.calibration}
    return base.smooth(stated.sigma, device=options.device, **arguments)


def _check_same(
    rows: Path, stated: Provenance, base: Classifier, images: Images, device: torch.device
) -> None:
    """Refuse a classifier or images that the rows are not of."""
    actual = replace(
        stated,
        classifier=model_fingerprint(base.module),
        probe=base.probe(device),
        images=images.fingerprint,
    )
    if difference := stated.difference(actual):
        raise InputError(
            f"{rows} must be certificates of this model and these images, but {difference}; give "
            "the model and the data of rs certify"
        )
