"""Where the files of a study lie, and what DVC calls the cells that make them: ``dvc.yaml`` for
readers.

models/DATASET/SIGMA/METHOD/SEED                 a trained model
logs/DATASET/SIGMA/METHOD/SEED/history.csv       one line per training epoch
results/DATASET/SIGMA/METHOD-SEED.tsv            certificate rows; the sidecar *.json says what made
them results/DATASET/SIGMA/pool/METHOD-SEED.tsv       the same of the members, which are certified
with the ensembles results/DATASET/SIGMA/pool/SLUG.tsv              the same of ensembles
ensembles/DATASET/SIGMA/pool.json                the members that are certified together
ensembles/DATASET/SIGMA/SLUG.json                an ensemble (``rs.ensemble.spec``)
weights/DATASET/SIGMA/SLUG.json, SLUG.tsv        an ensemble with weights for all images; weights by
image weights/DATASET/SIGMA/spreads.csv, bounds.csv    what ``rs.reporting.tables.variance_tables``
shows logs/DATASET/SIGMA/METHOD/SEED/timing.csv        training seconds up to the end of each epoch
logs/DATASET/SIGMA/METHOD/SEED/provenance.json   commit, machine and seconds of the training
logs/DATASET/SIGMA/alone.csv                     seconds of a certificate of each classifier of the
pool alone logs/DATASET/SIGMA/weights.csv                   seconds that weights take, of one image
and one member reports/DATASET                                  the report

DVC tracks no log but ``history.csv``: all else is the same in every run, on one kind of machine.

Functions take the folder of the data set, such as ``results/digits``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALONE_FILE = "alone.csv"
"""Seconds of a certificate of each classifier of a pool alone."""


@dataclass(frozen=True)
class GridCell:
    """A single model of the study, by data set, method, noise level and seed, and where its files
    lie.
    """

    dataset: str
    method: str
    sigma: Any  # as it stands in the parameters: it is part of file names
    seed: int
    is_member_seed: bool = (
        False  # a further seed of a member of ensembles, which stages of their own make
    )
    needs_targets: bool = False  # as its method does, whose stages are others too
    start: GridCell | None = (
        None  # model that the training starts from; such trainings have stages of their own
    )

    def target(self, stage: str) -> str:
        """Return DVC's name of this cell of ``stage``."""
        if self.is_member_seed and stage == "certify":
            return pool_target("certify_ensembles", self.dataset, self.sigma)
        kinds = {
            "_members": self.is_member_seed,
            "_from_targets": self.needs_targets,
            "_from_start": self.start,
        }
        stage += next((name for name, applies in kinds.items() if applies), "")
        return f"{stage}@{self.dataset}-{self.method}-{self.sigma}-{self.seed}"

    def command(self, stage: str) -> str:
        """Return the command that makes this cell's output of ``stage``."""
        return f"dvc repro {self.target(stage)}"

    def rows(self, results: Path) -> Path:
        """Return the path of the certificate rows."""
        name = model_name(self.method, self.seed)
        return (
            pool_rows(results, self.sigma, name)
            if self.is_member_seed
            else results / str(self.sigma) / f"{name}.tsv"
        )

    def model(self, models: Path) -> Path:
        """Return the folder of the trained model."""
        return model_folder(models / str(self.sigma), self.method, self.seed)

    def log(self, logs: Path, name: str) -> Path:
        """Return the path of a training log."""
        return model_folder(logs / str(self.sigma), self.method, self.seed) / name


def model_name(method: str, seed: int | None) -> str:
    """Return the name of a model in file names, and in :data:`ALONE_FILE`."""
    return f"{method}-{seed}"


def model_folder(models: Path, method: str, seed: int) -> Path:
    """Return the folder of a model, or of its logs, in that of its noise level."""
    return models / method / str(seed)


def pool_rows(results: Path, sigma: Any, name: str) -> Path:
    """Return the path of the rows of an ensemble or a further seed."""
    return pool_file(results, sigma, f"pool/{name}.tsv")


def pool_file(folder: Path, sigma: Any, name: str) -> Path:
    """Return the path of a file of ensembles: ``alone.csv`` of logs, ``SLUG.json`` of ensembles or
    weights.
    """
    return folder / str(sigma) / name


def pool_target(stage: str, dataset: str, sigma: Any) -> str:
    """Return DVC's name of a cell of ``ensemble``, ``weights`` or ``certify_ensembles``."""
    return f"{stage}@{dataset}-{sigma}"
