"""Certifying images one by one into resumable row files: ``rs.certification.certify_model``."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from rs.certification import certify_model
from rs.certification.certify_model import LONG, certify_images, report_expected_time
from rs.certification.load import load
from rs.data.images import load_images
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.storage import certificate_rows, row_writer
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import Provenance
from tests.support.cells import certify_folder
from tests.support.helpers import CERTIFY, SHAPE, Constant, refuses, smallnet, tiny_images

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


def smoothed(base=None):
    return SmoothedClassifier(base if base is not None else smallnet(), 2, 0.5)


def certify_tiny(out, base=None, identity=IDENTITY):
    provenance = Provenance.from_json(identity, "", "")
    images, device = tiny_images(10, 1), torch.device("cpu")
    certify_images(smoothed(base), images, INDICES, SETTINGS, device, provenance, out)


class Dies(nn.Module):
    """A classifier that nobody may ask."""

    def forward(self, x):
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


def write_until(out, images):
    """Write rows by a loop that ends after so many images; the images that remained before it."""
    certificate = smoothed().certify(torch.zeros(SHAPE), 10, 60, 0.01)
    provenance = Provenance.from_json(IDENTITY, "", "")
    with row_writer.write_rows({out: provenance}, INDICES) as writer:
        remaining = list(writer.remaining)
        for index in remaining[:images]:
            writer.write(index, {out: certificate.row(index, 0)})
    return remaining, writer.was_complete


def test_a_loop_that_leaves_out_an_image_publishes_nothing_and_continues(tmp_path):
    out = tmp_path / "rows.tsv"
    with pytest.raises(ValueError, match="rows of all 5 images must be written, got 4"):
        write_until(out, 4)
    assert list(tmp_path.glob("rows*")) == []
    assert write_until(out, 1) == ([8], False)
    assert write_until(out, 0) == ([], True)


# how long a certification takes, which it says beforehand, with a clock that the tests turn

LARGE = CertificationSettings(**CERTIFY | {"n0": 100, "n": 900})


class Ticking(Constant):
    """A network that takes a second for every ``rate`` noisy images; its first batch takes a
    thousand times as long.
    """

    def __init__(self, rate):
        super().__init__(0)
        self.rate, self.now, self.sizes = rate, 0.0, []

    def forward(self, x):
        self.now += len(x) / self.rate * (1 if self.sizes else 1000)
        self.sizes.append(len(x))
        return super().forward(x)


@pytest.mark.parametrize(
    ("batch", "default", "timed"), [(200, 500, 200), (5000, 5000, 900), (600, 500, 500)]
)
def test_the_seconds_are_images_times_draws_over_the_rate_without_the_first_batch(
    monkeypatch, capsys, batch, default, timed
):
    """A batch is no larger than a certificate has draws, nor than the default."""
    network = Ticking(50)
    monkeypatch.setattr(certify_model, "default_batch", lambda x: default)
    monkeypatch.setattr(certify_model, "time", SimpleNamespace(perf_counter=lambda: network.now))
    classifier = SmoothedClassifier(network, 2, 0.5, batch=batch)
    report_expected_time(classifier, torch.zeros(SHAPE), 700, LARGE)
    line = "about 3.9 h for 700 images (1,000 samples per image, 50.0 per second)"
    assert capsys.readouterr().err.startswith(line)
    assert network.sizes == [timed, timed]


@pytest.mark.parametrize(("seconds", "said"), [(LONG + 1, True), (LONG, False)])
def test_a_certification_says_once_and_beforehand_that_it_is_long(
    tiny_project, monkeypatch, capfd, seconds, said
):
    """The ten tiny images are certified as if they took these seconds."""
    options, out = SmoothingOptions(batch=100), Path("rows.tsv")
    for is_new in (True, False):
        clock = count(0, seconds / 100)
        ticking = SimpleNamespace(perf_counter=partial(next, clock))
        monkeypatch.setattr(certify_model, "time", ticking)
        certify_folder("model", Path("data"), LARGE, options, out)
        printed = capfd.readouterr()
        assert (printed.out, "samples per image" in printed.err) == ("", said and is_new)
        assert len(certificate_rows.read_rows(out)) == 10
    assert printed.err == "rows.tsv is already complete; nothing to do\n"


def test_the_noise_is_of_the_kind_that_the_settings_state(tiny_project):
    """The pixels are multiples of 1/255, for which a classifier chooses grid noise itself."""
    images = load_images(Path("data"), "test")
    texts = []
    for kind in ("gaussian", "grid"):
        settings, out = replace(SETTINGS, noise=kind), Path(f"{kind}.tsv")
        certify_folder("model", Path("data"), settings, SmoothingOptions(), out)
        classifier = load("model").smooth(noise=kind)
        rows = []
        for index in range(len(images)):
            x, label = images.pixels(index), int(images.labels[index])
            certificate = classifier.certify(x, 10, 60, 0.01, seed=4, index=index)
            rows.append(certificate.row(index, label))
        texts.append(certificate_rows.rows_text(rows))
        assert out.read_text() == texts[-1]
    assert texts[0] != texts[1]
