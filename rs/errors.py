"""The one error a user can cause, and how a message tells of an error in a user's code."""


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
