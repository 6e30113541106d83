"""A certificate of one image, its votes as text, and its scope (without SciPy)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Decimal
from math import isclose
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rs.errors import InputError
from rs.params import Count, NonNegative, NonNegativeCount, Positive, record, validated

ABSTAIN = -1
"""Prediction that stands for an abstention."""

UNLABELED = -2
"""Label of an image whose class is not known. No prediction equals it."""


MIN_ALPHA = 1e-200
"""Smallest alpha of a certificate. SciPy's quantiles of the beta distribution are
inaccurate at some levels below 1e-260, and a certificate may need them at shares of its alpha.
"""

MAX_DRAWS = 10**9
"""Largest number of draws of a certificate; more would take days."""

TOLERANCE = 1e-9
"""Relative difference below which numbers are equal: other versions of SciPy round differently."""

SCOPES = ("model", "global", "noisy-input", "per-image")
"""What is certified: one model, or an ensemble by what its weights depend on.

``global``: on nothing; ``noisy-input``: on the noisy image. These certificates hold for the
classifier as it is deployed. ``per-image``: on the clean image, frozen to be certified.
"""


_COUNTS = re.compile(r"\d+:\d+(?:,\d+:\d+)*", re.ASCII)

PER_IMAGE_SCOPE = "per-image"
"""The scope whose certificates do not hold for a classifier that computes its weights per image."""


def format_counts(counts: Sequence[int]) -> str:
    """Write votes per class as ``class:votes`` for every class with votes; ``-`` without votes.

    >>> format_counts([0, 3, 0, 97])
    '1:3,3:97'
    """
    texts = [f"{k}:{int(votes)}" for k, votes in enumerate(counts) if votes]
    return ",".join(texts) or "-"


def parse_counts(text: str) -> dict[int, int]:
    """Parse the text of :func:`format_counts`: votes by class.

    Raises:
        ValueError: If the text has another form.

    >>> parse_counts("1:3,3:97")
    {1: 3, 3: 97}
    """
    if text == "-":
        return {}
    counts: dict[int, int] = {}
    is_valid = _COUNTS.fullmatch(text) is not None
    if is_valid:
        for pair in text.split(","):
            k, votes = map(int, pair.split(":"))
            is_valid = is_valid and votes > 0 and k not in counts
            counts[k] = votes
    if not is_valid:
        raise ValueError(f"counts must name each class once with at least one vote, got {text!r}")
    return counts


Votes = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Votes of several rows, as three arrays of one length: number of the row, class, its votes there.
"""


def votes_of(texts: Iterable[str]) -> Votes:
    """Parse many texts of :func:`format_counts` at once.

    Raises:
        ValueError: If a text has another form.

    >>> [part.tolist() for part in votes_of(["1:3,3:97", "-", "0:5"])]
    [[0, 0, 2], [1, 3, 0], [3, 97, 5]]
    """
    listed = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    sizes = [0 if text == "-" else text.count(",") + 1 for text in listed]
    pairs = ",".join([text for text in listed if text != "-"])
    if any(sizes) and not _COUNTS.fullmatch(pairs):
        raise ValueError("counts must be class:votes, separated by commas, or - for none")
    numbers = np.zeros(0, np.int64)
    if pairs:
        numbers = np.fromstring(pairs.replace(",", ":"), dtype=np.int64, sep=":")
    return np.repeat(np.arange(len(listed)), sizes), numbers[::2], numbers[1::2]


