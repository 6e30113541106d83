"""Train one base classifier: one method, one noise level, one seed."""

import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rs.command_line import shell
from rs.command_line.pictures import UNSEEN, PictureOptions
from rs.errors import InputError
from rs.methods import DEFAULT_METHOD, EVERY_METHOD
from rs.runtime.progress import say, say_next

if TYPE_CHECKING:  # seconds to import
    from rs.data.prepared import Images

METHOD_HELP = f"Training method: {', '.join(EVERY_METHOD)}."


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """A network of your own."""

    network: shell.Network = None
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Weights to start from: *.safetensors of the network, or a model folder."
        ),
    ] = None
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start from random weights.")
    ] = False
    trainable: Annotated[
        str,
        typer.Option(
            help="all, head (the last linear layer), or a regular expression of parameters' names."
        ),
    ] = "all"

    def say_start(self) -> None:
        """Say where the training starts, if that is not the network's own random weights."""
        if self.network is None and self.weights is None:
            return
        start = f"the weights that {self.network} returns"
        if self.from_scratch:
            start = "random weights"
        elif self.weights is not None:
            start = str(self.weights)
        say(f"training starts from {start}")


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Settings in place of the recipe's."""

    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Epochs, instead of the recipe's; the model of the last epoch is kept."
        ),
    ] = None
    batch: Annotated[
        int | None, typer.Option(min=1, help="Noisy images per step (macer: clean images).")
    ] = None
    micro_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Noisy images that the network takes at once. Lower it if memory runs out.",
        ),
    ] = None
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, adamw or muon; the last two need --lr.")
    ] = None
    learning_rate: Annotated[
        float | None,
        typer.Option("--lr", help="Largest learning rate."),
    ] = None
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None
    eval_every: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Measure a quick ACR on held-out images every this many epochs; 0: never.",
        ),
    ] = None

    def training(self) -> dict[str, Any]:
        """Return the settings that are given, by their names in recipes."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def main(
    *,
    method: Annotated[str, typer.Argument(help=METHOD_HELP)] = DEFAULT_METHOD,
    sigma: Annotated[
        float, typer.Option(callback=shell.sigma_option, help="Noise std, in pixels of [0, 1].")
    ],
    out: Annotated[Path, shell.folder_option("Folder for model.safetensors and model.json.")],
    log: Annotated[
        Path | None,
        shell.folder_option(
            "Folder for history.csv, timing.csv and provenance.json; default: the folder --out "
            "with -log appended to its name."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Recipe: recipes.DATASET of --params; default: the name of the data set in "
            "--data; with --network: finetune."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of every random number.")
    ] = 0,
    data: shell.PreparedData = None,
    validation: Annotated[
        Path | None,
        shell.folder_option(
            "Folder of pictures for a quick ACR after each epoch (or --eval-every)."
        ),
    ] = None,
    params: shell.ParamsFile = shell.DEFAULT_PARAMS,
    device: shell.Device = "auto",
    workers: shell.Workers = 0,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Train for this long instead of epochs; the learning rate follows the time."
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Replace a finished model in --out.")
    ] = False,
    changes: RecipeOptions,
    base: NetworkOptions,
    pictures: PictureOptions,
) -> None:
    """Train one base classifier: one method, one noise level, one seed.

    An interrupted training continues from its last checkpoint. A finished one is not repeated, and
    a training run with other settings replaces it only with --restart.

    With --network, train a network of your own, starting from its weights. With --eval-every N,
    measure the ACR after every N-th epoch: on --validation, on the validation split of --data, or
    else on a tenth of each class that is then held out.

    Example:
        rs train advmacer --sigma 0.25 --seed 0 --data data/digits --out models/mine
        rs train advmacer --network my_package.models:build --sigma 0.5 \\
            --images photos --out models/mine
    """
    _check_options(dataset, data, validation, base, pictures)
    log = log or out.parent / f"{out.resolve().name}-log"
    if out.resolve() == log.resolve():
        raise InputError(
            f"--log must be another folder than --out, got {log} for both; name another --log"
        )
    is_own = base.network is not None
    values, recipe_name = shell.recipe_parameters(dataset, params, None if is_own else data)
    from rs.runtime import processes
    from rs.runtime.device import resolve_device
    from rs.smoothing.user_networks import import_network
    from rs.training import run
    from rs.training.recipe import RunOptions, override, training_recipe

    training = changes.training()
    if validation is not None:
        training.setdefault("eval_every", 1)
    values = override(
        values,
        recipe_name,
        method,
        training=training,
        network=base.network,
        weights=None if base.weights is None else str(base.weights),
    )
    recipe = training_recipe(values, recipe_name, method, sigma, nearest=is_own)
    resolved_device = resolve_device(device)
    processes.remember_starter()
    shell.launch(values)
    pair: tuple[Images, Images] | None = None
    if pictures.images is not None:
        build = None if base.network is None else partial(import_network, base.network)
        is_evaluated = recipe.training.eval_every > 0
        pair = pictures.for_training(validation, build, is_evaluated=is_evaluated)
    if base.network is not None:
        shell.register_network_of(values, recipe_name)  # builds it: all else is checked before
    is_first_process = processes.is_first_process()
    if is_first_process:
        base.say_start()
    options = RunOptions(
        sigma=sigma,
        seed=seed,
        device=resolved_device,
        workers=workers,
        seconds=seconds,
        from_scratch=base.from_scratch,
        trainable=base.trainable,
    )
    if data is not None:
        pair = run.splits(recipe, data)
    if pair is not None:  # either is given
        run.train_model(recipe, *pair, options, out=out, log=log, restart=restart)
    if is_first_process:
        say(f"model of the last epoch in {out}, log in {log}")
        if "DVC_ROOT" not in os.environ:  # a stage has another one that follows
            unseen = replace(pictures, images=UNSEEN)
            say_next(unseen.certify_command(str(out), base.network, None, data, dataset))


def _check_options(
    dataset: str | None,
    data: Path | None,
    validation: Path | None,
    base: NetworkOptions,
    pictures: PictureOptions,
) -> None:
    """Check that required options are given, and that options fit each other."""
    pictures.check_sources(data, required=True)
    if validation is not None and pictures.images is None:
        raise InputError(
            "--validation is for --images; a prepared data set has a validation split of its own, "
            "so leave it out"
        )
    if dataset is None and data is None and base.network is None:
        raise InputError(
            "--dataset must name the recipe to follow, a key of recipes in the parameters such as "
            "digits, but is missing; give it, or --network"
        )
    if base.from_scratch and base.network is None:
        raise InputError(
            "--from-scratch is for --network; networks of this project start from random weights "
            "anyway, so leave it out"
        )
