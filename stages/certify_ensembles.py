"""Certify all members and all ensembles of one noise level, from one noise pass."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import (
    Batch,
    DataFolder,
    Device,
    EnsemblesFolder,
    ParamsFile,
    folder_option,
    launch,
    parameters,
    run,
)


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe, such as digits.")],
    ensembles: EnsemblesFolder,
    weights: Annotated[Path, folder_option("Folder of weights that stages.weights wrote.")],
    data: DataFolder,
    out: Annotated[Path, folder_option("Folder for rows, one file per classifier.")],
    times: Annotated[Path, folder_option("Folder for the seconds that certificates take.")],
    params: ParamsFile = Path("params.yaml"),
    device: Device = "auto",
    batch: Batch = None,
) -> None:
    """Certify the pool on the test split; an interrupted certification continues."""
    values = parameters(params, dataset)
    from rs.certification.certify_model import certification_settings
    from rs.certification.certify_pool import PoolSettings, certify_pool
    from rs.recipes import load_section
    from rs.runtime.device import resolve_device
    from rs.smoothing.settings import SmoothingOptions

    settings = load_section(values, f"recipes.{dataset}.pool", PoolSettings)
    certification = certification_settings(values, dataset)
    launch(values)
    options = SmoothingOptions(device=resolve_device(device), batch=batch)
    certify_pool(ensembles, weights, data, settings, certification, options, out=out, times=times)


if __name__ == "__main__":
    run(main)
