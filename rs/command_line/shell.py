"""Turning functions into programs, and the options that commands share."""

import atexit
import functools
import gc
import inspect
import io
import os
import re
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from rs.errors import InputError, InputWarning, install_command, printable, raised
from rs.smoothing import Noise

# A thread that waits for the others of its operation spins for a few milliseconds by default. Where
# another process wants the core, small operations were measured to run up to ten times slower so; a
# short spin avoids that, and costs some speed where nothing else runs. Read when torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

DataFolder = Annotated[Path, typer.Option(file_okay=False, help="Folder of the prepared data set.")]
ParamsFile = Annotated[Path, typer.Option(dir_okay=False, help="Parameter file.")]
Device = Annotated[str, typer.Option(envvar="RS_DEVICE", help="Device: auto, cpu, cuda or cuda:N.")]
EnsemblesFolder = Annotated[
    Path, typer.Option(file_okay=False, help="Folder of ensembles that stages.ensemble wrote.")
]
Batch = Annotated[
    int | None, typer.Option(envvar="RS_BATCH", help="Noisy images evaluated at once.")
]
Network = Annotated[
    str | None,
    typer.Option(
        help="Function that builds your own network, package.module:function; several with commas."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON with all digits, one object a line.")
]
Workers = Annotated[
    int, typer.Option(min=0, envvar="RS_WORKERS", help="Processes that read images from disk.")
]

_MODEL_HELP = (
    "Model folder, zoo:NAME, ensemble *.json, or module:function that returns an nn.Module."
)
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL_HELP)]
ModelOption = Annotated[str, typer.Option(help=_MODEL_HELP)]

NoiseOption = Annotated[
    Noise | None,
    typer.Option(
        help="Kind of noise. grid, the default, is in multiples of 1/255: rounding cannot break "
        "certificates."
    ),
]
PACKAGED = Path(__file__).parent.parent / "params.yaml"
"""The parameters of this project, a part of the package."""

Radii = Annotated[
    str | None,
    typer.Option(
        help="Radii of certified accuracies, like 0.25,0.5; default: 0, 0.25, ... up to the "
        "largest."
    ),
]


def sigma_option(option: typer.CallbackParam, sigma: float | None) -> float | None:
    """Return the sigma of an option; see :func:`rs.params.check_sigma`."""
    from rs import params

    return None if sigma is None else params.check_sigma(sigma, option.opts[0])


Sigma = Annotated[
    float | None,
    typer.Option(
        callback=sigma_option, help="Noise std, in pixels of [0, 1]; default: that of the model."
    ),
]


def radii_named(text: str | None, option: str = "--radii") -> list[float] | None:
    """Read the radii of an option.

    Raises:
        InputError: If they are not numbers with commas between them.

    >>> radii_named("0.25,0.5")
    [0.25, 0.5]
    """
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{option} must be numbers with commas between them, like 0.25,0.5, got {text!r}"
        ) from error


HELP = {"help_option_names": ["-h", "--help"]}

DEBUG = "--debug"
"""Option of every command: show the traceback of an error too."""

MAX_MESSAGE = 2000
"""Characters of an error message; it may quote a whole file."""

OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
"""What torch says where there is too little memory, of a GPU or of the machine."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


def application(**settings: Any) -> typer.Typer:
    """Return an empty application that prints plain text: help without frames, errors without local
    variables.
    """
    plain = {"pretty_exceptions_enable": False, "rich_markup_mode": None, "add_completion": False}
    return typer.Typer(context_settings=HELP, **plain | settings)


def add(app: typer.Typer, command: Callable[..., None], name: str | None = None) -> None:
    """Add a command to an application.

    The first line of its docstring describes it in the list of commands. The lines below "Example:"
    are not wrapped.

    Args:
        app: The application.
        command: A function with Typer annotations. A parameter whose type is a dataclass stands for
            a group of options, its fields.
        name: Name of the command; ``None`` for the only one.
    """
    about, _, example = (inspect.getdoc(command) or "").partition("\n\nExample:\n")
    lines = textwrap.indent(textwrap.dedent(example), "  ")
    decorate = app.command(
        name,
        context_settings=HELP,
        help=about,
        epilog=f"\b\nExample:\n{lines}" if example else None,  # \b: not to be wrapped
        short_help=about.partition("\n")[0],
    )
    decorate(_interruptible(command))


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command of single options that Ctrl-C ends with one line on stderr and
    :data:`INTERRUPTED`.

    Code of the user's cannot end it as if it had succeeded, nor with an error that is no
    ``Exception``.
    """
    groups: dict[str, type] = {}
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            options += inspect.signature(parameter.annotation, eval_str=True).parameters.values()
        else:
            options.append(parameter)

    @functools.wraps(command)
    def run_command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        try:
            command(**values)
        except KeyboardInterrupt as stop:
            after_the_bar = "\n" * sys.stderr.isatty()
            print(
                after_the_bar
                + printable("; ".join(["interrupted", *getattr(stop, "__notes__", [])])),
                file=sys.stderr,
            )
            raise SystemExit(INTERRUPTED) from None
        except Exception:
            raise
        except BaseException as error:
            raise InputError(
                f"a model must leave the command that runs it to its end, but it {raised(error)}"
            ) from error

    run_command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run_command.__annotations__ = {option.name: option.annotation for option in options}
    return run_command


