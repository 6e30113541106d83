"""Programs made of functions, and the options that commands share."""

import atexit
import functools
import gc
import inspect
import io
import os
import re
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from rs.command_line.help import PANELS, Command, described, panel_of
from rs.errors import (
    InputError,
    InputWarning,
    install_command,
    is_out_of_memory,
    raised,
    reason,
)
from rs.runtime.progress import duration, say
from rs.smoothing import Noise

# A thread that waits for the others of its operation spins for a few milliseconds by default. Where
# another process wants the core, small operations then ran up to ten times slower; a
# short spin avoids that, and costs some speed where nothing else runs. Read when torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def file_option(about: str) -> Any:
    """Return the settings of an option that takes a file."""
    return typer.Option(dir_okay=False, help=about)


def folder_option(about: str) -> Any:
    """Return the settings of an option that takes a folder."""
    return typer.Option(file_okay=False, help=about)


def file_argument(metavar: str, about: str) -> Any:
    """Return the settings of an argument that takes an existing file, or several."""
    return typer.Argument(metavar=metavar, exists=True, dir_okay=False, help=about)


DataFolder = Annotated[Path, folder_option("Folder of the prepared data set.")]
PreparedData = Annotated[Path | None, folder_option("Folder of the prepared data set.")]
ParamsFile = Annotated[Path, file_option("Parameter file.")]
Device = Annotated[str, typer.Option(envvar="RS_DEVICE", help="Device: auto, cpu, cuda or cuda:N.")]
EnsemblesFolder = Annotated[Path, folder_option("Folder of ensembles that stages.ensemble wrote.")]
Batch = Annotated[
    int | None, typer.Option(envvar="RS_BATCH", help="Noisy images evaluated at once.")
]
Network = Annotated[
    str | None,
    typer.Option(
        help="Function that builds your own network, package.module:function; separate several by "
        "commas."
    ),
]
Share = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Only every N-th image, from the I-th on; rs merge combines shares."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON with all digits, one object per line.")
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
DEFAULT_PARAMS = Path("params.yaml")
"""The parameter file if none is named."""

PACKAGED = Path(__file__).parent.parent / "params.yaml"
"""The parameters of this project, a part of the package."""

DEFAULT_RECIPE = "finetune"
"""Recipe of the package that is followed if none is named."""

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


def parse_radii(text: str | None, option: str = "--radii") -> list[float] | None:
    """Parse the radii of an option.

    Raises:
        InputError: If they are not numbers with commas between them.

    >>> parse_radii("0.25,0.5")
    [0.25, 0.5]
    """
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{option} must be numbers with commas between them, like 0.25,0.5, got {text!r}"
        ) from error


def check_ending(out: Path, ending: str) -> None:
    """Refuse an output file whose name does not end as it must."""
    if not out.name.endswith(ending):
        raise InputError(f"the name of --out must end in {ending}, got {out}; change it")


HELP = {"help_option_names": ["-h", "--help"]}

DEBUG = "--debug"
"""Option of every command: show the traceback of an error too."""

Debug = Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error, too.")]

USAGE_ERROR = typer.BadParameter.__bases__[0]
"""Error of Typer for words that it cannot parse."""

LONG = 10.0
"""Seconds above which a command says on a terminal how long it took."""

