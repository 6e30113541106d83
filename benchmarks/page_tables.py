"""The tables of the pages: functions of committed files that return column titles, then lines."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.warm_starts import START_EPOCHS
from rs import params
from rs.command_line.zoo import ROWS
from rs.methods import METHODS
from rs.models.zoo import zoo_names
from rs.reporting.attacks import read_gaps
from rs.reporting.tables.formatting import EMPTY, bold, signed
from rs.statistics.certificate import PER_IMAGE_SCOPE
from rs.statistics.comparison import Estimate, Sample, estimate, holm, sample
from rs.statistics.metrics import certified_accuracy
from rs.storage import certificate_rows

LEVELS = ("0.25", "0.5", "1.0")
NOISE = [f"σ = {level}" for level in LEVELS]
DIGITS = (0.25, 0.5)
"""Noise levels of the default run."""
HEADLINE = (
    "advmacer x3, cascade",
    "advmacer x1 + macer x2, radius",
    "advmacer x1 + macer x2, optimal",
)
"""Ensembles of the README."""
MIXED = ("advmacer x1 + macer x2", "advmacer x2 + macer x1")
ENSEMBLES = ("advmacer x3", "smoothadv x3", "macer x3", *MIXED)
"""Ensembles of the other pages."""
CHEAPER = "cifar10-cpu-cheaper-attack"
"""The study whose AdvMacer attacks in the second half of its epochs."""
EQUAL_SECONDS = "cifar10-cpu-equal-seconds"
"""The study whose methods have the training time of AdvMacer's six epochs."""

MILLION = "1,000,000"
"""The most samples of certificates of images that were attacked."""

NETWORKS = {"cifar10": "package", "gpu": "fastnet", "study": "resnet8"}
"""Networks that were attacked, by the beginning of their files' names."""

Lines = list[list[str]]


class Committed(NamedTuple):
    """The files in git that tables are made of."""

    root: Path  # of the project
    rows: Path  # unpacked

    def report(self, name: str, *index: str) -> pd.DataFrame:
        """Return a table of a report, its rows by the values of some columns."""
        return pd.read_csv(self.root / "reports" / f"{name}.csv", index_col=index)

    def study(self, name: str, level: str) -> Path:
        """Return the folder of the certificates of a study at a noise level."""
        return self.rows / name / "results/cifar10-cpu" / level

    def sample(self, name: str, level: str, study: str = "cifar10-cpu") -> Sample:
        """Return the scores of all trainings of a method, or of an ensemble."""
        return sample(*rows_of(name, self.study(study, level)))

    def gain(self, first: tuple[str, str], second: tuple[str, str], level: str) -> Estimate:
        """Return the difference in ACR of two methods, each named by its study and its name.

        Both have the seeds of the first one, unless that was trained once.
        """
        (own_study, own_name), (other_study, other_name) = first, second
        frames, seeds = rows_of(own_name, self.study(own_study, level))
        others, trained = rows_of(other_name, self.study(other_study, level))
        same = len(seeds) if len(seeds) > 1 else len(trained)
        return estimate(sample(frames, seeds), sample(others[:same], trained[:same]))

    def epochs(self, study: str, level: str, method: str) -> int:
        """Return the number of epochs of a training."""
        log = self.rows / study / "logs/cifar10-cpu" / level / method / "0/history.csv"
        return len(pd.read_csv(log))

    def methods(self) -> list[str]:
        """Return the methods of the study on CIFAR-10."""
        values = params.read_params(self.root / "reports/rows/cifar10-cpu/params.yaml")
        return values["methods"]

    def seconds(self) -> pd.Series:
        """Return the seconds of an epoch of each method."""
        path = self.root / "reports/rows/cifar10-cpu/epoch-seconds.csv"
        return pd.read_csv(path, index_col="method")["seconds"]


def rows_of(name: str, folder: Path) -> tuple[list[pd.DataFrame], list[list[int]]]:
    """Return the rows of each training of a method, or each ensemble of a kind, and their seeds."""
    members, _, rule = name.partition(", ")
    method, _, others = members.partition(" x")
    pattern = f"{name}-?.tsv"
    if rule:
        pattern = (
            f"{method}-0-1-2.{rule}.tsv" if others == "3" else f"{method}-?+macer-?-?.{rule}.tsv"
        )
    found = {path.name: path for place in ("pool", ".") for path in (folder / place).glob(pattern)}
    names = sorted(found)
    seeds = [[0, 1, 2] if rule else [int(name[-5])] for name in names]
    return [certificate_rows.read_rows(found[name]) for name in names], seeds


