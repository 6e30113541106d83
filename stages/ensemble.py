"""Write the ensembles of one noise level: files that name their members and certify like models."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import ParamsFile, folder_option, parameters, run


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe, such as digits.")],
    sigma: Annotated[float, typer.Option(help="Noise std of the members, in pixels of [0, 1].")],
    models: Annotated[Path, folder_option("Folder of the models METHOD/SEED.")],
    out: Annotated[
        Path,
        folder_option("Folder to write: one *.json per ensemble, and pool.json."),
    ],
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Write every ensemble that the parameters declare, if its members exist and fit each other."""
    values = parameters(params, dataset)
    from rs.ensemble.declare import write_ensembles

    write_ensembles(values, dataset, sigma, models, out)


if __name__ == "__main__":
    run(main)
