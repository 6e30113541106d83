"""The table of certification procedures, and what readers of rows ask it."""

from __future__ import annotations

from functools import cache

from rs.statistics.procedures.base import Procedure
from rs.statistics.procedures.early import Early
from rs.statistics.procedures.fixed import MODE, SHORTCUT, Fixed

PROCEDURES: dict[str, Procedure] = {"fixed": Fixed(), "early": Early()}

MODES = f"{MODE}, {SHORTCUT}, at-radius:R,...:N, acr-error:E:N"
"""The modes of rows, for messages."""


@cache  # a file has few modes
def procedure_of(mode: str) -> str | None:
    """Return the name of the procedure whose rows have a mode; ``None`` if there is none."""
    for name, procedure in PROCEDURES.items():
        if procedure.is_mode(mode):
            return name
    return None


def draws_at_most(mode: str) -> int | None:
    """Return the largest number of samples of a mode that stops early; ``None`` for the others.

    >>> draws_at_most("acr-error:0.05:100000"), draws_at_most("certify")
    (100000, None)
    """
    name = procedure_of(mode)
    return None if name is None else PROCEDURES[name].draws_at_most(mode)


def radii_asked(mode: str) -> tuple[float, ...] | None:
    """Return the radii of a mode whose rows say only which of them are certified, or ``None``.

    >>> radii_asked("at-radius:0.25,0.5:100000"), radii_asked("certify")
    ((0.25, 0.5), None)
    """
    name = procedure_of(mode)
    return None if name is None else PROCEDURES[name].radii_asked(mode)
