from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest

from rs.errors import InputError
from rs.reporting import ensemble_tables as tables
from rs.reporting import formatting, render, variance_tables
from rs.reporting.published import published
from rs.statistics import ensemble_variance as theory_numbers
from rs.statistics import metrics
from rs.statistics.comparison import LEVEL, estimate, sample
from rs.statistics.ensemble_weights import moments
from rs.study.ensembles import kind_of, trained_as
from tests.support.tiny_study import result

NOTHING = published("no such data set")
EMPTY = pd.DataFrame()
PAIR = (("advmacer", 0), ("advmacer", 1))
MIXED = (("advmacer", 0), ("smoothadv", 0))
MIX_NAME = "advmacer 0 + smoothadv 0"


def ensemble(members, combination, radii, scope="global", name=None, **changes):
    """The result of an ensemble, one by seeds unless it has a name; the combination average is the one without one."""
    name = name or trained_as(members)
    label = name if combination == "average" else f"{name} ({combination})"
    more = {"ensemble": name, "combination": combination, "members": members}
    return result(label, radii, seed=None, scope=scope, **more, **changes)


# ACRs of the members: 1.0, 0.8 (mean 0.9) and 0.5
SINGLES = [
    result("advmacer", [1.0, 1.0, 1.0, 1.0], seed=0),
    result("advmacer", [0.6, 0.6, 1.0, 1.0], seed=1),
    result("smoothadv", [0.5, 0.5, 0.5, 0.5], seed=0),
]
# ACR 1.2: to the members' mean (0.8, 0.8, 1, 1) +0.4, +0.4, +0.2, +0.2; to the best member always +0.2
AVERAGE = ensemble(PAIR, "average", [1.2, 1.2, 1.2, 1.2])
# ACR 1.1: to the average -0.2, 0, -0.2, 0
OPTIMAL = ensemble(PAIR, "optimal", [1.0, 1.2, 1.0, 1.2])
PER_IMAGE = ensemble(PAIR, "per-image", [9.0, 9.0, 9.0, 9.0], scope="per-image")
MIX = ensemble(MIXED, "average", [1.4, 1.4, 1.4, 1.3])
SECONDS = {"advmacer-0": 1.0, "advmacer-1": 2.0, "advmacer x2": 3.0, "advmacer x2 (per-image)": 4.25}  # by kind
ALL = [*SINGLES, AVERAGE, OPTIMAL, PER_IMAGE, MIX]


def cell(table, column, **where):
    data = table.data
    for name, value in where.items():
        data = data[data[name] == value]
    (at,) = data.index
    return table.body[at][table.header.index(column)]


def texts(table):
    return [[c.text for c in row] for row in table.body]


FIRST = {"advmacer x2": "advmacer 0-1", "advmacer x1 + smoothadv x1": MIX_NAME}
MIX_KIND = "advmacer x1 + smoothadv x1"


def spread(name, source="perturbed", within=0.02, across=float("nan"), **changes):
    row = {"sigma": 0.5, "ensemble": name, "members": FIRST.get(name, "first"), "source": source, "images": 4}
    return row | {"alpha": 0.08, "beta": 0.04} | {"variance": 0.06, "within": within, "across": across} | changes


def bound(name, value, combination="average", minimum=0.1, measured=0.95):
    row = {"sigma": 0.5, "ensemble": name, "members": FIRST[name], "combination": combination, "images": 4}
    return row | {"bound": value, "bound_minimum": minimum, "measured": measured, "other_class": 0.25}


