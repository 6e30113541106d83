"""The one error a user can cause."""


class InputError(ValueError):
    """A user's mistake; the message says what must hold, what came, and what to do.

    Stages print it as one line and exit with code 2. Everything else that goes wrong keeps its traceback.
    """
