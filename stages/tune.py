"""Try settings of a method on validation images, so that nothing is chosen by the test split."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rs.command_line.shell import (
    DataFolder,
    Device,
    ParamsFile,
    file_option,
    folder_option,
    parameters,
    run,
)
from rs.params import Count, NonNegativeCount, read_params, validate, validated
from rs.recipes import replace_in_recipe

if TYPE_CHECKING:  # half a second to import
    import pandas as pd

COLUMNS = ("method", "sigma", "setting", "epochs", "images", "n", "acr", "error", "accuracy")


@validated
class Tuning:
    """What is tried; the file ``--settings``."""

    epochs: Count  # of a training run whose setting does not state its own
    seed: NonNegativeCount  # of each training; one that the study does not use
    images: Count  # first images of the validation split, which are certified
    n0: Count
    n: Count
    settings: dict[str, list[dict[str, Any]]]  # of each method: what differs from the recipe


def main(
    dataset: Annotated[
        str, typer.Argument(help="Recipe to follow: recipes.DATASET of the parameters.")
    ],
    method: Annotated[str, typer.Argument(help="Training method: a key of the settings.")],
    sigma: Annotated[float, typer.Option(help="Noise std, in pixels of [0, 1].")],
    settings: Annotated[
        Path, typer.Option(help="YAML file of the settings to try, as in docs/tuning.")
    ],
    data: DataFolder,
    work: Annotated[Path, folder_option("Folder for models and rows: METHOD/SIGMA/HASH.")],
    out: Annotated[
        Path,
        file_option("Table to write, *.csv: ACR and clean accuracy of each."),
    ],
    params: ParamsFile = Path("params.yaml"),
    device: Device = "auto",
    restart: Annotated[
        bool, typer.Option("--restart", help="Repeat training runs that are finished in --work.")
    ] = False,
) -> None:
    """Train METHOD with each setting, and certify validation images.

    An interrupted search continues.

    Example:
        python -m stages.tune cifar10-cpu advmacer --settings docs/tuning/cifar10-cpu.yaml \\
            --sigma 0.5 --data data/cifar10-cpu --work models/tuning --out advmacer.csv
    """
    values = parameters(params, dataset)
    from rs.certification.certify_model import certification_settings, certify_model
    from rs.certification.load import load
    from rs.data.images import load_images
    from rs.runtime import arithmetic, scratch
    from rs.runtime.device import resolve_device
    from rs.smoothing.settings import SmoothingOptions
    from rs.storage import certificate_rows, files
    from rs.training.recipe import RunOptions, training_recipe
    from rs.training.run import splits, train_model

    tuning = read_tuning(settings, method)
    replaceable = out.is_file() and out.read_bytes().startswith(",".join(COLUMNS).encode())
    files.check_output(out, "a table of tuning", replaceable)
    recipes = []  # all are checked before any is trained
    for setting in tuning.settings[method]:
        changed = with_setting(values, dataset, method, setting, tuning.epochs)
        arithmetic.recipe_arithmetic(changed, dataset)
        recipes.append(training_recipe(changed, dataset, method, sigma))
    torch_device = resolve_device(device)
    options = RunOptions(sigma=sigma, seed=tuning.seed, device=torch_device)
    images = load_images(data, "validation")
    budget = {"n0": tuning.n0, "n": tuning.n, "subset": {"first": tuning.images}}
    certification = certification_settings(values, dataset, budget)
    smoothing = SmoothingOptions(device=torch_device, calibration=data)
    table = []
    for number, recipe in enumerate(recipes):
        identity = {"recipe": asdict(recipe), "images": asdict(images.meta), "seed": tuning.seed}
        folder = work / method / str(sigma) / scratch.key(identity)
        rows = folder / "rows.tsv"
        if restart or not is_of_this_code(rows):
            for outdated in folder.glob("rows.*"):
                outdated.unlink()
        pair = splits(recipe, data)
        train_model(
            recipe, *pair, options, out=folder / "model", log=folder / "log", restart=restart
        )
        classifier = load(folder / "model", images.meta)
        certify_model(classifier, images, certification, smoothing, out=rows)
        row = {
            "method": method,
            "sigma": sigma,
            "setting": describe_setting(tuning.settings[method][number]),
            "epochs": recipe.training.epochs,
            "n": tuning.n,
        }
        table.append(row | scores(certificate_rows.read_rows(rows)))
        files.write_csv(out, COLUMNS, table)


def read_tuning(path: Path, method: str) -> Tuning:
    """Return what is tried; refuse a file without settings of ``method``."""
    from rs.errors import InputError

    tuning = validate(Tuning, read_params(path), "", source=str(path))
    if not tuning.settings.get(method):
        raise InputError(
            f"{path}: settings must list settings of {method}; "
            f"it has those of {', '.join(tuning.settings) or 'no method'}"
        )
    return tuning


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


def with_setting(
    values: dict[str, Any], dataset: str, method: str, setting: dict[str, Any], epochs: int
) -> dict[str, Any]:
    """Return the parameters with a setting of a method in its recipe, without quick ACRs.

    Args:
        values: The parameters.
        dataset: Name of the recipe.
        method: Name of the training method.
        setting: What differs from the recipe: hyperparameters, and ``training``.
        epochs: Of the training, unless the setting states its own.

    >>> values = {"recipes": {"digits": {"macer": {"lam": 12.0, "training": {"batch": 64}}}}}
    >>> setting = {"lam": 4.0, "training": {"clip_norm": 1.0}}
    >>> with_setting(values, "digits", "macer", setting, 3)["recipes"]["digits"]["macer"]
    {'lam': 4.0, 'training': {'batch': 64, 'epochs': 3, 'eval_every': 0, 'clip_norm': 1.0}}
    """
    hyperparameters = {name: value for name, value in setting.items() if name != "training"}
    training = {"epochs": epochs, "eval_every": 0}
    training |= validate(dict[str, Any], setting.get("training", {}), "training")
    changed = replace_in_recipe(values, dataset, method, hyperparameters)
    return replace_in_recipe(changed, dataset, f"{method}.training", training)


def scores(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of the table that rows of certificates give."""
    from rs.statistics.comparison import estimate, sample

    acr = estimate(sample([rows], [()]))
    return {
        "images": len(rows),
        "acr": f"{acr.value:.4f}",
        "error": f"{acr.error_images:.4f}",
        "accuracy": f"{rows['correct'].mean():.3f}",
    }


def describe_setting(setting: dict[str, Any]) -> str:
    """Return a setting as text without commas.

    >>> describe_setting({"lam": 4.0, "training": {"learning_rate": 0.1}})
    'lam 4.0; learning_rate 0.1'
    >>> describe_setting({"training": {"milestones": [15, 25]}})
    'milestones [15 25]'
    """
    flat = {**setting, **setting.get("training", {})}
    flat.pop("training", None)
    text = "; ".join(f"{name} {value}" for name, value in flat.items())
    return text.replace(",", "")


if __name__ == "__main__":
    run(main)
