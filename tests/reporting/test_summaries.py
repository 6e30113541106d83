"""Row files by themselves: ``rs.reporting.summaries``."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from rs.errors import InputError
from rs.reporting.logs import read_several_alone
from rs.reporting.summaries import (
    compare_rows,
    comparison_text,
    radii_shown,
    summarize_rows,
    summary_text,
)
from rs.smoothing.vote_counting import Tally, certificate_of_votes
from rs.statistics import metrics
from rs.statistics.certificate import format_counts
from rs.statistics.radius import lower_bound, radius
from rs.storage import certificate_rows
from tests.support.helpers import refuses, update_json, write_row_file
from tests.support.tiny_study import ALPHA, IMAGES, N0, N, labelled, make_rows, write_rows

LABELS = np.arange(IMAGES) % 2


def frame(seed, **changes):
    return labelled(make_rows(0.5, seed, **changes), LABELS)


def written(path, rows, **sidecar):
    """The path of rows, with a sidecar that says more."""
    write_rows(rows, path)
    update_json(certificate_rows.sidecar_of(path), **sidecar)
    return path


@pytest.fixture
def a(tmp_path):
    return written(
        tmp_path / "a.tsv", frame(1), model="models/a", dataset="tiny", images="those", device="cpu"
    )


@pytest.fixture
def b(tmp_path):
    return written(
        tmp_path / "b.tsv", frame(2), model="models/b", dataset="tiny", images="those", device="cpu"
    )


def test_the_numbers_are_those_of_their_definitions(a):
    rows, about = frame(1), summarize_rows(a, [0.0, 0.3])
    scores = rows["radius"] * rows["correct"]
    assert about["acr"] == pytest.approx(scores.mean())
    assert about["standard_error"] == pytest.approx(scores.std(ddof=1) / math.sqrt(IMAGES))
    assert about["clean_accuracy"] == about["certified_accuracy"]["0"] == rows["correct"].mean()
    assert (
        about["certified_accuracy"]["0.3"]
        == ((rows["radius"] >= 0.3) & (rows["correct"] == 1)).mean()
    )
    assert about["abstentions"] == (rows["predict"] == -1).sum() > 0


def test_what_the_rows_are_comes_from_them_and_their_sidecar(a):
    about = summarize_rows(a)
    budget = {
        "sigma": 0.5,
        "n0": N0,
        "n": N,
        "alpha": ALPHA,
        "images": IMAGES,
        "subset": "first-12",
    }
    expected = {
        "model": "models/a",
        "dataset": "tiny",
        "device": "cpu",
        "engine": None,
        "scope": "model",
        **budget,
    }
    assert {name: about[name] for name in expected} == expected


def test_without_a_sidecar_the_numbers_stay_and_the_model_is_not_stated(a):
    before = summarize_rows(a)
    certificate_rows.sidecar_of(a).unlink()
    after = summarize_rows(a)
    assert (after["model"], after["acr"]) == (None, before["acr"])
    assert "model               not stated" in summary_text(after)


def test_a_log_in_six_columns_is_described_by_what_it_has(tmp_path, a):
    log = tmp_path / "log.txt"
    certificate_rows.write_field_log(certificate_rows.read_rows(a), log)
    about = summarize_rows(log)
    assert [about[name] for name in ("sigma", "n0", "n", "alpha")] == [None] * 4
    assert about["acr"] == summarize_rows(a)["acr"]
    assert "certified with      not stated" in summary_text(about)


def test_a_name_in_a_sidecar_forges_no_line(a, b):
    written(
        b, frame(2), model="b\n  ACR                 9.999\x1b[1A", dataset="tiny", images="those"
    )
    for text in (summary_text(summarize_rows(b)), comparison_text(compare_rows(a, b))):
        assert r"b\n  ACR                 9.999\x1b[1A" in text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    ("scope", "words"), [("global", "global: sound"), ("per-image", "per-image: not sound")]
)
def test_the_scope_of_weights_says_whether_certificates_are_sound(tmp_path, scope, words):
    about = summarize_rows(written(tmp_path / "e.tsv", frame(1, scope=scope)))
    assert about["sound"] == (scope != "per-image")
    assert words in summary_text(about)


def test_one_image_has_no_error_and_skipped_draws_no_bound(tmp_path):
    (index,) = np.flatnonzero(frame(1)["correct"] == 0)[:1]
    skipped = {"radius": 0.0, "p_lower": 0.0, "n": 0, "counts": "-", "mode": "shortcut"}
    row = frame(1).iloc[[index]].assign(predict=0, label=1, correct=0, **skipped)
    write_row_file(row, tmp_path / "one.tsv")
    about = summarize_rows(tmp_path / "one.tsv")
    assert (about["acr"], about["standard_error"]) == (0.0, None)
    assert "±" not in summary_text(about)


@pytest.mark.parametrize("bad", [-0.1, math.inf, math.nan])
def test_a_radius_is_a_number_of_at_least_0(bad):
    with pytest.raises(InputError, match="radii must be numbers of at least 0"):
        radii_shown([frame(1)], [0.0, bad])


def test_radii_that_are_alike_in_six_digits_keep_their_own_numbers(a, b):
    rows, near = frame(1), [127 / 255, 0.49803921, 0.5]
    named = ["0.4980392156862745", "0.49803921", "0.5"]
    about, found = summarize_rows(a, near), compare_rows(a, b, near)
    assert list(about["certified_accuracy"]) == list(found["certified_accuracy"]) == named
    assert list(about["certified_accuracy"].values()) == [
        float(metrics.certified_accuracy(rows, r)) for r in near
    ]
    lines = summary_text(about).split("\n")
    radii, shares = (line for line in lines if "certified accuracy" in line or line[:24].isspace())
    assert [radii.rindex(name) + len(name) for name in named] == [
        k + 1 for k, c in enumerate(shares) if c == "%"
    ]
    lines = comparison_text(found).split("\n")
    head = next(line for line in lines if line.endswith("A - B"))
    (line,) = (line for line in lines if named[0] in line)
    assert line[: head.index("A") + 1].endswith(f"{found['certified_accuracy'][named[0]]['a']:.1%}")


@pytest.mark.parametrize("asked", [(0.0, 0.25), (0.25,)])
def test_rows_of_some_radii_have_their_accuracies_and_no_others(tmp_path, asked):
    """With 0 among them the clean one as well; never an average radius."""
    rows = frame(1)
    held = (rows["predict"] >= 0) & (rows["radius"] >= asked[0])
    largest = np.where(rows["radius"] >= 0.25, 0.25, 0.0)
    certified = {
        "predict": rows["predict"].where(held, -1),
        "correct": rows["correct"].where(held, 0),
    }
    certified |= {"radius": largest, "p_lower": np.where(held, ndtr(largest / rows["sigma"]), 0.0)}
    path = written(
        tmp_path / "some.tsv",
        rows.assign(mode=f"at-radius:{','.join(map(str, asked))}:{N}", **certified),
    )
    about, difference = summarize_rows(path), compare_rows(path, path)
    shares = [float(metrics.certified_accuracy(rows, radius)) for radius in asked]
    assert list(about["certified_accuracy"].values()) == shares
    assert (about["acr"], about["clean_accuracy"]) == (None, shares[0] if 0.0 in asked else None)
    assert (difference["acr"], difference["clean_accuracy"] is None) == (None, 0.0 not in asked)
    assert "ACR" not in summary_text(about) + comparison_text(difference)
    assert list(summarize_rows(path, [0.25])["certified_accuracy"]) == ["0.25"]
    with pytest.raises(
        InputError, match=r"whether the radii .*0\.25 are certified; ask for no other one"
    ):
        summarize_rows(path, [0.25, 0.5])


def test_differences_are_paired(a, b):
    found, rows = compare_rows(a, b, [0.3]), (frame(1), frame(2))
    scores = [one["radius"] * one["correct"] for one in rows]
    certified = [((one["radius"] >= 0.3) & (one["correct"] == 1)).astype(float) for one in rows]
    correct = [one["correct"] for one in rows]
    for name, (x, y) in {"acr": scores, "clean_accuracy": correct}.items():
        assert_paired(found[name], x, y)
    assert_paired(found["certified_accuracy"]["0.3"], *certified)


def assert_paired(found, x, y):
    gaps = x - y
    expected = (x.mean(), y.mean(), gaps.mean(), gaps.std(ddof=1) / math.sqrt(IMAGES))
    assert tuple(found[name] for name in ("a", "b", "difference", "error_images")) == pytest.approx(
        expected
    )


def test_rows_tie_with_themselves_and_the_text_says_so(a):
    found = compare_rows(a, a)
    assert found["acr"]["tie"]
    assert comparison_text(found).count(", tie") == 2 + len(found["certified_accuracy"]) - 1
    assert " 0.0 ± 0.0 points, tie" in comparison_text(found)


def test_only_the_images_that_both_have_count(tmp_path, a):
    some = frame(2).iloc[[0, 3, 6, 9]]
    found = compare_rows(
        a, written(tmp_path / "some.tsv", some.reset_index(drop=True), subset="stride-3")
    )
    rows = frame(1).iloc[[0, 3, 6, 9]]
    gaps = rows["radius"] * rows["correct"] - some["radius"] * some["correct"]
    assert (found["images"], found["acr"]["difference"]) == (4, pytest.approx(gaps.mean()))
    assert f"4 images that both have (A has {IMAGES})" in comparison_text(found)


REFUSED = {
    "noise": (
        lambda path: written(path, labelled(make_rows(0.25, 2), LABELS)),
        "must have the same sigma",
    ),
    "mode": (lambda path: written(path, frame(2, mode=f"acr-error:0.1:{N}")), "in the same mode"),
    "labels": (
        lambda path: written(path, labelled(make_rows(0.5, 2), 1 - LABELS)),
        "must have the same labels",
    ),
    "images": (
        lambda path: written(path, frame(2, idx=range(50, 62)), subset="range-50-62"),
        "in common, got 0",
    ),
    "data set": (
        lambda path: written(path, frame(2), images="others"),
        "sidecars have different images",
    ),
    "its name": (
        lambda path: written(path, frame(2), dataset="other"),
        "sidecars have different dataset",
    ),
    "its classes": (
        lambda path: written(path, frame(2), classes=4),
        "sidecars have different classes",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_compared_is_refused(tmp_path, a, kind):
    make, message = REFUSED[kind]
    with pytest.raises(InputError, match=message):
        compare_rows(a, make(tmp_path / "other.tsv"))


@pytest.fixture
def logs(tmp_path):
    """Logs in six columns at sigma 0.5 whose radii are rungs of n = 10,000 at alpha = 0.001."""
    paths = {}
    for seed, name in enumerate("ab"):
        votes = 10_000 - np.random.default_rng(seed).permutation(IMAGES) % 10
        rows = frame(1).assign(
            radius=radius(lower_bound(votes, 10_000, 0.001), 0.5), predict=LABELS, correct=1
        )
        paths[name] = tmp_path / f"{name}.log"
        certificate_rows.write_field_log(rows, paths[name])
    return paths


def test_logs_are_named_by_all_of_their_names(logs, tmp_path):
    names = ["lam_0.1.log", "lam_0.5.log"]
    paths = [path.rename(tmp_path / name) for path, name in zip(logs.values(), names, strict=True)]
    assert [result.name for result in read_several_alone(paths, **STATED)] == names


STATED = {"sigma": 0.5, "n0": 100, "n": 10_000, "alpha": 0.001}


def test_logs_are_compared_by_what_is_said_of_them(logs):
    found = compare_rows(logs["a"], logs["b"], **STATED)
    assert {name: found[name] for name in STATED} == STATED
    one, other = (certificate_rows.read_field_log(logs[name]) for name in "ab")
    assert found["acr"]["difference"] == pytest.approx((one["radius"] - other["radius"]).mean())


def test_a_log_is_compared_with_rows_of_its_budget(tmp_path, logs):
    votes = 10_000 - np.arange(IMAGES)
    p_lower = lower_bound(votes, 10_000, 0.001)
    certified = {
        "p_lower": p_lower,
        "radius": radius(p_lower, 0.5),
        "predict": LABELS,
        "correct": 1,
    }
    counts = [
        format_counts(own * np.eye(3)[label] + (10_000 - own) * np.eye(3)[2])
        for label, own in zip(LABELS, votes, strict=True)
    ]
    rows = frame(1).assign(
        **certified, **STATED, counts0=[f"{label}:100" for label in LABELS], counts=counts
    )
    write_row_file(rows, tmp_path / "rows.tsv")
    found = compare_rows(tmp_path / "rows.tsv", logs["a"], **STATED)
    assert (found["sigma"], found["images"]) == (0.5, IMAGES)


def test_a_log_of_which_something_is_not_said_is_not_compared(logs):
    with pytest.raises(
        InputError, match=r"a\.log must say its n, alpha to be compared; of a log give --sigma, --n"
    ):
        compare_rows(logs["a"], logs["b"], sigma=0.5, n0=100)


@given(st.floats(0, 1e300))
def test_the_radii_of_a_table_reach_the_largest_in_at_most_twenty_steps(largest):
    """Of a correct image: the radii of others do not count."""
    half = IMAGES // 2
    at = radii_shown([frame(1).assign(radius=[largest, 1e301] * half, correct=[1, 0] * half)])
    assert len(at) <= 20
    assert at[0] == 0
    assert at[-1] <= largest < at[-1] + (at[1] if at[1:] else 0.25)
    assert largest >= 5 or at == [k / 4 for k in range(len(at))]


def test_images_that_skipped_their_draws_are_counted_apart_from_abstentions(tmp_path):
    """Of five images of class 1 one is certified; n0 draws choose class 0 for the others, which
    would abstain.
    """
    few, many, most = (Tally(np.array(votes)) for votes in ([40, 60], [100, 900], [510, 490]))
    swapped = Tally(few.votes[::-1])
    last = certificate_of_votes(few, many, 0.001, 0.5).row(4, 1)
    skipped = [certificate_of_votes(swapped, None, 0.001, 0.5).row(i, 1) for i in range(4)]
    whole = [certificate_of_votes(swapped, most, 0.001, 0.5).row(i, 1) for i in range(4)]
    paths = {name: tmp_path / f"{name}.tsv" for name in ("some", "none", "all")}
    for name, rows in {"some": [*skipped, last], "none": [*whole, last], "all": skipped}.items():
        write_row_file(rows, paths[name])
    abouts = {name: summarize_rows(path) for name, path in paths.items()}
    counts = {name: (about["skipped"], about["abstentions"]) for name, about in abouts.items()}
    assert counts == {"some": (4, 0), "none": (0, 4), "all": (4, 0)}
    texts = {name: summary_text(about) for name, about in abouts.items()}
    said = "4 images skipped their n draws, as n0 draws chose a wrong class"
    assert f"{said}; abstentions and p_A are of the other 1" in texts["some"]
    assert f"{said}; abstentions and p_A are of the other 0" in texts["all"]
    assert "  abstentions  " not in texts["all"]
    assert "4 (80.0%)" in texts["none"]
    assert "skipped their" not in texts["none"]


def test_rows_that_stopped_early_say_their_rule(tmp_path):
    rows = frame(1, mode=f"acr-error:0.1:{N}")
    text = summary_text(summarize_rows(written(tmp_path / "early.tsv", rows)))
    assert f"  stopped early       acr-error:0.1:{N}" in text
    assert "stopped early" not in summary_text(
        summarize_rows(written(tmp_path / "all.tsv", frame(1)))
    )


@pytest.mark.parametrize("bad", [{"sigma": 0.0}, {"n": 0}, {"n0": -1}, {"alpha": 1.0}])
def test_what_is_said_of_a_log_must_be_possible(logs, bad):
    with pytest.raises(InputError, match=rf"got {next(iter(bad))} "):
        summarize_rows(logs["a"], **bad)


@pytest.mark.parametrize("beside", ["[]", '{"rows": 3, "scope": "global"}', "no JSON"])
def test_a_file_beside_a_log_is_not_its_sidecar(logs, beside):
    before = summarize_rows(logs["a"])
    certificate_rows.sidecar_of(logs["a"]).write_text(beside)
    assert summarize_rows(logs["a"]) == before


def test_what_is_neither_rows_nor_a_log_is_told_both_forms(tmp_path):
    (tmp_path / "notes.txt").write_text("idx\tlabel\n0\t1\n")
    with refuses(
        r"columns idx .* scope, or a log .* idx label predict radius correct time, .* got 'idx label'"
    ):
        summarize_rows(tmp_path / "notes.txt")


def test_other_arithmetic_is_said_and_not_refused_as_in_reports(tmp_path, a):
    other = written(
        tmp_path / "other.tsv", frame(2), images="those", device="cpu", arithmetic="portable"
    )
    found = compare_rows(a, other)
    assert "Certified differently: arithmetic" in found["notes"][0]
    assert found["notes"][0] in comparison_text(found)


def test_rows_of_outputs_in_float16_are_told_from_others(tmp_path, a):
    kept = written(tmp_path / "kept.tsv", frame(2), outputs="float16")
    assert ["outputs float16" in summary_text(summarize_rows(path)) for path in (kept, a)] == [
        True,
        False,
    ]


def test_a_side_that_is_not_sound_is_said(tmp_path, a):
    found = compare_rows(a, written(tmp_path / "e.tsv", frame(2, scope="per-image")))
    assert "B: not sound" in comparison_text(found)
    assert "A: not sound" not in comparison_text(found)
