"""What the cells of a study depend on besides files, after a check of parameters: stage ``fingerprint_first``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from rs.command_line.shell import register_network_of
from rs.data import sources
from rs.errors import InputError
from rs.methods import EVERY_METHOD
from rs.params import load_section, section
from rs.reporting.settings import check_study
from rs.runtime import arithmetic, code_fingerprint
from rs.runtime.processes import launcher_words
from rs.storage import files
from rs.study.grid import cells, check_names, stage_parameters, with_starts


def cell_fingerprints(values: dict[str, Any], dataset: str, prepared: Path, out: Path, root: Path) -> dict[str, Any]:
    """Check the parameters, and return what cells depend on: code, versions, raw data, merged parameters.

    Args:
        values: The parameters.
        dataset: Name of the recipe and of the data set.
        prepared: The prepared data set, which knows raw data that are not here.
        out: Folder of the fingerprints of an earlier run; where none has changed, recipes are not checked again.
        root: Folder that holds the packages ``rs`` and ``stages``.
    Returns:
        From the name of each fingerprint, a path without suffix, to its content.
    Raises:
        InputError: If a parameter is missing, unknown, out of range or does not fit the others; names it.
    """
    where = f"datasets.{dataset}"
    check_study(values, dataset)
    check_names(values, dataset, EVERY_METHOD)
    launcher_words(values)
    arithmetic.recipe_arithmetic(values, dataset)
    contents: dict[str, Any] = code_fingerprint.stage_fingerprints(root, EVERY_METHOD) | {
        "versions": code_fingerprint.series()
    }
    source = sources.settings(section(values, where), where)
    parameters = stage_parameters(values, dataset)
    for name, sections in parameters.items():
        network, weights = (sections.get("model", {}).get(key) for key in ("network", "weights"))
        if network or weights:
            parameters[name] |= {
                "network": _network_files(network, weights, {cell.seed for cell in cells(values, dataset)})
            }
    contents |= {f"parameters/{dataset}/{name}": merged for name, merged in parameters.items()}
    try:
        texts = {out / f"{name}.json": json.dumps(content, allow_nan=False) for name, content in contents.items()}
    except (TypeError, ValueError) as error:  # of a value that YAML has and JSON has not
        raise InputError(f"params.yaml: values must be finite numbers, words, lists and mappings: {error}") from error
    if not all(path.is_file() and files.read_json(path) == json.loads(text) for path, text in texts.items()):
        check_recipe(values, dataset)
    return contents | {f"raw/{dataset}": sources.raw_fingerprint(source, prepared)}


def _network_files(network: str | None, weights: str | None, seeds: Iterable[int]) -> dict[str, str]:
    """Return the SHA-256 of the source files of a user's network, by module, and of the weights of its starts."""
    from rs.models.fingerprint import sources as source_files  # which imports torch
    from rs.training.start import weights_file

    modules = [] if network is None else [network.partition(":")[0]]
    hashes = {name: sha256(content).hexdigest() for name, content in source_files(modules).items()}
    starts = {weights_file(weights, seed) for seed in seeds} if weights is not None else set()
    return hashes | {str(path): files.sha256(path) for path in sorted(starts)}


def check_recipe(values: dict[str, Any], dataset: str) -> None:
    """Check every value of the recipe as the stage that reads it does; that needs torch, seconds to import.

    Raises:
        InputError: If one is missing, unknown or out of range; names it.
    """
    from rs.certification.certify_model import certification_settings
    from rs.certification.certify_pool import PoolSettings
    from rs.ensemble.declare import check_rules
    from rs.ensemble.member_outputs import WeightSettings
    from rs.methods.base import NeedsTargets
    from rs.training.image_votes import TargetSettings
    from rs.training.recipe import training_recipe

    register_network_of(values, dataset)
    check_rules(values)
    grid = cells(values, dataset)
    for cell in with_starts(grid):
        recipe = training_recipe(values, dataset, cell.method, cell.sigma)
        if isinstance(recipe.method, NeedsTargets) != cell.needs_targets:
            raise InputError(
                f"params.yaml: methods_with_targets must be the methods that need targets, but {cell.method} is in the "
                "wrong list; move it"
            )
    if any(cell.needs_targets for cell in grid):
        load_section(values, f"recipes.{dataset}.targets", TargetSettings)
    certification_settings(values, dataset)
    if values.get("ensembles") or any(cell.is_member_seed for cell in grid):  # else there is no pool
        load_section(values, f"recipes.{dataset}.pool", PoolSettings)
        load_section(values, f"recipes.{dataset}.weights", WeightSettings)