def of_file(path: Path) -> Sample:
    """Return the scores of a training with seed 0."""
    return sample([certificate_rows.read_rows(path)], [[0]])


# ------------------------------------------------------------------------------------------ cells


def acr_cell(acr: Estimate, places: int = 3) -> str:
    """Return an ACR with its errors."""
    return f"{acr.value:.{places}f}{errors(acr, places)}"


def gain_cell(gain: Estimate) -> str:
    """Return a difference with its errors, and whether it is a tie."""
    return f"{signed(gain.value)}{errors(gain, 4)}" + " tie" * gain.tie


def errors(value: Estimate, places: int) -> str:
    """Return the error over images and, where it is known, the error over training seeds too."""
    over_seeds = "" if value.error is None else f" [{value.error:.{places}f}]"
    return f" ± {value.error_images:.{places}f}{over_seeds}"


def reported(row: pd.Series, *columns: str) -> Estimate:
    """Return a value of a report and its two errors, by the names of their columns."""
    value, error_images, error = (float(row[column]) for column in columns)
    known = None if np.isnan(error) else error
    return Estimate(value, error_images, known, np.nan, int(row["images"]), int(row["seeds"]))


def reported_gain(row: pd.Series, prefix: str) -> Estimate:
    """Return a difference of a report."""
    return reported(row, *(f"{prefix}_{name}" for name in ("difference", "error_images", "error")))


# ------------------------------------------------------------------------------------------ digits


def digits_methods(committed: Committed, *methods: str) -> Lines:
    """Return ACR and clean accuracy of methods, all by default."""
    frame = committed.report("digits/main", "method", "sigma")
    lines = [["method", *(f"σ = {sigma}" for sigma in DIGITS)]]
    for method in methods or METHODS:
        lines.append([method])
        for sigma in DIGITS:
            row = frame.loc[(method, sigma)]
            acr = reported(row, "acr", "standard_error", "standard_error_with_seeds")
            lines[-1].append(f"{acr_cell(acr)} ({row['clean_accuracy']:.1%})")
    return lines


def digits_ensembles(committed: Committed) -> Lines:
    """Return the cost of ensembles, their ACR, and the difference to equal weights."""
    frames = {sigma: ensembles(committed, "digits", sigma) for sigma in DIGITS}
    lines = [["ensemble", "combination"]]
    for sigma in DIGITS:
        lines[0] += ["members per draw", f"σ = {sigma}", "to average"]
    for name, rule in frames[DIGITS[0]].index:
        lines.append([name, rule])
        for sigma in DIGITS:
            row = frames[sigma].loc[(name, rule)]
            gain = EMPTY if rule == "average" else gain_cell(reported_gain(row, "reference"))
            lines[-1] += [f"{row['members_per_draw']:.2f}", f"{row['acr']:.3f}", gain]
    return lines


def ensembles(committed: Committed, dataset: str, sigma: float | str) -> pd.DataFrame:
    """Return the rows of a report that are of the ensembles that pages show."""
    frame = committed.report(f"{dataset}/ensembles-{sigma}", "ensemble", "combination")
    return frame[frame.index.isin(ENSEMBLES, level="ensemble")]


# ------------------------------------------------------------------------------------------
# CIFAR-10


def cifar10_results(committed: Committed) -> Lines:
    """Return the ACRs of methods and of some ensembles; the largest and its ties are bold."""
    lines = [[name] for name in (*committed.methods(), *HEADLINE)]
    for level in LEVELS:
        samples = [committed.sample(name, level) for (name, *_) in lines]
        best = max(samples, key=lambda scores: estimate(scores).value)
        for line, scores in zip(lines, samples, strict=True):
            is_best = scores is best or estimate(best, scores).tie
            line.append(bold(acr_cell(estimate(scores)), is_best))
    return [["method", *NOISE], *lines]


