"""One noise pass certifies every member and every ensemble of a pool.

Members are evaluated once on each noisy image and all rules vote on the same outputs. Every certificate is the one
that its classifier would get alone, and holds with its own probability 1 - alpha; to choose the best of them
afterwards, image by image, is not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs import artefacts, files
from rs.ensemble import LogitAverage, Rule, combine, is_undecided
from rs.errors import InputError
from rs.noise import Stream
from rs.smoothing import Certificate, Precision, SmoothedClassifier, Tally, certificate, check_draws, shortcut, winner


@dataclass(frozen=True)
class Entry:
    """A classifier of a pool: some of its members, by number, and a rule. One member alone is an entry of one."""

    members: tuple[int, ...]
    rule: Rule = field(default_factory=LogitAverage)

    @property
    def undecided(self) -> bool:
        """Whether the rule has an extra last class, which is never a prediction."""
        return is_undecided(self.rule, len(self.members))

    def scores(self, outputs: Mapping[int, Tensor]) -> Tensor:
        """Scores (N, K) from the logits of the members, (N, K) each, by number."""
        return combine(self.rule, [outputs[number] for number in self.members])


Votes = dict[str, NDArray[np.int64]]
"""Votes per class of each entry, by name."""

Visitor = Callable[[Mapping[int, Tensor], int], None]
"""Takes the logits of members by number, and the number of draws."""

READ = 4096
"""Draws that are read from a cache at once."""


class _SideBySide(nn.Module):
    """The members that are needed, each evaluated once: images -> logits by number."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members, self.needed = nn.ModuleList(members), tuple(range(len(members)))

    def forward(self, x: Tensor) -> dict[int, Tensor]:
        return {number: self.members[number](x) for number in self.needed}


def certify_pool(
    members: Sequence[nn.Module],
    rules: Mapping[str, Entry],
    num_classes: int,
    sigma: float,
    x: Tensor,
    n0: int,
    n: int,
    alpha: float,
    *,
    seed: int = 0,
    index: int = 0,
    label: int | None = None,
    precision: Precision = "float32",
    batch: int | None = None,
) -> dict[str, Certificate]:
    """Certify every entry on one image, with one evaluation of each member on each noisy image.

    A certificate is that of ``SmoothedClassifier(Ensemble(its members, its rule), ...).certify(...)`` with the same
    arguments, byte for byte on a CPU. Where a rule has an extra class "undecided" and ``n0`` draws choose it, the entry
    abstains; its counts have K + 1 entries.

    Args:
        members: L classifiers, images (N, C, H, W) -> logits (N, K).
        rules: The classifiers to certify, by name.
        num_classes, sigma, precision, batch: As for ``SmoothedClassifier``.
        x, n0, n, alpha, seed, index, label: As for its ``certify``. With ``label`` the second pass is made for the
            entries, and evaluates the members, that still need it.
    """
    check_draws(x, alpha, n0=n0, n=n)
    _check_entries(rules, len(members))
    base = _SideBySide(members)
    classifier = SmoothedClassifier(base, num_classes, sigma, precision=precision, batch=batch)

    def passed(entries: Mapping[str, Entry], draws: int, phase: Stream) -> Votes:
        base.needed = _needed(entries)
        return _votes(
            lambda visitor: classifier.visit(visitor, x, draws, seed, phase, index), entries, num_classes, x.device
        )

    return _certificates(passed, rules, n0, n, alpha, sigma, label)


def _certificates(
    passed: Callable[[Mapping[str, Entry], int, Stream], Votes],
    rules: Mapping[str, Entry],
    n0: int,
    n: int,
    alpha: float,
    sigma: float,
    label: int | None,
) -> dict[str, Certificate]:
    """CERTIFY with two passes; the second is for the entries whose class is ``label``, if that is given."""
    counts0 = passed(rules, n0, Stream.SELECT)
    kept = {name: e for name, e in rules.items() if label is None or winner(counts0[name], e.undecided) == label}
    counts = passed(kept, n, Stream.ESTIMATE) if kept else {}
    made = {}
    for name, entry in rules.items():
        votes = (counts0[name], counts[name]) if name in kept else (counts0[name],)
        made[name] = (certificate if name in kept else shortcut)(*votes, alpha, sigma, undecided=entry.undecided)
    return made


