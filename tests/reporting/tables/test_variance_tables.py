"""The theory of ensembles in tables: ``rs.reporting.tables.variance_tables``."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rs.reporting.results import grouped
from rs.reporting.tables import formatting
from rs.reporting.tables.variance_tables import FIRST, bounds_table, theory_table
from rs.statistics import ensemble_variance
from rs.statistics.ensemble_weights import moments
from tests.support.ensemble_results import ALL, AVERAGE, SINGLES


def test_the_variance_of_the_average_is_that_of_the_averaged_margins():
    """Against the definition, from margins of 3 members, 40 draws, 4 classes, y = 0."""
    rng = np.random.default_rng(0)
    margins = rng.normal(size=(3, 40, 4)) + rng.normal(size=(40, 4))
    margins[..., 0] = 0
    methods = ["advmacer", "smoothadv", "smoothadv"]
    covariances = moments(margins).covariances
    means = ensemble_variance.mean_covariances(covariances, 0, methods)
    constants = ensemble_variance.spread(covariances)
    row = {"sigma": 0.5, "ensemble": "advmacer x1 + smoothadv x2", **means._asdict()}
    row |= {"alpha": constants.alpha[1:].mean(), "beta": constants.beta[1:].mean()}
    data = theory_table(pd.DataFrame([row])).data
    expected = margins.mean(axis=0).var(axis=0)[1:].mean()
    assert data["average"][0] == pytest.approx(expected, rel=1e-12)
    assert data["average"][0] <= data["average_bound"][0]


def test_no_numbers_give_empty_tables_that_can_be_written():
    for table in (theory_table(pd.DataFrame()), bounds_table(pd.DataFrame(), grouped(ALL))):
        assert table.body == []
        assert formatting.render("empty", table)


def test_the_share_of_votes_is_the_mean_over_images_with_votes():
    """n = 200: 150 / 200, 0, 200 / 200 and a shortcut: 0.583 over three images."""
    voted = AVERAGE.rows.assign(
        counts=["0:150,1:50", "1:200", "0:200", "-"],
        mode=["certify", "certify", "certify", "shortcut"],
        n=[200, 200, 200, 0],
    )
    row = {"sigma": 0.5, "members": AVERAGE.ensemble, "combination": "average", "bound": 0.4}
    table = bounds_table(pd.DataFrame([row]), grouped([*SINGLES, replace(AVERAGE, rows=voted)]))
    assert table.header[-2:] == ["Share of votes", "Images with votes"]
    assert table.body[0][-2:] == ["0.583", "3"]
    assert table.data["votes"][0] == pytest.approx((0.75 + 0 + 1) / 3)
    assert table.notes == [FIRST]
