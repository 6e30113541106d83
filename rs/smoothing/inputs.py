"""What users give: images and base classifiers of many kinds, each turned into the one that is computed with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from numbers import Integral, Real
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs.errors import InputError
from rs.statistics.certificate import LEAST_ALPHA

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

ImageLike: TypeAlias = "Tensor | NDArray[Any] | PillowImage"
"""One image: a tensor, a NumPy array or a Pillow image; see :func:`as_image`."""

Base: TypeAlias = Callable[[Tensor], Any]
"""A base classifier: an ``nn.Module`` or any function of images; see :func:`as_module` and :func:`logits_of`."""

OVERSHOOT = 0.25
"""Pixels this near to [0, 1] were resampled, not normalised: those go down to -0.4 (MNIST) or -2 (ImageNet)."""


# ------------------------------------------------------------------------------------------ images


def as_image(x: ImageLike) -> Tensor:
    """Return an image as a floating-point tensor (C, H, W); its values are not checked.

    - uint8 is divided by 255, so that pixels lie in [0, 1]; other floating-point types become float32.
    - An image of shape (H, W, C) is one whose last axis is 3 and whose first is neither 1 nor 3; of a NumPy array the
      last axis may be 1 as well. A tensor whose last axis is 1 is taken as it is: it can be a series (C, L, 1).
    - A Pillow image is 8-bit grey or RGB.

    Raises:
        InputError: If it is none of these, not one image, or holds integers that are not uint8.

    >>> as_image(np.full((4, 5, 3), 51, np.uint8)).shape, as_image(np.full((1, 1, 1), 51, np.uint8)).item()
    (torch.Size([3, 4, 5]), 0.20000000298023224)
    """
    values = x if isinstance(x, Tensor) else torch.from_numpy(_array(x))
    if values.dtype != torch.uint8 and not values.is_floating_point():
        raise _wrong_type(values.dtype)
    check_axes(tuple(values.shape))
    if values.shape[2] in ((3,) if isinstance(x, Tensor) else (1, 3)) and values.shape[0] not in (1, 3):
        values = values.permute(2, 0, 1).contiguous()
    return values.float() / 255 if values.dtype == torch.uint8 else values.float()


def _array(x: Any) -> NDArray[Any]:
    """Return a NumPy array or a Pillow image as an array of uint8 or float32 of its own, which torch can read."""
    array = x if isinstance(x, np.ndarray) else _pillow_array(x)
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        raise _wrong_type(array.dtype)
    return np.array(array, dtype=np.uint8 if array.dtype == np.uint8 else np.float32, order="C")


def _pillow_array(x: Any) -> NDArray[Any]:
    from PIL import Image  # needed for these alone

    if not isinstance(x, Image.Image):
        raise InputError(
            f"x must be an image as a tensor, a NumPy array or a Pillow image, got {type(x).__name__}; open a file "
            "with PIL.Image.open, and leave out labels"
        )
    if x.mode not in ("L", "RGB"):
        raise InputError(f'x must be an 8-bit grey or RGB image, got mode {x.mode}; convert it: x.convert("RGB")')
    return np.atleast_3d(np.asarray(x))


def _wrong_type(dtype: object) -> InputError:
    return InputError(
        f"x must hold uint8 pixels, or floating-point pixels in [0, 1], got {dtype}; divide integers by their largest "
        "possible value"
    )


def is_number(value: object, kind: type = Real) -> bool:
    """Return whether a value is a number, of Python or NumPy: what is given as text is not."""
    return isinstance(value, kind) and not isinstance(value, bool)


def check_axes(shape: tuple[int, ...]) -> None:
    """Check that this is the shape of one image.

    Raises:
        InputError: If it is not.
    """
    if len(shape) == 3 and 0 not in shape:
        return
    remedy = {2: "; give a grey image as x[None]", 4: "; give several to certify_many"}.get(len(shape), "")
    raise InputError(f"x must be one image of shape (C, H, W), got shape {shape}{remedy}")


def check_key(**key: int) -> None:
    """Check that the numbers which name the noise are whole and at least 0, and all but the seed below 2^32.

    Raises:
        InputError: If one of them is not.
    """
    for name, number in key.items():
        if not is_number(number, Integral) or number < 0:
            raise InputError(f"{name} must be a whole number of at least 0, got {number!r}; it names the noise")
        if name != "seed" and number >= 2**32:
            raise InputError(f"{name} must be below 2^32, got {number}; it is a word of the key of the noise")


def check_draws(x: Tensor, alpha: float, **draws: int) -> None:
    """Check that ``x`` is one image in [0, 1], ``alpha`` a failure probability, and ``draws`` positive numbers.

    Raises:
        InputError: If one of them is not.
    """
    check_axes(tuple(x.shape))
    if not x.is_floating_point() or not bool(((x >= 0) & (x <= 1)).all()):
        raise InputError(f"x must hold floating-point pixels in [0, 1], {_what_came(x)}")
    if not is_number(alpha) or not 0 < alpha < 1:
        raise InputError(f"alpha must lie in (0, 1), got {alpha!r}; it is the failure probability of a certificate")
    if alpha < LEAST_ALPHA:
        raise InputError(f"alpha must be at least {LEAST_ALPHA}, below which bounds cannot be computed, got {alpha!r}")
    for name, count in draws.items():
        if not is_number(count, Integral) or not 1 <= count < 2**63:
            raise InputError(
                f"{name} must be at least 1 and below 2^63, got {count!r}; it is a whole number of noisy copies"
            )


def _what_came(x: Tensor) -> str:
    """Return what is wrong with pixels that are not in [0, 1], and what to do."""
    if x.isnan().any():
        return f"got {int(x.isnan().sum())} NaN of {x.numel()}; look at how it was read"
    low, high = x.min().item(), x.max().item()
    came = f"got {x.dtype} from {low:.4g} to {high:.4g}"
    if low >= -OVERSHOOT and high <= 1 + OVERSHOOT:
        return f"{came}; clip it, as resampling can leave the range"
    if low >= 0:
        return f"{came}; divide by 255 where it is 8-bit"
    mean, std = x.double().mean().item(), x.double().std(correction=0).item()
    return (
        f"{came}, mean {mean:.2g}, std {std:.2g}: it looks normalised already; give the image before normalisation, "
        "and make the normalisation the first layer of the model"
    )


# ------------------------------------------------------------------------------------------ base classifiers


class Function(nn.Module):
    """A plain function of images as a module.

    Networks that the function uses by name, or whose method it is, are parts of the module: they are evaluated in eval
    mode and say the device. They are also found behind a decorator, in ``functools.partial``, in lists, tuples and
    dictionaries, in default arguments, as attributes of what is used by name, of an object that is called or whose
    method is, and through other functions used by name. Any others that it reaches must be in eval mode already.
    """

    def __init__(self, function: Base) -> None:
        super().__init__()
        self.function, self.networks = function, nn.ModuleList(_networks_in(function))

    def forward(self, x: Tensor) -> Any:
        """What the function returns."""
        return self.function(x)


def _networks_in(function: Base) -> Iterator[nn.Module]:
    """Yield the networks that a function uses by name, directly or through what else it uses; the nearest first."""
    reached, seen = [function], set()
    for value in reached:  # which grows
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            yield value
        else:
            reached += _used_by(value)


def _used_by(value: Any) -> Iterable[Any]:
    """Return what a container, a method, a function or an object that can be called uses; of torch's own, nothing."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return value.values()
    if inspect.ismethod(value):
        owner = value.__self__
        return owner, value.__func__, {} if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {})
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if inspect.isclass(value) or not callable(value) or _root(value) == "torch":
        return ()
    if inspect.isfunction(value):
        return *_named_in(value), getattr(value, "__wrapped__", None)
    call = getattr(value, "__call__", None)  # noqa: B004  of an object, the method and not whether there is one
    return call if inspect.ismethod(call) else None, getattr(value, "__wrapped__", None)


