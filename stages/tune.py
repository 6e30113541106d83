"""Try settings of a method on validation images, so that nothing is chosen by the test split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rs.command_line.shell import DataFolder, Device, ParamsFile, parameters, run
from rs.params import Count, NonNegativeCount, load_section, replace_in_recipe, validate, validated

if TYPE_CHECKING:  # half a second to import
    import pandas as pd

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
    dataset: Annotated[
        str, typer.Argument(help="Recipe to follow: recipes.DATASET of the parameters.")
    ],
    method: Annotated[str, typer.Argument(help="Training method: a key of its tuning.settings.")],
    sigma: Annotated[float, typer.Option(help="Noise std, in pixels of [0, 1].")],
    data: DataFolder,
    work: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for models and rows: METHOD/SIGMA/NUMBER.")
    ],
    out: Annotated[
        Path,
        typer.Option(dir_okay=False, help="Table to write, *.csv: ACR and clean accuracy of each."),
    ],
    targets: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Targets of the training images.")
    ] = None,
    params: ParamsFile = Path("params.yaml"),
    device: Device = "auto",
) -> None:
    """Train METHOD with each setting, and certify validation images; an interrupted search
    continues.
    """
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
    from rs.training.run import is_finished, train_model

    tuning = load_section(values, f"recipes.{dataset}.tuning", Tuning)
    if method not in tuning.settings:
        raise InputError(
            f"params.yaml: recipes.{dataset}.tuning.settings must list settings of {method}; it "
            "has those of "
            f"{', '.join(tuning.settings) or 'none'}"
        )
    replaceable = out.is_file() and out.read_bytes().startswith(",".join(COLUMNS).encode())
    files.check_output(out, "a table of tuning", replaceable)
    tried = [
        changed(values, dataset, method, setting, tuning.epochs)
        for setting in tuning.settings[method]
    ]
    for recipe_values in tried:
        arithmetic.recipe_arithmetic(recipe_values, dataset)
    # all are checked before any is trained
    recipes = [training_recipe(recipe_values, dataset, method, sigma) for recipe_values in tried]
    torch_device = device_named(device)
    options = RunOptions(sigma=sigma, seed=tuning.seed, device=torch_device, targets=targets)
    images = load_images(data, "validation")
    budget = {"n0": tuning.n0, "n": tuning.n, "subset": {"first": tuning.images}}
    certification = certification_settings(values, dataset, budget)
    table = []
    for number, (setting, recipe) in enumerate(zip(tuning.settings[method], recipes, strict=True)):
        folder = work / method / str(sigma) / str(number)
        rows = folder / "rows.tsv"
        trained = is_finished(recipe, data, options, out=folder / "model")
        if not (trained and is_of_this_code(rows)):
            for of_another in folder.glob("rows.*"):
                of_another.unlink()
        if not trained:
            train_model(recipe, data, options, out=folder / "model", log=folder / "log")
        smoothing = SmoothingOptions(device=torch_device, calibration=data)
        certify_model(
            load(folder / "model", images.meta), images, certification, smoothing, out=rows
        )
        table.append(row(method, sigma, setting, tuning, certificate_rows.read_rows(rows)))
        files.write_csv(out, COLUMNS, table)


def is_of_this_code(rows: Path) -> bool:
    """Return whether rows were made by the code that is here."""
    from rs.certification.certify_model import MODULE
    from rs.runtime import code_fingerprint
    from rs.storage import certificate_rows
    from rs.storage.provenance import Provenance

    if not certificate_rows.sidecar_of(rows).is_file():
        return False
    code = Provenance.read(rows, f"remove {rows}").code
    return code == code_fingerprint.code_hash(MODULE)


def changed(
    values: dict[str, Any], dataset: str, method: str, setting: dict[str, Any], epochs: int
) -> dict[str, Any]:
    """Return the parameters with a setting of a method in its recipe, and so many epochs, quick
    ACRs left out.

    >>> values = {"recipes": {"digits": {"macer": {"lam": 12.0, "training": {"batch": 64}}}}}
    >>> changed(values, "digits", "macer", {"lam": 4.0, "training": {"clip_norm": 1.0}}, 3)["recipes"]["digits"]
    {'macer': {'lam': 4.0, 'training': {'batch': 64, 'clip_norm': 1.0, 'epochs': 3, 'eval_every': 0}}}
    """
    own = {name: value for name, value in setting.items() if name != "training"}
    training = validate(dict[str, Any], setting.get("training", {}), "training")
    training |= {"epochs": epochs, "eval_every": 0}
    return replace_in_recipe(
        replace_in_recipe(values, dataset, method, own), dataset, f"{method}.training", training
    )


def row(
    method: str, sigma: float, setting: dict[str, Any], tuning: Tuning, rows: pd.DataFrame
) -> dict[str, Any]:
    """Return a line of the table."""
    from rs.statistics.comparison import estimate, sample

    score = estimate(sample([rows], [()]))
    return {
        "method": method,
        "sigma": sigma,
        "setting": words(setting),
        "epochs": tuning.epochs,
        "images": len(rows),
        "n": tuning.n,
        "acr": f"{score.value:.4f}",
        "error": f"{score.error_images:.4f}",
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
    return "; ".join(f"{key} {value}" for key, value in flat.items() if key != "training").replace(
        ",", ""
    )


if __name__ == "__main__":
    run(main)
