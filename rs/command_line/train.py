"""Train one base classifier: one method, one noise level, one seed."""

import csv
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line import shell
from rs.methods import METHODS


def main(
    method: Annotated[str, typer.Argument(help=f"Training method: {', '.join(METHODS)}.")],
    dataset: Annotated[str, typer.Option(help="Recipe to follow: recipes.DATASET of the parameters.")],
    sigma: Annotated[float, typer.Option(callback=shell.check_sigma, help="Noise std, in pixels of [0, 1].")],
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of every random number.")],
    data: shell.DataFolder,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for model.safetensors and model.json.")],
    log: Annotated[Path, typer.Option(file_okay=False, help="Folder for history.csv, timing.csv, provenance.json.")],
    params: shell.ParamsFile = Path("params.yaml"),
    device: shell.Device = "auto",
    workers: shell.Workers = 0,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after the first epoch that ends past this training time.")
    ] = None,
) -> None:
    """Train one base classifier: one method, one noise level, one seed.

    An interrupted training continues from its last checkpoint.

    Example:
        rs train advmacer --dataset digits --sigma 0.25 --seed 0 --data data/digits \\
            --out models/mine --log logs/mine
    """
    values = shell.parameters(params, dataset)
    from rs.runtime.device import device_named
    from rs.runtime.processes import rank_and_world_size
    from rs.training.recipe import training_recipe
    from rs.training.run import train_model
    from rs.training.settings import RunOptions

    recipe = training_recipe(values, dataset, method, sigma)
    shell.launch(values)
    is_first = rank_and_world_size()[0] == 0
    if is_first:
        shell.warn_of_another_data_set(values, dataset, data)
    options = RunOptions(sigma=sigma, seed=seed, device=device_named(device), workers=workers, seconds=seconds)
    train_model(recipe, data, options, out=out, log=log)
    if is_first:
        print(f"{_last_epoch(log / 'history.csv')}; model in {out}, log in {log}")


def _last_epoch(history: Path) -> str:
    """Return the last epoch of a training in words."""
    with history.open(encoding="utf-8", newline="") as lines:
        *_, last = csv.DictReader(lines)
    accuracy = f", accuracy under noise {float(last['accuracy']):.1%}" if last["accuracy"] else ""
    return f"{last['epoch']} epochs{accuracy} in the last"
