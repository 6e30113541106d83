"""What the cells of a study depend on besides files, after a check of parameters: stage
``fingerprint_first``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from rs.command_line.shell import register_network_of
from rs.data import sources
from rs.errors import InputError
from rs.methods import DENOISERS, EVERY_METHOD
from rs.params import layers, load_section, merge, section, validate
from rs.reporting.settings import check_study
from rs.runtime import arithmetic, code_fingerprint
from rs.runtime.processes import launcher_words
from rs.storage import files
from rs.study.grid import cells, check_names, stage_parameters, with_starts


def cell_fingerprints(
    values: dict[str, Any], dataset: str, prepared: Path, out: Path, root: Path
) -> dict[str, Any]:
    """Check the parameters, and return what cells depend on: code, versions, raw data, merged
    parameters.

    Args:
        values: The parameters.
        dataset: Name of the recipe and of the data set.
        prepared: The prepared data set, which knows raw data that are not here.
        out: Folder of the fingerprints of an earlier run; where none has changed, recipes are not
            checked again.
        root: Folder that holds the packages ``rs`` and ``stages``.
    Returns:
        From the name of each fingerprint, a path without suffix, to its content.
    Raises:
        InputError: If a parameter is missing, unknown, out of range or does not fit the others;
            names it.
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
    recipe_model = f"recipes.{dataset}.model"
    model, _ = merge(values, *layers(recipe_model), optional=True)
    network, weights = (
        validate(str | None, model.get(key), f"{recipe_model}.{key}")
        for key in ("network", "weights")
    )
    if network or weights:
        trained_from = _network_files(
            network, weights, {cell.seed for cell in cells(values, dataset)}
        )
        for name in parameters:  # files of ensembles do not hold the code of their members
            if "model" in parameters[name] or (
                network and name in ("weights", "certify_ensembles")
            ):
                parameters[name] |= {"network": trained_from}
    contents |= {f"parameters/{dataset}/{name}": merged for name, merged in parameters.items()}
    try:
        texts = {
            out / f"{name}.json": json.dumps(content, allow_nan=False)
            for name, content in contents.items()
        }
    except (TypeError, ValueError) as error:  # of a value that YAML has and JSON has not
        raise InputError(
            f"params.yaml: values must be finite numbers, words, lists and mappings: {error}"
        ) from error
    if not all(
        path.is_file() and files.read_json(path) == json.loads(text) for path, text in texts.items()
    ):
        check_recipe(values, dataset)
    return contents | {f"raw/{dataset}": sources.raw_fingerprint(source, prepared)}


def _network_files(
    network: str | None, weights: str | None, seeds: Iterable[int]
) -> dict[str, str]:
    """Return the SHA-256 of a user's network: of its source files, by module, as it is built, and
    of its starts.
    """
    from rs.models.fingerprint import model_fingerprint  # which imports torch
    from rs.models.fingerprint import sources as source_files
    from rs.runtime.streams import seeded
    from rs.smoothing.user_networks import import_network
    from rs.training.start import weights_file

    modules = [] if network is None else [network.partition(":")[0]]
    hashes = {name: sha256(content).hexdigest() for name, content in source_files(modules).items()}
    if network is not None:  # whose function may read weights from a file
        with seeded(0):
            hashes["built"] = model_fingerprint(import_network(network))
    starts = {weights_file(weights, seed) for seed in seeds} if weights is not None else set()
    return hashes | {str(path): files.sha256(path) for path in sorted(starts)}


def check_recipe(values: dict[str, Any], dataset: str) -> None:
    """Check every value of the recipe as the stage that reads it does; that needs torch, seconds to
    import.

    Raises:
        InputError: If one is missing, unknown or out of range; names it.
    """
    from rs.certification.certify_model import certification_settings
    from rs.certification.certify_pool import STOPS_EARLY, PoolSettings
    from rs.ensemble.declare import check_rules
    from rs.ensemble.member_outputs import WeightSettings
    from rs.methods.base import NeedsTargets
    from rs.models.architectures import USER_NETWORKS
    from rs.training.image_votes import TargetSettings
    from rs.training.recipe import training_recipe

    register_network_of(values, dataset)
    check_rules(values)
    grid = cells(values, dataset)
    for cell in with_starts(grid):
        recipe = training_recipe(values, dataset, cell.method, cell.sigma)
        if cell.method in DENOISERS and recipe.architecture not in USER_NETWORKS:
            raise InputError(
                f"params.yaml: {cell.method} must have a network in recipes.{dataset}.model; add it"
            )
        if isinstance(recipe.method, NeedsTargets) != cell.needs_targets:
            raise InputError(
                "params.yaml: methods_with_targets must be the methods that need targets, but "
                f"{cell.method} is in the "
                "wrong list; move it"
            )
    if any(cell.needs_targets for cell in grid):
        load_section(values, f"recipes.{dataset}.targets", TargetSettings)
    certification = certification_settings(values, dataset)
    if values.get("ensembles") or any(
        cell.is_member_seed for cell in grid
    ):  # else there is no pool
        if certification.stop is not None:
            raise InputError(STOPS_EARLY.format(f"params.yaml: recipes.{dataset}.certify.stop"))
        load_section(values, f"recipes.{dataset}.pool", PoolSettings)
        load_section(values, f"recipes.{dataset}.weights", WeightSettings)
