"""Combine trained models into an ensemble, with weights fitted to images."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from rs.command_line.pictures import UNSEEN, PictureOptions
from rs.command_line.shell import (
    Batch,
    Device,
    Force,
    Network,
    PreparedData,
    Sigma,
    check_ending,
    file_option,
)
from rs.errors import InputError
from rs.runtime.progress import say, say_next


def main(
    models: Annotated[list[str], typer.Argument(help="Folders, zoo:NAME or module:function.")],
    *,
    out: Annotated[Path, file_option("Ensemble to write, *.json.")],
    weights: Annotated[
        Literal["optimal", "radius", "equal"],
        typer.Option(
            help="optimal: least variance; radius: largest average radius; equal: not fitted."
        ),
    ] = "optimal",
    data: PreparedData = None,
    sigma: Sigma = None,
    network: Network = None,
    device: Device = "auto",
    batch: Batch = None,
    force: Force = False,
    pictures: PictureOptions,
) -> None:
    """Combine trained models into an ensemble, with weights fitted to images.

    Every option for a model takes the file of the ensemble. Weights are fitted to the validation
    split of --data, or to its train split if there is none, or to the pictures of --images; do not
    certify these. Equal weights of trained models need no images. The file finds its models if they
    are moved together with it. A network that module:function builds is copied next to it, and
    --network names the function to load it.

    Example:
        rs combine models/a models/b --data data/digits --out ensemble.json
        rs combine models/a my_package.models:build --images photos \\
            --out ensemble.json
    """
    pictures.check_sources(data, required=weights != "equal")
    if len({Path(model).resolve() for model in models}) < max(2, len(models)):
        raise InputError(
            f"an ensemble must have two or more different models, got {', '.join(models)}; name "
            "at least two, each once"
        )
    check_ending(out, ".json")
    from rs.certification.load import load
    from rs.ensemble.combine import combine, write_network
    from rs.ensemble.fit_weights import fitting_split
    from rs.ensemble.spec import FittedWeights
    from rs.runtime.device import resolve_device
    from rs.storage import files

    files.check_output(out, "an ensemble", force=force)
    bases = [load(model, network=network) for model in models]
    split, images = None, None
    if data is not None:
        split, images = fitting_split(data)
    elif pictures.images is not None:
        split, images = "pictures", pictures.load(bases[0], None)[1]
    elif not all(base.folders for base in bases):
        raise InputError(
            "--data or --images must be given, because a function does not tell which images its "
            "network takes, got neither; give one of them"
        )
    first = next((base for base in bases if base.folders), bases[0])
    sigma = first.smooth(sigma).sigma  # which refuses functions without --sigma
    folders = [*models]
    networks = network.split(",") if network else []
    for number, model in enumerate(models):
        if bases[number].folders:
            continue
        assert images is not None  # a function of the user needs them
        networks.append(model)
        folders[number] = str(out.with_suffix("") / str(number))
        meta = replace(images.meta, name=first.dataset or images.meta.name)
        write_network(model, Path(folders[number]), meta, sigma)
    spec = combine(
        folders,
        weights,
        images,
        split,
        sigma,
        device=resolve_device(device),
        batch=batch,
        out=out,
    )
    if isinstance(spec.fitted, FittedWeights) and spec.fitted.used_share == 0:
        say(
            "warning: no image determines the weights, so they are equal; check the labels, or "
            "give more images",
            sys.stderr,
        )
    shares = spec.fitted_values or [1 / len(models)] * len(models)
    for model, share in zip(models, shares, strict=True):
        say(f"weight {share:.4f} of {model}")
    say(f"ensemble in {out}")
    unseen = replace(pictures, images=UNSEEN)
    names = ",".join(dict.fromkeys(networks))
    say_next(unseen.certify_command(str(out), names, None, data))
