"""Read the files of a study: certificate rows, training logs, and the theory of ensembles.

``rs.study.layout`` says where they are.
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
from rs.reporting.results import Groups, Result, grouped
from rs.reporting.settings import ReportSettings, report_settings
from rs.statistics import metrics
from rs.statistics.certificate import PER_IMAGE_SCOPE
from rs.storage import certificate_rows, files, tsv
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import MemberIdentity, Provenance
from rs.study import grid
from rs.study.ensembles import EnsembleDeclaration, composition, declared_ensembles
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
    logs: Path | None = None  # training logs and wall times, by sigma; of these rows only
    epoch_seconds: Path | None = None  # seconds per epoch by method; default: from the logs
    equal_time: Path | None = None  # rows of MACER trained for AdvMacer's time, by sigma
    attacks: Path | None = None  # counts of attacks, DATASET.csv (``benchmarks.falsify``)

    @cached_property
    def settings(self) -> ReportSettings:
        """The section ``tables`` of the parameters."""
        return report_settings(self.values)

    @property
    def combination(self) -> str:
        """Default combination; ensembles that use it are named without it, as ``advmacer x3``."""
        return self.settings.combination

    @cached_property
    def cells(self) -> list[GridCell]:
        """The models of the grid."""
        return grid.cells(self.values, self.dataset)

    @cached_property
    def sigmas(self) -> list[Any]:
        """Noise levels as the parameters write them: they are part of file names."""
        return section(self.values, "sigmas")

    @cached_property
    def ensembles(self) -> list[EnsembleDeclaration]:
        """The ensembles that the parameters declare."""
        return declared_ensembles(self.values)

    def name_of(self, ensemble: str, combination: str) -> str:
        """Return the name in tables, which mentions all combinations except the default one."""
        return ensemble if combination == self.combination else f"{ensemble} ({combination})"

    @cached_property
    def groups(self) -> Groups:
        """The results of every model of the grid and every ensemble.

        Raises:
            InputError: If rows are missing, of another model, or not comparable with the others.
        """
        results = [self.read_model(cell) for cell in self.cells]
        for sigma in self.sigmas:
            results += [self.read_ensemble(ensemble, sigma) for ensemble in self.ensembles]
        return grouped(results)

    @property
    def main_groups(self) -> Groups:
        """The results of models, and of the ensembles of the default combination."""
        shown: Groups = {}
        for sigma, methods in self.groups.items():
            for name, group in methods.items():
                if group.first.combination in (None, self.combination):
                    shown.setdefault(sigma, {})[name] = group
        return shown

    def read_model(self, cell: GridCell) -> Result:
        """Read the rows of a cell, their sidecar, and the seconds of training, if known."""
        path = cell.rows(self.results)
        timing = self._timing(cell)
        result = self._read(
            path,
            cell.sigma,
            f"{cell.method}/{cell.seed}",
            cell.command("certify"),
            grid.configuration(self.values, self.dataset, cell.method, float(cell.sigma)),
        )
        self._check_classifier(path, cell, result.provenance.classifier)
        return replace(
            result,
            name=cell.method,
            seed=cell.seed,
            training_seconds=None if timing is None else float(timing["total"].iloc[-1]),
            stage="pools" if cell.is_member_seed else "models",
        )

    def read_ensemble(self, ensemble: EnsembleDeclaration, sigma: Any) -> Result:
        """Read the rows of an ensemble and their sidecar."""
        path = pool_rows(self.results, sigma, ensemble.slug)
        command = self.command("certify_ensembles", sigma)
        declared = self.values["combinations"][ensemble.key]
        result = self._read(
            path,
            sigma,
            f"{ensemble.slug}.json",
            command,
            {"combination": ensemble.key, **declared},
        )
        self._check_members(path, sigma, result.provenance.members)
        self._check_weights(ensemble, sigma, result.provenance.weights)
        if result.scope != ensemble.combination.scope:
            raise InputError(
                f"{path} must be of scope {ensemble.combination.scope}, as the parameters say, got "
                f"{result.scope}; run {command}"
            )
        return replace(
            result,
            name=self.name_of(ensemble.name, ensemble.key),
            ensemble=ensemble.name,
            combination=ensemble.key,
            members=ensemble.members,
            stage="pools",
        )

    def _read(
        self, path: Path, sigma: Any, model: str, command: str, parameters: dict[str, Any]
    ) -> Result:
        """Read rows and their sidecar, after checking that both are of a model.

        Args:
            path: The rows.
            sigma: Their noise level, as the parameters write it.
            model: The end of the model's path, after data set and noise level.
            command: The command that makes the rows.
            parameters: Those of the model.
        Raises:
            InputError: If they are of another model.
        """
        remedy = f"run {command}"
        for file in (path, sidecar_of(path)):
            if not file.is_file():
                raise InputError(f"{file} must be a file, but there is none; {remedy}")
        provenance = Provenance.read(path, remedy)
        rows = certificate_rows.read_rows(path)
        check_sidecar(path, rows, provenance, remedy)
        if metrics.budget(rows, "sigma") != float(sigma):
            raise InputError(f"{path} must be of sigma {sigma}, but is not; {remedy}")
        expected = f"{self.dataset}/{sigma}/{model}"
        if not f"/{provenance.model}".endswith(f"/{expected}"):
            raise InputError(
                f"{path} must hold rows of {expected}, but its sidecar says {provenance.model}; "
                "restore the rows of this name"
            )
        listed = Path("results", self.dataset, path.relative_to(self.results))
        return Result(
            name=model,
            sigma=float(sigma),
            seed=None,
            rows=rows,
            subset=subset_of(provenance),
            classes=provenance.classes,
            scope=rows["scope"].iloc[0],
            provenance=provenance,
            origin={"file": listed.as_posix(), "command": command, "parameters": parameters},
        )

    def _check_classifier(self, path: Path, cell: GridCell, classifier: str | None) -> None:
        """Check that a file is of the model that the sidecars of a cell name, in either folder."""
        for in_pool in (False, True):
            sidecar = sidecar_of(replace(cell, is_member_seed=in_pool).rows(self.results))
            named = files.json_values(sidecar).get("classifier")
            if classifier and named and classifier != named:
                raise InputError(
                    f"{path} must be of the same {cell.method}, seed {cell.seed}, as {sidecar}, "
                    f"but that names model {named[:12]} and not {classifier[:12]}; make the older "
                    "one again"
                )

    def _check_members(
        self, path: Path, sigma: Any, members: Iterable[MemberIdentity] | None
    ) -> None:
        """Check that the members that a file names are the models of the rows."""
        for member in members or ():
            cell = GridCell(self.dataset, member["method"], sigma, member["seed"])
            self._check_classifier(path, cell, member["classifier"])

    def _check_weights(self, ensemble: EnsembleDeclaration, sigma: Any, used: str | None) -> None:
        """Check that weights are of the models of the rows, and weights per image of these rows."""
        path = pool_file(self.weights, sigma, f"{ensemble.slug}.json")
        self._check_members(path, sigma, files.json_values(path).get("members"))
        path = path.with_suffix(".tsv")
        if used and path.is_file() and files.sha256(path) != used:
            raise InputError(
                f"{path} must be the weights that the rows of {ensemble.slug} were made with, but "
                f"it has changed; run {self.command('certify_ensembles', sigma)}"
            )

    def rows_of_equal_time(self, sigma: Any) -> dict[int, Path]:
        """Return the rows of MACER trained for as long as AdvMacer, by seed."""
        if self.equal_time is None:
            return {}
        paths = sorted((self.equal_time / str(sigma)).glob("macer-*.tsv"))
        return {int(path.stem.removeprefix("macer-")): path for path in paths}

    def read_attacks(self) -> pd.DataFrame | None:
        """Read what attacks on certificates found, by classifier and distance, if known."""
        path = self.attacks and self.attacks / f"{self.dataset}.csv"
        return pd.read_csv(path) if path and path.exists() else None

    def read_theory(self, name: str) -> pd.DataFrame:
        """Read the files ``spreads`` or ``bounds`` of all noise levels, with a column ``sigma``."""
        frames = []
        for sigma in self.sigmas:
            path = pool_file(self.weights, sigma, f"{name}.csv")
            remedy = f"run {self.command('weights', sigma)}"
            frame = tsv.read_csv(path, ["ensemble", "images"], remedy)
            frames.append(frame.assign(sigma=float(sigma)))
        return pd.concat(frames, ignore_index=True)

    def read_seconds(self, sigma: Any) -> dict[str, float]:
        """Read the seconds of a certificate of each ensemble alone, with the choice of weights.

        Returns:
            By kind of ensemble (``Result.kind``); only those that are known.
        """
        alone = {}
        for row in self._measured(sigma, ALONE_FILE, "certify_ensembles"):
            sidecar = sidecar_of(pool_rows(self.results, sigma, row["classifier"]))
            if sidecar.is_file() and files.sha256(sidecar) == row["sidecar"]:
                alone[row["classifier"]] = row["seconds"]
        seconds_per_weight = math.nan
        for row in self._measured(sigma, "weights.csv", "weights"):
            if files.sha256(pool_file(self.weights, sigma, "bounds.csv")) == row["bounds"]:
                seconds_per_weight = row["seconds"]
        seconds = {}
        for ensemble in self.ensembles:
            value = alone.get(ensemble.slug, math.nan)
            if ensemble.combination.scope == PER_IMAGE_SCOPE:
                value += len(ensemble.members) * seconds_per_weight
            if not math.isnan(value):
                seconds[self.name_of(composition(ensemble.members), ensemble.key)] = value
        return seconds

    def read_best_acr(self) -> pd.DataFrame:
        """Read the best ACR so far at each evaluated epoch, mean over the seeds.

        Returns:
            Columns ``method sigma epoch seconds acr error``, the last one the standard error over
            the seeds, NaN for a single seed; no line for a run that was never evaluated.
        """
        runs = []
        for cell in self.cells:
            timing = self._timing(cell)
            if self.logs is None or timing is None:
                continue
            remedy = f"run {cell.command('train')}"
            history = tsv.read_csv(cell.log(self.logs, "history.csv"), ["epoch", "acr"], remedy)
            run = history.dropna(subset="acr").merge(timing, on="epoch")
            best = run["acr"].cummax()
            runs.append(run.assign(method=cell.method, sigma=float(cell.sigma), acr=best))
        if not runs:
            raise InputError(
                f"{self.logs} must have logs of these training runs, but has none; train some "
                "cells again"
            )
        epochs = pd.concat(runs, ignore_index=True).groupby(
            ["method", "sigma", "epoch"], sort=False, as_index=False
        )
        return epochs.agg(seconds=("total", "mean"), acr=("acr", "mean"), error=("acr", "sem"))

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
        if self.logs is None:
            return None
        trained = files.json_values(cell.log(self.logs, "provenance.json"))
        certified = files.json_values(sidecar_of(cell.rows(self.results)))
        if not trained or trained.get("classifier") != certified.get("classifier"):
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
        """Read the seconds per epoch of every method of the grid."""
        remedy = "run python -m benchmarks.epochs"
        table = tsv.read_csv(path, ["method", "seconds"], remedy)
        seconds = dict(zip(table["method"], table["seconds"].astype(float), strict=True))
        methods = {cell.method for cell in self.cells}
        is_positive = all(0 < value < math.inf for value in seconds.values())
        if not is_positive or not methods <= seconds.keys():
            raise InputError(
                f"{path} must have positive seconds of every method of the grid, got {seconds}; "
                f"{remedy}"
            )
        return seconds

    def _measured(self, sigma: Any, name: str, stage: str) -> list[dict[Any, Any]]:
        """Read the lines of a table of seconds of ensembles; empty if there is no table."""
        if self.logs is None or not pool_file(self.logs, sigma, name).is_file():
            return []
        remedy = f"run {self.command(stage, sigma)} --force"
        table = tsv.read_csv(pool_file(self.logs, sigma, name), ["seconds"], remedy, empty=True)
        return table.to_dict("records")

    def command(self, stage: str, sigma: Any) -> str:
        """Return the command that runs a stage of ensembles at a noise level."""
        return f"dvc repro {pool_target(stage, self.dataset, sigma)}"
