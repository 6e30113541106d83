"""The cells of a study, and what their stages depend on: the parameters say it, never what lies in
a folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field
from itertools import product
from typing import Any

from rs.errors import InputError, did_you_mean
from rs.params import (
    Count,
    NonNegativeCount,
    Positive,
    layers,
    load_section,
    merge,
    merge_recipe,
    section,
    validate,
    validated,
)
from rs.study.ensembles import declared
from rs.study.layout import GridCell

TABLE_PARAMETERS = ("steps", "draws", "epsilon", "lam", "gamma", "beta", "eta", "epochs", "batch")
"""Hyper-parameters that the cost table shows, where a method has them."""

KEYS = (
    "dataset", "sigmas", "methods", "methods_with_targets", "seeds", "members", "member_seeds", "warm_start", "grids",
    "launcher", "combinations", "ensembles", "datasets", "defaults", "recipes", "tables",
)  # fmt: skip
"""Sections of the parameters."""

GRID_SECTIONS = (
    "sigmas", "methods", "methods_with_targets", "seeds", "members", "member_seeds", "warm_start", "combinations",
    "ensembles",
)  # fmt: skip
"""Sections that say which models and ensembles there are."""

RECIPE_SECTIONS = (
    "arithmetic",
    "model",
    "training",
    "certify",
    "weights",
    "pool",
    "tuning",
    "targets",
)
"""Sections of a recipe that are no methods."""

TARGETS_FROM = "gaussian"
"""Method of the model, at the first noise level and seed, whose votes are the targets of training
images.
"""

START = "gaussian"
"""Method of the models that trainings with a warm start go on from."""

CERTIFY_IN_WEIGHTS = ("n0", "seed", "subset", "noise", "precision")
"""What the weights of ensembles depend on in the section ``certify``: the test images, and their
selected classes.
"""


@validated
class WarmStart:
    """Methods whose trainings start from a model that was trained almost without noise; each seed
    has one.
    """

    methods: list[str] = field(default_factory=list)
    seeds: list[NonNegativeCount] = field(default_factory=list)
    sigma: Positive = 0.001
    epochs: Count = 5


def cells(values: dict[str, Any], dataset: str) -> list[GridCell]:
    """Return the models of the grid, each once.

    They are ``sigmas`` x (``methods`` and ``methods_with_targets`` x ``seeds``, ``members`` x
    ``member_seeds``, ``warm_start.methods`` x ``warm_start.seeds``).

    Raises:
        InputError: If there is none, a key is missing, a list has an entry twice, or targets have
            no model; if a method would be trained twice with a seed; or if ``warm_start`` has a
            method that the grid trains otherwise, methods without seeds, or seeds without methods.
    """
    optional: dict[str, Any] = {
        "members": [],
        "member_seeds": [],
        "methods_with_targets": [],
        "warm_start": {},
    }
    stated = optional | {key: value for key, value in values.items() if value is not None}
    keys = ("methods", "methods_with_targets", "members")
    trained_alone, with_targets, members = (load_section(stated, key, list[str]) for key in keys)
    methods, warm = trained_alone + with_targets, load_section(stated, "warm_start", WarmStart)
    first_seeds, seeds = (
        load_section(stated, key, list[NonNegativeCount]) for key in ("seeds", "member_seeds")
    )
    load_section(values, "sigmas", list[Positive])
    sigmas = section(values, "sigmas")  # as they stand there, since they are part of file names
    lists = {
        "sigmas": sigmas,
        "methods": methods,
        "seeds": first_seeds,
        "members": members,
        "member_seeds": seeds,
    }
    lists |= {
        "warm_start.methods, methods and members": [
            *warm.methods,
            *dict.fromkeys(methods + members),
        ]
    }
    lists |= {"warm_start.seeds": warm.seeds}
    for key, entries in lists.items():
        if len({*entries}) < len(entries):
            raise InputError(
                f"params.yaml: {key} must be different, got {', '.join(map(str, entries))}; remove "
                "one"
            )
    if bool(warm.methods) != bool(warm.seeds):
        raise InputError(
            f"params.yaml: warm_start must have methods and seeds, or neither, got {warm.methods} "
            f"and {warm.seeds}; "
            "add what is missing, or empty both"
        )
    first = [*product(methods, first_seeds)]
    further = [*product(members, seeds)]
    if twice := [
        f"{method} with seed {seed}" for method, seed in further if (method, seed) in first
    ]:
        raise InputError(
            "params.yaml: member_seeds must be none of seeds for methods that are in members too, "
            "got "
            f"{', '.join(twice)} twice; remove the seed from one of the two"
        )
    start_sigma = stated["warm_start"].get("sigma", warm.sigma)  # likewise
    starts = {seed: GridCell(dataset, START, start_sigma, seed) for seed in warm.seeds}
    grid = [
        GridCell(
            dataset,
            method,
            sigma,
            seed,
            is_member_seed=(method, seed) in further,
            needs_targets=method in with_targets,
        )
        for sigma in sigmas
        for method, seed in first + further
    ]
    grid += [
        GridCell(dataset, method, sigma, seed, start=starts[seed])
        for sigma, method, seed in product(sigmas, warm.methods, warm.seeds)
    ]
    if {(START, start_sigma, seed) for seed in starts} & {
        (cell.method, cell.sigma, cell.seed) for cell in grid
    }:
        raise InputError(
            f"params.yaml: warm_start.sigma must be none at which the grid trains {START} with the "
            "same seeds, got "
            f"{start_sigma}; choose other seeds"
        )
    if not grid:
        raise InputError(
            "params.yaml must list a method, a seed and a sigma at least; there is nothing to do"
        )
    if with_targets:
        _check_targets(grid)
    return grid


def with_starts(grid: Iterable[GridCell]) -> list[GridCell]:
    """Return all models that are trained, each once: those of cells, and those that their trainings
    start from.
    """
    return [*dict.fromkeys(model for cell in grid for model in (cell, cell.start) if model)]


def _check_targets(grid: Iterable[GridCell]) -> None:
    """Check that the method of the targets is in the grid, and that no further seeds need targets."""
    if TARGETS_FROM not in {
        cell.method for cell in grid if not (cell.is_member_seed or cell.start)
    }:
        raise InputError(
            f"params.yaml: methods_with_targets must have {TARGETS_FROM} among methods, whose "
            "votes are their targets; "
            "add it, or remove them"
        )
    if further := {cell.method for cell in grid if cell.is_member_seed and cell.needs_targets}:
        raise InputError(
            f"params.yaml: members must need no targets, got {', '.join(further)}; add seeds "
            "instead"
        )


def check_names(values: dict[str, Any], dataset: str, methods: Collection[str]) -> None:
    """Check that every section is a known one, because one whose name is misspelt would count for
    nothing.

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
    for where, entries in sections.items():
        _refuse_unknown(
            f"sections of {where}",
            validate(dict[str, Any], entries, where),
            [*RECIPE_SECTIONS, *methods],
        )
    _refuse_unknown(
        "methods and members", {cell.method for cell in cells(values, dataset)}, methods
    )
    if "tables" in values:
        _refuse_unknown(
            "tables.reference", [load_section(values, "tables.reference", str)], methods
        )


