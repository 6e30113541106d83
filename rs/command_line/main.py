"""The console command ``rs``: commands that work without a checkout of the project."""

from collections.abc import Callable
from importlib import metadata
from typing import Annotated

import typer

from rs.command_line import (
    certify,
    doctor,
    exchange,
    predict,
    prepare,
    quantize,
    share,
    show,
    targets,
    train,
    zoo,
)
from rs.command_line.shell import add_command, application, run
from rs.errors import DISTRIBUTION

app = application(no_args_is_help=True, add_completion=True)
COMMANDS: dict[str, Callable[..., None]] = {
    "prepare": prepare.main,
    "targets": targets.main,
    "train": train.main,
    "certify": certify.main,
    "merge": exchange.merge_rows,
    "show": show.show_files,
    "report": show.report_files,
    "compare": show.compare_files,
    "board": show.make_board,
    "predict": predict.main,
    "zoo": zoo.main,
    "quantize": quantize.main,
    "import": exchange.import_model,
    "export": exchange.export_rows,
    "bundle": share.bundle_study,
    "verify": share.verify_bundle,
    "doctor": doctor.main,
}
for name, command in COMMANDS.items():
    add_command(app, command, name)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"rs {metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def rs(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Certified robustness by randomized smoothing."""


def main() -> None:
    """Run the command that the command line names."""
    run(app)


if __name__ == "__main__":
    main()
