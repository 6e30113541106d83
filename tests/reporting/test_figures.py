import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from rs.reporting import figures, report

ROOT = Path(__file__).parents[2]

METHODS = ["gaussian", "advmacer", "advmacer x1 + smoothadv x2", "macer x3"]


LIMIT = figures.Limit(1000, 0.001)
HEIGHTS = {0.25: np.linspace(0.9, 0.5, 11), 0.5: np.linspace(0.9, 0.0, 11)}


@pytest.fixture
def curves():
    """Of single models and of ensembles: some that end at the largest possible radius, and some that fade out."""
    radius = {sigma: np.linspace(0, LIMIT.radius(sigma), 11) for sigma in HEIGHTS}
    lines = [
        {"sigma": sigma, "method": method, "members": 1 + 2 * (place > 1), "radius": radius[sigma]}
        | {"accuracy": (heights - 0.05 * place).clip(0)}
        for sigma, heights in HEIGHTS.items()
        for place, method in enumerate(METHODS)
    ]
    return pd.concat([pd.DataFrame(line) for line in lines], ignore_index=True)


@pytest.fixture
def history():
    lines = [
        pd.DataFrame({"sigma": 0.5, "method": method, "seconds": [10.0, 20.0], "acr": [0.1, 0.2]}) for method in METHODS
    ]
    return pd.concat(lines, ignore_index=True).assign(error=float("nan"))


def drawn(axis):
    """The lines of a panel that are neither a mark, nor a grid line of one colour for all."""
    return [line for line in axis.get_lines() if line.get_marker() == "None" and line.get_color() != "#444444"]


def names_in(axis):
    """Names of lines in the legend beside a panel, on one line each."""
    legend = axis.get_legend()
    return [text.get_text().replace("\n", " ") for text in legend.get_texts()] if legend else []


def test_curves_have_a_row_of_single_models_and_one_of_the_largest_ensembles(curves):
    axes = figures.draw_certified_accuracy(curves, LIMIT).axes
    assert [axis.get_title() for axis in axes] == ["σ = 0.25", "σ = 0.5"] * 2
    limit = ["largest possible"]
    assert [names_in(axis) for axis in axes] == [[], METHODS[:2] + limit, [], METHODS[2:] + limit]
    assert drawn(axes[0])[0].get_ydata().tolist() == curves["accuracy"][:11].tolist()
    assert len(figures.draw_certified_accuracy(curves[curves["members"] == 1]).axes) == 2


def test_the_largest_possible_radius_is_marked_and_explained(curves):
    """Clopper and Pearson's bound of 1,000 votes of 1,000 is 0.001^(1/1000)."""
    figure = figures.draw_certified_accuracy(curves, LIMIT)
    for axis, sigma in zip(figure.axes, (0.25, 0.5), strict=False):
        (mark,) = (line for line in axis.get_lines() if line.get_color() == "#444444")
        assert mark.get_xdata()[0] == pytest.approx(sigma * NormalDist().inv_cdf(0.001 ** (1 / 1000)), rel=1e-9)
        assert mark.get_xdata()[0] < axis.get_xlim()[1]
    assert "n = 1,000" in note_of(figure)
    assert "2.46 σ" in note_of(figure)
    assert "Dotted" not in note_of(figures.draw_certified_accuracy(curves))


def note_of(figure):
    """What stands below the panels."""
    return figure._supxlabel.get_text().replace("\n", " ") if figure._supxlabel else ""


