"""The console command ``rs``: commands that work without a checkout of the project."""

from collections.abc import Callable
from importlib import metadata
from typing import Annotated

import typer

from rs.command_line import (
    attack,
    certify,
    combine,
    demo,
    doctor,
    exchange,
    predict,
    prepare,
    quantize,
    show,
    train,
    zoo,
)
from rs.command_line.help import CommandGroup
from rs.command_line.shell import add_command, application, run
from rs.errors import DISTRIBUTION

app = application(cls=CommandGroup, no_args_is_help=True, add_completion=True)
GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {
        "demo": demo.main,
        "predict": predict.main,
        "certify": certify.main,
        "show": show.show_files,
        "compare": show.compare_files,
        "report": show.report_files,
        "attack": attack.main,
        "doctor": doctor.main,
        "zoo": zoo.main,
    },
    "Train": {
        "prepare": prepare.main,
        "train": train.main,
        "combine": combine.main,
        "quantize": quantize.main,
    },
    "Exchange": {
        "import": exchange.import_model,
        "export": exchange.export_rows,
        "merge": exchange.merge_rows,
        "board": show.make_board,
        "bundle": exchange.bundle_study,
        "verify": exchange.verify_bundle,
    },
}
"""The commands, by their group in the help."""

COMMANDS: dict[str, Callable[..., None]] = {}
for panel, commands in GROUPS.items():
    COMMANDS |= commands
    for name, command in commands.items():
        add_command(app, command, name, panel)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"rs {metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback(epilog="Begin with: rs demo. Each command has examples: rs COMMAND --help.")
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
