"""Certifying a set of images, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs.data.format import Images
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings
from rs.statistics.certificate import Certificate, asks_one_radius, draws_at_most
from rs.statistics.radius import votes_needed
from rs.storage import row_writer

if TYPE_CHECKING:  # half a second to import
    import pandas as pd


def warn_if_hopeless(n: int, alpha: float) -> None:
    """Say on stderr if ``n`` draws can never certify anything at ``alpha``."""
    if votes_needed(n, alpha) is None:
        least = next(more for more in count(n + 1) if votes_needed(more, alpha) is not None)
        print(
            f"warning: n = {n} draws can never certify at alpha = {alpha}: even a unanimous vote abstains; "
            f"give n of at least {least}",
            file=sys.stderr,
        )


def certificates(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    settings: CertificationSettings,
    device: torch.device,
) -> Iterator[tuple[int, Certificate]]:
    """Certify the images named by ``indices``, one after the other."""
    for index in map(int, indices):
        yield index, _certify(classifier, images.pixels(index).to(device), index, int(images.labels[index]), settings)


def _certify(
    classifier: SmoothedClassifier, x: Tensor, index: int, label: int, of: CertificationSettings
) -> Certificate:
    where = {"seed": of.seed, "index": index}
    if of.stop is not None:
        return classifier.certify_until(x, of.n0, of.stop, of.n, of.alpha, **where)
    return classifier.certify(x, of.n0, of.n, of.alpha, label=label if of.shortcut else None, **where)


def certify_to(
    out: Path,
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    settings: CertificationSettings,
    device: torch.device,
    identity: dict[str, Any],
) -> None:
    """Write the rows of ``indices`` to ``out``, its sidecar ``out``.json and the seconds of each image.

    Args:
        out: The row file, ``*.tsv``.
        identity: Everything that the rows depend on (:func:`rs.storage.row_writer.rows_to`); its ``scope`` goes into
            the rows.
    Raises:
        InputError: As :func:`rs.storage.row_writer.rows_to`.
    """

    def made(left: NDArray[np.int64]) -> Iterator[dict[Path, dict[str, Any]]]:
        for index, certificate in certificates(classifier, images, left, settings, device):
            yield {out: certificate.row(index, int(images.labels[index]), identity["scope"])}

    warn_if_hopeless(settings.n, settings.alpha)
    row_writer.rows_to({out: identity}, row_writer.seconds_of(out), indices, made)


def summary(table: pd.DataFrame) -> str:
    """Say in one line what rows that stopped when they were sure came to."""
    mode, right, draws = table["mode"].iloc[0], table["correct"].mean(), (table["n0"] + table["n"]).mean()
    most = int(table["n0"].iloc[0]) + (draws_at_most(mode) or 0)
    what = f"radius {mode.split(':')[1]}" if asks_one_radius(mode) else "some radius"
    return f"certified at {what}: {right:.1%} of {len(table):,} images; {draws:,.0f} of {most:,} draws an image"
