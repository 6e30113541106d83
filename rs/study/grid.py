"""The cells of a study and their files: the parameters say which there are, never what lies in a folder.

RESULTS/SIGMA/METHOD-SEED.tsv and .json     certificate rows, and what made them
RESULTS/SIGMA/pool/METHOD-SEED.tsv, .json   the same of the further seeds, which are certified with the ensembles
LOGS/SIGMA/METHOD/SEED/history.csv          one line per training epoch
LOGS/SIGMA/METHOD/SEED/timing.csv           training seconds up to the end of each epoch
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rs.errors import InputError
from rs.params import NonNegativeCount, Positive, check, layers, load, merge, section, training_layers
from rs.study.ensembles import declared

SHOWN = ("steps", "draws", "epsilon", "lam", "gamma", "beta", "eta", "epochs", "batch")
"""Hyper-parameters that the cost table shows, where a method has them."""

KEYS = (
    "dataset", "sigmas", "methods", "seeds", "members", "member_seeds", "grids", "launcher", "combinations",
    "ensembles", "datasets", "defaults", "recipes", "tables",
)  # fmt: skip
"""Sections of the parameters."""

GRID = ("sigmas", "methods", "seeds", "members", "member_seeds", "combinations", "ensembles")
"""Sections that say which models and ensembles there are."""

NO_METHODS = ("arithmetic", "model", "training", "certify", "weights", "pool", "tuning")
"""Sections of a recipe that are no methods."""

CERTIFY_IN_WEIGHTS = ("n0", "seed", "subset", "noise", "precision")
"""What the weights of ensembles depend on in the section ``certify``: the test images, and their selected classes."""


@dataclass(frozen=True)
class GridCell:
    """One training run of the study: a data set, a method, a noise level and a seed."""

    dataset: str
    method: str
    sigma: Any  # as it stands in the parameters: it is part of file names
    seed: int
    further: bool = False  # a further seed of a member of ensembles, which stages of their own make

    def target(self, stage: str) -> str:
        """Return DVC's name of this cell of ``stage``."""
        if self.further and stage == "certify":
            return pool_target(self.dataset, self.sigma)
        stage = f"{stage}_members" if self.further else stage
        return f"{stage}@{self.dataset}-{self.method}-{self.sigma}-{self.seed}"

    def command(self, stage: str) -> str:
        """Return the command that makes this cell's output of ``stage``."""
        return f"dvc repro {self.target(stage)}"

    def rows(self, results: Path) -> Path:
        """Path of the certificate rows."""
        folder = results / str(self.sigma)
        return (folder / "pool" if self.further else folder) / f"{self.method}-{self.seed}.tsv"

    def log(self, logs: Path, name: str) -> Path:
        """Path of a training log."""
        return logs / str(self.sigma) / self.method / str(self.seed) / name


def cells(values: dict[str, Any], dataset: str) -> list[GridCell]:
    """Return ``sigmas`` x (``methods`` x ``seeds`` and ``members`` x ``member_seeds``), each once.

    Raises:
        InputError: If there is none, a key is missing, or a sigma is listed twice.
    """
    given = {"members": [], "member_seeds": []} | {key: value for key, value in values.items() if value is not None}
    methods, members = (load(given, key, list[str]) for key in ("methods", "members"))
    first_seeds, seeds = (load(given, key, list[NonNegativeCount]) for key in ("seeds", "member_seeds"))
    load(values, "sigmas", list[Positive])
    sigmas = section(values, "sigmas")  # as they stand there, since they are part of file names
    if len({*sigmas}) < len(sigmas):
        raise InputError(f"params.yaml: sigmas must be different, got {', '.join(map(str, sigmas))}; remove one")
    first = {(method, seed): False for method in methods for seed in first_seeds}
    pairs = first | {(method, seed): True for method in members for seed in seeds if (method, seed) not in first}
    grid = [
        GridCell(dataset, method, sigma, seed, further) for sigma in sigmas for (method, seed), further in pairs.items()
    ]
    if not grid:
        raise InputError("params.yaml must list a method, a seed and a sigma at least; there is nothing to do")
    return grid


