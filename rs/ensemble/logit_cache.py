"""Logits of a pool's members on disk, so that new rules and weightings are certified without a forward pass."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs.ensemble.pool import MemberLogits, NoisyPool, Visitor
from rs.errors import InputError
from rs.models import Precision
from rs.models.fingerprint import model_fingerprint
from rs.params import validated
from rs.runtime import scratch
from rs.runtime.arithmetic import Arithmetic
from rs.runtime.streams import Stream
from rs.smoothing import Noise
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import Draws
from rs.storage import files

READ = 4096
"""Draws that are read from a cache at once."""


@validated
class CacheKey:
    """What the logits in a cache are of; written beside them as ``cache.json``."""

    members: list[str]  # fingerprints, ``rs.models.fingerprint.model_fingerprint``
    images: str  # fingerprint of the data set
    indices: list[int]  # of its images
    num_classes: int
    sigma: float
    n0: int
    n: int
    seed: int
    noise: Noise
    precision: Precision
    device: str  # its kind, which draws its own noise
    arithmetic: Arithmetic  # which rounds in its own way
    code: str  # that made them, ``rs.runtime.code_fingerprint.code_hash``
    versions: dict[str, str]  # ``rs.models.checkpoint.library_versions``, with that of OpenVINO if it runs the members


class OutputCache:
    """Logits of members on the draws of CERTIFY, on disk: a new rule or weighting needs no forward pass.

    One file an image, float16, (n0 + n) x members x K, memory-mapped for reading. It is written beside and takes its
    name when it is whole and on the disk, so processes may fill and read one cache at once. The certificates are those
    of members whose logits are rounded to float16: a fixed function of the noisy image like any other, and as sound,
    but its votes differ from those of the members themselves where two classes are that close.

    Args:
        folder: Where the files are, or are to be made (:meth:`size`).
        key: What is in them.
    Raises:
        InputError: If the folder holds anything else, or its disk has no room for the images that are missing.
    """

    def __init__(self, folder: Path, key: CacheKey) -> None:
        self.folder, self.key, self._indices = folder, key, frozenset(key.indices)
        with scratch.locked(folder):
            if not (folder / "cache.json").exists():
                files.check_output(folder, "a cache of outputs", files.is_empty, option="folder")
                files.write_json(folder / "cache.json", asdict(key))
        if files.read_json(folder / "cache.json") != asdict(key):
            raise InputError(f"{folder} must hold outputs of the same members and draws; give another folder")
        missing = sum(not self._is_filled(index) for index in key.indices)
        needed, free = missing * self._bytes_of_image, shutil.disk_usage(folder).free
        if needed > free:
            raise InputError(
                f"{folder} must have room for {needed:,} bytes of outputs, but its disk has {free:,}; set RS_WORK to "
                "another, or pool.cache to false"
            )

    @staticmethod
    def size(members: int, images: int, draws: int, num_classes: int) -> int:
        """Return the bytes of the logits of a cache, ``draws`` being n0 + n.

        >>> OutputCache.size(members=9, images=500, draws=100_100, num_classes=10)
        9009000000
        """
        return members * images * draws * num_classes * 2

    def fill(self, members: Sequence[nn.Module], x: Tensor, index: int, batch: int | None = None) -> None:
        """Evaluate the members on the draws of image ``index``, (C, H, W), unless that is done already."""
        key = self.key
        if self._is_filled(index):
            return
        if [model_fingerprint(member) for member in members] != key.members or x.device.type != key.device:
            raise InputError(f"members and device must be those that {self.folder} is of; give another folder")
        classifier = SmoothedClassifier(
            MemberLogits(members), key.num_classes, key.sigma, noise=key.noise, precision=key.precision, batch=batch
        )
        with files.replacing(self._path(index)) as temporary, temporary.open("wb") as file:

            def keep(outputs: Sequence[Tensor], draws: int) -> None:
                halves = [_half(logits, (draws, key.num_classes)) for logits in outputs]
                file.write(np.stack(halves, axis=1).tobytes())

            for draws, phase in ((key.n0, Stream.SELECT), (key.n, Stream.ESTIMATE)):
                classifier.visit(keep, x, draws, key.seed, phase, index)
            file.flush()
            os.fsync(file.fileno())  # before it takes its name, which says that it is whole

    def noisy_pool(self, index: int, alpha: float) -> NoisyPool:
        """Return the cached logits of image ``index``, for certificates of failure probability ``alpha``."""
        key = self.key
        if not self._is_filled(index):
            raise InputError(f"image {index} must be in {self.folder} before it is certified from there; fill it first")
        stored = np.memmap(
            self._path(index), np.float16, "r", shape=(key.n0 + key.n, len(key.members), key.num_classes)
        )

        def visit(visitor: Visitor, needed: tuple[int, ...], number: int, phase: Stream) -> None:
            first = 0 if phase == Stream.SELECT else key.n0
            for start in range(first, first + number, READ):
                part = stored[start : min(start + READ, first + number)]
                logits = [torch.from_numpy(np.array(part[:, member])) for member in needed]
                visitor(logits, len(part))

        draws = Draws(key.n0, key.n, alpha, key.seed)
        where = torch.device("cpu")
        return NoisyPool(len(key.members), key.num_classes, key.sigma, draws, index, where, key.noise, visit)

    @property
    def _bytes_of_image(self) -> int:
        return self.size(len(self.key.members), 1, self.key.n0 + self.key.n, self.key.num_classes)

    def _is_filled(self, index: int) -> bool:
        path = self._path(index)
        return path.is_file() and path.stat().st_size == self._bytes_of_image

    def _path(self, index: int) -> Path:
        if index not in self._indices:
            raise InputError(f"image {index} must be one of those that {self.folder} is of; give another folder")
        return self.folder / f"{index}.float16"


def _half(logits: Tensor, shape: tuple[int, int]) -> NDArray[np.float16]:
    half = logits.half()
    if half.shape != shape or not half.isfinite().all():
        raise InputError(f"logits must have shape {shape} and fit into float16, got {tuple(half.shape)} or overflow")
    return half.cpu().numpy()
