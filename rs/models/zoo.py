"""The zoo: trained networks that the package contains, and their names ``zoo:NAME``."""

from __future__ import annotations

from pathlib import Path

from rs.errors import InputError, did_you_mean
from rs.models.checkpoint import CARD

FOLDER = Path(__file__).parents[1] / "zoo"
"""One model folder per network; ``rs/models/zoo.py`` and ``rs/zoo`` are installed together."""

PREFIX = "zoo:"
"""What a model's name begins with if it is a network of the zoo."""


def zoo_names(zoo: Path = FOLDER) -> list[str]:
    """Return the names of the networks in a zoo, sorted."""
    return sorted(card.parent.name for card in zoo.glob(f"*/{CARD}"))


def path_of_model(model: str | Path) -> Path:
    """Return the path of a model: its folder in the zoo for ``zoo:NAME``, else the path itself.

    Args:
        model: ``zoo:NAME``, or the path of a model folder or of an ensemble.
    Raises:
        InputError: If the zoo has no network of this name.
    """
    if not str(model).startswith(PREFIX):
        return Path(model)
    name = str(model).removeprefix(PREFIX)
    names = zoo_names()
    if name not in names:
        question = did_you_mean(name, names)
        raise InputError(f"zoo:NAME must name one of {', '.join(names)}, got {name!r}{question}")
    return FOLDER / name


def check_may_write(folder: Path) -> None:
    """Check that a model folder is not a part of the package.

    Raises:
        InputError: If it is in the zoo; says how to copy it.
    """
    if folder.resolve().is_relative_to(FOLDER):
        raise InputError(
            f"{PREFIX}{folder.name} is a part of the package, in which nothing may be written; "
            f"copy the folder {folder}, and give the copy"
        )
