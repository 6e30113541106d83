"""What the cells of a study depend on besides files: the stage ``fingerprint_first``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rs.command_line.shell import register_network_of
from rs.data import sources
from rs.errors import InputError
from rs.methods import DENOISERS, EVERY_METHOD
from rs.params import PRETRAINING, section, validate
from rs.recipes import load_section, merge
from rs.reporting.settings import check_study
from rs.runtime import arithmetic, code_fingerprint
from rs.runtime.processes import launcher_words
from rs.storage import files
from rs.study.grid import cells, check_section_names, stage_parameters


def cell_fingerprints(
    values: dict[str, Any], dataset: str, prepared: Path, out: Path, root: Path
) -> dict[str, Any]:
    """Check the parameters, and return the fingerprints that cells depend on.

    They are of code, versions, raw data and merged parameters.

    Args:
        values: The parameters.
        dataset: Name of the recipe and of the data set.
        prepared: The prepared data set, which has the checksums of raw data that are absent.
        out: Folder of the fingerprints of an earlier run; if nothing has changed, recipes are not
            checked again.
        root: Folder that holds the packages ``rs`` and ``stages``.
    Returns:
        From the name of each fingerprint, a path without suffix, to its content.
    Raises:
        InputError: If a parameter is missing, unknown, out of range or does not fit the others;
            names it.
    """
    check_study(values, dataset)
    check_section_names(values, dataset, EVERY_METHOD)
    launcher_words(values)
    arithmetic.recipe_arithmetic(values, dataset)
    contents: dict[str, Any] = {"versions": code_fingerprint.series()}
    contents["texts"] = code_fingerprint.text_hashes(root)
    contents |= code_fingerprint.stage_fingerprints(root, EVERY_METHOD)
    source = sources.settings(section(values, f"datasets.{dataset}"), f"datasets.{dataset}")
    parameters = stage_parameters(values, dataset)
    for merged in parameters.values():
        if "pretraining" in merged:
            merged["pretraining"]["code"] = contents[f"code/methods/{PRETRAINING}"]
    _add_network(parameters, values, dataset)
    for name, merged in parameters.items():
        contents[f"parameters/{dataset}/{name}"] = merged
    if _have_changed(contents, out):
        check_recipe(values, dataset)
    return contents | {f"raw/{dataset}": sources.raw_fingerprint(source, prepared)}


def _have_changed(contents: dict[str, Any], out: Path) -> bool:
    """Return whether fingerprints differ from those in the folder ``out``, or are not there."""
    try:
        texts = {name: json.dumps(content, allow_nan=False) for name, content in contents.items()}
    except (TypeError, ValueError) as error:  # a YAML value JSON cannot represent
        raise InputError(
            "params.yaml: values must be finite numbers, words, lists and mappings, but: "
            f"{error}; correct it"
        ) from error
    for name, text in texts.items():
        path = out / f"{name}.json"
        if not path.is_file() or files.read_json(path) != json.loads(text):
            return True
    return False


def _add_network(
    parameters: dict[str, dict[str, Any]], values: dict[str, Any], dataset: str
) -> None:
    """Add the hashes of a user's network to the parameters of the stages that depend on it."""
    where = f"recipes.{dataset}.model"
    model, _ = merge(values, where, optional=True)
    network = validate(str | None, model.get("network"), f"{where}.network")
    weights = validate(str | None, model.get("weights"), f"{where}.weights")
    if network is None and weights is None:
        return
    seeds = {cell.seed for cell in cells(values, dataset)}
    hashes = _network_files(network, weights, seeds)
    for name, merged in parameters.items():
        # the files of ensembles do not hold the code of their members
        is_of_ensembles = name in ("weights", "certify_ensembles")
        if "model" in merged or (network is not None and is_of_ensembles):
            merged["network"] = hashes


def _network_files(
    network: str | None, weights: str | None, seeds: Iterable[int]
) -> dict[str, str]:
    """Return the SHA-256 of a user's source files, of the network as built, and of its starts."""
    from rs.smoothing.user_networks import network_hashes  # which imports torch
    from rs.training.start import weights_file

    hashes = {} if network is None else network_hashes(network)
    if weights is not None:
        for path in sorted({weights_file(weights, seed) for seed in seeds}):
            hashes[str(path)] = files.sha256(path)
    return hashes


def check_recipe(values: dict[str, Any], dataset: str) -> None:
    """Check every value of the recipe as the stage that reads it does, which imports torch.

    Raises:
        InputError: If one is missing, unknown or out of range; names it.
    """
    from rs.certification.certify_model import certification_settings
    from rs.certification.certify_pool import PoolSettings
    from rs.ensemble.declare import check_rules
    from rs.ensemble.member_outputs import WeightSettings
    from rs.models.architectures import USER_NETWORKS
    from rs.training.recipe import training_recipe

    register_network_of(values, dataset)
    check_rules(values)
    grid = cells(values, dataset)
    for cell in grid:
        recipe = training_recipe(values, dataset, cell.method, cell.sigma)
        if cell.method in DENOISERS and recipe.architecture not in USER_NETWORKS:
            raise InputError(
                f"params.yaml: {cell.method} must have a network in recipes.{dataset}.model, got "
                f"architecture {recipe.architecture}; add network: MODULE:FUNCTION"
            )
    certification = certification_settings(values, dataset)
    has_pool = bool(values.get("ensembles")) or any(cell.is_member_seed for cell in grid)
    if has_pool:
        certification.check_takes_all_samples(f"params.yaml: recipes.{dataset}.certify.stop")
        load_section(values, f"recipes.{dataset}.pool", PoolSettings)
        load_section(values, f"recipes.{dataset}.weights", WeightSettings)
