"""The pictures of a study: ``rs.reporting.figures``."""

from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from rs.reporting import figures, report

METHODS = ["gaussian", "advmacer", "advmacer x1 + smoothadv x2", "macer x3"]
LIMIT = figures.Limit(1000, 0.001)
HEIGHTS = {0.25: np.linspace(0.9, 0.5, 11), 0.5: np.linspace(0.9, 0.0, 11)}


@pytest.fixture
def curves():
    """Single models and ensembles, which end at the largest possible radius or fade out before."""
    lines = []
    for sigma, heights in HEIGHTS.items():
        radius = np.linspace(0, LIMIT.radius(sigma), 11)
        for place, method in enumerate(METHODS):
            members = 1 if place < 2 else 3
            line = {"sigma": sigma, "method": method, "members": members, "radius": radius}
            lines.append(pd.DataFrame(line | {"accuracy": (heights - 0.05 * place).clip(0)}))
    return pd.concat(lines, ignore_index=True)


@pytest.fixture
def gains(curves):
    """Ensembles minus one model; the error over images and seeds is larger at radius 0 only."""
    points = curves[curves["members"] == 3].drop(columns=["members", "accuracy"])
    points = points.assign(single="gaussian", gain=0.01 * points["radius"], error_images=0.001)
    return points.assign(error=np.where(points["radius"] == 0, 0.002, np.nan))


def test_curves_and_what_ensembles_add_to_them_are_drawn(curves, gains):
    axes = figures.draw_certified_accuracy(curves, LIMIT, gains).axes
    assert [*lines_of(axes[0])] == [*METHODS[:2], "largest possible"]
    assert [*lines_of(axes[2])] == METHODS[2:]
    for axis, points, name in ((axes[0], curves, "accuracy"), (axes[2], gains, "gain")):
        assert axis.get_lines()[0].get_ydata().tolist() == points[name][:11].tolist()


def test_the_largest_possible_radius_is_marked(curves):
    """Clopper and Pearson's bound of 1,000 votes of 1,000 is 0.001^(1/1000)."""
    figure = figures.draw_certified_accuracy(curves, LIMIT)
    unit = NormalDist().inv_cdf(0.001 ** (1 / 1000))
    for axis, sigma in zip(figure.axes, (0.25, 0.5), strict=True):
        assert lines_of(axis)["largest possible"].get_xdata()[0] == pytest.approx(sigma * unit)


@pytest.mark.parametrize(("form", "begin"), [(report.png, b"\x89PNG"), (report.svg, b"<?xml")])
def test_the_same_numbers_give_the_same_bytes_without_a_date(form, begin):
    history = {"sigma": 0.5, "method": METHODS, "seconds": 10.0, "acr": 0.1, "error": np.nan}
    made = form(figures.draw_acr_over_time(pd.DataFrame(history)))
    assert made == form(figures.draw_acr_over_time(pd.DataFrame(history)))
    assert made.startswith(begin)
    assert b"dc:date" not in made


def lines_of(axis):
    """Lines of a panel by name, those with bars too."""
    named = zip(*axis.get_legend_handles_labels(), strict=True)
    return {name: getattr(line, "lines", [line])[0] for line, name in named}
