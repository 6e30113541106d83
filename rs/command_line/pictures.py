"""Options of commands that take a folder of pictures."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from rs.command_line.shell import file_option, folder_option
from rs.errors import InputError
from rs.runtime.progress import say

if TYPE_CHECKING:  # seconds to import
    from torch import nn

    from rs.data.image_folder import FolderImages
    from rs.data.pictures import Conversion
    from rs.data.prepared import Images
    from rs.data.readers import Tree

Classifier: TypeAlias = Any
"""``rs.certification.load.Classifier``, not imported, or training would depend on its code."""

UNSEEN = Path("UNSEEN_IMAGES")
"""In a command, the folder of pictures that a model was not fitted to."""

FIRST_NUMBER = re.compile(r"(\D*)(\d+)")
"""The first number in a name, with what comes before it."""

MAX_CLASSES_SHOWN = 10
"""Classes in a line that shows their order."""


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """Pictures of your own."""

    images: Annotated[
        Path | None,
        folder_option("Folder of pictures; subfolders, one per class, are labels."),
    ] = None
    classes: Annotated[
        Path | None,
        file_option("File with the names of classes, one per line, in logit order."),
    ] = None
    resize: Annotated[
        int | None, typer.Option(help="Resize the shorter side to this many pixels, then crop.")
    ] = None
    crop: Annotated[
        int | None, typer.Option(help="Crop a centered square with sides of this many pixels.")
    ] = None
    convert: Annotated[
        bool,
        typer.Option("--convert", help="Convert to 8-bit gray or RGB, whichever the model takes."),
    ] = False

    def check_sources(
        self, data: Path | None, *, required: bool = False, has_files: bool = False
    ) -> None:
        """Refuse --data with --images, neither if one is required, and picture options alone."""
        if required and data is None and self.images is None:
            raise InputError(
                "give --data, a prepared data set, or --images, a folder of pictures; got neither"
            )
        if data is not None and self.images is not None:
            raise InputError(
                "give --data, a prepared data set, or --images, a folder of pictures; got both"
            )
        if self.images is None and not has_files and self != PictureOptions():
            raise InputError(
                "--classes, --resize, --crop and --convert are for --images, which is not given; "
                "leave them out (a prepared data set has its own)"
            )

    def certify_command(
        self,
        model: str,
        network: str | None,
        sigma: float | None,
        data: Path | None,
        dataset: str | None = None,
    ) -> str:
        """Return the command that certifies a model on these images."""
        options: dict[str, Any] = {"network": network, "sigma": sigma}
        if data is None:
            options |= vars(self) | {"images": self.images or "FOLDER"}
        else:
            options |= {"data": data, "dataset": dataset}
        words = ["rs", "certify", model]
        for name, value in options.items():
            if value is True:
                words.append(f"--{name}")
            elif value:
                words += [f"--{name}", str(value)]
        return shlex.join([*words, "--out", "rows.tsv"])

    @property
    def conversion(self) -> Conversion:
        """The conversion (resize, crop, color) that the options ask for."""
        from rs.data.pictures import Conversion

        return Conversion(self.resize, self.crop, self.convert)

    def load(self, base: Classifier, data: Path | None) -> tuple[Classifier, Images]:
        """Return a classifier and its images, whose classes and shape it takes if it states none.

        They are the test split of a prepared data set, or else the pictures in the folder. If only
        the names of subfolders order the classes, say their order.

        Raises:
            InputError: As :func:`rs.data.images.load_images`, :func:`rs.data.readers.class_names`,
                and ``listed`` and ``read_pictures`` of :mod:`rs.data.image_folder`, or if the
                classifier states another shape or other classes.
        """
        from rs.data.image_folder import read_pictures
        from rs.data.images import load_images

        if data is not None:
            images = load_images(data, "test")
            return base.for_images(images.meta.classes, images.meta.shape, images.meta.name), images
        tree, shape = self._listed(base)
        pictures = read_pictures(tree, shape, self.conversion)
        return base.for_images(tree.classes, shape, pictures.meta.name), pictures

    def read(self, certified: Collection[Any] = ()) -> FolderImages:
        """Return the pictures in the folder, with the size of the first and the classes of
        --classes or its own.

        Args:
            certified: Fingerprints; --convert makes RGB, or gray if the fingerprint of these
                pictures is one of them.
        Raises:
            InputError: As ``listed`` and ``read_pictures`` of :mod:`rs.data.image_folder`.
        """
        from rs.data.image_folder import read_pictures

        tree, shape = self._listed()
        pictures = read_pictures(tree, shape, self.conversion)
        if self.convert and pictures.fingerprint not in certified:
            gray = read_pictures(tree, (1, *shape[1:]), self.conversion)
            return gray if gray.fingerprint in certified else pictures
        return pictures

    def for_training(
        self,
        validation: Path | None,
        build: Callable[[], nn.Module] | None = None,
        *,
        is_evaluated: bool,
    ) -> tuple[FolderImages, FolderImages]:
        """Return the pictures to train with and those of the quick ACR.

        Args:
            validation: Folder of the latter; ``None`` holds out a share of each class.
            build: Builds the network to train, if it is the user's; it takes gray images or RGB.
            is_evaluated: Whether there is a quick ACR; otherwise all pictures are trained with.
        Raises:
            InputError: As ``listed`` and ``read_pictures`` of :mod:`rs.data.image_folder`, or if
                the network takes other colors.
        """
        from rs.data.image_folder import listed, read_pictures, split_by_content
        from rs.data.images import VALIDATION_SHARE

        tree, shape = self._listed(build=build)
        if not is_evaluated:
            images = read_pictures(tree, shape, self.conversion)
            return images, images
        if validation is not None:
            evaluated = listed(validation, tree.classes)
        else:
            tree, evaluated = split_by_content(tree, VALIDATION_SHARE)
        images = read_pictures(tree, shape, self.conversion)
        return images, read_pictures(evaluated, shape, self.conversion)

    def list_files(self, base: Classifier) -> tuple[Classifier, list[str]]:
        """Return a classifier and files as :meth:`load`, without checking that the files fit."""
        tree, shape = self._listed(base)
        return base.for_images(tree.classes, shape), [path for path, _ in tree.samples]

    def classifier_of_files(self, files: Sequence[str], base: Classifier) -> Classifier:
        """Return a classifier for files, with the classes of --classes, its own, or numbers.

        Raises:
            InputError: If --classes is not a list of names, or differs from the classifier's own.
        """
        return base.for_images(self._class_names(base), self._shape_of(files, base, base.module))

    def _class_names(self, base: Classifier | None) -> tuple[str, ...]:
        """Return the classes of --classes, else of the classifier, in logit order; may be empty."""
        from rs.data.readers import class_names

        if self.classes is not None:
            return class_names(self.classes)
        return base.classes if base else ()

    def _listed(
        self, base: Classifier | None = None, build: Callable[[], nn.Module] | None = None
    ) -> tuple[Tree, tuple[int, ...]]:
        from rs.data.image_folder import listed
        from rs.data.readers import describe_left_out

        names = self._class_names(base)
        tree = listed(cast(Path, self.images), names)
        if tree.left_out:
            say(describe_left_out(tree), sys.stderr)
        if base and not names:
            _print_order(tree.classes)
        if not names:
            _warn_of_numbers(tree.classes)
        network = base.module if base else None
        if build is not None:
            network = build()
        return tree, self._shape_of([path for path, _ in tree.samples], base, network)

    def _shape_of(
        self, files: Sequence[str], base: Classifier | None, network: nn.Module | None
    ) -> tuple[int, ...]:
        """Return the shape of the classifier, else that of the first file that can be read.

        Raises:
            InputError: If the network takes gray images and the file is RGB, or the other way
                round, and --convert is not given.
        """
        from rs.data.image_folder import first_shape
        from rs.data.pictures import CHANNELS
        from rs.smoothing.user_networks import takes

        if base is not None and base.shape:
            return tuple(base.shape)
        shape = first_shape(files, self.conversion)
        other = (1 if shape[0] == 3 else 3, *shape[1:])
        if network is None or takes(network, shape) or not takes(network, other):
            return shape
        if not self.convert:
            raise InputError(
                f"the pictures must be {CHANNELS[other[0]]}, as the network takes them, got "
                f"{CHANNELS[shape[0]]}; convert them, or add --convert"
            )
        return other


def _print_order(classes: Sequence[str]) -> None:
    """Print on stderr which class has which number if the names of subfolders decide it.

    Names that are these numbers say it themselves.
    """
    if list(classes) == list(map(str, range(len(classes)))):
        return
    numbered = [f"{number} {name}" for number, name in enumerate(classes[:MAX_CLASSES_SHOWN])]
    if len(classes) > MAX_CLASSES_SHOWN:
        numbered.append(f"... of {len(classes)}")
    say(
        f"classes in the order of the subfolders' names: {', '.join(numbered)}; --classes FILE "
        "gives the model's order",
        sys.stderr,
    )


def _warn_of_numbers(classes: Sequence[str]) -> None:
    """Warn on stderr if the first numbers in the names of classes are not in numeric order."""
    first_numbers: dict[str, int] = {}
    prefixes = set()
    for name in classes:
        match = FIRST_NUMBER.match(name)
        if match is None:
            return
        prefixes.add(match[1])
        first_numbers[name] = int(match[2])
    if len(prefixes) > 1:
        return
    numeric = sorted(classes, key=first_numbers.__getitem__)
    for number, name in enumerate(classes):
        if name != numeric[number]:
            say(
                f"warning: the names of the classes are in text order, not in numeric order: class "
                f"{number} is {name}, not {numeric[number]}; --classes FILE gives another order",
                sys.stderr,
            )
            return
