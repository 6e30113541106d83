"""The theory of ensembles in tables: ``rs.reporting.tables.variance_tables``."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from rs.reporting.results import grouped
from rs.reporting.tables import formatting, variance_tables
from rs.reporting.tables.variance_tables import theory_table
from rs.statistics import ensemble_variance
from rs.statistics.ensemble_weights import moments
from tests.support.ensemble_results import (
    ALL,
    AVERAGE,
    EMPTY,
    MIXED,
    PAIR,
    SINGLES,
    bound,
    texts,
)
from tests.support.tiny_study import result


def bounds_table(bounds, results):
    return variance_tables.bounds_table(bounds, grouped(results))


class TestTheory:
    def test_the_variance_of_the_average_is_that_of_the_averaged_margins(self):
        """Against the definition, from margins of 3 members, 40 draws, 4 classes, y = 0."""
        rng = np.random.default_rng(0)
        margins = rng.normal(size=(3, 40, 4)) + rng.normal(size=(40, 4))
        margins[..., 0] = 0
        members = (*MIXED, ("smoothadv", 1))
        covariances = moments(margins).covariances
        means = ensemble_variance.mean_covariances(
            covariances, 0, [method for method, _ in members]
        )
        constants = ensemble_variance.spread(covariances)
        kind = {"ensemble": "advmacer x1 + smoothadv x2", "members": "advmacer 0 + smoothadv 0-1"}
        row = {"sigma": 0.5, **kind, "source": "trained", "images": 1, **means._asdict()}
        row |= {"alpha": constants.alpha[1:].mean(), "beta": constants.beta[1:].mean()}
        data = theory_table(pd.DataFrame([row])).data
        assert data["average"][0] == pytest.approx(
            margins.mean(axis=0).var(axis=0)[1:].mean(), rel=1e-12
        )
        assert data["average"][0] <= data["average_bound"][0]

    def test_no_numbers_give_empty_tables_that_can_be_written(self):
        for table in (theory_table(EMPTY), bounds_table(EMPTY, ALL)):
            assert table.body == []
            assert formatting.render("empty", table)


class TestBounds:
    def test_the_share_of_votes_is_the_mean_over_images_with_votes(self):
        """n = 200: 150 / 200, 0, 200 / 200 and a shortcut: 0.583 over three images."""
        counts = ["0:150,1:50", "1:200", "0:200", "-"]
        voted = AVERAGE.rows.assign(
            counts=counts, mode=["certify"] * 3 + ["shortcut"], n=[200, 200, 200, 0]
        )
        one = result(
            "advmacer x2", [1.0], ensemble="advmacer x2", combination="average", members=PAIR
        )
        one = dataclasses.replace(one, rows=voted)
        table = bounds_table(pd.DataFrame([bound("advmacer x2", 0.4)]), [*SINGLES, one])
        assert texts(table)[0][4:] == ["0.400", "0.100", "0.950", "0.583", "3", "25.0%"]
        assert table.header[-2] == "Images with votes"
        assert table.data["votes"][0] == pytest.approx((0.75 + 0 + 1) / 3)
        assert table.notes == [variance_tables.FIRST]
