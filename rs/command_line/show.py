"""Show row files, compare two of them, and rank many."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.pictures import PictureOptions
from rs.command_line.shell import (
    Force,
    Json,
    PreparedData,
    Radii,
    check_ending,
    file_argument,
    file_option,
    folder_option,
    parse_radii,
    sigma_option,
)
from rs.errors import InputError
from rs.runtime.progress import say, say_next

DEFAULT_N0 = 100
"""The n0 of published logs, which do not state it."""

ROWS_HELP = "Certificate rows, *.tsv, or six-column log."


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Noise level and budget of a six-column log, which its file does not contain."""

    sigma: Annotated[
        float | None,
        typer.Option(callback=sigma_option, help="Noise std of the logs, in pixels of [0, 1]."),
    ] = None
    n0: Annotated[
        int | None,
        typer.Option(help=f"Selection samples (only for logs; rs compare assumes {DEFAULT_N0})."),
    ] = None
    n: Annotated[
        int | None, typer.Option(help="Samples that determined the radius (only for logs).")
    ] = None
    alpha: Annotated[float | None, typer.Option(help="Failure probability (only for logs).")] = None

    def of_files(self, paths: Sequence[Path]) -> dict[str, float | None]:
        """Return the values by name.

        Raises:
            InputError: If there is one and all files are rows, which state their own.
        """
        from rs.storage.certificate_rows import is_certificate_rows

        names = [f"--{name}" for name, value in asdict(self).items() if value is not None]
        if names and all(map(is_certificate_rows, paths)):
            listed = " and ".join(map(str, paths))
            raise InputError(
                f"{', '.join(names)} must be left out for certificate rows, which state their own "
                f"values; got {listed}"
            )
        return asdict(self)


