"""Logits of a pool's members on disk, so that new rules and weightings are certified without a forward pass."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs.ensemble.pool import NoisyPool, PoolEntry, SideBySide, Visitor
from rs.errors import InputError
from rs.models import checkpoint
from rs.runtime.streams import Stream
from rs.smoothing.classifier import Noise, Precision, SmoothedClassifier
from rs.smoothing.settings import Draws
from rs.statistics.certificate import Certificate
from rs.storage import files

READ = 4096
"""Draws that are read from a cache at once."""


@dataclass(frozen=True)
class CacheKey:
    """What the logits in a cache are of; written beside them as ``cache.json``."""

    members: list[str]  # fingerprints, ``rs.models.checkpoint.fingerprint``
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
    code: str  # that made them, ``rs.runtime.code_fingerprint.version``
    versions: dict[str, str]  # ``rs.models.checkpoint.versions``


class OutputCache:
    """Logits of members on the draws of CERTIFY, on disk: a new rule or weighting needs no forward pass.

    One float16 file a member, images x (n0 + n) x K, memory-mapped. The certificates are those of members whose logits
    are rounded to float16: a fixed function of the noisy image like any other, and as sound, but its votes differ from
    those of the members themselves where two classes are that close.

    Args:
        folder: Where the files are, or are to be made, all of their size at once (:meth:`size`).
        key: What is in them; a folder that holds anything else is refused.
    """

    def __init__(self, folder: Path, key: CacheKey) -> None:
        self.folder, self.key = folder, key
        if not (folder / "cache.json").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            shape = (len(key.indices), key.n0 + key.n, key.num_classes)
            for number in range(len(key.members)):
                _make(folder / f"{number}.npy", np.float16, shape)
            _make(folder / "done.npy", np.bool_, shape[:1])
            files.write_json(folder / "cache.json", asdict(key))
        if files.read_json(folder / "cache.json") != asdict(key):
            raise InputError(f"{folder} must hold outputs of the same members and draws; give another folder")

    @staticmethod
    def size(members: int, images: int, draws: int, num_classes: int) -> int:
        """Bytes of the logits of a cache, ``draws`` being n0 + n.

        >>> OutputCache.size(members=9, images=500, draws=100_100, num_classes=10)
        9009000000
        """
        return members * images * draws * num_classes * 2

    def fill(self, members: Sequence[nn.Module], x: Tensor, index: int, batch: int | None = None) -> None:
        """Evaluate the members on the draws of image ``index``, (C, H, W), unless that is done already."""
        key, place, done = self.key, self._place(index), self._open("done", "r+")
        if done[place]:
            return
        if [checkpoint.fingerprint(member) for member in members] != key.members or x.device.type != key.device:
            raise InputError(f"members and device must be those that {self.folder} is of; give another folder")
        stores, start = [self._open(str(number), "r+") for number in range(len(members))], 0

        def keep(outputs: Sequence[Tensor], draws: int) -> None:
            nonlocal start
            for store, logits in zip(stores, outputs, strict=True):
                store[place, start : start + draws] = _half(logits, (draws, key.num_classes))
            start += draws

        base = SideBySide(members)
        classifier = SmoothedClassifier(
            base, key.num_classes, key.sigma, noise=key.noise, precision=key.precision, batch=batch
        )
        for draws, phase in ((key.n0, Stream.SELECT), (key.n, Stream.ESTIMATE)):
            classifier.visit(keep, x, draws, key.seed, phase, index)
        for store in stores:
            store.flush()
        done[place] = True
        done.flush()

    def certify(
        self, entries: Mapping[str, PoolEntry], index: int, alpha: float, *, label: int | None = None
    ) -> dict[str, Certificate]:
        """:func:`rs.ensemble.pool.certify_entries` on image ``index`` from its cached logits."""
        return self.noisy_pool(index, alpha).certify(entries, label)

    def noisy_pool(self, index: int, alpha: float) -> NoisyPool:
        """Return the cached logits of image ``index``, for certificates of failure probability ``alpha``."""
        key, place = self.key, self._place(index)
        if not self._open("done", "r")[place]:
            raise InputError(f"image {index} must be in {self.folder} before it is certified from there; fill it first")

        def visit(visitor: Visitor, needed: tuple[int, ...], number: int, phase: Stream) -> None:
            first = 0 if phase == Stream.SELECT else key.n0
            stores = [self._open(str(n), "r")[place, first : first + number] for n in needed]
            for start in range(0, number, READ):
                logits = [torch.from_numpy(np.array(store[start : start + READ])) for store in stores]
                visitor(logits, len(logits[0]))

        draws = Draws(key.n0, key.n, alpha, key.seed)
        return NoisyPool(len(key.members), key.num_classes, key.sigma, draws, index, torch.device("cpu"), visit)

    def _place(self, index: int) -> int:
        if index not in self.key.indices:
            raise InputError(f"image {index} must be one of those that {self.folder} is of; give another folder")
        return self.key.indices.index(index)

    def _open(self, name: str, mode: Literal["r", "r+"]) -> np.memmap[Any, Any]:
        return np.load(self.folder / f"{name}.npy", mmap_mode=mode)


def _make(path: Path, kind: type[np.generic], shape: tuple[int, ...]) -> None:
    """Write zeros, and take their room now: a disk that is full later kills a process that writes into a memory map."""
    np.lib.format.open_memmap(path, "w+", kind, shape).flush()
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):  # not on every system
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _half(logits: Tensor, shape: tuple[int, int]) -> NDArray[np.float16]:
    half = logits.half()
    if half.shape != shape or not half.isfinite().all():
        raise InputError(f"logits must have shape {shape} and fit into float16, got {tuple(half.shape)} or overflow")
    return half.cpu().numpy()
