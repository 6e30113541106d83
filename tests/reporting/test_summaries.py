"""Row files by themselves: ``rs.reporting.summaries``."""

import math

import numpy as np
import pytest

from rs.reporting.logs import read_several_alone
from rs.reporting.summaries import compare_rows, paired_difference, radii_shown, summarize_rows
from rs.reporting.summary_texts import comparison_text, summary_text
from rs.statistics import metrics
from rs.storage import certificate_rows
from tests.support.helpers import refuses, update_json, write_row_file
from tests.support.tiny_study import ALPHA, IMAGES, N0, N, at_radii, labeled, make_rows, write_rows

LABELS = np.arange(IMAGES) % 2


def frame(seed, **changes):
    return labeled(make_rows(0.5, seed, **changes), LABELS)


def written(path, rows, **sidecar):
    """The path of rows, with a sidecar that says more."""
    write_rows(rows, path)
    update_json(certificate_rows.sidecar_of(path), **sidecar)
    return path


OF_TINY = {"dataset": "tiny", "images": "those", "device": "cpu"}


@pytest.fixture
def a(tmp_path):
    return written(tmp_path / "a.tsv", frame(1), model="models/a", **OF_TINY)


@pytest.fixture
def b(tmp_path):
    return written(tmp_path / "b.tsv", frame(2), model="models/b", **OF_TINY)


def test_the_numbers_are_those_of_their_definitions(a):
    rows, about = frame(1), summarize_rows(a, [0.0, 0.3])
    scores = rows["radius"] * rows["correct"]
    assert about["acr"] == pytest.approx(scores.mean())
    assert about["standard_error"] == pytest.approx(scores.std(ddof=1) / math.sqrt(IMAGES))
    assert about["clean_accuracy"] == about["certified_accuracy"]["0"] == rows["correct"].mean()
    certified = (rows["radius"] >= 0.3) & (rows["correct"] == 1)
    assert about["certified_accuracy"]["0.3"] == certified.mean()
    assert about["abstentions"] == (rows["predict"] == -1).sum() > 0


def test_what_the_rows_are_comes_from_them_and_their_sidecar(a):
    """Without a sidecar the numbers stay, and the model is not stated."""
    expected = {"model": "models/a", "dataset": "tiny", "device": "cpu", "engine": None}
    expected |= {"sigma": 0.5, "n0": N0, "n": N, "alpha": ALPHA, "scope": "model"}
    expected |= {"images": IMAGES, "subset": "first-12"}
    about = summarize_rows(a)
    assert about.items() >= expected.items()
    certificate_rows.sidecar_of(a).unlink()
    alone = summarize_rows(a)
    assert (alone["model"], alone["acr"]) == (None, about["acr"])


def test_a_name_in_a_sidecar_forges_no_line(a, b):
    update_json(certificate_rows.sidecar_of(b), model="b\n  ACR                 9.999\x1b[1A")
    for text in (summary_text(summarize_rows(b)), comparison_text(compare_rows(a, b))):
        assert r"b\n  ACR                 9.999\x1b[1A" in text
        assert "\x1b" not in text


def test_a_long_name_without_a_model_has_no_line_of_spaces(tmp_path, a):
    log = written(tmp_path / f"{'x' * 90}.tsv", frame(1))
    certificate_rows.sidecar_of(log).unlink()
    lines = comparison_text(compare_rows(log, a)).splitlines()
    assert all(line == "" or line.strip() for line in lines)


@pytest.mark.parametrize("scope", ["global", "per-image"])
def test_the_scope_of_weights_says_whether_certificates_are_sound(tmp_path, a, scope):
    other = written(tmp_path / "e.tsv", frame(1, scope=scope))
    about = summarize_rows(other)
    assert about["sound"] == (scope != "per-image")
    assert ("not sound" in summary_text(about)) == (scope == "per-image")
    assert ("B: not sound" in comparison_text(compare_rows(a, other))) == (scope == "per-image")


@pytest.mark.parametrize("bad", [-0.1, math.inf, math.nan])
def test_a_radius_is_a_number_of_at_least_0(bad):
    with refuses("radii must be numbers of at least 0"):
        radii_shown([frame(1)], [0.0, bad])


