"""Tables of the studies on CIFAR-10 with a small network."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from benchmarks.page_tables.cells import (
    NOISE,
    Lines,
    acr_cell,
    acr_of,
    estimated_gain_cell,
    gain_cell,
    paired_titles,
    reported_gain,
)
from benchmarks.page_tables.committed import (
    CHEAPER,
    EQUAL_SECONDS,
    HEADLINE,
    LEVELS,
    STUDY,
    Committed,
    Trained,
    of_file,
)
from rs.reporting.results import published
from rs.reporting.tables.formatting import EMPTY, bold
from rs.statistics.comparison import estimate, sample
from rs.statistics.metrics import certified_accuracy


def cifar10_results(committed: Committed) -> Lines:
    """Return the ACRs of methods and of some ensembles; the largest and its ties are bold."""
    names = [*committed.methods(), *HEADLINE]
    lines = [[name] for name in names]
    for level in LEVELS:
        samples = [committed.sample(name, level) for name in names]
        best = max(samples, key=acr_of)
        for line, scores in zip(lines, samples, strict=True):
            is_best = scores is best or estimate(best, scores).tie
            line.append(bold(acr_cell(scores), is_best))
    return [["method", *NOISE], *lines]


def cifar10_methods(committed: Committed, level: str) -> Lines:
    """Return ACR and clean accuracy of methods at a noise level, next to what the paper prints."""
    paper = published_acrs(level)
    reference = committed.sample("gaussian", level)
    lines = [["method", "ACR", "minus gaussian", "ACR published", "clean accuracy"]]
    for method in committed.methods():
        frames, seeds = committed.trainings(method, level)
        scores = sample(frames, seeds)
        printed = f"{paper[method]:.3f}" if method in paper else EMPTY
        accuracy = np.mean([certified_accuracy(frame, 0.0) for frame in frames])
        gain = EMPTY if method == "gaussian" else gain_cell(scores, reference)
        lines.append([method, acr_cell(scores), gain, printed, f"{accuracy:.1%}"])
    return lines


def published_acrs(level: str) -> pd.Series:
    """Return the ACRs of the paper's main table at a noise level, by method."""
    figures = published("cifar10")
    is_acr = (figures["table"] == "table_main") & (figures["metric"] == "acr")
    is_of_level = figures["sigma"] == float(level)
    return figures[is_acr & is_of_level].set_index("method")["value"]


def cifar10_ensembles(committed: Committed) -> Lines:
    """Return the ACRs of ensembles, and the differences from the mean of their members."""
    reports = [committed.ensembles(STUDY, level) for level in LEVELS]
    lines = [["ensemble", "combination", *paired_titles("minus members' mean")]]
    for ensemble, rule in reports[0].index:
        line = [ensemble, rule]
        for report in reports:
            row = report.loc[(ensemble, rule)]
            line += [f"{row['acr']:.3f}", estimated_gain_cell(reported_gain(row, "members"))]
        lines.append(line)
    return lines


def cifar10_mixtures(committed: Committed) -> Lines:
    """Return the ACRs of AdvMacer with CAT-RS, hard-drop or both, and their gains over AdvMacer."""
    lines = [["ensemble of two or three", "weights", *paired_titles("minus AdvMacer")]]
    mixtures = ("cat-rs", "hard-drop", "cat-rs + hard-drop")
    for others, rule in product(mixtures, ("average", "optimal", "radius")):
        name = f"advmacer + {others}"
        slug = name.replace(" + ", "-0+") + "-0"
        line = [name, rule]
        for level in LEVELS:
            pool = committed.study("cifar10-cpu-mixtures", level) / "pool"
            mixture = of_file(pool / f"{slug}.{rule}.tsv")
            alone = of_file(pool / "advmacer-0.tsv")
            line += [f"{acr_of(mixture):.3f}", gain_cell(mixture, alone)]
        lines.append(line)
    return lines


