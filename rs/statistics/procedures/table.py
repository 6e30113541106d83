"""The table of certification procedures."""

from __future__ import annotations

from functools import cache

from rs.statistics.procedures import early, fixed
from rs.statistics.procedures.base import Procedure

PROCEDURES = {
    "fixed": Procedure(fixed.is_fixed, fixed.fixed_rules),
    "early": Procedure(early.is_early, early.early_rules),
}

MODES = f"{fixed.MODE}, {fixed.SHORTCUT}, at-radius:R,...:N"
"""The modes of rows, for messages."""


@cache  # a file has few modes
def procedure_of(mode: str) -> str | None:
    """Return the name of the procedure whose rows have a mode; ``None`` if there is none."""
    for name, procedure in PROCEDURES.items():
        if procedure.is_mode(mode):
            return name
    return None
