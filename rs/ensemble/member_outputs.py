"""Outputs of the members of a pool on noisy images, from which weights are solved: the paper's
Algorithm 2.

Noise is on the image, and on the parameters ("PerturbModel" and "Estimation"). Perturbed parameters
stand in for other random seeds in training, which would cost a training each.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from rs.data.prepared import Images, Meta
from rs.ensemble.declare import PoolSpec
from rs.ensemble.pool import MemberLogits, NoisyPool, PoolEntry
from rs.ensemble.spec import EnsembleSpec, Member, load_members
from rs.errors import InputError
from rs.params import Count, NonNegative, NonNegativeCount, validated
from rs.runtime.device import precision_on
from rs.runtime.streams import Stream, stream
from rs.smoothing.attack import evaluating
from rs.smoothing.classifier import SmoothedClassifier, default_batch
from rs.smoothing.noise import certification_noise
from rs.smoothing.settings import CertificationSettings

NOISE, PARAMETERS, CHOICE = 0, 1, 2
"""Second word of the keys in Stream.WEIGHTS: noise is keyed by image, perturbations by member and
copy; the last one is of the choice of the images that weights are fitted on.
"""

NUMBERS_AT_ONCE = 2**23
"""Probabilities and pixels that are held at once, roughly."""


@validated
class WeightSettings:
    """How weights are solved for; section ``recipes.DATASET.weights`` of params.yaml."""

    noises: Count  # the paper's n: noisy copies of an image
    copies: Count  # the paper's m: perturbed copies of a member
    share: Annotated[
        float, Field(ge=0, le=1)
    ]  # the paper's t: of the parameters, that are perturbed
    scale: (
        NonNegative  # the paper's sigma_tilde: std of the perturbation, in units of the parameters
    )
    draws: Count  # noisy copies of an image, that weights of the largest radius are fitted to
    images: Count  # that global weights are fitted to
    seed: NonNegativeCount

    def fitting_images(self, images: Images) -> NDArray[np.int64]:
        """Return the images that weights and thresholds of all images are fitted on, in order."""
        rng = stream(self.seed, Stream.WEIGHTS, CHOICE)
        return torch.randperm(len(images), generator=rng)[: self.images].sort().values.numpy()


class Chunk(NamedTuple):
    """Some images, and the outputs of the members of a pool on them."""

    indices: list[int]  # (B,)
    labels: NDArray[np.int64]  # (B,)
    probabilities: NDArray[np.float64]  # of perturbed copies, (B, L, m n, K)
    seconds: float  # that they took: nearly all of the cost of weights


@dataclass(frozen=True)
class MemberOutputs:
    """The loaded members of a pool, and how their outputs are taken."""

    members: list[Member]
    networks: list[nn.Module]
    sigma: float
    settings: WeightSettings
    device: torch.device
    batch: int | None

    @classmethod
    def load(
        cls,
        pool: PoolSpec,
        source: Path,
        meta: Meta,
        settings: WeightSettings,
        device: torch.device,
        batch: int | None,
    ) -> MemberOutputs:
        """Load the members, and check that they are those the pool was made of, and of the data
        set's images.
        """
        networks, _ = load_members(pool.members, pool.dataset, pool.sigma, source, meta)
        return cls(
            pool.members,
            [network.to(device) for network in networks],
            pool.sigma,
            settings,
            device,
            batch,
        )

    def only(self, specs: Iterable[EnsembleSpec]) -> MemberOutputs:
        """Return the members of these ensembles alone, in the same order."""
        members = [member for spec in specs for member in spec.members]
        numbers = [number for number, member in enumerate(self.members) if member in members]
        return replace(
            self,
            members=[self.members[number] for number in numbers],
            networks=[self.networks[number] for number in numbers],
        )

    def unperturbed(self, noises: int) -> MemberOutputs:
        """Return the members as they are, on that many noisy copies of an image."""
        return replace(self, settings=replace(self.settings, noises=noises, copies=1, share=0.0))

    def member_ids(self, spec: EnsembleSpec) -> list[int]:
        """Return the positions of an ensemble's members."""
        return [self.members.index(member) for member in spec.members]

    def chunks(self, images: Images, indices: Sequence[int] | NDArray[np.int64]) -> Iterator[Chunk]:
        """Yield the outputs of perturbed copies, for as many images at once as memory should hold."""
        noises, outputs = (
            self.settings.noises,
            len(self.members) * self.settings.copies * len(images.meta.classes),
        )
        at_once = max(1, int(NUMBERS_AT_ONCE // (noises * (outputs + np.prod(images.meta.shape)))))
        for start in range(0, len(indices), at_once):
            part = [int(index) for index in indices[start : start + at_once]]
            begun = time.perf_counter()
            probabilities = self.probabilities(images, part)
            yield Chunk(part, images.labels[part], probabilities, time.perf_counter() - begun)

    def probabilities(
        self, images: Images, indices: list[int], repeat: int = 0
    ) -> NDArray[np.float64]:
        """Return outputs of perturbed copies on noisy images, (B, L, m n, K).

        ``repeat`` 1, 2, ... are draws that are independent of those of 0. Perturbations are named
        by method and seed, so they depend neither on the other members nor on the fingerprint.
        """
        return perturbed_probabilities(
            self.networks,
            self._pixels(images, indices),
            self.settings,
            sigma=self.sigma,
            indices=indices,
            names=[
                zlib.crc32(f"{member.method}-{member.seed}".encode()) for member in self.members
            ],
            repeat=repeat,
            batch=self.batch,
        )

    def select(
        self,
        images: Images,
        indices: list[int],
        entries: Mapping[str, PoolEntry],
        certification: CertificationSettings,
    ) -> dict[str, NDArray[np.int64]]:
        """Return the class that the n0 draws of a certificate select, by entry; (B,)."""
        classifier = SmoothedClassifier(
            MemberLogits(self.networks),
            len(images.meta.classes),
            self.sigma,
            noise=certification.noise,
            precision=precision_on(self.device, certification.precision),
            batch=self.batch,
        )
        selected = [
            NoisyPool(classifier, x, certification.draws, index).select(entries)
            for index, x in zip(indices, self._pixels(images, indices), strict=True)
        ]
        return {name: np.array([classes[name] for classes in selected]) for name in entries}

    def _pixels(self, images: Images, indices: list[int]) -> Tensor:
        return torch.stack([images.pixels(index) for index in indices]).to(self.device)


def margins(probabilities: NDArray[np.float64], ys: ArrayLike) -> NDArray[np.float64]:
    """Return the margins z_i = p_y - p_i of outputs (B, L, N, K) and classes (B,); those of y
    itself are exactly 0.
    """
    return (
        np.take_along_axis(probabilities, np.asarray(ys)[:, None, None, None], axis=-1)
        - probabilities
    )


# -------------------------------------------------------------------------------------------------
# noise


def noisy_copies(
    x: Tensor, noises: int, sigma: float, seed: int, index: int, repeat: int = 0
) -> Tensor:
    """Return noisy copies of an image to fit weights on, (C, H, W) -> (noises, C, H, W); never
    those that certify.

    ``index`` is the number of the image. ``repeat`` 1, 2, ... are further copies, independent of
    the first ones.
    """
    draws = range(repeat * noises, (repeat + 1) * noises)
    return x + certification_noise(
        draws, x.shape, sigma, seed, Stream.WEIGHTS, NOISE, index, device=x.device
    )


def perturbed_parameters(
    model: nn.Module, share: float, scale: float, seed: int, member: int, copy: int
) -> dict[str, Tensor]:
    """Return the parameters of a perturbed copy: N(0, scale^2) is added to each number with
    probability ``share``.

    Buffers (the statistics of batch norm) are not among them, and the model is left as it is. The
    numbers are drawn on the CPU, whatever the device, and depend on ``(seed, member, copy)`` alone:
    a copy is one model for all images.

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
        chosen = torch.rand(parameter.shape, generator=rng) < share
        noise = scale * torch.randn(parameter.shape, generator=rng)
        copies[name] = parameter.detach() + torch.where(chosen, noise, 0.0).to(parameter)
    return copies


def perturbed_probabilities(
    networks: Sequence[nn.Module],
    xs: Tensor,
    settings: WeightSettings,
    *,
    sigma: float,
    indices: Sequence[int],
    names: Sequence[int] | None = None,
    repeat: int = 0,
    batch: int | None = None,
) -> NDArray[np.float64]:
    """Return the softmax outputs of every member, perturbed copy and noisy image.

    All members and copies see the same noisy images. Copies are evaluated one after the other: on a
    CPU ``torch.func.vmap`` over them is no faster from some hundred noisy images on, and would hold
    all of them.

    Args:
        networks: L classifiers, images (N, C, H, W) -> logits (N, K); in eval mode here, and left
            as they are.
        xs: Images in [0, 1], shape (B, C, H, W), on the device of the members. All their noisy
            copies are held.
        settings: n noisy copies of an image and m perturbed copies of a member; the seed of the
            noise, which ``indices`` name image by image, and of the perturbations.
        sigma: Noise standard deviation, in pixels of [0, 1].
        indices: Numbers of the images, shape (B,).
        names: Numbers that name the members' perturbations, at least 0, shape (L,); their positions
            if ``None``.
        repeat: 0, or 1, 2, ... for other noise and other copies, independent of those of 0.
        batch: Noisy images evaluated at once; chosen by the size of an image if ``None``.
    Returns:
        Probabilities, shape (B, L, m n, K); draw ``j n + i`` is copy j on noisy image i.
    Raises:
        ValueError: If a member's outputs are not finite.
        InputError: If ``batch`` is not positive.
    """
    if batch is not None and batch < 1:
        raise InputError(
            f"batch must be at least 1, got {batch}; it is the number of noisy images evaluated at "
            "once"
        )
    noises, copies, seed = settings.noises, settings.copies, settings.seed
    noisy = torch.cat(
        [noisy_copies(x, noises, sigma, seed, i, repeat) for x, i in zip(xs, indices, strict=True)]
    )
    outputs = [
        _probabilities(
            network,
            perturbed_parameters(network, settings.share, settings.scale, seed, name, copy),
            noisy.split(batch or default_batch(xs[0])),
        )
        for name, network in zip(names or range(len(networks)), networks, strict=True)
        for copy in range(repeat * copies, (repeat + 1) * copies)
    ]
    p = np.stack(outputs).reshape(len(networks), copies, len(xs), noises, -1)  # (L, m, B, n, K)
    return np.moveaxis(p, 2, 0).reshape(
        len(xs), len(networks), copies * noises, -1
    )  # (B, L, m n, K)


def _probabilities(
    network: nn.Module, parameters: dict[str, Tensor], batches: Sequence[Tensor]
) -> NDArray[np.float64]:
    """Return the softmax outputs of a member with these parameters; batches of (N, C, H, W) -> (N,
    K).
    """
    with torch.inference_mode(), evaluating(network):
        logits = [functional_call(network, parameters, (batch,)) for batch in batches]
        p = torch.softmax(torch.cat(logits).double(), dim=-1).cpu().numpy()
    if not np.isfinite(p).all():
        raise ValueError(
            "outputs of a perturbed member must be finite, got NaN; perturb less, or look at its "
            "weights"
        )
    return p
