"""Weights and theory of a pool's ensembles: ``rs.ensemble.fit_weights``. The outputs to which they
are fitted are those of ``test_member_outputs.py``.
"""

from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rs.data import images as data
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
        train = data.load_images(Path("data"), "train")
        test = data.load_images(Path("data"), "test")
        fitted = SETTINGS.fitting_images(train).tolist()
        members = load_outputs()
        many = members.unperturbed(SETTINGS.noises * SETTINGS.copies)
        return {
            "labels": train.labels[fitted],
            "train": members.probabilities(train, fitted),
            "radius": members.unperturbed(SETTINGS.draws).probabilities(train, fitted),
            "cascade": many.probabilities(train, fitted),
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
    own = margins(outputs["train"][:, SOLVED[slug]], outputs["labels"])
    form = "printed" if slug.endswith("turned") else "optimal"
    expected, share = global_weights(moments(own), outputs["labels"], form)
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
    averages = [p[:count].mean(axis=0) for count in (1, 2, 3)]
    classes = [average.argmax(axis=1) for average in averages]
    ordered = [np.sort(average, axis=1) for average in averages[:2]]
    leads = np.array([values[:, -1] - values[:, -2] for values in ordered])
    differs = np.array([chosen != classes[2] for chosen in classes[:2]])
    expected = fit_thresholds(leads, differs, 0.02)
    found = fitted_of(CASCADE)
    assert differs.any()
    np.testing.assert_allclose(found.thresholds, expected.thresholds, rtol=0, atol=SUMS)
    assert (found.images, found.draws) == (20, 16)
    assert (found.share, found.evaluations) == (expected.share, expected.evaluations)
    assert 0 < found.share <= 0.02
    assert 1 < found.evaluations < 3


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
    own = PER_IMAGE[slug]
    classes = TEST_LABELS
    if slug.endswith("per-image"):
        spec = read(Path("ensembles", f"{slug}.json"))
        test = data.load_images(Path("data"), "test")
        classes = load_outputs().selected_classes(spec, test, TEST, FEW)
        assert (classes != TEST_LABELS).any()
    form = "printed" if slug.endswith("printed") else "optimal"
    expected = per_image_weights(margins(outputs["test"][:, own], classes), classes, form)
    found = read_weights(Path("weights", f"{slug}.tsv"), len(own))
    assert found == dict(enumerate(expected.tolist()))
    table = pd.read_csv(f"weights/{slug}.tsv", sep="\t")
    assert table["class"].tolist() == classes.tolist()


def test_only_weights_whose_target_is_the_label_see_the_labels_of_test_images():
    """The same images, whose test labels are all wrong."""
    train, test = (data.load_images(Path("data"), split) for split in ("train", "test"))
    splits = {"train": (train.images, train.labels), "test": (test.images, (test.labels + 1) % 3)}
    prepared.save_images(Path("wrong"), "tiny", splits, CLASSES, mean=[0.5], std=[0.25])
    before, after = (
        contents(solve(f"of-{name}", folder=name, batch=50)) for name in ("data", "wrong")
    )
    unlike = {name for name in before if after[name] != before[name]}
    of_label = {f"{slug}.tsv" for slug in PER_IMAGE if not slug.endswith("per-image")}
    assert unlike == of_label | {"spreads.csv", "bounds.csv"}


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


@pytest.mark.parametrize(("source", "of"), [("perturbed", "test"), ("trained", "plain")])
def test_spreads_are_means_of_covariances_made_by_hand(outputs, source, of):
    table = pd.read_csv("weights/spreads.csv")
    for name, (own, methods, trained) in GROUPS.items():
        line = table[(table["ensemble"] == name) & (table["source"] == source)]
        each = [
            spread_by_hand(z, y, methods, source == "trained")
            for z, y in zip(margins(outputs[of][:, own], TEST_LABELS), TEST_LABELS, strict=True)
        ]
        found = line[list(SPREADS[4:])].to_numpy()[0]
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=0, atol=SUMS)
        assert (line["images"].tolist(), line["members"].tolist()) == ([10], [trained])


def weights_of(slug, count):
    """Weights of each test image, (10, L)."""
    if slug in PER_IMAGE:
        return np.array(list(read_weights(Path("weights", f"{slug}.tsv"), count).values()))
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
    for (name, slug), combinations in SHOWN.items():
        own, _, trained = GROUPS[name]
        z = margins(outputs["fresh"][:, own], TEST_LABELS)
        for combination in combinations:
            weights = weights_of(f"{slug}.{combination}", len(own))
            bounds = np.mean(chebyshev_bounds(z, TEST_LABELS, weights), axis=1)
            line = table.loc[(name, combination)]
            found = line[["bound", "bound_minimum", "measured"]].to_numpy(float)
            np.testing.assert_allclose(found, bounds, rtol=0, atol=1e-8)
            assert (line["images"], line["members"]) == (10, trained)
            shown.append((name, combination))
    assert list(table.index) == shown