def test_a_method_has_one_look_in_all_pictures_and_no_two_lines_look_alike(curves, history):
    axes = [*figures.draw_certified_accuracy(curves).axes, *figures.draw_acr_over_time(history).axes]
    looks = {}
    for axis in axes:
        lines = [line for line in axis.get_lines() if line.get_drawstyle() != "default"]
        here = [(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines]
        assert len(set(here)) == len(here)
        for name, look in zip(METHODS if len(lines) == 4 else names_by_colour(lines), here, strict=True):
            assert looks.setdefault(name, look) == look
    assert looks["advmacer"][0] == figures.COLOURS["advmacer"]


def names_by_colour(lines):
    """The two names of a row of curves."""
    return METHODS[:2] if lines[0].get_color() == figures.COLOURS["gaussian"] else METHODS[2:]


def test_colours_are_of_the_palette_of_okabe_and_ito_and_grey():
    """Okabe & Ito (2008), Color Universal Design: seen as different by people with any kind of colour vision."""
    palette = {"#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}
    colours = [*figures.COLOURS.values(), figures.MIXED]
    assert set(colours) - palette == {figures.COLOURS["gaussian"]}
    assert len(set(colours)) == len(colours)


@pytest.mark.parametrize("template", ["certified", "label_probability", "equal_cost"])
def test_the_plots_of_dvc_have_the_colours_of_the_pictures(template):
    made = json.loads((ROOT / ".dvc" / "plots" / f"{template}.json").read_text())
    scale = made["spec"]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == figures.COLOURS | {"mixed": figures.MIXED}


def test_times_are_drawn_in_a_unit_that_suits_them(history):
    for factor, unit in ((1, "seconds"), (60, "minutes"), (3600, "hours")):
        (axis,) = figures.draw_acr_over_time(history.assign(seconds=factor * history["seconds"])).axes
        assert axis.get_xlabel() == f"training time ({unit})"
        assert axis.get_lines()[0].get_xdata().tolist() == [10.0, 20.0]


def test_best_acrs_of_several_seeds_have_bars_of_their_errors(history):
    of_three = history["method"] == METHODS[0]
    (axis,) = figures.draw_acr_over_time(history.assign(error=np.where(of_three, 0.03, np.nan))).axes
    (bars,) = axis.collections
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [
        pytest.approx([0.07, 0.13]), pytest.approx([0.17, 0.23])
    ]  # fmt: skip
    assert "standard errors over training seeds" in note_of(axis.figure)
    assert "seeds" not in note_of(figures.draw_acr_over_time(history))


def test_the_scale_of_best_acrs_wastes_no_more_than_a_quarter_of_the_height(history):
    (axis,) = figures.draw_acr_over_time(history).axes
    low, high = axis.get_ylim()
    assert history["acr"].max() - history["acr"].min() > 0.75 * (high - low)
    assert "does not begin at 0" in note_of(axis.figure)


@pytest.mark.parametrize("form", [report.png, report.svg])
def test_the_same_numbers_give_the_same_bytes(curves, form):
    assert form(figures.draw_certified_accuracy(curves)) == form(figures.draw_certified_accuracy(curves))


def test_pictures_are_of_their_kind_and_say_no_date(curves):
    figure = figures.draw_certified_accuracy(curves)
    assert report.png(figure).startswith(b"\x89PNG")
    assert b"<svg" in report.svg(figure)
    assert b"dc:date" not in report.svg(figure)


@pytest.fixture
def by_members():
    points = [
        (0.5, "advmacer", 1, 0.70, 0.01, 0.005, np.nan, np.nan, np.nan),
        (0.5, "advmacer", 2, 0.72, 0.01, np.nan, 0.02, 0.002, np.nan),
        (0.5, "advmacer + smoothadv", 3, 0.71, 0.005, 0.01, 0.01, 0.001, 0.002),
        (0.5, "advmacer + smoothadv", 3, 0.75, 0.01, 0.02, 0.05, 0.003, 0.002),
        (1.0, "advmacer", 1, 0.80, 0.01, 0.01, np.nan, np.nan, np.nan),
        (1.0, "advmacer", 2, 0.82, 0.01, 0.01, 0.02, 0.001, 0.001),
    ]
    errors = ["error_images", "error"]
    columns = ["sigma", "kind", "members", "acr", *errors, "gain", *(f"gain_{name}" for name in errors)]
    return pd.DataFrame(points, columns=columns)


def lines_of(axis):
    return {line.get_label(): line for line in axis.get_lines() if not line.get_label().startswith("_")}


def test_acr_by_members_has_a_panel_for_each_noise_level_and_whole_numbers_of_members(by_members):
    axes = figures.draw_acr_by_members(by_members).axes
    assert [axis.get_title() for axis in axes] == ["σ = 0.5", "σ = 1.0"] * 2
    assert [axis.get_xticks().tolist() for axis in axes] == [[1, 2, 3]] * 4


def test_a_line_runs_through_the_mean_of_compositions_of_one_size(by_members):
    """(0.71 + 0.75) / 2 = 0.73; both compositions keep their own marks."""
    axis = figures.draw_acr_by_members(by_members).axes[0]
    lines = lines_of(axis)
    assert lines["advmacer"].get_ydata().tolist() == [0.70, 0.72]
    assert lines["advmacer + smoothadv"].get_ydata().tolist() == pytest.approx([0.73])
    marks = [line.get_ydata().tolist() for line in axis.get_lines() if line.get_marker() == "D"]
    assert marks == [[0.71, 0.75]]


def test_error_bars_are_one_error_long_on_either_side_the_larger_of_both(by_members):
    axis = figures.draw_acr_by_members(by_members).axes[0]
    bars = [segment[:, 1].tolist() for bar in axis.collections for segment in bar.get_segments()]
    assert np.allclose(bars, [[0.69, 0.71], [0.71, 0.73], [0.70, 0.72], [0.73, 0.77]], rtol=0, atol=1e-12)


def test_gains_over_the_members_have_bars_of_their_own_and_one_scale(by_members):
    figure = figures.draw_acr_by_members(by_members)
    gains = figure.axes[2:]
    bars = [segment[:, 1].tolist() for bar in gains[0].collections for segment in bar.get_segments()]
    assert np.allclose(bars, [[0.018, 0.022], [0.008, 0.012], [0.047, 0.053]], rtol=0, atol=1e-12)
    assert gains[0].get_ylim() == gains[1].get_ylim()
    assert gains[0].get_ylim()[0] < 0
    assert "standard error over images" in note_of(figure)


@pytest.fixture
def differences():
    rows = [
        (0.5, "stability", "gaussian", 0.02, 0.001, np.nan, False),
        (0.5, "advmacer", "gaussian", 0.03, 0.001, 0.002, False),
        (0.5, "macer x3", "gaussian", 0.01, 0.02, np.nan, True),
        (0.5, "gaussian", "advmacer", -0.03, 0.001, 0.002, False),
        (0.5, "stability", "advmacer", -0.01, 0.001, np.nan, False),
        (0.5, "macer x3", "advmacer", -0.02, 0.004, 0.003, False),
    ]
    return pd.DataFrame(rows, columns=["sigma", "method", "reference", "difference", "error_images", "error", "tie"])


def test_differences_have_bars_of_their_own_and_ties_are_hollow(differences):
    axes = figures.draw_differences(differences).axes
    assert [axis.get_xlabel() for axis in axes] == ["ACR less that of gaussian", "ACR less that of advmacer"]
    names = [label.get_text() for label in axes[0].get_yticklabels()]
    assert names == ["gaussian", "stability", "advmacer", "macer x3"]
    bars = [segment[:, 0].tolist() for bar in axes[0].collections for segment in bar.get_segments()]
    assert np.allclose(bars, [[0.019, 0.021], [0.028, 0.032], [-0.01, 0.03]], rtol=0, atol=1e-12)
    faces = [line.get_markerfacecolor() for line in axes[0].get_lines() if line.get_marker() != "None"]
    assert faces == [figures.COLOURS["stability"], figures.COLOURS["advmacer"], "white"]


def test_one_method_is_solid_in_its_colour_and_a_mixture_dashed(by_members):
    lines = lines_of(figures.draw_acr_by_members(by_members).axes[0])
    assert (lines["advmacer"].get_linestyle(), lines["advmacer"].get_color()) == ("-", figures.COLOURS["advmacer"])
    assert lines["advmacer + smoothadv"].get_linestyle() != "-"


def test_each_kind_of_a_row_is_named_in_its_legend(by_members):
    axes = figures.draw_acr_by_members(by_members).axes
    assert [names_in(axis) for axis in axes] == [[], ["advmacer", "advmacer + smoothadv"]] * 2


@pytest.fixture
def probabilities():
    """Lines that rise one after the other, of single models and of ensembles of two and three."""
    p = np.linspace(0.01, 0.999, 100)
    sizes = {name: 1 + int(name[-1] == "2") + 2 * int(name[-1] == "3") for name in METHODS}
    lines = [
        pd.DataFrame({"sigma": sigma, "method": method, "members": size, "p": p, "share": p ** (2 + k)})
        for sigma in (0.25, 0.5)
        for k, (method, size) in enumerate(sizes.items())
    ]
    return pd.concat(lines, ignore_index=True)


@pytest.fixture
def by_cost():
    points = [
        ("advmacer", "advmacer", 1, 100, 0.40),
        ("advmacer", "advmacer", 1, 200, 0.50),
        ("smoothadv", "smoothadv", 1, 100, 0.41),
        ("smoothadv", "smoothadv", 1, 200, 0.51),
        ("advmacer", "advmacer x2", 2, 200, 0.43),
        ("advmacer", "advmacer x2", 2, 400, 0.53),
        ("advmacer", "advmacer x2 (cascade)", 2, 150, 0.45),
        ("advmacer", "advmacer x2 (cascade)", 2, 250, 0.52),
        ("advmacer + smoothadv", "advmacer x1 + smoothadv x2", 3, 300, 0.42),
        ("advmacer + smoothadv", "advmacer x1 + smoothadv x2", 3, 600, 0.54),
    ]
    columns = ["kind", "method", "members", "evaluations", "acr"]
    return pd.concat([pd.DataFrame(points, columns=columns).assign(sigma=sigma) for sigma in (0.25, 0.5)])


def test_probabilities_of_labels_have_a_row_of_models_and_one_of_the_largest_ensembles(probabilities):
    axes = figures.draw_label_probability(probabilities).axes
    assert [axis.get_title() for axis in axes] == ["σ = 0.25", "σ = 0.5"] * 2
    assert [names_in(axis) for axis in axes[1::2]] == [METHODS[:2], METHODS[3:]]
    curve = axes[0].get_lines()[0]
    assert curve.get_ydata().tolist() == probabilities["share"][:100].tolist()
    alone = figures.draw_label_probability(probabilities[probabilities["members"] == 1])
    assert len(alone.axes) == 2


def test_acr_by_cost_has_a_panel_for_each_noise_level_and_kind_with_its_single_models(by_cost):
    axes = figures.draw_acr_by_cost(by_cost).axes
    kinds = ["advmacer", "advmacer + smoothadv"]
    assert [axis.get_title() for axis in axes] == [f"{kind}, σ = {s}" for kind in kinds for s in (0.25, 0.5)]
    names = [list(lines_of(axis)) for axis in axes[::2]]
    assert names == [
        ["advmacer", "advmacer x2", "advmacer x2 (cascade)"],
        ["advmacer", "smoothadv", "advmacer x1 + smoothadv x2"],
    ]
    assert [names_in(axis) for axis in axes[1::2]] == names
    assert axes[0].get_ylim() == axes[2].get_ylim()


@pytest.mark.parametrize("dataset", ["cifar10-cpu", "digits"])
@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("curves", lambda frame: figures.draw_certified_accuracy(frame, LIMIT)),
        ("p-lower", lambda frame: figures.draw_label_probability(frame, LIMIT)),
        ("acr-vs-members", figures.draw_acr_by_members),
        ("times/acr-vs-time", figures.draw_acr_over_time),
        ("equal-cost", figures.draw_acr_by_cost),
    ],
)
def test_legends_stand_beside_the_panels_and_within_the_picture(dataset, name, draw):
    """And a legend names every line of its row."""
    figure = draw(pd.read_csv(ROOT / "reports" / dataset / f"{name}.csv"))
    figure.draw_without_rendering()
    rows = {}
    for axis in figure.axes:
        rows.setdefault(axis.get_subplotspec().rowspan.start, []).append(axis)
    for row in rows.values():
        (legend,) = (axis.get_legend() for axis in row if axis.get_legend())
        box = legend.get_window_extent()
        assert all(axis.get_window_extent().x1 < box.x0 for axis in row)
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= row[-1].get_window_extent().y0
        assert {name for axis in row for name in lines_of(axis)} == set(names_in(row[-1]))


def test_lines_of_a_panel_differ_without_colours(curves, probabilities, by_cost):
    pictures = (
        figures.draw_certified_accuracy(curves),
        figures.draw_label_probability(probabilities),
        figures.draw_acr_by_cost(by_cost),
    )
    for axis in [axis for picture in pictures for axis in picture.axes]:
        lines = [line for line in axis.get_lines() if len(line.get_xdata()) > 1]
        dashes = [str(line._unscaled_dash_pattern) for line in lines]
        assert len(set(dashes)) == len(dashes) > 0
