"""The tables of ensembles: ``rs.reporting.tables.ensemble_tables``."""

from dataclasses import replace

import numpy as np
import pytest

from rs.reporting.results import grouped
from rs.reporting.tables import ensemble_tables, notes
from rs.reporting.tables.formatting import SEEDS_NOT_COVERED
from rs.statistics import metrics
from rs.statistics.comparison import estimate
from rs.statistics.resampling import with_fewer_draws
from rs.study.ensembles import composition
from tests.support.ensemble_results import (
    ALL,
    AVERAGE,
    MIX_NAME,
    MIXED,
    MODELS,
    OF_TWO,
    ONE_OF_EACH,
    PAIRS,
    SEEDS,
    SINGLES,
    TRIO,
    cell,
    ensemble,
    family,
    higher,
    sample_of,
)
from tests.support.helpers import refuses
from tests.support.tiny_study import N0, N, cell_rows, ensemble_rows, result


def ensembles(results):
    return ensemble_tables.ensembles_table(grouped(results), 0.5)


def weighting(results):
    return ensemble_tables.weighting_table(grouped(results), 0.5, {})


def sizes(results):
    return ensemble_tables.acr_by_size(grouped(results), "average")


def test_an_ensemble_is_compared_with_the_mean_of_its_members_the_best_and_the_default():
    """To the mean: 0.3, deviations 0.1 each, error 0.1 sqrt(4 / 3 / 4) = 0.058. To the default:
    twice -0.2.
    """
    table = ensembles(ALL)

    def shown(column, combination="average"):
        where = {"ensemble": "advmacer 0-1", "combination": combination}
        return cell(table, column, **where).strip("*")

    assert shown("ACR") == "1.2000 ± 0.0000"
    assert shown("minus members' mean") == f"+0.3000 ± 0.0577 {SEEDS_NOT_COVERED}"
    assert shown("minus best member") == f"+0.2000 ± 0.0000 {SEEDS_NOT_COVERED}"
    assert shown("minus average") == "–"
    assert shown("minus average", "optimal") == f"-0.1000 ± 0.0577 tie, {SEEDS_NOT_COVERED}"


def test_best_and_ties_are_bold_and_the_unsound_never_is():
    """MIX (1.375) beats the average by 0.2, 0.2, 0.2, 0.1: 0.175 with error 0.05 / 2, t = 7 of 3:
    no tie.
    """
    table = ensembles(ALL)
    assert table.data["best"].tolist() == [False, False, False, True]
    assert [row[4].startswith("**") for row in table.body] == [False, False, False, True]
    assert cell(table, "Combination", combination="per-image").strip("*") == "per-image †"
    assert notes.UNSOUND_NOTE in table.notes
    close = ensemble(MIXED, "average", [1.3, 1.3, 1.2, 1.1])  # beats by 0.1, 0.1, 0, -0.1: a tie
    assert ensembles([*SINGLES, AVERAGE, close]).data["best"].tolist() == [True, True]


def test_an_ensemble_without_its_members_is_refused_by_name():
    with refuses("must come with the results of all members, missing: advmacer-1"):
        ensembles([SINGLES[0], AVERAGE])


def test_members_evaluated_on_a_draw_are_counted_of_a_cascade_and_all_of_any_other():
    """Two cascades of four images: one evaluation a draw; one, but two on one of the images: 1,
    1.25, mean 1.12.
    """
    counted = []
    cascades = family(PAIRS[:2], higher(0.5), "cascade", scope="noisy-input")
    for one, members in zip(cascades, ([1, 1, 1, 1], [1, 1, 1, 2]), strict=True):
        rows = one.rows.assign(evaluations=(one.rows["n0"] + one.rows["n"]) * members)
        counted.append(replace(one, rows=rows))
    table = weighting([*MODELS, *OF_TWO[:2], *counted])
    assert table.data["members_per_draw"].tolist() == [2.0, 1.125]


def test_seeds_that_one_method_alone_has_leave_with_the_members_of_their_sub_ensembles():
    """SmoothAdv has a fourth seed: without it, what is left is the same study of three seeds on
    both sides. Every ensemble is half better than its members, whatever seed is left out.
    """
    scores = TRIO | {("smoothadv", 3): [0.9, 0.9, 0.7, 0.9]}
    more = [*MODELS, result("smoothadv", scores["smoothadv", 3], seed=3)]
    for pair in [*ONE_OF_EACH, *((("advmacer", seed), ("smoothadv", 3)) for seed in SEEDS)]:
        own = np.mean([scores[one] for one in pair], axis=0) + 0.5
        more.append(ensemble(pair, "average", own, name=composition(pair)))
    row = ensembles(more).data.iloc[0]
    numbers = [row[f"members_{name}"] for name in ("difference", "error_images", "error")]
    assert numbers == pytest.approx([0.5, 0, 0], abs=1e-9)


