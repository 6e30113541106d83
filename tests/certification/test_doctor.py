"""The doctor finds planted faults, and none in good classifiers."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rs.certification.doctor import FALSE_ALARM, diagnose
MIN_IMAGES = 15
from rs.certification.load import Classifier
from rs.data.images import PackedImages
from rs.data.prepared import Meta
from rs.ensemble.base import Ensemble, Polytope, SoftmaxAverage
from rs.ensemble.rules import KConsensus
from rs.errors import InputError
from rs.statistics.certificate import UNLABELLED
from tests.support.networks import Layer, counted

CPU = torch.device("cpu")
SHAPE, CLASSES, SIGMA = (3, 6, 4), 5, 0.25
MEAN, STD = (0.5, 0.4, 0.6), (0.2, 0.25, 0.3)
CONSTANTS = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
TEMPLATES = torch.rand(CLASSES, *SHAPE, generator=torch.Generator().manual_seed(3))
TEMPLATES[0], TEMPLATES[1] = 0.5, 0.75  # what pictures of little contrast look like


def labelled(count=150):
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
        return self.after(self.near(self.before(x).flatten(1).to(self.weight.dtype)))

    def near(self, x):
        return x @ self.weight.T - self.weight.square().sum(1) / 2


class Brittle(Nearest):
    """Wrong about all that is farther from every picture than noise of 0.15 would put it."""

    def near(self, x):
        logits = super().near(x)
        nearest = (x[:, None] - self.weight).square().mean(2).amin(1, keepdim=True)
        return torch.where(nearest > 0.15**2, logits.roll(1, dims=1), logits)


def unnormalised(x):
    return x * CONSTANTS[1] + CONSTANTS[0]


def examined(model, sigma=SIGMA, images=None):
    loaded = Classifier("own:model", model, None, tuple("abcde"), SHAPE, None, "model")
    return problems(diagnose(loaded, labelled() if images is None else images, sigma, CPU))


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
    "normalised": (Nearest(unnormalised), "expect normalized pixels"),
    "minus one to one": (Nearest(lambda x: (x + 1) / 2), "expect pixels of -1 to 1"),
    "untrained": (
        Layer(lambda _, x: by_chance(x)),
        r"than chance: \d+ of 150 images are right.*train it",
    ),
    "BGR": (Nearest(lambda x: x.flip(1)), "BGR"),
    "names": (
        Nearest(after=lambda logits: logits.roll(1, dims=1)),
        "than chance: .* name the classes in its order",
    ),
    "clips": (Nearest(lambda x: x.clamp(0, 1)), "clips its images"),
    "noise": (Brittle(), "not to be trained with noise of 0.25"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    model, expected = FAULTS[name]
    found = examined(model)
    assert found, "nothing was found"
    assert re.search(expected, found[0].text), found
    assert (found[0].level == "warning") == (name in ("clips", "noise"))


GOOD = {
    "nearest": Nearest(),
    "normalises": nn.Sequential(
        Layer(lambda _, x: (x - CONSTANTS[0]) / CONSTANTS[1]), Nearest(unnormalised)
    ),
    "from -1 to 1": nn.Sequential(Layer(lambda _, x: 2 * x - 1), Nearest(lambda x: (x + 1) / 2)),
    "float64": Nearest().double(),
    "dropout off": nn.Sequential(nn.Dropout2d(0.5), Nearest()),
    "batch norm": nn.Sequential(nn.BatchNorm2d(3), Nearest()),
    "large logits": Nearest(after=lambda logits: 1000 * logits),
    "log of probabilities": Nearest(after=lambda logits: logits.log_softmax(1)),
    "ensemble": Ensemble([Nearest(), Nearest()], SoftmaxAverage((0.5, 0.5))),
    "votes": Ensemble([Nearest(), Nearest()], KConsensus(2)),
    "votes for no class": Ensemble([Nearest(), Nearest()], Polytope(((0.9, 0.1), (0.1, 0.9)))),
    "attribute logits": Nearest(after=lambda logits: SimpleNamespace(logits=logits)),
}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_found_in_a_good_classifier(name):
    assert examined(GOOD[name].train()) == []


def test_one_image_tells_nothing_and_is_no_error():
    (finding,) = examined(Nearest(), images=labelled(1))
    assert (finding.level, "not clearly better than chance" in finding.text) == ("warning", True)


def of_labels(images, labels):
    """Images of ``labels`` alone, as many as these."""
    indices = [int(np.flatnonzero(images.labels == label)[0]) for label in labels]
    return replace(images, images=images.images[indices], labels=images.labels[indices])


def texts(model, images):
    loaded = Classifier("own:model", model, None, tuple("abcde"), SHAPE, None, "model")
    return {finding.text: finding.level for finding in diagnose(loaded, images, SIGMA, CPU)}


def test_chance_is_that_of_the_models_classes_whatever_the_folder_holds():
    """Guessing the only class of a folder would be right, but the classifier has five."""
    found = texts(Nearest(), of_labels(labelled(), [2] * 30))
    assert "accuracy 100% (30 of 30 images), better than chance (20%)" in found
    assert set(found.values()) == {"ok"}


@pytest.mark.parametrize(("right", "is_better"), [(6, False), (7, True)])
def test_few_images_are_compared_with_chance_exactly(right, is_better):
    """With five classes, 0.2^6 is larger than the level and 0.2^7 is smaller."""
    assert (0.2**right <= FALSE_ALARM) == is_better
    found = texts(Nearest(), of_labels(labelled(), [2] * right))
    assert all(level != "fault" for level in found.values())
    (text,) = (text for text in found if "than chance" in text)
    assert (", better than chance" in text) == is_better
    assert found[text] == ("ok" if is_better else "warning")
    assert f"{right} of {right} images" in text
    assert f"a comparison needs {MIN_IMAGES} images or more" in text


def test_no_finding_rests_on_fewer_images_than_a_sign_test_needs():
    assert 0.5**MIN_IMAGES <= FALSE_ALARM < 0.5 ** (MIN_IMAGES - 1)
    wrong_order = Nearest(lambda x: x.flip(1))
    for count, is_found in ((MIN_IMAGES - 1, False), (MIN_IMAGES, True)):
        images = of_labels(labelled(), [2 + i % 3 for i in range(count)])
        faults = [text for text, level in texts(wrong_order, images).items() if level == "fault"]
        assert len(faults) == is_found
        assert all("accuracy 100% then, 0% now" in text for text in faults)


def test_one_class_for_all_images_is_a_fault_even_if_most_are_of_it():
    constant = Nearest(after=lambda logits: logits * 0 + torch.eye(5)[2])
    images = of_labels(labelled(), [2] * 60 + [3] * 20)
    (finding,) = examined(constant, images=images)
    assert finding.level == "fault"
    assert "all 80 images" in finding.text


def test_what_was_checked_is_listed_with_figures():
    found = texts(Nearest(), labelled())
    assert set(found.values()) == {"ok"}
    assert any("batch" in text for text in found)
    (others,) = (text for text in found if "BGR" in text)
    for kind in ("BGR", "-1 to 1", "normalized", "255"):
        assert re.search(rf"{kind} \d+%", others)
    assert any(re.search(r"under noise of 0.25: \d+%", text) for text in found)


def test_a_network_is_not_said_to_clip_if_no_noisy_pixel_leaves_the_range():
    gray = of_labels(labelled(), [0, 1] * 10)
    loaded = Classifier("own:model", Nearest(), None, tuple("abcde"), SHAPE, None, "model")
    found = diagnose(loaded, gray, 0.01, CPU)
    assert {finding.level for finding in found} == {"ok"}
    assert any("under noise of 0.01" in finding.text for finding in found)


def test_without_the_noise_nothing_is_tried_under_it():
    (finding,) = examined(Nearest(), sigma=None)
    assert finding.level == "warning"
    assert "give --sigma" in finding.text


@pytest.mark.parametrize("model", [Nearest(), Layer(lambda _, x: by_chance(x))])
def test_without_labels_it_is_said_what_was_not_looked_at(model):
    images = labelled()
    (finding,) = examined(
        model, images=replace(images, labels=np.full_like(images.labels, UNLABELLED))
    )
    assert finding.level == "warning"
    assert "the images have no labels, so accuracy, training and expected input" in finding.text


def test_without_images_it_is_one_function_and_no_more_is_known():
    loaded = Classifier("own:model", Nearest(), None, tuple("abcde"), SHAPE, None, "model")
    (finding,) = problems(diagnose(loaded, None, SIGMA, CPU))
    assert (finding.level, "give --data or --images" in finding.text) == ("warning", True)
    (finding,) = diagnose(replace(loaded, module=FAULTS["state"][0]), None, SIGMA, CPU)
    assert finding.level == "fault"


def test_without_images_a_model_must_say_what_images_it_is_for():
    with pytest.raises(InputError, match="but own:model names none; give --data"):
        diagnose(Classifier("own:model", Nearest()), None, SIGMA, CPU)