class TestEnsembles:
    def test_an_ensemble_is_compared_with_the_mean_of_its_members_the_best_and_the_default(self):
        """To the mean: 0.3, deviations 0.1 each, error 0.1 sqrt(4 / 3 / 4) = 0.058. To the default: twice -0.2."""
        table = tables.ensembles(ALL, 0.5)
        default = {"ensemble": "advmacer 0-1", "combination": "average"}
        assert cell(table, "ACR", **default).text == "1.200 ± 0.000"
        assert cell(table, "to members' mean", **default).text == "+0.3000 ± 0.0577 images only"
        assert cell(table, "to best member", **default).text == "+0.2000 ± 0.0000 images only"
        assert cell(table, "to average", **default).text == "–"
        assert cell(table, "to average", combination="optimal").text == "-0.1000 ± 0.0577 tie, images only"

    def test_clean_accuracy_and_error_are_those_of_the_ensemble(self):
        """Scores 1, 1, 1, 0: mean 3/4, sample variance (3/16 + 9/16) / 3 = 1/4, error sqrt(1/16) = 1/4."""
        one = ensemble(PAIR, "average", [1.0] * 4, correct=[1, 1, 1, 0])
        table = tables.ensembles([*SINGLES, one], 0.5)
        assert texts(table)[0][:5] == ["advmacer 0-1", "average", "global", "75.0%", "0.750 ± 0.250"]

    def test_best_and_ties_are_bold_and_the_unsound_never_is(self):
        """MIX (1.375) beats the average by 0.2, 0.2, 0.2, 0.1: 0.175 with error 0.05 / 2, t = 7 of 3: no tie."""
        table = tables.ensembles(ALL, 0.5)
        assert table.data["best"].tolist() == [False, False, False, True]
        assert [row[4].bold for row in table.body] == [False, False, False, True]
        assert cell(table, "Combination", combination="per-image").text == "per-image †"
        assert formatting.UNSOUND in table.notes
        close = ensemble(MIXED, "average", [1.3, 1.3, 1.2, 1.1])  # beats by 0.1, 0.1, 0, -0.1: a tie
        assert tables.ensembles([*SINGLES, AVERAGE, close], 0.5).data["best"].tolist() == [True, True]

    def test_a_set_of_weights_is_explained_only_where_there_is_one(self):
        assert tables.SET not in tables.ensembles(ALL, 0.5).notes
        over_set = ensemble(PAIR, "set", [1.0] * 4, scope="set")
        assert tables.SET in tables.ensembles([*ALL, over_set], 0.5).notes
        assert tables.SET in tables.weighting([*ALL, over_set], 0.5, {}, NOTHING).notes

    def test_another_reference_may_be_chosen(self):
        table = tables.ensembles(ALL, 0.5, reference="optimal")
        assert (
            cell(table, "to optimal", combination="average", ensemble="advmacer 0-1").text
            == "+0.1000 ± 0.0577 tie, images only"
        )
        assert cell(table, "to optimal", ensemble=MIX_NAME).text == "–"

    def test_other_noise_levels_stay_out(self):
        other = [result("advmacer", [5.0] * 4, sigma=1.0, seed=seed) for seed in (0, 1)]
        both = [*ALL, *other, ensemble(PAIR, "average", [7.0] * 4, sigma=1.0)]
        pd.testing.assert_frame_equal(tables.ensembles(both, 0.5).data, tables.ensembles(ALL, 0.5).data)

    def test_an_ensemble_without_its_members_is_refused_by_name(self):
        with pytest.raises(InputError, match=r"advmacer 0-1 at sigma 0\.5 must come with .* missing: advmacer-1"):
            tables.ensembles([SINGLES[0], AVERAGE], 0.5)
        with pytest.raises(InputError, match=r"at least one at sigma 0\.25"):
            tables.ensembles(ALL, 0.25)


