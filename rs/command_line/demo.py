"""The command ``rs demo``: a first look, from training to the report."""

import shlex
from pathlib import Path
from typing import Annotated

from rs.command_line.shell import PACKAGED, folder_option, parameters
from rs.runtime.progress import say, say_next, shell_lines

MARKER = "demo.yaml"
"""The parameters, by which the folder of a demonstration is known."""

STEPS = (
    "rs prepare digits --out {out}/data --params {out}/demo.yaml",
    "rs train gaussian --sigma 0.25 --data {out}/data "
    "--out {out}/model --log {out}/log --params {out}/demo.yaml",
    "rs certify {out}/model --data {out}/data "
    "--subset '{{stride: 18}}' --out {out}/rows.tsv --params {out}/demo.yaml",
    "rs show {out}/rows.tsv",
    "rs report {out}/rows.tsv --data {out}/data --out {out}/report.html --force",
)
"""Commands of the demonstration."""


def main(
    out: Annotated[Path, folder_option("Folder for all files of the demonstration.")] = Path(
        "rs-demo"
    ),
) -> None:
    """Train, certify and report within a minute, on handwritten digits.

    Each step is a command that is printed first, so that you can repeat and change it.

    Example:
        rs demo
    """
    from rs.command_line.main import app
    from rs.storage import files

    params = out / MARKER
    files.check_output(out, "a demonstration", files.is_made(out, MARKER))
    files.write_bytes(params, PACKAGED.read_bytes())
    parameters(params, "digits")  # set the arithmetic before a step loads NumPy
    for step in STEPS:
        command = step.format(out=shlex.quote(str(out)))
        for line in shell_lines(f"$ {command}"):
            say(line, whole=True)
        _, *words = shlex.split(command)
        app(args=words, standalone_mode=False)
    say_next(f"open {out / 'report.html'} in a browser")
