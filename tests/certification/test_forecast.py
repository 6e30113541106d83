"""How long a certification takes: ``rs.certification.forecast``, with a clock that the tests turn."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rs.certification import certify_model as module
from rs.certification.certify_model import certify_model
from rs.certification.forecast import FEW, LONG, Forecast, forecast, is_worth_measuring
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings, Stop
from rs.storage import certificate_rows
from tests.support.folders import contents
from tests.support.helpers import SHAPE, Constant, write_tiny
from tests.support.untrained import save_model

SETTINGS = CertificationSettings(
    n0=100, n=900, alpha=0.01, seed=0, subset="all", precision="float32", engine="plain", shortcut=False
)
X = torch.zeros(SHAPE)
CPU = torch.device("cpu")


class Ticking(Constant):
    """A network that takes a second for every ``rate`` noisy images; its first batch takes a thousand times as long."""

    def __init__(self, rate):
        super().__init__(0)
        self.rate, self.now, self.sizes = rate, 0.0, []

    def forward(self, x):
        self.now += len(x) / self.rate * (1 if self.sizes else 1000)
        self.sizes.append(len(x))
        return super().forward(x)


def measured(rate=50, images=7, batch=200, settings=SETTINGS, engine="plain"):
    network = Ticking(rate)
    classifier = SmoothedClassifier(network, 2, 0.5, batch=batch, engine=engine)
    at_most = settings.shortcut or settings.stop is not None
    return forecast(classifier, X, images, settings.draws, at_most, clock=lambda: network.now), network.sizes


def test_the_seconds_are_images_times_draws_over_the_rate_without_the_first_batch():
    expected, sizes = measured(rate=50)
    assert expected == Forecast(7, 1000, 50.0, at_most=False, compiled=False)
    assert expected.seconds == 7 * 1000 / 50
    assert sizes == [200, 200]


def test_a_batch_is_no_larger_than_a_certificate_has_draws():
    assert measured(batch=5000)[1] == [900, 900]
    assert measured(batch=5000, settings=replace(SETTINGS, n=1, n0=900))[1] == [900, 900]


@pytest.mark.parametrize(("world", "share"), [("1", 7), ("2", 4), ("3", 3), ("7", 1), ("8", 1)])
def test_processes_share_the_images_and_the_largest_share_counts(monkeypatch, world, share):
    monkeypatch.setenv("WORLD_SIZE", world)
    assert measured()[0].images == share


STOP = Stop(at_radius=0.1, tolerance=None, beta=0.001, step=100)


@pytest.mark.parametrize(
    ("changes", "words"), [({}, "about"), ({"shortcut": True}, "at most"), ({"stop": STOP}, "at most")]
)
def test_draws_that_may_not_be_needed_make_it_a_limit(changes, words):
    line = str(measured(settings=replace(SETTINGS, **changes))[0])
    assert line == f"7 images of 1,000 draws, 50 draws a second: {words} 2.3 min on this machine"


def test_compilation_is_said_to_be_extra():
    assert str(measured(engine="compiled")[0]).endswith("2.3 min on this machine; compilation is extra")


def test_a_slow_network_has_a_decimal():
    assert ", 2.5 draws a second: " in str(measured(rate=2.5)[0])


def test_measuring_is_left_out_where_it_would_be_a_part_of_the_work():
    classifier = SmoothedClassifier(Constant(0), 2, 0.5, batch=500)
    draws = SETTINGS.n0 + SETTINGS.n
    enough = FEW * 500 // draws
    assert [is_worth_measuring(classifier, X, images, SETTINGS.draws) for images in (enough, enough + 1)] == [
        False,
        True,
    ]


@pytest.fixture
def certify(tmp_path, work, monkeypatch):
    """Certify the model of an empty folder with a rate that the test gives."""
    monkeypatch.chdir(tmp_path)
    write_tiny(Path("data"))
    save_model(Path("model"))

    def with_rate(rate, out="rows.tsv"):
        monkeypatch.setattr(module, "forecast", lambda _, __, images, *___: Forecast(images, 1000, rate, False, False))
        where = {"sigma": None, "device": CPU, "batch": 100, "out": out and Path(out)}
        certify_model("model", Path("data"), SETTINGS, **where)

    return with_rate


def test_a_dry_run_says_how_long_it_would_take_and_writes_nothing(certify, capfd, tmp_path):
    before = contents(tmp_path)
    certify(1.0, out=None)
    assert capfd.readouterr() == ("10 images of 1,000 draws, 1.0 draws a second: about 2.8 h on this machine\n", "")
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
