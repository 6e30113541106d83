"""Train one base classifier: one method, one noise level, one seed."""

import csv
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.pictures import (
    Classes,
    Convert,
    Crop,
    Images,
    Resize,
    check_sources,
    training_pictures,
)
from rs.command_line.shell import (
    PACKAGED,
    Device,
    Network,
    ParamsFile,
    Workers,
    check_sigma,
    launch,
    parameters,
    warn_of_another_data_set,
)
from rs.errors import InputError
from rs.methods import METHODS

EXAMPLE = """\
rs train advmacer --dataset digits --sigma 0.25 --seed 0 --data data/digits \\
    --out models/mine --log logs/mine
rs train advmacer --network my_package.models:build --sigma 0.5 --images photos \\
    --out models/mine --log logs/mine"""


def main(
    method: Annotated[str, typer.Argument(help=f"Training method: {', '.join(METHODS)}.")],
    sigma: Annotated[float, typer.Option(callback=check_sigma, help="Noise std, in pixels of [0, 1].")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for model.safetensors and model.json.")],
    log: Annotated[Path, typer.Option(file_okay=False, help="Folder for history.csv, timing.csv, provenance.json.")],
    dataset: Annotated[
        str | None,
        typer.Option(help="Recipe to follow: recipes.DATASET of the parameters; --network has one of its own."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of every random number.")] = 0,
    data: Annotated[Path | None, typer.Option(file_okay=False, help="Folder of the prepared data set.")] = None,
    network: Network = None,
    weights: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Start from these weights of the network, *.safetensors.")
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start from random weights instead of the network's own.")
    ] = False,
    trainable: Annotated[
        str, typer.Option(help="all, head (the last linear layer), or a regular expression of parameters' names.")
    ] = "all",
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs, instead of the recipe's.")] = None,
    images: Images = None,
    classes: Classes = None,
    resize: Resize = None,
    crop: Crop = None,
    convert: Convert = False,
    params: ParamsFile = Path("params.yaml"),
    device: Device = "auto",
    workers: Workers = 0,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after the first epoch that ends past this training time.")
    ] = None,
) -> None:
    """Train METHOD at noise SIGMA; an interrupted training continues from its last checkpoint.

    With --network, train a network of your own, from the weights that it has. Of --images, a tenth of each class is
    left out of the training, chosen by content: the ACR of each epoch is theirs.
    """
    check_sources(data, images, classes, resize, crop, convert)
    if data is None and images is None:
        raise InputError("give --data, a prepared data set, or --images, a folder of pictures")
    if dataset is None and network is None:
        raise InputError("give --dataset, the recipe to follow: a key of recipes in the parameters, as digits")
    recipe_name = dataset or "finetune"
    values = parameters(params if dataset else PACKAGED, recipe_name)
    from rs.certification.load import register_network
    from rs.data.pictures import Conversion
    from rs.params import for_sigma, replace_in_recipe
    from rs.runtime.device import device_named
    from rs.runtime.processes import rank_and_world_size
    from rs.training import run
    from rs.training.recipe import training_recipe
    from rs.training.settings import RunOptions

    if dataset is None:
        values = for_sigma(values, sigma, recipe_name, nearest=True)
    if network is not None:
        register_network(network)
        model = {"network": network, "weights": weights and str(weights)}
        values = replace_in_recipe(values, recipe_name, "model", model)
    elif weights is not None or from_scratch:
        raise InputError("--weights and --from-scratch are for --network; networks of this project start from random")
    if epochs is not None:
        values = replace_in_recipe(values, recipe_name, f"{method}.training", {"epochs": epochs})
    recipe = training_recipe(values, recipe_name, method, sigma)
    launch(values)
    first = rank_and_world_size()[0] == 0
    options = RunOptions(
        sigma=sigma,
        seed=seed,
        device=device_named(device),
        workers=workers,
        seconds=seconds,
        from_scratch=from_scratch,
        trainable=trainable,
    )
    if images is not None:
        train, validation = training_pictures(images, classes, Conversion(resize, crop, convert))
        run.train_on(recipe, train, validation, options, out=out, log=log)
    elif data is not None:
        if first and dataset is not None:
            warn_of_another_data_set(values, dataset, data)
        run.train_model(recipe, data, options, out=out, log=log)
    if first:
        print(f"{_last(log / 'history.csv')}; model in {out}, log in {log}")
        if network is not None:
            print(f"next: rs certify {out} --network {network} ...; certify images that it was not trained on")


def _last(history: Path) -> str:
    """Return what the last epoch of a training was."""
    with history.open(encoding="utf-8", newline="") as lines:
        last = list(csv.DictReader(lines))[-1]
    accuracy = f", accuracy under noise {float(last['accuracy']):.1%}" if last["accuracy"] else ""
    return f"{last['epoch']} epochs{accuracy} in the last"