def run(command: Callable[..., None] | typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 2, Ctrl-C one and exit
    code 130.

    So is what the machine does not allow: a full or read-only disk, a file that is not to be read.
    :data:`DEBUG` shows the traceback before the line, of the errors too that led to it, such as one
    that a user's model has raised.

    Args:
        command: A function with Typer annotations, or an :func:`application` of several.
        arguments: The words of the command line; ``None`` takes them from ``sys.argv``.
    Raises:
        SystemExit: Always, with the exit code: 0 for success, 2 for a mistake of the user or the
            machine, 130 after Ctrl-C.
    """
    if (
        arguments is None
    ):  # this process is the command, and at its end nobody needs what only a collection would free
        atexit.register(gc.freeze)  # half a second, of the many objects of torch
        if isinstance(
            sys.stdout, io.TextIOWrapper
        ):  # a terminal whose encoding lacks ± or a letter of a file's name
            sys.stdout.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    app = command if isinstance(command, typer.Typer) else application()
    if app is not command:
        add(app, command)
    try:
        with _warnings_in_one_line():
            app(args=[word for word in words if word != DEBUG])
    except Exception as error:
        message = _mendable(error)
        if DEBUG in words:
            traceback.print_exception(error)
        print(printable(f"error: {_with_parameters_named(message, words)}"), file=sys.stderr)
        raise SystemExit(2) from None


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print what a user has probably not meant as one line on stderr; other warnings stay as they
    are.
    """
    show = warnings.showwarning

    def show_in_one_line(
        message: Warning | str, category: type[Warning], *where: Any, **how: Any
    ) -> None:
        if issubclass(category, InputWarning):
            print(printable(f"warning: {message}"), file=sys.stderr)
        else:
            show(message, category, *where, **how)

    with warnings.catch_warnings():
        warnings.simplefilter(
            "once", InputWarning
        )  # for all images, whatever filters the user has set
        warnings.showwarning = show_in_one_line
        yield


def _with_parameters_named(message: str, words: Sequence[str]) -> str:
    """Return a message about ``params.yaml``, which stands for any parameters, with the file that
    --params names.
    """
    paths = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--params"]
    paths += [word.removeprefix("--params=") for word in words if word.startswith("--params=")]
    default = "params.yaml"
    return (
        paths[-1] + message.removeprefix(default)
        if paths and message.startswith(default)
        else message
    )


def _mendable(error: Exception) -> str:
    """Return in one line what the user or the machine has to change; raise any other error."""
    text = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}, which a small installation has not; {install_command('study')}"
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(text)
    ):
        text = (
            f"there must be enough memory, but: {text or 'there is none left'}; lower --batch (in "
            "a recipe "
            "training.batch), or take smaller images"
        )
    elif not isinstance(error, InputError | OSError):
        raise error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror or text}; mend that, and the same command continues"
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."


@contextmanager
def answers_alone() -> Iterator[TextIO]:
    """Redirect to stderr whatever a user's code prints, and yield the stream for the answers."""
    answers = sys.stdout
    with os.fdopen(os.dup(1), "w", encoding=answers.encoding, errors=answers.errors) as saved:
        answers.flush()
        os.dup2(2, 1)
        try:
            with redirect_stdout(sys.stderr):
                yield (
                    saved if answers is sys.__stdout__ else answers
                )  # that of a program that runs this command
        finally:
            answers.flush()  # what was written to sys.__stdout__
            os.dup2(saved.fileno(), 1)


def parameters(path: Path, dataset: str) -> dict[str, Any]:
    """Read the parameters, and make the arithmetic of this process that of the recipe ``dataset``.

    Call it before anything is imported that loads NumPy or torch.
    """
    from rs.params import read_params
    from rs.runtime import arithmetic

    values = read_params(path)
    arithmetic.set_arithmetic(
        arithmetic.recipe_arithmetic(values, dataset), f"recipes.{dataset}.arithmetic"
    )
    register_network_of(values, dataset)
    return values


def register_network_of(values: dict[str, Any], dataset: str) -> None:
    """Register the network of the recipe ``dataset`` if it is the user's, so that its models are
    built and loaded.
    """
    from rs.params import merge

    model, _ = merge(values, f"recipes.{dataset}.model", optional=True)
    network = model.get("network")
    if isinstance(network, str):
        from rs.smoothing.user_networks import register_network  # which imports torch

        register_network(network)


def launch(params: dict[str, Any]) -> None:
    """Become the ``launcher`` of the parameters, if they have one; it starts this command again, in
    several processes.

    Does nothing in a process that torchrun has started. Variables of the environment in the
    launcher are replaced.

    Raises:
        InputError: As :func:`rs.runtime.processes.launcher_words`, or if a variable is not set or
            it cannot be run.
    """
    from rs.runtime.processes import launcher_words

    words = [] if "TORCHELASTIC_RUN_ID" in os.environ else launcher_words(params)
    if not words:
        return
    if unset := [
        name for name in re.findall(r"\$\{?(\w+)", params["launcher"]) if name not in os.environ
    ]:
        raise InputError(
            f"params.yaml: launcher must be of variables that are set, but ${unset[0]} is not; set "
            "it, as export "
            f"{unset[0]}=... in the script of the job"
        )
    at = words.index("torchrun")
    words[at : at + 1] = [
        sys.executable,
        "-m",
        "torch.distributed.run",
    ]  # of this environment, wherever PATH leads
    spec = sys.modules[
        "__main__"
    ].__spec__  # of ``python -m``; the script of an installed command has none
    this = ["-m", "--", spec.name] if spec else ["--", sys.argv[0]]
    try:
        os.execvp(words[0], [*words, *this, *sys.argv[1:]])
    except OSError as error:
        raise InputError(
            f"params.yaml: launcher must be a command that runs here, but {words[0]}: {error}"
        ) from error