def _root(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _named_in(function: FunctionType) -> Iterator[Any]:
    """Yield what a function and those inside it take from around them, with attributes, and defaults of arguments."""
    names = [name for code in _codes(function.__code__) for name in code.co_names]
    held = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]  # none that is empty
    held += [function.__globals__[name] for name in names if name in function.__globals__]
    yield from (*held, function.__defaults__, function.__kwdefaults__)
    for fields in (getattr(value, "__dict__", {}) for value in held if not isinstance(value, nn.Module)):
        yield from (fields[name] for name in names if name in fields)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def as_module(base: Base) -> nn.Module:
    """Return a base classifier as a module: itself, or a :class:`Function`.

    Raises:
        InputError: If it is a class, or cannot be called.
    """
    if isinstance(base, type):
        raise InputError(f"base must be a model, got the class {base.__name__}; create one: {base.__name__}(...)")
    if isinstance(base, nn.Module):
        return base
    if not callable(base):
        raise InputError(
            f"base must be an nn.Module or a function of images, got {type(base).__name__}; a path is loaded and "
            "smoothed by rs.load(path).smooth()"
        )
    return Function(base)


def logits_of(output: Any) -> Tensor:
    """Return the logits in the output of a base classifier: a tensor, or its attribute ``logits``.

    Raises:
        InputError: If there are none.
    """
    logits = getattr(output, "logits", output)
    if isinstance(logits, Tensor):
        if logits.is_complex() or logits.layout != torch.strided or logits.is_meta:
            what = f"{logits.dtype}, {logits.layout} on {logits.device}".replace("torch.", "")
            raise InputError(f"base must return logits that are real numbers in a dense tensor, got {what}")
        return logits
    kind = type(output).__name__
    if isinstance(output, tuple | list):
        raise InputError(f"base must return logits (N, K), got a {kind} of {len(output)}; return the logits alone")
    fields = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    raise InputError(
        f"base must return logits (N, K), as a tensor or as the attribute logits of its output, got {kind}{fields}; "
        "use a model for classification, or return the logits alone"
    )


def evaluate(base: nn.Module, x: Tensor) -> Tensor:
    """Return the logits of images.

    What a module raises stays what it is, with a note about the images; it need not be a mistake of the user's.

    Raises:
        InputError: If ``base`` returns no logits, or from what a plain function raises, too little memory apart.
    """
    try:
        output = base(x)
    except (InputError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        images = f"images of shape {tuple(x.shape)}, {x.dtype} on {x.device}"
        if not isinstance(base, Function):
            error.add_note(f"base was given {images}: noisy copies of one image")
            raise
        raise InputError(
            f"base must take {images}, but it raised {type(error).__name__}: {' '.join(str(error).split())}; correct "
            "the function or the shape of the image"
        ) from error
    return logits_of(output)
