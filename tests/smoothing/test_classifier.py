import json
import math
from unittest.mock import Mock

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


def voting(*counts):
    """A smoothed classifier whose successive votes are ``counts``."""
    classes = len(counts[0])
    classifier = SmoothedClassifier(Constant(0, classes), classes, SIGMA)
    classifier.tally = Mock(side_effect=[Tally(np.array(votes)) for votes in counts])
    return classifier


def test_a_certificate_reaches_beyond_the_true_boundary_with_probability_at_most_alpha():
    """f(x) = 1[x_1 > 1/2] at distance t sigma has p_A = Phi(t), and the boundary is the true
    radius.
    """
    alpha = 0.1
    trials = 300
    true_radius = 0.8 * SIGMA
    classifier = SmoothedClassifier(Linear(), 2, SIGMA)
    x = image(0.5 + true_radius)
    wrong = 0
    radii = []
    for index in range(trials):
        certificate = classifier.certify(x, 20, 100, alpha, index=index)
        wrong += certificate.radius > true_radius or certificate.predict == 0
        radii.append(certificate.radius)
    assert wrong <= stats.binom.isf(1e-6, trials, alpha)
    # A classifier that certifies next to nothing would keep the promise too.
    assert max(radii) > 0.5 * true_radius


@pytest.mark.parametrize("noise", ["gaussian", "grid"])
def test_sigma_may_be_a_number_of_numpy(noise):
    x = torch.ones(3, 4, 4)
    sigma = np.float32(0.12)
    of_numpy = SmoothedClassifier(Linear(), 2, sigma, noise=noise).certify(x)
    of_python = SmoothedClassifier(Linear(), 2, float(sigma), noise=noise).certify(x)
    values = of_numpy.to_dict()
    assert of_numpy == of_python
    assert values == json.loads(json.dumps(values))


def test_a_bound_of_exactly_one_half_is_a_class_with_radius_zero():
    """All of n votes at alpha = 2^-n bound p by exactly 1/2."""
    certificate = SmoothedClassifier(Constant(1), 2, SIGMA).certify(X, 1, 1, 0.5)
    assert certificate.p_lower == 0.5
    assert certificate.predict == 1
    assert certificate.radius == 0.0


def test_the_bound_counts_the_class_of_the_first_draws_whoever_wins_later():
    certificate = voting([6, 4], [10, 90]).certify(X, 10, 100, 0.001)
    assert certificate.predict == ABSTAIN
    assert certificate.radius == 0.0
    assert certificate.p_lower == lower_bound(10, 100, 0.001)


def test_selection_estimation_and_prediction_draw_from_their_own_streams():
    classifier = voting([10, 0], [20, 0], [30, 0])
    classifier.certify(X, 10, 20, 0.01, seed=3, index=7)
    classifier.predict(X, 30, 0.01, seed=3, index=7)
    assert [seen.args[1:] for seen in classifier.tally.mock_calls] == [
        (10, 3, Stream.SELECT, 7),
        (20, 3, Stream.ESTIMATE, 7),
        (30, 3, Stream.PREDICT, 7),
    ]


@pytest.mark.parametrize("draws", [1, 99, 100, 101, 150, 300])
def test_votes_are_those_of_a_slow_loop_over_the_first_draws_of_the_blocks(draws):
    base = smallnet().eval()
    x = tiny_images().pixels(3)
    key = (5, Stream.ESTIMATE, 3)
    blocks = [gaussian_block(block, x.shape, SIGMA, *key, device="cpu") for block in range(3)]
    expected = [0, 0]
    for noise in torch.cat(blocks)[:draws]:
        logits = base((x + noise)[None])
        expected[logits.argmax()] += 1
    votes = SmoothedClassifier(base, 2, SIGMA, noise="gaussian").votes(x, draws, *key)
    assert votes.tolist() == expected
    if draws >= 100:
        assert votes.min() > 0  # a vote that everyone wins would show nothing


def test_a_network_sees_few_copies_of_a_large_picture_at_once_and_votes_as_with_many():
    x = torch.full((3, 256, 256), 0.5)
    base = Linear()
    many = SmoothedClassifier(base, 2, SIGMA, batch=100).certify(x, 100, 200)

    sizes = []
    base.register_forward_hook(lambda _, images, logits: sizes.append(len(images[0])))
    few = SmoothedClassifier(base, 2, SIGMA).certify(x, 100, 200)

    largest = max(sizes)
    assert largest * x.numel() * 4 <= 2**24
    assert sizes.count(largest) >= 300 // largest - 3  # and not fewer at once
    assert few == many
    assert few.counts.min() > 0


