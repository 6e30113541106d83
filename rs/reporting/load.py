"""Reading what a study has on disk: certificate rows, training logs, and the theory of ensembles in
numbers.

``rs.study.layout`` says where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from rs.errors import InputError
from rs.params import section
from rs.reporting.logs import check_sidecar, subset_of
from rs.reporting.results import CODES, MUST_AGREE, Result
from rs.reporting.settings import ReportSettings, report_settings
from rs.statistics import metrics
from rs.storage import certificate_rows, files, tsv
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import MemberIdentity, Provenance
from rs.study.ensembles import EnsembleDeclaration, composition, declared_ensembles
from rs.study.grid import cells
from rs.study.layout import ALONE_FILE, GridCell, pool_file, pool_rows, pool_target


@dataclass(frozen=True)
class StudyFiles:
    """What the parameters declare for a data set, and the folders that hold it.

    Methods raise :class:`~rs.errors.InputError` if a file is damaged or, times excepted, missing;
    the message names the command that makes it.
    """

    values: dict[str, Any]  # the parameters
    dataset: str  # name of the recipe
    results: Path  # folder of certificate rows, by sigma
    weights: Path  # folder of ensemble weights, by sigma
    logs: Path | None = (
        None  # folder of training logs and wall times, by sigma; those of other rows do not count
    )
    epoch_seconds: Path | None = (
        None  # table of seconds an epoch by method; default: as the trainings took
    )

    @cached_property
    def settings(self) -> ReportSettings:
        """The section ``tables`` of the parameters."""
        return report_settings(self.values)

    @property
    def combination(self) -> str:
        """The combination that goes without saying in the names of ensembles."""
        return self.settings.combination

    @cached_property
    def cells(self) -> list[GridCell]:
        """The models of the grid."""
        return cells(self.values, self.dataset)

    @cached_property
    def sigmas(self) -> list[Any]:
        """Noise levels as they stand in the parameters: they are part of file names."""
        return section(self.values, "sigmas")

    @cached_property
    def ensembles(self) -> list[EnsembleDeclaration]:
        """The ensembles that the parameters declare."""
        return declared_ensembles(self.values)

    def label(self, ensemble: EnsembleDeclaration) -> str:
        """Return the name of an ensemble in tables."""
        return ensemble.label(self.combination)

    def ensemble_rows(self, ensemble: EnsembleDeclaration, sigma: Any) -> Path:
        """Return the path of the certificate rows of an ensemble."""
        return pool_rows(self.results, sigma, ensemble.slug)

    def read_models(self) -> list[Result]:
        """Read every model."""
        return [self.read_model(cell) for cell in self.cells]

    def read_ensembles(self) -> list[Result]:
        """Read every ensemble by noise level."""
        return [
            self.read_ensemble(ensemble, sigma)
            for sigma in self.sigmas
            for ensemble in self.ensembles
        ]

    def read_model(self, cell: GridCell) -> Result:
        """Read the rows of a cell, their sidecar, and the seconds its training took, if they are
        known.
        """
        rows, provenance = read_study_rows(
            cell.rows(self.results), cell.sigma, cell.command("certify")
        )
        self._check_name(
            cell.rows(self.results), provenance, f"{cell.sigma}/{cell.method}/{cell.seed}"
        )
        self._check_classifier(cell.rows(self.results), cell, provenance.classifier)
        timing = self._timing(cell)
        return Result(
            name=cell.method,
            sigma=float(cell.sigma),
            seed=cell.seed,
            rows=rows,
            subset=subset_of(provenance),
            training_seconds=None if timing is None else float(timing["total"].iloc[-1]),
            classes=provenance.classes if metrics.mode_of(rows) == "certify" else None,
            scope=rows["scope"].iloc[0],
            provenance=provenance,
            source=_source(provenance, pool=cell.is_member_seed),
        )

    def read_ensemble(self, ensemble: EnsembleDeclaration, sigma: Any) -> Result:
        """Read the rows of an ensemble and their sidecar."""
        path, command = (
            self.ensemble_rows(ensemble, sigma),
            self._command("certify_ensembles", sigma),
        )
        rows, provenance = read_study_rows(path, sigma, command)
        self._check_name(path, provenance, f"{sigma}/{ensemble.slug}.json")
        self._check_members(path, sigma, provenance.members)
        self._check_weights(ensemble, sigma, provenance.weights)
        scope = rows["scope"].iloc[0]
        if scope != ensemble.combination.scope:
            raise InputError(
                f"{path} must be of scope {ensemble.combination.scope}, as the parameters say, got "
                f"{scope}; "
                f"run {command}"
            )
        return Result(
            name=self.label(ensemble),
            sigma=float(sigma),
            seed=None,
            rows=rows,
            subset=subset_of(provenance),
            classes=None if scope == "set" else provenance.classes,
            scope=scope,
            ensemble=ensemble.name,
            combination=ensemble.key,
            members=ensemble.members,
            provenance=provenance,
            source=_source(provenance, pool=True),
            chosen=self._chosen(ensemble, sigma),
        )

    def _check_name(self, path: Path, provenance: Provenance, name: str) -> None:
        """Check that rows are of the classifier, of this data set, that their file is named for."""
        stated, wanted = str(provenance.model), f"{self.dataset}/{name}"
        if not f"/{stated}".endswith(f"/{wanted}"):
            raise InputError(
                f"{path} must hold rows of {wanted}, but its sidecar says {stated}; put back the "
                "rows of its name"
            )

    def _check_classifier(self, path: Path, cell: GridCell, classifier: str | None) -> None:
        """Check that a file is of the model of a cell that the sidecars of its rows name, in either
        folder.
        """
        for further in (False, True):
            sidecar = sidecar_of(replace(cell, is_member_seed=further).rows(self.results))
            named = files.json_values(sidecar).get("classifier")
            if classifier and named and classifier != named:
                raise InputError(
                    f"{path} must be of the same {cell.method}, seed {cell.seed}, as {sidecar}, "
                    "but that names model "
                    f"{named[:12]} and not {classifier[:12]}; make the older one again"
                )

    def _check_members(
        self, path: Path, sigma: Any, members: Iterable[MemberIdentity] | None
    ) -> None:
        """Check that a file is of the models whose rows there are, if it names any."""
        for member in members or ():
            cell = GridCell(self.dataset, member["method"], sigma, member["seed"])
            self._check_classifier(path, cell, member["classifier"])

    def _check_weights(self, ensemble: EnsembleDeclaration, sigma: Any, used: str | None) -> None:
        """Check that weights are of the models whose rows there are, and weights by image those of
        the rows.
        """
        path = pool_file(self.weights, sigma, f"{ensemble.slug}.json")
        self._check_members(path, sigma, files.json_values(path).get("members"))
        path = path.with_suffix(".tsv")
        if used and path.is_file() and files.sha256(path) != used:
            raise InputError(
                f"{path} must be the weights that the rows of {ensemble.slug} were made with, but "
                "it has changed; run "
                f"{self._command('certify_ensembles', sigma)}"
            )

    def _chosen(self, ensemble: EnsembleDeclaration, sigma: Any) -> dict[str, int] | None:
        """Read how often weights have chosen members, like ``{"macer 1": 2}``; ``None`` if they do
        not choose.
        """
        number = ensemble.combination.chosen
        if number is None:
            return None
        path, command = (
            pool_file(self.weights, sigma, f"{ensemble.slug}.json"),
            self._command("weights", sigma),
        )
        try:
            weights = files.read_json(_existing(path, command))["fitted"]["weights"]
            counts = [round(weight * number) for weight in weights]
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path} must be an ensemble with its weights; run {command}"
            ) from error
        return {
            f"{method} {seed}": n
            for n, (method, seed) in zip(counts, ensemble.members, strict=False)
            if n
        }

    def read_theory(self, name: str) -> pd.DataFrame:
        """Read ``spreads`` or ``bounds`` of all noise levels, of which there is at least one; with
        a column ``sigma``.

        Args:
            name: Of the file, without its ending.
        """
        frames = []
        for sigma in self.sigmas:
            path = pool_file(self.weights, sigma, f"{name}.csv")
            frame = tsv.read_csv(
                path, ["ensemble", "images"], f"run {self._command('weights', sigma)}"
            )
            frames.append(frame.assign(sigma=float(sigma)))
        return pd.concat(frames, ignore_index=True)

    def read_seconds(self, sigma: Any) -> dict[str, float]:
        """Read seconds of a certificate of each classifier alone; with those of its weights, if
        images choose them.

        Returns:
            By kind of ensemble (``Result.kind``), and by METHOD-SEED of a member; those that are
            known.
        """
        seconds, solving = {}, math.nan
        for row in self._measured(sigma, ALONE_FILE, "certify_ensembles"):
            sidecar = sidecar_of(pool_rows(self.results, sigma, row["classifier"]))
            if sidecar.is_file() and files.sha256(sidecar) == row["sidecar"]:
                seconds[row["classifier"]] = row["seconds"]
        for row in self._measured(sigma, "weights.csv", "weights"):
            if files.sha256(pool_file(self.weights, sigma, "bounds.csv")) == row["bounds"]:
                solving = row["seconds"]
        for ensemble in self.ensembles:
            if ensemble.slug in seconds:
                extra = (
                    len(ensemble.members) * solving
                    if ensemble.combination.scope == "per-image"
                    else 0.0
                )
                kind = self.label(ensemble).replace(ensemble.name, composition(ensemble.members), 1)
                seconds[kind] = seconds.pop(ensemble.slug) + extra
        return {kind: value for kind, value in seconds.items() if not math.isnan(value)}

    def read_best_acr(self) -> pd.DataFrame:
        """Read the best ACR so far at each evaluated epoch, mean over the seeds.

        Returns:
            Columns ``method sigma epoch seconds acr error``, the last one the standard error over
            the seeds, NaN of a single one; no line for a run that was never evaluated.
        """
        runs = []
        for cell in self.cells:
            timing = self._timing(cell)
            if self.logs is None or timing is None:
                continue
            history = tsv.read_csv(
                cell.log(self.logs, "history.csv"), ["epoch", "acr"], f"run {cell.command('train')}"
            )
            run = history.dropna(subset="acr").merge(timing, on="epoch")
            run = run.assign(
                method=cell.method,
                sigma=float(cell.sigma),
                seconds=run["total"],
                acr=run["acr"].cummax(),
            )
            runs.append(run[["method", "sigma", "epoch", "seconds", "acr"]])
        if not runs:
            raise InputError(
                f"{self.logs} must have logs of these trainings, but has none; train some cells "
                "again"
            )
        epochs = pd.concat(runs, ignore_index=True).groupby(
            ["method", "sigma", "epoch"], sort=False, as_index=False
        )
        return epochs.agg(seconds=("seconds", "mean"), acr=("acr", "mean"), error=("acr", "sem"))

    def read_epoch_seconds(self, cell: GridCell) -> pd.Series | None:
        """Read the training seconds of every epoch of a cell, if they are known.

        Seconds before the first epoch do not count.
        """
        timing = self._timing(cell)
        if timing is None:
            return None
        return timing["seconds"].diff().fillna(timing["seconds"].iloc[0])

    def _timing(self, cell: GridCell) -> pd.DataFrame | None:
        """Return the training seconds up to the end of each epoch, if they are of the model whose
        rows there are.

        Returns:
            Columns ``epoch seconds total``; the last one includes the seconds before the first
            epoch, which a warm start or the targets of the images take.
        """
        path = self.logs and cell.log(self.logs, "provenance.json")
        if self.logs is None or path is None or not path.is_file():
            return None
        trained = files.json_values(path)
        certified = files.json_values(sidecar_of(cell.rows(self.results)))
        if trained.get("classifier") != certified.get("classifier"):
            return None
        log = cell.log(self.logs, "timing.csv")
        timing = tsv.read_csv(log, ["epoch", "seconds"], f"run {cell.command('train')}")
        before = float(timing.loc[timing["epoch"] == 0, "seconds"].sum())
        timing = timing[timing["epoch"] > 0].reset_index(drop=True)
        if self.epoch_seconds is None:
            seconds = timing["seconds"] - before
        else:
            measured = self._measured_seconds(self.epoch_seconds)
            seconds = timing["epoch"] * measured[cell.method]
        return timing.assign(seconds=seconds, total=seconds + before)

    def _measured_seconds(self, path: Path) -> dict[str, float]:
        """Read the seconds of an epoch of every method of the grid."""
        command = "python -m benchmarks.epochs"
        table = tsv.read_csv(path, ["method", "seconds"], f"run {command}")
        seconds = dict(zip(table["method"], table["seconds"].astype(float), strict=True))
        methods = {cell.method for cell in self.cells}
        if not methods <= seconds.keys() or not all(
            0 < value < math.inf for value in seconds.values()
        ):
            raise InputError(
                f"{path} must have positive seconds of every method of the grid, got {seconds}; "
                f"run {command}"
            )
        return seconds

    def _measured(self, sigma: Any, name: str, stage: str) -> list[dict[str, Any]]:
        """Read the lines of a table of seconds of ensembles; none where there is no table."""
        path = self.logs and pool_file(self.logs, sigma, name)
        if path is None or not path.is_file():
            return []
        table = tsv.read_csv(
            path, ["seconds"], f"run {self._command(stage, sigma)} --force", empty=True
        )
        return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]

    def _command(self, stage: str, sigma: Any) -> str:
        return f"dvc repro {pool_target(stage, self.dataset, sigma)}"


def read_study_rows(path: Path, sigma: Any, command: str) -> tuple[pd.DataFrame, Provenance]:
    """Read rows and their sidecar, after checking that they are of each other and of this noise
    level.

    Raises:
        InputError: If not; ``command`` makes them.
    """
    _existing(path, command)
    _existing(sidecar_of(path), command)
    provenance = Provenance.read(path, f"run {command}")
    rows = certificate_rows.read_rows(path)
    check_sidecar(path, rows, provenance, f"run {command}")
    if metrics.budget(rows, "sigma") != float(sigma):
        raise InputError(f"{path} must be of sigma {sigma}, but is not; run {command}")
    return rows, provenance


def _source(provenance: Provenance, pool: bool) -> dict[str, Any]:
    """Return what rows share with those of the study; code by the stage that made them."""
    stated = {CODES[pool]: provenance.code}
    stated |= {key: getattr(provenance, key) for key in MUST_AGREE}
    return {key: value for key, value in stated.items() if value is not None}


def _existing(path: Path, command: str) -> Path:
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; run {command}")
    return path