def cifar10_methods(committed: Committed, level: str) -> Lines:
    """Return ACR and clean accuracy of methods at a noise level, next to what the paper prints."""
    paper = committed.report("cifar10-cpu/published").query(f"sigma == {level} and metric == 'acr'")
    paper = paper.drop_duplicates("method").set_index("method")["paper"]
    reference = committed.sample("gaussian", level)
    lines = [["method", "ACR", "to gaussian", "ACR published", "clean accuracy"]]
    for method in committed.methods():
        frames, seeds = rows_of(method, committed.study("cifar10-cpu", level))
        scores = sample(frames, seeds)
        gain = EMPTY if method == "gaussian" else gain_cell(estimate(scores, reference))
        printed = f"{paper[method]:.3f}" if method in paper else EMPTY
        accuracy = np.mean([certified_accuracy(frame, [0.0]) for frame in frames])
        lines.append([method, acr_cell(estimate(scores)), gain, printed, f"{accuracy:.1%}"])
    return lines


def cifar10_ensembles(committed: Committed) -> Lines:
    """Return the ACRs of ensembles, and the differences to the mean of their members."""
    frames = {level: ensembles(committed, "cifar10-cpu", level) for level in LEVELS}
    lines = [["ensemble", "combination", *paired_titles("to members' mean")]]
    for name, rule in frames[LEVELS[0]].index:
        lines.append([name, rule])
        for level in LEVELS:
            row = frames[level].loc[(name, rule)]
            lines[-1] += [f"{row['acr']:.3f}", gain_cell(reported_gain(row, "members"))]
    return lines


def paired_titles(title: str) -> list[str]:
    """Return the titles of an ACR and a difference at each noise level."""
    return [each for noise in NOISE for each in (noise, title)]


def cifar10_mixtures(committed: Committed) -> Lines:
    """Return the ACRs of AdvMacer with CAT-RS, hard-drop or both, and their gains over AdvMacer."""
    lines = [["ensemble of two or three", "weights", *paired_titles("to AdvMacer")]]
    for others, rule in product(
        ("cat-rs", "hard-drop", "cat-rs + hard-drop"), ("average", "optimal", "radius")
    ):
        name = f"advmacer + {others}"
        lines.append([name, rule])
        for level in LEVELS:
            pool = committed.study("cifar10-cpu-mixtures", level) / "pool"
            made = of_file(pool / f"{name.replace(' + ', '-0+')}-0.{rule}.tsv")
            gain = estimate(made, of_file(pool / "advmacer-0.tsv"))
            lines[-1] += [f"{estimate(made).value:.3f}", gain_cell(gain)]
    return lines


def cifar10_more_draws(committed: Committed, level: str, *radii: str) -> Lines:
    """Return certified accuracies and ACR with four times the draws, on the first 500 images."""
    study = "cifar10-cpu-500"
    reference = committed.sample("advmacer", level, study)
    lines = [[f"σ = {level}", *radii, "ACR", "to advmacer"]]
    ensembles = [f"{method} x3, average" for method in ("smoothadv", "macer", "advmacer")]
    for name in (*committed.methods(), *ensembles):
        frames, seeds = rows_of(name, committed.study(study, level))
        accuracies = [
            certified_accuracy(frame, [float(radius) for radius in radii]) for frame in frames
        ]
        shares = [f"{share:.1%}" for share in np.mean(accuracies, axis=0)]
        scores = sample(frames, seeds)
        gain = EMPTY if name == "advmacer" else gain_cell(estimate(scores, reference))
        lines.append([name, *shares, acr_cell(estimate(scores)), gain])
    return lines


def cifar10_parts(committed: Committed) -> Lines:
    """Return the difference AdvMacer - SmoothAdv on parts of the images."""
    parts = {
        "first 500, n = 4,000": ("cifar10-cpu-500", 0, 499),
        "first 500, n = 1,000": ("cifar10-cpu", 0, 499),
        "500 to 1,016": ("cifar10-cpu", 500, 1016),
        "1,017 to 1,999, JPEG": ("cifar10-cpu", 1017, 1999),
        "all 2,000": ("cifar10-cpu", 0, 1999),
    }
    lines = [["σ", *parts]]
    for level in LEVELS:
        lines.append([level])
        for study, first, last in parts.values():
            samples = []
            for method in ("advmacer", "smoothadv"):
                frames, seeds = rows_of(method, committed.study(study, level))
                kept = [frame[frame["idx"].between(first, last)] for frame in frames]
                samples.append(sample([frame.reset_index(drop=True) for frame in kept], seeds))
            lines[-1].append(gain_cell(estimate(*samples)))
    return lines