@pytest.mark.parametrize(("n", "needed"), [(100, 67), (1000, 553)])
def test_predict_answers_from_the_least_significant_majority(n, needed):
    classifier = voting([needed, n - needed], [needed - 1, n - needed + 1])
    assert classifier.predict(X, n, 0.001) == 0
    assert classifier.predict(X, n, 0.001) == ABSTAIN


@pytest.mark.parametrize("alpha", [0.9, 0.1, 0.001, 2.0**-9, 1e-12])
def test_predict_refuses_draws_of_which_no_vote_can_be_significant(alpha):
    """A unanimous vote of n has the two-sided p-value 2 / 2^n."""
    classifier = SmoothedClassifier(Constant(1), 2, SIGMA)
    least = 1
    while stats.binomtest(least, least).pvalue > alpha:
        least += 1
    assert classifier.predict(X, least, alpha) == 1
    with refuses(f"n must be at least {least} at alpha = {alpha}, got {least - 1}"):
        classifier.predict(X, least - 1, alpha)


def test_certify_warns_where_no_vote_can_certify_and_points_at_its_caller():
    """(1/2)^n <= 0.001 first at n = 10."""
    classifier = SmoothedClassifier(Constant(1), 2, SIGMA)
    assert classifier.certify(X, 1, 10, 0.001).predict == 1
    message = "n = 9 samples can never certify at alpha = 0.001: .* at least 10"
    with pytest.warns(InputWarning, match=message) as caught:
        assert classifier.certify(X, 1, 9, 0.001).predict == ABSTAIN
    assert [warning.filename for warning in caught] == [__file__]


def test_predict_compares_the_two_largest_counts_only():
    """60 against 20 is significant at 0.001 although 60 of 140 is no majority."""
    assert stats.binomtest(60, 80).pvalue <= 0.001
    assert voting([20, 20, 60, 20, 20]).predict(X, 140, 0.001) == 2


def test_predict_is_wrong_with_probability_at_most_alpha():
    """At distance 0.1 sigma p_A = 0.54, so 50 draws often mislead; the test must still refuse to be
    misled.
    """
    alpha = 0.1
    trials = 300
    classifier = SmoothedClassifier(Linear(), 2, SIGMA)
    x = image(0.5 + 0.1 * SIGMA)
    answers = [classifier.predict(x, 50, alpha, index=index) for index in range(trials)]
    assert answers.count(0) <= stats.binom.isf(1e-6, trials, alpha)
    assert 1 in answers


def test_bfloat16_runs_the_base_classifier_in_bfloat16_on_float32_noise():
    seen = []
    base = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    base.register_forward_hook(lambda _, images, z: seen.append((images[0].dtype, z.dtype)))
    smoothed = SmoothedClassifier(base, 2, SIGMA, precision="bfloat16")
    certificate = smoothed.certify(X, 10, 20, 0.01)
    assert seen == [(torch.float32, torch.bfloat16)] * 2
    assert certificate.counts.sum() == 20


@pytest.mark.parametrize("label", ["1", 2, -1])
def test_a_label_that_no_class_has_is_refused_and_not_taken_for_a_wrong_one(label):
    classifier = SmoothedClassifier(Constant(1), None, SIGMA)
    message = f"label must be a class, a whole number from 0 to 1, got {label!r}"
    with refuses(message):
        classifier.certify(X, label=label)
    with refuses(message):
        classifier.certify_until(X, 10, Decider([0.1], SIGMA, 0.01, 100), label=label)


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

    With noise of 1/2 both classes have the probability 1/2 at every image, except for
    exp(-2 pi^2 4^2) = 1e-137. So every certificate is false.
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

    def is_certified(value, seed):
        x = torch.full((1, 1, 1), value / 255)
        return classifier.certify(x, 10, 200, alpha, seed=seed).predict != ABSTAIN

    values = [value for value in range(256) if is_certified(value, seed=0)]
    assert values  # all that the adversary needs: an 8-bit image with a false certificate
    with_fresh_seeds = sum(is_certified(values[0], seed) for seed in range(1, 1 + runs))
    assert with_fresh_seeds <= stats.binom.isf(1e-6, runs, alpha)


def test_a_tie_of_the_first_draws_goes_to_the_lowest_class():
    certificate = voting([1, 4, 4], [0, 100, 0]).certify(X, 9, 100, 0.001)
    assert certificate.predict == 1
