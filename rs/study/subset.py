"""Which images of a split are certified: the first N, every N-th, a range, or all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from rs.errors import InputError

Sliced = TypeVar("Sliced", NDArray[np.int64], range)
"""Indices of images."""

FORMS = 'a subset must be "all", {first: n}, {stride: n} or {range: [start, stop]}'


def _checked(subset: Any) -> Any:
    _parse(subset)
    return subset


Subset = Annotated[str | Mapping[str, int | Sequence[int]], PlainValidator(_checked)]
"""``"all"``, ``{"first": n}``, ``{"stride": n}`` or ``{"range": [start, stop]}`` without stop."""


def select(size: int, subset: Subset) -> NDArray[np.int64]:
    """Return the sorted indices that ``subset`` picks out of ``size`` images.

    Raises:
        InputError: If the form is unknown, leaves ``range(size)`` or picks nothing.

    >>> select(100, {"stride": 40})
    array([ 0, 40, 80])
    >>> select(1000, {"range": [500, 503]})
    array([500, 501, 502])
    """
    images = _images(size, subset)
    if not images or images[0] < 0 or images[-1] >= size:
        raise InputError(
            f"subset {subset_name(subset)} must pick at least one image, and only images of the "
            f"{size}; choose other bounds"
        )
    return np.array(images)


def share_of(indices: Sliced, share: str) -> Sliced:
    """Return one of several equal shares of images: ``3/16`` is the third of 16.

    Raises:
        InputError: If it has another form, or there are fewer images than shares.

    >>> share_of(np.arange(5), "2/2")
    array([1, 3])
    """
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", share)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 0 < number <= count <= len(indices):
        raise InputError(
            "--share must be NUMBER/COUNT, from 1/16 to 16/16 for 16 shares, with at most "
            f"{len(indices):,} shares for {len(indices):,} images; got {share!r}"
        )
    return indices[number - 1 :: count]


def subset_name(subset: Subset) -> str:
    """Return a short name for files and tables.

    Raises:
        InputError: If the form is unknown.

    >>> subset_name({"first": 500}), subset_name({"range": [500, 1000]}), subset_name("all")
    ('first-500', 'range-500-1000', 'all')
    """
    form, numbers = _parse(subset)
    return "-".join([form, *map(str, numbers)])


def is_subset(
    indices: Sequence[int], name: str, size: int | None = None, share: str = "1/1"
) -> bool:
    """Return whether the subset of a name (:func:`subset_name`) has exactly these images.

    Args:
        indices: The images.
        name: The name.
        size: Number of images of the split; ``None`` for any.
        share: As for :func:`share_of`.

    >>> is_subset([0, 40, 80], "stride-40"), is_subset([0, 40], "first-2")
    (True, False)
    >>> is_subset([0, 40, 80], "stride-40", 200), is_subset([0, 80], "stride-40", 100, "1/2")
    (False, True)
    """
    form, *words = name.split("-")
    numbers = [int(word) for word in words if word.isdecimal() and len(word) < 19]
    last = max(indices)
    split_size = last + 1 if size is None else size
    if last >= split_size:
        return False
    subset: Any = form
    if words:
        is_single = len(words) == len(numbers) == 1
        subset = {form: numbers[0] if is_single else numbers}
    try:
        images = share_of(_images(split_size, subset), share)
    except InputError:  # no subset has this name
        return False
    return list(images[: len(indices) + 1]) == sorted(indices)


def _images(size: int, subset: Subset) -> range:
    """Return the images that ``subset`` picks out of ``size``, or out of more if these are few."""
    form, numbers = _parse(subset)
    if form in ("first", "range"):
        return range(*numbers)
    return range(0, size, *numbers)


def _parse(subset: Subset) -> tuple[str, list[int]]:
    """Return the form and its whole numbers."""
    if subset == "all":
        return "all", []
    if not isinstance(subset, Mapping) or len(subset) != 1:
        raise InputError(f"{FORMS}; got {subset!r}")
    ((form, value),) = subset.items()
    listed = list(value) if form == "range" and isinstance(value, Sequence) else [value]
    numbers = [number for number in listed if type(number) is int]  # no bool
    expected = {"first": 1, "stride": 1, "range": 2}.get(form)
    if not len(numbers) == len(listed) == expected:
        raise InputError(f"{FORMS}, with whole numbers; got {subset!r}")
    if not range(*numbers):
        raise InputError(f"a subset must pick at least one image, got {subset!r}")
    return form, numbers
