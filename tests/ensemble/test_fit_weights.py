"""Weights and theory of a pool's ensembles: ``rs.ensemble.fit_weights``.

The outputs to which they are fitted are tested in ``test_member_outputs.py``.
"""

from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rs.data import prepared
from rs.ensemble.declare import read_weights
from rs.ensemble.member_outputs import margins
from rs.ensemble.spec import read
from rs.ensemble.theory import BOUNDS, SPREADS
from rs.statistics.cascade_thresholds import fit_thresholds
from rs.statistics.ensemble_variance import chebyshev_bounds
from rs.statistics.ensemble_weights import global_weights, moments, per_image_weights
from rs.statistics.radius_weights import DisputedDraws, radius_weights
from tests.support.folders import contents
from tests.support.tiny_pool import (
    ALL,
    CLASSES,
    FEW,
    PAIR,
    SETTINGS,
    TURNED,
    load_outputs,
    load_split,
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
CASCADE = f"{ALL}.cascade"
FITTED = [*SOLVED, RADIUS, CASCADE]

PER_IMAGE = {
    f"{PAIR}.label": [1, 2],
    f"{PAIR}.printed": [1, 2],
    f"{ALL}.per-image": [0, 1, 2],
}

SUMS = 1e-12
"""Float64 sums of a few hundred numbers in [-1, 1] are off by less."""

TEST = list(range(10))
TEST_LABELS = np.arange(10) % 3

pytestmark = pytest.mark.usefixtures("pool_here")


@pytest.fixture(scope="module")
def outputs(solved_pool):
    """Outputs of the members, (B, 3, m n, K), on the fitted train images and on the test images.

    ``fresh`` are other draws of the test images than ``test``, which choose their weights.
    """
    with chdir(solved_pool):
        train = load_split("train")
        test = load_split("test")
        indices = SETTINGS.fitting_images(train).tolist()
        members = load_outputs()
        many = members.unperturbed(SETTINGS.noises * SETTINGS.copies)
        return {
            "labels": train.labels[indices],
            "train": members.probabilities(train, indices),
            "radius": members.unperturbed(SETTINGS.draws).probabilities(train, indices),
            "cascade": many.probabilities(train, indices),
            "test": members.probabilities(test, TEST),
            "fresh": members.probabilities(test, TEST, repeat=1),
            "plain": members.unperturbed(SETTINGS.noises).probabilities(test, TEST),
        }


def fitted_of(slug, folder="weights"):
    return read(Path(folder, f"{slug}.json")).fitted


# -------------------------------------------------------------------------------------------------
# weights


@pytest.mark.parametrize("slug", SOLVED)
def test_weights_of_all_images_are_those_of_margins_on_training_images(outputs, slug):
    labels = outputs["labels"]
    z = margins(outputs["train"][:, SOLVED[slug]], labels)
    form = "printed" if slug.endswith("turned") else "optimal"
    expected, share = global_weights(moments(z), labels, form)
    fitted = fitted_of(slug)
    assert (fitted.weights, fitted.used_share, fitted.images) == (expected.tolist(), share, 20)
    assert (fitted.split, fitted.shrinkage) == ("train", 0.0)
    assert 0 < share < 1  # some images count, and not all
    assert len(set(fitted.weights)) == len(fitted.weights)  # not the equal weights of a failure


def test_weights_of_the_largest_radius_are_those_of_the_votes_on_training_images(outputs):
    labels = outputs["labels"]
    disputed = DisputedDraws.of(margins(outputs["radius"], labels), labels)
    fitted = fitted_of(RADIUS)
    assert (tuple(fitted.weights), fitted.shrinkage) == radius_weights(disputed)
    assert (fitted.used_share, fitted.images) == (disputed.used_share, 20)
    assert fitted.weights[2] > 0.5  # the member that sees every class
    assert fitted.shrinkage < 1


def test_thresholds_are_those_of_leads_on_training_images(outputs):
    """m n = 16 copies of each image to which weights are fitted, by unperturbed members."""
    p = np.moveaxis(outputs["cascade"], 1, 0).reshape(3, -1, 3)  # (L, B n, K)
    last_class = p.mean(axis=0).argmax(axis=1)
    leads = []
    differs = []
    for count in (1, 2):
        average = p[:count].mean(axis=0)
        ordered = np.sort(average, axis=1)
        leads.append(ordered[:, -1] - ordered[:, -2])
        differs.append(average.argmax(axis=1) != last_class)
    expected = fit_thresholds(np.array(leads), np.array(differs), 0.02)
    fitted = fitted_of(CASCADE)
    assert np.any(differs)
    np.testing.assert_allclose(fitted.thresholds, expected.thresholds, rtol=0, atol=SUMS)
    assert (fitted.images, fitted.draws) == (20, 16)
    assert (fitted.share, fitted.evaluations) == (expected.share, expected.evaluations)
    assert 0 < fitted.share <= 0.02
    assert 1 < fitted.evaluations < 3


def test_all_that_is_fitted_is_fitted_to_validation_images_where_there_are_some():
    """Whatever the train images are."""
    for size in (18, 24):
        write_three(Path(f"data-{size}"), train=size, validation=12)
        solve(f"weights-{size}", folder=f"data-{size}", batch=50)
    for slug in FITTED:
        fitted = fitted_of(slug, "weights-18")
        assert fitted == fitted_of(slug, "weights-24")
        assert (fitted.split, fitted.images) == ("validation", 12)


@pytest.mark.parametrize("slug", PER_IMAGE)
def test_weights_of_an_image_are_algorithm_2_on_its_label_or_on_the_class_that_n0_draws_select(
    outputs, slug
):
    members = PER_IMAGE[slug]
    classes = TEST_LABELS
    if slug.endswith("per-image"):
        spec = read(Path("ensembles", f"{slug}.json"))
        classes = load_outputs().selected_classes(spec, load_split("test"), TEST, FEW)
        assert (classes != TEST_LABELS).any()
    form = "printed" if slug.endswith("printed") else "optimal"
    z = margins(outputs["test"][:, members], classes)
    expected = per_image_weights(z, classes, form)
    path = Path("weights", f"{slug}.tsv")
    table = pd.read_csv(path, sep="\t")
    assert read_weights(path, len(members)) == dict(enumerate(expected.tolist()))
    assert table["class"].tolist() == classes.tolist()


def test_only_weights_whose_target_is_the_label_see_the_labels_of_test_images():
    """The same images, whose test labels are all wrong."""
    train = load_split("train")
    test = load_split("test")
    splits = {"train": (train.images, train.labels), "test": (test.images, (test.labels + 1) % 3)}
    prepared.save_images(Path("wrong"), "tiny", splits, CLASSES, mean=[0.5], std=[0.25])
    before = contents(solve("before", batch=50))
    after = contents(solve("after", folder="wrong", batch=50))
    changed = {name for name in before if after[name] != before[name]}
    of_label = {f"{slug}.tsv" for slug in PER_IMAGE if not slug.endswith("per-image")}
    assert changed == of_label | {"spreads.csv", "bounds.csv"}


# -------------------------------------------------------------------------------------------------
# the theory

GROUPS = {
    "macer x2": ([1, 2], ["macer", "macer"], "macer 0-1"),
    "gaussian x1 + macer x2": ([0, 1, 2], ["gaussian", "macer", "macer"], "gaussian 0 + macer 0-1"),
    "macer x1 + gaussian x1": ([2, 0], ["macer", "gaussian"], "macer 1 + gaussian 0"),
}
"""Places in the pool, methods and trained models of the ensembles."""


def mean_or_nan(values):
    return np.mean(values) if values else np.nan


def spread_by_hand(z, label, methods, *, with_training):
    """Alpha, beta, variance, within, across of one image, from margins (L, N, K), in loops over
    classes and members.
    """
    spreads = []
    for k in {0, 1, 2} - {label}:
        covariances = np.cov(z[:, :, k], bias=True)
        means = z[:, :, k].mean(axis=1)
        within = []
        across = []
        for a, method in enumerate(methods):
            of_seeds = [mean for mean, other in zip(means, methods, strict=True) if other == method]
            if with_training and len(of_seeds) > 1:
                covariances[a, a] += np.var(of_seeds, ddof=1)
            for b in range(a):
                pairs = within if method == methods[b] else across
                pairs.append(covariances[a, b])
        variances = np.diag(covariances)
        means_of_pairs = [mean_or_nan(within), mean_or_nan(across)]
        spreads.append([variances.max(), max(within + across), variances.mean(), *means_of_pairs])
    return np.mean(spreads, axis=0)


@pytest.mark.parametrize(("source", "name"), [("perturbed", "test"), ("trained", "plain")])
def test_spreads_are_means_of_covariances_made_by_hand(outputs, source, name):
    table = pd.read_csv("weights/spreads.csv").set_index(["ensemble", "source"])
    for ensemble, (members, methods, trained) in GROUPS.items():
        z = margins(outputs[name][:, members], TEST_LABELS)
        spreads = [
            spread_by_hand(margin, label, methods, with_training=source == "trained")
            for margin, label in zip(z, TEST_LABELS, strict=True)
        ]
        line = table.loc[(ensemble, source)]
        found = line[list(SPREADS[4:])].to_numpy(float)
        np.testing.assert_allclose(found, np.mean(spreads, axis=0), rtol=0, atol=SUMS)
        assert (line["images"], line["members"]) == (10, trained)


def weights_of(slug, count):
    """Weights of each test image, (10, L)."""
    if slug in PER_IMAGE:
        weights = read_weights(Path("weights", f"{slug}.tsv"), count)
        return np.array([*weights.values()])
    fixed = [1 / count] * count if slug.endswith("average") else fitted_of(slug).weights
    return np.tile(fixed, (10, 1))


SHOWN = {
    ("macer x2", PAIR): ["average", "optimal", "turned", "label", "printed"],
    ("gaussian x1 + macer x2", ALL): ["average", "optimal", "radius", "per-image"],
    ("macer x1 + gaussian x1", TURNED): ["optimal"],
}


def test_bounds_are_means_over_images(outputs):
    """Of draws that did not choose the weights.

    A bound above 0 has e^2 above the variance; here that is 1e-4 at least, and the error SUMS / e^2
    below 1e-8.
    """
    table = pd.read_csv("weights/bounds.csv")
    assert tuple(table) == BOUNDS
    table = table.set_index(["ensemble", "combination"])
    shown = []
    for (ensemble, slug), combinations in SHOWN.items():
        members, _, trained = GROUPS[ensemble]
        z = margins(outputs["fresh"][:, members], TEST_LABELS)
        for combination in combinations:
            weights = weights_of(f"{slug}.{combination}", len(members))
            expected = np.mean(chebyshev_bounds(z, TEST_LABELS, weights), axis=1)
            line = table.loc[(ensemble, combination)]
            found = line[["bound", "bound_minimum", "measured"]].to_numpy(float)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
            assert (line["images"], line["members"]) == (10, trained)
            shown.append((ensemble, combination))
    assert list(table.index) == shown
