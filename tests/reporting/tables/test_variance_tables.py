"""The theory of ensembles in tables: ``rs.reporting.tables.variance_tables``."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from rs.errors import InputError
from rs.reporting.results import grouped
from rs.reporting.tables import formatting, variance_tables
from rs.statistics import ensemble_variance
from rs.statistics.ensemble_weights import moments
from tests.support.ensemble_results import (
    ALL,
    AVERAGE,
    EMPTY,
    MIX_KIND,
    MIX_NAME,
    MIXED,
    PAIR,
    SINGLES,
    bound,
    ensemble,
    spread,
    texts,
)
from tests.support.tiny_study import result


def mixed(results, combination, spreads, bounds):
    return variance_tables.mixed_table(grouped(results), combination, spreads, bounds)


def theory(spreads, results):
    return variance_tables.theory_table(spreads, grouped(results))


def bounds_table(bounds, results):
    return variance_tables.bounds_table(bounds, grouped(results))


class TestMixed:
    @pytest.mark.parametrize(
        ("of_mixed", "of_single", "expected", "expectation"),
        [(0.9, 0.8, "yes", "met"), (0.7, 0.8, "no", "not met"), (0.8, 0.8, "neither", "open")],
    )
    def test_a_mixture_that_helped_meets_the_expectation_of_a_larger_bound(
        self, of_mixed, of_single, expected, expectation
    ):
        """MIX less AVERAGE is 0.2, 0.2, 0.2, 0.1: 0.175, seven times its error."""
        bounds = pd.DataFrame([bound(MIX_KIND, of_mixed), bound("advmacer x2", of_single)])
        (row,) = mixed(ALL, "average", EMPTY, bounds).data.to_dict("records")
        assert row["acr_difference"] == pytest.approx(0.175)
        assert (row["verdict"], row["expected"], row["expectation"]) == ("helped", expected, expectation)

    @pytest.mark.parametrize(
        ("radii", "verdict", "expectation"),
        [([1.2, 1.2, 1.3, 1.1], "tie", "open"), ([1.0, 1.0, 1.0, 1.0], "hurt", "not met")],
    )
    def test_a_tie_says_nothing_and_harm_contradicts_expected_help(self, radii, verdict, expectation):
        bounds = pd.DataFrame([bound(MIX_KIND, 0.9), bound("advmacer x2", 0.8)])
        results = [*SINGLES, AVERAGE, ensemble(MIXED, "average", radii)]
        table = mixed(results, "average", EMPTY, bounds)
        assert (table.data["verdict"][0], table.data["expectation"][0]) == (verdict, expectation)
        assert table.body[0][3].text.endswith("tie, images only") == (verdict == "tie")

    def test_only_bounds_of_the_same_combination_count(self):
        bounds = pd.DataFrame([bound(MIX_KIND, 0.9, "optimal"), bound("advmacer x2", 0.8, "optimal")])
        for given in (bounds, EMPTY):
            table = mixed(ALL, "average", EMPTY, given)
            assert texts(table)[0][4:] == ["helped"]

    def test_covariances_are_means_over_pairs_of_perturbed_members(self):
        """1 + 2 members: one pair within (0.04) and two across (0.01), mean 0.02; against 0.03 within."""
        three, mix = (("advmacer", 0), ("advmacer", 1), ("advmacer", 2)), (*MIXED, ("smoothadv", 1))
        results = [
            result(name, [1.0] * 4, seed=None, ensemble=name, combination="average", members=members)
            for name, members in (("advmacer x3", three), ("mix", mix))
        ]
        kind = "advmacer x1 + smoothadv x2"  # whatever it is called
        spreads = [spread(kind, within=0.04, across=0.01), spread("advmacer x3", within=0.03)]
        spreads += [spread(kind, "trained", within=9.0, across=9.0)]
        table = mixed(results, "average", pd.DataFrame(spreads[::-1]), EMPTY)
        assert table.body[0][-1].text == "0.0200, 0.0300 (-0.0100)"

    def test_only_ensembles_of_the_same_size_noise_and_methods_are_rivals(self):
        macer = (("macer", 0), ("macer", 1))
        triple = (*PAIR, ("advmacer", 2))
        others = [
            result("macer x2", [1.0] * 4, seed=None, ensemble="macer x2", combination="average", members=macer),
            result("advmacer x3", [1.0] * 4, seed=None, ensemble="advmacer x3", combination="average", members=triple),
            ensemble(PAIR, "average", [1.0] * 4, sigma=1.0),
        ]
        data = mixed([*ALL, *others], "average", EMPTY, EMPTY).data
        assert data[["sigma", "mixed", "single"]].to_numpy().tolist() == [[0.5, MIX_NAME, "advmacer 0-1"]]


class TestTheory:
    def test_the_bound_of_the_paper_and_the_variance_of_the_average_follow_from_the_means(self):
        """L = 2: bound 0.04 + (0.08 - 0.04) / 2 = 0.06; average (2 * 0.06 + 2 * 0.02) / 4 = 0.04."""
        table = theory(pd.DataFrame([spread("advmacer x2")]), ALL)
        assert dict(zip(table.header, texts(table)[0], strict=True)) == {
            "Ensemble": "advmacer 0-1",
            "σ": "0.5",
            "Source": "perturbed",
            "Images": "4",
            "Alpha": "0.0800",
            "Beta": "0.0400",
            "Variance": "0.0600",
            "Within": "0.0200",
            "Average": "0.0400",
            "Bound": "0.0600",
        }

    def test_the_variance_of_the_average_is_that_of_the_averaged_margins(self):
        """Against the definition, from margins of 3 members, 40 draws, 4 classes, y = 0."""
        rng = np.random.default_rng(0)
        margins = rng.normal(size=(3, 40, 4)) + rng.normal(size=(40, 4))
        margins[..., 0] = 0
        members = (*MIXED, ("smoothadv", 1))
        covariances = moments(margins).covariances
        means = ensemble_variance.mean_covariances(covariances, 0, [method for method, _ in members])
        constants = ensemble_variance.spread(covariances)
        kind = {"ensemble": "advmacer x1 + smoothadv x2", "members": "advmacer 0 + smoothadv 0-1"}
        row = {"sigma": 0.5, **kind, "source": "trained", "images": 1, **means._asdict()}
        row |= {"alpha": constants.alpha[1:].mean(), "beta": constants.beta[1:].mean()}
        mix = result("mix", [1.0] * 4, seed=None, ensemble="mix", combination="average", members=members)
        data = theory(pd.DataFrame([row]), [mix]).data
        expected = margins.mean(axis=0).var(axis=0)[1:].mean()
        assert data["average"][0] == pytest.approx(expected, rel=1e-12)
        assert data["average"][0] <= data["average_bound"][0]

    def test_no_numbers_give_empty_tables_that_can_be_written(self):
        for table in (theory(EMPTY, ALL), bounds_table(EMPTY, ALL)):
            assert table.body == []
            assert formatting.render("empty", table)

    def test_spreads_of_an_unknown_ensemble_are_refused(self):
        with pytest.raises(InputError, match=r"spreads of macer x9 at sigma 0\.5"):
            theory(pd.DataFrame([spread("macer x9")]), ALL)


class TestBounds:
    def test_the_share_of_votes_is_the_mean_over_images_with_votes(self):
        """n = 200: 150 / 200, 0, 200 / 200 and a shortcut: 0.583 over three images."""
        counts = ["0:150,1:50", "1:200", "0:200", "-"]
        voted = AVERAGE.rows.assign(counts=counts, mode=["certify"] * 3 + ["shortcut"], n=[200, 200, 200, 0])
        one = result("advmacer x2", [1.0], ensemble="advmacer x2", combination="average", members=PAIR)
        one = dataclasses.replace(one, rows=voted)
        table = bounds_table(pd.DataFrame([bound("advmacer x2", 0.4)]), [*SINGLES, one])
        assert texts(table)[0][4:] == ["0.400", "0.100", "0.950", "0.583", "3", "25.0%"]
        assert table.header[-2] == "Images with votes"
        assert variance_tables.SOME_VOTED in table.caption
        assert table.data["votes"][0] == pytest.approx((0.75 + 0 + 1) / 3)
        assert table.notes == [variance_tables.FIRST]
        whole = dataclasses.replace(one, rows=voted.assign(counts="0:200", mode="certify", n=200))
        every = bounds_table(pd.DataFrame([bound("advmacer x2", 0.4)]), [*SINGLES, whole])
        assert variance_tables.ALL_VOTED in every.caption
        assert "Images with votes" not in every.header

    def test_votes_that_nobody_certified_are_not_known(self):
        table = bounds_table(pd.DataFrame([bound("advmacer x2", 0.4, "mme")]), ALL)
        assert "Share of votes" not in table.header
        assert table.notes == [variance_tables.FIRST]


def test_the_caption_of_mixed_ensembles_says_images_subset_and_budget():
    assert "4 images (subset all), n₀ = 10, n = 200, α = 0.01." in mixed(ALL, "average", EMPTY, EMPTY).caption
