"""The doctor finds planted faults, and none in good classifiers."""

import json
import re
from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.transforms import Normalize

from rs.certification.doctor import diagnose
from rs.certification.load import Classifier
from rs.certification.trial import CHECKS, FALSE_ALARM, LEVEL, is_larger
from rs.data.images import PackedImages
from rs.data.meta import Meta
from rs.ensemble.base import Ensemble
from rs.ensemble.rules import KConsensus
from rs.errors import InputWarning
from rs.statistics.certificate import UNLABELED
from tests.support.helpers import generator, refuses
from tests.support.networks import Layer, counted

CPU = torch.device("cpu")
SHAPE, CLASSES, SIGMA = (3, 6, 4), 5, 0.25
MEAN, STD = (0.5, 0.4, 0.6), (0.2, 0.25, 0.3)
TEMPLATES = torch.rand(CLASSES, *SHAPE, generator=generator(3))
TEMPLATES[0], TEMPLATES[1] = 0.5, 0.75  # what pictures of little contrast look like


def labeled(count=150):
    """Images near the picture of their class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=count)
    pixels = 255 * TEMPLATES.numpy()[labels] + rng.normal(0, 12, (count, *SHAPE))
    meta = Meta(
        name="pictures",
        classes=tuple("abcde"),
        shape=SHAPE,
        mean=MEAN,
        std=STD,
        source="",
        sizes={"test": count},
        sha256={"test": ""},
    )
    return PackedImages(meta, pixels.clip(0, 255).round().astype(np.uint8), labels)


class Nearest(nn.Module):
    """Logits are larger the nearer the picture of a class is: right under much noise."""

    def __init__(self, before=lambda x: x, after=lambda logits: logits):
        super().__init__()
        self.before, self.after = before, after
        self.weight = nn.Parameter(TEMPLATES.flatten(1).clone())

    def forward(self, x):
        return self.after(self.near(self.before(x).flatten(1)))

    def near(self, x):
        return x @ self.weight.T - self.weight.square().sum(1) / 2


def constants(numbers):
    return torch.tensor(numbers).view(-1, 1, 1)


CIFAR = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201))
HALF = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class Brittle(Nearest):
    """Wrong where noise of so much would put the nearest picture."""

    def __init__(self, is_wrong_at):
        super().__init__()
        self.is_wrong_at = is_wrong_at

    def near(self, x):
        logits = super().near(x)
        noise = (x[:, None] - self.weight).square().mean(2).amin(1, keepdim=True).sqrt()
        return torch.where(self.is_wrong_at(noise), logits.roll(1, dims=1), logits)


def unnormalized(x):
    return x * constants(STD) + constants(MEAN)


def classifier_of(model):
    return Classifier("own:model", model, classes=tuple("abcde"), shape=SHAPE)


def examined(model, sigma=SIGMA, images=None):
    loaded = classifier_of(model)
    return problems(diagnose(loaded, labeled() if images is None else images, sigma, CPU))


def problems(findings):
    return [finding for finding in findings if finding.level != "ok"]


def by_chance(x):
    """Logits that depend on the last digit of one pixel alone, which is noise."""
    return F.one_hot((255 * x[:, 0, 0, 0]).round().long() % CLASSES, CLASSES).float() * 9


FAULTS = {
    "state": (nn.Sequential(Layer(counted), Nearest()), "from one call to the next"),
    "missing class": (Nearest(after=lambda logits: logits[:, 1:]), "must have 5 logits.*it has 4"),
    "one class": (
        Nearest(after=lambda logits: logits * torch.tensor([1.0, 0, 0, 0, 0]) + 99),
        "than chance",
    ),
    "255": (Nearest(lambda x: x / 255), "expect pixels of 0 to 255"),
    "minus one to one": (
        Nearest(lambda x: (x + 1) / 2),
        "expect the normalization -1 to 1 instead of none",
    ),
    "untrained": (
        Layer(lambda _, x: by_chance(x)),
        r"than chance: \d+ of 150 images are right.*train it",
    ),
    "BGR": (Nearest(lambda x: x.flip(1)), "BGR"),
    "names": (
        Nearest(after=lambda logits: logits.roll(1, dims=1)),
        "classes seem to be in another order: .* name them in its order",
    ),
    "no noise": (
        Brittle(lambda noise: noise > 0.15),
        "not to have been trained with noise of 0.25",
    ),
    "more noise": (
        Brittle(lambda noise: (noise > 0.1) & (noise < 0.3)),
        "trained with more noise than 0.25",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    model, expected = FAULTS[name]
    found = examined(model)
    assert found, "nothing was found"
    assert re.search(expected, found[0].text), found
    assert (found[0].level == "warning") == (name in ("no noise", "more noise"))


def test_a_network_that_drops_images_is_refused():
    with refuses(r"must return logits \(100, K\)"):
        examined(Layer(lambda _, x: x.flatten(1)[:4, :CLASSES]))


def test_a_sigmoid_in_place_of_one_logit_gives_a_warning():
    with pytest.warns(InputWarning, match="leave out the sigmoid"):
        examined(Layer(lambda _, x: x[:, 0, 0, :1].sigmoid()))


GOOD = {
    "nearest": Nearest(),
    "normalizes": nn.Sequential(Normalize(MEAN, STD), Nearest(unnormalized)),
    "votes": Ensemble([Nearest(), Nearest()], KConsensus(2)),
}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_found_in_a_good_classifier(name):
    assert examined(GOOD[name].train()) == []


def of_labels(images, labels):
    """Images of ``labels`` alone, as many as these."""
    indices = [int(np.flatnonzero(images.labels == label)[0]) for label in labels]
    return replace(images, images=images.images[indices], labels=images.labels[indices])


@pytest.mark.parametrize("alternatives", [1, 32])
def test_checks_of_what_is_no_better_find_something_with_the_stated_probability(alternatives):
    """All outcomes of images that differ by chance are enumerated, for each check's sign test."""
    for differing in range(1, 60):
        alarms = 0
        for wins in range(differing + 1):
            first = (torch.arange(differing) < wins)[:, None]
            alarms += comb(differing, wins) * is_larger(first, ~first, alternatives)
        assert CHECKS * alternatives * alarms / 2**differing <= FALSE_ALARM