def test_radii_that_agree_in_six_digits_keep_their_own_numbers(a, b):
    near = [127 / 255, 0.49803921, 0.5]
    names = ["0.4980392156862745", "0.49803921", "0.5"]
    assert list(summarize_rows(a, near)["certified_accuracy"]) == names
    assert list(compare_rows(a, b, near)["certified_accuracy"]) == names


@pytest.mark.parametrize("asked", [(0.0, 0.25), (0.25,)])
def test_rows_of_some_radii_have_their_accuracies_and_no_others(tmp_path, asked):
    """With 0 among them the clean one as well; never an average radius."""
    rows = frame(1)
    path = written(tmp_path / "some.tsv", at_radii(rows, *asked))
    about = summarize_rows(path)
    shares = [float(metrics.certified_accuracy(rows, radius)) for radius in asked]
    assert list(about["certified_accuracy"].values()) == shares
    assert about["clean_accuracy"] == (shares[0] if 0.0 in asked else None)
    assert about["acr"] is None
    assert "ACR" not in comparison_text(compare_rows(path, path))
    with refuses(r"whether the radii .*0\.25 are certified; choose among"):
        summarize_rows(path, [0.25, 0.5])


@pytest.mark.parametrize("alone", range(8))
def test_accuracies_tie_unless_one_side_alone_certifies_many_images(alone):
    """If k images are certified by one side alone, the exact two-sided p-value is 2^(1 - k)."""
    is_better = np.arange(IMAGES) < alone
    rows = [frame(1).assign(radius=np.where(is_better, level, 0.3)) for level in (0.5, 0.2)]
    correct = [part.assign(correct=1) for part in rows]
    found = paired_difference(correct, 0.4)
    assert found["p_value"] == pytest.approx(min(1.0, 2.0 ** (1 - alone)))
    assert found["tie"] == (alone < 6)


def test_differences_are_paired(a, b):
    found = compare_rows(a, b, [0.3])
    rows = [frame(1), frame(2)]
    scores = [one["radius"] * one["correct"] for one in rows]
    certified = [(one["radius"] >= 0.3) * one["correct"] for one in rows]
    for part, (x, y) in ((found["acr"], scores), (found["certified_accuracy"]["0.3"], certified)):
        gaps = x - y
        assert (part["a"], part["b"]) == pytest.approx((x.mean(), y.mean()))
        assert part["difference"] == pytest.approx(gaps.mean())
        assert part["error_images"] == pytest.approx(gaps.std(ddof=1) / math.sqrt(IMAGES))


def test_the_verdict_names_the_side_with_the_larger_radii(tmp_path):
    """All images of one side are like its best image, all of the other like its worst."""
    ranked = labeled(make_rows(0.5, 1), 0).sort_values("radius")
    paths = []
    for place in (-1, 0):
        rows = ranked.iloc[[place] * IMAGES].reset_index(drop=True)
        paths.append(written(tmp_path / f"{place}.tsv", rows.assign(idx=range(IMAGES))))
    some, none = paths
    for first, second, better in ((some, none, "A is better than B"), (none, some, "B is better")):
        found = compare_rows(first, second)
        size = f"{abs(found['acr']['difference']):.4f} ± {found['acr']['error_images']:.4f} (ACR)"
        verdict = comparison_text(found).splitlines()[-1]
        assert verdict.startswith(f"verdict: {better}")
        assert verdict.endswith(f" by {size}")


def test_only_the_images_that_both_have_count(tmp_path, a):
    some = frame(2).iloc[[0, 3, 6, 9]]
    other = written(tmp_path / "some.tsv", some.reset_index(drop=True), subset="stride-3")
    found = compare_rows(a, other)
    expected = metrics.acr(frame(1).iloc[[0, 3, 6, 9]]) - metrics.acr(some)
    assert (found["images"], found["acr"]["difference"]) == (4, pytest.approx(expected))


