"""The pictures of a study: ``rs.reporting.figures``."""

from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from rs.reporting import figures, report
from tests.support.helpers import ROOT

METHODS = ["gaussian", "advmacer", "advmacer x1 + smoothadv x2", "macer x3"]
LIMIT = figures.Limit(1000, 0.001)
BY_COST = ["kind", "evaluations", "gain", "gain_error_images", "gain_error"]
HEIGHTS = {0.25: np.linspace(0.9, 0.5, 11), 0.5: np.linspace(0.9, 0.0, 11)}


@pytest.fixture
def curves():
    """Of single models and of ensembles: some that end at the largest possible radius, and some
    that fade out.
    """
    radius = {sigma: np.linspace(0, LIMIT.radius(sigma), 11) for sigma in HEIGHTS}
    lines = [
        {"sigma": sigma, "method": method, "members": 1 + 2 * (place > 1), "radius": radius[sigma]}
        | {"accuracy": (heights - 0.05 * place).clip(0)}
        for sigma, heights in HEIGHTS.items()
        for place, method in enumerate(METHODS)
    ]
    return pd.concat([pd.DataFrame(line) for line in lines], ignore_index=True)


@pytest.fixture
def gains(curves):
    """Of ensembles less one model, whose error over images and seeds is the larger one at the first
    radius only.
    """
    points = curves[curves["members"] == 3].drop(columns=["members", "accuracy"])
    error = np.where(points["radius"] == 0, 0.002, np.nan)
    return points.assign(
        single="gaussian", gain=0.01 * points["radius"], error_images=0.001, error=error
    )


@pytest.fixture
def history():
    lines = [
        pd.DataFrame({"sigma": 0.5, "method": method, "seconds": [10.0, 20.0], "acr": [0.1, 0.2]})
        for method in METHODS
    ]
    return pd.concat(lines, ignore_index=True).assign(error=float("nan"))


def names_in(axis):
    """Names of lines in the legend beside a panel, on one line each."""
    legend = axis.get_legend()
    return [text.get_text().replace("\n", " ") for text in legend.get_texts()] if legend else []


def note_of(figure):
    """What stands below the panels."""
    return figure._supxlabel.get_text().replace("\n", " ")


def bars_of(axis, at):
    """The ends of the error bars of a panel: 0 of those that lie, 1 of those that stand."""
    segments = [
        segment for bar in axis.collections for segment in bar.get_segments() if len(segment)
    ]
    return [segment[:, at].tolist() for segment in segments]


def test_curves_have_a_row_of_single_models_and_one_of_what_ensembles_add(curves, gains):
    axes = figures.draw_certified_accuracy(curves, LIMIT, gains).axes
    titles = ["σ = 0.25", "σ = 0.5"]
    assert [axis.get_title() for axis in axes] == [
        *titles,
        *(f"{title}, less gaussian" for title in titles),
    ]
    assert [names_in(axis) for axis in axes] == [
        [],
        [*METHODS[:2], "largest possible"],
        [],
        METHODS[2:],
    ]
    assert axes[0].get_lines()[0].get_ydata().tolist() == curves["accuracy"][:11].tolist()
    assert axes[2].get_lines()[0].get_ydata().tolist() == gains["gain"][:11].tolist()
    of_all = figures.draw_certified_accuracy(curves, None, gains.iloc[:0])
    assert (
        len(of_all.axes)
        == len(figures.draw_certified_accuracy(curves[curves["members"] == 1]).axes)
        == 2
    )
    assert "Bars" not in note_of(of_all)


def test_gains_have_bars_of_the_larger_error_each_line_at_its_own_radii(curves, gains):
    figure = figures.draw_certified_accuracy(curves, LIMIT, gains)
    first, *others = bars_of(figure.axes[2], 1)
    assert first == pytest.approx([-0.002, 0.002])
    assert [top - bottom for bottom, top in others] == pytest.approx([0.002] * 10)
    assert sorted(at for at, _ in bars_of(figure.axes[2], 0)) == pytest.approx(
        curves["radius"][:11].tolist()
    )
    assert "Bars: ± 1 standard error" in note_of(figure)


def test_the_largest_possible_radius_is_marked_and_explained(curves):
    """Clopper and Pearson's bound of 1,000 votes of 1,000 is 0.001^(1/1000)."""
    figure = figures.draw_certified_accuracy(curves, LIMIT)
    for axis, sigma in zip(figure.axes, (0.25, 0.5), strict=True):
        (mark,) = (line for line in axis.get_lines() if line.get_label() == "largest possible")
        assert mark.get_xdata()[0] == pytest.approx(
            sigma * NormalDist().inv_cdf(0.001 ** (1 / 1000)), rel=1e-9
        )
    assert "n = 1,000" in note_of(figure)
    assert "2.46 σ" in note_of(figure)
    assert "Dotted" not in note_of(figures.draw_certified_accuracy(curves))


def test_a_method_has_one_look_in_all_pictures_and_no_two_lines_look_alike(curves, gains, history):
    looks = {}
    for figure in (
        figures.draw_certified_accuracy(curves, gains=gains),
        figures.draw_acr_over_time(history),
    ):
        for axis in figure.axes:
            lines = lines_of(axis).items()
            here = {
                name: (line.get_color(), str(line._unscaled_dash_pattern)) for name, line in lines
            }
            assert len({dash for _, dash in here.values()}) == len(here)
            for name in METHODS[:2]:
                assert looks.setdefault(name, here.get(name, looks.get(name))) == here.get(
                    name, looks[name]
                )
    assert [looks[name][0] for name in METHODS[:2]] == [
        figures.COLOURS[name] for name in METHODS[:2]
    ]