@pytest.mark.parametrize("count", [14, 15, 19, 20, 29, 30])
def test_a_check_for_which_the_images_are_too_few_is_not_said_to_be_ok(count):
    """The numbers of images are those of the tests around this one."""
    images = of_labels(labeled(), [2 + (i // 2) % 3 for i in range(count)])
    findings = diagnose(classifier_of(Nearest()), images, SIGMA, CPU)
    untested = [finding.text for finding in findings if finding.level == "not tested"]
    needed = [int(re.search(f"{count} of the (\\d+) images", text)[1]) for text in untested]
    assert sorted(needed) == [fewest for fewest in (15, 20, 30) if fewest > count]
    others = [finding for finding in findings if finding.text not in untested]
    assert {finding.level for finding in others} == {"ok"}


def test_one_class_for_all_images_is_a_fault_even_if_most_are_of_it():
    constant = Nearest(after=lambda logits: logits * 0 + torch.eye(5)[2])
    images = of_labels(labeled(), [2] * 60 + [3] * 20)
    (finding,) = examined(constant, images=images)
    assert finding.level == "fault"
    assert "all 80 images" in finding.text


@pytest.mark.parametrize(
    ("images", "sigma", "said"),
    [
        (None, SIGMA, "give --data or --images"),
        (
            replace(labeled(), labels=np.full(150, UNLABELED)),
            SIGMA,
            "the images have no labels, so accuracy, training and expected input",
        ),
        (labeled(), None, "give --sigma"),
    ],
    ids=["without images", "without labels", "without noise"],
)
def test_it_is_said_what_was_not_looked_at(images, sigma, said):
    (finding,) = problems(diagnose(classifier_of(Nearest()), images, sigma, CPU))
    assert finding.level == "warning"
    assert said in finding.text


@given(order=st.permutations(range(CLASSES)))
@example(order=[1, 0, 2, 3, 4])
@settings(max_examples=10, deadline=None)
def test_the_code_that_is_given_for_another_order_of_classes_restores_it(order):
    shuffled = Nearest(after=lambda logits: logits[:, order])
    found = examined(shuffled)
    if order == sorted(order):
        assert found == []
        return
    (finding,) = found
    columns = json.loads(re.search(r"logits\[:, (.*)\]", finding.text)[1])
    assert [order[column] for column in columns] == list(range(CLASSES))
    assert examined(Nearest(after=lambda logits: logits[:, order][:, columns])) == []


class Whitened(nn.Module):
    """A classifier behind the batch norm of a training with noise on normalized images."""

    def __init__(self, sigma, first=CIFAR):
        super().__init__()
        self.first = first
        self.norm = nn.BatchNorm2d(3, momentum=None, affine=False)
        self.nearest = Nearest()
        images = labeled(600)
        pixels = torch.from_numpy(images.images).float() / 255
        noise = sigma * torch.randn(pixels.shape, generator=generator(8))
        self.norm(CIFAR(pixels + noise))
        self.eval()

    def forward(self, x):
        x = self.first(x)
        self.norm(x)
        return self.nearest(x * constants(CIFAR.std) + constants(CIFAR.mean))


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (
            nn.Identity(),
            r"expect the normalization CIFAR-10 instead of none; put .*Normalize\(\[0.4914, ",
        ),
        (
            nn.Sequential(CIFAR, CIFAR),
            "none instead of CIFAR-10; it may be applied twice: remove .*0.4914",
        ),
        (HALF, "CIFAR-10 instead of -1 to 1; replace .* by .*Normalize.*0.2023"),
    ],
)
def test_a_batch_norm_tells_another_normalization(first, expected):
    found = examined(Whitened(SIGMA, first))
    assert any(re.search(expected, finding.text) for finding in found), found


@pytest.mark.parametrize(("trained", "stated"), [(0.25, 0.5), (0.5, 0.25), (0.5, 0.125)])
def test_a_batch_norm_tells_the_noise_of_the_training(trained, stated):
    (text,) = (
        finding.text for finding in examined(Whitened(trained), stated) if "about" in finding.text
    )
    assert f"trained with noise of about {trained:g}, not {stated:g}" in text


@pytest.mark.parametrize(("groups", "is_found"), [(20, False), (21, True)])
def test_a_batch_norm_is_compared_by_a_sign_test_of_groups(groups, is_found):
    """The best of 32 inputs and 9 noise levels must fit all groups of five images better."""
    assert 0.5**21 <= LEVEL / 41 < 0.5**20
    found = examined(Whitened(0.25), 0.5, labeled(5 * groups))
    assert any("noise of about 0.25" in finding.text for finding in found) == is_found


class Ignored(Whitened):
    """A classifier that computes a batch norm and does not use it."""

    def forward(self, x):
        self.norm(self.first(x))
        return self.nearest(x)


@pytest.mark.parametrize(
    ("model", "sigma"),
    [
        (Whitened(0.12), 0.12),
        (Whitened(0.5), 0.5),
        (Ignored(SIGMA, HALF), SIGMA),  # the input that it fits makes the accuracy smaller
        (Whitened(0.25), 0.25 / 1.414),  # 0.25 fits clearly better, but it is near
        (Whitened(0.0), 0.5),  # all groups fit better without noise: it was frozen before
    ],
)
def test_a_batch_norm_that_is_right_or_tells_nothing_is_no_finding(model, sigma):
    assert examined(model, sigma, labeled(200)) == []


def test_the_noise_that_the_card_states_is_compared_with_that_of_the_certificate():
    loaded = replace(classifier_of(Nearest()), sigma=0.5, folders=("a",))
    assert problems(diagnose(loaded, labeled(), None, CPU)) == []
    (finding,) = problems(diagnose(loaded, labeled(), SIGMA, CPU))
    assert finding.level == "warning"
    assert "states training with noise of 0.5, not 0.25; give --sigma 0.5, or" in finding.text