class TestWeighting:
    def test_a_row_without_ensemble_is_the_mean_of_the_members_and_their_times(self):
        table = tables.weighting(ALL, 0.5, SECONDS, NOTHING)
        alone = {"ensemble": "advmacer 0-1", "combination": tables.NONE}
        mean = metrics.average_rows([SINGLES[0].rows, SINGLES[1].rows])
        # by seeds 1 and 0.8: over images and seeds 0.1, since the seeds differ most where the images do
        assert cell(table, "ACR", **alone).text == f"0.900 ± {metrics.standard_error(mean):.3f} [0.100]"
        assert cell(table, "Time", **alone).text == "1.5 s"
        assert cell(table, "Time", ensemble=MIX_NAME, combination=tables.NONE).text == "–"

    def test_every_combination_has_its_time_where_it_is_known(self):
        table = tables.weighting(ALL, 0.5, SECONDS, NOTHING)
        times = [cell(table, "Time", ensemble="advmacer 0-1", combination=c).text for c in ("average", "optimal")]
        assert times == ["3 s", "–"]
        assert cell(table, "Time", combination="per-image").text == "4.25 s"
        assert any("includes computing the weights" in note for note in table.notes)

    def test_bold_is_the_best_sound_row_of_each_ensemble(self):
        data = tables.weighting(ALL, 0.5, {}, NOTHING).data
        bold = data[data["best"]]
        # optimal less average: -0.1 with error 0.058, a tie; per-image is not sound
        assert bold[["ensemble", "combination"]].to_numpy().tolist() == [
            ["advmacer 0-1", "average"],
            ["advmacer 0-1", "optimal"],
            [MIX_NAME, "average"],
        ]

    def test_published_figures_stand_beside_ours_of_the_same_label(self):
        rows = [
            ("advmacer", "acr", 0.554),
            ("advmacer", "clean_accuracy", 0.76),
            ("advmacer", "certificate_seconds", 8.9),
            ("advmacer x2 (per-image)", "acr", 0.576),
            ("smoothadv", "acr", 0.5),
        ]
        figures = pd.DataFrame(rows, columns=["method", "metric", "value"]).assign(sigma=0.5, radius=np.nan)
        table = tables.weighting(ALL, 0.5, {}, figures)
        printed = {(row[0], row[1]): row[-3:] for row in texts(table)}
        assert printed["advmacer 0-1", tables.NONE] == ["76.0%", "0.554", "8.9 s"]
        assert printed["advmacer 0-1", "per-image †"] == ["–", "0.576", "–"]
        assert printed[MIX_NAME, tables.NONE] == ["–", "–", "–"]
        assert formatting.PAPER in table.notes
        assert "paper" not in " ".join(tables.weighting(ALL, 0.5, {}, NOTHING).header)


def family(members, scores, combination="average", **changes):
    """All ensembles of an entry by numbers: ``scores`` of each one's members."""
    return [ensemble(own, combination, scores(own), name=kind_of(own), **changes) for own in members]


SEEDS = (0, 1, 2)
TRIO = {
    ("advmacer", 0): [1.0, 1.2, 1.0, 1.2],
    ("advmacer", 1): [2.0, 2.0, 2.2, 2.0],
    ("advmacer", 2): [4.0, 4.0, 4.0, 4.4],
    ("smoothadv", 0): [0.5, 0.6, 0.5, 0.5],
    ("smoothadv", 1): [0.1, 0.1, 0.3, 0.1],
    ("smoothadv", 2): [0.8, 0.7, 0.8, 0.8],
}
"""Scores of three models of two methods on four images."""
MODELS = [result(method, radii, seed=seed) for (method, seed), radii in TRIO.items()]
PAIRS = [tuple(("advmacer", seed) for seed in own) for own in combinations(SEEDS, 2)]
ONE_OF_EACH = [(("advmacer", a), ("smoothadv", b)) for a, b in permutations(SEEDS, 2)]
ONE_AND_TWO = [(("advmacer", a), *(("smoothadv", b) for b in SEEDS if b != a)) for a in SEEDS]


def higher(step):
    """Scores of an ensemble: those of its members' mean, and a step for its smallest seed."""
    return lambda own: np.mean([TRIO[one] for one in own], axis=0) + step * (1 + min(seed for _, seed in own))


OF_TWO = family(PAIRS, higher(0.5))


def of(members, scores):
    """A sample straight from scores, with the seeds of its members."""
    rows = [result("any", own).rows for own in scores]
    return sample(rows, [{seed for _, seed in own} for own in members])


def texts_of(table, **where):
    return {title: cell(table, title, **where).text for title in table.header}


