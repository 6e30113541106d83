"""The files in git that the tables and pictures of the pages are made of."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rs import params
from rs.statistics.comparison import Estimate, Sample, estimate, sample
from rs.storage import certificate_rows

LEVELS = ("0.25", "0.5", "1.0")
"""Noise levels of the studies on CIFAR-10."""
STUDY = "cifar10-cpu"
"""The study of all methods on CIFAR-10."""
CHEAPER = "cifar10-cpu-cheaper-attack"
"""The study whose AdvMacer attacks in the second half of its epochs."""
EQUAL_SECONDS = "cifar10-cpu-equal-seconds"
"""The study whose methods have the training time of AdvMacer's six epochs."""
WARM = "cifar10-cpu-warm"
"""The study of training runs that start without noise."""
HEADLINE = (
    "advmacer x3, cascade",
    "advmacer x1 + macer x2, radius",
    "advmacer x1 + macer x2, optimal",
)
"""Ensembles of the README."""
ENSEMBLES = (
    "advmacer x3",
    "smoothadv x3",
    "macer x3",
    "advmacer x1 + macer x2",
    "advmacer x2 + macer x1",
)
"""Ensembles of all pages but the README."""


class Trained(NamedTuple):
    """A method, or a kind of ensemble, with all its training runs in a study."""

    name: str
    study: str = STUDY


class Committed(NamedTuple):
    """The files in git that tables are made of."""

    root: Path  # of the project
    rows: Path  # unpacked

    def report(self, name: str, *index: str) -> pd.DataFrame:
        """Return a table of a report, its rows by the values of some columns."""
        return pd.read_csv(self.root / "reports" / f"{name}.csv", index_col=index)

    def ensembles(self, name: str, sigma: float | str) -> pd.DataFrame:
        """Return the rows of a report on :data:`ENSEMBLES` at a noise level."""
        report = self.report(f"{name}/ensembles-{sigma}", "ensemble", "combination")
        return report[report.index.isin(ENSEMBLES, level="ensemble")]

    def study(self, name: str, level: str) -> Path:
        """Return the folder of the certificates of a study at a noise level."""
        return self.rows / name / "results/cifar10-cpu" / level

    def trainings(
        self, name: str, level: str, study: str = STUDY
    ) -> tuple[list[pd.DataFrame], list[list[int]]]:
        """Return the rows of each training of a method, or of each ensemble, and their seeds."""
        folder = self.study(study, level)
        paths = {}
        for place in (folder / "pool", folder):
            for path in place.glob(pattern_of_files(name)):
                paths[path.name] = path
        frames = []
        seeds = []
        for _, path in sorted(paths.items()):
            frames.append(certificate_rows.read_rows(path))
            is_ensemble = ", " in name
            seeds.append([0, 1, 2] if is_ensemble else [int(path.stem[-1])])
        return frames, seeds

    def sample(self, name: str, level: str, study: str = STUDY) -> Sample:
        """Return the scores of all training runs of a method, or of an ensemble."""
        return sample(*self.trainings(name, level, study))

    def gain(self, first: Trained, second: Trained, level: str) -> Estimate:
        """Return the difference in ACR of two methods.

        Both have the seeds of the first one, unless that was trained once.
        """
        frames, seeds = self.trainings(first.name, level, first.study)
        other_frames, other_seeds = self.trainings(second.name, level, second.study)
        if len(seeds) > 1:
            other_frames = other_frames[: len(seeds)]
            other_seeds = other_seeds[: len(seeds)]
        return estimate(sample(frames, seeds), sample(other_frames, other_seeds))

    def first_training(self, method: str, level: str, study: str = STUDY) -> Sample:
        """Return the scores of a method's training with seed 0."""
        return of_file(self.study(study, level) / f"{method}-0.tsv")

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


def pattern_of_files(name: str) -> str:
    """Return the pattern of the row files of a method, or of the ensembles of a kind.

    >>> pattern_of_files("macer"), pattern_of_files("macer x3, cascade")
    ('macer-?.tsv', 'macer-0-1-2.cascade.tsv')
    >>> pattern_of_files("advmacer x1 + macer x2, radius")
    'advmacer-?+macer-?-?.radius.tsv'
    """
    members, _, rule = name.partition(", ")
    if not rule:
        return f"{name}-?.tsv"
    method, _, others = members.partition(" x")
    if others == "3":
        return f"{method}-0-1-2.{rule}.tsv"
    return f"{method}-?+macer-?-?.{rule}.tsv"


def of_file(path: Path) -> Sample:
    """Return the scores of a training with seed 0."""
    return sample([certificate_rows.read_rows(path)], [[0]])
