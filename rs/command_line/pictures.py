"""Options of commands that take a folder of pictures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # seconds to import
    from rs.certification.load import Classifier
    from rs.data.image_folder import FolderImages
    from rs.data.readers import Conversion

Images = Annotated[
    Path | None,
    typer.Option("--images", file_okay=False, help="Folder of pictures: flat, or one subfolder a class, as labels."),
]
Classes = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="With --images: names of the classes in the order of logits, one a line."),
]
Resize = Annotated[int | None, typer.Option(help="Resize images: pixels of the shorter side, before the crop.")]
Crop = Annotated[int | None, typer.Option(help="Crop images to a square of so many pixels in their middle.")]
Convert = Annotated[bool, typer.Option("--convert", help="Convert images to 8-bit grey or RGB, as the model's are.")]

SHOWN = 10
"""Classes of a line that says their order."""


def listed_classes(classes: Path | None, base: Classifier) -> tuple[str, ...]:
    """Return the names of the classes that --classes or the classifier says, in the order of logits; none if neither.

    Raises:
        InputError: If --classes is no list of names.
    """
    from rs.data.readers import class_names

    return base.classes if classes is None else class_names(classes)


def say_order(classes: Sequence[str]) -> None:
    """Say on stderr which class has which number, where the names of subfolders decide it."""
    numbered = ", ".join(f"{number} {name}" for number, name in enumerate(classes[:SHOWN]))
    rest = f", ... of {len(classes)}" if len(classes) > SHOWN else ""
    line = f"classes in the order of the subfolders' names: {numbered}{rest}; --classes FILE gives the model's order"
    print(line, file=sys.stderr)


def pictures(folder: Path, classes: Path | None, base: Classifier, how: Conversion) -> FolderImages:
    """Return the pictures of --images; if nothing but the names of subfolders orders the classes, say how.

    Args:
        folder: Of the pictures.
        classes: The list of --classes.
        base: The classifier that they are for.
        how: How they are converted.
    Raises:
        InputError: As :func:`listed_classes` and :func:`rs.data.image_folder.pictures_in`.
    """
    from rs.data.image_folder import pictures_in

    names = listed_classes(classes, base)
    shown = pictures_in(folder, names, base.shape, how)
    if not names:
        say_order(shown.meta.classes)
    return shown
