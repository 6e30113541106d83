"""How long a certification takes, which it says beforehand, with a clock that the tests turn."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rs.certification import certify_model as module
from rs.certification.certify_model import LONG, report_expected_time
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.storage import certificate_rows
from tests.support.cells import certify_folder
from tests.support.helpers import CERTIFY, SHAPE, Constant

SETTINGS = CertificationSettings(**CERTIFY | {"n0": 100, "n": 900})
X = torch.zeros(SHAPE)


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
    monkeypatch.setattr(module, "default_batch", lambda x: default)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: network.now))
    report_expected_time(SmoothedClassifier(network, 2, 0.5, batch=batch), X, 700, SETTINGS)
    line = "about 3.9 h for 700 images (1,000 samples per image, 50.0 per second)"
    assert capsys.readouterr().err.startswith(line)
    assert network.sizes == [timed, timed]


@pytest.fixture
def certify(tiny_project, monkeypatch):
    """Certify the ten tiny images as if they took a number of seconds."""

    def in_seconds(seconds):
        clock = count(0, seconds / 100)
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
        certify_folder(
            "model", Path("data"), SETTINGS, SmoothingOptions(batch=100), Path("rows.tsv")
        )

    return in_seconds


@pytest.mark.parametrize(("seconds", "said"), [(LONG + 1, True), (LONG, False)])
def test_a_certification_says_once_and_beforehand_that_it_is_long(certify, capfd, seconds, said):
    for is_new in (True, False):
        certify(seconds)
        out, err = capfd.readouterr()
        assert (out, "samples per image" in err) == ("", said and is_new)
        assert len(certificate_rows.read_rows(Path("rows.tsv"))) == 10
    assert err == "rows.tsv is complete already; nothing to do\n"
