import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from rs.errors import InputWarning
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.noise import gaussian_block
from rs.smoothing.vote_counting import Tally
from rs.statistics.certificate import ABSTAIN
from rs.statistics.radius import lower_bound
from rs.statistics.sequential import Decider
from tests.support.helpers import Constant, Linear, refuses, smallnet, tiny_images

SIGMA = 0.5
X = torch.full((1, 2, 2), 0.5)


def image(first_pixel):
    return torch.full((1, 2, 2), float(first_pixel))


def ballot(monkeypatch, *counts, classes=2):
    """A smoothed classifier whose successive votes are ``counts``."""
    classifier, given = SmoothedClassifier(Constant(0, classes), classes, SIGMA), iter(counts)
    monkeypatch.setattr(classifier, "tally", lambda *_, **__: Tally(np.array(next(given))))
    return classifier


def test_a_certificate_reaches_beyond_the_true_boundary_with_probability_at_most_alpha():
    """f(x) = 1[x_1 > 1/2] at distance t sigma has p_A = Phi(t), and the boundary is the true
    radius.
    """
    alpha, trials, t = 0.1, 300, 0.8
    classifier, x = SmoothedClassifier(Linear(), 2, SIGMA), image(0.5 + t * SIGMA)
    made = [classifier.certify(x, 20, 100, alpha, index=index) for index in range(trials)]
    wrong = [c.radius > t * SIGMA or c.predict == 0 for c in made]
    assert sum(wrong) <= stats.binom.isf(1e-6, trials, alpha)
    # and the promise is not kept by promising nothing
    assert max(c.radius for c in made) > 0.5 * t * SIGMA


@pytest.mark.parametrize("noise", ["gaussian", "grid"])
def test_sigma_may_be_a_number_of_numpy(noise):
    x = torch.ones(3, 4, 4)
    of_numpy = SmoothedClassifier(Linear(), 2, np.float32(0.12), noise=noise).certify(x)
    of_python = SmoothedClassifier(Linear(), 2, float(np.float32(0.12)), noise=noise).certify(x)
    assert of_numpy == of_python
    assert of_numpy.to_dict() == json.loads(json.dumps(of_numpy.to_dict()))


def test_a_bound_of_exactly_one_half_is_a_class_with_radius_zero():
    """All of n votes at alpha = 2^-n bound p by exactly 1/2."""
    made = SmoothedClassifier(Constant(1), 2, SIGMA).certify(X, 1, 1, 0.5)
    assert (made.p_lower, made.predict, made.radius) == (0.5, 1, 0.0)


def test_the_bound_counts_the_class_of_the_first_draws_whoever_wins_later(monkeypatch):
    made = ballot(monkeypatch, [6, 4], [10, 90]).certify(X, 10, 100, 0.001)
    assert (made.predict, made.radius) == (ABSTAIN, 0.0)
    assert made.p_lower == lower_bound(10, 100, 0.001)


def test_selection_estimation_and_prediction_draw_from_their_own_streams(monkeypatch):
    classifier, seen = SmoothedClassifier(Constant(0), 2, SIGMA), []

    def tally(x, draws, *key, start=0):
        seen.append((draws, *key))
        return Tally(np.array([draws, 0]))

    monkeypatch.setattr(classifier, "tally", tally)
    classifier.certify(X, 10, 20, 0.01, seed=3, index=7)
    classifier.predict(X, 30, 0.01, seed=3, index=7)
    assert seen == [
        (10, 3, Stream.SELECT, 7),
        (20, 3, Stream.ESTIMATE, 7),
        (30, 3, Stream.PREDICT, 7),
    ]


@pytest.mark.parametrize("draws", [1, 99, 100, 101, 150, 300])
def test_votes_are_those_of_a_slow_loop_over_the_first_draws_of_the_blocks(draws):
    base, x = smallnet().eval(), tiny_images().pixels(3)
    key = (5, Stream.ESTIMATE, 3)
    noise = [gaussian_block(block, x.shape, SIGMA, *key, device="cpu") for block in range(3)]
    with torch.no_grad():
        expected = [int(base((x + one)[None]).argmax()) for one in torch.cat(noise)[:draws]]
    votes = SmoothedClassifier(base, 2, SIGMA, noise="gaussian").votes(x, draws, *key)
    assert votes.tolist() == np.bincount(expected, minlength=2).tolist()
    assert draws < 100 or votes.min() > 0  # a vote that everyone wins would show nothing


def test_a_network_sees_few_copies_of_a_large_picture_at_once_and_votes_as_with_many():
    x, base, sizes = torch.full((3, 256, 256), 0.5), Linear(), []
    base.register_forward_hook(lambda _, images, z: sizes.append(len(images[0])))
    many = SmoothedClassifier(base, 2, SIGMA, batch=100).certify(x, 100, 200)
    sizes.clear()
    few = SmoothedClassifier(base, 2, SIGMA).certify(x, 100, 200)
    assert max(sizes) * x.numel() * 4 <= 2**24
    assert sizes.count(max(sizes)) >= 300 // max(sizes) - 3  # and no fewer
    assert few == many
    assert few.counts.min() > 0


