"""The one error a user can cause, and what its messages have in common."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """A user's mistake; the message says what must hold, what came, and what to do.

    Stages print it as one line and exit with code 2. Everything else that goes wrong keeps its traceback.
    """


def raised(error: Exception) -> str:
    """Return the end of a message: what a user's code has raised.

    >>> raised(KeyError("no such layer"))
    "raised KeyError: 'no such layer'; correct it (--debug shows where)"
    """
    return f"raised {type(error).__name__}: {error}; correct it (--debug shows where)"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a question that ends a message about an unknown name; empty if no known one is close to it.

    >>> nearest("modl", ["model", "train"]), nearest("x", ["model"])
    ("; did you mean 'model'?", '')
    """
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