def cifar10_equal_seconds(committed: Committed) -> Lines:
    """Return the ACRs of methods in the training time of AdvMacer, and the differences to it."""
    seconds = committed.seconds()
    lines = [["method", "epochs", "time", *paired_titles("to advmacer")]]
    for method in committed.methods():
        is_longer = (committed.study(EQUAL_SECONDS, "1.0") / f"{method}-0.tsv").exists()
        study = EQUAL_SECONDS if is_longer else "cifar10-cpu"
        epochs = committed.epochs(study, "1.0", method)
        time = epochs * seconds[method] / (6 * seconds["advmacer"])
        lines.append([method, str(epochs), f"{100 * time:.0f} %"])
        for level in LEVELS:
            scores = committed.sample(method, level, study)
            gain = committed.gain((study, method), ("cifar10-cpu", "advmacer"), level)
            shown = EMPTY if method == "advmacer" else gain_cell(gain)
            lines[-1] += [f"{estimate(scores).value:.3f}", shown]
    return lines


def cheaper_attack(committed: Committed) -> Lines:
    """Return the ACR of AdvMacer with an attack in half of its epochs, and paired differences."""
    others = {
        "minus full attack": ("cifar10-cpu", "advmacer"),
        "minus smoothadv": ("cifar10-cpu", "smoothadv"),
        "minus consistency": (EQUAL_SECONDS, "consistency"),
    }
    lines = [["σ", "seeds", "ACR", *others]]
    for level in LEVELS:
        scores = committed.sample("advmacer", level, CHEAPER)
        line = [level, str(len(scores.seeds)), acr_cell(estimate(scores))]
        for other in others.values():
            line.append(gain_cell(committed.gain((CHEAPER, "advmacer"), other, level)))
        lines.append(line)
    return lines


# ------------------------------------------------------------------------------------------ warm
# starts


def warm_result(committed: Committed) -> Lines:
    """Return the ACRs with and without a start, the differences, and p-values corrected for six."""
    lines = []
    gains = []
    for method, level in product(("advmacer", "smoothadv"), LEVELS):
        random = committed.sample(method, level)
        warm = committed.sample(method, level, "cifar10-cpu-warm")
        gains.append(estimate(warm, random))
        acrs = [acr_cell(estimate(scores)) for scores in (random, warm)]
        lines.append([method, level, *acrs, gain_cell(gains[-1])])
    p_values = holm([gain.p_value for gain in gains])
    for line, p_value in zip(lines, p_values, strict=True):
        line.append(f"{p_value:.3f}")
    return [["method", "σ", "random weights", "start without noise", "difference", "p"], *lines]


def warm_lengths(committed: Committed) -> Lines:
    """Return the ACRs of other lengths and methods, with seed 0."""
    warm = "cifar10-cpu-warm"
    studies = {
        "426": (f"{warm}/426-random", f"{warm}/426-warm"),
        "852": ("cifar10-cpu", warm),
        "1,704": (f"{warm}/1704-random", f"{warm}/1704-warm"),
    }
    trained = [(*pair, "advmacer", level) for level in LEVELS[:2] for pair in studies.items()]
    for method in ("gaussian", "macer", "consistency"):
        trained.append(("852", (EQUAL_SECONDS, warm), method, "0.25"))
    lines = [["seconds", "method", "σ", "random weights", "start without noise", "difference"]]
    for seconds, pair, method, level in trained:
        random, started = (one_seed(committed, study, method, level) for study in pair)
        acrs = [acr_cell(estimate(scores)) for scores in (random, started)]
        lines.append([seconds, method, level, *acrs, gain_cell(estimate(started, random))])
    return lines


def one_seed(
    committed: Committed, study: str, method: str = "advmacer", level: str = "0.25"
) -> Sample:
    """Return the scores of a method's training with seed 0."""
    frames, seeds = rows_of(method, committed.study(study, level))
    return sample(frames[:1], seeds[:1])


def warm_controls(committed: Committed) -> Lines:
    """Return the ACRs of AdvMacer after other starts, and the differences to the first."""
    warm = "cifar10-cpu-warm"
    starts = [
        ("without noise", "0.2", warm),
        ("random weights", "0.4", "cifar10-cpu"),
        ("random weights", "0.2", f"{warm}/random-half-rate"),
        ("with noise of 0.25", "0.2", f"{warm}/noisy-start"),
        ("without noise, last layer drawn anew", "0.2", f"{warm}/new-head"),
        ("without noise, 10 epochs on half of the images", "0.2", f"{warm}/half-start"),
    ]
    first = one_seed(committed, warm)
    lines = [["start", "learning rate", "ACR", "to the first line"]]
    for start, rate, study in starts:
        scores = one_seed(committed, study)
        gain = EMPTY if study == warm else gain_cell(estimate(scores, first))
        lines.append([start, rate, acr_cell(estimate(scores)), gain])
    return lines


