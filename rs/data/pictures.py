"""Pictures: image files of anybody's, decoded and converted to the size and the channels of a
model.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rs.errors import InputError, one_line
from rs.params import MAX_SIDE
from rs.storage import files

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

CHANNELS = {1: "8-bit grey", 3: "8-bit RGB"}
"""Kind of image, by the number of channels of a model."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of the names of files that torchvision reads as images."""

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
"""Pillow's names of the formats of :data:`EXTENSIONS`."""

CONVERTIBLE = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Pillow's modes of at most 8 bits a channel; converting another, such as 16-bit grey, turns all
above 255 white.
"""

MAX_PICTURE_BYTES, MAX_PIXELS = 2**28, 2**26
"""Largest image: bytes of the file, and pixels; a larger one is refused before it is read or
decoded.
"""


def is_picture(name: str) -> bool:
    """Return whether a file of this name is taken for an image."""
    return name.lower().endswith(EXTENSIONS)


@dataclass(frozen=True)
class Conversion:
    """What makes a picture an image of the size and the channels of a model: the field's transform
    of test images.
    """

    resize: int | None = None  # length of the shorter side, in pixels
    crop: int | None = None  # side of the square in the middle
    convert: bool = False  # to 8-bit grey or RGB

    def __post_init__(self) -> None:
        for name, side in (("resize", self.resize), ("crop", self.crop)):
            if side is not None and not 1 <= side <= MAX_SIDE:
                raise InputError(
                    f"--{name} must be a number of pixels from 1 to {MAX_SIDE}, got {side}"
                )

    def __str__(self) -> str:
        """Return it in words; empty if nothing is done.

        >>> str(Conversion(256, 224, convert=True))
        'shorter side 256, central 224x224, converted'
        """
        words = (
            f"shorter side {self.resize}" if self.resize else "",
            f"central {self.crop}x{self.crop}" if self.crop else "",
            "converted" if self.convert else "",
        )
        return ", ".join(filter(None, words))

    def apply(self, image: PillowImage, channels: int) -> PillowImage:
        """Return the converted picture: first its channels, then its size (bilinear), then its
        middle.

        Raises:
            InputError: If it is smaller than the crop, or cannot be converted; says what must hold
                of it.
        """
        from PIL import Image

        if self.convert and image.mode not in CONVERTIBLE:
            raise InputError(
                f"must have at most 8 bits a channel to be converted, got mode {image.mode}; save "
                "it so"
            )
        if self.convert:
            image = image.convert("L" if channels == 1 else "RGB")
        resized = self._resized(image.size)
        if resized != image.size:
            image = image.resize(resized, Image.Resampling.BILINEAR)
        if self.crop is None:
            return image
        if self.crop > min(image.size):
            raise InputError(
                f"must be at least as large as --crop {self.crop}, got {image.width} x "
                f"{image.height}; give a smaller "
                f"--crop, or add --resize {self.crop}"
            )
        left, top = (round((side - self.crop) / 2) for side in image.size)
        return image.crop((left, top, left + self.crop, top + self.crop))

    def _resized(self, size: tuple[int, int]) -> tuple[int, int]:
        width, height = (
            side if self.resize is None else self.resize * side // min(size) for side in size
        )
        if width * height > MAX_PIXELS:
            raise InputError(
                f"must have at most {MAX_PIXELS:,} pixels after --resize {self.resize}, got "
                f"{width} x {height}; crop "
                "the file"
            )
        return width, height


def picture(
    file: str | Path, shape: Sequence[int] | None = None, conversion: Conversion | None = None
) -> NDArray[np.uint8]:
    """Read an image file as uint8 (C, H, W); see :func:`picture_with_notes`."""
    return picture_with_notes(file, shape, conversion)[0]


def picture_with_notes(
    file: str | Path, shape: Sequence[int] | None = None, conversion: Conversion | None = None
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Read an image file as uint8 (C, H, W), and say what of the file these pixels do not have.

    Args:
        file: Its path.
        shape: (C, H, W) of the images of a model; ``None`` takes what comes.
        conversion: How it is converted first; ``None`` leaves it as it is.
    Raises:
        InputError: If it is unreadable, or not an 8-bit grey or RGB image of exactly ``shape``.
    """
    try:
        content = files.read_bytes(Path(file), MAX_PICTURE_BYTES, "correct its name")
    except OSError as error:
        raise InputError(
            f"{file} must be a file that can be read, but: {one_line(error)}; correct its name"
        ) from error
    pixels, notes = _decoded(content, str(file), conversion, 3 if shape is None else shape[0])
    if shape is not None and pixels.shape != tuple(shape):
        expected, actual = kind(shape), kind(pixels.shape)
        steps = {
            "convert": pixels.shape[0] != shape[0],
            "resize": pixels.shape[1:] != tuple(shape[1:]),
        }
        remedy = " and ".join(step for step, is_needed in steps.items() if is_needed)
        raise InputError(
            f"{file} must be {expected}, as the images of the model are, got {actual}; {remedy} "
            "it, or let --convert, "
            "--resize and --crop do so"
        )
    return pixels, notes


def kind(shape: Sequence[int]) -> str:
    """Return what images of a shape are.

    >>> kind((3, 32, 40))
    '8-bit RGB of 32x40 (height x width)'
    """
    channels, height, width = shape
    return f"{CHANNELS[channels]} of {height}x{width} (height x width)"


def decode(data: bytes, where: str) -> NDArray[np.uint8]:
    """Decode an 8-bit grey or RGB image to (C, H, W).

    Raises:
        InputError: If the bytes are no such image.
    """
    return _decoded(data, where, None, 3)[0]


def _decoded(
    data: bytes, where: str, conversion: Conversion | None, channels: int
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    try:
        with _opened(data) as file:
            image = file if conversion is None else conversion.apply(file, channels)
            mode, pixels, notes = image.mode, np.asarray(image), _notes(file, image.mode)
    except InputError as error:  # of the conversion
        raise InputError(f"{where} {error}") from error
    except Exception as error:  # Pillow raises errors of every kind on damaged files
        raise InputError(
            f"{where} must be an image, but: {one_line(error)}; replace or remove it"
        ) from error
    if mode not in ("L", "RGB"):
        raise InputError(
            f"{where} must be an 8-bit grey or RGB image, got mode {mode}; convert it, or add "
            "--convert"
        )
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1), notes


def _notes(file: PillowImage, mode: str) -> tuple[str, ...]:
    """Return what of a picture that was decoded its pixels, of a mode, do not have."""
    is_so = {
        f"converted from {file.mode} to {mode}": file.mode != mode,
        "alpha dropped": "A" in file.mode or "transparency" in file.info,
        "EXIF orientation ignored": _orientation(file) in range(2, 9),  # 1: as it is
        "first of several frames": getattr(file, "is_animated", False),
    }
    return tuple(note for note, applies in is_so.items() if applies)


def _orientation(file: PillowImage) -> object:
    try:
        return file.getexif().get(0x0112)
    except Exception:  # damaged EXIF, of which Pillow raises errors of every kind, turns no picture
        return None


def _opened(data: bytes) -> PillowImage:
    """Open an image of one of the :data:`FORMATS`, none of which runs a program, before its pixels
    are decoded.

    Raises:
        ValueError: If it has more than :data:`MAX_PIXELS`; Pillow raises other errors.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError as error:  # it names an object in memory
        raise ValueError(f"it is none of {', '.join(FORMATS)}") from error
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(
            f"it must have at most {MAX_PIXELS:,} pixels, got {image.width} x {image.height}"
        )
    return image
