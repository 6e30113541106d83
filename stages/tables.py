"""Tables and pictures of a study, from its certificate rows and training logs."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import ParamsFile, parameters, run
from rs.errors import InputError


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe, as in the paths.")],
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder of certificate rows, by sigma.")],
    logs: Annotated[Path, typer.Option(file_okay=False, help="Folder of training logs, by sigma and method.")],
    weights: Annotated[Path, typer.Option(file_okay=False, help="Folder of ensemble weights, by sigma.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for everything without wall times.")],
    times: Annotated[Path, typer.Option(file_okay=False, help="Folder for everything with wall times.")],
    params: ParamsFile = Path("params.yaml"),
    outside: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATH", help="A log from elsewhere to put beside; repeatable.")
    ] = None,
    outside_sigma: Annotated[float | None, typer.Option(help="Sigma of six-column logs from elsewhere.")] = None,
    outside_n0: Annotated[int, typer.Option(help="Their n0, which no log says.")] = 100,
    outside_n: Annotated[int | None, typer.Option(help="Their n; default: told from the largest radii.")] = None,
    outside_alpha: Annotated[float | None, typer.Option(help="Their alpha; default: told likewise.")] = None,
) -> None:
    """Make the tables of DATASET for the methods, seeds and sigmas that the parameters list."""
    values = parameters(params, dataset)
    from rs.reporting.report import report, write
    from rs.storage.files import check_replaceable

    check_replaceable(out, "main.tex", "tables")
    check_replaceable(times, "cost.tex", "wall times")
    known = {"sigma": outside_sigma, "n0": outside_n0, "n": outside_n, "alpha": outside_alpha}
    others = [{"name": name, "path": path, **known} for name, path in map(named_path, outside or [])]
    numbers, wall_times = report(values, dataset, results, logs, weights, others)
    write(out, numbers)
    write(times, wall_times)


def named_path(text: str) -> tuple[str, Path]:
    """Split ``NAME=PATH``."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise InputError(f"--outside must be NAME=PATH, got {text!r}")
    return name, Path(path)


if __name__ == "__main__":
    run(main)
