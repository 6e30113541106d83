import numpy as np
import pandas as pd
import pytest

from rs.reporting import figures

METHODS = ["gaussian", "advmacer", "advmacer x1 + smoothadv x2", "macer x3"]


@pytest.fixture
def curves():
    radius = np.linspace(0, 1, 11)
    lines = [
        pd.DataFrame({"sigma": sigma, "method": method, "radius": radius, "accuracy": 0.9 - 0.5 * radius})
        for sigma in (0.25, 0.5)
        for method in METHODS
    ]
    return pd.concat(lines, ignore_index=True)


@pytest.fixture
def history():
    lines = [
        pd.DataFrame({"sigma": 0.5, "method": method, "seconds": [10.0, 20.0], "acr": [0.1, 0.2]}) for method in METHODS
    ]
    return pd.concat(lines, ignore_index=True)


def test_there_is_a_panel_for_each_noise_level_and_a_line_for_each_method(curves):
    axes = figures.certified_accuracy(curves).axes
    assert [axis.get_title() for axis in axes] == ["σ = 0.25", "σ = 0.5"]
    for axis in axes:
        assert [line.get_label() for line in axis.get_lines()] == METHODS
        assert axis.get_lines()[0].get_ydata().tolist() == curves["accuracy"][:11].tolist()


def test_a_method_has_one_colour_in_all_pictures_and_no_two_lines_look_alike(curves, history):
    looks = [
        {line.get_label(): (line.get_color(), line.get_linestyle()) for line in axis.get_lines()}
        for axis in (*figures.certified_accuracy(curves).axes, *figures.acr_over_time(history).axes)
    ]
    assert looks[0] == looks[1] == looks[2]
    assert len(set(looks[0].values())) == len(METHODS)
    assert looks[0]["advmacer"][0] == figures.COLOURS["advmacer"]