def warm_ensembles(committed: Committed) -> Lines:
    """Return time, ACR and evaluations of three AdvMacers from random weights, three starts, and
    one.
    """
    seconds_per_epoch = committed.seconds()
    epoch = seconds_per_epoch["advmacer"]
    start = START_EPOCHS * seconds_per_epoch["gaussian"]
    trained = {
        "random weights": ("cifar10-cpu", 18 * epoch),
        "three starts": ("cifar10-cpu-warm/three-starts", 15 * epoch + 3 * start),
        "one start": ("cifar10-cpu-warm/one-start", 15 * epoch + start),
    }
    lines = [["trained from", "seconds", "ACR", "of the cascade", "its evaluations"]]
    for name, (study, seconds) in trained.items():
        average = committed.sample("advmacer x3, average", "0.25", study)
        cascade = committed.sample("advmacer x3, cascade", "0.25", study)
        (rows,), _ = rows_of("advmacer x3, cascade", committed.study(study, "0.25"))
        evaluations = rows["evaluations"].sum() / (rows["n0"] + rows["n"]).sum()
        acrs = [acr_cell(estimate(scores)) for scores in (average, cascade)]
        lines.append([name, f"{seconds:,.0f}", *acrs, f"{evaluations:.2f}"])
    return lines


def warm_tuning(committed: Committed) -> Lines:
    """Return the ACRs on validation images of the settings that were tried."""
    files = [f"docs/tuning/cifar10-cpu-warm-{method}.csv" for method in ("advmacer", "smoothadv")]
    tried = [pd.read_csv(committed.root / file) for file in files]
    lines = [["start", "epochs", "learning rate", "AdvMacer", "SmoothAdv"]]
    for both in zip(*(frame.itertuples() for frame in tried), strict=True):
        start, rate = both[0].setting.split("; learning_rate ")
        acrs = [f"{trial.acr:.3f} ± {trial.error:.3f}" for trial in both]
        lines.append([start, str(both[0].epochs), rate, *acrs])
    return lines


def complementary(committed: Committed) -> Lines:
    """Return the ACRs of AdvMacer mixed with another method, and the differences to both."""
    parents = {
        "advmacer": [],
        "cat-rs": [],
        "hard-drop": [],
        "advmacer, images of cat-rs": ["advmacer", "cat-rs"],
        "advmacer, weights of hard-drop": ["advmacer", "hard-drop"],
    }
    folder = committed.rows / "complementary"
    scores = {name: of_file(folder / f"{re.sub(',? ', '-', name)}-0.tsv") for name in parents}
    lines = [["method", "ACR", "to one parent", "to the other"]]
    for name, others in parents.items():
        gains = [gain_cell(estimate(scores[name], scores[other])) for other in others]
        lines.append([name, acr_cell(estimate(scores[name]), 4), *(gains or ["", ""])])
    return lines


# ------------------------------------------------------------------------------------------ one GPU


def paper_scale_card(committed: Committed, level: str) -> dict[str, Any]:
    """Return the card of the network of a noise level that one GPU trained."""
    return json.loads((committed.root / f"rs/zoo/cifar10-advmacer-{level}/model.json").read_text())


def paper_scale(committed: Committed) -> Lines:
    """Return the networks that one GPU trained in minutes, next to the paper's ACRs."""
    paper = pd.read_csv(committed.root / "rs/reporting/published.csv")
    main = paper["table"] == "table_main"
    paper = paper[main & (paper["method"] == "advmacer") & (paper["metric"] == "acr")]
    lines = [
        ["σ", "seconds of training", "epochs", "test images", "ACR", "clean accuracy", "paper: ACR"]
    ]
    for level in LEVELS:
        rows = pd.read_csv(
            committed.root / f"benchmarks/results/paper-scale/advmacer-{level}.tsv", sep="\t"
        )
        scores = rows["radius"] * rows["correct"]
        card = paper_scale_card(committed, level)
        published = paper.loc[paper["sigma"] == float(level), "value"].item()
        lines.append(
            [
                level,
                f"{card['training']['seconds']:.0f}",
                str(card["epochs"]),
                str(len(rows)),
                f"{scores.mean():.3f} ± {scores.sem():.3f}",
                f"{rows['correct'].mean():.3f}",
                f"{published:.3f}",
            ]
        )
    return lines