def _votes(
    each: Callable[[Visitor], None], entries: Mapping[str, Entry], num_classes: int, device: torch.device
) -> Votes:
    """Votes of each entry on all the outputs that ``each`` shows a visitor."""
    tallies = {name: Tally(num_classes + entry.undecided, device) for name, entry in entries.items()}

    def vote(outputs: Mapping[int, Tensor], draws: int) -> None:
        for name, entry in entries.items():
            tallies[name].add(entry.scores(outputs), draws)

    each(vote)
    return {name: tally.fetch() for name, tally in tallies.items()}


def _check_entries(rules: Mapping[str, Entry], members: int) -> None:
    if not rules:
        raise InputError("there must be at least one classifier to certify, got none")
    for name, entry in rules.items():
        if not entry.members or not set(entry.members) <= set(range(members)):
            raise InputError(f"{name} must name members from 0 to {members - 1}, got {entry.members}")
        entry.undecided  # noqa: B018  tries the rule, so that one that does not fit says so before the work begins


def _needed(entries: Mapping[str, Entry]) -> tuple[int, ...]:
    return tuple(sorted({number for entry in entries.values() for number in entry.members}))


@dataclass(frozen=True)
class CacheKey:
    """What the logits in a cache are of; written beside them as ``cache.json``."""

    members: list[str]  # fingerprints, ``rs.artefacts.fingerprint``
    images: str  # fingerprint of the data set
    indices: list[int]  # of its images
    num_classes: int
    sigma: float
    n0: int
    n: int
    seed: int
    precision: Precision
    device: str  # its kind, which draws its own noise


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
                np.lib.format.open_memmap(folder / f"{number}.npy", "w+", np.float16, shape).flush()
            np.lib.format.open_memmap(folder / "done.npy", "w+", np.bool_, shape[:1]).flush()
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
        if [artefacts.fingerprint(member) for member in members] != key.members or x.device.type != key.device:
            raise InputError(f"members and device must be those that {self.folder} is of; give another folder")
        stores, start = [self._open(str(number), "r+") for number in range(len(members))], 0

        def keep(outputs: Mapping[int, Tensor], draws: int) -> None:
            nonlocal start
            for number, logits in outputs.items():
                stores[number][place, start : start + draws] = _half(logits, (draws, key.num_classes))
            start += draws

        base = _SideBySide(members)
        classifier = SmoothedClassifier(base, key.num_classes, key.sigma, precision=key.precision, batch=batch)
        for draws, phase in ((key.n0, Stream.SELECT), (key.n, Stream.ESTIMATE)):
            classifier.visit(keep, x, draws, key.seed, phase, index)
        for store in stores:
            store.flush()
        done[place] = True
        done.flush()

    def certify(
        self, rules: Mapping[str, Entry], index: int, alpha: float, *, label: int | None = None
    ) -> dict[str, Certificate]:
        """:func:`certify_pool` on image ``index`` from its cached logits."""
        key, place = self.key, self._place(index)
        _check_entries(rules, len(key.members))
        if not self._open("done", "r")[place]:
            raise InputError(f"image {index} must be in {self.folder} before it is certified from there; fill it first")

        def passed(entries: Mapping[str, Entry], draws: int, phase: Stream) -> Votes:
            first = 0 if phase == Stream.SELECT else key.n0
            stores = {number: self._open(str(number), "r")[place, first : first + draws] for number in _needed(entries)}

            def each(visitor: Visitor) -> None:
                for start in range(0, draws, READ):
                    parts = {number: np.array(store[start : start + READ]) for number, store in stores.items()}
                    visitor(
                        {number: torch.from_numpy(part) for number, part in parts.items()}, min(READ, draws - start)
                    )

            return _votes(each, entries, key.num_classes, torch.device("cpu"))

        return _certificates(passed, rules, key.n0, key.n, alpha, key.sigma, label)

    def _place(self, index: int) -> int:
        if index not in self.key.indices:
            raise InputError(f"image {index} must be one of those that {self.folder} is of; give another folder")
        return self.key.indices.index(index)

    def _open(self, name: str, mode: Literal["r", "r+"]) -> NDArray:
        return np.load(self.folder / f"{name}.npy", mmap_mode=mode)


def _half(logits: Tensor, shape: tuple[int, int]) -> NDArray[np.float16]:
    half = logits.half()
    if half.shape != shape or not half.isfinite().all():
        raise InputError(f"logits must have shape {shape} and fit into float16, got {tuple(half.shape)} or overflow")
    return half.cpu().numpy()
