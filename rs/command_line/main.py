"""The console command ``rs``: what is of use without a checkout of the project."""

from importlib import metadata
from typing import Annotated

import typer

from rs.command_line import (
    bundle,
    card,
    certify,
    compare,
    doctor,
    export,
    import_,
    predict,
    prepare,
    quantize,
    show,
    train,
    verify,
)
from rs.command_line.shell import add, application, run
from rs.errors import DISTRIBUTION

app = application(no_args_is_help=True, add_completion=True)
COMMANDS = {
    "prepare": prepare,
    "train": train,
    "certify": certify,
    "show": show,
    "compare": compare,
    "predict": predict,
    "quantize": quantize,
    "import": import_,
    "export": export,
    "card": card,
    "bundle": bundle,
    "verify": verify,
    "doctor": doctor,
}
for name, module in COMMANDS.items():
    add(app, module.main, name, module.EXAMPLE, about=module.__doc__ or "")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rs {metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def rs(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Certified robustness by randomized smoothing."""


def main() -> None:
    """Run the command that the command line names."""
    run(app)


if __name__ == "__main__":
    main()
