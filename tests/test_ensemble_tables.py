import numpy as np
import pandas as pd
import pytest
from tiny_study import result

from rs import ensemble_tables as tables
from rs import headlines, metrics, theory_tables, typeset
from rs import theory as theory_numbers
from rs.errors import InputError
from rs.published import published
from rs.weights import moments

NOTHING = published("no such data set")
EMPTY = pd.DataFrame()
PAIR = (("advmacer", 0), ("advmacer", 1))
MIXED = (("advmacer", 0), ("smoothadv", 0))
NAMES = {PAIR: "advmacer x2", MIXED: "advmacer x1 + smoothadv x1"}


def ensemble(members, combination, radii, scope="global", **changes):
    """The result of an ensemble; the combination average is the one without a name."""
    label = NAMES[members] if combination == "average" else f"{NAMES[members]} ({combination})"
    more = {"ensemble": NAMES[members], "combination": combination, "members": members}
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
MIX = ensemble(MIXED, "average", [1.3, 1.3, 1.3, 1.2])
SECONDS = {"advmacer-0": 1.0, "advmacer-1": 2.0, "advmacer x2": 3.0, "advmacer x2 (per-image)": 4.25}
ALL = [*SINGLES, AVERAGE, OPTIMAL, PER_IMAGE, MIX]


def cell(table, column, **where):
    data = table.data
    for name, value in where.items():
        data = data[data[name] == value]
    (at,) = data.index
    return table.body[at][table.header.index(column)]


def texts(table):
    return [[c.text for c in row] for row in table.body]


def spread(name, source="perturbed", within=0.02, across=float("nan"), **changes):
    row = {"sigma": 0.5, "ensemble": name, "source": source, "images": 4, "alpha": 0.08, "beta": 0.04}
    return row | {"variance": 0.06, "within": within, "across": across} | changes


def bound(name, value, combination="average", minimum=0.1, measured=0.95):
    row = {"sigma": 0.5, "ensemble": name, "combination": combination, "images": 4, "bound": value}
    return row | {"bound_minimum": minimum, "measured": measured, "other_class": 0.25}


class TestEnsembles:
    def test_an_ensemble_is_compared_with_the_mean_of_its_members_the_best_and_the_default(self):
        """To the mean: 0.3, deviations 0.1 each, error 0.1 sqrt(4 / 3 / 4) = 0.058. To the default: twice -0.2."""
        table = tables.ensembles(ALL, 0.5)
        default = {"ensemble": "advmacer x2", "combination": "average"}
        assert cell(table, "ACR", **default).text == "1.200 ± 0.000"
        assert cell(table, "to members' mean", **default).text == "+0.300 ± 0.058"
        assert cell(table, "to best member", **default).text == "+0.200 ± 0.000"
        assert cell(table, "to average", **default).text == "–"
        assert cell(table, "to average", combination="optimal").text == "-0.100 ± 0.058 tie"

    def test_clean_accuracy_and_error_are_those_of_the_ensemble(self):
        """Scores 1, 1, 1, 0: mean 3/4, sample variance (3/16 + 9/16) / 3 = 1/4, error sqrt(1/16) = 1/4."""
        one = ensemble(PAIR, "average", [1.0] * 4, correct=[1, 1, 1, 0])
        table = tables.ensembles([*SINGLES, one], 0.5)
        assert texts(table)[0][:5] == ["advmacer x2", "average", "global", "75.0%", "0.750 ± 0.250"]

    def test_best_and_ties_are_bold_and_the_unsound_never_is(self):
        """MIX (1.275) beats the average by 0.1, 0.1, 0.1, 0: 0.075 with error 0.05 / 2, three errors: no tie."""
        table = tables.ensembles(ALL, 0.5)
        assert table.data["best"].tolist() == [False, False, False, True]
        assert [row[4].bold for row in table.body] == [False, False, False, True]
        assert cell(table, "Combination", combination="per-image").text == "per-image †"
        assert headlines.UNSOUND in table.notes
        close = ensemble(MIXED, "average", [1.3, 1.3, 1.2, 1.1])  # beats by 0.1, 0.1, 0, -0.1: a tie
        assert tables.ensembles([*SINGLES, AVERAGE, close], 0.5).data["best"].tolist() == [True, True]

    def test_a_set_of_weights_is_explained_only_where_there_is_one(self):
        assert tables.SET not in tables.ensembles(ALL, 0.5).notes
        over_set = ensemble(PAIR, "set", [1.0] * 4, scope="set")
        assert tables.SET in tables.ensembles([*ALL, over_set], 0.5).notes
        assert tables.SET in tables.weighting([*ALL, over_set], 0.5, {}, NOTHING).notes

    def test_another_reference_may_be_chosen(self):
        table = tables.ensembles(ALL, 0.5, reference="optimal")
        assert cell(table, "to optimal", combination="average", ensemble="advmacer x2").text == "+0.100 ± 0.058 tie"
        assert cell(table, "to optimal", ensemble=NAMES[MIXED]).text == "–"

    def test_other_noise_levels_stay_out(self):
        other = [result("advmacer", [5.0] * 4, sigma=1.0, seed=seed) for seed in (0, 1)]
        both = [*ALL, *other, ensemble(PAIR, "average", [7.0] * 4, sigma=1.0)]
        pd.testing.assert_frame_equal(tables.ensembles(both, 0.5).data, tables.ensembles(ALL, 0.5).data)

    def test_an_ensemble_without_its_members_is_refused_by_name(self):
        with pytest.raises(InputError, match=r"advmacer x2 at sigma 0\.5 must come with .* missing: advmacer-1"):
            tables.ensembles([SINGLES[0], AVERAGE], 0.5)
        with pytest.raises(InputError, match=r"at least one at sigma 0\.25"):
            tables.ensembles(ALL, 0.25)


