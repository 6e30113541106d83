"""The cells of a study and the parameters of their stages.

Only params.yaml decides which cells there are, never the content of a folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import product
from pathlib import Path
from typing import Any

from rs.errors import InputError, did_you_mean
from rs.params import PRETRAINING, NonNegativeCount, Positive, section, validate
from rs.recipes import load_section, merge, merge_recipe, recipe_chain
from rs.study.ensembles import TRAINED, declared_ensembles
from rs.study.layout import GridCell, pool_rows, pool_target

TABLE_PARAMETERS = ("steps", "draws", "epsilon", "lam", "gamma", "beta", "eta", "epochs", "batch")
"""Hyperparameters that the cost table shows, where a method has them."""

GRID_SECTIONS = (
    "sigmas",
    "methods",
    "seeds",
    "members",
    "member_seeds",
    "combinations",
    "ensembles",
)
"""Sections that say which models and ensembles a study has."""

KEYS = (
    "dataset",
    *GRID_SECTIONS,
    "grids",
    "launcher",
    "datasets",
    "defaults",
    "recipes",
    "tables",
)
"""Sections of the parameters."""

RECIPE_SECTIONS = (
    "arithmetic",
    "model",
    "training",
    "certify",
    "weights",
    "pool",
)
"""Sections of a recipe that are not methods."""

CERTIFY_IN_WEIGHTS = ("n0", "seed", "subset", "noise", "precision")
"""Part of the section ``certify`` that the weights of ensembles depend on.

