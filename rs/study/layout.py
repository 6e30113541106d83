"""Where the files of a study lie, and what DVC calls the cells that make them.

This is ``dvc.yaml`` for readers::

    models/DATASET/SIGMA/METHOD/SEED                 a trained model
    results/DATASET/SIGMA/METHOD-SEED.tsv            certificate rows; the sidecar *.json says what
                                                     made them
    results/DATASET/SIGMA/pool/METHOD-SEED.tsv       the same of members, which are certified
                                                     together with the ensembles
    results/DATASET/SIGMA/pool/SLUG.tsv              the same of ensembles
    ensembles/DATASET/SIGMA/pool.json                the members that are certified together
    ensembles/DATASET/SIGMA/SLUG.json                an ensemble (``rs.ensemble.spec``)
    weights/DATASET/SIGMA/SLUG.json                  an ensemble with weights for all images
    weights/DATASET/SIGMA/SLUG.tsv                   weights by image
    weights/DATASET/SIGMA/spreads.csv, bounds.csv    what the paper's theory says of ensembles
    reports/DATASET                                  the report

    logs/DATASET/SIGMA/METHOD/SEED/history.csv       one line per training epoch
    logs/DATASET/SIGMA/METHOD/SEED/timing.csv        training seconds up to the end of each epoch
    logs/DATASET/SIGMA/METHOD/SEED/provenance.json   commit, machine and seconds of the training
    logs/DATASET/SIGMA/alone.csv                     seconds per certificate of each classifier of
                                                     the pool alone
    logs/DATASET/SIGMA/weights.csv                   seconds of weights, per image and member

Of the logs, DVC tracks ``history.csv`` only: everything else is the same in every run, on one kind
of machine. Functions take the folder of the data set, such as ``results/digits``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALONE_FILE = "alone.csv"
"""File of the seconds per certificate of each classifier of a pool alone."""


@dataclass(frozen=True)
class GridCell:
    """One model of the study, and where its files lie."""

    dataset: str
    method: str
    sigma: Any  # as written in the parameters: it is part of file names
    seed: int
    is_member_seed: bool = False  # of member_seeds: trained by `train_members`

    def target(self, stage: str) -> str:
        """Return DVC's name of this cell of ``stage``, which is ``train`` or ``certify``."""
        if self.is_member_seed and stage == "certify":
            return pool_target("certify_ensembles", self.dataset, self.sigma)
        if self.is_member_seed:
            stage = "train_members"
        return f"{stage}@{self.dataset}-{self.method}-{self.sigma}-{self.seed}"

    def command(self, stage: str) -> str:
        """Return the command that makes this cell's output of ``stage``."""
        return f"dvc repro {self.target(stage)}"

    def rows(self, results: Path) -> Path:
        """Return the path of the certificate rows."""
        name = model_name(self.method, self.seed)
        if self.is_member_seed:
            return pool_rows(results, self.sigma, name)
        return results / str(self.sigma) / f"{name}.tsv"

    def log(self, logs: Path, name: str) -> Path:
        """Return the path of a training log."""
        return model_folder(logs / str(self.sigma), self.method, self.seed) / name


def model_name(method: str, seed: int | None) -> str:
    """Return the name of a model in file names, and in :data:`ALONE_FILE`."""
    return f"{method}-{seed}"


def model_folder(models: Path, method: str, seed: int) -> Path:
    """Return the folder of a model, or of its logs, within the folder of its noise level."""
    return models / method / str(seed)


def pool_rows(results: Path, sigma: Any, name: str) -> Path:
    """Return the path of the rows of an ensemble or a member."""
    return pool_file(results, sigma, f"pool/{name}.tsv")


def pool_file(folder: Path, sigma: Any, name: str) -> Path:
    """Return the path of a file of ensembles, such as ``SLUG.json`` in ``ensembles``."""
    return folder / str(sigma) / name


def pool_target(stage: str, dataset: str, sigma: Any) -> str:
    """Return DVC's name of a cell of ``ensemble``, ``weights`` or ``certify_ensembles``."""
    return f"{stage}@{dataset}-{sigma}"