@pytest.mark.parametrize(
    ("rows", "sidecar", "message"),
    [
        (labeled(make_rows(0.25, 2), LABELS), {}, "must have the same sigma"),
        (at_radii(frame(2), 0.25), {}, "in the same mode"),
        (frame(2, idx=range(50, 62)), {"subset": "range-50-62"}, "in common, got 0"),
        (frame(2), {"images": "others"}, "sidecars have different images"),
    ],
    ids=["noise", "mode", "images", "data set"],
)
def test_what_cannot_be_compared_is_refused(tmp_path, a, rows, sidecar, message):
    other = written(tmp_path / "other.tsv", rows, **sidecar)
    with refuses(message):
        compare_rows(a, other)


def log_of(path, name):
    """The path of a log in six columns of these rows."""
    log = path.with_name(name)
    certificate_rows.write_field_log(certificate_rows.read_rows(path), log)
    return log


def test_a_log_has_what_it_states_and_is_not_compared_without_its_budget(a, b):
    log = log_of(a, "a.log")
    about = summarize_rows(log)
    assert [about[name] for name in ("sigma", "n0", "n", "alpha")] == [None] * 4
    assert about["acr"] == summarize_rows(a)["acr"]
    with refuses(r"a\.log must state its n, alpha to be compared"):
        compare_rows(log, log_of(b, "b.log"), sigma=0.5, n0=N0)


@pytest.mark.parametrize("names", [["lam_0.1.log", "lam_0.5.log"], ["lam", "lam.tsv"]])
def test_logs_are_named_by_all_of_their_names(a, b, names):
    paths = [log_of(path, name) for path, name in zip((a, b), names, strict=True)]
    assert [result.name for result in read_several_alone(paths)] == names


def test_a_log_beside_rows_has_the_numbers_of_its_own_rows(a, b):
    """What is stated is of the log; rows say it themselves."""
    log = log_of(b, "b.log")
    found = compare_rows(a, log, sigma=0.5, n0=N0, n=N, alpha=ALPHA)
    assert (found["acr"], found["images"]) == (compare_rows(a, b)["acr"], IMAGES)
    with refuses("radius must be one that n = 300"):
        compare_rows(a, log, sigma=0.5, n0=N0, n=300, alpha=ALPHA)


@pytest.mark.parametrize(
    ("images", "sigma", "warns"), [(10, 0.25, False), (10, 0.5, True), (9, 0.5, False)]
)
def test_a_log_of_another_sigma_is_noticed_by_its_largest_radius(
    tmp_path, capsys, images, sigma, warns
):
    """Ten images or more whose 100,000 votes were all for one class: 0.953 is their radius."""
    log = tmp_path / "a.log"
    lines = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"]
    lines += [f"{index}\t0\t0\t0.953\t1\t0:00:00" for index in range(images)]
    log.write_text("\n".join(lines) + "\n")
    summarize_rows(log, sigma=sigma, n=100_000, alpha=0.001)
    assert ("check these" in capsys.readouterr().err) == warns


@pytest.mark.parametrize(("skipped", "images"), [(4, 5), (0, 5), (1, 1)])
def test_images_that_skipped_their_draws_are_counted_apart_from_abstentions(
    tmp_path, skipped, images
):
    """Those that abstain drew. The error of a single image is not known."""
    rows = frame(1).query("predict == -1").iloc[[0] * images].reset_index(drop=True)
    rows["idx"] = range(images)
    nothing = {"mode": "shortcut", "n": 0, "counts": "-", "p_lower": 0.0, "predict": 0, "label": 1}
    rows.loc[: skipped - 1, list(nothing)] = list(nothing.values())
    write_row_file(rows, tmp_path / "some.tsv")
    about = summarize_rows(tmp_path / "some.tsv")
    assert (about["skipped"], about["abstentions"]) == (skipped, images - skipped)
    assert (about["standard_error"] is None) == (images == 1)


def test_other_arithmetic_is_noted_and_not_refused(a, b):
    update_json(certificate_rows.sidecar_of(b), arithmetic="portable")
    (note,) = compare_rows(a, b)["notes"]
    assert "Certified differently: arithmetic" in note
