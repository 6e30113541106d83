"""Solve the weights of ensembles, and measure what the theory says of them."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import (
    Batch,
    DataFolder,
    Device,
    EnsemblesFolder,
    ParamsFile,
    file_option,
    folder_option,
    parameters,
    run,
)


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe, such as digits.")],
    ensembles: EnsemblesFolder,
    data: DataFolder,
    out: Annotated[
        Path,
        folder_option("Folder to write: weights, spreads.csv and bounds.csv."),
    ],
    seconds: Annotated[
        Path,
        file_option("File for the seconds of solving weights, per image and member."),
    ],
    params: ParamsFile = Path("params.yaml"),
    device: Device = "auto",
    batch: Batch = None,
) -> None:
    """Fit the weights of ensembles: on images that are not certified, or for each image."""
    values = parameters(params, dataset)
    from rs.certification.certify_model import certification_settings
    from rs.ensemble.fit_weights import fit_weights
    from rs.ensemble.member_outputs import WeightSettings
    from rs.recipes import load_section
    from rs.runtime.device import resolve_device

    settings = load_section(values, f"recipes.{dataset}.weights", WeightSettings)
    certification = certification_settings(values, dataset)
    torch_device = resolve_device(device)
    fit_weights(
        ensembles,
        data,
        settings,
        certification,
        device=torch_device,
        batch=batch,
        out=out,
        seconds=seconds,
    )


if __name__ == "__main__":
    run(main)