def test_the_reference_is_of_the_same_members_under_whatever_name():
    """By seeds (1, 2) only MME is declared: its reference is that sub-ensemble of the family,
    4.075.
    """
    table = ensembles([*MODELS, *OF_TWO, ensemble(PAIRS[2], "mme", [4.1, 4.0, 4.1, 4.2])])
    row = table.data[table.data["combination"] == "mme"].iloc[0]
    assert row["reference_difference"] == pytest.approx(4.1 - 4.075)


def test_a_family_is_compared_with_the_reference_only_where_all_its_members_have_it():
    more = family(PAIRS, higher(0.7), "optimal")
    shown = cell(ensembles([*MODELS, *OF_TWO, *more]), "minus average", combination="optimal")
    assert shown.strip("*").startswith("+0.2667 ± 0.0000 [")  # .2, .2 and .4
    assert "minus average" not in ensembles([*MODELS, *OF_TWO[:2], *more]).header


def test_sizes_have_one_point_a_kind_that_of_the_most_sub_ensembles_with_both_errors():
    """The pair (0, 1) is declared by its seeds as well, before or after the family."""
    one = ensemble(PAIRS[0], "average", [9.0] * 4)
    pairs = estimate(sample_of(PAIRS, [higher(0.5)(own) for own in PAIRS]))
    for results in ([*MODELS, one, *OF_TWO], [*MODELS, *OF_TWO, one]):
        frame = sizes(results)
        assert frame["ensemble"].tolist() == ["advmacer x1", "advmacer x2"]
        assert frame["error"][1] == pairs.error
        assert frame["error_images"][1] == pairs.error_images


def test_one_member_is_the_mean_over_seeds_of_each_method_in_an_ensemble():
    """The gains of the pair are those of the first test."""
    frame = sizes([*ALL, result("macer", [1.0] * 4)])
    named = ["advmacer x1", "smoothadv x1", "advmacer 0-1", MIX_NAME]
    assert frame["ensemble"].tolist() == named
    assert frame["acr"].tolist() == pytest.approx([0.9, 0.5, 1.2, 1.375])
    gains = ["gain", "gain_error_images", "to_best", "to_best_error_images"]
    assert frame[gains][:2].isna().all(axis=None)
    assert frame.loc[2, gains].tolist() == pytest.approx([0.3, 0.1 / 3**0.5, 0.2, 0.0])


@pytest.fixture
def voted():
    """Two models and their ensemble by average and by a cascade that evaluates 1.5 of its members a
    draw.
    """
    rows = ensemble_rows("advmacer-0-1.average", 0.5)
    average = replace(AVERAGE, rows=rows)
    cascade = replace(
        AVERAGE,
        name="advmacer 0-1 (cascade)",
        combination="cascade",
        rows=rows.assign(evaluations=3 * (N0 + N) // 2),
    )
    singles = []
    for single in SINGLES[:2]:
        singles.append(replace(single, rows=cell_rows("advmacer", 0.5, single.seed)))
    return grouped([*singles, average, cascade])


def test_a_cost_pays_for_all_draws_of_the_members_and_no_more(voted):
    """n0 + draws of 1, 2 or 1.5 evaluations, with one draw more beyond the cost, and n0 draws at
    least.
    """
    frame = ensemble_tables.equal_cost(voted, "average")
    each = {"advmacer": 1, "advmacer 0-1": 2, "advmacer 0-1 (cascade)": 1.5}
    assert list(dict.fromkeys(frame["method"])) == list(each)
    for name, line in frame.groupby("method"):
        paid = each[name] * (N0 + line["draws"])
        assert (paid <= line["evaluations"]).all()
        assert (paid + each[name] > line["evaluations"]).all()
        assert line["draws"].between(N0, N).all()
        assert line["evaluations"].is_monotonic_increasing
    shared = frame[frame["evaluations"] == N0 + N]
    assert shared["draws"].tolist() == [N, (N0 + N) // 2 - N0, int((N0 + N) / 1.5) - N0]


def test_the_best_ensemble_of_a_kind_has_its_difference_to_the_best_single_model_of_that_cost(
    voted,
):
    """One model and a cascade share the cost of a model's draws; there the cascade is ahead of two
    that both vote.
    """
    frame = ensemble_tables.equal_cost(voted, "average")
    shared = frame[frame["evaluations"] == N0 + N].set_index("method")
    assert shared["gain"].notna().tolist() == [False, False, True]
    fewer = with_fewer_draws(ensemble_rows("advmacer-0-1.average", 0.5), [shared["draws"].iloc[2]])
    differences = metrics.image_scores(next(fewer))
    assert shared["acr"].iloc[2] == pytest.approx(differences.mean())
    for seed in (0, 1):
        differences = differences - metrics.image_scores(cell_rows("advmacer", 0.5, seed)) / 2
    assert shared["gain"].iloc[2] == pytest.approx(differences.mean())
    error = differences.std(ddof=1) / len(differences) ** 0.5
    assert shared["gain_error_images"].iloc[2] == pytest.approx(error)
    alone = frame[frame["evaluations"] > N0 + N]
    assert len(alone) > 0
    assert alone["gain"].isna().all()
