"""The report of a study: claims, tables and pictures, from its certificate rows and training logs."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import ParamsFile, check_sigma, parameters, run
from rs.command_line.show import DEFAULT_N0


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe, as in the paths.")],
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder of certificate rows, by sigma.")],
    logs: Annotated[Path, typer.Option(file_okay=False, help="Folder of training logs, by sigma and method.")],
    weights: Annotated[Path, typer.Option(file_okay=False, help="Folder of ensemble weights, by sigma.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the report; wall times go into its times/.")],
    params: ParamsFile = Path("params.yaml"),
    external_log: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATH", help="Rows or log of others; repeatable.")
    ] = None,
    external_log_sigma: Annotated[
        float | None, typer.Option(callback=check_sigma, help="Sigma of six-column logs, in pixels of [0, 1].")
    ] = None,
    external_log_n0: Annotated[int, typer.Option(help="n0 of six-column logs.")] = DEFAULT_N0,
    external_log_n: Annotated[
        int | None, typer.Option(help="n of six-column logs; default: derived from their radii.")
    ] = None,
    external_log_alpha: Annotated[
        float | None, typer.Option(help="alpha of six-column logs; default: derived from their radii.")
    ] = None,
    equal_time: Annotated[
        Path | None, typer.Option(help="Folder of rows of MACER stopped at AdvMacer's training time.")
    ] = None,
    attacks: Annotated[Path | None, typer.Option(help="Folder of counts of attacks, DATASET.csv.")] = None,
    epoch_seconds: Annotated[
        Path | None, typer.Option(help="CSV of seconds per epoch; default: times of the trainings.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Prepared data set: index.html then shows its images.")] = None,
    partial: Annotated[
        bool, typer.Option("--so-far", help="Write only the claims, from the rows made so far.")
    ] = False,
) -> None:
    """Report the methods, seeds and sigmas of DATASET that the parameters list."""
    values = parameters(params, dataset)
    from rs.reporting import report
    from rs.reporting.logs import parse_log_options
    from rs.storage.files import check_replaceable

    check_replaceable(out, "claims.md", "reports")
    budget = {"sigma": external_log_sigma, "n0": external_log_n0, "n": external_log_n, "alpha": external_log_alpha}
    external_logs = parse_log_options(external_log or [], **budget)
    folders = results, logs, weights
    content = report.make_report(
        values, dataset, *folders, external_logs, equal_time, partial, attacks, epoch_seconds, data
    )
    report.write_report(out, content)
    print(
        f"{'claims' if partial else 'claims, tables and pictures'} of {dataset}, {len(content)} files; report in {out}"
    )


if __name__ == "__main__":
    run(main)