def votes_for(votes: Votes, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the votes for one class of each row.

    Args:
        votes: As :func:`votes_of` reads them.
        classes: The class of each row, shape (N,).

    >>> votes_for(votes_of(["1:3,3:97", "-", "0:5"]), np.array([3, 0, 1])).tolist()
    [97, 0, 0]
    """
    row, k, counts = votes
    own_votes = counts * (k == classes[row])
    sums = np.bincount(row, weights=own_votes, minlength=len(classes))
    return sums.astype(np.int64)


def radius_text(radius: float) -> str:
    """Write a radius in few digits, from which it is read exactly.

    >>> radius_text(0.0), radius_text(0.25), radius_text(127 / 255)
    ('0', '0.25', '0.4980392156862745')
    """
    short = f"{radius:g}"
    return short if float(short) == radius else repr(float(radius))


def round_down(value: float) -> Decimal:
    """Round down to four decimals; a certificate is never rounded up.

    >>> round_down(0.99999), round_down(0.3)
    (Decimal('0.9999'), Decimal('0.2999'))
    """
    return Decimal(value).quantize(Decimal("0.0001"), ROUND_FLOOR)


@dataclass(frozen=True, eq=False)
class Certificate:
    """The result of CERTIFY for one image, with everything from which it was computed.

    Two certificates are equal if all their fields are.
    """

    predict: int  # the class, or ABSTAIN
    radius: float  # certified l2 radius, in the unit of the input; 0 where it abstains
    p_lower: float  # lower confidence bound on the probability of the selected class
    n0: int = field(repr=False)  # draws that selected the class
    n: int  # draws that bound its probability; 0 where they were skipped
    alpha: float  # failure probability
    sigma: float = field(repr=False)  # noise standard deviation, in the unit of the input
    counts0: NDArray[np.int64] = field(repr=False)  # votes of the n0 draws, shape (K,)
    counts: NDArray[np.int64] = field(repr=False)  # votes of the n draws, shape (K,)
    # or "shortcut", or the mode of a run of ``rs.statistics.sequential``
    mode: str = field(default="certify", repr=False)
    # of members, on all samples; only counted for a cascade
    evaluations: int | None = field(default=None, repr=False)
    noise: str = field(default="gaussian", repr=False)  # or "grid": which of the two was added

    def __str__(self) -> str:
        """Return one readable line; numbers are rounded down."""
        what = "abstains"
        if self.predict != ABSTAIN:
            radius = round_down(self.radius)
            what = f"class {self.predict}, l2 radius {radius} in input units"
        bound = f"p >= {round_down(self.p_lower)}, n = {self.n:,}, alpha = {self.alpha}"
        return f"{what}, {bound}, {self.noise} noise"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name in plain Python types, which JSON can hold; votes are lists."""
        return {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """Return the certificate whose :meth:`to_dict` returned these values.

        Raises:
            InputError: If a key is missing or unknown, or a value is impossible or contradicts
                another one; names all of them.
        """
        checked = vars(record(_Values, values, "values must be of a certificate", "use to_dict"))
        votes = {name: np.array(checked[name], np.int64) for name in ("counts0", "counts")}
        return cls(**checked | votes)

    def __eq__(self, other: object) -> bool:
        """Return whether all fields are equal."""
        if not isinstance(other, Certificate):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Return a hash of the numbers that rarely agree by chance."""
        return hash((self.predict, self.radius, self.p_lower, self.n, self.alpha, self.sigma))

    def row(self, index: int, label: int, scope: str = "model") -> dict[str, Any]:
        """Return the row of image ``index``, for :func:`rs.storage.certificate_rows.rows_text`.

        Raises:
            InputError: If ``label`` is neither a class nor :data:`UNLABELED`.
        """
        classes = len(self.counts0)
        if label not in range(classes) and label != UNLABELED:
            raise InputError(
                f"label must be a class, from 0 to {classes - 1}, or {UNLABELED} where it is not "
                f"known, got {label}; correct it"
            )
        return {
            "idx": index,
            "label": label,
            "correct": int(self.predict == label),
            "scope": scope,
            **vars(self),
        }


@validated
class _Values:
    """The values of a certificate, as JSON holds them."""

    predict: Annotated[int, Field(ge=ABSTAIN)]
    radius: NonNegative
    p_lower: Annotated[float, Field(ge=0, le=1)]
    n0: Count
    n: NonNegativeCount
    alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)]
    sigma: Positive
    counts0: list[NonNegativeCount]
    counts: list[NonNegativeCount]
    mode: str
    evaluations: NonNegativeCount | None
    noise: str

    def __post_init__(self) -> None:
        """Check what every procedure promises; readers of rows also compute the bound again."""
        if (sum(self.counts0), sum(self.counts)) != (self.n0, self.n):
            raise ValueError("counts0 must be n0 votes, and counts n votes")
        if len(self.counts0) != len(self.counts):
            raise ValueError("counts0 and counts must be of the same classes")
        selected = self.counts0.index(max(self.counts0))
        if self.predict not in (ABSTAIN, selected):
            raise ValueError("predict must be the class with the most votes of counts0, or -1")
        has_bound = self.p_lower >= 0.5
        if self.n and (self.predict == ABSTAIN) == has_bound:
            raise ValueError("predict must be the class iff p_lower is at least 1/2, else -1")
        largest_bound = self.alpha ** (1 / max(self.counts[selected], 1))
        if self.p_lower > largest_bound * (1 + TOLERANCE) or (has_bound and not self.n):
            raise ValueError("p_lower must be at most alpha^(1 / k), k its votes")
        p_of_radius = NormalDist().cdf(self.radius / self.sigma)
        is_of_bound = isclose(self.p_lower, p_of_radius, rel_tol=TOLERANCE)
        if not is_of_bound and (has_bound or self.radius > 0):
            raise ValueError("radius must be that of p_lower and sigma")
