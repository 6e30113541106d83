"""What the members of a pool say of noisy images; and a tiny pool, shared with the tests of its cells."""

import json
import shutil
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from rs import params
from rs.data import format as data_format
from rs.data import images as data
from rs.ensemble.declare import ensemble_cell, read_pool
from rs.ensemble.member_outputs import Seen, Settings
from rs.ensemble.perturbation import NOISE, perturbed_parameters
from rs.ensemble.pool import Entry, SideBySide
from rs.ensemble.rules import Ensemble, HardVote, MaxMargin, SoftmaxAverage
from rs.errors import InputError
from rs.models import checkpoint
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier, default_batch
from rs.smoothing.noise import block
from rs.smoothing.settings import CertificationSettings
from tests.support.helpers import CERTIFY, SHAPE, write_params, write_tiny

# ------------------------------------------------------------------------------------------------- a tiny pool

CPU = torch.device("cpu")
SIGMA = 0.25
CLASSES = ("left", "right", "top")
BLIND = {("gaussian", 0): True, ("macer", 0): True, ("macer", 1): False, ("macer", 2): False}
"""The members, each of which looks at another pixel of every quadrant; and whether it takes the class top for left."""
POOL = [("gaussian", 0), ("macer", 0), ("macer", 1)]
NAMES = dict(zip(POOL, (2083373446, 927593077, 1078903523), strict=True))  # CRC-32 of gaussian-0 and so on
SETTINGS = Settings(noises=8, copies=2, share=0.3, scale=0.05, images=20, seed=5)
CERTIFICATION = CertificationSettings(**CERTIFY | {"n": 60, "seed": 4})
GRID = {"sigmas": [SIGMA], "methods": ["gaussian", "macer"], "seeds": [0], "members": ["macer"], "member_seeds": [1]}
COMBINATIONS = {
    "average": {"rule": "softmax", "weights": "equal", "scope": "global"},
    "listed": {"rule": "softmax", "weights": [0.2, 0.8], "scope": "global"},
    "optimal": {"rule": "softmax", "weights": "optimal", "scope": "global"},
    "turned": {"rule": "softmax", "weights": "printed", "scope": "global"},
    "vote": {"rule": "vote", "scope": "global"},
    "mme": {"rule": "mme", "scope": "noisy-input"},
    "set": {"rule": "softmax", "scope": "set", "low": 0.2, "high": 0.6},
    "per-image": {"rule": "softmax", "weights": "optimal", "scope": "per-image", "target": "predicted"},
    "label": {"rule": "softmax", "weights": "optimal", "scope": "per-image", "target": "label"},
    "printed": {"rule": "softmax", "weights": "printed", "scope": "per-image", "target": "label"},
}
BOX = (0.3, 0.6)
COMBINATIONS["clipped"] = COMBINATIONS["label"] | dict(zip(("low", "high"), BOX, strict=True))
ENSEMBLES = [
    {"members": {"macer": [0, 1]}, "combinations": ["listed", "optimal", "turned", "label", "clipped", "printed"]},
    {
        "members": {"gaussian": [0], "macer": [0, 1]},
        "combinations": ["average", "optimal", "mme", "set", "per-image", "clipped"],
    },
    {"members": {"macer": [1], "gaussian": [0]}, "combinations": ["optimal", "vote"]},
]
PAIR, ALL, TURNED = "macer-0-1", "gaussian-0+macer-0-1", "macer-1+gaussian-0"
"""Names of the three, in file names; the members of the last one are not in the order of the pool."""


def write_three(folder, train=24, test=10, seed=0):
    """Write images (N, 1, 4, 4) of which the left, right or upper half is bright; labels 0, 1, 2, 0, ..."""
    splits = {}
    for name, size, of in (("train", train, [0]), ("test", test, [1, seed])):
        labels = np.arange(size) % 3
        images = np.random.default_rng(of).integers(0, 60, (size, *SHAPE), dtype=np.uint8)
        images[labels == 0, :, :, :2] += 180
        images[labels == 1, :, :, 2:] += 180
        images[labels == 2, :, :2] += 180
        splits[name] = (images, labels.astype(np.int64))
    data_format.write(folder, "tiny", splits, CLASSES, mean=[0.5], std=[0.25])


SEES = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0]])
"""What each class is to a member: the mean of two of the four pixels, upper left, upper right, lower left and right."""


