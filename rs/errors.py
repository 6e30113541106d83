"""The error and the warning that a user can cause, and helpers for their messages."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

DISTRIBUTION = "randomized-smoothing"
"""Name of this project for installers; on the public package index, `rs` is a stranger's."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of this project.

    >>> install_command("int8")
    "pip install 'randomized-smoothing[int8]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class InputError(ValueError):
    """A user's mistake; the message says what must hold, what was found, and what to do.

    Commands print it as one line and exit with code 2. All other errors keep their traceback.
    """


class NotDeterministicError(InputError):
    """A classifier that is not one function of each image; no result computed with it is valid."""


class InputWarning(UserWarning):
    """Something that the user probably did not intend; a command prints it as one line."""


def printable(line: str) -> str:
    r"""Escape the unprintable characters of a line for a terminal, so that no name forges a line.

    >>> print(printable("bird\x1b[2J.png\ncat.png: dog"))
    bird\x1b[2J.png\ncat.png: dog
    """
    escaped = ""
    for character in line:
        if not character.isprintable():
            character = character.encode("unicode_escape").decode()
        escaped += character
    return escaped


OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
"""Torch's message if the memory of a GPU or of the machine does not suffice."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the memory of a GPU or of the machine does not suffice."""
    is_of_torch = isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))
    return isinstance(error, MemoryError) or bool(is_of_torch)


def raised(error: BaseException) -> str:
    """Return the end of a message: what the user's code raised.

    >>> raised(KeyError("no such layer"))
    "raised KeyError: 'no such layer'; correct it (--debug shows where)"
    """
    what = ": ".join(filter(None, (type(error).__name__, str(error))))
    return f"raised {what}; correct it (--debug shows where)"


def one_line(error: BaseException) -> str:
    """Return an error's message as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def reason(error: OSError) -> str:
    """Return what the system says of an error, such as "Permission denied", as one line."""
    return error.strerror or one_line(error)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a value is one of the choices.

    Raises:
        InputError: If it is not; lists the choices.
    """
    if value not in choices:
        question = did_you_mean(str(value), choices)
        raise InputError(f"{name} must be one of {', '.join(choices)}; got {value!r}{question}")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a question that ends a message about an unknown name; empty without a close one.

    >>> did_you_mean("modl", ["model", "train"]), did_you_mean("x", ["model"])
    ("; did you mean 'model'?", '')
    """
    close = get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
