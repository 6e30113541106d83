"""Certifying images one by one into resumable row files: ``rs.certification.certify_model``."""

import numpy as np
import pytest
import torch
from torch import nn

from rs.certification.certify_model import certify_images
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings
from rs.storage import certificate_rows, row_writer
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import Provenance
from tests.support.helpers import CERTIFY, SHAPE, refuses, smallnet, tiny_images

SETTINGS = CertificationSettings(**CERTIFY | {"n": 60, "seed": 4})
IDENTITY = {
    "classifier": "small",
    "scope": "model",
    "sigma": 0.5,
    "n": 60,
    "subset": "all",
    "versions": {"torch": "x"},
}
INDICES = np.array([0, 2, 3, 5, 8])
SIZE = len(INDICES)

pytestmark = pytest.mark.usefixtures("work")


def smoothed(base=None):
    return SmoothedClassifier(base if base is not None else smallnet(), 2, 0.5)


def certify_tiny(out, base=None, identity=IDENTITY, indices=INDICES, settings=SETTINGS):
    certify_images(
        smoothed(base),
        tiny_images(10, 1),
        indices,
        settings,
        torch.device("cpu"),
        Provenance.from_json(identity, "", ""),
        out,
    )


class Dies(nn.Module):
    """A classifier that nobody may ask."""

    def forward(self, x):
        fail()


def fail():
    raise RuntimeError("died")


@pytest.fixture
def unbroken(tmp_path):
    """Bytes of the rows of a run that nothing interrupted."""
    certify_tiny(tmp_path / "unbroken" / "rows.tsv")
    return (tmp_path / "unbroken" / "rows.tsv").read_bytes()


def test_the_rows_are_those_of_a_slow_loop(unbroken):
    classifier, images = smoothed(), tiny_images(10, 1)
    rows = []
    for i in INDICES.tolist():
        made = classifier.certify(images.pixels(i), 10, 60, 0.01, seed=4, index=i)
        rows.append(made.row(i, i % 2))
    assert unbroken.decode() == certificate_rows.rows_text(rows)


def stamps(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def keep_rows(count):
    return lambda out: out.write_text("".join(out.read_text().splitlines(True)[: 1 + count]))


@pytest.mark.parametrize(
    ("identity", "spoil", "message"),
    [
        (
            {**IDENTITY, "classifier": "other"},
            None,
            "classifier is .* there and other here; remove it",
        ),
        (
            IDENTITY,
            lambda out: sidecar_of(out).unlink(),
            r"must have .*rows\.json next to it, but there is none",
        ),
        (IDENTITY, keep_rows(SIZE - 1), "must hold 5 rows, but has 4"),
    ],
)
def test_rows_of_anything_else_are_refused_and_left_alone(
    tmp_path, unbroken, identity, spoil, message
):
    out = tmp_path / "unbroken" / "rows.tsv"
    if spoil:
        spoil(out)
    before = stamps(out.parent)
    with refuses(message):
        certify_tiny(out, Dies(), identity)
    assert stamps(out.parent) == before


@pytest.mark.parametrize("name", ["gaussian-0.25", "rows.json"])
def test_the_row_file_must_be_a_tsv_lest_two_share_a_sidecar(tmp_path, name):
    with refuses(r"must be named \*\.tsv"):
        certify_tiny(tmp_path / name, Dies())
    assert not (tmp_path / name).exists()


def write_until(out, images, end=lambda: None):
    """Write rows by a loop that ends after so many images; the images that remained before it."""
    certificate = smoothed().certify(torch.zeros(SHAPE), 10, 60, 0.01)
    provenance = Provenance.from_json(IDENTITY, "", "")
    with row_writer.write_rows({out: provenance}, INDICES) as writer:
        remaining = list(writer.remaining)
        for index in remaining[:images]:
            writer.write(index, {out: certificate.row(index, 0)})
        end()
    return remaining, writer.was_complete


@pytest.mark.parametrize(
    ("images", "end", "error", "message"),
    [
        (SIZE - 1, lambda: None, ValueError, "rows of all 5 images must be written, got 4"),
        (SIZE, fail, RuntimeError, "died"),
    ],
)
def test_a_loop_that_leaves_out_an_image_or_raises_after_the_last_publishes_nothing(
    tmp_path, images, end, error, message
):
    with pytest.raises(error, match=message):
        write_until(tmp_path / "rows.tsv", images, end)
    assert list(tmp_path.glob("rows*")) == []
    assert write_until(tmp_path / "rows.tsv", SIZE - images) == (INDICES[images:].tolist(), False)
    assert write_until(tmp_path / "rows.tsv", 0) == ([], True)