def bias_of(who):
    """What a member adds to the classes: a blind one never says top, and rather left than right."""
    return torch.tensor([0.8, 0.0, -30.0]) if BLIND[who] else torch.zeros(3)


def logits_of(who, x):
    """Logits of a member: of images in [0, 1], (N, 1, 4, 4) -> (N, 3)."""
    row, column = divmod(list(BLIND).index(who), 2)
    pixels = (x[:, 0, row::2, column::2].flatten(1) - 0.5) / 0.25
    return pixels @ SEES.T + bias_of(who)


def save_member(method, seed, folder=None, gain=1.0):
    """A small network whose weights are set by hand to :func:`logits_of`: it keeps a number and its negative, as
    rectified numbers; looks at one pixel of each quadrant; and takes the four apart."""
    values = {"shape": list(SHAPE), "classes": list(CLASSES), "mean": [0.5], "std": [0.25], "dataset": "tiny"}
    values |= {"hyperparameters": {}, "training": {}, "epochs": 1, "device": "cpu", "versions": checkpoint.versions()}
    values |= {"arithmetic": "native"}
    card = checkpoint.ModelCard(architecture="smallnet", method=method, sigma=SIGMA, seed=seed, **values)
    model = card.build(0)
    row, column = divmod(list(BLIND).index((method, seed)), 2)
    convolutions = [layer for layer in model.network.features if isinstance(layer, nn.Conv2d)]
    with torch.no_grad():
        for layer in (*convolutions, model.network.fc):
            layer.weight.zero_()
        for sign, value in enumerate((1.0, -1.0)):
            convolutions[0].weight[sign, 0, 1, 1] = value
            convolutions[1].weight[sign, sign, 1 + row, 1 + column] = 1.0
            for quadrant in range(4):
                convolutions[2].weight[4 * sign + quadrant, sign, 1 + quadrant // 2, 1 + quadrant % 2] = 1.0
            model.network.fc.weight[:, 4 * sign : 4 * sign + 4] = value * gain * SEES
        model.network.fc.bias.copy_(bias_of((method, seed)))
    checkpoint.save(folder or Path("models", method, str(seed)), model, card)


def make_ensembles(out, ensembles=ENSEMBLES, sigmas=(SIGMA,), **grid):
    """The folder ``out`` of ensembles, in the current folder; returns the parameters."""
    values = GRID | grid | {"sigmas": list(sigmas), "combinations": COMBINATIONS, "ensembles": ensembles}
    sections = {"weights": vars(SETTINGS), "pool": {"cache": False, "timed": 0}, "certify": vars(CERTIFICATION)}
    made = json.loads(write_params(Path(f"{out}.yaml"), **sections).read_text()) | values
    Path(f"{out}.yaml").write_text(json.dumps(made))
    ensemble_cell(made, "tiny", SIGMA, Path("models"), Path(out))
    return made


def make_pool(root):
    """Data, models, parameters and ensembles, in ``root``."""
    with chdir(root):
        write_three(Path("data"))
        for method, seed in BLIND:
            save_member(method, seed)
        make_ensembles("ensembles")
    return root


def change_recipe(section, key, value):
    """Set one value in the parameters of the current folder."""
    values = json.loads(Path("ensembles.yaml").read_text())
    values["recipes"]["tiny"][section][key] = value
    Path("ensembles.yaml").write_text(json.dumps(values))


def pool_members():
    """The members of the pool, loaded one by one."""
    return [checkpoint.load(Path("models", method, str(seed)))[0] for method, seed in POOL]


def slow_probabilities(who, member, images, index, perturbed=True, repeat=0):
    """Softmax outputs, (m n, K) or (n, K), by a loop over perturbed copies and one over noisy images.

    Of the first copies and noisy images, or of those that follow ``repeat`` times as many.
    """
    own, found = NAMES[who], []
    noise = block(0, SHAPE, SIGMA, SETTINGS.seed, Stream.WEIGHTS, NOISE, index, device="cpu")
    copies, noises = SETTINGS.copies if perturbed else 1, SETTINGS.noises
    for copy in range(repeat * copies, (repeat + 1) * copies):
        changed = perturbed_parameters(member, SETTINGS.share, SETTINGS.scale, SETTINGS.seed, own, copy)
        changed = changed if perturbed else dict(member.named_parameters())
        for draw in range(repeat * noises, (repeat + 1) * noises):
            with torch.no_grad():
                logits = functional_call(member, changed, ((images.pixels(index) + noise[draw])[None],))
            found.append(torch.softmax(logits[0].double(), dim=0).numpy())
    return np.array(found)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_pool(tmp_path_factory.mktemp("pool"))


@pytest.fixture(autouse=True)
def project(tmp_path, made, monkeypatch, work):
    """A copy of the pool, in which the test runs."""
    shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")


# ------------------------------------------------------------------------------------------------- what they say


def load(ensembles="ensembles", folder="data", batch=1):
    pool, _ = read_pool(Path(ensembles))
    meta = data.load(Path(folder), "test").meta
    return Seen.load(pool, Path(ensembles, "pool.json"), meta, SETTINGS, CPU, batch)


@pytest.fixture
def images():
    return data.load(Path("data"), "test")


def test_members_are_the_functions_that_they_are_said_to_be():
    """Float32 numbers of at most 8 in a network of four layers; batch norms divide by the root of 1 + 1e-5."""
    x = torch.rand(50, *SHAPE, generator=torch.Generator().manual_seed(0))
    for who in BLIND:
        with torch.no_grad():
            found = checkpoint.load(Path("models", who[0], str(who[1])))[0](x)
        torch.testing.assert_close(found, logits_of(who, x), rtol=0, atol=2e-4)


@pytest.mark.parametrize(("perturbed", "repeat"), [(True, 0), (False, 0), (True, 1), (True, 2), (False, 1)])
def test_outputs_are_those_of_a_slow_loop(images, perturbed, repeat):
    """Noisy images are evaluated one by one in both, so the bytes are equal."""
    found = load().probabilities(images, [7, 2], perturbed, repeat)
    for row, index in zip(found, (7, 2), strict=True):
        members = zip(POOL, pool_members(), strict=True)
        expected = [slow_probabilities(*member, images, index, perturbed, repeat) for member in members]
        np.testing.assert_array_equal(row, expected)
    assert found.shape == (2, 3, 16 if perturbed else 8, 3)


def test_outputs_of_a_member_do_not_depend_on_its_company(images):
    """``alone`` holds the third member and another; neither stands where it stood."""
    make_ensembles("alone", [{"members": {"macer": [2, 1]}, "combinations": ["average"]}], member_seeds=[2, 1])
    some, alone = load(), load("alone")
    assert alone.members == [("macer", 2), ("macer", 1)]
    here, there = (seen.probabilities(images, [3]) for seen in (some, alone))
    np.testing.assert_array_equal(there[:, 1], here[:, 2])
    assert not np.isclose(there[:, 0], here[:, 2]).all()


@pytest.mark.parametrize("kept", [[2, 0], [1], []])
def test_some_of_the_members_say_what_they_say_among_all(images, kept):
    seen = load()
    some = seen.only({POOL[number] for number in kept})
    assert some.members == [member for number, member in enumerate(POOL) if number in kept]
    if kept:
        found = some.probabilities(images, [3, 8], repeat=1)
        np.testing.assert_array_equal(found, seen.probabilities(images, [3, 8], repeat=1)[:, sorted(kept)])


def test_perturbations_are_named_by_method_and_seed_whatever_the_fingerprint(monkeypatch):
    assert load().names == list(NAMES.values())
    monkeypatch.setattr("rs.models.checkpoint.fingerprint", lambda model: f"{sum(p.sum() for p in model.parameters())}")
    make_ensembles("others")
    assert load("others").names == list(NAMES.values())


def test_members_of_an_ensemble_are_found_in_its_own_order():
    seen, (_, cards) = load(), read_pool(Path("ensembles"))
    assert seen.members == POOL
    assert seen.numbers(cards[f"{TURNED}.optimal"]) == [2, 0]
    assert seen.numbers(cards[f"{ALL}.mme"]) == [0, 1, 2]


@pytest.mark.parametrize(("numbers", "sizes"), [(1, [1] * 5), (600, [2, 2, 1]), (10**9, [5])])
def test_chunks_hold_every_image_once_and_say_the_same_in_any_size(images, monkeypatch, numbers, sizes):
    """An image takes 3 members x 16 draws x 3 classes + 8 noisy copies x 16 pixels = 272 numbers; 600 hold two."""
    monkeypatch.setattr("rs.ensemble.member_outputs.NUMBERS", numbers)
    seen, indices = load(), np.array([0, 2, 3, 7, 9])
    chunks = list(seen.chunks(images, indices))
    assert [len(chunk.indices) for chunk in chunks] == sizes
    assert [index for chunk in chunks for index in chunk.indices] == indices.tolist()
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), indices % 3)
    together = np.concatenate([chunk.perturbed for chunk in chunks])
    np.testing.assert_array_equal(together, seen.probabilities(images, indices.tolist()))


