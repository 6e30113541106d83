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


@pytest.fixture
def history():
    lines = []
    for method in METHODS:
        line = {"sigma": 0.5, "method": method, "seconds": [10.0, 20.0], "acr": [0.1, 0.2]}
        lines.append(pd.DataFrame(line))
    return pd.concat(lines, ignore_index=True).assign(error=float("nan"))


def names_in(axis):
    """Names of lines in the legend beside a panel, on one line each."""
    legend = axis.get_legend()
    return [text.get_text().replace("\n", " ") for text in legend.get_texts()] if legend else []


def bars_of(axis, at):
    """The ends of the error bars of a panel: 0 of those that lie, 1 of those that stand."""
    segments = [
        segment for bar in axis.collections for segment in bar.get_segments() if len(segment)
    ]
    return [segment[:, at].tolist() for segment in segments]


def test_curves_have_a_row_of_single_models_and_one_of_what_ensembles_add(curves, gains):
    axes = figures.draw_certified_accuracy(curves, LIMIT, gains).axes
    names = [[], [*METHODS[:2], "largest possible"], [], METHODS[2:]]
    assert [names_in(axis) for axis in axes] == names
    assert axes[0].get_lines()[0].get_ydata().tolist() == curves["accuracy"][:11].tolist()
    assert axes[2].get_lines()[0].get_ydata().tolist() == gains["gain"][:11].tolist()
    assert len(figures.draw_certified_accuracy(curves, None, gains.iloc[:0]).axes) == 2


def test_the_largest_possible_radius_is_marked_and_explained(curves):
    """Clopper and Pearson's bound of 1,000 votes of 1,000 is 0.001^(1/1000)."""
    figure = figures.draw_certified_accuracy(curves, LIMIT)
    unit = NormalDist().inv_cdf(0.001 ** (1 / 1000))
    for axis, sigma in zip(figure.axes, (0.25, 0.5), strict=True):
        assert lines_of(axis)["largest possible"].get_xdata()[0] == pytest.approx(sigma * unit)
    note = figure._supxlabel.get_text()
    assert "n = 1,000" in note
    assert f"{unit:.2f} σ" in note


def test_the_same_numbers_give_the_same_bytes_without_a_date(history):
    for form, begin in ((report.png, b"\x89PNG"), (report.svg, b"<?xml")):
        made = [form(figures.draw_acr_over_time(history)) for _ in range(2)]
        assert made[0] == made[1]
        assert made[0].startswith(begin)
        assert b"dc:date" not in made[0]


@pytest.fixture
def by_members():
    points = [
        (0.5, "advmacer", 1, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan),
        (0.5, "advmacer", 2, 0.02, 0.002, np.nan, 0.01, 0.01, np.nan),
        (0.5, "advmacer + smoothadv", 3, 0.01, 0.001, 0.002, 0.005, 0.005, 0.01),
        (0.5, "advmacer + smoothadv", 3, 0.05, 0.003, 0.002, 0.045, 0.01, 0.02),
        (1.0, "advmacer", 1, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan),
        (1.0, "advmacer", 2, 0.02, 0.001, 0.001, 0.01, 0.01, 0.01),
    ]
    columns = ["sigma", "kind", "members", "gain", "gain_error_images", "gain_error"]
    columns += ["to_best", "to_best_error_images", "to_best_error"]
    return pd.DataFrame(points, columns=columns)


def lines_of(axis):
    """Lines of a panel by name, those with bars too."""
    named = zip(*axis.get_legend_handles_labels(), strict=True)
    return {name: getattr(line, "lines", [line])[0] for line, name in named}


def test_differences_by_members_have_lines_through_means_and_bars_of_the_larger_error(by_members):
    """(0.005 + 0.045) / 2 = 0.025; both compositions keep their own marks."""
    axes = figures.draw_acr_by_members(by_members).axes
    assert [axis.get_xticks().tolist() for axis in axes] == [[2, 3]] * 4
    lines = lines_of(axes[0])
    assert lines["advmacer"].get_ydata().tolist() == [0.01]
    assert lines["advmacer + smoothadv"].get_ydata().tolist() == pytest.approx([0.025])
    best = [[0.0, 0.02], [-0.005, 0.015], [0.025, 0.065]]
    assert np.allclose(bars_of(axes[0], 1), best, rtol=0, atol=1e-12)
    gain = [[0.018, 0.022], [0.008, 0.012], [0.047, 0.053]]
    assert np.allclose(bars_of(axes[2], 1), gain, rtol=0, atol=1e-12)
