"""Turning functions into programs, and the options that commands share."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rs.errors import InputError

# A thread that waits for the others of its operation spins for a few milliseconds by default. Where another process
# wants the core, small operations were measured to run up to ten times slower so; a short spin avoids that, and costs
# some speed where nothing else runs. Read when torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

DataFolder = Annotated[Path, typer.Option(file_okay=False, help="Folder of the prepared data set.")]
ParamsFile = Annotated[Path, typer.Option(dir_okay=False, help="Parameter file.")]
Device = Annotated[str, typer.Option(envvar="RS_DEVICE", help="auto, cpu, cuda or cuda:N.")]
EnsemblesFolder = Annotated[Path, typer.Option(file_okay=False, help="Folder of ensembles, made by stages.ensemble.")]
Batch = Annotated[int | None, typer.Option(envvar="RS_BATCH", help="Noisy images evaluated at once.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run of this command made there.")]
Workers = Annotated[int, typer.Option(min=0, envvar="RS_WORKERS", help="Processes that read images from disk.")]


def application(**settings: Any) -> typer.Typer:
    """Return an empty application that prints plain text: help without frames, errors without local variables."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **settings)


def run(command: Callable[..., None] | typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 2.

    Args:
        command: A function with Typer annotations, or an :func:`application` of several.
        arguments: The words of the command line; ``None`` takes them from ``sys.argv``.
    Raises:
        SystemExit: Always, with the exit code: 0 for success, 2 for a mistake of the user.
    """
    app = command if isinstance(command, typer.Typer) else application()
    if app is not command:
        app.command()(command)
    try:
        app(args=arguments)
    except InputError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)  # it may quote another's many lines
        raise SystemExit(2) from None


def parameters(path: Path, dataset: str) -> dict[str, Any]:
    """Read the parameters, and make the arithmetic of this process that of the recipe ``dataset``.

    Call it before anything is imported that loads NumPy or torch.
    """
    from rs.params import read
    from rs.runtime import arithmetic

    values = read(path)
    arithmetic.choose(values, dataset)
    return values


def launch(params: dict[str, Any]) -> None:
    """Become the ``launcher`` of the parameters, if they have one; it starts this command again, in several processes.

    Does nothing in a process that torchrun has started. Variables of the environment in the launcher are replaced.

    Raises:
        InputError: If the launcher is not a command with ``torchrun`` in it, or cannot be run.
    """
    launcher = params.get("launcher")
    if launcher is None or "TORCHELASTIC_RUN_ID" in os.environ:
        return
    try:
        words = shlex.split(os.path.expandvars(launcher)) if isinstance(launcher, str) else []
    except ValueError:  # a quote that is not closed
        words = []
    if "torchrun" not in words:
        raise InputError(
            f"params.yaml: launcher must be null or a command with the word torchrun in it, such as "
            f"'torchrun --standalone --nproc-per-node 2', got {launcher!r}"
        )
    at = words.index("torchrun")
    words[at : at + 1] = [sys.executable, "-m", "torch.distributed.run"]  # of this environment, wherever PATH leads
    spec = sys.modules["__main__"].__spec__  # of ``python -m``; the script of an installed command has none
    this = ["-m", "--", spec.name] if spec else ["--", sys.argv[0]]
    try:
        os.execvp(words[0], [*words, *this, *sys.argv[1:]])
    except OSError as error:
        raise InputError(f"params.yaml: launcher must be a command that runs here, but {words[0]}: {error}") from error