def test_the_legend_names_each_method_once_and_fits_in_the_picture(curves):
    figure = figures.certified_accuracy(curves)
    figures.png(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == METHODS
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_times_are_drawn_in_a_unit_that_suits_them(history):
    for factor, unit in ((1, "seconds"), (60, "minutes"), (3600, "hours")):
        (axis,) = figures.acr_over_time(history.assign(seconds=factor * history["seconds"])).axes
        assert axis.get_xlabel() == f"training time ({unit})"
        assert axis.get_lines()[0].get_xdata().tolist() == [10.0, 20.0]


@pytest.mark.parametrize("form", [figures.png, figures.svg])
def test_the_same_numbers_give_the_same_bytes(curves, form):
    assert form(figures.certified_accuracy(curves)) == form(figures.certified_accuracy(curves))


def test_pictures_are_of_their_kind_and_say_no_date(curves):
    figure = figures.certified_accuracy(curves)
    assert figures.png(figure).startswith(b"\x89PNG")
    assert b"<svg" in figures.svg(figure)
    assert b"dc:date" not in figures.svg(figure)


@pytest.fixture
def by_members():
    points = [
        (0.5, "advmacer", 1, 0.70, 0.01, 0.005),
        (0.5, "advmacer", 2, 0.72, 0.01, np.nan),
        (0.5, "advmacer + smoothadv", 3, 0.71, 0.005, 0.01),
        (0.5, "advmacer + smoothadv", 3, 0.75, 0.01, 0.02),
        (1.0, "advmacer", 1, 0.80, 0.01, 0.01),
    ]
    return pd.DataFrame(points, columns=["sigma", "kind", "members", "acr", "error_images", "error"])


def lines_of(axis):
    return {line.get_label(): line for line in axis.get_lines() if not line.get_label().startswith("_")}


def test_acr_by_members_has_a_panel_for_each_noise_level_and_whole_numbers_of_members(by_members):
    axes = figures.acr_by_members(by_members).axes
    assert [axis.get_title() for axis in axes] == ["σ = 0.5", "σ = 1.0"]
    assert [axis.get_xticks().tolist() for axis in axes] == [[1, 2, 3], [1]]


def test_a_line_runs_through_the_mean_of_compositions_of_one_size(by_members):
    """(0.71 + 0.75) / 2 = 0.73; both compositions keep their own marks."""
    axis = figures.acr_by_members(by_members).axes[0]
    lines = lines_of(axis)
    assert lines["advmacer"].get_ydata().tolist() == [0.70, 0.72]
    assert lines["advmacer + smoothadv"].get_ydata().tolist() == pytest.approx([0.73])
    marks = [line.get_ydata().tolist() for line in axis.get_lines() if line.get_marker() == "D"]
    assert marks == [[0.71, 0.75]]


def test_error_bars_are_one_error_long_on_either_side_the_larger_of_both(by_members):
    axis = figures.acr_by_members(by_members).axes[0]
    bars = [segment[:, 1].tolist() for bar in axis.collections for segment in bar.get_segments()]
    assert np.allclose(bars, [[0.69, 0.71], [0.71, 0.73], [0.70, 0.72], [0.73, 0.77]], rtol=0, atol=1e-12)


def test_one_method_is_solid_in_its_colour_and_a_mixture_dashed(by_members):
    lines = lines_of(figures.acr_by_members(by_members).axes[0])
    assert (lines["advmacer"].get_linestyle(), lines["advmacer"].get_color()) == ("-", figures.COLOURS["advmacer"])
    assert lines["advmacer + smoothadv"].get_linestyle() != "-"


def test_the_legend_of_acr_by_members_names_each_kind_once(by_members):
    (legend,) = figures.acr_by_members(by_members).legends
    assert [text.get_text() for text in legend.get_texts()] == ["advmacer", "advmacer + smoothadv"]


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


def texts_within(figure):
    """The boxes of what is written into each panel, after it is drawn."""
    figures.png(figure)
    return [(axis.get_window_extent(), [text.get_window_extent() for text in axis.texts]) for axis in figure.axes]


def test_probabilities_of_labels_have_a_row_of_models_and_one_of_the_largest_ensembles(probabilities):
    axes = figures.label_probability(probabilities).axes
    assert [axis.get_title() for axis in axes] == ["σ = 0.25", "σ = 0.5"] * 2
    assert [[text.get_text() for text in axis.texts] for axis in axes[::2]] == [METHODS[:2], METHODS[3:]]
    curve = axes[0].get_lines()[0]
    assert curve.get_ydata().tolist() == probabilities["share"][:100].tolist()
    alone = figures.label_probability(probabilities[probabilities["members"] == 1])
    assert len(alone.axes) == 2


def test_a_name_stands_left_of_all_lines_and_its_dot_on_its_own(probabilities):
    axis = figures.label_probability(probabilities).axes[0]
    lines = [line for line in axis.get_lines() if line.get_marker() == "None"]
    dots = [line.get_xydata()[0] for line in axis.get_lines() if line.get_marker() == "o"]
    for line, (x, y), text in zip(lines, dots, axis.texts, strict=True):
        at = line.get_xdata().searchsorted(x)
        assert line.get_ydata()[at - 1] < y <= line.get_ydata()[at]
        assert all(other.get_ydata()[other.get_xdata() <= text.xyann[0]].max() < y for other in lines)


def test_acr_by_cost_has_a_panel_for_each_noise_level_and_kind_with_its_single_models(by_cost):
    axes = figures.acr_by_cost(by_cost).axes
    kinds = ["advmacer", "advmacer + smoothadv"]
    assert [axis.get_title() for axis in axes] == [f"{kind}, σ = {s}" for s in (0.25, 0.5) for kind in kinds]
    names = [list(lines_of(axis)) for axis in axes[:2]]
    assert names == [
        ["advmacer", "advmacer x2", "advmacer x2 (cascade)"],
        ["advmacer", "smoothadv", "advmacer x1 + smoothadv x2"],
    ]
    written = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in axes[:2]]
    assert written == [["x1", "x2", "x2 (cascade)"], ["advmacer", "smoothadv", "1+2"]]


def test_no_name_lies_on_another_or_leaves_its_panel(probabilities):
    for panel, boxes in texts_within(figures.label_probability(probabilities)):
        assert all(panel.x0 <= box.x0 and box.x1 <= panel.x1 and box.y1 <= panel.y1 for box in boxes)
        assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


@pytest.mark.parametrize("draw", ["label_probability", "acr_by_cost"])
def test_lines_of_a_panel_differ_without_colours(probabilities, by_cost, draw):
    made = figures.label_probability(probabilities) if draw == "label_probability" else figures.acr_by_cost(by_cost)
    for axis in made.axes:
        dashes = [str(line._unscaled_dash_pattern) for line in axis.get_lines() if line.get_marker() == "None"]
        assert len(set(dashes)) == len(dashes) > 0
