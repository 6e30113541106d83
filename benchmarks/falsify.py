"""Try to falsify certificates: strong l2 attacks on smoothed classifiers, inside their certified
radius and beyond it.

``python -m benchmarks.falsify models/digits/*/*/0 weights/digits/*/*.json --data data/digits --out
OUT.csv``

A certificate says that the class keeps a probability of at least 1/2 up to its radius R. Each
attack looks for a point at .9 R or .99 R where it does not. It may leave [0, 1], knows the networks
and sigma, and draws its noise anew in each step:

- two ascents of the soft smoothed margin log z_hat_r - log z_hat_y, one to the runner-up of the
  moment, one from a random start to the second class with sharpened votes (Salman et al. 2019;
  Athalye et al. 2018: expectation over transformation);
- one without gradients, by Stein's identity on the scores of the certified classifier itself.

The worst point is then judged by fresh votes: the class is below one half, or another has more,
where an exact binomial test says so at 1e-6. Beyond the radius, at 2.5 R, the same attack should
succeed: so it is strong. Weights that are chosen image by image are solved anew at the attacked
point, and attacked through their solution; with ``--boxed`` among images in [0, 1] alone.

Rows are written group after group; the same command continues. Gradients are those of the machine
that computes them, so another one finds other points: its counts can differ by a few, and say what
is at least possible.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer
from scipy import stats
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.common import evenly
from rs import params as parameters
from rs.certification.load import load
from rs.command_line.shell import DataFolder, Device, ParamsFile, run
from rs.data.images import load_images
from rs.ensemble import spec as ensemble_spec
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.member_outputs import (
    WeightSettings,
    margins,
    noisy_copies,
    perturbed_parameters,
    perturbed_probabilities,
)
from rs.ensemble.outputs import Outputs
from rs.ensemble.spec import EnsembleSpec
from rs.runtime.device import resolve_device
from rs.runtime.streams import Stream
from rs.smoothing import Noise
from rs.smoothing.attack import evaluating, forward, project, unit
from rs.smoothing.classifier import SmoothedClassifier, autocast
from rs.smoothing.noise import GRAY_LEVELS
from rs.smoothing.soft import LOG_CLAMP, soft_probabilities
from rs.statistics.certificate import Certificate
from rs.statistics.ensemble_weights import inverse_square_margins, per_image_weights
from rs.statistics.radius import lower_bound, upper_bound
from rs.storage import files

if TYPE_CHECKING:
    from rs.data.prepared import Images

INSIDE, BEYOND = (0.9, 0.99), 2.5
"""Distances of attacked points, in certified radii."""
SMALL = 1e-3
"""Smaller radii are not attacked: a sum of float32 is rounded by as much as is left between .99 R
and R.
"""
LEVEL = 1e-6
"""Level of the test that says that a certificate is false."""
N0, N, ALPHA = 100, 1_000, 0.001
"""Draws and failure probability of the certificates."""
SCREENED, DOUBTFUL = 200, 0.65
"""Votes that choose the worst point; the share of the class among them above which it holds."""
JUDGED, CLEAR = 20_000, 500
"""Fresh votes that judge the worst point; where the first ones leave the class less than 1 -
DOUBTFUL.
"""
SEED = 1
STEPS, DRAWS, SCORED, COPIES = 12, 16, 48, 4
"""Of an attack: steps; draws in each with gradients, and without; perturbed copies that gradients
of weights are of.
"""
Precision = Literal["float32", "bfloat16", "int8"]
"""Of the attacked classifier; int8 is that of the engine ``quantized``. Gradients are those of
float32.
"""
SETTINGS: tuple[tuple[Noise, Precision], ...] = (
    ("gaussian", "float32"),
    ("grid", "float32"),
    ("gaussian", "bfloat16"),
    ("gaussian", "int8"),
)
COLUMNS = (
    "model",
    "sigma",
    "classifier",
    "scope",
    "noise",
    "precision",
    "boxed",
    "distance",
    "attacked",
    "below_half",
)
COLUMNS += ("outvoted", "outvoted_anew", "flipped", "least_share", "images")


# ------------------------------------------------------------------------------------------
# what is attacked


@dataclass(frozen=True)
class Fixed:
    """A classifier that is one function of the noisy image."""

    smoothed: SmoothedClassifier
    surrogate: nn.Module = field(repr=False)  # images -> logits with gradients

    @property
    def sigma(self) -> float:
        """Of the noise, in pixels of [0, 1]."""
        return self.smoothed.sigma

    def at(self, x: Tensor, index: int) -> SmoothedClassifier:
        """The classifier that is certified, and meets the attacked point."""
        return self.smoothed

    def soft(
        self, x: Tensor, y: Tensor, indices: Sequence[int], noise: Tensor, beta: float
    ) -> Tensor:
        """Soft smoothed prediction at points (B, C, H, W), with gradients; (B, K)."""
        return soft_probabilities(forward(self.surrogate, x, noise), beta)


class AverageLogits(nn.Module):
    """The logarithm of the members' average softmax: what the gradients of an attack on any rule
    are of.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members, self.rule = nn.ModuleList(members), SoftmaxAverage()

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images."""
        return (
            self.rule.scores(Outputs([member(x) for member in self.members]))
            .clamp_min(LOG_CLAMP)
            .log()
        )


def surrogate_of(module: nn.Module) -> nn.Module:
    """What gradients are of: a network itself, or the average of the members of an ensemble."""
    return (AverageLogits([*module.members]) if isinstance(module, Ensemble) else module).eval()


@dataclass(frozen=True)
class PerImage:
    """The classifier whose weights are solved for each image: another one at each point (Algorithm
    2 of the paper).
    """

    members: list[nn.Module] = field(repr=False)
    names: list[int]  # of their perturbations
    labels: np.ndarray  # (N,)
    spec: EnsembleSpec
    settings: WeightSettings
    classes: int
    boxed: bool  # attacked among images in [0, 1] alone

    @property
    def sigma(self) -> float:
        """Of the noise, in pixels of [0, 1]."""
        return self.spec.sigma

    def at(self, x: Tensor, index: int, repeat: int = 0) -> SmoothedClassifier:
        """The classifier of an image, with its weights."""
        base = Ensemble(self.members, SoftmaxAverage(self.weights(x, index, repeat)))
        return SmoothedClassifier(base, self.classes, self.spec.sigma, noise="gaussian")

    def weights(self, x: Tensor, index: int, repeat: int = 0) -> np.ndarray:
        """The weights (L,) that the stage ``weights`` gives to these pixels of image ``index``.

        ``repeat`` 1 takes other noise and other perturbations of the members.
        """
        p = perturbed_probabilities(
            self.members, x[None], self.settings, sigma=self.spec.sigma, indices=[index],
            names=self.names, repeat=repeat,
        )  # fmt: skip
        y = [self.target(x, index)]
        return per_image_weights(margins(p, y), y, self.spec.combination.weights)[0]

    def target(self, x: Tensor, index: int) -> int:
        """The class whose margins choose the weights."""
        if self.spec.combination.target == "label":
            return int(self.labels[index])
        base = Ensemble(self.members, SoftmaxAverage())
        average = SmoothedClassifier(base, self.classes, self.spec.sigma, noise="gaussian")
        return int(average.votes(x, N0, 0, Stream.SELECT, index).argmax())

    def soft(
        self, x: Tensor, y: Tensor, indices: Sequence[int], noise: Tensor, beta: float
    ) -> Tensor:
        """Soft smoothed prediction with the weights of each point, with gradients through them; (B,
        K).
        """
        p = torch.stack([forward(member, x, noise).double().softmax(-1) for member in self.members])
        mixed = torch.einsum("bl,lbmk->bmk", self.solved(x, y, indices), p)
        return soft_probabilities(mixed.clamp_min(LOG_CLAMP).log(), beta)

    def solved(self, x: Tensor, y: Tensor, indices: Sequence[int]) -> Tensor:
        """Weights (B, L), with gradients: on the members that have any, w is the solution of S w =
        1, scaled.
        """
        labelled = self.spec.combination.target == "label"
        targets = torch.as_tensor(self.labels[list(indices)]) if labelled else y.cpu()
        p = self._perturbed(x, indices).cpu()  # (B, L, J, K)
        z = p.gather(-1, targets[:, None, None, None].expand(*p.shape[:3], 1)) - p
        form = self.spec.combination.weights
        exact = torch.from_numpy(per_image_weights(z.detach().numpy(), targets.numpy(), form))
        means, centred = z.mean(dim=2), z - z.mean(dim=2, keepdim=True)
        usable = (
            torch.from_numpy(inverse_square_margins(means.detach().numpy(), targets.numpy()))
            .isfinite()
            .all(-1)
        )
        a = means.min(dim=1).values.clamp_min(1e-6) ** -2 * (
            targets[:, None] != torch.arange(p.shape[-1])
        )
        total = torch.einsum("bk,bljk,bmjk->blm", a, centred, centred) / z.shape[2]
        if form == "printed":  # the covariance has the other sign
            total = total * (2 * torch.eye(total.shape[-1], dtype=total.dtype) - 1)
        total = total / total.detach().abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-300)
        used = (exact > 0).double()
        system = total * used[:, :, None] * used[:, None, :] + torch.diag_embed(1 - used + 1e-9)
        free = torch.linalg.solve(system, used[..., None])[..., 0]
        near = free / free.sum(dim=1, keepdim=True)
        near = torch.where(usable[:, None], near, exact)
        return (exact + near - near.detach()).to(x.device)

    @cached_property
    def _copies(self) -> list[list[dict[str, Tensor]]]:
        settings = self.settings
        copies = range(min(COPIES, settings.copies))
        return [
            [
                perturbed_parameters(
                    member, settings.share, settings.scale, settings.seed, name, copy
                )
                for copy in copies
            ]
            for member, name in zip(self.members, self.names, strict=True)
        ]

    def _perturbed(self, x: Tensor, indices: Sequence[int]) -> Tensor:
        """``perturbed_probabilities`` with gradients in the images."""
        how = self.settings
        copies = [
            noisy_copies(one, how.noises, self.spec.sigma, how.seed, i)
            for one, i in zip(x, indices, strict=True)
        ]
        noisy = torch.cat(copies)
        p = torch.stack(
            [
                functional_call(member, parameters, (noisy,)).double().softmax(-1)
                for member, own in zip(self.members, self._copies, strict=True)
                for parameters in own
            ]
        )
        p = p.unflatten(0, (len(self.members), -1)).unflatten(2, (len(x), how.noises))
        return p.permute(2, 0, 1, 3, 4).flatten(2, 3)


Attacked = Fixed | PerImage


# ------------------------------------------------------------------------------------------
# attacks


class Points(NamedTuple):
    """Certified images that are attacked at once, each at one distance."""

    x: Tensor  # (B, C, H, W)
    y: Tensor  # (B,), the certified classes
    epsilon: Tensor  # (B, 1, 1, 1), how far a point may be
    indices: list[int]  # (B,)


def attacks(attacked: Attacked, points: Points, rng: torch.Generator) -> Iterator[Tensor]:
    """Yield perturbations (B, C, H, W) within ``epsilon``, attack by attack."""

    def prediction(x: Tensor, beta: float) -> Tensor:
        noise = attacked.sigma * torch.randn(
            (len(x), DRAWS, *x.shape[1:]), generator=rng, device=x.device
        )
        return attacked.soft(x, points.y, points.indices, noise, beta)

    def ascend(start: Tensor, beta: float, rank: int | None) -> Tensor:
        with torch.no_grad():
            z = prediction(points.x, 1.0)
            fixed = (
                None
                if rank is None
                else others(z, points.y).topk(min(rank, z.shape[1] - 1)).indices[:, -1]
            )

        def gradient(x: Tensor) -> Tensor:
            x = x.detach().requires_grad_()
            z = prediction(x, beta).clamp_min(LOG_CLAMP).log()
            target = others(z, points.y).argmax(dim=1) if fixed is None else fixed
            margin = z.gather(1, target[:, None]) - z.gather(1, points.y[:, None])
            return torch.autograd.grad(margin.sum(), x)[0]

        return climb(
            gradient, points, start, rng, boxed=isinstance(attacked, PerImage) and attacked.boxed
        )

    yield ascend(torch.zeros_like(points.x), 1.0, None)
    start = (
        project(torch.randn(points.x.shape, generator=rng, device=points.x.device), 1.0)
        * points.epsilon
        / 2
    )
    yield ascend(start, 4.0, 2)
    if isinstance(attacked, Fixed):
        yield climb(
            lambda x: stein(attacked.smoothed, x, points.y, rng),
            points,
            torch.zeros_like(points.x),
            rng,
        )


def others(z: Tensor, y: Tensor) -> Tensor:
    """Scores (B, K) without those of the class y."""
    return z.scatter(1, y[:, None], -torch.inf)


def climb(
    gradient: Callable[[Tensor], Tensor],
    points: Points,
    u: Tensor,
    rng: torch.Generator,
    *,
    boxed: bool = False,
) -> Tensor:
    """Ascend by unit steps of 2 epsilon / T within the ball; and, if ``boxed``, among images."""
    for _ in range(STEPS):
        u = u + 2 / STEPS * points.epsilon * unit(gradient(points.x + u), rng)
        u = project((points.x + u).clamp(0, 1) - points.x if boxed else u, points.epsilon)
    return u


def stein(smoothed: SmoothedClassifier, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
    """The gradient of the mean margin under noise without a gradient, E[m(x + e) e] / sigma^2, m =
    max_others - s_y.
    """
    half = smoothed.sigma * torch.randn(
        (len(x), SCORED // 2, *x.shape[1:]), generator=rng, device=x.device
    )
    noise = torch.cat([half, -half], dim=1)
    with torch.no_grad(), evaluating(smoothed.base), autocast(x.device, smoothed.precision):
        scores = forward(smoothed.base, x, noise).float()
    labels = y[:, None, None].expand(-1, SCORED, 1)
    margin = scores.scatter(2, labels, -torch.inf).amax(dim=2) - scores.gather(2, labels)[..., 0]
    return torch.einsum("bm,bmchw->bchw", margin, noise).clone()


def on_grid_within(u: Tensor, epsilon: float) -> Tensor:
    """Return whole levels within epsilon that are as near as possible to a multiple of ``u``."""
    for scale in np.linspace(1, 0, 201):
        levels = (scale * u * GRAY_LEVELS).round() / GRAY_LEVELS
        if levels.double().norm() <= epsilon:
            return levels
    raise AssertionError("0 is within every radius")


# ------------------------------------------------------------------------------------------
# verdicts


class Verdict(NamedTuple):
    """What fresh votes say of the class at an attacked point."""

    share: float  # of the votes
    below_half: bool  # its probability is below one half, at LEVEL
    # that of another class is larger, at LEVEL: the smoothed classifier gives another class
    outvoted: bool
    flipped: bool  # and is above one half, at LEVEL


def judge(
    smoothed: SmoothedClassifier,
    x: Tensor,
    y: int,
    rival: int,
    key: tuple[int, ...],
    draws: int = JUDGED,
) -> Verdict:
    """Judge a point by fresh votes; ``rival`` is the other class that may have won."""
    counts = smoothed.votes(x, draws, *key)
    below, above = (
        stats.binom.cdf(counts[y], draws, 0.5),
        stats.binom.sf(counts[rival] - 1, draws, 0.5),
    )
    larger = stats.binom.sf(
        counts[rival] - 1, counts[y] + counts[rival], 0.5
    )  # given the votes for the two
    return Verdict(
        int(counts[y]) / draws, *(bool(p_value <= LEVEL) for p_value in (below, larger, above))
    )


def others_of(counts: np.ndarray, y: int, smoothed: SmoothedClassifier) -> np.ndarray:
    """Votes without those for the class y and those for none."""
    left = counts.copy()
    left[[y, -1] if smoothed.undecided else y] = -1
    return left


class Certified(NamedTuple):
    """An image with its certificate."""

    index: int
    x: Tensor  # (C, H, W)
    certificate: Certificate


@dataclass(frozen=True)
class Attempt:
    """The worst point that was found of a certificate at a distance."""

    index: int
    distance: float  # in certified radii
    u: Tensor = field(repr=False)
    verdict: Verdict
    anew: bool  # per-image: outvoted too with weights from other draws


def falsify(attacked: Attacked, images: Sequence[Certified], seed: int) -> list[Attempt]:
    """Attack certified images at .99 R and at 2.5 R, and judge the worst points.

    At .9 R it is the worst point at .99 R, pulled in. Weights that are solved for images are
    attacked inside alone.
    """
    farthest = max(INSIDE)
    distances = (farthest,) if isinstance(attacked, PerImage) else (farthest, BEYOND)
    rows = [(image, distance) for image in images for distance in distances]
    x = torch.stack([image.x for image, _ in rows])
    epsilons = [image.certificate.radius * distance * (1 - 1e-6) for image, distance in rows]
    points = Points(
        x,
        torch.tensor([image.certificate.predict for image, _ in rows], device=x.device),
        torch.tensor(epsilons, device=x.device)[:, None, None, None],
        [image.index for image, _ in rows],
    )
    rng = torch.Generator(x.device).manual_seed(seed)
    found = torch.stack(list(attacks(attacked, points, rng)), dim=1)  # (B, attacks, C, H, W)
    attempts = []
    for (image, distance), us in zip(rows, found, strict=True):
        attempts.append(worst(attacked, image, distance, us, seed))
        for nearer in INSIDE if distance == farthest else ():
            if nearer < distance:
                pulled = attempts[-1].u[None] * (nearer / distance)
                attempts.append(worst(attacked, image, nearer, pulled, seed))
    return attempts


def worst(attacked: Attacked, image: Certified, distance: float, us: Tensor, seed: int) -> Attempt:
    """Judge the perturbation, of several (A, C, H, W), that leaves the class the fewest votes."""
    index, x, (y, epsilon) = (
        image.index,
        image.x,
        (image.certificate.predict, image.certificate.radius * distance),
    )
    if isinstance(attacked, PerImage) and attacked.boxed:
        us = (x + us).clamp(0, 1) - x
    points = x + us
    if isinstance(attacked, Fixed) and attacked.smoothed.noise == "grid":
        us = torch.stack([on_grid_within(u, epsilon) for u in us])
        points = ((x + us) * GRAY_LEVELS).round().clamp(
            0, GRAY_LEVELS
        ) / GRAY_LEVELS  # 8-bit images; clamping brings them nearer
        us = points - x
    moved = (points.double() - x.double()).flatten(1).norm(dim=1).max()
    assert distance > 1 or moved < image.certificate.radius
    found = [attacked.at(point, index) for point in points]
    counts = [
        at.votes(point, SCREENED, *_key(seed, index, 0))
        for at, point in zip(found, points, strict=True)
    ]
    number = int(np.argmin([count[y] for count in counts]))
    share, u, point = float(counts[number][y] / SCREENED), us[number], points[number]
    if share > DOUBTFUL:
        return Attempt(index, distance, u, Verdict(share, False, False, False), False)
    draws, key = JUDGED if share > 1 - DOUBTFUL else CLEAR, _key(seed, index, 1)
    rival = int(others_of(counts[number], y, found[number]).argmax())
    verdict = judge(found[number], point, y, rival, key, draws)
    anew = isinstance(attacked, PerImage) and verdict.outvoted
    if anew:
        anew = judge(attacked.at(point, index, repeat=1), point, y, rival, key, draws).outvoted
    return Attempt(index, distance, u, verdict, anew)


def _key(seed: int, index: int, purpose: int) -> tuple[int, ...]:
    """Of the noise of votes, which no certificate and no attack draws."""
    return seed, Stream.PREDICT, index, purpose


# ------------------------------------------------------------------------------------------
# groups


@dataclass(frozen=True)
class Group:
    """Certificates of one classifier."""

    model: str  # path
    noise: Noise
    precision: Precision
    boxed: bool = False
    data: Path | None = (
        None  # the prepared data set, whose training images calibrate networks in int8
    )

    def attacked(
        self, test: Images, settings: WeightSettings, device: torch.device
    ) -> tuple[Attacked, str]:
        """Load it; and its scope."""
        spec = ensemble_spec.read(Path(self.model)) if self.model.endswith(".json") else None
        if spec and spec.combination.scope == "per-image":
            members, _ = ensemble_spec.load_members(
                spec.members, spec.dataset, spec.sigma, Path(self.model), test.meta
            )
            names = [
                zlib.crc32(f"{member.method}-{member.seed}".encode()) for member in spec.members
            ]
            members = [member.to(device) for member in members]
            return PerImage(
                members, names, test.labels, spec, settings, len(test.meta.classes), self.boxed
            ), "per-image"
        loaded = load(self.model, test.meta)
        how: dict[str, Any] = {"precision": self.precision}
        if self.precision == "int8":
            how = {"engine": "quantized", "calibration": self.data}
        smoothed = loaded.smooth(device=device, noise=self.noise, **how)
        return Fixed(smoothed, surrogate_of(loaded.module)), loaded.scope

    @property
    def name(self) -> str:
        """Of the classifier, in a table."""
        path = Path(self.model)
        return path.stem if path.suffix == ".json" else "-".join(path.parts[-2:])


def attempts_on(
    attacked: Attacked, test: Images, images: int, device: torch.device
) -> list[Attempt]:
    """Certify so many images, evenly spread, and attack those that are certified."""
    certified = []
    for index in evenly(images, len(test)):
        x = test.pixels(index).to(device)
        made = attacked.at(x, index).certify(x, N0, N, ALPHA, index=index)
        certified += [Certified(index, x, made)] if made.radius > SMALL else []
    return falsify(attacked, certified, SEED) if certified else []


def counted(attempts: Sequence[Attempt], distance: float) -> dict[str, Any]:
    """Counts of the attempts at a distance, in certified radii; and those that another class
    outvoted, by image.
    """
    verdicts = [attempt.verdict for attempt in attempts]
    return {
        "distance": distance,
        "attacked": len(verdicts),
        "below_half": sum(verdict.below_half for verdict in verdicts),
        "outvoted": sum(verdict.outvoted for verdict in verdicts),
        "flipped": sum(verdict.flipped for verdict in verdicts),
        "outvoted_anew": sum(attempt.anew for attempt in attempts),
        "least_share": min((verdict.share for verdict in verdicts), default=None),
        "images": " ".join(str(attempt.index) for attempt in attempts if attempt.verdict.outvoted),
    }


# ------------------------------------------------------------------------------------------
# summary


def summary(rows: pd.DataFrame) -> list[str]:
    """Return the lines of two Markdown tables: classifiers of sound scope, and weights that are
    chosen by image.
    """
    sound, by_image = rows[rows["scope"] != "per-image"], rows[rows["scope"] == "per-image"]
    lines = [
        "| | certificates | false at .9 R | false at .99 R | rate, at most | least share | below "
        "one half at 2.5 R | rate, at least |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    sound = sound[sound["attacked"] > 0]  # of a group without a certificate there is no rate
    kinds = sound["classifier"].map(kind_of)
    settings = sound["noise"] + ", " + sound["precision"]
    for names, order in ((kinds, sorted(set(kinds))), (settings, sorted(set(settings)))):
        lines += [_sound_line(name, sound[names == name]) for name in order]
    lines += [_sound_line("all", sound)] if len(sound) else []
    lines += [
        "",
        "| weights by image | σ | certified | below one half at .99 R | rate, 95 % | another class "
        "at .99 R | with other draws | below one half at .9 R |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    by_image = by_image[by_image["attacked"] > 0].groupby(["classifier", "sigma", "boxed"])
    return lines + [_image_line(*key, group) for key, group in by_image]


def kind_of(classifier: str) -> str:
    """Return the method of METHOD-SEED, or the combination of MEMBERS.COMBINATION."""
    return classifier.rpartition(".")[2] if "." in classifier else classifier.rpartition("-")[0]


def _sound_line(name: str, rows: pd.DataFrame) -> str:
    near, far, beyond = (rows[rows["distance"] == distance] for distance in (*INSIDE, BEYOND))
    count, found = int(far["attacked"].sum()), int(beyond["below_half"].sum())
    false = int(far["below_half"].sum())
    at_most, at_least = upper_bound(false, count, 0.05), lower_bound(found, count, 0.05)
    cells = [name, f"{count:,}", str(int(near["below_half"].sum())), str(false), f"{at_most:.2%}"]
    cells += [f"{far['least_share'].astype(float).min():.3f}", f"{found:,}", f"{at_least:.1%}"]
    return f"| {' | '.join(cells)} |"


def _image_line(classifier: str, sigma: float, boxed: bool, rows: pd.DataFrame) -> str:
    near, far = (rows[rows["distance"] == distance].iloc[0] for distance in INSIDE)
    count, false = int(far["attacked"]), int(far["below_half"])
    low, high = lower_bound(false, count, 0.025), upper_bound(false, count, 0.025)
    cells = [classifier + (", in [0, 1]" if boxed else ""), str(sigma), str(count), str(false)]
    cells += [
        f"{low:.1%} to {high:.1%}",
        *(str(int(far[name])) for name in ("outvoted", "outvoted_anew")),
    ]
    return f"| {' | '.join([*cells, str(near['below_half'])])} |"


def main(
    models: Annotated[list[str], typer.Argument(help="Model folders, or *.json of ensembles.")],
    data: DataFolder,
    out: Annotated[
        Path,
        typer.Option(dir_okay=False, help="CSV of counts; groups that it has are not run again."),
    ],
    recipe: Annotated[
        str, typer.Option(help="Whose section weights says how weights are solved.")
    ] = "digits",
    images: Annotated[
        int, typer.Option(min=1, help="Images of each group, evenly spread over the test split.")
    ] = 24,
    params: ParamsFile = Path("params.yaml"),
    device: Device = "cpu",
    boxed: Annotated[
        bool, typer.Option("--boxed", help="Weights by image: attack among images in [0, 1].")
    ] = False,
) -> None:
    """Attack the certificates of every model with every noise and precision, count the false ones,
    and print tables.
    """
    settings = parameters.load_section(
        parameters.read_params(params), f"recipes.{recipe}.weights", WeightSettings
    )
    place = resolve_device(device)
    torch.set_num_threads(1)
    test = load_images(data, "test")
    done = pd.read_csv(out, keep_default_na=False).to_dict("records") if out.exists() else []
    for model in models:
        per_image = (
            model.endswith(".json")
            and ensemble_spec.read(Path(model)).combination.scope == "per-image"
        )
        for noise, precision in SETTINGS[:1] if per_image else SETTINGS:
            names, key = (
                ("model", "noise", "precision", "boxed"),
                (model, noise, precision, str(boxed)),
            )
            if any(tuple(str(row[name]) for name in names) == key for row in done):
                continue
            group = Group(model, noise, precision, boxed, data)
            attacked, scope = group.attacked(test, settings, place)
            attempts = attempts_on(attacked, test, images, place)
            key = {
                "model": model,
                "sigma": attacked.sigma,
                "classifier": group.name,
                "scope": scope,
            }
            key |= {"noise": noise, "precision": precision, "boxed": boxed}
            done += [
                key | counted([one for one in attempts if one.distance == at], at)
                for at in (*INSIDE, BEYOND)
                if scope != "per-image" or at < 1
            ]
            files.write_csv(out, COLUMNS, done)
            print(model, noise, precision, file=sys.stderr, flush=True)
    print("\n".join(summary(pd.DataFrame(done))))


if __name__ == "__main__":
    run(main)