def cifar10_more_draws(committed: Committed, level: str, *radii: str) -> Lines:
    """Return certified accuracies and ACR with four times the draws, on the first 500 images."""
    study = "cifar10-cpu-500"
    reference = committed.sample("advmacer", level, study)
    lines = [[f"σ = {level}", *radii, "ACR", "minus advmacer"]]
    ensembles = [f"{method} x3, average" for method in ("smoothadv", "macer", "advmacer")]
    for name in (*committed.methods(), *ensembles):
        frames, seeds = committed.trainings(name, level, study)
        scores = sample(frames, seeds)
        line = [name]
        for radius in radii:
            accuracy = np.mean([certified_accuracy(frame, float(radius)) for frame in frames])
            line.append(f"{accuracy:.1%}")
        gain = EMPTY if name == "advmacer" else gain_cell(scores, reference)
        lines.append([*line, acr_cell(scores), gain])
    return lines


def cifar10_parts(committed: Committed) -> Lines:
    """Return the difference AdvMacer - SmoothAdv on parts of the images."""
    parts = {
        "first 500, n = 4,000": ("cifar10-cpu-500", 0, 499),
        "first 500, n = 1,000": (STUDY, 0, 499),
        "500 to 1,016": (STUDY, 500, 1016),
        "1,017 to 1,999, JPEG": (STUDY, 1017, 1999),
        "all 2,000": (STUDY, 0, 1999),
    }
    lines = [["σ", *parts]]
    for level in LEVELS:
        line = [level]
        for study, first, last in parts.values():
            samples = []
            for method in ("advmacer", "smoothadv"):
                frames, seeds = committed.trainings(method, level, study)
                part = [images_between(frame, first, last) for frame in frames]
                samples.append(sample(part, seeds))
            line.append(gain_cell(*samples))
        lines.append(line)
    return lines


def images_between(rows: pd.DataFrame, first: int, last: int) -> pd.DataFrame:
    """Return the rows of the images from ``first`` to ``last``."""
    return rows[rows["idx"].between(first, last)].reset_index(drop=True)


def cifar10_equal_seconds(committed: Committed) -> Lines:
    """Return the ACRs of methods in the training time of AdvMacer, and the differences from it."""
    seconds = committed.seconds()
    lines = [["method", "epochs", "time", *paired_titles("minus advmacer")]]
    for method in committed.methods():
        is_longer = (committed.study(EQUAL_SECONDS, "1.0") / f"{method}-0.tsv").exists()
        study = EQUAL_SECONDS if is_longer else STUDY
        epochs = committed.epochs(study, "1.0", method)
        time = epochs * seconds[method] / (6 * seconds["advmacer"])
        line = [method, str(epochs), f"{time:.0%}"]
        for level in LEVELS:
            scores = committed.sample(method, level, study)
            gain = EMPTY
            if method != "advmacer":
                own = Trained(method, study)
                gain = estimated_gain_cell(committed.gain(own, Trained("advmacer"), level))
            line += [f"{acr_of(scores):.3f}", gain]
        lines.append(line)
    return lines


def cheaper_attack(committed: Committed) -> Lines:
    """Return the ACR of AdvMacer with an attack in half of its epochs, and paired differences."""
    others = {
        "minus full attack": Trained("advmacer"),
        "minus smoothadv": Trained("smoothadv"),
        "minus consistency": Trained("consistency", EQUAL_SECONDS),
    }
    lines = [["σ", "seeds", "ACR", *others]]
    for level in LEVELS:
        scores = committed.sample("advmacer", level, CHEAPER)
        line = [level, str(len(scores.seeds)), acr_cell(scores)]
        for other in others.values():
            gain = committed.gain(Trained("advmacer", CHEAPER), other, level)
            line.append(estimated_gain_cell(gain))
        lines.append(line)
    return lines


def complementary(committed: Committed) -> Lines:
    """Return the ACRs of AdvMacer mixed with another method, and the differences from both."""
    parents = {
        "advmacer": [],
        "cat-rs": [],
        "hard-drop": [],
        "advmacer, images of cat-rs": ["advmacer", "cat-rs"],
        "advmacer, weights of hard-drop": ["advmacer", "hard-drop"],
    }
    lines = [["method", "ACR", "minus one parent", "minus the other"]]
    samples = {}
    for name, others in parents.items():
        slug = name.replace(", ", "-").replace(" ", "-")
        scores = of_file(committed.rows / f"complementary/{slug}-0.tsv")
        gains = [gain_cell(scores, samples[other]) for other in others]
        lines.append([name, acr_cell(scores, 4), *(gains or ["", ""])])
        samples[name] = scores
    return lines
