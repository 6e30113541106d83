"""Outputs of members on noisy images, to which weights are fitted: Algorithm 2 of the paper.

Noise is added to the image and to the parameters ("PerturbModel" and "Estimation"). Perturbed
parameters replace further training seeds, each of which would cost a training run.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from rs.data.meta import Meta
from rs.data.prepared import Images
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.declare import PoolSpec
from rs.ensemble.spec import EnsembleSpec, Member, load_members
from rs.errors import InputError
from rs.params import Count, NonNegative, NonNegativeCount, validated
from rs.runtime.device import precision_on
from rs.runtime.progress import progress
from rs.runtime.streams import Stream, stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.inputs import evaluating
from rs.smoothing.noise import certification_noise, default_batch
from rs.smoothing.settings import CertificationSettings

NOISE, PARAMETERS, CHOICE = 0, 1, 2
"""Second word of the keys in Stream.WEIGHTS.

Noise is keyed by image, and perturbations by member and copy. ``CHOICE`` is of the images to which
weights are fitted.
"""

NUMBERS_AT_ONCE = 2**23
"""Approximate number of probabilities and pixels in memory."""


@validated
class WeightSettings:
    """How weights are fitted; section ``recipes.DATASET.weights`` of params.yaml."""

    noises: Count  # the paper's n: noisy copies of an image
    copies: Count  # the paper's m: perturbed copies of a member
    share: Annotated[float, Field(ge=0, le=1)]  # the paper's t: share of perturbed parameters
    scale: NonNegative  # the paper's sigma_tilde: std of the perturbation, in units of parameters
    draws: Count  # noisy copies of an image to fit weights of the largest radius
    images: Count  # images to fit global weights
    seed: NonNegativeCount

    def fitting_images(self, images: Images) -> NDArray[np.int64]:
        """Return the images to which weights and thresholds for all images are fitted, in order."""
        rng = stream(self.seed, Stream.WEIGHTS, CHOICE)
        order = torch.randperm(len(images), generator=rng)
        return order[: self.images].sort().values.numpy()


class Chunk(NamedTuple):
    """Some images, and the outputs of the members of a pool on them."""

    indices: list[int]  # (B,)
    labels: NDArray[np.int64]  # (B,)
    probabilities: NDArray[np.float64]  # of perturbed copies, (B, L, m n, K)
    seconds: float  # that the outputs took: nearly all of the cost of weights


@dataclass(frozen=True)
class MemberOutputs:
    """The loaded members of a pool, and the settings of their outputs."""

    members: list[Member]
    networks: list[nn.Module]
    sigma: float
    settings: WeightSettings
    device: torch.device
    batch: int | None

    @classmethod
    def load(
        cls,
        pool: PoolSpec | EnsembleSpec,
        source: Path,
        meta: Meta,
        settings: WeightSettings,
        device: torch.device,
        batch: int | None,
    ) -> MemberOutputs:
        """Load the members, which must be unchanged and classify images of the data set."""
        networks, _ = load_members(pool.members, pool.dataset, pool.sigma, source, meta)
        networks = [network.to(device) for network in networks]
        return cls(pool.members, networks, pool.sigma, settings, device, batch)

    def only(self, specs: Iterable[EnsembleSpec]) -> MemberOutputs:
        """Return only the members of these ensembles, in the same order."""
        needed = {number for spec in specs for number in self.member_ids(spec)}
        numbers = sorted(needed)
        return replace(
            self,
            members=[self.members[number] for number in numbers],
            networks=[self.networks[number] for number in numbers],
        )

    def unperturbed(self, noises: int) -> MemberOutputs:
        """Return the members without perturbation, on that many noisy copies of an image."""
        return replace(self, settings=replace(self.settings, noises=noises, copies=1, share=0.0))

    def member_ids(self, spec: EnsembleSpec) -> list[int]:
        """Return the positions of an ensemble's members."""
        return [self.members.index(member) for member in spec.members]

    def chunks(self, images: Images, indices: Sequence[int] | NDArray[np.int64]) -> Iterator[Chunk]:
        """Yield chunks of outputs over ``indices``.

        B is limited so that a chunk takes about :data:`NUMBERS_AT_ONCE` numbers.
        """
        outputs = len(self.members) * self.settings.copies * len(images.meta.classes)
        numbers_per_image = self.settings.noises * (outputs + math.prod(images.meta.shape))
        at_once = max(1, NUMBERS_AT_ONCE // numbers_per_image)
        starts = range(0, len(indices), at_once)
        for start in progress(starts, len(starts), "outputs of members", always=False):
            part = [int(index) for index in indices[start : start + at_once]]
            begun = time.perf_counter()
            probabilities = self.probabilities(images, part)
            seconds = time.perf_counter() - begun
            yield Chunk(part, images.labels[part], probabilities, seconds)

    def probabilities(
        self, images: Images, indices: list[int], repeat: int = 0
    ) -> NDArray[np.float64]:
        """Return outputs of perturbed copies on noisy images, (B, L, m n, K).

        ``repeat`` 1, 2, ... gives samples that are independent of those of 0. Perturbations are
        keyed by method and seed, so they do not depend on other members or on the fingerprint. Only
        members that share these, as models of other programs do, are keyed by the fingerprint.
        """
        labels = [f"{member.method}-{member.seed}" for member in self.members]
        if len(set(labels)) < len(labels):
            labels = [member.classifier for member in self.members]
        return perturbed_probabilities(
            self.networks,
            self._pixels(images, indices),
            self.settings,
            sigma=self.sigma,
            indices=indices,
            names=[zlib.crc32(label.encode()) for label in labels],
            repeat=repeat,
            batch=self.batch,
        )

    def selected_classes(
        self,
        spec: EnsembleSpec,
        images: Images,
        indices: list[int],
        certification: CertificationSettings,
    ) -> NDArray[np.int64]:
        """Return the classes that the n0 samples of the plain average select, (B,)."""
        members = [self.networks[number] for number in self.member_ids(spec)]
        classifier = SmoothedClassifier(
            Ensemble(members, SoftmaxAverage()),
            len(images.meta.classes),
            self.sigma,
            noise=certification.noise,
            precision=precision_on(self.device, certification.precision),
            batch=self.batch,
        )
        n0, seed = certification.n0, certification.seed
        selected = []
        for index, x in zip(indices, self._pixels(images, indices), strict=True):
            votes = classifier.votes(x, n0, seed, Stream.SELECT, index)
            selected.append(votes.argmax())
        return np.array(selected)

    def _pixels(self, images: Images, indices: list[int]) -> Tensor:
        return torch.stack([images.pixels(index) for index in indices]).to(self.device)


def margins(probabilities: NDArray[np.float64], ys: ArrayLike) -> NDArray[np.float64]:
    """Return the margins z_i = p_y - p_i of outputs (B, L, N, K) and classes (B,); z_y is 0."""
    classes = np.asarray(ys)[:, None, None, None]
    return np.take_along_axis(probabilities, classes, axis=-1) - probabilities


# -------------------------------------------------------------------------------------------------
# noise


def noisy_copies(
    x: Tensor, noises: int, sigma: float, seed: int, index: int, repeat: int = 0
) -> Tensor:
    """Return noisy copies of an image to fit weights: (C, H, W) -> (noises, C, H, W).

    They are independent of the samples that certify. ``index`` is the number of the image.
    ``repeat`` 1, 2, ... gives further copies, independent of the first ones.
    """
    draws = range(repeat * noises, (repeat + 1) * noises)
    key = (Stream.WEIGHTS, NOISE, index)
    return x + certification_noise(draws, x.shape, sigma, seed, *key, device=x.device)


def perturbed_parameters(
    model: nn.Module, share: float, scale: float, seed: int, member: int, copy: int
) -> dict[str, Tensor]:
    """Return perturbed parameters: N(0, scale^2) is added to each with probability ``share``.

    Buffers (the statistics of batch norm) and the model itself are not changed. The noise is drawn
    on the CPU for every device, and depends only on ``(seed, member, copy)``: a copy is one model
    for all images.

    Args:
        model: The member; all its parameters can be perturbed, frozen or not.
        share: The paper's t, in [0, 1].
        scale: The paper's sigma_tilde, in units of the parameters; at least 0.
        seed, member, copy: Name the perturbation.
    Returns:
        New tensors by name, for ``torch.func.functional_call``.
    """
    rng = stream(seed, Stream.WEIGHTS, PARAMETERS, member, copy)
    copies = {}
    for name, parameter in model.named_parameters():
        is_perturbed = torch.rand(parameter.shape, generator=rng) < share
        noise = scale * torch.randn(parameter.shape, generator=rng)
        copies[name] = parameter.detach() + torch.where(is_perturbed, noise, 0.0).to(parameter)
    return copies


def perturbed_probabilities(
    networks: Sequence[nn.Module],
    xs: Tensor,
    settings: WeightSettings,
    *,
    sigma: float,
    indices: Sequence[int],
    names: Sequence[int],
    repeat: int = 0,
    batch: int | None = None,
) -> NDArray[np.float64]:
    """Return the softmax outputs of every member, perturbed copy and noisy image.

    All members and copies see the same noisy images. Copies are evaluated one after the other: from
    some hundred noisy images on, ``torch.func.vmap`` is not faster on a CPU, and needs the memory
    of all copies.

    Args:
        networks: L classifiers, images (N, C, H, W) -> logits (N, K); evaluated in eval mode.
        xs: Images in [0, 1], shape (B, C, H, W), on the device of the members. All of their noisy
            copies are in memory.
        settings: n noisy copies per image, m perturbed copies per member, and the seed.
        sigma: Noise standard deviation, in pixels of [0, 1].
        indices: Numbers of the images, which key the noise, shape (B,).
        names: Numbers that key the members' perturbations, at least 0, shape (L,).
        repeat: 0, or 1, 2, ... for other noise and other copies, independent of those of 0.
        batch: Noisy images evaluated at once; chosen by the size of an image if ``None``.
    Returns:
        Probabilities, shape (B, L, m n, K); draw ``j n + i`` is copy j on noisy image i.
    Raises:
        ValueError: If a member's outputs are not finite.
        InputError: If ``batch`` is not positive.
    """
    if batch is not None and batch < 1:
        raise InputError(f"batch must be at least 1, got {batch}; it counts noisy images")
    noises, copies, seed = settings.noises, settings.copies, settings.seed
    images = zip(xs, indices, strict=True)
    noisy = torch.cat([noisy_copies(x, noises, sigma, seed, i, repeat) for x, i in images])
    batches = noisy.split(batch or default_batch(xs[0]))
    outputs = []
    for name, network in zip(names, networks, strict=True):
        for copy in range(repeat * copies, (repeat + 1) * copies):
            parameters = perturbed_parameters(
                network, settings.share, settings.scale, seed, name, copy
            )
            outputs.append(_probabilities(network, parameters, batches))
    p = np.stack(outputs).reshape(len(networks), copies, len(xs), noises, -1)  # (L, m, B, n, K)
    by_image = np.moveaxis(p, 2, 0)  # (B, L, m, n, K)
    return by_image.reshape(len(xs), len(networks), copies * noises, -1)


def _probabilities(
    network: nn.Module, parameters: dict[str, Tensor], batches: Sequence[Tensor]
) -> NDArray[np.float64]:
    """Return the softmax outputs of a member with other parameters, (N, K)."""
    with torch.no_grad(), evaluating(network):
        logits = [functional_call(network, parameters, (batch,)) for batch in batches]
        p = torch.softmax(torch.cat(logits).double(), dim=-1).cpu().numpy()
    if not np.isfinite(p).all():
        raise ValueError(
            "outputs of a perturbed member must be finite, got NaN; perturb less, or check its "
            "weights"
        )
    return p
