"""Image files from any source, decoded and converted to the size and channels of a model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rs.errors import InputError, one_line
from rs.params import MAX_SIDE
from rs.storage import files

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from PIL.ImageFile import ImageFile

Colors = Literal["gray", "RGB"]

CHANNELS = {1: "8-bit gray", 3: "8-bit RGB"}
"""Kind of image, by the number of channels of a model."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of the names of files that torchvision reads as images."""

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
"""Pillow's names of the formats of :data:`EXTENSIONS`."""

CONVERTIBLE = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Pillow's modes of at most 8 bits per channel.

Pillow converts other modes, such as 16-bit gray, so that all values above 255 become white.
"""

MAX_PICTURE_BYTES, MAX_PIXELS = 2**28, 2**26
"""Largest image, in bytes and pixels; a larger one is refused before it is read or decoded."""


def is_picture(name: str) -> bool:
    """Return whether a file of this name is taken for an image."""
    return name.lower().endswith(EXTENSIONS)


@dataclass(frozen=True)
class Conversion:
    """How a picture becomes an image for a model: the standard transform of test images."""

    resize: int | None = None  # length of the shorter side, in pixels
    crop: int | None = None  # side of the square in the middle
    convert: bool = False  # to 8-bit gray or RGB

    def __post_init__(self) -> None:
        for name, side in (("resize", self.resize), ("crop", self.crop)):
            if side is not None and not 1 <= side <= MAX_SIDE:
                raise InputError(
                    f"--{name} must be a number of pixels from 1 to {MAX_SIDE}, got {side}"
                )

    def __str__(self) -> str:
        """Describe the conversion; empty if nothing is done.

        >>> str(Conversion(256, 224, convert=True))
        'shorter side 256, central 224x224, converted'
        """
        words = []
        if self.resize:
            words.append(f"shorter side {self.resize}")
        if self.crop:
            words.append(f"central {self.crop}x{self.crop}")
        if self.convert:
            words.append("converted")
        return ", ".join(words)

    def apply(self, image: PillowImage, channels: int) -> PillowImage:
        """Convert the channels of a picture, then resize it (bilinear), then crop it.

        Raises:
            InputError: If it is smaller than the crop, or cannot be converted.
        """
        from PIL import Image

        if self.convert:
            if _is_16_bit_gray(image):
                image = _from_16_bit_gray(image)
            if image.mode not in CONVERTIBLE:
                raise InputError(
                    "must have at most 16 bits per channel to be converted, got mode "
                    f"{image.mode}; save it that way"
                )
            image = image.convert("L" if channels == 1 else "RGB")
        resized = self._resized(image.size)
        if resized != image.size:
            image = image.resize(resized, Image.Resampling.BILINEAR)
        if self.crop is None:
            return image
        if self.crop > min(image.size):
            raise InputError(
                f"must be at least as large as --crop {self.crop}, got {image.width} x "
                f"{image.height}; give a smaller --crop, or add --resize {self.crop}"
            )
        left = round((image.width - self.crop) / 2)
        top = round((image.height - self.crop) / 2)
        return image.crop((left, top, left + self.crop, top + self.crop))

    def _resized(self, size: tuple[int, int]) -> tuple[int, int]:
        width, height = size
        if self.resize is not None:
            width = self.resize * size[0] // min(size)
            height = self.resize * size[1] // min(size)
        if width * height > MAX_PIXELS:
            raise InputError(
                f"must have at most {MAX_PIXELS:,} pixels after --resize {self.resize}, got "
                f"{width} x {height}; crop the file"
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
    """Read an image file as uint8 (C, H, W), and describe what these pixels do not show of it.

    Args:
        file: Its path.
        shape: (C, H, W) of the images of a model; ``None`` takes any shape.
        conversion: How it is converted first; ``None`` does not convert it.
    Raises:
        InputError: If it is unreadable, or not an 8-bit gray or RGB image of exactly ``shape``.
    """
    pixels, notes = _decoded(
        _content(file), str(file), conversion, 3 if shape is None else shape[0]
    )
    if shape is not None and pixels.shape != tuple(shape):
        expected, actual = kind(shape), kind(pixels.shape)
        steps = {
            "convert": pixels.shape[0] != shape[0],
            "resize": pixels.shape[1:] != tuple(shape[1:]),
        }
        remedy = " and ".join(step for step, is_needed in steps.items() if is_needed)
        raise InputError(
            f"{file} must be {expected}, like the model's images or the first picture, got "
            f"{actual}; {remedy} it, or let --convert, --resize and --crop do so"
        )
    return pixels, notes


def kind(shape: Sequence[int]) -> str:
    """Return what images of a shape are.

    >>> kind((3, 32, 40))
    '8-bit RGB of 32x40 (height x width)'
    """
    channels, height, width = shape
    return f"{CHANNELS[channels]} of {height}x{width} (height x width)"


def read_picture(file: str, convert: Colors | None = None) -> NDArray[np.uint8]:
    """Read an image file of a data set as :func:`decode` does."""
    return decode(_content(file), file, convert)


def decode(data: bytes, where: str, convert: Colors | None = None) -> NDArray[np.uint8]:
    """Decode an image of a data set to (C, H, W).

    Args:
        data: The bytes of its file.
        where: Its name, for messages.
        convert: The colors that it is converted to; ``None`` does not convert it.
    Raises:
        InputError: If the bytes are no image, or, without a conversion, not an 8-bit gray or RGB
            one.
    """
    remedy = "add convert: RGB (or gray) to the data set in params.yaml"
    conversion = Conversion(convert=convert is not None)
    return _decoded(data, where, conversion, 1 if convert == "gray" else 3, remedy)[0]


def _content(file: str | Path) -> bytes:
    return files.read_bytes(Path(file), MAX_PICTURE_BYTES, "correct its name")


def _decoded(
    data: bytes,
    where: str,
    conversion: Conversion | None,
    channels: int,
    remedy: str = "use the option convert",
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    try:
        with _opened(data) as file:
            has_16_bits = _has_16_bits(file)
            image = file if conversion is None else conversion.apply(file, channels)
            mode = image.mode
            pixels = np.asarray(image)
            notes = _notes(file, mode)
            is_convertible = file.mode in CONVERTIBLE or _is_16_bit_gray(file)
            if has_16_bits and file.mode in CONVERTIBLE:
                notes = (*notes, "16 bits per channel cut to 8")
    except InputError as error:  # of the conversion
        raise InputError(f"{where} {error}") from error
    except Exception as error:  # Pillow raises anything for damaged files
        raise InputError(
            f"{where} must be an image, but: {one_line(error)}; replace or remove it"
        ) from error
    is_converted = conversion is not None and conversion.convert
    if mode not in ("L", "RGB") or (has_16_bits and not is_converted):
        what = "16 bits per channel" if mode == "RGB" else f"mode {mode}"
        remedy = f"convert it, or {remedy}" if is_convertible else "save it that way"
        raise InputError(f"{where} must be an 8-bit gray or RGB image, got {what}; {remedy}")
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1), notes


def _is_16_bit_gray(image: PillowImage) -> bool:
    # Pillow gives the mode of 32-bit integers to PGM files, and scales their values to 16 bits.
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM")


def _has_16_bits(file: ImageFile) -> bool:
    """Return whether a file has 16 bits per channel, which its mode does not tell for colors."""
    if file.format == "PPM":
        settings = [tile[3] for tile in file.tile if tile[0].startswith("ppm")]
        return any(isinstance(values, tuple) and values[1] > 255 for values in settings)
    # Pillow's names of the pixels in the file; ";16" alone is 16 bits per pixel.
    return any(end in str(file.tile) for end in (";16B", ";16L", ";16N"))


def _from_16_bit_gray(image: PillowImage) -> PillowImage:
    """Return the nearest 8-bit gray image: the values v of 16 bits become v / 257, rounded."""
    from PIL import Image

    pixels = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((pixels + 128) // 257).astype(np.uint8))


def _notes(file: PillowImage, mode: str) -> tuple[str, ...]:
    """Describe what the pixels of a decoded picture, in a color mode, do not show of it."""
    notes = []
    if file.mode != mode:
        notes.append(f"converted from {file.mode} to {mode}")
    if "A" in file.mode or "transparency" in file.info:
        notes.append("alpha dropped")
    if _orientation(file) in range(2, 9):  # 1: upright
        notes.append("EXIF orientation ignored")
    if getattr(file, "is_animated", False):
        notes.append("first of several frames")
    return tuple(notes)


def _orientation(file: PillowImage) -> object:
    try:
        return file.getexif().get(0x0112)
    except Exception:  # Pillow raises anything for damaged EXIF data, which then do not count
        return None


def _opened(data: bytes) -> ImageFile:
    """Open an image of one of the :data:`FORMATS`, before its pixels are decoded.

    None of these formats runs a program.

    Raises:
        ValueError: If it has more than :data:`MAX_PIXELS`; Pillow raises other errors.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError as error:  # it names an object in memory
        raise ValueError(f"its format is not one of {', '.join(FORMATS)}") from error
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(
            f"it must have at most {MAX_PIXELS:,} pixels, got {image.width} x {image.height}"
        )
    return image