def paper_scale_differences(committed: Committed) -> Lines:
    """Return the differences of these networks from public logs of ResNet-110."""
    path = committed.root / "benchmarks/results/paper-scale/differences.jsonl"
    comparisons = [json.loads(line) for line in path.read_text().splitlines()]
    acr_of = {comparison["b"]["file"]: comparison["acr"] for comparison in comparisons}
    titles = {
        "smoothadv": "minus SmoothAdv",
        "consistency": "minus Consistency",
        "cat-rs": "minus CAT-RS",
    }
    lines = [["σ", *titles.values()]]
    for level in LEVELS:
        lines.append([level])
        for method in titles:
            acr = acr_of[f"{method}-{level}.log"]
            cell = f"{signed(acr['difference'], 3)} ± {acr['error_images']:.3f}"
            lines[-1].append(cell + " tie" * acr["tie"])
    return lines


def gpu_methods(committed: Committed) -> Lines:
    """Return five methods that one GPU trained for less than a minute each, with three seeds."""
    titles = ["method", "seconds", "epochs", "ACR, validation", "ACR, test", "minus gaussian"]
    lines = [[*titles, "clean accuracy"]]
    folder = committed.rows / "cifar10-gpu"
    rows = folder / "results/cifar10-gpu/0.5"
    baseline = of_file(rows / "gaussian-0.tsv")
    for method in ("gaussian", "macer", "smoothadv", "consistency", "advmacer"):
        logs = [folder / f"logs/cifar10-gpu/0.5/{method}/{seed}" for seed in range(3)]
        histories = [pd.read_csv(log / "history.csv") for log in logs]
        last = pd.Series([history["acr"].iloc[-1] for history in histories])
        card = json.loads((logs[0] / "provenance.json").read_text())
        own = of_file(rows / f"{method}-0.tsv")
        correct = certificate_rows.read_rows(rows / f"{method}-0.tsv")["correct"]
        lines.append(
            [
                method,
                f"{card['training_seconds']:.0f}",
                str(len(histories[0])),
                f"{last.mean():.3f} ± {last.sem():.3f}",
                acr_cell(estimate(own)),
                gain_cell(estimate(own, baseline)) if method != "gaussian" else EMPTY,
                f"{correct.mean():.3f}",
            ]
        )
    ensembles = {
        "consistency x3": "consistency-0-1-2",
        "advmacer x3": "advmacer-0-1-2",
        "advmacer x1 + consistency x2": "advmacer-0+consistency-1-2",
    }
    for name, slug in ensembles.items():
        path = rows / f"pool/{slug}.average.tsv"
        own = of_file(path)
        correct = certificate_rows.read_rows(path)["correct"]
        gain = gain_cell(estimate(own, baseline))
        accuracy = f"{correct.mean():.3f}"
        lines.append([name, EMPTY, EMPTY, EMPTY, acr_cell(estimate(own)), gain, accuracy])
    return lines


def accuracy_by_sigma(committed: Committed, *radii: str) -> Lines:
    """Return certified accuracies of the networks of paper scale on the images they all have."""
    folder = committed.root / "benchmarks/results/paper-scale"
    frames = [pd.read_csv(folder / f"advmacer-{level}.tsv", sep="\t") for level in LEVELS]
    images = min(len(frame) for frame in frames)
    lines = [["radius", *NOISE]]
    for radius in radii:
        cells = []
        for frame in frames:
            first = frame.iloc[:images]
            certified = (first["correct"] == 1) & (first["radius"] >= float(radius))
            cells.append(f"{certified.mean():.0%}")
        best = max(cells, key=lambda cell: int(cell[:-1]))
        lines.append([radius, *(bold(cell, cell == best) for cell in cells)])
    return lines


def zoo(committed: Committed) -> Lines:
    """Return what the rows of the zoo say of its networks."""
    lines = [["network", "test images", "ACR", "certified at 0.25", "at 0.5", "at 1.0", "at 1.5"]]
    for name in zoo_names(committed.root / "rs/zoo"):
        rows = certificate_rows.read_rows(committed.root / "rs/zoo" / name / ROWS)
        acr = acr_cell(estimate(sample([rows], [[0]])))
        shares = [f"{certified_accuracy(rows, radius):.3f}" for radius in (0.25, 0.5, 1.0, 1.5)]
        lines.append([name, str(len(rows)), acr, *shares])
    return lines


