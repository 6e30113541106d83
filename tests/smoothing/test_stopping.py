"""Certificates that stop early: ``rs.smoothing.settings``, and the users of their rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from rs.certification.certify_model import certification_settings, certify_images
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings
from rs.statistics import metrics
from rs.statistics.certificate import ABSTAIN
from rs.statistics.procedures.early import Stop
from rs.statistics.sequential import Decider
from rs.storage import certificate_rows
from rs.storage.provenance import Provenance
from tests.support.helpers import CERTIFY, Linear, refuses, tiny_images, tiny_params

SIGMA, BUDGET, ALPHA = 0.5, 5000, 0.01
STOP = {"at_radius": 0.2, "beta": 0.001, "step": 100}
CLASSIFIER = SmoothedClassifier(Linear(), 2, SIGMA)


def image(first):
    """The first pixel decides: class 1, with probability Phi((first - 0.5) / sigma)."""
    x = torch.full((1, 4, 4), 0.5)
    x[0, 0, 0] = first
    return x


def until(first, stop):
    test = stop.new_test(SIGMA, ALPHA, BUDGET)
    return CLASSIFIER.certify_until(image(first), 100, test, seed=3)


@pytest.mark.parametrize("first", [1.0, 0.72, 0.55, 0.0])
def test_votes_reach_the_run_in_the_order_of_the_draws(first):
    """A slow loop over single blocks, which are the draws of every certificate."""
    made = until(first, Stop(**STOP))
    counts0 = CLASSIFIER.votes(image(first), 100, 3, Stream.SELECT, 0)
    run, taken, chosen = Decider([0.2], SIGMA, ALPHA, BUDGET, beta=0.001), 0, int(counts0.argmax())
    cumulative = [0]
    for n in range(100, BUDGET + 1, 100):
        votes = CLASSIFIER.votes(image(first), n, 3, Stream.ESTIMATE, 0)
        cumulative.append(int(votes[chosen]))
    while draws := run.next_draws():
        run.update(cumulative[(taken + draws) // 100] - cumulative[taken // 100], draws)
        taken += draws
    assert (made.n, made.counts[chosen]) == (taken, cumulative[taken // 100])
    assert made.predict == (chosen if run.established else ABSTAIN)
    assert made.radius == (0.2 if run.established else 0.0)
    assert made.mode == "at-radius:0.2:5000"


def test_of_several_radii_the_largest_that_holds_is_certified():
    """The true radius is the distance to the boundary, 0.3."""
    stop = Stop(**STOP | {"at_radius": [0.0, 0.1, 0.2, 0.45]})
    made = until(0.8, stop)
    assert (made.predict, made.radius, made.p_lower) == (1, 0.2, float(ndtr(0.2 / SIGMA)))
    assert made.mode == "at-radius:0.0,0.1,0.2,0.45:5000"
    assert made.n == max(until(0.8, Stop(**STOP | {"at_radius": r})).n for r in (0.2, 0.45))
    barely = until(0.55, stop)
    assert (barely.predict, barely.radius, barely.p_lower) == (1, 0.0, 0.5)  # certified at radius 0


def test_a_run_is_of_one_image_and_of_the_noise_of_the_classifier():
    """A used test would give the radius of another image, another sigma one too large."""
    used, other = (Decider([0.1], sigma, ALPHA, BUDGET) for sigma in (SIGMA, 2 * SIGMA))
    assert CLASSIFIER.certify_until(image(1.0), 100, used).radius > 0
    with refuses(rf"test must be new, but it has counted {used.draws} samples"):
        CLASSIFIER.certify_until(image(0.5), 100, used)
    with refuses(r"test must have this classifier's sigma, 0\.5, got 1\.0"):
        CLASSIFIER.certify_until(image(1.0), 100, other)
    assert other.draws == 0


def test_draws_go_on_with_a_whole_block():
    with pytest.raises(ValueError, match="start must be a multiple of 100"):
        CLASSIFIER.votes(image(0.6), 100, 0, Stream.ESTIMATE, 5, start=50)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at_radius": []}, r"stop\.at_radius"),
        ({"step": 150}, r"stop\.step"),
    ],
)
def test_settings_that_are_none_are_refused_by_their_name(change, message):
    recipe = tiny_params(certify=CERTIFY | {"stop": STOP | change})
    with refuses(message):
        certification_settings(recipe, "tiny")


def rows_of(out, *, shortcut=False, **stop):
    """Rows of ten images of the tiny data set, the last two of which are classified wrongly."""
    chosen = {"n0": 100, "n": BUDGET, "shortcut": shortcut, "stop": Stop(**STOP | stop)}
    settings = CertificationSettings(**CERTIFY | chosen)
    provenance = Provenance(
        classifier="a", scope="model", n0=100, n=BUDGET, alpha=ALPHA, sigma=SIGMA
    )
    images = tiny_images(10, 1)
    images = replace(images, labels=np.where(np.arange(10) < 8, 1 - images.labels, images.labels))
    device = torch.device("cpu")
    certify_images(CLASSIFIER, images, np.arange(10), settings, device, provenance, out)
    return certificate_rows.read_rows(out)


def test_rows_say_how_they_were_certified_and_wrong_images_can_be_skipped(tmp_path):
    radii = [0.0, 0.1, 0.2]
    whole = rows_of(tmp_path / "whole.tsv", at_radius=radii)
    skipped = rows_of(tmp_path / "skipped.tsv", shortcut=True, at_radius=radii)
    assert whole["n"].nunique() > 1
    for rows in (whole, skipped):
        assert metrics.mode_of(rows) == "at-radius:0.0,0.1,0.2:5000"
        assert metrics.budget(rows, "n") == BUDGET
    wrong = (skipped["mode"] == "shortcut").to_numpy()
    assert wrong.sum() == 2
    assert (skipped["n"][wrong] == 0).all()
    assert skipped[~wrong].equals(whole[~wrong])
    for radius in radii:
        accuracies = [metrics.certified_at(rows, radius).tolist() for rows in (whole, skipped)]
        assert accuracies[0] == accuracies[1]
