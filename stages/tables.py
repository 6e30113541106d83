"""The report of a study, from its certificate rows, and the report of its times."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import ParamsFile, folder_option, parameters, run


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe, such as digits.")],
    results: Annotated[Path, folder_option("Folder of certificate rows, by sigma.")],
    weights: Annotated[Path, folder_option("Folder of ensemble weights, by sigma.")],
    out: Annotated[Path, folder_option("Folder for the report.")],
    params: ParamsFile = Path("params.yaml"),
    equal_time: Annotated[
        Path | None,
        typer.Option(help="Folder of rows of MACER stopped at AdvMacer's training time."),
    ] = None,
    attacks: Annotated[
        Path | None, typer.Option(help="Folder of counts of attacks, DATASET.csv.")
    ] = None,
    logs: Annotated[
        Path | None,
        folder_option("Folder of logs: report their wall times, and nothing else."),
    ] = None,
    epoch_seconds: Annotated[
        Path | None,
        typer.Option(help="For --logs, CSV of seconds per epoch; default: those of the logs."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Prepared data set: index.html then shows its images.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Report only what has rows, and name what is missing.")
    ] = False,
) -> None:
    """Report the methods, ensembles and noise levels of DATASET that the parameters list.

    With --partial, report the noise levels at which the reference method has rows, and the methods
    and ensembles that have rows at all of these noise levels.
    """
    values = parameters(params, dataset)
    from rs.reporting import report
    from rs.reporting.load import StudyFiles
    from rs.runtime.progress import say
    from rs.storage.files import check_output, is_made
    from rs.study.grid import part_with_rows

    if partial:
        values, missing = part_with_rows(values, dataset, results)
        say(f"{len(missing)} cells have no rows yet: {', '.join(missing) or 'none'}")
    check_output(out, "a folder of reports", is_made(out, "claims.md"))
    study = StudyFiles(values, dataset, results, weights, logs, epoch_seconds, equal_time, attacks)
    if logs is not None:
        content = report.report_times(study)
        report.write_report(out, content)
        say(f"times of {dataset}, {len(content)} files; report in {out}")
        return
    content = report.make_report(study, data)
    report.write_report(out, content)
    say(f"claims, tables and pictures of {dataset}, {len(content)} files; report in {out}")


if __name__ == "__main__":
    run(main)
