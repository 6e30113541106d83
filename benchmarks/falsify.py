"""Try to falsify certificates of weights that are chosen image by image.

``python -m benchmarks.falsify ensembles/digits/*/*.per-image.json --data data/digits --out A.csv``

A certificate says that the class keeps a probability of at least 1/2 up to its radius R. Weights
that are computed again for each image make another classifier at each point. The attack looks for a
point at .9 R or .99 R where the class loses: two ascents of the soft smoothed margin
log z_hat_r - log z_hat_y, the second from a random start, with gradients through the solution of
the weights. It may leave [0, 1], except with ``--boxed``. Certificates of sound scope are attacked
by ``rs attack``, with the same steps.

The worst point is judged by fresh votes, with the weights of that point: the class is below one
half, or another has more, where an exact binomial test says so at 1e-6.

Rows are written group after group; the same command continues. Gradients are those of the machine
that computes them, so another one finds other points: its counts can differ by a few, and say what
is at least possible.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer
from scipy import stats
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.common import evenly, markdown_line
from rs.command_line.shell import DataFolder, Device, ParamsFile, run
from rs.data.images import load_images
from rs.ensemble import spec as ensemble_spec
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.member_outputs import (
    MemberOutputs,
    WeightSettings,
    margins,
    noisy_copies,
    perturbed_parameters,
    perturbed_probabilities,
)
from rs.ensemble.spec import EnsembleSpec
from rs.params import read_params
from rs.recipes import load_section
from rs.runtime.device import resolve_device
from rs.runtime.streams import Stream
from rs.smoothing.attack import ascend, forward, project
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.gradients import margin
from rs.smoothing.soft import LOG_CLAMP, gradient_of, soft_probabilities
from rs.statistics.certificate import Certificate
from rs.statistics.ensemble_weights import inverse_square_margins, per_image_weights
from rs.statistics.radius import lower_bound, upper_bound
from rs.storage import files

if TYPE_CHECKING:
    from rs.data.prepared import Images

INSIDE = (0.9, 0.99)
"""Distances of attacked points, in certified radii."""
SMALL = 1e-3
"""Smaller radii are not attacked: a sum of float32 is rounded by as much as is left between .99 R
and R.
"""
LEVEL = 1e-6
"""Level of the test that says that a certificate is false."""
N0 = 100
N = 1_000
ALPHA = 0.001
"""Draws and failure probability of the certificates."""
SCREENED = 200
"""Votes that choose the worst point."""
DOUBTFUL = 0.65
"""Share of the class among these votes above which it holds."""
JUDGED = 20_000
"""Fresh votes that judge the worst point."""
CLEAR = 500
"""Fresh votes where the first ones leave the class less than 1 - DOUBTFUL."""
SEED = 1
STEPS = 12
DRAWS = 16
"""Steps of an attack, and draws in each."""
COPIES = 4
"""Perturbed copies through which the gradients of weights go."""


# ------------------------------------------------------------------------------------------
# what is attacked


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

    @property
    def by_label(self) -> bool:
        """Whether the margins of the label choose the weights, not those of the prediction."""
        return self.spec.combination.target == "label"

    def at(self, x: Tensor, index: int, repeat: int = 0) -> SmoothedClassifier:
        """The classifier of an image, with its weights."""
        return self._smoothed(SoftmaxAverage(self.weights(x, index, repeat)))

    def _smoothed(self, rule: SoftmaxAverage) -> SmoothedClassifier:
        base = Ensemble(self.members, rule)
        return SmoothedClassifier(base, self.classes, self.sigma, noise="gaussian")

    def weights(self, x: Tensor, index: int, repeat: int = 0) -> np.ndarray:
        """The weights (L,) that the stage ``weights`` gives to these pixels of image ``index``.

        ``repeat`` 1 takes other noise and other perturbations of the members.
        """
        p = perturbed_probabilities(
            self.members,
            x[None],
            self.settings,
            sigma=self.sigma,
            indices=[index],
            names=self.names,
            repeat=repeat,
        )
        y = [self.target(x, index)]
        return per_image_weights(margins(p, y), y, self.spec.combination.weights)[0]

    def target(self, x: Tensor, index: int) -> int:
        """The class whose margins choose the weights."""
        if self.by_label:
            return int(self.labels[index])
        average = self._smoothed(SoftmaxAverage())
        return int(average.votes(x, N0, 0, Stream.SELECT, index).argmax())

    def soft(self, x: Tensor, y: Tensor, indices: Sequence[int], noise: Tensor) -> Tensor:
        """Soft smoothed prediction with the weights of each point, with gradients through them; (B,
        K).
        """
        outputs = [forward(member, x, noise).double().softmax(-1) for member in self.members]
        weights = self.solved(x, y, indices)
        mixed = torch.einsum("bl,lbmk->bmk", weights, torch.stack(outputs))
        return soft_probabilities(mixed.clamp_min(LOG_CLAMP).log())

    def solved(self, x: Tensor, y: Tensor, indices: Sequence[int]) -> Tensor:
        """Weights (B, L), with gradients: those of :meth:`weights`, with the slope of
        :func:`differentiable_weights`.
        """
        targets = y.cpu()
        if self.by_label:
            targets = torch.as_tensor(self.labels[list(indices)])
        p = self._perturbed(x, indices).cpu()  # (B, L, J, K)
        of_target = targets[:, None, None, None].expand(*p.shape[:3], 1)
        z = p.gather(-1, of_target) - p
        form = self.spec.combination.weights
        exact = torch.from_numpy(per_image_weights(z.detach().numpy(), targets.numpy(), form))
        near = differentiable_weights(z, targets, form, exact)
        return (exact + near - near.detach()).to(x.device)

    @cached_property
    def _copies(self) -> list[list[dict[str, Tensor]]]:
        """Perturbed parameters of each member."""
        settings = self.settings
        copies = []
        for member, name in zip(self.members, self.names, strict=True):
            copies_of_member = []
            for copy in range(min(COPIES, settings.copies)):
                parameters = perturbed_parameters(
                    member, settings.share, settings.scale, settings.seed, name, copy
                )
                copies_of_member.append(parameters)
            copies.append(copies_of_member)
        return copies

    def _perturbed(self, x: Tensor, indices: Sequence[int]) -> Tensor:
        """``perturbed_probabilities`` with gradients in the images."""
        noises = self.settings.noises
        noisy_images = []
        for image, index in zip(x, indices, strict=True):
            noisy_images.append(noisy_copies(image, noises, self.sigma, self.settings.seed, index))
        noisy = torch.cat(noisy_images)
        outputs = []
        for member, copies in zip(self.members, self._copies, strict=True):
            for parameters in copies:
                logits = functional_call(member, parameters, (noisy,))
                outputs.append(logits.double().softmax(-1))
        p = torch.stack(outputs)  # (L m, B n, K)
        p = p.unflatten(0, (len(self.members), -1)).unflatten(2, (len(x), noises))
        return p.permute(2, 0, 1, 3, 4).flatten(2, 3)


def differentiable_weights(z: Tensor, y: Tensor, form: str, exact: Tensor) -> Tensor:
    """Return weights (B, L) with gradients in the margins z (B, L, J, K) of the classes y (B,).

    On the members whose ``exact`` weight is positive, w is the solution of S w = 1, scaled. Where
    the system has no solution, w is ``exact``.
    """
    means = z.mean(dim=2)
    centered = z - z.mean(dim=2, keepdim=True)
    factors = torch.from_numpy(inverse_square_margins(means.detach().numpy(), y.numpy()))
    is_usable = factors.isfinite().all(-1)
    is_other_class = y[:, None] != torch.arange(z.shape[-1])
    a = means.min(dim=1).values.clamp_min(1e-6) ** -2 * is_other_class
    total = torch.einsum("bk,bljk,bmjk->blm", a, centered, centered) / z.shape[2]
    members = z.shape[1]
    if form == "printed":  # the covariance has the other sign
        total = total * (2 * torch.eye(members, dtype=total.dtype) - 1)
    total = total / total.detach().abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-300)
    used = (exact > 0).double()
    system = total * used[:, :, None] * used[:, None, :] + torch.diag_embed(1 - used + 1e-9)
    free = torch.linalg.solve(system, used[..., None])[..., 0]
    weights = free / free.sum(dim=1, keepdim=True)
    return torch.where(is_usable[:, None], weights, exact)


# ------------------------------------------------------------------------------------------
# attacks


class Points(NamedTuple):
    """Certified images that are attacked at once, each at one distance."""

    x: Tensor  # (B, C, H, W)
    y: Tensor  # (B,), the certified classes
    epsilon: Tensor  # (B, 1, 1, 1), how far a point may be
    indices: list[int]  # (B,)


def attacks(attacked: PerImage, points: Points, rng: torch.Generator) -> Iterator[Tensor]:
    """Yield perturbations (B, C, H, W) within ``epsilon``, one from each start."""

    def log_probabilities(x: Tensor) -> Tensor:
        size = (len(x), DRAWS, *x.shape[1:])
        noise = attacked.sigma * torch.randn(size, generator=rng, device=x.device)
        soft = attacked.soft(x, points.y, points.indices, noise)
        return soft.clamp_min(LOG_CLAMP).log()

    def lead_of_others(x: Tensor) -> Tensor:
        return margin(log_probabilities(x), points.y)

    def slope(x: Tensor) -> Tensor:
        _, gradient = gradient_of(lead_of_others, x)
        return gradient

    bounds = (0.0, 1.0) if attacked.boxed else None
    noise = torch.randn(points.x.shape, generator=rng, device=points.x.device)
    for start in (torch.zeros_like(points.x), project(noise, points.epsilon / 2)):
        yield ascend(slope, points.x, start, STEPS, points.epsilon, rng, bounds=bounds)


# ------------------------------------------------------------------------------------------
# verdicts


class Verdict(NamedTuple):
    """What fresh votes say of the class at an attacked point."""

    share: float  # of the votes
    # each of the following at LEVEL:
    below_half: bool = False  # the class has a probability below one half
    outvoted: bool = False  # another class is more probable, so the classifier gives that one
    flipped: bool = False  # that other class has a probability above one half


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
    of_class = int(counts[y])
    of_rival = int(counts[rival])
    below_half = stats.binom.cdf(of_class, draws, 0.5)
    outvoted = stats.binom.sf(of_rival - 1, of_class + of_rival, 0.5)  # given the votes for the two
    flipped = stats.binom.sf(of_rival - 1, draws, 0.5)
    return Verdict(
        share=of_class / draws,
        below_half=bool(below_half <= LEVEL),
        outvoted=bool(outvoted <= LEVEL),
        flipped=bool(flipped <= LEVEL),
    )


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


def falsify(attacked: PerImage, images: Sequence[Certified], seed: int) -> list[Attempt]:
    """Attack certified images at .99 R, judge the worst points, and pull them in to .9 R."""
    nearest, farthest = INSIDE
    x = torch.stack([image.x for image in images])
    classes = torch.tensor([image.certificate.predict for image in images], device=x.device)
    radii = torch.tensor([image.certificate.radius for image in images], device=x.device)
    epsilon = (radii * farthest * (1 - 1e-6))[:, None, None, None]
    points = Points(x, classes, epsilon, [image.index for image in images])
    rng = torch.Generator(x.device).manual_seed(seed)
    perturbations = torch.stack(list(attacks(attacked, points, rng)), dim=1)
    attempts = []
    for image, candidates in zip(images, perturbations, strict=True):
        far = worst(attacked, image, farthest, candidates, seed)
        near = worst(attacked, image, nearest, far.u[None] * (nearest / farthest), seed)
        attempts += [far, near]
    return attempts


def worst(attacked: PerImage, image: Certified, distance: float, us: Tensor, seed: int) -> Attempt:
    """Judge the perturbation, of several (A, C, H, W), that leaves the class the fewest votes."""
    index = image.index
    y = image.certificate.predict
    points = image.x + us
    if attacked.boxed:
        points = points.clamp(0, 1)
    moved = (points.double() - image.x.double()).flatten(1).norm(dim=1).max()
    assert moved < image.certificate.radius
    classifiers = []
    counts = []
    for point in points:
        classifier = attacked.at(point, index)
        classifiers.append(classifier)
        counts.append(classifier.votes(point, SCREENED, *_key(seed, index, 0)))
    number = int(np.argmin([count[y] for count in counts]))
    point = points[number]
    u = point - image.x
    share = float(counts[number][y] / SCREENED)
    if share > DOUBTFUL:
        return Attempt(index, distance, u, Verdict(share), anew=False)
    draws = JUDGED if share > 1 - DOUBTFUL else CLEAR
    key = _key(seed, index, 1)
    counts[number][y] = -1
    rival = int(counts[number].argmax())
    verdict = judge(classifiers[number], point, y, rival, key, draws)
    anew = verdict.outvoted
    if anew:
        anew = judge(attacked.at(point, index, repeat=1), point, y, rival, key, draws).outvoted
    return Attempt(index, distance, u, verdict, anew)


def _key(seed: int, index: int, purpose: int) -> tuple[int, ...]:
    """Of the noise of votes, which no certificate and no attack draws."""
    return seed, Stream.PREDICT, index, purpose


# ------------------------------------------------------------------------------------------
# groups


def per_image(
    model: str, test: Images, settings: WeightSettings, device: torch.device, boxed: bool = False
) -> PerImage:
    """Load the *.json of an ensemble whose weights are chosen by the image."""
    spec = ensemble_spec.read(Path(model))
    outputs = MemberOutputs.load(spec, Path(model), test.meta, settings, device, batch=None)
    names = [zlib.crc32(f"{member.method}-{member.seed}".encode()) for member in spec.members]
    classes = len(test.meta.classes)
    return PerImage(outputs.networks, names, test.labels, spec, settings, classes, boxed)


def attempts_on(
    attacked: PerImage, test: Images, images: int, device: torch.device
) -> list[Attempt]:
    """Certify so many images, evenly spread, and attack those that are certified."""
    certified = []
    for index in evenly(images, len(test)):
        x = test.pixels(index).to(device)
        certificate = attacked.at(x, index).certify(x, N0, N, ALPHA, index=index)
        if certificate.radius > SMALL:
            certified.append(Certified(index, x, certificate))
    return falsify(attacked, certified, SEED) if certified else []


def counted(attempts: Sequence[Attempt], distance: float) -> dict[str, Any]:
    """Counts of the attempts at a distance, in certified radii; and those that another class
    outvoted, by image.
    """
    here = [attempt for attempt in attempts if attempt.distance == distance]
    verdicts = [attempt.verdict for attempt in here]
    outvoted = [str(attempt.index) for attempt in here if attempt.verdict.outvoted]
    return {
        "distance": distance,
        "attacked": len(here),
        "below_half": sum(verdict.below_half for verdict in verdicts),
        "outvoted": len(outvoted),
        "outvoted_anew": sum(attempt.anew for attempt in here),
        "flipped": sum(verdict.flipped for verdict in verdicts),
        "least_share": min((verdict.share for verdict in verdicts), default=None),
        "images": " ".join(outvoted),
    }


# ------------------------------------------------------------------------------------------
# summary


def summary(rows: pd.DataFrame) -> list[str]:
    """Return the lines of a Markdown table of weights that are chosen by image."""
    lines = [
        "| weights by image | σ | certified | below one half at .99 R | rate, 95% | another class "
        "at .99 R | with other samples | below one half at .9 R |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    by_image = rows[(rows["scope"] == "per-image") & (rows["attacked"] > 0)]
    for (classifier, sigma, boxed), group in by_image.groupby(["classifier", "sigma", "boxed"]):
        name = f"{classifier}, in [0, 1]" if boxed else classifier
        lines.append(markdown_line([name, str(sigma), *_cells(group)]))
    return lines


def _cells(rows: pd.DataFrame) -> list[str]:
    """Return the counts of a group, and the interval of its rate of false certificates."""
    near, far = (rows[rows["distance"] == distance].iloc[0] for distance in INSIDE)
    count = int(far["attacked"])
    false = int(far["below_half"])
    low = lower_bound(false, count, 0.025)
    high = upper_bound(false, count, 0.025)
    rate = f"{low:.1%} to {high:.1%}"
    counts = [int(far["outvoted"]), int(far["outvoted_anew"]), near["below_half"]]
    return [str(count), str(false), rate, *map(str, counts)]


def main(
    models: Annotated[list[str], typer.Argument(help="*.json of ensembles of scope per-image.")],
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
    """Attack the certificates of every ensemble, count the false ones, and print a table."""
    settings = load_section(read_params(params), f"recipes.{recipe}.weights", WeightSettings)
    place = resolve_device(device)
    torch.set_num_threads(1)
    test = load_images(data, "test")
    done = pd.read_csv(out, keep_default_na=False).to_dict("records") if out.exists() else []
    attacked_before = {(row["model"], str(row["boxed"])) for row in done}
    for model in models:
        if (model, str(boxed)) in attacked_before:
            continue
        attacked_before.add((model, str(boxed)))
        attacked = per_image(model, test, settings, place, boxed)
        attempts = attempts_on(attacked, test, images, place)
        about = {
            "model": model,
            "sigma": attacked.sigma,
            "classifier": Path(model).stem,
            "scope": "per-image",
            "noise": "gaussian",
            "precision": "float32",
            "boxed": boxed,
        }
        for distance in INSIDE:
            done.append(about | counted(attempts, distance))
        files.write_csv(out, list(done[-1]), done)
        print(model, file=sys.stderr, flush=True)
    print("\n".join(summary(pd.DataFrame(done))))


if __name__ == "__main__":
    run(main)
