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

from benchmarks.common import evenly
from rs import params as parameters
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
from rs.ensemble.spec import EnsembleSpec
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
N0, N, ALPHA = 100, 1_000, 0.001
"""Draws and failure probability of the certificates."""
SCREENED, DOUBTFUL = 200, 0.65
"""Votes that choose the worst point; the share of the class among them above which it holds."""
JUDGED, CLEAR = 20_000, 500
"""Fresh votes that judge the worst point; where the first ones leave the class less than 1 -
DOUBTFUL.
"""
SEED = 1
STEPS, DRAWS, COPIES = 12, 16, 4
"""Of an attack: steps, draws in each, and perturbed copies that gradients of weights are of."""
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
        labeled = self.spec.combination.target == "label"
        targets = torch.as_tensor(self.labels[list(indices)]) if labeled else y.cpu()
        p = self._perturbed(x, indices).cpu()  # (B, L, J, K)
        z = p.gather(-1, targets[:, None, None, None].expand(*p.shape[:3], 1)) - p
        form = self.spec.combination.weights
        exact = torch.from_numpy(per_image_weights(z.detach().numpy(), targets.numpy(), form))
        means, centered = z.mean(dim=2), z - z.mean(dim=2, keepdim=True)
        usable = (
            torch.from_numpy(inverse_square_margins(means.detach().numpy(), targets.numpy()))
            .isfinite()
            .all(-1)
        )
        a = means.min(dim=1).values.clamp_min(1e-6) ** -2 * (
            targets[:, None] != torch.arange(p.shape[-1])
        )
        total = torch.einsum("bk,bljk,bmjk->blm", a, centered, centered) / z.shape[2]
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
        return attacked.soft(x, points.y, points.indices, noise, 1.0).clamp_min(LOG_CLAMP).log()

    def slope(x: Tensor) -> Tensor:
        return gradient_of(lambda x: margin(log_probabilities(x), points.y), x)[1]

    bounds = (0.0, 1.0) if attacked.boxed else None
    noise = torch.randn(points.x.shape, generator=rng, device=points.x.device)
    for start in (torch.zeros_like(points.x), project(noise, points.epsilon / 2)):
        yield ascend(slope, points.x, start, STEPS, points.epsilon, rng, bounds=bounds)


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
    farthest = max(INSIDE)
    x = torch.stack([image.x for image in images])
    classes = torch.tensor([image.certificate.predict for image in images], device=x.device)
    radii = torch.tensor([image.certificate.radius for image in images], device=x.device)
    epsilon = (radii * farthest * (1 - 1e-6))[:, None, None, None]
    points = Points(x, classes, epsilon, [image.index for image in images])
    rng = torch.Generator(x.device).manual_seed(seed)
    found = torch.stack(list(attacks(attacked, points, rng)), dim=1)  # (B, attacks, C, H, W)
    attempts = []
    for image, us in zip(images, found, strict=True):
        attempts.append(worst(attacked, image, farthest, us, seed))
        pulled = attempts[-1].u[None] * (min(INSIDE) / farthest)
        attempts.append(worst(attacked, image, min(INSIDE), pulled, seed))
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
    found = [attacked.at(point, index) for point in points]
    counts = []
    for at, point in zip(found, points, strict=True):
        counts.append(at.votes(point, SCREENED, *_key(seed, index, 0)))
    number = int(np.argmin([count[y] for count in counts]))
    point = points[number]
    u = point - image.x
    share = float(counts[number][y] / SCREENED)
    if share > DOUBTFUL:
        return Attempt(index, distance, u, Verdict(share, False, False, False), False)
    draws = JUDGED if share > 1 - DOUBTFUL else CLEAR
    key = _key(seed, index, 1)
    counts[number][y] = -1
    rival = int(counts[number].argmax())
    verdict = judge(found[number], point, y, rival, key, draws)
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
    members, _ = ensemble_spec.load_members(
        spec.members, spec.dataset, spec.sigma, Path(model), test.meta
    )
    names = [zlib.crc32(f"{member.method}-{member.seed}".encode()) for member in spec.members]
    members = [member.to(device) for member in members]
    classes = len(test.meta.classes)
    return PerImage(members, names, test.labels, spec, settings, classes, boxed)


def attempts_on(
    attacked: PerImage, test: Images, images: int, device: torch.device
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
    """Return the lines of a Markdown table of weights that are chosen by image."""
    lines = [
        "| weights by image | σ | certified | below one half at .99 R | rate, 95 % | another class "
        "at .99 R | with other draws | below one half at .9 R |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    by_image = rows[(rows["scope"] == "per-image") & (rows["attacked"] > 0)]
    groups = by_image.groupby(["classifier", "sigma", "boxed"])
    return lines + [_image_line(*key, group) for key, group in groups]


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
    settings = load_section(
        parameters.read_params(params), f"recipes.{recipe}.weights", WeightSettings
    )
    place = resolve_device(device)
    torch.set_num_threads(1)
    test = load_images(data, "test")
    done = pd.read_csv(out, keep_default_na=False).to_dict("records") if out.exists() else []
    for model in models:
        key = {"model": model, "boxed": str(boxed)}
        if any(all(str(row[name]) == key[name] for name in key) for row in done):
            continue
        attacked = per_image(model, test, settings, place, boxed)
        attempts = attempts_on(attacked, test, images, place)
        about = {"model": model, "sigma": attacked.sigma, "classifier": Path(model).stem}
        about |= {"scope": "per-image", "noise": "gaussian", "precision": "float32", "boxed": boxed}
        for distance in INSIDE:
            done.append(
                about | counted([one for one in attempts if one.distance == distance], distance)
            )
        files.write_csv(out, COLUMNS, done)
        print(model, file=sys.stderr, flush=True)
    print("\n".join(summary(pd.DataFrame(done))))


if __name__ == "__main__":
    run(main)