def show_files(
    rows: Annotated[list[Path], file_argument("ROWS", ROWS_HELP)],
    *,
    radii: Radii = None,
    logs: LogOptions,
    picture: Annotated[
        Path | None,
        file_option("Write certified accuracy by radius to *.png or *.svg."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the average certified radius, accuracies and abstentions of row files.

    The average certified radius (ACR) comes with its standard error over images. For attack rows,
    show the ratio of found to certified radius.

    Example:
        rs show rows.tsv
        rs show rows.tsv --radii 0.25,0.5 --json
        rs show a.tsv b.tsv --picture curves.png
        rs show theirs.log --sigma 0.5 --n 100000 --alpha 0.001
    """
    from rs.storage.attack_rows import is_attack_rows

    attacks = [path for path in rows if is_attack_rows(path)]
    certificates = [path for path in rows if path not in attacks]
    next_commands = []
    if certificates:
        next_commands = _show_certificates(certificates, radii, logs, picture, as_json)
    if attacks:
        next_commands = _show_attacks(attacks, as_json)
    if next_commands and not as_json:
        say_next(*next_commands)


def _show_certificates(
    rows: Sequence[Path], radii: str | None, logs: LogOptions, picture: Path | None, as_json: bool
) -> list[str]:
    """Show the radii and accuracies of files of certificate rows; return what may follow."""
    from rs.reporting.summaries import summarize_rows
    from rs.reporting.summary_texts import summaries_text, summary_text
    from rs.storage.certificate_rows import is_field_log

    values = logs.of_files(rows)
    summaries = [summarize_rows(path, parse_radii(radii), **values) for path in rows]
    if picture is not None:
        from rs.reporting.report import draw_files

        draw_files(rows, picture, **values)
        say(f"picture in {picture}", sys.stderr)
    if as_json:
        for summary in summaries:
            print(json.dumps(summary, allow_nan=False))
        return []
    print(summary_text(summaries[0]) if len(rows) == 1 else summaries_text(summaries))
    have_labels = all(summary["certified_accuracy"] for summary in summaries)
    if not have_labels:
        return []
    have_votes = not any(map(is_field_log, rows))
    have_votes = have_votes and all(summary["mode"] == "certify" for summary in summaries)
    report = ["rs report ROWS --out report.html"] if have_votes else []
    return [*report, "rs compare A B"]


def _show_attacks(attacks: Sequence[Path], as_json: bool) -> list[str]:
    """Show the gaps of files of attack rows; return the commands that may follow."""
    from rs.reporting.attacks import attacks_text, summarize_attacks

    for path in attacks:
        about = summarize_attacks(path)
        print(json.dumps(about, allow_nan=False) if as_json else attacks_text(about))
    return ["rs compare A B", "rs report ROWS ATTACKS --out report.html"]


def report_files(
    rows: Annotated[
        list[Path],
        file_argument("ROWS", "Certificate rows."),
    ],
    out: Annotated[Path, file_option("Page to write, *.html.")],
    *,
    data: PreparedData = None,
    force: Force = False,
    pictures: PictureOptions,
) -> None:
    """Write an interactive HTML report of row files.

    It has tables, curves, paired differences, and images with their votes; with --data or --images,
    also their pictures and the names of the classes. All row files must be of the same images.
    Add attack rows to show the empirical curve above the certified one.

    Example:
        rs report rows.tsv --out report.html
        rs report a.tsv b.tsv --images photos --out report.html
    """
    pictures.check_sources(data)
    from rs.reporting.page import rows_page
    from rs.reporting.page_data import Pictures
    from rs.storage import files
    from rs.storage.certificate_rows import sidecar_of

    check_ending(out, ".html")
    files.check_output(out, "a page", inputs=rows, force=force)
    shown = None if data is None else Pictures.read(data)
    if pictures.images is not None:
        certified = [files.json_values(sidecar_of(path)).get("images") for path in rows]
        shown = Pictures.of_folder(pictures.read(certified))
    files.write_bytes(out, rows_page(rows, shown))
    say(f"report of {', '.join(map(str, rows))} in {out}")
    if len(rows) > 1:
        say_next("rs compare A B, for differences with their errors")


def compare_files(
    first: Annotated[Path, file_argument("A", ROWS_HELP)],
    second: Annotated[Path, file_argument("B", ROWS_HELP)],
    *,
    radii: Radii = None,
    logs: LogOptions,
    as_json: Json = False,
) -> None:
    """Compare two row files: paired differences A - B over the same images, with standard errors.

    Compare average certified radius (ACR), clean accuracy and certified accuracy. Both files must
    have the same n0, n and alpha, and without --radii the same sigma. Rows state these values; for
    a six-column log, pass them as options.
    For two files of attack rows, compare the ratios of found to certified radius.

    Example:
        rs compare a.tsv b.tsv
        rs compare a.tsv b.tsv --radii 0.5 --json
        rs compare theirs.log others.log --sigma 0.5 --n 100000 --alpha 0.001
    """
    from rs.reporting.summaries import compare_rows
    from rs.reporting.summary_texts import comparison_text
    from rs.storage.attack_rows import is_attack_rows

    if is_attack_rows(first) and is_attack_rows(second):
        from rs.reporting.attacks import compare_attacks, gaps_text

        gaps = compare_attacks(first, second)
        print(json.dumps(gaps, allow_nan=False) if as_json else gaps_text(gaps))
        return
    values = logs.of_files([first, second])
    n0 = DEFAULT_N0 if logs.n0 is None else logs.n0
    differences = compare_rows(first, second, parse_radii(radii), **values | {"n0": n0})
    if as_json:
        print(json.dumps(differences, allow_nan=False))
        return
    for line in comparison_text(differences).splitlines():
        say(line)


def make_board(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", file_okay=False, help="Logs, rows and board.yaml.")
    ],
    out: Annotated[
        Path,
        folder_option("Folder to write: board.md, board.csv, board.yaml."),
    ],
    force: Force = False,
) -> None:
    """Rank published logs and your rows in comparable groups (a leaderboard).

    FOLDER/board.yaml has an entry for each file with name, dataset, network, sigma, source and
    licence.

    Example:
        rs board logs --out board
    """
    from rs.reporting.board import PAGE, board_files
    from rs.reporting.report import write_report
    from rs.storage import files

    files.check_output(out, "a board", files.is_made(out, PAGE), inputs=[folder], force=force)
    write_report(out, board_files(folder, DEFAULT_N0))
    say(f"board of {folder} in {out}")
