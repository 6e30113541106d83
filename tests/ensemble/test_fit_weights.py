"""Weights and theory of a pool's ensembles: ``rs.ensemble.fit_weights`` and the command
``weights``.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rs.data import images as data
from rs.data import prepared
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.declare import read_weights
from rs.ensemble.member_outputs import CHOICE, NOISE, margins
from rs.ensemble.spec import read
from rs.ensemble.theory import BOUNDS, SPREADS
from rs.runtime.streams import Stream, stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.noise import gaussian_block
from rs.statistics.cascade_thresholds import fit_thresholds
from rs.statistics.ensemble_variance import chebyshev_bounds
from rs.statistics.ensemble_weights import clip_to_box, global_weights, moments, per_image_weights
from rs.statistics.radius_weights import DisputedDraws, chosen_weights, radius_weights
from stages.weights import main
from tests.support.folders import contents
from tests.support.helpers import SHAPE, refusal
from tests.support.tiny_pool import (
    ALL,
    BOX,
    CLASSES,
    FEW,
    PAIR,
    POOL,
    SETTINGS,
    SIGMA,
    TURNED,
    change_recipe,
    pool_members,
    slow_probabilities,
    solve,
    write_three,
)

SOLVED = {
    f"{PAIR}.optimal": [1, 2],
    f"{PAIR}.turned": [1, 2],
    f"{ALL}.optimal": [0, 1, 2],
    f"{TURNED}.optimal": [2, 0],
}
"""Ensembles whose weights are the best of the paper's bound for all images, and their members'
places in the pool.
"""
RADIUS = f"{ALL}.radius"
TWO = f"{ALL}.two"
GLOBAL = [*SOLVED, RADIUS, TWO]

PER_IMAGE = {f"{PAIR}.{form}": [1, 2] for form in ("label", "clipped", "printed")}
PER_IMAGE |= {f"{ALL}.per-image": [0, 1, 2], f"{ALL}.clipped": [0, 1, 2]}
CASCADE = f"{ALL}.cascade"
FILES = sorted(
    [*(f"{slug}.json" for slug in [*GLOBAL, CASCADE]), *(f"{slug}.tsv" for slug in PER_IMAGE)]
)

MANY = 50
"""Images evaluated together, where solutions are compared with one another and not with slow loops.
"""

SUMS = 1e-12
"""Float64 sums of a few hundred numbers in [-1, 1] are off by less."""


pytestmark = pytest.mark.usefixtures("pool_here")


@pytest.fixture(scope="module")
def slow(solved_pool):
    """Outputs of perturbed copies, (B, 3, m n, K), and labels, of the fitted train images and of
    the test images.

    ``fresh`` are other draws of the test images than ``test``, which choose their weights.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(solved_pool)
        train, test = (
            data.load_images(Path("data"), "train"),
            data.load_images(Path("data"), "test"),
        )
        named = list(zip(POOL, pool_members(), strict=True))
        chosen = sorted(
            torch.randperm(24, generator=stream(SETTINGS.seed, Stream.WEIGHTS, CHOICE)).tolist()[
                :20
            ]
        )
        found, draws = (
            {},
            {
                "train": (train, chosen, 0),
                "test": (test, range(10), 0),
                "fresh": (test, range(10), 1),
            },
        )
        for name, (images, indices, repeat) in draws.items():
            outputs = [
                [slow_probabilities(*member, images, i, repeat=repeat) for member in named]
                for i in indices
            ]
            found[name] = np.array(outputs), np.array([i % 3 for i in indices])
        plain = [
            [slow_probabilities(*member, test, i, perturbed=False) for member in named]
            for i in range(10)
        ]
    return found | {"plain": (np.array(plain), found["test"][1])}


# -------------------------------------------------------------------------------------------------
# weights