def _refuse_unknown(what: str, names: Iterable[str], allowed: Collection[str]) -> None:
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise InputError(
            f"params.yaml: {what} must be among {', '.join(allowed)}; got "
            f"{', '.join(map(str, unknown))}"
        )


def configuration(
    values: dict[str, Any], dataset: str, method: str, sigma: float
) -> dict[str, Any]:
    """Return the hyper-parameters :data:`TABLE_PARAMETERS` of a method at ``sigma``, where there
    are any.
    """
    sections = merge_recipe(values, dataset, method, sigma, optional=True)
    merged = sections["training"][0] | sections[method][0]
    return {name: merged[name] for name in TABLE_PARAMETERS if name in merged}


def stage_parameters(values: dict[str, Any], dataset: str) -> dict[str, dict[str, Any]]:
    """Return the parameters that each stage depends on, for a data set; recipes merged with the
    defaults.

    Returns:
        From the name of a stage, and from ``train/METHOD-SIGMA``, to its sections; those of a
        report are not merged.
    Raises:
        InputError: If there is no such recipe, or a section or a value for a noise level of the
            grid is missing.
    """
    recipe = f"recipes.{dataset}"
    arithmetic = load_section(values, f"{recipe}.arithmetic", str)
    certify, weights, pool = (
        merge(values, *layers(f"{recipe}.{name}"))[0] for name in ("certify", "weights", "pool")
    )
    stages = {
        "certify": {"certify": certify},
        "weights": {
            "weights": weights,
            "certify": {name: certify.get(name) for name in CERTIFY_IN_WEIGHTS},
        },
        "certify_ensembles": {"certify": certify, "pool": pool},
    }
    for method, sigma in dict.fromkeys(
        (cell.method, cell.sigma) for cell in with_starts(cells(values, dataset))
    ):
        sections = merge_recipe(values, dataset, method, sigma)
        stages[f"train/{method}-{sigma}"] = {name: merged for name, (merged, _) in sections.items()}
    if any(cell.needs_targets for cell in cells(values, dataset)):
        stages["targets"] = {"targets": merge(values, *layers(f"{recipe}.targets"))[0]}
    computing = {name: {"arithmetic": arithmetic, **sections} for name, sections in stages.items()}
    grid = {key: values.get(key) for key in GRID_SECTIONS}
    report = {key: values.get(key) for key in ("defaults", "tables")} | {
        recipe: section(values, recipe)
    }
    return computing | {"ensemble": grid, "tables": grid | report}


def pool_cells(values: dict[str, Any], dataset: str, sigma: float) -> list[GridCell]:
    """Return the cells at ``sigma`` that are certified together: further seeds, and the members of
    all ensembles.

    Raises:
        InputError: If the parameters do not declare this data set or sigma, or lack a member of an
            ensemble.

    >>> grid = {"sigmas": [0.5], "methods": ["macer"], "seeds": [0], "members": ["macer"], "member_seeds": [1, 2]}
    >>> pool = pool_cells(grid | {"recipes": {"digits": {}}}, "digits", 0.5)
    >>> [cell.target("train") for cell in pool]
    ['train_members@digits-macer-0.5-1', 'train_members@digits-macer-0.5-2']
    """
    section(values, f"recipes.{dataset}")
    here = {
        (cell.method, cell.seed): cell for cell in cells(values, dataset) if cell.sigma == sigma
    }
    if not here:
        raise InputError(
            "sigma must be one of the sigmas of the parameters, "
            f"{', '.join(map(str, values['sigmas']))}; got {sigma}"
        )
    wanted = {pair for ensemble in declared(values) for pair in ensemble.members}
    for method, seed in sorted(wanted - set(here)):
        trained = {method for method, _ in here}
        add = "; add it to members and member_seeds, or remove the ensembles (ensembles: null)"
        advice = add if method in trained else did_you_mean(method, trained) or add
        raise InputError(
            f"params.yaml: ensembles need {method} with seed {seed}, but the grid does not train "
            f"it{advice}"
        )
    return [cell for pair, cell in here.items() if cell.is_member_seed or pair in wanted]