ENTRIES = {"average": Entry((0, 1, 2), SoftmaxAverage()), "last": Entry((2,)), "two": Entry((2, 0), MaxMargin())}


def test_the_selected_class_is_the_one_that_the_n0_draws_of_a_certificate_choose(images):
    members, indices = pool_members(), list(range(10))
    how = replace(CERTIFICATION, n0=3)
    found = load(batch=None).selected(images, indices, ENTRIES, how)
    for name, entry in ENTRIES.items():
        base = Ensemble([members[number] for number in entry.members], entry.rule)
        alone = SmoothedClassifier(base, 3, SIGMA)
        votes = [alone.votes(images.pixels(i), 3, how.seed, Stream.SELECT, i) for i in indices]
        assert found[name].tolist() == [int(np.argmax(counts)) for counts in votes]
    assert len({tuple(classes) for classes in found.values()}) > 1  # the rules differ, so names can be mixed up


def test_only_the_members_that_are_asked_for_are_evaluated(images, monkeypatch):
    seen, asked, forward = load(), [], SideBySide.forward
    monkeypatch.setattr(SideBySide, "forward", lambda self, x: (asked.append(self.needed), forward(self, x))[1])
    seen.selected(images, [0], {"two": ENTRIES["two"], "vote": Entry((0, 2), HardVote())}, CERTIFICATION)
    assert asked == [(0, 2)]