class TestFamilies:
    def test_an_entry_by_numbers_is_the_mean_over_its_sub_ensembles_with_both_errors(self):
        """ACRs by hand: members' means 1.1, 2.05, 4.1 make 1.575 + .5, 2.6 + .5 and 3.075 + 1: mean 3.0833."""
        table = tables.ensembles([*MODELS, *OF_TWO], 0.5)
        (row,) = table.data.to_dict("records")
        made = estimate(of(PAIRS, [higher(0.5)(own) for own in PAIRS]))
        assert row["acr"] == pytest.approx((2.075 + 3.1 + 4.075) / 3)
        assert (row["standard_error"], row["standard_error_with_seeds"]) == (made.error_images, made.error)
        assert row["seeds"] == 3
        assert texts_of(table)["ACR"] == f"3.083 ± {made.error_images:.3f} [{made.error:.3f}]"
        assert "images only" not in " ".join(texts(table)[0])

    def test_an_entry_by_seeds_has_no_error_over_seeds_and_says_so(self):
        table = tables.ensembles([*MODELS, ensemble(PAIRS[0], "average", [1.0, 1.1, 1.0, 1.0])], 0.5)
        shown = texts_of(table)
        assert "[" not in shown["ACR"]
        for title in ("to members' mean", "to best member"):
            assert shown[title].endswith("images only")
            assert "[" not in shown[title]
        assert {formatting.TIES, formatting.SEEDS, formatting.FAMILIES} <= set(table.notes)

    def test_what_images_alone_would_call_held_is_a_tie_by_the_seeds(self):
        """To the members' mean: +.1, +.1 and +4 of the sub-ensembles, on every image the same."""
        steps = dict(zip(PAIRS, (0.1, 0.1, 4.0), strict=True))
        results = [*MODELS, *family(PAIRS, lambda own: higher(0)(own) + steps[own])]
        table = tables.ensembles(results, 0.5)
        row = table.data.iloc[0]
        assert row["members_difference"] == pytest.approx(1.4)
        assert row["members_error_images"] == pytest.approx(0, abs=1e-12)  # so sure, as far as images go
        assert row["members_p_value"] > LEVEL
        assert texts_of(table)["to members' mean"].endswith("] tie")
        alone = tables.ensembles([*MODELS, ensemble(PAIRS[2], "average", higher(0)(PAIRS[2]) + 1.4)], 0.5)
        assert texts_of(alone)["to members' mean"] == "+1.4000 ± 0.0000 images only"

    def test_bold_follows_the_larger_error(self):
        """Two kinds 1.4 apart, for one sub-ensemble of three: a tie. The same two of one choice of seeds: no tie."""
        steps = dict(zip(PAIRS, (0.1, 0.1, 4.0), strict=True))
        many = [*MODELS, *family(PAIRS, lambda own: higher(0)(own) + steps[own]), *family(PAIRS, higher(0), "logits")]
        assert tables.ensembles(many, 0.5).data["best"].tolist() == [True, True]
        one = [ensemble(PAIRS[2], c, higher(0)(PAIRS[2]) + up) for c, up in (("average", 1.4), ("logits", 0.0))]
        assert tables.ensembles([*MODELS, *one], 0.5).data["best"].tolist() == [True, False]

    @pytest.mark.parametrize("members", [PAIRS, ONE_OF_EACH, ONE_AND_TWO])
    def test_the_difference_to_the_members_is_to_the_mean_of_the_members_of_each_sub_ensemble(self, members):
        table = tables.ensembles([*MODELS, *family(members, higher(0.5))], 0.5)
        row = table.data.iloc[0]
        means = [[sum(TRIO[one][i] for one in own) / len(own) for i in range(4)] for own in members]
        made = estimate(of(members, [higher(0.5)(own) for own in members]), of(members, means))
        assert row["members_difference"] == pytest.approx(made.value, rel=1e-12)
        assert row["members_error_images"] == pytest.approx(made.error_images, rel=1e-9, abs=1e-12)
        if members is ONE_AND_TWO:  # every ensemble has every seed
            assert made.error is row["members_error"] is None
        else:
            assert row["members_error"] == pytest.approx(made.error, rel=1e-9)

    def test_a_mixed_family_of_one_and_two_weighs_its_methods_a_third_and_two_thirds(self):
        table = tables.weighting([*MODELS, *family(ONE_AND_TWO, higher(0.5))], 0.5, {}, NOTHING)
        means = {
            method: Fraction(sum(Fraction(str(x)) for seed in SEEDS for x in TRIO[method, seed]), 12)
            for method in ("advmacer", "smoothadv")
        }
        expected = means["advmacer"] / 3 + 2 * means["smoothadv"] / 3
        row = table.data[table.data["combination"] == tables.NONE].iloc[0]
        assert row["acr"] == pytest.approx(float(expected), rel=1e-12)

    def test_seeds_that_one_method_alone_has_leave_with_the_members_of_their_sub_ensembles(self):
        """SmoothAdv has a fourth seed: without it, what is left is the same study of three seeds on both sides."""
        more = [*MODELS, result("smoothadv", [0.9, 0.9, 0.7, 0.9], seed=3)]
        scores = TRIO | {("smoothadv", 3): [0.9, 0.9, 0.7, 0.9]}
        members = [*ONE_OF_EACH, *((("advmacer", a), ("smoothadv", 3)) for a in SEEDS)]
        own = [np.mean([scores[one] for one in pair], axis=0) + 0.5 for pair in members]
        results = [ensemble(pair, "average", s, name=kind_of(pair)) for pair, s in zip(members, own, strict=True)]
        row = tables.ensembles([*more, *results], 0.5).data.iloc[0]
        # every ensemble is half better than its members, whatever seed is left out
        assert row["members_difference"] == pytest.approx(0.5)
        assert (row["members_error_images"], row["members_error"]) == pytest.approx((0, 0), abs=1e-9)

    def test_the_best_member_is_that_of_each_sub_ensemble(self):
        """Of AdvMacer's pairs (0, 1), (0, 2), (1, 2): the second, whose ACRs are 2.05, 4.1, 4.1."""
        row = tables.ensembles([*MODELS, *OF_TWO], 0.5).data.iloc[0]
        best = [TRIO[own[1]] for own in PAIRS]
        made = estimate(of(PAIRS, [higher(0.5)(own) for own in PAIRS]), of(PAIRS, best))
        assert row["best_member_difference"] == pytest.approx(np.mean([2.075, 3.1, 4.075]) - np.mean([2.05, 4.1, 4.1]))
        assert row["best_member_error"] == made.error

    def test_the_reference_is_of_the_same_members_under_whatever_name(self):
        """By seeds (1, 2) only MME is declared: its reference is that sub-ensemble of the family, 4.075."""
        results = [*MODELS, *OF_TWO, ensemble(PAIRS[2], "mme", [4.1, 4.0, 4.1, 4.2])]
        table = tables.ensembles(results, 0.5)
        row = table.data[table.data["combination"] == "mme"].iloc[0]
        assert row["reference_difference"] == pytest.approx(4.1 - 4.075)
        assert cell(table, "to average", combination="mme").text.endswith("images only")

    def test_a_family_is_compared_with_the_reference_only_where_all_its_members_have_it(self):
        more = family(PAIRS, higher(0.7), "optimal")
        whole = tables.ensembles([*MODELS, *OF_TWO, *more], 0.5)
        shown = cell(whole, "to average", combination="optimal").text
        assert shown.startswith("+0.2667 ± 0.0000 [")  # .2, .2 and .4
        lacking = tables.ensembles([*MODELS, *OF_TWO[:2], *more], 0.5)
        assert cell(lacking, "to average", combination="optimal").text == "–"
        assert "reference" not in lacking.data

    def test_weights_of_an_entry_by_seeds_stand_beside_those_that_a_family_has_of_its_members(self):
        """As in the parameters: averages and optimal weights of all sub-ensembles, MME of one choice of seeds."""
        by_numbers = [*OF_TWO, *family(PAIRS, higher(0.6), "optimal")]
        table = tables.weighting([*MODELS, *by_numbers, ensemble(PAIRS[1], "mme", [3.0] * 4)], 0.5, {}, NOTHING)
        found = {(row["ensemble"], row["combination"]): row for row in table.data.to_dict("records")}
        name, kind = "advmacer 0-2", "advmacer x2"
        assert [key for key in found if key[0] == name] == [
            (name, tables.NONE), (name, "average"), (name, "optimal"), (name, "mme"),
        ]  # fmt: skip
        assert found[name, "average"]["acr"] == pytest.approx(3.1)
        assert found[name, "optimal"]["acr"] == pytest.approx(3.2)
        assert found[name, tables.NONE]["acr"] == pytest.approx((1.1 + 4.1) / 2)
        assert [key for key in found if key[0] == kind] == [(kind, tables.NONE), (kind, "average"), (kind, "optimal")]
        assert found[kind, "average"]["acr"] == pytest.approx((2.075 + 3.1 + 4.075) / 3)

    def test_sizes_have_one_point_a_kind_that_of_the_most_sub_ensembles_with_both_errors(self):
        """The pair (0, 1) is declared by its seeds as well, before or after the family."""
        one = ensemble(PAIRS[0], "average", [9.0] * 4)
        for results in ([*MODELS, one, *OF_TWO], [*MODELS, *OF_TWO, one]):
            frame = tables.sizes(results, "average")
            assert frame[["ensemble", "members"]].to_numpy().tolist() == [["advmacer x1", 1], ["advmacer x2", 2]]
            alone, pairs = (
                estimate(of([[("advmacer", s)] for s in SEEDS], [TRIO["advmacer", s] for s in SEEDS])),
                estimate(of(PAIRS, [higher(0.5)(own) for own in PAIRS])),
            )
            assert frame["error"].tolist() == [alone.error, pairs.error]
            assert frame["error_images"].tolist() == [alone.error_images, pairs.error_images]
        assert tables.sizes([*MODELS, one], "average")["error"].isna().tolist() == [False, True]

    def test_families_of_one_size_are_rivals_with_both_errors(self):
        """Mixed pairs of three seeds against AdvMacer's: both sides lose the same seed."""
        results = [*MODELS, *family(ONE_OF_EACH, higher(0.5)), *OF_TWO]
        bounds = pd.DataFrame([bound(MIX_KIND, 0.7), bound("advmacer x2", 0.8)])
        spreads = pd.DataFrame([spread(MIX_KIND, across=0.01), spread("advmacer x2", within=0.03)])
        table = variance_tables.mixed(results, "average", spreads, bounds)
        (row,) = table.data.to_dict("records")
        sides = [of(members, [higher(0.5)(own) for own in members]) for members in (ONE_OF_EACH, PAIRS)]
        made = estimate(*sides)
        assert (row["mixed"], row["single"]) == (MIX_KIND, "advmacer x2")
        assert (row["acr_difference"], row["acr_error"]) == pytest.approx((made.value, made.error))
        assert (row["verdict"], row["expected"]) == ("tie" if made.tie else "hurt", "no")
        assert texts_of(table)["Covariances"] == "0.0100, 0.0300 (-0.0200)"
        assert "images only" not in texts_of(table)["Difference of ACR"]

    def test_a_mixture_that_helps_with_one_choice_of_seeds_may_tie_over_all(self):
        lift = {own: 9.0 if own == ONE_OF_EACH[0] else 0.0 for own in ONE_OF_EACH}
        mixtures = family(ONE_OF_EACH, lambda own: higher(0)(PAIRS[0]) + 0.01 + lift[own])
        flat = family(PAIRS, lambda _: higher(0)(PAIRS[0]))
        table = variance_tables.mixed([*MODELS, *mixtures, *flat], "average", EMPTY, EMPTY)
        assert table.data["verdict"].tolist() == ["tie"]
        assert table.data["acr_error_images"][0] == pytest.approx(0, abs=1e-12)
        one = [ensemble(ONE_OF_EACH[0], "average", mixtures[0].rows["radius"]), flat[0]]
        alone = variance_tables.mixed([*MODELS, *one], "average", EMPTY, EMPTY)
        assert alone.data["verdict"].tolist() == ["helped"]
        assert texts_of(alone)["Difference of ACR"].endswith("images only")


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
        (row,) = variance_tables.mixed(ALL, "average", EMPTY, bounds).data.to_dict("records")
        assert row["acr_difference"] == pytest.approx(0.175)
        assert (row["verdict"], row["expected"], row["expectation"]) == ("helped", expected, expectation)

    @pytest.mark.parametrize(
        ("radii", "verdict", "expectation"),
        [([1.2, 1.2, 1.3, 1.1], "tie", "open"), ([1.0, 1.0, 1.0, 1.0], "hurt", "not met")],
    )
    def test_a_tie_says_nothing_and_harm_contradicts_expected_help(self, radii, verdict, expectation):
        bounds = pd.DataFrame([bound(MIX_KIND, 0.9), bound("advmacer x2", 0.8)])
        results = [*SINGLES, AVERAGE, ensemble(MIXED, "average", radii)]
        table = variance_tables.mixed(results, "average", EMPTY, bounds)
        assert (table.data["verdict"][0], table.data["expectation"][0]) == (verdict, expectation)
        assert table.body[0][3].text.endswith("tie, images only") == (verdict == "tie")

    def test_only_bounds_of_the_same_combination_count(self):
        bounds = pd.DataFrame([bound(MIX_KIND, 0.9, "optimal"), bound("advmacer x2", 0.8, "optimal")])
        for given in (bounds, EMPTY):
            table = variance_tables.mixed(ALL, "average", EMPTY, given)
            assert texts(table)[0][4:] == ["helped", "–", "–", "–", "–"]

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
        table = variance_tables.mixed(results, "average", pd.DataFrame(spreads[::-1]), EMPTY)
        assert table.body[0][-1].text == "0.0200, 0.0300 (-0.0100)"

    def test_only_ensembles_of_the_same_size_noise_and_methods_are_rivals(self):
        macer = (("macer", 0), ("macer", 1))
        triple = (*PAIR, ("advmacer", 2))
        others = [
            result("macer x2", [1.0] * 4, seed=None, ensemble="macer x2", combination="average", members=macer),
            result("advmacer x3", [1.0] * 4, seed=None, ensemble="advmacer x3", combination="average", members=triple),
            ensemble(PAIR, "average", [1.0] * 4, sigma=1.0),
        ]
        data = variance_tables.mixed([*ALL, *others], "average", EMPTY, EMPTY).data
        assert data[["sigma", "mixed", "single"]].to_numpy().tolist() == [[0.5, MIX_NAME, "advmacer 0-1"]]

    def test_without_mixed_ensembles_the_table_is_empty_and_can_be_written(self):
        table = variance_tables.mixed([*SINGLES, AVERAGE], "average", EMPTY, EMPTY)
        assert table.body == []
        assert render.written("mixed", table)