MAX_MESSAGE = 2000
"""Characters of an error message; it may quote a whole file."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


def application(**settings: Any) -> typer.Typer:
    """Return an empty application, with errors without local variables."""
    plain = {"pretty_exceptions_enable": False, "add_completion": False}
    return typer.Typer(context_settings=HELP, **plain | settings)


def add_command(
    app: typer.Typer,
    command: Callable[..., None],
    name: str | None = None,
    panel: str | None = None,
) -> None:
    """Add a command to an application.

    The first line of its docstring describes it in the list of commands. The lines below "Example:"
    are not wrapped.

    Args:
        app: The application.
        command: A function with Typer annotations. A parameter whose type is a dataclass stands for
            a group of options, its fields.
        name: Name of the command; ``None`` for the only one.
        panel: Its group in the list of commands.
    """
    about, _, example = (inspect.getdoc(command) or "").partition("\n\nExample:\n")
    lines = textwrap.indent(textwrap.dedent(example), "  ")
    decorate = app.command(
        name,
        cls=Command,
        context_settings=HELP,
        help=re.sub(r"(?<!\n)\n(?!\n)", " ", about),
        epilog=f"Example:\n{lines}" if example else None,
        short_help=about.partition("\n")[0],
        rich_help_panel=panel,
    )
    decorate(_interruptible(command))


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command of single options; Ctrl-C ends it with a line and :data:`INTERRUPTED`.

    A user's code cannot end the command by ``sys.exit`` or another error that is not an
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
    debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, annotation=Debug)
    options.append(debug.replace(default=False))
    panels = [None, *PANELS]
    options.sort(key=lambda option: panels.index(panel_of(option)))
    options = [described(option) for option in options]

    @functools.wraps(command)
    def run_command(debug: bool, **values: Any) -> None:
        start = time.monotonic()
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        try:
            command(**values)
        except KeyboardInterrupt as stop:
            if sys.stderr.isatty():
                print(file=sys.stderr)  # end the line of the progress bar
            words = ["interrupted", *getattr(stop, "__notes__", [])]
            say("; ".join(words), sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        except InputError as error:
            fault = str(error).removeprefix(str(DEFAULT_PARAMS))
            if fault == str(error):
                raise
            # messages about the parameters do not know the name of their file
            raise InputError(f"{values.get('params', DEFAULT_PARAMS)}{fault}") from error
        except Exception:
            raise
        except BaseException as error:
            raise InputError(
                f"a model must not end the command that runs it, but it {raised(error)}"
            ) from error
        seconds = time.monotonic() - start
        if seconds >= LONG and sys.stderr.isatty():
            say(f"done in {duration(seconds)}", sys.stderr)

    run_command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run_command.__annotations__ = {option.name: option.annotation for option in options}
    return run_command


def run(command: Callable[..., None] | typer.Typer, arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 2.

    The same holds for errors of the machine: a full or read-only disk, an unreadable file. The exit
    code of Ctrl-C is 130. :data:`DEBUG` shows the traceback before the line, with the errors that
    led to it, such as one in a user's model.

    Args:
        command: A function with Typer annotations, or an :func:`application` of several.
        arguments: The words of the command line; ``None`` takes them from ``sys.argv``.
    Raises:
        SystemExit: Always, with the exit code: 0 for success, 2 for a mistake of the user or the
            machine, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:  # this process is the command
        # A last garbage collection would take half a second, for the many objects of torch.
        atexit.register(gc.freeze)
        # The encoding of a terminal may lack ± or a letter of a file's name.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
    app = command if isinstance(command, typer.Typer) else application()
    if app is not command:
        add_command(app, command)
    try:
        with _warnings_in_one_line():
            parsed = [word for word in words if word != DEBUG]
            code = app(args=parsed, standalone_mode=False)
    except Exception as error:
        message = _user_message(error)
        if DEBUG in words:
            traceback.print_exception(error)
        if message:
            say(f"error: {message}", sys.stderr)
        raise SystemExit(2) from None
    raise SystemExit(code or 0)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print each :class:`InputWarning` as one line on stderr; leave other warnings as they are."""
    show = warnings.showwarning

    def show_in_one_line(
        message: Warning | str, category: type[Warning], *location: Any, **details: Any
    ) -> None:
        if issubclass(category, InputWarning):
            say(f"warning: {message}", sys.stderr)
        else:
            show(message, category, *location, **details)

    with warnings.catch_warnings():
        # Once for all images, whatever filters the user has set.
        warnings.simplefilter("once", InputWarning)
        warnings.showwarning = show_in_one_line
        yield


def _user_message(error: Exception) -> str:
    """Return in one line what the user or the machine has to change; raise any other error."""
    text = " ".join(str(error).split())
    if isinstance(error, USAGE_ERROR):
        return _usage_message(error)
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}, which is not installed; {install_command('study')}"
    if is_out_of_memory(error):
        text = (
            f"out of memory: {text or 'there is none left'}; lower --batch (in a recipe "
            "training.batch), or take smaller images"
        )
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{reason(error)}; fix this and run the same command to continue"
    elif not isinstance(error, InputError):
        raise error
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."