class AttackedNetwork(NamedTuple):
    """A network that was attacked, and by how much certified radii are exceeded."""

    network: str
    method: str
    level: str
    ratios: dict[str, pd.Series]  # of found to certified radius, by number of samples


def attacked_networks(committed: Committed) -> list[AttackedNetwork]:
    """Return the attacked networks; the found radii of each are those of one attack."""
    folder = committed.root / "reports/rows/attacks"
    scale = committed.root / "benchmarks/results/paper-scale"
    networks = []
    for path in sorted(folder.glob("*-attacks.tsv")):
        rows = read_gaps(path)
        name = path.stem.removesuffix("-attacks")
        network, _, method_and_level = name.partition("-")
        method, _, level = method_and_level.rpartition("-")
        more_samples = {
            "10,000": folder / f"{name}-n10000.tsv",
            MILLION: folder / f"{name}-n1000000.tsv",
        }
        if network == "cifar10":
            more_samples["100,000"] = scale / f"{method_and_level}.tsv"
        ratios = {"1,000": rows.set_index("idx")["gap"]}
        for count, certificates in more_samples.items():
            if certificates.exists():
                ratios[count] = ratios_to(certificates, rows)
        networks.append(AttackedNetwork(NETWORKS[network], method, level, ratios))
    return networks


def ratios_to(certificates: Path, rows: pd.DataFrame) -> pd.Series:
    """Return the ratios of radii that attacks found to those of other certificates."""
    radii = pd.read_csv(certificates, sep="\t", index_col="idx")["radius"]
    found = rows.set_index("idx")["found"].fillna(np.inf)
    certified = radii.reindex(found.index)
    return (found / certified)[certified > 0]


def gaps(committed: Committed) -> Lines:
    """Return the ratios of found to certified radii of attacked networks, by number of samples."""
    titles = ["network", "method", "σ", "attacked", "n = 1,000", "its 90 % quantile", "n = 10,000"]
    lines = [[*titles, "n = 100,000"]]
    for network, method, level, ratios in attacked_networks(committed):
        fewest_samples = ratios["1,000"]
        quantile = np.quantile(fewest_samples, 0.9, method="higher")
        line = [network, method, level, str(len(fewest_samples)), median_cell(fewest_samples)]
        line.append(f"{quantile:.2f}")
        for count in ("10,000", "100,000"):
            line.append(median_cell(ratios[count]) if count in ratios else EMPTY)
        lines.append(line)
    return lines


def gaps_of_samples(committed: Committed) -> Lines:
    """Return median ratios on the few images that were certified with a million samples."""
    counts = ("1,000", "10,000", MILLION)
    lines = [["method", "σ", "images", *(f"n = {count}" for count in counts)]]
    for _, method, level, ratios in attacked_networks(committed):
        if MILLION not in ratios:
            continue
        images = ratios[MILLION].index
        medians = [f"{ratios[count].reindex(images).median():.2f}" for count in counts]
        lines.append([method, level, str(len(images)), *medians])
    return lines


def median_cell(ratios: pd.Series) -> str:
    """Return a median and its exact 95 % interval, of order statistics."""
    interval = stats.quantile_test(ratios, p=0.5).confidence_interval()
    return f"{ratios.median():.2f} ({interval.low:.2f} to {interval.high:.2f})"


def falsified(committed: Committed) -> Lines:
    """Return how many certificates on digits attacks inside and beyond the radius refuted."""
    counts = pd.read_csv(committed.root / "docs/falsification/digits.csv")
    counts = counts[~counts["boxed"]]
    by_image = counts["scope"] == PER_IMAGE_SCOPE
    groups = {
        "models and ensembles with a sound scope": counts[~by_image],
        "weights computed for each image (`scope: per-image`, †)": counts[by_image],
    }
    lines = [["certificates", "attacked", "false at 0.99 of the radius", "lost at 2.5 times it"]]
    for name, group in groups.items():
        at_distance = group.groupby("distance")[["attacked", "below_half"]].sum()
        attacked, false = at_distance.loc[0.99]
        lost = f"{at_distance.loc[2.5, 'below_half']:,}" if 2.5 in at_distance.index else EMPTY
        lines.append([name, f"{attacked:,}", str(false), lost])
    return lines