class TestWeighting:
    def test_a_row_without_ensemble_is_the_mean_of_the_members_and_their_times(self):
        table = tables.weighting(ALL, 0.5, SECONDS, NOTHING)
        alone = {"ensemble": "advmacer x2", "combination": tables.NONE}
        mean = metrics.average_rows([SINGLES[0].rows, SINGLES[1].rows])
        assert cell(table, "ACR", **alone).text == f"0.900 ± {metrics.standard_error(mean):.3f}"
        assert cell(table, "Time", **alone).text == "1.5 s"
        assert cell(table, "Time", ensemble=NAMES[MIXED], combination=tables.NONE).text == "–"

    def test_every_combination_has_its_time_where_it_is_known(self):
        table = tables.weighting(ALL, 0.5, SECONDS, NOTHING)
        times = [cell(table, "Time", ensemble="advmacer x2", combination=c).text for c in ("average", "optimal")]
        assert times == ["3 s", "–"]
        assert cell(table, "Time", combination="per-image").text == "4.25 s"
        assert any("includes computing the weights" in note for note in table.notes)

    def test_bold_is_the_best_sound_row_of_each_ensemble(self):
        data = tables.weighting(ALL, 0.5, {}, NOTHING).data
        bold = data[data["best"]]
        # optimal less average: -0.1 with error 0.058, a tie; per-image is not sound
        assert bold[["ensemble", "combination"]].to_numpy().tolist() == [
            ["advmacer x2", "average"],
            ["advmacer x2", "optimal"],
            [NAMES[MIXED], "average"],
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
        assert printed["advmacer x2", tables.NONE] == ["76.0%", "0.554", "8.9 s"]
        assert printed["advmacer x2", "per-image †"] == ["–", "0.576", "–"]
        assert printed[NAMES[MIXED], tables.NONE] == ["–", "–", "–"]
        assert headlines.PAPER in table.notes
        assert "paper" not in " ".join(tables.weighting(ALL, 0.5, {}, NOTHING).header)


class TestMixed:
    @pytest.mark.parametrize(
        ("of_mixed", "of_single", "expected", "expectation"),
        [(0.9, 0.8, "yes", "met"), (0.7, 0.8, "no", "not met"), (0.8, 0.8, "neither", "open")],
    )
    def test_a_mixture_that_helped_meets_the_expectation_of_a_larger_bound(
        self, of_mixed, of_single, expected, expectation
    ):
        """MIX less AVERAGE is 0.1, 0.1, 0.1, 0: 0.075, three times its error."""
        bounds = pd.DataFrame([bound(NAMES[MIXED], of_mixed), bound("advmacer x2", of_single)])
        (row,) = theory_tables.mixed(ALL, "average", EMPTY, bounds).data.to_dict("records")
        assert row["acr_difference"] == pytest.approx(0.075)
        assert (row["verdict"], row["expected"], row["expectation"]) == ("helped", expected, expectation)

    @pytest.mark.parametrize(
        ("radii", "verdict", "expectation"),
        [([1.2, 1.2, 1.3, 1.1], "tie", "open"), ([1.0, 1.0, 1.0, 1.0], "hurt", "not met")],
    )
    def test_a_tie_says_nothing_and_harm_contradicts_expected_help(self, radii, verdict, expectation):
        bounds = pd.DataFrame([bound(NAMES[MIXED], 0.9), bound("advmacer x2", 0.8)])
        results = [*SINGLES, AVERAGE, ensemble(MIXED, "average", radii)]
        table = theory_tables.mixed(results, "average", EMPTY, bounds)
        assert (table.data["verdict"][0], table.data["expectation"][0]) == (verdict, expectation)
        assert table.body[0][3].text.endswith("tie") == (verdict == "tie")

    def test_only_bounds_of_the_same_combination_count(self):
        bounds = pd.DataFrame([bound(NAMES[MIXED], 0.9, "optimal"), bound("advmacer x2", 0.8, "optimal")])
        for given in (bounds, EMPTY):
            table = theory_tables.mixed(ALL, "average", EMPTY, given)
            assert texts(table)[0][4:] == ["helped", "–", "–", "–", "–"]

    def test_covariances_are_means_over_pairs_of_perturbed_members(self):
        """1 + 2 members: one pair within (0.04) and two across (0.01), mean 0.02; against 0.03 within."""
        three, mix = (("advmacer", 0), ("advmacer", 1), ("advmacer", 2)), (*MIXED, ("smoothadv", 1))
        results = [
            result(name, [1.0] * 4, seed=None, ensemble=name, combination="average", members=members)
            for name, members in (("advmacer x3", three), ("mix", mix))
        ]
        spreads = [spread("mix", within=0.04, across=0.01), spread("advmacer x3", within=0.03)]
        spreads += [spread("mix", "trained", within=9.0, across=9.0)]
        table = theory_tables.mixed(results, "average", pd.DataFrame(spreads[::-1]), EMPTY)
        assert table.body[0][-1].text == "0.0200, 0.0300 (-0.0100)"

    def test_only_ensembles_of_the_same_size_noise_and_methods_are_rivals(self):
        macer = (("macer", 0), ("macer", 1))
        triple = (*PAIR, ("advmacer", 2))
        others = [
            result("macer x2", [1.0] * 4, seed=None, ensemble="macer x2", combination="average", members=macer),
            result("advmacer x3", [1.0] * 4, seed=None, ensemble="advmacer x3", combination="average", members=triple),
            ensemble(PAIR, "average", [1.0] * 4, sigma=1.0),
        ]
        data = theory_tables.mixed([*ALL, *others], "average", EMPTY, EMPTY).data
        assert data[["sigma", "mixed", "single"]].to_numpy().tolist() == [[0.5, NAMES[MIXED], "advmacer x2"]]

    def test_without_mixed_ensembles_the_table_is_empty_and_can_be_written(self):
        table = theory_tables.mixed([*SINGLES, AVERAGE], "average", EMPTY, EMPTY)
        assert table.body == []
        assert typeset.written("mixed", table)


class TestTheory:
    def test_the_bound_of_the_paper_and_the_variance_of_the_average_follow_from_the_means(self):
        """L = 2: bound 0.04 + (0.08 - 0.04) / 2 = 0.06; average (2 * 0.06 + 2 * 0.02) / 4 = 0.04."""
        table = theory_tables.theory(pd.DataFrame([spread("advmacer x2")]), ALL)
        assert dict(zip(table.header, texts(table)[0], strict=True)) == {
            "Ensemble": "advmacer x2",
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
        row = {"sigma": 0.5, "ensemble": "mix", "source": "trained", "images": 1, **means._asdict()}
        row |= {"alpha": constants.alpha[1:].mean(), "beta": constants.beta[1:].mean()}
        mix = result("mix", [1.0] * 4, seed=None, ensemble="mix", combination="average", members=members)
        data = theory_tables.theory(pd.DataFrame([row]), [mix]).data
        expected = margins.mean(axis=0).var(axis=0)[1:].mean()
        assert data["average"][0] == pytest.approx(expected, rel=1e-12)
        assert data["average"][0] <= data["average_bound"][0]

    def test_no_numbers_give_empty_tables_that_can_be_written(self):
        for table in (theory_tables.theory(EMPTY, ALL), theory_tables.bounds_table(EMPTY, ALL)):
            assert table.body == []
            assert typeset.written("empty", table)

    def test_spreads_of_an_unknown_ensemble_are_refused(self):
        with pytest.raises(InputError, match=r"spreads of macer x9 at sigma 0\.5"):
            theory_tables.theory(pd.DataFrame([spread("macer x9")]), ALL)


class TestBounds:
    def test_the_share_of_votes_is_the_mean_over_images_with_votes(self):
        """n = 200: 150 / 200, 0, 200 / 200 and a shortcut: 0.583 over three images."""
        counts = ["0:150,1:50", "1:200", "0:200", "-"]
        voted = AVERAGE.rows.assign(counts=counts, mode=["certify"] * 3 + ["shortcut"], n=[200, 200, 200, 0])
        one = result("advmacer x2", [1.0], ensemble="advmacer x2", combination="average", members=PAIR)
        one = type(one)(**vars(one) | {"rows": voted})
        table = theory_tables.bounds_table(pd.DataFrame([bound("advmacer x2", 0.4)]), [*SINGLES, one])
        assert texts(table)[0][4:] == ["0.400", "0.100", "0.950", "0.583", "25.0%"]
        assert table.data["votes"][0] == pytest.approx((0.75 + 0 + 1) / 3)
        assert table.notes == [theory_tables.SHORTCUT.format(1, 4)]

    def test_votes_that_nobody_certified_are_not_known(self):
        table = theory_tables.bounds_table(pd.DataFrame([bound("advmacer x2", 0.4, "mme")]), ALL)
        assert texts(table)[0][-2:] == ["–", "25.0%"]
        assert table.notes == []


class TestSizes:
    def test_one_member_is_the_mean_over_seeds_of_each_method_in_an_ensemble(self):
        frame = tables.sizes([*ALL, result("macer", [1.0] * 4)], "average")
        assert frame.columns.tolist() == ["sigma", "kind", "ensemble", "members", "acr", "error"]
        assert frame.drop(columns=["acr", "error"]).to_numpy().tolist() == [
            [0.5, "advmacer", "advmacer x1", 1],
            [0.5, "smoothadv", "smoothadv x1", 1],
            [0.5, "advmacer", "advmacer x2", 2],
            [0.5, "advmacer + smoothadv", NAMES[MIXED], 2],
        ]
        assert frame["acr"].tolist() == pytest.approx([0.9, 0.5, 1.2, 1.275])
        # 1.3, 1.3, 1.3, 1.2: sample deviation 0.05, by sqrt(4)
        assert frame["error"][3] == pytest.approx(0.025)

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
    spreads = pd.DataFrame([spread("advmacer x2"), spread(NAMES[MIXED], across=0.01)])
    bounds = pd.DataFrame([bound("advmacer x2", 0.4, "mme"), bound(NAMES[MIXED], 0.5, "mme")])
    made = [
        tables.ensembles(ALL, 0.5),
        tables.weighting(ALL, 0.5, {}, NOTHING),
        theory_tables.mixed(ALL, "average", spreads, bounds),
        theory_tables.theory(spreads, ALL),
        theory_tables.bounds_table(bounds, ALL),
    ]
    for table in made:
        assert typeset.latex(table).isascii(), table.label
        assert len({len(row) for row in table.body} | {len(table.header)}) == 1


def test_captions_of_acrs_say_images_subset_and_budget():
    made = [tables.ensembles(ALL, 0.5), tables.weighting(ALL, 0.5, {}, NOTHING)]
    for table in (*made, theory_tables.mixed(ALL, "average", EMPTY, EMPTY)):
        assert "4 images (subset all), n₀ = 10, n = 200, α = 0.01." in table.caption