def test_colours_are_of_the_palette_of_okabe_and_ito_and_grey():
    """Okabe & Ito (2008), Color Universal Design: seen as different by people with any kind of
    colour vision.
    """
    palette = {
        "#000000",
        "#e69f00",
        "#56b4e9",
        "#009e73",
        "#f0e442",
        "#0072b2",
        "#d55e00",
        "#cc79a7",
    }
    colours = [*figures.COLOURS.values(), figures.MIXED]
    muted = {
        "#882255",
        "#332288",
    }  # Paul Tol's: the palette has one colour left, a yellow that is faint on white
    assert set(colours) - palette - muted == {figures.COLOURS["gaussian"]}
    assert len(set(colours)) == len(colours)


def test_best_acrs_of_several_seeds_have_bars_of_their_errors(history):
    of_three = history["method"] == METHODS[0]
    (axis,) = figures.draw_acr_over_time(
        history.assign(error=np.where(of_three, 0.03, np.nan))
    ).axes
    assert np.allclose(bars_of(axis, 1), [[0.07, 0.13], [0.17, 0.23]])


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
    errors = ["error_images", "error"]
    differences = [
        ["gain", *(f"gain_{name}" for name in errors)],
        ["to_best", *(f"to_best_{name}" for name in errors)],
    ]
    return pd.DataFrame(
        points, columns=["sigma", "kind", "members", *differences[0], *differences[1]]
    )


def lines_of(axis):
    """Lines of a panel by name, those with bars too."""
    named = zip(*axis.get_legend_handles_labels(), strict=True)
    return {name: getattr(line, "lines", [line])[0] for line, name in named}


def test_differences_by_members_have_lines_through_means_and_bars_of_the_larger_error(by_members):
    """(0.005 + 0.045) / 2 = 0.025; both compositions keep their own marks."""
    axes = figures.draw_acr_by_members(by_members).axes
    assert [axis.get_title() for axis in axes] == ["σ = 0.5", "σ = 1.0"] * 2
    assert [axis.get_xticks().tolist() for axis in axes] == [[2, 3]] * 4
    assert [names_in(axis) for axis in axes] == [[], ["advmacer", "advmacer + smoothadv"]] * 2
    assert [axis.get_ylabel() for axis in axes[::2]] == [
        "ACR less its best member's",
        "ACR less its members' mean",
    ]
    lines = lines_of(axes[0])
    assert lines["advmacer"].get_ydata().tolist() == [0.01]
    assert lines["advmacer + smoothadv"].get_ydata().tolist() == pytest.approx([0.025])
    assert np.allclose(
        bars_of(axes[0], 1), [[0.0, 0.02], [-0.005, 0.015], [0.025, 0.065]], rtol=0, atol=1e-12
    )
    assert np.allclose(
        bars_of(axes[2], 1), [[0.018, 0.022], [0.008, 0.012], [0.047, 0.053]], rtol=0, atol=1e-12
    )


def test_acr_by_cost_has_the_gains_of_its_rows_by_kind_with_bars_of_the_larger_error():
    points = [
        ("advmacer", 200, np.nan, np.nan, np.nan),
        ("advmacer", 300, 0.05, 0.01, 0.02),
        ("advmacer", 200, 0.02, 0.01, np.nan),
        ("advmacer + smoothadv", 200, 0.01, 0.03, 0.02),
    ]
    by_cost = pd.concat(
        [pd.DataFrame(points, columns=BY_COST).assign(sigma=sigma) for sigma in (0.25, 0.5)]
    )
    figure = figures.draw_acr_by_cost(by_cost)
    assert [axis.get_title() for axis in figure.axes] == ["σ = 0.25", "σ = 0.5"]
    for axis in figure.axes:
        lines = lines_of(axis)
        assert lines["advmacer"].get_xydata().tolist() == [[200, 0.02], [300, 0.05]]
        assert lines["advmacer + smoothadv"].get_ydata().tolist() == [0.01]
        colours = {"advmacer": figures.COLOURS["advmacer"], "advmacer + smoothadv": figures.MIXED}
        assert {name: line.get_color() for name, line in lines.items()} == colours
        assert np.allclose(
            bars_of(axis, 1), [[0.01, 0.03], [0.03, 0.07], [-0.02, 0.04]], rtol=0, atol=1e-12
        )
    assert names_in(figure.axes[1]) == ["advmacer", "advmacer + smoothadv"]
    assert figure.get_suptitle().startswith("Below 0, one model with more draws has a larger ACR")


def test_legends_stand_beside_the_panels_and_within_the_picture():
    by_cost = pd.read_csv(ROOT / "reports/cifar10-cpu/equal-cost.csv")
    figure = figures.draw_acr_by_cost(
        by_cost.assign(gain=0.0, gain_error_images=0.01, gain_error=None)
    )
    figure.draw_without_rendering()
    rows = {}
    for axis in figure.axes:
        rows.setdefault(axis.get_subplotspec().rowspan.start, []).append(axis)
    for row in rows.values():
        (legend,) = (axis.get_legend() for axis in row if axis.get_legend())
        box = legend.get_window_extent()
        assert all(axis.get_window_extent().x1 < box.x0 for axis in row)
        assert box.x1 <= figure.bbox.x1
        assert {name for axis in row for name in lines_of(axis)} == set(names_in(row[-1]))


def test_acr_by_cost_is_drawn_where_no_ensemble_has_a_single_model_of_its_cost_beside_it():
    by_cost = pd.DataFrame([("macer", 110, None, None, None)], columns=BY_COST).assign(sigma=0.5)
    assert report.png(figures.draw_acr_by_cost(by_cost)).startswith(b"\x89PNG")