@pytest.mark.parametrize(("n", "needed"), [(100, 67), (1000, 553)])
def test_predict_answers_from_the_least_significant_majority(monkeypatch, n, needed):
    classifier = ballot(monkeypatch, [needed, n - needed], [needed - 1, n - needed + 1])
    assert [classifier.predict(X, n, 0.001) for _ in range(2)] == [0, ABSTAIN]


@pytest.mark.parametrize("alpha", [0.9, 0.1, 0.001, 2.0**-9, 1e-12])
def test_predict_refuses_draws_of_which_no_vote_can_be_significant(alpha):
    """A unanimous vote of n has the two-sided p-value 2 / 2^n."""
    classifier = SmoothedClassifier(Constant(1), 2, SIGMA)
    least = next(n for n in range(1, 100) if stats.binomtest(n, n).pvalue <= alpha)
    assert classifier.predict(X, least, alpha) == 1
    with refuses(f"n must be at least {least} at alpha = {alpha}, got {least - 1}"):
        classifier.predict(X, least - 1, alpha)


def test_certify_warns_where_no_vote_can_certify_and_points_at_its_caller():
    """(1/2)^n <= 0.001 first at n = 10."""
    classifier = SmoothedClassifier(Constant(1), 2, SIGMA)
    assert classifier.certify(X, 1, 10, 0.001).predict == 1
    with pytest.warns(
        InputWarning, match="n = 9 draws can never certify at alpha = 0.001: .* at least 10"
    ) as caught:
        assert classifier.certify(X, 1, 9, 0.001).predict == ABSTAIN
    assert [warning.filename for warning in caught] == [__file__]


def test_predict_compares_the_two_largest_counts_only(monkeypatch):
    """60 against 20 is significant at 0.001 although 60 of 140 is no majority."""
    assert stats.binomtest(60, 80).pvalue <= 0.001
    assert ballot(monkeypatch, [20, 20, 60, 20, 20], classes=5).predict(X, 140, 0.001) == 2


def test_predict_is_wrong_with_probability_at_most_alpha():
    """At distance 0.1 sigma p_A = 0.54, so 50 draws often mislead; the test must still refuse to be
    misled.
    """
    alpha, trials = 0.1, 300
    classifier = SmoothedClassifier(Linear(), 2, SIGMA)
    x = image(0.5 + 0.1 * SIGMA)
    answers = [classifier.predict(x, 50, alpha, index=index) for index in range(trials)]
    assert answers.count(0) <= stats.binom.isf(1e-6, trials, alpha)
    assert 1 in answers


def test_bfloat16_runs_the_base_classifier_in_bfloat16_on_float32_noise():
    seen = []
    base = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    base.register_forward_hook(lambda _, images, z: seen.append((images[0].dtype, z.dtype)))
    made = SmoothedClassifier(base, 2, SIGMA, precision="bfloat16").certify(X, 10, 20, 0.01)
    assert seen == [(torch.float32, torch.bfloat16)] * 2
    assert made.counts.sum() == 20


@pytest.mark.parametrize("label", ["1", 2, -1])
def test_a_label_that_no_class_has_is_refused_and_not_taken_for_a_wrong_one(label):
    classifier, run = SmoothedClassifier(Constant(1), None, SIGMA), Decider([0.1], SIGMA, 0.01, 100)
    for certify in (partial(classifier.certify, X), partial(classifier.certify_until, X, 10, run)):
        with refuses(f"label must be a class, a whole number from 0 to 1, got {label!r}"):
            certify(label=label)


@pytest.mark.parametrize("batch", [100, 50], ids=["in a full batch", "in the last batch"])
def test_a_single_nan_logit_is_refused(batch):
    def one_nan(x):
        logits = x.flatten(1).clone()
        if len(x) == batch:
            logits[-1, 1] = math.nan
        return logits

    with refuses("finite numbers, got NaN"):
        SmoothedClassifier(one_nan, 4, SIGMA, batch=100).certify(X, 10, 250, 0.1)


class Stripes(nn.Module):
    """Class 1 in every other stripe of the first pixel, 1/16 wide.

    With noise of 1/2 both classes have the probability 1/2 at every image, but for exp(-2 pi^2 4^2)
    = 1e-137, so no certificate is true.
    """

    def forward(self, x):
        odd = (x[:, 0, 0, 0] * 16).floor().remainder(2)
        return torch.stack([1 - odd, odd], dim=1)


def test_a_known_seed_lets_an_adversary_choose_the_image_and_fresh_seeds_do_not():
    """The guarantee is over the draws: for one image, not for the worst of many images at the same
    draws.
    """
    classifier = SmoothedClassifier(Stripes(), 2, 0.5, noise="gaussian")
    alpha = 0.01
    runs = 400

    def is_false(value, seed):
        x = torch.full((1, 1, 1), value / 255)
        return classifier.certify(x, 10, 200, alpha, seed=seed).predict != ABSTAIN

    chosen = [value for value in range(256) if is_false(value, seed=0)]
    assert chosen  # all that the adversary needs: an 8-bit image with a false certificate
    most = stats.binom.isf(1e-6, runs, alpha)
    assert sum(is_false(chosen[0], seed) for seed in range(1, 1 + runs)) <= most


def test_a_tie_of_the_first_draws_goes_to_the_lowest_class(monkeypatch):
    made = ballot(monkeypatch, [1, 4, 4], [0, 100, 0], classes=3).certify(X, 9, 100, 0.001)
    assert made.predict == 1
