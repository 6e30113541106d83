"""Try settings of a method on validation images, so that nothing is chosen by the test split."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rs.command_line.shell import DataFolder, Device, ParamsFile, parameters, run
from rs.params import Count, NonNegativeCount, load_section, merge, validate, validated

if TYPE_CHECKING:  # half a second to import
    import pandas as pd

    from rs.data.prepared import Meta
    from rs.training.recipe import Recipe, RunOptions

COLUMNS = ("method", "sigma", "setting", "epochs", "images", "n", "acr", "error", "accuracy")


@validated
class Tuning:
    """What is tried; section ``recipes.DATASET.tuning`` of params.yaml."""

    epochs: Count  # of each training
    seed: NonNegativeCount  # of each training; one that the study does not use
    images: Count  # first images of the validation split, that are certified
    n0: Count
    n: Count
    settings: dict[str, list[dict[str, Any]]]  # of each method: what differs from the recipe


def main(
    dataset: Annotated[str, typer.Argument(help="Recipe to follow: recipes.DATASET of the parameters.")],
    method: Annotated[str, typer.Argument(help="Training method: a key of its tuning.settings.")],
    sigma: Annotated[float, typer.Option(help="Noise std, in pixels of [0, 1].")],
    data: DataFolder,
    work: Annotated[Path, typer.Option(file_okay=False, help="Folder for models and rows: METHOD/SIGMA/NUMBER.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Table to write, *.csv: ACR and clean accuracy of each.")],
    targets: Annotated[Path | None, typer.Option(dir_okay=False, help="Targets of the training images.")] = None,
    params: ParamsFile = Path("params.yaml"),
    device: Device = "auto",
) -> None:
    """Train METHOD with each setting, and certify validation images; an interrupted search continues."""
    values = parameters(params, dataset)
    from rs.certification.certify_model import certification_settings, certify_model
    from rs.certification.load import load
    from rs.data.images import load_images
    from rs.errors import InputError
    from rs.runtime import arithmetic
    from rs.runtime.device import device_named
    from rs.smoothing.settings import SmoothingOptions
    from rs.storage import certificate_rows, files
    from rs.training.recipe import RunOptions, training_recipe
    from rs.training.run import is_unfinished, train_model

    tuning = load_section(values, f"recipes.{dataset}.tuning", Tuning)
    if method not in tuning.settings:
        raise InputError(
            f"params.yaml: recipes.{dataset}.tuning.settings must list settings of {method}; it has those of "
            f"{', '.join(tuning.settings) or 'none'}"
        )
    replaceable = out.is_file() and out.read_bytes().startswith(",".join(COLUMNS).encode())
    files.check_output(out, "a table of tuning", replaceable)
    tried = [changed(values, dataset, method, setting, tuning.epochs) for setting in tuning.settings[method]]
    for one in tried:
        arithmetic.recipe_arithmetic(one, dataset)
    recipes = [training_recipe(one, dataset, method, sigma) for one in tried]  # all are checked before any is trained
    place = device_named(device)
    options = RunOptions(sigma=sigma, seed=tuning.seed, device=place, targets=targets)
    images = load_images(data, "validation")
    budget = {"n0": tuning.n0, "n": tuning.n, "subset": {"first": tuning.images}}
    certification = certification_settings(values, dataset, budget)
    table = []
    for number, (setting, recipe) in enumerate(zip(tuning.settings[method], recipes, strict=True)):
        folder = work / method / str(sigma) / str(number)
        rows = folder / "rows.tsv"
        trained = is_trained(folder / "model", recipe, images.meta, options) and not is_unfinished(
            recipe, data, options
        )
        if not (trained and is_of_this_code(rows)):
            for of_another in folder.glob("rows.*"):
                of_another.unlink()
        if not trained:
            train_model(recipe, data, options, out=folder / "model", log=folder / "log")
        smoothing = SmoothingOptions(device=place, calibration=data)
        certify_model(load(folder / "model", images.meta), images, certification, smoothing, out=rows)
        table.append(row(method, sigma, setting, tuning, certificate_rows.read_rows(rows)))
        files.write_csv(out, COLUMNS, table)


def is_trained(folder: Path, recipe: Recipe, meta: Meta, options: RunOptions) -> bool:
    """Return whether a model is that of a recipe, all settings alike.

    Raises:
        InputError: If it is that of another data set or seed, which would be lost.
    """
    from rs.errors import InputError
    from rs.models.checkpoint import CARD, WEIGHTS, read_card
    from rs.training.start import differences

    if not all((folder / name).is_file() for name in (CARD, WEIGHTS)):
        return False
    card = read_card(folder)
    if (card.dataset, card.seed) != (meta.name, options.seed):
        raise InputError(
            f"{folder} must be of {meta.name} and seed {options.seed}, or new, got {card.dataset} and {card.seed}; "
            "name another --work, or remove it"
        )
    images = (card.shape, card.classes, card.mean, card.std)
    return images == tuple(map(list, (meta.shape, meta.classes, meta.mean, meta.std))) and (
        (card.architecture, card.hyperparameters, card.training)
        == (recipe.architecture, recipe.hyperparameters, asdict(recipe.training) | differences(recipe.weights, options))
    )


def is_of_this_code(rows: Path) -> bool:
    """Return whether rows were made by the code that is here."""
    from rs.certification.certify_model import MODULE
    from rs.runtime import code_fingerprint
    from rs.storage import certificate_rows, files

    sidecar = certificate_rows.sidecar_of(rows)
    return sidecar.is_file() and files.read_json(sidecar).get("code") == code_fingerprint.code_hash(MODULE)


def changed(values: dict[str, Any], dataset: str, method: str, setting: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Return the parameters with a setting of a method in its recipe, and so many epochs, quick ACRs left out.

    >>> values = {"recipes": {"digits": {"macer": {"lam": 12.0, "training": {"batch": 64}}}}}
    >>> changed(values, "digits", "macer", {"lam": 4.0, "training": {"clip_norm": 1.0}}, 3)["recipes"]["digits"]
    {'macer': {'lam': 4.0, 'training': {'batch': 64, 'clip_norm': 1.0, 'epochs': 3, 'eval_every': 0}}}
    """
    values = copy.deepcopy(values)
    where = f"recipes.{dataset}.{method}"
    (own, _), (trained, _) = (merge(values, key, optional=True) for key in (where, f"{where}.training"))
    training = {**trained, **validate(dict[str, Any], setting.get("training", {}), "training")}
    values["recipes"][dataset][method] = {**own, **setting, "training": {**training, "epochs": epochs, "eval_every": 0}}
    return values


def row(method: str, sigma: float, setting: dict[str, Any], tuning: Tuning, rows: pd.DataFrame) -> dict[str, Any]:
    """Return a line of the table."""
    from rs.statistics.metrics import acr, standard_error

    return {
        "method": method,
        "sigma": sigma,
        "setting": words(setting),
        "epochs": tuning.epochs,
        "images": len(rows),
        "n": tuning.n,
        "acr": f"{acr(rows):.4f}",
        "error": f"{standard_error(rows):.4f}",
        "accuracy": f"{rows['correct'].mean():.3f}",
    }


def words(setting: dict[str, Any]) -> str:
    """Return a setting as text without commas.

    >>> words({"lam": 4.0, "training": {"learning_rate": 0.1}})
    'lam 4.0; learning_rate 0.1'
    >>> words({"training": {"milestones": [15, 25]}})
    'milestones [15 25]'
    """
    flat = {**setting, **setting.get("training", {})}
    return "; ".join(f"{key} {value}" for key, value in flat.items() if key != "training").replace(",", "")


if __name__ == "__main__":
    run(main)