@pytest.mark.parametrize("slug", SOLVED)
def test_weights_of_all_images_are_those_of_margins_from_a_slow_loop_over_training_images(
    slow, slug
):
    probabilities, labels = slow["train"]
    stats = moments(margins(probabilities[:, SOLVED[slug]], labels))
    expected, share = global_weights(
        stats, labels, "printed" if slug.endswith("turned") else "optimal"
    )
    fitted = read(Path("weights", f"{slug}.json")).fitted
    assert (fitted.weights, fitted.used_share, fitted.images) == (expected.tolist(), share, 20)
    assert (fitted.split, fitted.shrinkage) == ("train", 0.0)
    assert 0 < share < 1  # some images count, and not all
    assert len(set(fitted.weights)) == len(fitted.weights)  # not the equal weights of a failure


def test_weights_of_the_largest_radius_are_those_of_a_slow_loop_over_training_images():
    train, members = (
        data.load_images(Path("data"), "train"),
        list(zip(POOL, pool_members(), strict=True)),
    )
    chosen = sorted(
        torch.randperm(24, generator=stream(SETTINGS.seed, Stream.WEIGHTS, CHOICE)).tolist()[:20]
    )
    outputs = [
        [slow_probabilities(*one, train, i, False, noises=SETTINGS.draws) for one in members]
        for i in chosen
    ]
    labels = train.labels[chosen]
    disputed = DisputedDraws.of(margins(np.array(outputs), labels), labels)
    fitted = read(Path("weights", f"{RADIUS}.json")).fitted
    found = (
        tuple(fitted.weights),
        fitted.shrinkage,
        fitted.used_share,
        fitted.images,
        fitted.split,
    )
    assert found == (*radius_weights(disputed), disputed.used_share, 20, "train")
    assert fitted.weights[2] > 0.5  # the member that sees every class
    assert fitted.shrinkage < 1
    two = read(Path("weights", f"{TWO}.json"))
    assert (tuple(two.fitted.weights), two.fitted.shrinkage) == chosen_weights(disputed, 2)
    assert two.members[2] in two.voting_members


def with_validation(folder, seed):
    """The tiny data with 12 validation images, and a train split that ``seed`` chooses."""
    write_three(Path("kept"), train=12, seed=3)
    write_three(Path(folder))
    parts = {"train": ("data", "train"), "validation": ("kept", "train"), "test": ("data", "test")}
    loaded = {split: data.load_images(Path(of), name) for split, (of, name) in parts.items()}
    splits = {split: (own.images, own.labels) for split, own in loaded.items()}
    images, labels = splits["train"]
    order = np.random.default_rng(seed).permutation(len(labels))[:18]
    splits["train"] = (images[order], labels[order])
    prepared.save_images(Path(folder), "tiny", splits, CLASSES, mean=[0.5], std=[0.25])


def test_all_that_is_fitted_is_fitted_to_validation_images_where_there_are_some():
    for seed in (0, 1):
        with_validation(f"data-{seed}", seed)
        solve(f"weights-{seed}", folder=f"data-{seed}", batch=MANY)
    for slug in [*GLOBAL, CASCADE]:
        found = [contents(f"weights-{seed}")[f"{slug}.json"] for seed in (0, 1)]
        assert found[0] == found[1]
        fitted = [read(Path(folder, f"{slug}.json")).fitted for folder in ("weights", "weights-0")]
        assert [(fit.split, fit.images) for fit in fitted] == [
            ("train", SETTINGS.images),
            ("validation", 12),
        ]


def selected(members, n0):
    """The class that the n0 draws of the plain average choose, image by image."""
    classifier = SmoothedClassifier(Ensemble(members, SoftmaxAverage()), 3, SIGMA)
    images = data.load_images(Path("data"), "test")
    votes = [classifier.votes(images.pixels(i), n0, FEW.seed, Stream.SELECT, i) for i in range(10)]
    return np.array([counts.argmax() for counts in votes])


