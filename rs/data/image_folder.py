"""Data sets whose images are read from disk one by one, such as ImageNet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from rs.data import readers
from rs.data.format import Epoch, Meta
from rs.errors import InputError
from rs.runtime.streams import Stream, stream


class FolderImages:
    """A split of a lazy data set; implements :class:`rs.data.format.Images`.

    Test images: shorter side to ``meta.lazy.resize``, central crop of ``meta.shape``.

    Raises:
        InputError: If the files are no longer those that were prepared.
    """

    def __init__(self, meta: Meta, split: str) -> None:
        assert meta.lazy is not None  # a packed data set has PackedImages
        self.meta, self.lazy = meta, meta.lazy
        self.fingerprint = meta.sha256[split]
        self.tree = readers.tree(Path(self.lazy.root) / self.lazy.folders[split])
        if tuple(self.tree.classes) != meta.classes or readers.tree_sum(self.tree) != self.fingerprint:
            raise InputError(f"{self.tree.root} must hold the files that were prepared; prepare the data set again")
        self.labels: NDArray[np.int64] = np.asarray(self.tree.targets, np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, index: int) -> Tensor:
        """Return image ``index`` with the test transform: float32 (C, H, W) in [0, 1]."""
        return self._central(self.image(index))

    def image(self, index: int) -> Image.Image:
        """Return image ``index`` as it is on disk, in RGB.

        Raises:
            InputError: If the file is unreadable.
        """
        path = self.tree.samples[index][0]
        try:
            return self.tree.loader(path)
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(f"{path} must be an image, but: {readers.one_line(error)}; replace it") from error

    @cached_property
    def _central(self) -> Callable[[Image.Image], Tensor]:
        return v2.Compose([*self._crop(False), *_to_tensor()])

    def _crop(self, random: bool) -> list[v2.Transform]:
        """Return what makes an image one of ``meta.shape``."""
        side = self.meta.shape[1]
        return [v2.RandomResizedCrop(side)] if random else [v2.Resize(self.lazy.resize), v2.CenterCrop(side)]

    def batches(
        self, order: Tensor, epoch: Epoch, device: torch.device | str, workers: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images in ``order``, see :func:`rs.data.images.batches`; ``crop`` > 0 is random, resized."""
        flip = [v2.RandomHorizontalFlip()] if epoch.flip else []
        loader = DataLoader(
            _Augmented(self, v2.Compose([*self._crop(epoch.crop > 0), *flip, *_to_tensor()]), epoch.seed, epoch.number),
            batch_sampler=[chosen.tolist() for chosen in order.split(epoch.size)],
            num_workers=workers,
            pin_memory=torch.device(device).type == "cuda",
            generator=stream(epoch.seed, Stream.ORDER, epoch.number),  # else the loader draws from the global generator
        )
        for x, y in loader:
            yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)


def _to_tensor() -> list[v2.Transform]:
    return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]


@dataclass(frozen=True)
class _Augmented(Dataset[tuple[Tensor, int]]):
    """Augmented images whose draws depend on (seed, epoch, index) alone, in whichever process."""

    images: FolderImages
    transform: Callable[[Image.Image], Tensor]
    seed: int
    epoch: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with _global_generator(stream(self.seed, Stream.AUGMENT, self.epoch, index)):
            return self.transform(self.images.image(index)), int(self.images.labels[index])


@contextmanager
def _global_generator(rng: torch.Generator) -> Iterator[None]:
    """Replace the state of torch's global generator, from which torchvision draws, by that of ``rng``."""
    state = torch.get_rng_state()
    torch.set_rng_state(rng.get_state())
    try:
        yield
    finally:
        torch.set_rng_state(state)
