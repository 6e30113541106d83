"""Options of commands that take a folder of pictures."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rs.errors import InputError, printable

if TYPE_CHECKING:  # seconds to import
    from rs.certification.load import Classifier
    from rs.data.image_folder import FolderImages
    from rs.data.pictures import Conversion
    from rs.data.readers import Tree

Images = Annotated[
    Path | None,
    typer.Option("--images", file_okay=False, help="Folder of pictures: flat, or one subfolder a class, as labels."),
]
Classes = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Names of the classes of pictures, one a line, in the order of logits."),
]
Resize = Annotated[int | None, typer.Option(help="Resize the shorter side to this many pixels, before the crop.")]
Crop = Annotated[int | None, typer.Option(help="Crop a centred square of this many pixels a side.")]
Convert = Annotated[bool, typer.Option("--convert", help="Convert images to 8-bit grey or RGB, as the model's are.")]

VALIDATION_SHARE = 0.1
"""Share of the pictures of each class that is left out of a training."""

IMBALANCE = 3
"""Ratio of the pictures of two classes above which a training says so."""

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
    print(printable(line), file=sys.stderr)


def check_one_source(data: Path | None, images: Path | None) -> None:
    """Refuse --data and --images together."""
    if data is not None and images is not None:
        raise InputError("give --data, a prepared data set, or --images, a folder of pictures; got both")


def check_sources(
    data: Path | None,
    images: Path | None,
    classes: Path | None,
    resize: int | None,
    crop: int | None,
    convert: bool,
) -> None:
    """Refuse --data and --images together, and the options of pictures without --images."""
    check_one_source(data, images)
    if images is None and (classes, resize, crop, convert) != (None, None, None, False):
        raise InputError("--classes, --resize, --crop and --convert are for --images; a prepared data set has its own")


def pictures(folder: Path, classes: Path | None, base: Classifier, how: Conversion) -> tuple[Classifier, FolderImages]:
    """Return a classifier and the pictures of --images, whose classes and shape it takes if it states none.

    If nothing but the names of subfolders orders the classes, it is said how.

    Args:
        folder: Of the pictures.
        classes: The list of --classes.
        base: The classifier that they are for.
        how: How they are converted.
    Raises:
        InputError: As :func:`listed_classes`, and ``listed`` and ``read_pictures`` of :mod:`rs.data.image_folder`, or
            if the classifier states another shape or other classes.
    """
    from rs.certification.load import for_images
    from rs.data.image_folder import read_pictures

    tree, shape = _listed(folder, classes, base, how)
    shown = read_pictures(tree, shape, how)
    return for_images(base, shown.meta), shown


def training_pictures(folder: Path, classes: Path | None, how: Conversion) -> tuple[FolderImages, FolderImages]:
    """Return the pictures of --images to train with and those to validate with, :data:`VALIDATION_SHARE` of a class.

    Args:
        folder: Of one subfolder a class.
        classes: The list of --classes.
        how: How they are converted.
    Raises:
        InputError: As ``listed`` and ``read`` of :mod:`rs.data.image_folder`, or if a picture has no class.
    """
    from rs.data.image_folder import common_shape, listed, read_pictures, split_by_content
    from rs.data.readers import class_names

    tree = listed(folder, () if classes is None else class_names(classes))
    shape, _ = common_shape([path for path, _ in tree.samples], how)
    train, validation = split_by_content(tree, VALIDATION_SHARE)
    say_counts(tree)
    return read_pictures(train, shape, how), read_pictures(validation, shape, how)


def say_counts(tree: Tree) -> None:
    """Say on stderr if classes differ in their number of pictures by more than :data:`IMBALANCE`."""
    counts = Counter(label for _, label in tree.samples)
    (most, many), (least, few) = counts.most_common()[0], counts.most_common()[-1]
    if many > IMBALANCE * few:
        line = (
            f"warning: the classes are not in balance: {many:,} pictures of {tree.classes[most]}, {few:,} of "
            f"{tree.classes[least]}; accuracy and ACR weigh them by their number"
        )
        print(printable(line), file=sys.stderr)


def files_of(folder: Path, classes: Path | None, base: Classifier, how: Conversion) -> tuple[Classifier, list[str]]:
    """Return a classifier and the files of --images as :func:`pictures`, but files that need not fit."""
    from rs.certification.load import with_images

    tree, shape = _listed(folder, classes, base, how)
    return with_images(base, tree.classes, shape), [path for path, _ in tree.samples]


def for_files(files: Sequence[str], classes: Path | None, base: Classifier, how: Conversion) -> Classifier:
    """Return a classifier for image files: the classes of --classes, else its own; if it has none, they are numbers.

    Raises:
        InputError: If --classes is no list of names, or differs from what the classifier states.
    """
    from rs.certification.load import with_images

    return with_images(base, listed_classes(classes, base), _shape_of(files, base, how))


def _listed(folder: Path, classes: Path | None, base: Classifier, how: Conversion) -> tuple[Tree, tuple[int, ...]]:
    from rs.data.image_folder import listed

    names = listed_classes(classes, base)
    tree = listed(folder, names)
    if not names:
        say_order(tree.classes)
    return tree, _shape_of([path for path, _ in tree.samples], base, how)


def _shape_of(files: Sequence[str], base: Classifier, how: Conversion) -> tuple[int, ...]:
    """Return the shape that the classifier states, else that of most files; say on stderr if others have another."""
    from rs.data.image_folder import common_shape
    from rs.data.pictures import kind

    if base.shape:
        return base.shape
    shape, count = common_shape(files, how)
    if count < len(files):
        print(
            f"{base.name} states no size of images: {count:,} of {len(files):,} are {kind(shape)}, which it is taken "
            "to be; --resize, --crop and --convert make all alike",
            file=sys.stderr,
        )
    return shape