@pytest.mark.parametrize("slug", PER_IMAGE)
def test_weights_of_an_image_are_algorithm_2_on_its_label_or_on_the_class_that_n0_draws_select(
    slow, slug
):
    (probabilities, labels), own = slow["test"], PER_IMAGE[slug]
    classes = (
        selected([pool_members()[number] for number in own], 3)
        if slug.endswith("per-image")
        else labels
    )
    form = "printed" if slug.endswith("printed") else "optimal"
    found = read_weights(Path("weights", f"{slug}.tsv"), len(own))
    for i, y in enumerate(classes):
        solved = per_image_weights(margins(probabilities[[i]][:, own], [y])[0], y, form)
        assert (
            found[i] == (clip_to_box(solved, *BOX) if slug.endswith("clipped") else solved).tolist()
        )
    lines = Path("weights", f"{slug}.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["idx", "class", *(f"w{number}" for number in range(len(own)))]
    assert [line.split("\t")[:2] for line in lines[1:]] == [
        [str(i), str(y)] for i, y in enumerate(classes)
    ]


def test_only_weights_whose_target_is_the_label_see_the_labels_of_test_images():
    """The same images, whose test labels are all wrong."""
    train, test = (data.load_images(Path("data"), split) for split in ("train", "test"))
    splits = {"train": (train.images, train.labels), "test": (test.images, (test.labels + 1) % 3)}
    prepared.save_images(Path("wrong"), "tiny", splits, CLASSES, mean=[0.5], std=[0.25])
    before, after = (
        contents(solve(f"of-{name}", folder=name, batch=MANY)) for name in ("data", "wrong")
    )
    unlike = {name for name in FILES if after[name] != before[name]}
    assert unlike == {f"{slug}.tsv" for slug in PER_IMAGE if not slug.endswith("per-image")}


# -------------------------------------------------------------------------------------------------
# the theory

GROUPS = {
    "macer x2": ([1, 2], ["macer", "macer"], "macer 0-1"),
    "gaussian x1 + macer x2": ([0, 1, 2], ["gaussian", "macer", "macer"], "gaussian 0 + macer 0-1"),
    "macer x1 + gaussian x1": ([2, 0], ["macer", "gaussian"], "macer 1 + gaussian 0"),
}
"""Places in the pool, methods and trained models of the ensembles."""


def spread_by_hand(z, y, methods, training):
    """Alpha, beta, variance, within, across of one image: margins (L, N, K), loops over classes and
    members.
    """
    count, wrong, found = len(z), [i for i in range(3) if i != y], []
    for i in wrong:
        s = np.cov(z[:, :, i], bias=True)
        for a in range(count) if training else ():
            seeds = [z[b, :, i].mean() for b in range(count) if methods[b] == methods[a]]
            s[a, a] += np.var(seeds, ddof=1) if len(seeds) > 1 else 0.0
        pairs = [(a, b) for a in range(count) for b in range(a)]
        within = [s[a, b] for a, b in pairs if methods[a] == methods[b]]
        across = [s[a, b] for a, b in pairs if methods[a] != methods[b]]
        means = [
            np.mean(values) if len(values) else np.nan for values in (np.diag(s), within, across)
        ]
        found.append([np.diag(s).max(), max(s[a, b] for a, b in pairs), *means])
    return np.mean(found, axis=0)


@pytest.mark.parametrize("source", ["perturbed", "trained"])
def test_spreads_are_means_of_covariances_made_by_hand(slow, source):
    table = pd.read_csv("weights/spreads.csv")
    probabilities, labels = slow["plain" if source == "trained" else "test"]
    for name, (own, methods, trained) in GROUPS.items():
        line = table[(table["ensemble"] == name) & (table["source"] == source)]
        z = [margins(probabilities[[i]][:, own], [y])[0] for i, y in enumerate(labels)]
        each = [
            spread_by_hand(of_image, y, methods, source == "trained")
            for of_image, y in zip(z, labels, strict=True)
        ]
        np.testing.assert_allclose(
            line[list(SPREADS[4:])].to_numpy()[0], np.mean(each, axis=0), rtol=0, atol=SUMS
        )
        assert (line["images"].tolist(), line["members"].tolist()) == ([10], [trained])


def weights_of(slug, count):
    """Weights of each test image, (10, L)."""
    if slug in PER_IMAGE:
        return np.array(list(read_weights(Path("weights", f"{slug}.tsv"), count).values()))
    fixed = {f"{PAIR}.average": [0.5, 0.5], f"{ALL}.average": [1 / 3, 1 / 3, 1 / 3]}.get(slug)
    return np.tile(fixed or read(Path("weights", f"{slug}.json")).fitted.weights, (10, 1))


def test_bounds_are_means_over_images(slow):
    """Of draws that did not choose the weights.

    A bound above 0 has e^2 above the variance; here that is 1e-4 at least, and the error SUMS / e^2
    below 1e-8.
    """
    table = pd.read_csv("weights/bounds.csv")
    assert tuple(table) == BOUNDS
    table, (probabilities, labels) = table.set_index(["ensemble", "combination"]), slow["fresh"]
    shown = [
        ("macer x2", PAIR, c)
        for c in ("average", "optimal", "turned", "label", "clipped", "printed")
    ]
    shown += [
        ("gaussian x1 + macer x2", ALL, c)
        for c in ("average", "optimal", "radius", "two", "per-image", "clipped")
    ]
    shown += [("macer x1 + gaussian x1", TURNED, "optimal")]
    assert list(table.index) == [(name, combination) for name, _, combination in shown]
    for name, slug, combination in shown:
        own, _, trained = GROUPS[name]
        weights = weights_of(f"{slug}.{combination}", len(own))
        z = [margins(probabilities[[i]][:, own], [y])[0] for i, y in enumerate(labels)]
        each = [chebyshev_bounds(*of_image) for of_image in zip(z, labels, weights, strict=True)]
        line = table.loc[(name, combination)]
        found = line[["bound", "bound_minimum", "measured"]].to_numpy(float)
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=0, atol=1e-8)
        assert (line["images"], line["members"]) == (10, trained)