It decides the test images and their selected classes.
"""


def cells(values: dict[str, Any], dataset: str) -> list[GridCell]:
    """Return the models of the grid, each once.

    They are ``sigmas`` x (``methods`` x ``seeds`` and ``members`` x ``member_seeds``).

    Raises:
        InputError: If the grid is empty, a key is missing, a list has an entry twice, or a method
            would be trained twice with a seed.
    """
    stated: dict[str, Any] = {"members": [], "member_seeds": []} | values
    load_section(values, "sigmas", list[Positive])
    # as written there: they are part of file names
    lists: dict[str, list[Any]] = {"sigmas": section(values, "sigmas")}
    for methods_key, seeds_key in TRAINED.items():
        lists[methods_key] = load_section(stated, methods_key, list[str])
        lists[seeds_key] = load_section(stated, seeds_key, list[NonNegativeCount])
    for key, entries in lists.items():
        if len(set(entries)) < len(entries):
            listed = ", ".join(map(str, entries))
            raise InputError(f"params.yaml: {key} must be different, got {listed}; remove one")
    seed_pairs = list(product(lists["methods"], lists["seeds"]))
    member_pairs = list(product(lists["members"], lists["member_seeds"]))
    for method, seed in member_pairs:
        if (method, seed) in seed_pairs:
            raise InputError(
                "params.yaml: seeds and member_seeds must not overlap for methods in members, but "
                f"{method} has seed {seed} in both; remove the seed from one of the two"
            )
    grid = []
    for sigma in lists["sigmas"]:
        for method, seed in seed_pairs:
            grid.append(GridCell(dataset, method, sigma, seed))
        for method, seed in member_pairs:
            grid.append(GridCell(dataset, method, sigma, seed, is_member_seed=True))
    if not grid:
        raise InputError(
            "params.yaml must list a method, a seed and a sigma at least; there is nothing to do"
        )
    return grid


def check_section_names(values: dict[str, Any], dataset: str, methods: Collection[str]) -> None:
    """Check that every section is a known one: a misspelled section would have no effect.

    Args:
        values: The parameters.
        dataset: Name of the recipe.
        methods: The keys of ``rs.methods.METHODS``.
    Raises:
        InputError: If one is unknown; names it, and the known ones.
    """
    _refuse_unknown("sections of the parameters", values, KEYS)
    allowed = [*RECIPE_SECTIONS, *methods]
    defaults = validate(dict[str, Any], values.get("defaults") or {}, "defaults")
    _refuse_unknown("sections of defaults", defaults, allowed)
    for where in recipe_chain(values, dataset):
        recipe = validate(dict[str, Any], section(values, where) or {}, where)
        _refuse_unknown(f"sections of {where}", recipe, [*allowed, "base"])
    trained = {cell.method for cell in cells(values, dataset)}
    _refuse_unknown("methods and members", trained, methods)
    if "tables" in values:
        reference = load_section(values, "tables.reference", str)
        _refuse_unknown("tables.reference", [reference], methods)


def _refuse_unknown(what: str, names: Iterable[str], allowed: Collection[str]) -> None:
    unknown = [str(name) for name in names if name not in allowed]
    if unknown:
        raise InputError(
            f"params.yaml: {what} must be among {', '.join(allowed)}; got {', '.join(unknown)}"
            f"{did_you_mean(unknown[0], allowed)}"
        )


def configuration(
    values: dict[str, Any], dataset: str, method: str, sigma: float
) -> dict[str, Any]:
    """Return the hyperparameters :data:`TABLE_PARAMETERS` that a method has at ``sigma``."""
    sections = merge_recipe(values, dataset, method, sigma, optional=True)
    merged = sections["training"][0] | sections[method][0]
    return {name: merged[name] for name in TABLE_PARAMETERS if name in merged}


def has_warm_start(values: dict[str, Any], cell: GridCell) -> bool:
    """Return whether the training of a cell starts from a model trained almost without noise."""
    sections = merge_recipe(values, cell.dataset, cell.method, cell.sigma, optional=True)
    return sections["training"][0].get("warm_start") is not None


def training_parameters(
    values: dict[str, Any], dataset: str, method: str, sigma: float
) -> dict[str, Any]:
    """Return the sections that a training run depends on, merged with the defaults.

    ``pretraining`` is there if a short training comes before it, for a warm start or for targets:
    the settings of that one.
    """
    merged = {}
    for name, (values_of_section, _) in merge_recipe(values, dataset, method, sigma).items():
        merged[name] = values_of_section
    pretraining = {}
    for name in ("warm_start", "targets"):
        settings = merged["training" if name == "warm_start" else method].get(name)
        if isinstance(settings, dict) and "sigma" in settings:
            where = f"recipes.{dataset}.{method}: {name}.sigma"
            noise = validate(Positive, settings["sigma"], where)
            sections = merge_recipe(values, dataset, PRETRAINING, noise, nearest=True)
            pretraining[name] = sections["training"][0]
    if pretraining:
        merged["pretraining"] = pretraining
    return merged


def stage_parameters(values: dict[str, Any], dataset: str) -> dict[str, dict[str, Any]]:
    """Return the parameters that each stage depends on, with recipes merged with the defaults.

    Returns:
        From the name of a stage, and from ``train/METHOD-SIGMA``, to its sections; the sections of
        a report are not merged.
    Raises:
        InputError: If the recipe does not exist, or a section or a value for a noise level of the
            grid is missing.
    """
    recipe = f"recipes.{dataset}"
    arithmetic = load_section(values, f"{recipe}.arithmetic", str)
    certify, _ = merge(values, f"{recipe}.certify")
    weights, _ = merge(values, f"{recipe}.weights")
    pool, _ = merge(values, f"{recipe}.pool")
    stages: dict[str, dict[str, Any]] = {
        "certify": {"certify": certify},
        "weights": {
            "weights": weights,
            "certify": {name: certify.get(name) for name in CERTIFY_IN_WEIGHTS},
        },
        "certify_ensembles": {"certify": certify, "pool": pool},
    }
    for cell in cells(values, dataset):
        name = f"train/{cell.method}-{cell.sigma}"
        if name not in stages:
            stages[name] = training_parameters(values, dataset, cell.method, cell.sigma)
    for name, sections in stages.items():
        stages[name] = {"arithmetic": arithmetic, **sections}
    grid = {key: values.get(key) for key in GRID_SECTIONS}
    stages["ensemble"] = grid
    tables = grid | {"defaults": values.get("defaults"), "tables": values.get("tables")}
    for source in recipe_chain(values, dataset):
        tables[source] = section(values, source)
    stages["tables"] = tables
    return stages


def pool_cells(values: dict[str, Any], dataset: str, sigma: float) -> list[GridCell]:
    """Return the cells at ``sigma`` that are certified together.

    They are the cells of ``member_seeds``, and the members of all ensembles.

    Raises:
        InputError: If the parameters do not declare this data set or sigma, or lack a member of an
            ensemble.

    >>> values = {"sigmas": [0.5], "methods": ["macer"], "seeds": [0], "recipes": {"digits": {}}}
    >>> members = {"members": ["macer"], "member_seeds": [1, 2]}
    >>> pool = pool_cells(values | members, "digits", 0.5)
    >>> [cell.target("train") for cell in pool]
    ['train_members@digits-macer-0.5-1', 'train_members@digits-macer-0.5-2']
    """
    section(values, f"recipes.{dataset}")
    trained = {}
    for cell in cells(values, dataset):
        if cell.sigma == sigma:
            trained[cell.method, cell.seed] = cell
    if not trained:
        sigmas = ", ".join(map(str, values["sigmas"]))
        raise InputError(
            f"sigma must be one of the sigmas of the parameters, {sigmas}; got {sigma}"
        )
    wanted: set[tuple[str, int]] = set()
    for ensemble in declared_ensembles(values):
        wanted.update(ensemble.members)
    methods = {method for method, _ in trained}
    for method, seed in sorted(wanted - set(trained)):
        advice = "; add it to members and member_seeds, or remove the ensembles (ensembles: null)"
        if method not in methods:
            advice = did_you_mean(method, methods) or advice
        raise InputError(
            f"params.yaml: ensembles need {method} with seed {seed}, but the grid does not train "
            f"it{advice}"
        )
    return [cell for pair, cell in trained.items() if cell.is_member_seed or pair in wanted]


def part_with_rows(
    values: dict[str, Any], dataset: str, results: Path
) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of the part of a study that has rows, and the cells without rows.

    The part is a study itself. It has the noise levels at which the reference method has rows, and
    the methods and ensembles that have rows at all of these noise levels.

    Args:
        values: The parameters.
        dataset: Name of the recipe.
        results: Folder of certificate rows, by sigma.
    """
    reference = load_section(values, "tables.reference", str)
    bare = [cell for cell in cells(values, dataset) if not cell.rows(results).is_file()]
    missing = {cell.target("certify") for cell in bare}
    bare_sigmas = {cell.sigma for cell in bare if cell.method == reference}
    sigmas = [sigma for sigma in values["sigmas"] if sigma not in bare_sigmas]
    part = values | {"sigmas": sigmas}
    for cell in bare:
        key = "members" if cell.is_member_seed else "methods"
        if cell.sigma in sigmas:
            part[key] = [method for method in part[key] if method != cell.method]
    trained = {(cell.method, cell.seed) for cell in cells(part, dataset)}
    left_out = set()
    for ensemble in declared_ensembles(values):
        if not trained.issuperset(ensemble.members):
            left_out.add(ensemble.name)
        for sigma in sigmas:
            if not pool_rows(results, sigma, ensemble.slug).is_file():
                left_out.add(ensemble.name)
                missing.add(pool_target("certify_ensembles", dataset, sigma))
    ensembles = values.get("ensembles") or {}
    part["ensembles"] = {name: entry for name, entry in ensembles.items() if name not in left_out}
    return part, sorted(missing)
