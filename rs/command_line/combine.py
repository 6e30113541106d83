"""Combine trained models into an ensemble, with weights fitted to images."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from rs.command_line.pictures import PictureOptions
from rs.command_line.shell import Batch, Device, Force, Network, PreparedData
from rs.errors import InputError
from rs.runtime.progress import say


def main(
    models: Annotated[list[str], typer.Argument(help="Two or more model folders or zoo:NAME.")],
    *,
    out: Annotated[Path, typer.Option(dir_okay=False, help="Ensemble to write, *.json.")],
    weights: Annotated[
        Literal["optimal", "radius", "equal"],
        typer.Option(help="optimal: least variance; radius: largest average radius."),
    ] = "optimal",
    data: PreparedData = None,
    network: Network = None,
    device: Device = "auto",
    batch: Batch = None,
    force: Force = False,
    pictures: PictureOptions,
) -> None:
    """Combine trained models into an ensemble, with weights fitted to images.

    Every option for a model takes the file of the ensemble. Weights are fitted to the validation
    split of --data, or to its train split if there is none, or to the pictures of --images; do not
    certify these. The file finds its models if they are moved together with it.

    Example:
        rs combine models/a models/b --data data/digits --out ensemble.json
        rs combine models/a models/b --images photos/validation --out ensemble.json
    """
    pictures.check_sources(data, required=True)
    if len(set(models)) < max(2, len(models)):
        raise InputError(f"give two models or more, all different, got {', '.join(models)}")
    if out.suffix != ".json":
        raise InputError(f"--out must be a file *.json, got {out}")
    from rs.certification.load import check_has_folder, load
    from rs.ensemble.combine import combine
    from rs.ensemble.fit_weights import fitting_split
    from rs.runtime.device import resolve_device
    from rs.storage import files

    files.check_output(out, "an ensemble", force=force)
    for model in models:
        check_has_folder(model)
        base = load(model, network=network)
    if data is not None:
        split, images = fitting_split(data)
    else:
        split, images = "pictures", pictures.load(base, None)[1]
    chosen_device = resolve_device(device)
    spec = combine(models, weights, images, split, device=chosen_device, batch=batch, out=out)
    shares = spec.fitted_values or [1 / len(models)] * len(models)
    for model, share in zip(models, shares, strict=True):
        say(f"weight {share:.4f} of {model}")
    say(f"ensemble in {out}")
    source = "--images FOLDER" if data is None else f"--data {data} --dataset RECIPE"
    say(f"next: rs certify {out} {source} --out rows.tsv", sys.stderr)
