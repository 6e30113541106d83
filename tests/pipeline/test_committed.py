"""The results in git are those that this machine makes: portable arithmetic, from raw data to rows."""

import hashlib
import json
import math
import re
import shutil
from functools import partial
from importlib import metadata
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from benchmarks.warm_starts import trainings
from rs.methods import METHODS
from rs.statistics.comparison import LEVEL, estimate, holm, sample
from rs.statistics.metrics import acr, certified_accuracy
from rs.storage import certificate_rows
from tests.support.helpers import ROOT, needs_x86, stage
from tests.support.small_project import run

LOCK = YAML(typ="safe", pure=True).load((ROOT / "dvc.lock").read_text())["stages"]
STUDY = YAML(typ="safe", pure=True).load((ROOT / "reports/rows/cifar10-cpu/params.yaml").read_text())
STUDIED = STUDY["methods"] + STUDY["methods_with_targets"]
"""Methods of the committed rows of CIFAR-10."""
SECONDS = pd.read_csv(ROOT / "reports/rows/cifar10-cpu/epoch-seconds.csv", index_col="method")["seconds"]  # of an epoch
COMPUTING = ("numpy", "scikit-learn", "scipy", "torch")
"""Packages whose version is part of a result, beside the machine's C library."""


def pinned(name):
    return re.search(rf"^{name}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]


def recorded(stage_name, path):
    return next(out["md5"] for out in LOCK[stage_name]["outs"] if out["path"] == path)


def md5(path):
    """What DVC calls a file, or a folder: the sum of the list of its files' sums."""
    if path.is_file():
        return hashlib.md5(path.read_bytes()).hexdigest()
    names = sorted(one for one in path.rglob("*") if one.is_file())
    listed = [{"md5": md5(one), "relpath": one.relative_to(path).as_posix()} for one in names]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"


def table(page, *titles, heading=None):
    """The table of a page, or below a heading, whose first columns have these titles: the other titles, the rows."""
    text = (ROOT / page).read_text()
    text = text if heading is None else re.split(rf"^## {heading}$", text, flags=re.MULTILINE)[1].split("\n## ")[0]
    blocks = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    tables = [[[cell.strip() for cell in line.strip("|").split("|")] for line in lines] for lines in blocks]
    ((head, _, *rows),) = (lines for lines in tables if tuple(lines[0][: len(titles)]) == titles)
    return head[len(titles) :], rows


def sigmas(titles):
    """The noise levels that columns are of."""
    return [float(re.fullmatch(r"σ = ([\d.]+)", title)[1]) for title in titles]


def committed(name, dataset="digits", **where):
    """The row of a committed CSV in which columns have these values."""
    frame = pd.read_csv(ROOT / "reports" / dataset / f"{name}.csv")
    (row,) = (row for _, row in frame.iterrows() if all(row[key] == value for key, value in where.items()))
    return row


def with_errors(value, images, both, digits, sign=""):
    """A number with its errors, over images and, if known, over trainings too; a difference, with a sign unless 0."""
    seeds = "" if both is None or math.isnan(both) else f" [{both:.{digits}f}]"
    return re.sub(r"^[+-](0\.0*)(?= )", r"\1", f"{value:{sign}.{digits}f} ± {images:.{digits}f}{seeds}")


def mean(row):
    """The ACR of a row with its errors."""
    return with_errors(row["acr"], row["standard_error"], row["standard_error_with_seeds"], 3)


def shown(row, prefix):
    """A difference of a row with its errors, and whether it is a tie."""
    gain, images, both = (row[f"{prefix}{part}"] for part in ("difference", "error_images", "error"))
    return with_errors(gain, images, both, 4, "+") + " tie" * bool(row[f"{prefix}tie"])


def test_the_lock_file_has_the_cells_of_the_pipeline_and_no_others():
    assert {*LOCK} == {*run(ROOT, "dvc", "stage", "list", "--name-only").split()}


def test_the_table_of_the_readme_is_that_of_the_committed_report():
    titles, rows = table("README.md", "method")
    assert [row[0] for row in rows[: len(STUDIED)]] == STUDIED
    assert len(titles) >= 1
    assert len(rows) > len(STUDIED)
    for name, *cells in rows:
        ensemble, _, combination = name.partition(", ")
        for sigma, cell in zip(sigmas(titles), cells, strict=True):
            where = {"ensemble": ensemble, "combination": combination} if combination else {"method": name}
            csv = f"ensembles-{sigma}" if combination else "main"
            assert cell.strip("*") == mean(committed(csv, "cifar10-cpu", sigma=sigma, **where))


def test_bold_in_the_readme_is_the_largest_acr_and_what_ties_with_it(results):
    titles, rows = table("README.md", "method")
    for column, sigma in enumerate(sigmas(titles), start=1):
        samples = {row[0]: sample_of(row[0], results("cifar10-cpu", sigma)) for row in rows}
        largest = max(samples, key=lambda name: estimate(samples[name]).value)
        ties = {name for name in samples if name != largest and estimate(samples[largest], samples[name]).tie}
        assert {row[0] for row in rows if row[column].startswith("**")} == {largest, *ties}
        assert not ties


def test_the_methods_that_the_readme_names_tie_with_advmacer_and_no_others_do():
    frame = pd.read_csv(ROOT / "reports/cifar10-cpu/differences.csv")
    frame = frame[(frame["reference"] == "advmacer") & frame["method"].isin(STUDIED)]
    assert (frame["tie"] | (frame["difference"] < 0)).all()
    tied = frame[frame["tie"]].groupby("method")["sigma"].apply(list).to_dict()
    assert tied == {"smoothadv": [0.25, 0.5], "consistency": [0.25]}
    said = "AdvMacer is first: SmoothAdv ties with it at σ = 0.25 and 0.5, Consistency at 0.25."
    assert said in words_of("README.md")


def test_the_methods_of_the_page_on_digits_are_those_of_the_committed_report():
    titles, rows = table("docs/digits.md", "method")
    assert sigmas(titles) == [0.25, 0.5]
    assert [row[0] for row in rows] == [*METHODS]
    for method, *cells in rows:
        for sigma, cell in zip(sigmas(titles), cells, strict=True):
            row = committed("main", method=method, sigma=sigma)
            assert cell == f"{mean(row)} ({row['clean_accuracy']:.1%})"


def test_the_line_that_the_page_on_tables_explains_is_that_of_the_committed_report():
    (row,) = table("docs/tables.md", "method")[1]
    made = committed("main", method=row[0], sigma=0.25)
    assert row[1] == f"{mean(made)} ({made['clean_accuracy']:.1%})"
    text = words_of("docs/tables.md")
    assert f"certified radius is {made['acr']:.3f}." in text
    assert f"{100 * made['clean_accuracy']:.1f} % of the images are right" in text


def test_the_weights_beyond_the_paper_have_the_acrs_of_the_committed_report():
    titles, rows = table("docs/beyond.md", "members", "sigma")
    assert titles == ["ACR, equal", "`optimal`", "`radius`"]
    for ensemble, sigma, *cells in rows:
        made = [
            committed(f"ensembles-{sigma}", ensemble=ensemble, combination=c) for c in ("average", "optimal", "radius")
        ]
        assert cells == [f"{made[0]['acr']:.3f}", *(shown(row, "reference_") for row in made[1:])]


def test_the_ensembles_of_the_page_on_digits_are_those_of_the_committed_report():
    titles, rows = table("docs/digits.md", "ensemble", "combination")
    assert sigmas(titles[1::3]) == [0.25, 0.5]
    assert len(rows) == 12
    for ensemble, combination, *cells in rows:
        for sigma, found in zip((0.25, 0.5), (cells[:3], cells[3:]), strict=True):
            row = committed(f"ensembles-{sigma}", ensemble=ensemble, combination=combination)
            difference = "–" if combination == "average" else shown(row, "reference_")
            assert found == [f"{row['members_per_draw']:.2f}", f"{row['acr']:.3f}", difference]


def words_of(page):
    """The text of a page, on one line."""
    return " ".join((ROOT / page).read_text().split())


def test_the_members_that_are_chosen_are_those_of_the_committed_report():
    titles, rows = table("docs/beyond.md", "sigma", "chosen")
    assert titles == ["`best-3`", "to the mean of the nine", "to the best of the nine", "`radius`, all nine"]
    more = []
    for sigma, _, *cells in rows:
        best, nine = (committed(f"ensembles-{sigma}", ensemble="all nine", combination=c) for c in ("best-3", "radius"))
        gains = [shown(best, prefix) for prefix in ("members_", "best_member_")]
        assert cells == [f"{best['acr']:.3f}", *gains, f"{nine['acr']:.3f}"]
        three = committed(f"ensembles-{sigma}", ensemble="smoothadv x3", combination="average")
        more.append(three["acr"] - best["acr"])
    said = r"three of SmoothAdv have (\S+) ± \S+ and (\S+) ± \S+ more"
    assert re.search(said, words_of("docs/beyond.md")).groups() == tuple(f"{gain:.4f}" for gain in more)


def test_the_two_sided_acrs_beyond_the_paper_are_those_of_the_committed_report():
    frame = pd.read_csv(ROOT / "reports/digits/main.csv")
    frame = frame[frame["method"].isin(STUDIED)]
    even, votes = frame["acr_two_sided"], frame["acr_two_sided_votes"]
    gains = frame[["method", "sigma"]].assign(even=even - frame["acr"], votes=votes - even)
    ours, levels = gains[gains["method"] == "advmacer"].set_index("sigma"), gains.groupby("sigma")
    least, most = levels.min(numeric_only=True), levels.max(numeric_only=True)
    text = words_of("docs/beyond.md")
    assert f"`even` adds {ours['even'][0.25]:.4f} ± 0.0005 to the one-sided ACR" in text
    assert (
        f"{ours['even'][0.5]:.3f} ± 0.002 at 0.5; `votes` adds {ours['votes'][0.25]:.4f} and {ours['votes'][0.5]:.4f}"
        in text
    )
    ranges = [f"{least['votes'][sigma]:.4f} to {most['votes'][sigma]:.4f}" for sigma in (0.25, 0.5)]
    assert f"for all methods {' and '.join(ranges)}" in text


def test_the_acrs_at_equal_cost_beyond_the_paper_are_those_of_the_committed_report():
    losses, gains, names = {}, [], ("advmacer", "advmacer x2", "advmacer x3")
    for sigma in (0.25, 0.5):
        acr_of = {name: committed("equal-cost", method=name, sigma=sigma, evaluations=1100)["acr"] for name in names}
        for name in names[1:]:
            losses.setdefault(name, []).append(f"{acr_of['advmacer'] - acr_of[name]:.4f}")
            gains.append(committed("differences", method=name, sigma=sigma, reference="advmacer")["difference"])
    said = r"two AdvMacers are worse than one by (\S+) ± \S+ at sigma 0\.25 and (\S+) ± \S+ at 0\.5"
    text = words_of("docs/beyond.md")
    assert [*re.search(said, text).groups()] == losses["advmacer x2"]
    assert [*re.search(r"those of three by (\S+) ± \S+ and (\S+) ± \S+;", text).groups()] == losses["advmacer x3"]
    assert f"at equal n they are better, by {min(gains):.4f} to {max(gains):.4f}." in text


def test_three_models_with_equal_weights_are_said_to_tie_where_they_do():
    row = committed("differences", "cifar10-cpu", method="advmacer x1 + macer x2", sigma=0.25, reference="advmacer")
    assert row["tie"]
    said = with_errors(row["difference"], row["error_images"], row["error"], 4, "+")
    assert f"two MACERs equal weights tie with AdvMacer alone ({said})" in words_of("docs/cifar10-cpu.md")


LEVELS = re.findall(r"^## Results at sigma (\S+)$", (ROOT / "docs/cifar10-cpu.md").read_text(), re.MULTILINE)


def test_the_page_on_cifar10_has_every_noise_level_of_the_readme():
    titles, _ = table("README.md", "method")
    assert sigmas(titles) == [float(level) for level in LEVELS]


def papers_acrs(method, sigma):
    """The ACRs of a method that the paper prints, beside those of the committed report."""
    frame = pd.read_csv(ROOT / "reports/cifar10-cpu/published.csv")
    return frame[(frame["method"] == method) & (frame["sigma"] == sigma) & (frame["metric"] == "acr")]["paper"]


@pytest.mark.parametrize("level", LEVELS)
def test_the_methods_of_the_page_on_cifar10_are_those_of_the_committed_report(level):
    titles, rows = table("docs/cifar10-cpu.md", "method", heading=f"Results at sigma {level}")
    assert titles == ["ACR", "to gaussian", "ACR published", "clean accuracy"]
    assert [row[0] for row in rows] == STUDIED
    for method, found, gain, published, accuracy in rows:
        where = {"method": method, "sigma": float(level)}
        row = committed("main", "cifar10-cpu", **where)
        assert found == mean(row)
        assert accuracy == f"{row['clean_accuracy']:.1%}"
        assert published == next((f"{acr:.3f}" for acr in papers_acrs(method, float(level))), "–")
        if method != "gaussian":
            assert gain == shown(committed("differences", "cifar10-cpu", reference="gaussian", **where), "")


def test_the_ensembles_of_the_page_on_cifar10_are_those_of_the_committed_report():
    titles, rows = table("docs/cifar10-cpu.md", "ensemble", "combination")
    assert titles == [title for level in LEVELS for title in (f"σ = {level}", "to members' mean")]
    assert len(rows) == 13
    evaluated, gains = [], []
    for ensemble, combination, *cells in rows:
        where = {"ensemble": ensemble, "combination": combination}
        made = [committed(f"ensembles-{level}", "cifar10-cpu", **where) for level in LEVELS]
        assert cells == [cell for row in made for cell in (f"{row['acr']:.3f}", shown(row, "members_"))]
        if combination == "cascade":
            evaluated += [row["members_per_draw"] for row in made]
            gains += [row["reference_difference"] for row in made]
            assert all(row["reference_tie"] or row["reference_difference"] > 0 for row in made)
    page = words_of("docs/cifar10-cpu.md")
    assert f"evaluates {min(evaluated):.2f} to {max(evaluated):.2f} of its three members for a draw" in page
    assert f"ties with the average or gains up to {max(gains):.4f}." in page
    fitted = {
        (ensemble, level): committed(f"ensembles-{level}", "cifar10-cpu", ensemble=ensemble, combination="radius")
        for ensemble in ("advmacer x3", "smoothadv x3", "macer x3")
        for level in LEVELS
    }
    assert [key for key, row in fitted.items() if row["reference_difference"]] == [("advmacer x3", "0.5")]
    assert "are equal, except for AdvMacer at 0.5." in page


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of the committed rows of each study, unpacked."""
    root, folders = tmp_path_factory.mktemp("rows"), {}
    for path in (ROOT / "reports" / "rows").glob("*/*.tar.xz"):
        shutil.unpack_archive(path, folders.setdefault(path.parent.name, root / path.parent.name), filter="data")
    return folders


@pytest.fixture(scope="module")
def results(unpacked):
    """The folder of the rows of a study at a noise level: 2,000 images, or 500 with four times the draws."""
    return lambda study, level: unpacked[study] / "results/cifar10-cpu" / str(level)


@pytest.fixture(scope="module")
def fitted_weights(unpacked):
    """The weights of an ensemble by the beginning of its file's name, of each set of seeds."""

    def of(level, name):
        paths = sorted((unpacked["cifar10-cpu"] / "weights/cifar10-cpu" / level).glob(f"{name}.json"))
        return [json.loads(path.read_text())["fitted"]["weights"] for path in paths]

    return of


@pytest.mark.parametrize("level", LEVELS)
def test_the_acrs_on_cifar10_are_those_of_the_committed_rows(results, level):
    for method in STUDIED:
        row = committed("main", "cifar10-cpu", method=method, sigma=float(level))
        frames, _ = rows_of(method, results("cifar10-cpu", level))
        assert len(frames) == row["seeds"]
        assert np.mean([acr(frame) for frame in frames]) == pytest.approx(row["acr"], rel=1e-12)


def test_the_weights_of_advmacer_beside_two_macers_are_those_of_the_committed_run(fitted_weights):
    text = words_of("docs/cifar10-cpu.md")
    for level, said in (("0.25", "({} for AdvMacer)"), ("0.5", "({} for AdvMacer)"), ("1.0", "AdvMacer gets {}, ")):
        weights = [first for first, *_ in fitted_weights(level, "advmacer-?+macer-?-?.optimal")]
        assert len(weights) == 3
        assert said.format(f"{min(weights):.2f} to {max(weights):.2f}") in text


def rows_of(name, folder):
    """The rows of a method's trainings, of its ensemble of three or of one with two MACERs, and the seeds of each."""
    method, _, combination = name.partition(" x1 + macer x2, ")
    if combination:
        paths = sorted((folder / "pool").glob(f"{method}-?+macer-?-?.{combination}.tsv"))
        return [certificate_rows.read_rows(path) for path in paths], [[0, 1, 2]] * len(paths)
    method, _, combination = name.partition(" x3, ")
    if combination:
        return [certificate_rows.read_rows(folder / "pool" / f"{method}-0-1-2.{combination}.tsv")], [[0, 1, 2]]
    paths = {seed: [folder / f"{method}-{seed}.tsv", folder / "pool" / f"{method}-{seed}.tsv"] for seed in range(3)}
    found = {seed: path for seed, both in paths.items() for path in [*filter(Path.exists, both)][:1]}
    return [certificate_rows.read_rows(path) for path in found.values()], [[seed] for seed in found]


def sample_of(name, folder):
    """The sample of :func:`rows_of`."""
    return sample(*rows_of(name, folder))


def test_advmacer_with_cat_rs_or_hard_drop_gains_what_the_page_says(results):
    def mixture(level, *stems):
        paths = (results("cifar10-cpu-mixtures", level) / "pool" / f"{stem}.tsv" for stem in stems)
        return sample([certificate_rows.read_rows(path) for path in paths], [[0]] * len(stems))

    titles, rows = table("docs/cifar10-cpu.md", "ensemble of two or three", "weights")
    assert titles == [title for level in LEVELS for title in (f"σ = {level}", "to AdvMacer")]
    below = {}
    for name, combination, *cells in rows:
        members, expected = [f"{method}-0" for method in name.split(" + ")], []
        for level in LEVELS:
            made = mixture(level, "+".join(members) + f".{combination}")
            gain, to_mean = (estimate(made, mixture(level, *stems)) for stems in (["advmacer-0"], members))
            assert gain.tie or gain.value < 0
            assert not gain.tie or combination != "average"
            expected += [f"{estimate(made).value:.3f}", estimated_gain(gain)]
            if combination == "average" and to_mean.value < 0 and not to_mean.tie:
                below[members[-1], level] = estimated_gain(to_mean)
        assert cells == expected
    said = "with hard-drop at 0.5, {}, and at 1.0, {}; with CAT-RS at 1.0, {}."
    places = [("hard-drop-0", "0.5"), ("hard-drop-0", "1.0"), ("cat-rs-0", "1.0")]
    assert {*below} == {*places}
    assert said.format(*(below[place] for place in places)) in words_of("docs/cifar10-cpu.md")


def estimated_acr(scores):
    """The estimated ACR of a sample with its errors."""
    estimated = estimate(scores)
    return with_errors(estimated.value, estimated.error_images, estimated.error, 3)


def estimated_gain(gain):
    """An estimated difference with its errors, and whether it is a tie."""
    return with_errors(gain.value, gain.error_images, gain.error, 4, "+") + " tie" * (gain.p_value > LEVEL)


@pytest.mark.parametrize("level", LEVELS)
def test_the_certified_accuracies_with_more_draws_are_those_of_the_committed_rows(results, level):
    titles, rows = table("docs/cifar10-cpu.md", f"σ = {level}")
    assert titles[-2:] == ["ACR", "to advmacer"]
    assert [row[0] for row in rows[: len(STUDIED)]] == STUDIED
    folder = results("cifar10-cpu-500", level)
    reference = sample_of("advmacer", folder)
    for name, *cells, acr_shown, difference in rows:
        frames, seeds = rows_of(name, folder)
        assert {len(frame) for frame in frames} == {500}
        radii = [float(radius) for radius in titles[:-2]]
        accuracies = np.mean([certified_accuracy(frame, radii) for frame in frames], axis=0)
        assert cells == [f"{accuracy:.1%}" for accuracy in accuracies]
        whole = estimate(sample(frames, seeds))
        assert acr_shown == with_errors(whole.value, whole.error_images, whole.error, 3)
        gain = estimate(sample(frames, seeds), reference)
        assert difference == ("–" if name == "advmacer" else estimated_gain(gain))


def test_three_networks_averaged_gain_with_more_draws_what_the_page_says(results):
    said = []
    for method, name in (("advmacer", "AdvMacer"), ("smoothadv", "SmoothAdv"), ("macer", "MACER")):
        gains = []
        for level in LEVELS:
            folder = results("cifar10-cpu-500", level)
            gain = estimate(sample_of(f"{method} x3, average", folder), sample_of(method, folder))
            assert gain.value > 0
            assert not gain.tie
            gains.append(gain.value)
        said.append(f"{min(gains):.3f} to {max(gains):.3f} of {name}")
    assert f"by {said[0]}, {said[1]} and {said[2]}, all beyond chance" in words_of("docs/cifar10-cpu.md")


def lead_on(folder, first, end):
    """The difference AdvMacer - SmoothAdv on a part of the images."""
    samples = []
    for method in ("advmacer", "smoothadv"):
        frames, seeds = rows_of(method, folder)
        assert seeds == [[0], [1], [2]]
        kept = [frame[frame["idx"].between(first, end - 1)].reset_index(drop=True) for frame in frames]
        assert {len(frame) for frame in kept} == {end - first}
        samples.append(sample(kept, seeds))
    return estimate(*samples)


def test_what_few_images_say_and_the_others_is_of_the_committed_rows(results):
    titles, rows = table("docs/cifar10-cpu.md", "sigma", "first 500, n = 4,000")
    assert titles == ["first 500, n = 1,000", "500 to 1,016", "1,017 to 1,999, JPEG", "all 2,000"]
    assert [level for level, *_ in rows] == LEVELS
    for level, *cells in rows:
        more, rest = (results(study, level) for study in ("cifar10-cpu-500", "cifar10-cpu"))
        parts = [(0, 500), (500, 1017), (1017, 2000), (0, 2000)]
        found = [lead_on(more, 0, 500), *(lead_on(rest, *part) for part in parts)]
        assert cells == [estimated_gain(gain) for gain in found]


def test_the_seconds_of_trainings_that_the_page_compares_are_those_of_the_committed_epochs():
    text = words_of("docs/cifar10-cpu.md")
    longer = f"{100 * (6 * SECONDS['advmacer'] / (7 * SECONDS['macer']) - 1):.0f} %"
    assert f"**AdvMacer beats MACER**, in {longer} more training time" in text
    assert f"AdvMacer's six epochs take {longer} longer than MACER's seven" in text
    share = f"{100 * SECONDS['consistency'] / SECONDS['advmacer']:.0f} %"
    assert f"**Consistency costs {share} of AdvMacer's seconds" in text


def test_every_method_in_the_seconds_of_advmacer_has_the_acr_that_the_page_says(results, unpacked):
    titles, rows = table("docs/cifar10-cpu.md", "method", "epochs", "time")
    assert titles == [title for level in LEVELS for title in (f"σ = {level}", "to advmacer")]
    assert [method for method, *_ in rows] == STUDIED
    longer, acrs, verdicts = results("cifar10-cpu-equal-seconds", LEVELS[-1]), {}, {}
    for method, epochs, time, *cells in rows:
        assert time == f"{100 * int(epochs) * SECONDS[method] / SECONDS['advmacer'] / 6:.0f} %"
        study = "cifar10-cpu-equal-seconds" if (longer / f"{method}-0.tsv").exists() else "cifar10-cpu"
        for level, acr_shown, gain_shown in zip(LEVELS, cells[::2], cells[1::2], strict=True):
            history = unpacked[study] / "logs/cifar10-cpu" / level / method / "0" / "history.csv"
            assert len(pd.read_csv(history)) == int(epochs)
            frames, seeds = rows_of(method, results(study, level))
            others, trained = rows_of("advmacer", results("cifar10-cpu", level))
            assert trained[: len(seeds)] == seeds
            same = len(seeds) if len(seeds) > 1 else len(trained)
            gain = estimate(sample(frames, seeds), sample(others[:same], trained[:same]))
            assert acr_shown == f"{estimate(sample(frames, seeds)).value:.3f}"
            assert gain_shown == ("–" if method == "advmacer" else estimated_gain(gain))
            acrs.setdefault(method, []).append(acr_shown)
            verdicts.setdefault(method, []).append("a tie" if gain.tie else "ahead" if gain.value > 0 else "behind")
    said = "Consistency has 15 epochs and an ACR of {}, {} and {}: {} at 0.25, {} at 0.5, {} at 1.0"
    assert said.format(*acrs["consistency"], *verdicts["consistency"]) in words_of("README.md")
    assert float(acrs["consistency"][0]) > pd.read_csv(ROOT / "reports/cifar10-cpu/ensembles-0.25.csv")["acr"].max()
    assert "ahead of AdvMacer at 0.25**, of all ensembles above too" in words_of("docs/cifar10-cpu.md")
    assert verdicts["gaussian"] == ["a tie", "behind", "behind"]
    assert (verdicts["cat-rs"], verdicts["hard-drop"]) == (["behind"] * 3, ["behind", "behind", "a tie"])
    trainings = [acr(rows) for rows in rows_of("hard-drop", results("cifar10-cpu-equal-seconds", "1.0"))[0]]
    assert f"At 1.0 its two trainings have {trainings[0]:.3f} and {trainings[1]:.3f}" in words_of("docs/cifar10-cpu.md")
    assert "**Gaussian training ties with AdvMacer at 0.25**" in words_of("docs/cifar10-cpu.md")


def test_the_verdicts_on_macer_in_the_seconds_of_advmacer_are_those_of_the_claims(results):
    text = words_of("docs/cifar10-cpu.md")
    ahead = rows_of("advmacer", results("cifar10-cpu", "1.0"))
    eight = rows_of("macer", results("cifar10-cpu-equal-seconds", "1.0"))
    assert ahead[1][:2] == eight[1][:2] == [[0], [1]]
    two = estimate(*(sample(frames[:2], seeds[:2]) for frames, seeds in (ahead, eight)))
    assert f"uncertain: {estimated_gain(two).removesuffix(' tie')}, p = {two.p_value:.2f}." in text
    verdicts = re.findall(
        r"\| AdvMacer beats MACER.*\| (\S+) \| means over seeds 0, 1 \|.*\| (\S+) \|", report("claims.md")
    )
    assert verdicts == [("0.25", "held"), ("0.5", "held"), ("1.0", "tie")]
    assert "the claim holds at 0.25 and 0.5, and is a tie at 1.0" in text


def test_the_gains_of_warm_starts_are_those_of_the_committed_rows(results, unpacked):
    titles, rows = table("docs/warm-starts.md", "method", "σ")
    assert titles == ["random weights", "start without noise", "difference", "p"]
    assert [(method, level) for method, level, *_ in rows] == [*product(["advmacer", "smoothadv"], LEVELS)]
    seconds, studies = ROOT / "reports/rows/cifar10-cpu/epoch-seconds.csv", ("cifar10-cpu", "cifar10-cpu-warm")
    drawn = {point[:3]: point for point in reversed([*trainings(*map(unpacked.get, studies), seconds)])}  # main ones
    gains, by_seed = [], {}
    for method, level, *cells, _ in rows:
        random, warm = (rows_of(method, results(study, level)) for study in studies)
        assert random[1] == warm[1] == [[0], [1], [2]]
        gains.append(estimate(sample(*warm), sample(*random)))
        shown_acrs = [estimate(sample(*rows)) for rows in (random, warm)]
        assert cells[:2] == [with_errors(one.value, one.error_images, one.error, 3) for one in shown_acrs]
        assert [drawn[method, is_warm, level].acr for is_warm in (False, True)] == shown_acrs
        assert cells[2] == with_errors(gains[-1].value, gains[-1].error_images, gains[-1].error, 4, "+")
        by_seed[method, level] = [acr(after) - acr(before) for before, after in zip(random[0], warm[0], strict=True)]
    corrected = holm([gain.p_value for gain in gains])
    assert [row[-1] for row in rows] == [f"{p:.3f}" for p in corrected]
    assert [p < LEVEL for p in corrected] == [False, True, True, False, True, False]
    in_readme = [cells[1][:5] for (_, _, *cells), p in zip(rows, corrected, strict=True) if p < LEVEL]
    said = "raises AdvMacer's ACR to {} at 0.5 and {} at 1.0, SmoothAdv's to {} at 0.5.".format(*in_readme)
    assert f"In about the same time a [start without noise](docs/warm-starts.md) {said}" in words_of("README.md")
    page = words_of("docs/warm-starts.md")
    assert min(min(seeds) for seeds in by_seed.values()) > 0
    least = sorted(gain for (_, level), seeds in by_seed.items() if level == "0.25" for gain in seeds)
    assert f"at 0.25 by {least[0]:.4f} to {least[-1]:.4f}. By the rule above they are ties, with p = 0.053" in page
    assert {f"{p:.3f}" for p in corrected if p >= LEVEL} == {"0.053"}
    start, prices = 5 * SECONDS["gaussian"], []
    for method in ("advmacer", "smoothadv"):
        log = unpacked["cifar10-cpu-warm"] / "logs/cifar10-cpu/0.25" / method / "0/history.csv"
        training, from_random = len(pd.read_csv(log)) * SECONDS[method], 6 * SECONDS[method]
        assert drawn[method, True, "0.25"].seconds == pytest.approx(start + training)
        for seconds in (start + training, start / 3 + training):
            prices += [f"{seconds:.0f}", f"{100 * seconds / from_random:.0f} %"]
    assert f"5 epochs of `gaussian`, {start:.0f} seconds" in page
    said = "AdvMacer takes {0} seconds, 9 more than planned and {1} of six epochs from random weights,"
    assert f"{said} and SmoothAdv {{4}}, {{5}}.".format(*prices) in page
    assert "share they take {2}, {3}, and {6}, {7}.".format(*prices) in page


def one_seed(root, method, level):
    """The sample of a method's training with seed 0."""
    return sample(rows_of(method, root / "results/cifar10-cpu" / level)[0][:1], [[0]])


def test_other_lengths_and_methods_with_a_start_have_the_acrs_that_the_page_says(unpacked):
    titles, rows = table("docs/warm-starts.md", "seconds", "method", "σ")
    assert titles == ["random weights", "start without noise", "difference"]
    study, equal, warm = (unpacked[f"cifar10-cpu{name}"] for name in ("", "-equal-seconds", "-warm"))
    roots = {f"{seconds:,}": (warm / f"{seconds}-random", warm / f"{seconds}-warm") for seconds in (426, 1704)}
    others, took = {}, {}
    for seconds, method, level, *cells in rows:
        pair = roots.get(seconds, (study if method == "advmacer" else equal, warm))
        random, started = (one_seed(root, method, level) for root in pair)
        assert cells == [*map(estimated_acr, (random, started)), estimated_gain(estimate(started, random))]
        for root, start in zip(pair, (0, 5 * SECONDS["gaussian"]), strict=True):
            epochs = len(pd.read_csv(root / f"logs/cifar10-cpu/{level}/{method}/0/history.csv"))
            took[seconds, method, level, start] = start + epochs * SECONDS[method]
        others[seconds, method, level] = random, started
    page = words_of("docs/warm-starts.md")
    twice = {
        (level, seconds): estimate(others[seconds, "advmacer", level][1], others[longer, "advmacer", level][0])
        for level, (seconds, longer) in product(("0.25", "0.5"), (("426", "852"), ("852", "1,704")))
    }
    shown = {key: estimated_gain(gain) for key, gain in twice.items()}
    assert {key for key, gain in shown.items() if gain.endswith("tie")} == {("0.25", "426"), ("0.5", "852")}
    shown = {key: gain.removesuffix(" tie") for key, gain in shown.items()}
    assert (
        f"random weights at 0.25 ({shown['0.25', '426']}), and 852 with 1,704 at 0.5 ({shown['0.5', '852']})." in page
    )
    assert f"426 seconds at 0.5 have {shown['0.5', '426']}, 852 at 0.25 have {shown['0.25', '852']}." in page
    gains = [
        estimate(*reversed(others[seconds, "advmacer", level])).value
        for level, seconds in product(("0.25", "0.5"), ("426", "852", "1,704"))
    ]
    assert gains[0] > gains[1] > gains[2] > 0 < gains[5] < gains[4] < gains[3]
    behind = estimate(others["852", "consistency", "0.25"][0], others["852", "advmacer", "0.25"][1])
    assert f"still has {estimated_gain(behind).removeprefix('+')} more at 0.25 than AdvMacer with a start" in page
    longest = took.pop(("852", "macer", "0.25", 0))
    assert f"MACER's training from random weights took {longest:.0f} seconds" in page
    assert all(abs(spent / float(seconds.replace(",", "")) - 1) < 0.03 for (seconds, *_), spent in took.items())


def test_what_a_start_gives_is_not_its_learning_rate_nor_the_absence_of_noise(unpacked):
    titles, rows = table("docs/warm-starts.md", "start", "learning rate", "ACR")
    assert titles == ["to the first line"]
    study, warm = (unpacked[name] for name in ("cifar10-cpu", "cifar10-cpu-warm"))
    controls = "random-half-rate", "noisy-start", "new-head", "half-start"
    samples = [one_seed(root, "advmacer", "0.25") for root in (warm, study, *map(warm.joinpath, controls))]
    gains = [estimated_gain(estimate(one, samples[0])) for one in samples[1:]]
    expected = zip(map(estimated_acr, samples), ["–", *gains], strict=True)
    assert [row[2:] for row in rows] == [*map(list, expected)]
    assert ["tie" in gain for gain in gains] == [False, False, True, True, True]
    log = "logs/cifar10-cpu/0.25/advmacer/0/history.csv"
    started, random = (pd.read_csv(root / log)["accuracy"] for root in (warm, study))
    said = (
        f"is {started[0]:.3f} in the first epoch after a start; from random weights it is {random[2]:.3f} in the third."
    )
    assert said in words_of("docs/warm-starts.md")


def test_ensembles_of_one_start_and_of_three_have_the_acrs_that_the_page_says(unpacked):
    titles, rows = table("docs/warm-starts.md", "trained from")
    assert titles == ["seconds", "ACR", "of the cascade", "its evaluations"]
    warm, start, epoch = unpacked["cifar10-cpu-warm"], 5 * SECONDS["gaussian"], SECONDS["advmacer"]
    roots = unpacked["cifar10-cpu"], warm / "three-starts", warm / "one-start"
    seconds = 18 * epoch, 15 * epoch + 3 * start, 15 * epoch + start
    samples = []
    for (_, *cells), root, took in zip(rows, roots, seconds, strict=True):
        paths = (root / f"results/cifar10-cpu/0.25/pool/advmacer-0-1-2.{rule}.tsv" for rule in ("average", "cascade"))
        average, cascade = map(certificate_rows.read_rows, paths)
        samples.append(sample([average], [[0, 1, 2]]))
        acrs = map(estimated_acr, (samples[-1], sample([cascade], [[0, 1, 2]])))
        evaluations = cascade["evaluations"].sum() / (cascade["n0"] + cascade["n"]).sum()
        assert cells == [f"{took:,.0f}", *acrs, f"{evaluations:.2f}"]
    less = estimated_gain(estimate(samples[1], samples[2]))
    assert f"their ensemble has {less.removeprefix('+')} less." in words_of("docs/warm-starts.md")


def test_a_mixture_of_advmacer_and_another_method_is_behind_advmacer(unpacked):
    def sample_named(name):
        return sample([certificate_rows.read_rows(unpacked["complementary"] / f"{name}-0.tsv")], [()])

    text = words_of("docs/negative-results.md")
    advmacer = sample_named("advmacer")
    for parent, mixture in (("cat-rs", "advmacer-images-of-cat-rs"), ("hard-drop", "advmacer-weights-of-hard-drop")):
        for trained in (advmacer, sample_named(parent)):
            acr_of = estimate(trained)
            assert with_errors(acr_of.value, acr_of.error_images, None, 4) in text
        loss = estimate(sample_named(mixture), advmacer)
        assert loss.value < 0
        assert with_errors(loss.value, loss.error_images, None, 4, "+") in text


def test_the_tuning_of_warm_starts_is_that_of_the_committed_table():
    _, rows = table("docs/warm-starts.md", "start", "epochs", "learning rate", "AdvMacer", "SmoothAdv")
    for column, method in ((3, "advmacer"), (4, "smoothadv")):
        tuning = pd.read_csv(ROOT / f"docs/tuning/cifar10-cpu-warm-{method}.csv")
        assert [[*row[:3], row[column]] for row in rows] == [
            [start, str(row.epochs), rate, f"{row.acr:.3f} ± {row.error:.3f}"]
            for row in tuning.itertuples()
            for start, rate in [row.setting.split("; learning_rate ")]
        ]


def test_hard_drop_has_the_lowest_clean_accuracy_at_1_after_stability():
    for level in LEVELS:
        rows = [committed("main", "cifar10-cpu", method=name, sigma=float(level)) for name in STUDIED]
        lowest = [row["method"] for row in sorted(rows, key=lambda row: row["clean_accuracy"])]
        assert lowest[:2] == ["stability", "hard-drop"] if level == "1.0" else lowest[0] == "hard-drop"


def report(name):
    """A page of the committed report of CIFAR-10."""
    return (ROOT / "reports" / "cifar10-cpu" / name).read_text()


def test_the_pages_count_the_verdicts_on_ensembles_as_the_claims_do():
    rows = re.findall(r"\| EsbRS beats the mean of its members \| ([\d.]+) \|.*\| (.*) \|", report("claims.md"))
    held = [level for level, verdict in rows if verdict.startswith("held")]
    images_only = [level for level, verdict in rows if verdict == "held, images only"]
    ties = sum(verdict.startswith("tie") for _, verdict in rows)
    assert (len(rows), len(held) + ties) == (36, 36)
    page = words_of("docs/cifar10-cpu.md")
    assert f"in {held.count('0.25')} of 12 cases beyond the errors" in page
    assert f"errors that are known, {images_only.count('0.25')} of them over images alone" in page
    assert f"in {held.count('0.5')} of 12 cases, in {images_only.count('0.5')} of them over images alone" in page
    every = (
        f"in {held.count('1.0')} of 12 cases, and in {len(held)} of 36 over all levels, {len(images_only)} of them over"
    )
    assert every in page
    assert ties == 12
    assert "over images alone; twelve are ties, none is a loss" in page
    readme = words_of("README.md")
    assert f"Of 36 ensembles, {len(held)} beat the mean of their members and {ties} tie." in readme
    assert f"{len(images_only)} of the {len(held)} verdicts do not cover training seeds" in readme


def test_all_nine_models_of_which_the_page_says_so_have_equal_weights(fitted_weights):
    (weights,) = fitted_weights("0.25", "advmacer-0-1-2+smoothadv-0-1-2+macer-0-1-2.radius")
    assert weights == pytest.approx([1 / 9] * 9)
    row = committed("ensembles-0.25", "cifar10-cpu", ensemble="all nine", combination="radius")
    assert f"All nine models have {row['acr']:.3f} with equal weights" in words_of("docs/cifar10-cpu.md")


def test_what_the_page_says_of_weights_and_mixtures_is_of_the_committed_rows(results):
    """Of AdvMacer and two MACERs, by the three ways to share the seeds out; and of losses to equal weights."""
    less, text = [], words_of("docs/cifar10-cpu.md")
    for level in LEVELS:
        folder = results("cifar10-cpu", level)
        radius, optimal = (sample_of(f"advmacer x1 + macer x2, {key}", folder) for key in ("radius", "optimal"))
        less.append(f"{-estimate(radius, optimal).value:.3f}")
    names = ("advmacer", "advmacer x3, average")  # at 1.0, the last level
    alone, three = (estimated_gain(estimate(radius, sample_of(name, folder))) for name in names)
    said = f"at every level, by {less[0]}, {less[1]} and {less[2]}, and at 1.0 below AdvMacer alone"
    assert f"{said} ({alone}) and three AdvMacers ({three})." in text
    claims = re.findall(
        r"\| optimal weights .* \| 1\.0 \| .*smoothadv.* \| (\S+) .* \| not held.* \|", report("claims.md")
    )
    losses = sorted(abs(float(value)) for value in claims)
    assert f"and lose {losses[0]:.3f} to {losses[-1]:.3f} to equal weights" in text
    mixed = [
        committed("differences", "cifar10-cpu", method=name, sigma=1.0, reference="advmacer")["difference"]
        for name in ("advmacer x2 + macer x1", "advmacer x1 + macer x2")
    ]
    assert f"Mixing with MACER at equal weights is {-mixed[0]:.3f} to {-mixed[1]:.3f} below AdvMacer alone" in text
    for level in LEVELS:
        frame = pd.read_csv(ROOT / f"reports/cifar10-cpu/ensembles-{level}.csv")
        gains = frame[(frame["combination"] == "radius") & frame["reference_difference"].notna()]
        assert (gains["reference_tie"].astype(bool) | (gains["reference_difference"] > 0)).all()
    assert "**Weights fitted to the radius lose nothing to equal ones** at any level." in text


@needs_x86
@pytest.mark.slow
@pytest.mark.skipif(
    any(metadata.version(name).split("+")[0] != pinned(name) for name in COMPUTING),
    reason="other versions than those of constraints.txt compute otherwise",
)
def test_a_model_and_its_rows_made_here_are_those_of_the_committed_run(tmp_path):
    model, rows = "models/digits/0.25/gaussian/0", "results/digits/0.25/gaussian-0.tsv"
    data, params = ["--dataset", "digits", "--data", "data/digits"], ["--params", ROOT / "params.yaml"]
    run_stage = partial(stage, cwd=tmp_path, RS_WORK=str(tmp_path / "work"))
    run_stage("stages.prepare", "digits", "--out", "data/digits", *params)
    assert md5(tmp_path / "data" / "digits") == recorded("prepare@digits", "data/digits")
    words = ["--sigma", "0.25", "--seed", "0", "--out", model, "--log", "log", *params]
    run_stage("stages.train", "gaussian", *data, *words)
    assert md5(tmp_path / model) == recorded("train@digits-gaussian-0.25-0", model)
    run_stage("stages.certify", model, *data, "--out", rows, *params)
    assert md5(tmp_path / rows) == recorded("certify@digits-gaussian-0.25-0", rows)
