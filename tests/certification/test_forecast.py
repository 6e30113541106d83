"""How long a certification takes, which it says beforehand, with a clock that the tests turn."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rs.certification import certify_model as module
from rs.certification.certify_model import LONG, MAX_UNTIMED_BATCHES, certify_model, say_how_long
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings, Draws, SmoothingOptions
from rs.storage import certificate_rows
from tests.support.folders import contents
from tests.support.helpers import SHAPE, Constant, write_tiny
from tests.support.untrained import save_model

SETTINGS = CertificationSettings(
    n0=100, n=900, alpha=0.01, seed=0, subset="all", precision="float32", engine="plain", shortcut=False
)
X = torch.zeros(SHAPE)


class Ticking(Constant):
    """A network that takes a second for every ``rate`` noisy images; its first batch takes a thousand times as long."""

    def __init__(self, rate):
        super().__init__(0)
        self.rate, self.now, self.sizes = rate, 0.0, []

    def forward(self, x):
        self.now += len(x) / self.rate * (1 if self.sizes else 1000)
        self.sizes.append(len(x))
        return super().forward(x)


@pytest.fixture
def measured(monkeypatch, capsys):
    """Return what a dry run of seven images says, and its batches."""

    def say(batch=200, draws=SETTINGS.draws, world="1"):
        network = Ticking(50)
        monkeypatch.setenv("WORLD_SIZE", world)
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: network.now))
        classifier = SmoothedClassifier(network, 2, 0.5, batch=batch)
        say_how_long(classifier, X, 7, draws, dry_run=True)
        return capsys.readouterr().out, network.sizes

    return say


def test_the_seconds_are_images_times_draws_over_the_rate_without_the_first_batch(measured):
    line = "7 images of 1,000 draws, 50.0 draws a second: about 2.3 min for all of them on this machine"
    assert measured() == (f"{line}\n", [200, 200])


@pytest.mark.parametrize("draws", [Draws(100, 900), Draws(900, 1)])
def test_a_batch_is_no_larger_than_a_certificate_has_draws(measured, draws):
    assert measured(batch=5000, draws=draws)[1] == [900, 900]


@pytest.mark.parametrize(("world", "share"), [("2", 4), ("8", 1)])
def test_processes_share_the_images_and_the_largest_share_counts(measured, world, share):
    assert measured(world=world)[0].startswith(f"{share} images")


@pytest.mark.parametrize("more", [0, 1])
def test_measuring_is_left_out_where_it_would_be_a_part_of_the_work(more):
    network, draws = Ticking(1e-3), SETTINGS.n0 + SETTINGS.n
    classifier = SmoothedClassifier(network, 2, 0.5, batch=500)
    say_how_long(classifier, X, MAX_UNTIMED_BATCHES * 500 // draws + more, SETTINGS.draws)
    assert len(network.sizes) == 2 * more


@pytest.fixture
def certify(tmp_path, work, monkeypatch):
    """Certify the model of an empty folder with a rate that the test gives."""
    monkeypatch.chdir(tmp_path)
    write_tiny(Path("data"))
    save_model(Path("model"))

    def with_rate(rate, out="rows.tsv"):
        monkeypatch.setattr(module, "draws_per_second", lambda *_: rate)
        certify_model("model", Path("data"), SETTINGS, SmoothingOptions(batch=100), out=out and Path(out))

    return with_rate


def test_a_dry_run_says_how_long_it_would_take_and_writes_nothing(certify, capfd, tmp_path):
    before = contents(tmp_path)
    certify(1.0, out=None)
    said = "10 images of 1,000 draws, 1.0 draws a second: about 2.8 h for all of them on this machine\n"
    assert capfd.readouterr() == (said, "")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("seconds", "said"), [(LONG + 1, True), (LONG, False)])
def test_a_certification_says_beforehand_that_it_is_long(certify, capfd, seconds, said):
    certify(10 * 1000 / seconds)
    out, err = capfd.readouterr()
    assert (out, "draws a second: about" in err) == ("", said)
    assert len(certificate_rows.read_rows(Path("rows.tsv"))) == 10


def test_nothing_is_measured_for_rows_that_are_complete(certify, capfd):
    certify(1.0)
    capfd.readouterr()
    certify(1.0)
    assert capfd.readouterr().err == "rows.tsv is complete already; nothing to do\n"
