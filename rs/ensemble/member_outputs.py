"""Outputs of the members of a pool on noisy images, from which weights are solved."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs.data.prepared import Images, Meta
from rs.ensemble.declare import PoolSpec
from rs.ensemble.perturbation import CHOICE, Perturbation, perturbed_probabilities
from rs.ensemble.pool import PoolEntry, noisy_pool
from rs.ensemble.spec import EnsembleSpec, load_members
from rs.params import Count, NonNegativeCount, validated
from rs.runtime.streams import Stream, stream
from rs.smoothing.settings import CertificationSettings

NUMBERS = 2**23
"""Probabilities and pixels that are held at once, roughly."""


@validated
class WeightSettings(Perturbation):
    """How weights are solved for; section ``recipes.DATASET.weights`` of params.yaml."""

    draws: Count  # noisy copies of an image, that weights of the largest radius are fitted to
    images: Count  # that global weights are fitted to
    seed: NonNegativeCount

    def fitting_images(self, images: Images) -> NDArray[np.int64]:
        """The images that weights and thresholds of all images are fitted on, in order."""
        rng = stream(self.seed, Stream.WEIGHTS, CHOICE)
        return torch.randperm(len(images), generator=rng)[: self.images].sort().values.numpy()


class Chunk(NamedTuple):
    """Some images, and the outputs of the members of a pool on them."""

    indices: list[int]  # (B,)
    labels: NDArray[np.int64]  # (B,)
    perturbed: NDArray[np.float64]  # probabilities of perturbed copies, (B, L, m n, K)


@dataclass(frozen=True)
class MemberOutputs:
    """The loaded members of a pool, and how their outputs are taken."""

    models: list[nn.Module]
    members: list[tuple[str, int]]  # method and seed
    names: list[int]  # of their perturbations
    sigma: float
    settings: WeightSettings
    device: torch.device
    batch: int | None

    @classmethod
    def load(
        cls, pool: PoolSpec, source: Path, meta: Meta, settings: WeightSettings, device: torch.device, batch: int | None
    ) -> MemberOutputs:
        """Load the members, and check that they are those the pool was made of, and of the data set's images.

        Perturbations are named by method and seed, so they depend neither on the other members nor on the fingerprint.
        """
        models, _ = load_members(pool.members, pool.dataset, pool.sigma, source, meta)
        names = [zlib.crc32(f"{member.method}-{member.seed}".encode()) for member in pool.members]
        pairs = [(member.method, member.seed) for member in pool.members]
        return cls([model.to(device) for model in models], pairs, names, pool.sigma, settings, device, batch)

    def only(self, members: Collection[tuple[str, int]]) -> MemberOutputs:
        """These members alone, in the same order."""
        kept = [number for number, member in enumerate(self.members) if member in members]
        return replace(
            self,
            models=[self.models[number] for number in kept],
            members=[self.members[number] for number in kept],
            names=[self.names[number] for number in kept],
        )

    def unperturbed(self) -> MemberOutputs:
        """The members as they are, on as many noisy copies as weights of the largest radius are fitted to."""
        return replace(self, settings=replace(self.settings.without_parameters(), noises=self.settings.draws))

    def numbers(self, spec: EnsembleSpec) -> list[int]:
        """Positions of an ensemble's members."""
        return [self.members.index((member.method, member.seed)) for member in spec.members]

    def chunks(self, images: Images, indices: Sequence[int] | NDArray[np.int64]) -> Iterator[Chunk]:
        """Outputs of perturbed copies, for as many images at once as memory should hold."""
        for part in self.parts(images, indices, self.settings.noises, self.settings.copies):
            yield Chunk(part, images.labels[part], self.probabilities(images, part))

    def parts(
        self, images: Images, indices: Sequence[int] | NDArray[np.int64], noises: int, copies: int = 1
    ) -> Iterator[list[int]]:
        """Images in parts of which memory should hold the outputs on ``noises`` noisy copies at once."""
        size = len(self.models) * noises * copies * len(images.meta.classes) + noises * np.prod(images.meta.shape)
        at_once = max(1, int(NUMBERS // size))
        for start in range(0, len(indices), at_once):
            yield [int(i) for i in indices[start : start + at_once]]

    def probabilities(
        self, images: Images, indices: list[int], perturbed: bool = True, repeat: int = 0
    ) -> NDArray[np.float64]:
        """Outputs on noisy images, of perturbed copies (B, L, m n, K) or of the members as they are (B, L, n, K).

        ``repeat`` 1, 2, ... are draws that are independent of those of 0.
        """
        return perturbed_probabilities(
            self.models,
            self.pixels(images, indices),
            self.settings if perturbed else self.settings.without_parameters(),
            sigma=self.sigma,
            seed=self.settings.seed,
            indices=indices,
            names=self.names,
            repeat=repeat,
            batch=self.batch,
        )

    def selected(
        self,
        images: Images,
        indices: list[int],
        entries: Mapping[str, PoolEntry],
        certification: CertificationSettings,
    ) -> dict[str, NDArray[np.int64]]:
        """The class that the n0 draws of a certificate select, by entry; (B,)."""
        selected = [
            noisy_pool(
                self.models,
                len(images.meta.classes),
                self.sigma,
                x,
                certification.draws,
                index=index,
                noise=certification.noise,
                precision=certification.precision,
                batch=self.batch,
            ).select(entries)
            for index, x in zip(indices, self.pixels(images, indices), strict=True)
        ]
        return {name: np.array([classes[name] for classes in selected]) for name in entries}

    def pixels(self, images: Images, indices: list[int]) -> Tensor:
        """Images (B, C, H, W), on the device."""
        return torch.stack([images.pixels(index) for index in indices]).to(self.device)