class TestTheory:
    def test_the_bound_of_the_paper_and_the_variance_of_the_average_follow_from_the_means(self):
        """L = 2: bound 0.04 + (0.08 - 0.04) / 2 = 0.06; average (2 * 0.06 + 2 * 0.02) / 4 = 0.04."""
        table = variance_tables.theory(pd.DataFrame([spread("advmacer x2")]), ALL)
        assert dict(zip(table.header, texts(table)[0], strict=True)) == {
            "Ensemble": "advmacer 0-1",
            "σ": "0.5",
            "Source": "perturbed",
            "Images": "4",
            "Alpha": "0.0800",
            "Beta": "0.0400",
            "Variance": "0.0600",
            "Within": "0.0200",
            "Across": "–",
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
        means = theory_numbers.mean_covariances(covariances, 0, [method for method, _ in members])
        constants = theory_numbers.spread(covariances)
        kind = {"ensemble": "advmacer x1 + smoothadv x2", "members": "advmacer 0 + smoothadv 0-1"}
        row = {"sigma": 0.5, **kind, "source": "trained", "images": 1, **means._asdict()}
        row |= {"alpha": constants.alpha[1:].mean(), "beta": constants.beta[1:].mean()}
        mix = result("mix", [1.0] * 4, seed=None, ensemble="mix", combination="average", members=members)
        data = variance_tables.theory(pd.DataFrame([row]), [mix]).data
        expected = margins.mean(axis=0).var(axis=0)[1:].mean()
        assert data["average"][0] == pytest.approx(expected, rel=1e-12)
        assert data["average"][0] <= data["average_bound"][0]

    def test_no_numbers_give_empty_tables_that_can_be_written(self):
        for table in (variance_tables.theory(EMPTY, ALL), variance_tables.bounds_table(EMPTY, ALL)):
            assert table.body == []
            assert render.written("empty", table)

    def test_spreads_of_an_unknown_ensemble_are_refused(self):
        with pytest.raises(InputError, match=r"spreads of macer x9 at sigma 0\.5"):
            variance_tables.theory(pd.DataFrame([spread("macer x9")]), ALL)


class TestBounds:
    def test_the_share_of_votes_is_the_mean_over_images_with_votes(self):
        """n = 200: 150 / 200, 0, 200 / 200 and a shortcut: 0.583 over three images."""
        counts = ["0:150,1:50", "1:200", "0:200", "-"]
        voted = AVERAGE.rows.assign(counts=counts, mode=["certify"] * 3 + ["shortcut"], n=[200, 200, 200, 0])
        one = result("advmacer x2", [1.0], ensemble="advmacer x2", combination="average", members=PAIR)
        one = type(one)(**vars(one) | {"rows": voted})
        table = variance_tables.bounds_table(pd.DataFrame([bound("advmacer x2", 0.4)]), [*SINGLES, one])
        assert texts(table)[0][4:] == ["0.400", "0.100", "0.950", "0.583", "25.0%"]
        assert table.data["votes"][0] == pytest.approx((0.75 + 0 + 1) / 3)
        assert table.notes == [variance_tables.FIRST, variance_tables.SHORTCUT.format(1, 4)]

    def test_votes_that_nobody_certified_are_not_known(self):
        table = variance_tables.bounds_table(pd.DataFrame([bound("advmacer x2", 0.4, "mme")]), ALL)
        assert texts(table)[0][-2:] == ["–", "25.0%"]
        assert table.notes == [variance_tables.FIRST]


class TestSizes:
    def test_one_member_is_the_mean_over_seeds_of_each_method_in_an_ensemble(self):
        frame = tables.sizes([*ALL, result("macer", [1.0] * 4)], "average")
        assert frame.columns.tolist() == ["sigma", "kind", "ensemble", "members", "acr", "error_images", "error"]
        assert frame.drop(columns=["acr", "error_images", "error"]).to_numpy().tolist() == [
            [0.5, "advmacer", "advmacer x1", 1],
            [0.5, "smoothadv", "smoothadv x1", 1],
            [0.5, "advmacer", "advmacer 0-1", 2],
            [0.5, "advmacer + smoothadv", MIX_NAME, 2],
        ]
        assert frame["acr"].tolist() == pytest.approx([0.9, 0.5, 1.2, 1.375])
        # 1.4, 1.4, 1.4, 1.3: sample deviation 0.05, by sqrt(4)
        assert frame["error_images"][3] == pytest.approx(0.025)

    def test_members_of_two_compositions_in_another_order_are_of_one_kind(self):
        swapped = result("b", [1.0] * 4, seed=None, ensemble="b", combination="average", members=MIXED[::-1])
        kinds = tables.sizes([*SINGLES, MIX, swapped], "average").query("members == 2")["kind"]
        assert kinds.tolist() == ["advmacer + smoothadv"] * 2

    def test_an_ensemble_without_its_members_is_refused(self):
        with pytest.raises(InputError, match="missing: advmacer-0, advmacer-1"):
            tables.sizes([AVERAGE], "average")

    def test_no_ensemble_gives_an_empty_frame_with_its_columns(self):
        frame = tables.sizes(SINGLES, "average")
        assert frame.empty
        assert "acr" in frame


def test_every_table_can_be_written_in_plain_latex():
    """Every letter that is not ASCII has a command."""
    spreads = pd.DataFrame([spread("advmacer x2"), spread(MIX_KIND, across=0.01)])
    bounds = pd.DataFrame([bound("advmacer x2", 0.4, "mme"), bound(MIX_KIND, 0.5, "mme")])
    made = [
        tables.ensembles(ALL, 0.5),
        tables.weighting(ALL, 0.5, {}, NOTHING),
        variance_tables.mixed(ALL, "average", spreads, bounds),
        variance_tables.theory(spreads, ALL),
        variance_tables.bounds_table(bounds, ALL),
    ]
    for table in made:
        assert render.latex(table).isascii(), table.label
        assert len({len(row) for row in table.body} | {len(table.header)}) == 1


def test_captions_of_acrs_say_images_subset_and_budget():
    made = [tables.ensembles(ALL, 0.5), tables.weighting(ALL, 0.5, {}, NOTHING)]
    for table in (*made, variance_tables.mixed(ALL, "average", EMPTY, EMPTY)):
        assert "4 images (subset all), n₀ = 10, n = 200, α = 0.01." in table.caption