def _usage_message(error: Any) -> str:
    """Return what Typer could not parse; empty if there was nothing to parse."""
    # Typer passes on what pydantic says of a choice.
    message = error.format_message().replace("Value error, ", "").removesuffix(".")
    if not message:  # the help has been printed
        return ""
    program = error.ctx.command_path if error.ctx else "rs"
    return f"{message[0].lower()}{message[1:]} (see {program} --help)"


@contextmanager
def reserve_stdout_for_answers() -> Iterator[TextIO]:
    """Redirect to stderr all that a user's code prints, and yield the stream for the answers."""
    answers = sys.stdout
    with os.fdopen(os.dup(1), "w", encoding=answers.encoding, errors=answers.errors) as saved:
        answers.flush()
        os.dup2(2, 1)
        try:
            with redirect_stdout(sys.stderr):
                # Another stream belongs to a program that runs this command.
                yield saved if answers is sys.__stdout__ else answers
        finally:
            answers.flush()
            os.dup2(saved.fileno(), 1)


def parameters(path: Path, dataset: str) -> dict[str, Any]:
    """Read the parameters, and set the arithmetic of this process to that of a recipe.

    Call it before NumPy or torch is imported.
    """
    from rs.params import read_params
    from rs.recipes import over_packaged
    from rs.runtime import arithmetic

    values = over_packaged(read_params(path))
    arithmetic.set_arithmetic(
        arithmetic.recipe_arithmetic(values, dataset), f"recipes.{dataset}.arithmetic"
    )
    register_network_of(values, dataset)
    return values


def recipe_parameters(
    dataset: str | None, params: Path, data: Path | None = None
) -> tuple[dict[str, Any], str]:
    """Return the :func:`parameters` of a recipe, and its name.

    By default the recipe has the name of the prepared data set ``data``; without one, it is a
    recipe of the package.

    Raises:
        InputError: If there is a parameter file without the name of a recipe in it.
    """
    if dataset is None and data is not None:
        from rs.data.meta import read_meta

        dataset = read_meta(data).name
    if dataset is None and params != DEFAULT_PARAMS:
        raise InputError(
            f"--params {params} is for --dataset, a recipe in it, which is not given; give both, "
            "or neither"
        )
    if dataset is None:
        return parameters(PACKAGED, DEFAULT_RECIPE), DEFAULT_RECIPE
    return parameters(params, dataset), dataset


def register_network_of(values: dict[str, Any], dataset: str) -> None:
    """Register the user's network of a recipe, if it has one, so that its models can be loaded."""
    from rs.recipes import merge

    model, _ = merge(values, f"recipes.{dataset}.model", optional=True)
    network = model.get("network")
    if isinstance(network, str):
        from rs.smoothing.user_networks import register_network  # which imports torch

        register_network(network)


def launch(params: dict[str, Any]) -> None:
    """Become the ``launcher`` of the parameters, which starts this command in several processes.

    Do nothing without a launcher, or in a process that torchrun has started. Environment variables
    in the launcher are replaced.

    Raises:
        InputError: As :func:`rs.runtime.processes.launcher_words`, or if a variable is not set or
            it cannot be run.
    """
    from rs.runtime.processes import launcher_words

    words = [] if "TORCHELASTIC_RUN_ID" in os.environ else launcher_words(params)
    if not words:
        return
    for name in re.findall(r"\$\{?(\w+)", params["launcher"]):
        if name not in os.environ:
            raise InputError(
                f"params.yaml: launcher must be a command whose variables are set, but ${name} is "
                f"not; set it, for example by export {name}=... in the job script"
            )
    # The torchrun of this environment, wherever PATH leads.
    at = words.index("torchrun")
    words[at : at + 1] = [sys.executable, "-m", "torch.distributed.run"]
    # A module of ``python -m`` has a spec, the script of an installed command does not.
    spec = sys.modules["__main__"].__spec__
    this = ["-m", "--", spec.name] if spec else ["--", sys.argv[0]]
    try:
        os.execvp(words[0], [*words, *this, *sys.argv[1:]])
    except OSError as error:
        raise InputError(
            f"params.yaml: launcher must be a command that runs here, but {words[0]}: "
            f"{reason(error)}; correct it"
        ) from error