def test_nothing_that_is_seen_comes_from_the_draws_that_certify(images, monkeypatch):
    phases = set()

    def watched(index, shape, sigma, seed, *key, device):
        phases.add(Stream(key[0]))
        return block(index, shape, sigma, seed, *key, device=device)

    for module in ("rs.ensemble.perturbation", "rs.smoothing.classifier"):
        monkeypatch.setattr(f"{module}.block", watched)
    seen = load()
    seen.probabilities(images, [0])
    seen.selected(images, [0], ENTRIES, CERTIFICATION)
    assert phases == {Stream.WEIGHTS, Stream.SELECT}


def test_noisy_images_are_evaluated_as_many_at_once_as_is_said(images, monkeypatch):
    sizes, split = [], torch.Tensor.split
    monkeypatch.setattr(torch.Tensor, "split", lambda x, size: (sizes.append(size), split(x, size))[1])
    load(batch=4).probabilities(images, [0])
    assert set(sizes) == {4}
    load(batch=None).probabilities(images, [0])
    assert set(sizes) == {4, default_batch(images.pixels(0))}


def test_members_that_changed_are_refused():
    save_member("macer", 1, gain=2.0)
    with pytest.raises(InputError, match=r"models/macer/1 must be the model ensembles/pool\.json was made of"):
        load()


def test_members_for_other_images_are_refused():
    write_tiny(Path("two"))  # two classes
    with pytest.raises(InputError, match=r"must be of classifiers of tiny \(2 classes.*3 classes"):
        load(folder="two")


@pytest.mark.parametrize(
    "change",
    [{"noises": 0}, {"copies": 0}, {"share": -0.1}, {"share": 1.1}, {"scale": -1.0}, {"scale": float("inf")},
     {"images": 0}, {"seed": -1}, {"noises": 2.5}, {"extra": 1}],
)  # fmt: skip
def test_settings_out_of_range_are_refused_by_their_name(change):
    with pytest.raises(InputError, match=rf"weights\.{next(iter(change))}"):
        params.check(Settings, vars(SETTINGS) | change, "weights")


def test_shares_and_scales_may_be_at_their_ends():
    for change in ({"share": 0.0}, {"share": 1.0}, {"scale": 0.0}):
        assert vars(replace(SETTINGS, **change)) == vars(SETTINGS) | change