# -------------------------------------------------------------------------------------------------
# the command

WORDS = (
    "tiny --ensembles ensembles --data data --out new --seconds new.csv "
    "--params ensembles.yaml --device cpu"
)


@pytest.mark.parametrize(
    ("words", "spoil", "word"),
    [
        (["--batch", -1], None, "batch must be at least 1, got -1"),
        ([], lambda: change_recipe("weights", "colour", 3), "weights.colour is not a known key"),
        ([], lambda: Path("ensembles", f"{PAIR}.label.json").unlink(), f"{PAIR}.label.json"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(capfd, words, spoil, word):
    if spoil:
        spoil()
    before = sorted(Path(".").rglob("*"))
    assert word in refusal(capfd, main, *WORDS.split(), *words)
    assert sorted(Path(".").rglob("*")) == before


def test_thresholds_are_those_of_a_slow_loop_over_noisy_copies_of_training_images():
    """m n = 16 copies of each image to which weights are fitted, by unperturbed members."""
    found, images = (
        read(Path("weights", f"{CASCADE}.json")).fitted,
        data.load_images(Path("data"), "train"),
    )
    draws = SETTINGS.noises * SETTINGS.copies
    leads, differs, members = [], [], pool_members()
    for index in SETTINGS.fitting_images(images).tolist():
        noise = gaussian_block(
            0, SHAPE, SIGMA, SETTINGS.seed, Stream.WEIGHTS, NOISE, index, device="cpu"
        )[:draws]
        for draw in range(draws):
            with torch.no_grad():
                logits = [
                    member((images.pixels(index) + noise[draw])[None])[0] for member in members
                ]
            p = torch.stack(logits).double().softmax(dim=-1)
            averages = [p[:count].mean(dim=0).sort(descending=True) for count in (1, 2, 3)]
            classes = [int(average.indices[0]) for average in averages]
            leads.append([float(average.values[0] - average.values[1]) for average in averages[:2]])
            differs.append([c != classes[2] for c in classes[:2]])
    expected = fit_thresholds(np.array(leads).T, np.array(differs).T, 0.02)
    assert np.array(differs).any()
    np.testing.assert_allclose(found.thresholds, expected.thresholds, rtol=0, atol=SUMS)
    assert (found.images, found.draws) == (SETTINGS.images, draws)
    assert (found.share, found.evaluations) == (expected.share, expected.evaluations)
    assert 0 < found.share <= 0.02
    assert 1 < found.evaluations < 3