def check_names(values: dict[str, Any], dataset: str, methods: Collection[str]) -> None:
    """Check that every section is a known one, because one whose name is misspelt would count for nothing.

    Args:
        values: The parameters.
        dataset: Name of the recipe.
        methods: The keys of ``rs.methods.METHODS``.
    Raises:
        InputError: If one is not; names it, and those that are.
    """
    recipe = f"recipes.{dataset}"
    sections = {recipe: section(values, recipe) or {}, "defaults": values.get("defaults") or {}}
    _refuse_unknown("sections of the parameters", values, KEYS)
    for where, own in sections.items():
        _refuse_unknown(f"sections of {where}", check(dict[str, Any], own, where), [*NO_METHODS, *methods])
    _refuse_unknown("methods and members", {cell.method for cell in cells(values, dataset)}, methods)
    if "tables" in values:
        _refuse_unknown("tables.reference", [load(values, "tables.reference", str)], methods)


def _refuse_unknown(what: str, names: Iterable[str], known: Collection[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"params.yaml: {what} must be among {', '.join(known)}; got {', '.join(map(str, unknown))}")


def pool_target(dataset: str, sigma: Any) -> str:
    """Return DVC's name of the cell that certifies further seeds and ensembles."""
    return f"certify_ensembles@{dataset}-{sigma}"


def configuration(values: dict[str, Any], dataset: str, method: str, sigma: float) -> dict[str, Any]:
    """Return the hyper-parameters :data:`SHOWN` of a method at ``sigma``, where there are any."""
    training, _ = merge(values, *training_layers(dataset, method), sigma=sigma, optional=True)
    hyperparameters, _ = merge(values, *layers(f"recipes.{dataset}.{method}"), sigma=sigma, optional=True)
    merged = training | hyperparameters
    return {name: merged[name] for name in SHOWN if name in merged}


def stage_parameters(values: dict[str, Any], dataset: str) -> dict[str, dict[str, Any]]:
    """Return the parameters that each stage depends on, for a data set; recipes merged with the defaults.

    Returns:
        From the name of a stage, and from ``train/METHOD-SIGMA``, to its sections; those of a report are not merged.
    Raises:
        InputError: If there is no such recipe, or a section or a value for a noise level of the grid is missing.
    """
    recipe = f"recipes.{dataset}"
    arithmetic = load(values, f"{recipe}.arithmetic", str)

    def merged(name: str, sigma: Any = None) -> dict[str, Any]:
        return merge(values, *layers(f"{recipe}.{name}"), sigma=sigma)[0]

    certify = merged("certify")
    stages = {
        "certify": {"certify": certify},
        "weights": {"weights": merged("weights"), "certify": {name: certify.get(name) for name in CERTIFY_IN_WEIGHTS}},
        "certify_ensembles": {"certify": certify, "pool": merged("pool")},
    }
    for method, sigma in dict.fromkeys((cell.method, cell.sigma) for cell in cells(values, dataset)):
        training, _ = merge(values, *training_layers(dataset, method), sigma=sigma)
        stages[f"train/{method}-{sigma}"] = {
            "model": merged("model"),
            method: {name: value for name, value in merged(method, sigma).items() if name != "training"},
            "training": training,
        }
    computing = {name: {"arithmetic": arithmetic, **sections} for name, sections in stages.items()}
    grid = {key: values.get(key) for key in GRID}
    report = {key: values.get(key) for key in ("defaults", "tables")} | {recipe: section(values, recipe)}
    return computing | {"ensemble": grid, "tables": grid | report}


def pool_cells(values: dict[str, Any], dataset: str, sigma: float) -> list[GridCell]:
    """Return the cells at ``sigma`` that are certified together: further seeds, and the members of all ensembles.

    Raises:
        InputError: If the parameters do not declare this data set or sigma, or lack a member of an ensemble.

    >>> grid = {"sigmas": [0.5], "methods": ["macer"], "seeds": [0], "members": ["macer"], "member_seeds": [1, 2]}
    >>> made = pool_cells(grid | {"recipes": {"digits": {}}}, "digits", 0.5)
    >>> [cell.target("train") for cell in made]
    ['train_members@digits-macer-0.5-1', 'train_members@digits-macer-0.5-2']
    """
    section(values, f"recipes.{dataset}")
    here = {(cell.method, cell.seed): cell for cell in cells(values, dataset) if cell.sigma == sigma}
    if not here:
        raise InputError(
            f"sigma must be one of the sigmas of the parameters, {', '.join(map(str, values['sigmas']))}; got {sigma}"
        )
    wanted = {pair for one in declared(values) for pair in one.members}
    for method, seed in sorted(wanted - set(here)):
        raise InputError(
            f"params.yaml: ensembles need {method} with seed {seed}, but the grid does not train it; add it to members "
            "and member_seeds, or remove the ensembles (ensembles: [])"
        )
    return [cell for pair, cell in here.items() if cell.further or pair in wanted]
