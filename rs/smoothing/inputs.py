"""Inputs and base classifiers of many kinds, converted to one, and guards of users' code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from numbers import Integral, Real
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from rs.errors import InputError, InputWarning, is_out_of_memory, raised
from rs.params import PIXELS, Bounds, describe_bounds
from rs.statistics.certificate import MAX_DRAWS, MIN_ALPHA
from rs.statistics.radius import fewest_draws

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

ImageLike: TypeAlias = "Tensor | NDArray[Any] | PillowImage"
"""One input: a tensor, a NumPy array or a Pillow image; see :func:`as_image`."""

Base: TypeAlias = Callable[[Tensor], Any]
"""A base classifier: an ``nn.Module`` or any function of images; see :func:`as_module`."""


def as_image(x: ImageLike, bounds: Bounds = PIXELS) -> Tensor:
    """Return an input as a floating-point tensor; its values are not checked.

    uint8 is divided by 255, so that pixels lie in [0, 1]; other floating-point types become
    float32. The axes are those that are given, except for images of three axes:

    - A tensor is always (C, H, W), whatever its sizes: it can be six signals of 50 times 3 numbers.
    - A NumPy array of uint8 is (H, W, C) if its last axis is 1 or 3 and its first is neither, else
      (C, H, W).
    - A NumPy array of floating-point numbers is (C, H, W). It is refused where that rule would read
      (H, W, C), if its bounds are those of pixels.
    - A Pillow image is 8-bit gray or RGB.

    Raises:
        InputError: If it is none of these, empty, has masked pixels, or holds integers that are not
            uint8 pixels.

    >>> as_image(np.full((4, 5, 3), 51, np.uint8)).shape
    torch.Size([3, 4, 5])
    >>> as_image(np.full((1, 1, 1), 51, np.uint8)).item()
    0.20000000298023224
    """
    values = x if isinstance(x, Tensor) else torch.from_numpy(_array(x))
    is_8_bit = values.dtype == torch.uint8 and bounds == PIXELS
    if not is_8_bit and not values.is_floating_point():
        raise _wrong_type(values.dtype, bounds)
    if values.layout != torch.strided or values.is_meta:
        kind = f"{values.layout} on {values.device}".replace("torch.", "")
        raise InputError(f"x must be a dense tensor with numbers, got {kind}; give x.to_dense()")
    shape = tuple(values.shape)
    if not shape or 0 in shape:
        raise InputError(
            "x must be one image of shape (C, H, W), or another input that is not empty and has an "
            f"axis, got shape {shape}"
        )
    if isinstance(x, Tensor) or bounds != PIXELS:
        return _as_float(values)
    if is_8_bit and len(shape) != 3:
        raise InputError(
            f"x of uint8 must be one image of shape (C, H, W) or (H, W, C), got shape {shape}; "
            "give a gray image as x[None], several to certify_many, and other inputs as tensors"
        )
    if len(shape) > 2 and shape[-1] in (1, 3) and shape[-3] not in (1, 3):
        if not is_8_bit:
            raise InputError(
                f"x of floating-point numbers must have the shape (C, H, W), got {shape}, which "
                "could also be (H, W, C); give a tensor, which is always (C, H, W): "
                "torch.from_numpy(x), or torch.from_numpy(x).permute(2, 0, 1)"
            )
        values = values.permute(2, 0, 1).contiguous()
    return _as_float(values)


def _as_float(values: Tensor) -> Tensor:
    return values.float() / 255 if values.dtype == torch.uint8 else values.float()


def check_unmasked(x: object, name: str = "x") -> None:
    """Check that this is not a NumPy array with masked values, because torch would ignore the mask.

    Raises:
        InputError: If it is one.
    """
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        masked = int(np.ma.getmaskarray(x).sum())
        raise InputError(
            f"{name} must have pixels without a mask, got {masked} masked ones; fill them first: "
            f"{name}.filled(0)"
        )


def _array(x: Any) -> NDArray[Any]:
    """Return a NumPy array or a Pillow image as a new array of uint8 or float32."""
    check_unmasked(x)
    array = x if isinstance(x, np.ndarray) else _pillow_array(x)
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        raise _wrong_type(array.dtype, PIXELS)
    dtype = np.uint8 if array.dtype == np.uint8 else np.float32
    return np.array(array, dtype=dtype, order="C")


def _pillow_array(x: Any) -> NDArray[Any]:
    from PIL import Image  # needed for these alone

    if not isinstance(x, Image.Image):
        raise InputError(
            "x must be an image as a tensor, a NumPy array or a Pillow image, got "
            f"{type(x).__name__}; open a file with PIL.Image.open, and leave out labels"
        )
    if x.mode not in ("L", "RGB"):
        remedy = 'convert it: x.convert("RGB")'
        if x.mode.startswith("I;16"):  # Pillow would convert all values above 255 to white
            remedy = "give values in [0, 1]: numpy.asarray(x)[None] / 65535"
        elif x.mode in ("I", "F"):
            remedy = "give values in [0, 1]: numpy.asarray(x)[None] / LARGEST_POSSIBLE_VALUE"
        raise InputError(f"x must be an 8-bit gray or RGB image, got mode {x.mode}; {remedy}")
    return np.atleast_3d(np.asarray(x))


def _wrong_type(dtype: object, bounds: Bounds) -> InputError:
    if bounds != PIXELS:
        return InputError(
            f"x must hold floating-point numbers within {describe_bounds(bounds)}, got {dtype}; "
            "convert it to float32, in the scale that the model takes"
        )
    return InputError(
        f"x must hold uint8 pixels, or floating-point pixels in [0, 1], got {dtype}; divide "
        "integers by their largest possible value"
    )


def is_whole(value: Any, least: int) -> bool:
    """Return whether a value is a whole number, of Python or NumPy, of at least ``least``."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_range(x: Tensor, bounds: Bounds, name: str) -> None:
    """Check that a tensor holds finite floating-point numbers within bounds.

    If it is on a GPU, this waits for the result.

    Raises:
        InputError: If it does not.
    """
    largest = torch.finfo(torch.float32).max
    low, high = bounds or (-largest, largest)
    if x.is_floating_point() and bool(((x >= low) & (x <= high)).all()):
        return
    got = f"got {x.dtype} from {x.min():.4g} to {x.max():.4g}"
    if bounds == PIXELS:
        raise InputError(
            f"{name} must hold floating-point pixels in [0, 1], {got}; divide 8-bit pixels by 255, "
            "clip resampled ones, and make a normalization the first layer of the model; for "
            "inputs that are no pixels give bounds=, such as (-1, 1), or None for unbounded ones"
        )
    raise InputError(
        f"{name} must hold finite floating-point numbers within {describe_bounds(bounds)}, {got}; "
        "correct them, or give other bounds="
    )


def check_key(**key: int) -> None:
    """Check the numbers that name the noise: whole, at least 0, and below 2^32 except the seed.

    Raises:
        InputError: If one of them is not.
    """
    for name, number in key.items():
        if not is_whole(number, 0):
            raise InputError(
                f"{name} must be a whole number of at least 0, got {number!r}; it names the noise"
            )
        if name != "seed" and number >= 2**32:
            raise InputError(
                f"{name} must be below 2^32, got {number}; it is a word of the key of the noise"
            )


def check_draws(x: Tensor, alpha: float, bounds: Bounds, **draws: int) -> None:
    """Check that ``x`` is within bounds, ``alpha`` a probability, and ``draws`` are positive.

    Raises:
        InputError: If one of them is not.
    """
    check_range(x, bounds, "x")
    if not isinstance(alpha, Real) or not MIN_ALPHA <= alpha < 1:
        raise InputError(
            f"alpha must lie in (0, 1), got {alpha!r}; it is the failure probability of a "
            f"certificate, at least {MIN_ALPHA}"
        )
    for name, count in draws.items():
        if not is_whole(count, 1) or count > MAX_DRAWS:
            raise InputError(
                f"{name} must be a whole number of noisy copies from 1 to {MAX_DRAWS:,}, got "
                f"{count!r}"
            )


def check_can_predict(n: int, alpha: float, tests: int = 1) -> None:
    """Refuse so few samples that PREDICT abstains even at a unanimous vote.

    Raises:
        InputError: If ``n`` samples are too few for one of several tests that share ``alpha``.
    """
    least = fewest_draws(alpha / tests / 2)  # each is two-sided
    if n < least:
        raise InputError(
            f"n must be at least {least} at alpha = {alpha}, got {n}; even a unanimous vote of "
            f"{n} abstains"
        )


def warn_if_n_too_small(n: int, alpha: float) -> None:
    """Warn if ``n`` samples can never certify; the warning points at the caller's caller."""
    least = fewest_draws(alpha)
    if n < least:
        warnings.warn(
            f"n = {n} samples can never certify at alpha = {alpha}: even a unanimous vote "
            f"abstains; give n of at least {least}",
            InputWarning,
            stacklevel=3,
        )


class Function(nn.Module):
    """A plain function of images as a module; the networks it calls are not submodules.

    So they are neither moved nor put into eval mode, and images stay on the device that they come
    on. A network or layer in training mode is refused when it is called. Not detected: the mode of
    a network whose method ``forward`` is called (its layers are checked) and of layers inside a
    scripted one, and random numbers of the function's own; give an ``nn.Module`` instead.
    """

    def __init__(self, function: Base) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        """Return what the function returns.

        Raises:
            InputError: If it calls a network that is in training mode.
        """
        hook = register_module_forward_pre_hook(partial(_check_mode, get_ident()))
        try:
            return self.function(x)
        finally:
            hook.remove()


def _check_mode(thread: int, module: nn.Module, _: Any) -> None:
    if module.training and get_ident() == thread:  # another thread may train
        raise InputError(
            f"a plain function must call networks in eval mode, but {type(module).__name__} is in "
            "training mode; give the nn.Module itself, or call its .eval()"
        )


def as_module(base: Base) -> nn.Module:
    """Return a base classifier as a module: itself, or a :class:`Function`.

    A module of TorchScript, which takes no hooks, becomes the one layer of another module. One of
    ``torch.export``, which is in the mode of its export for good, no longer refuses ``eval`` and
    ``train``.

    Raises:
        InputError: If it is a class, cannot be called, or has no weights yet
            (:func:`check_not_meta`).
    """
    if isinstance(base, type):
        raise InputError(
            f"base must be a model, got the class {base.__name__}; create one: {base.__name__}(...)"
        )
    if isinstance(base, nn.Module):
        check_not_meta(base)
        for module in base.modules():
            if not hasattr(module, "training"):
                raise InputError(
                    "base must not be frozen TorchScript, whose weights cannot be read; pass the "
                    "unfrozen module"
                )
            for name in ("eval", "train"):  # which torch.export replaces by methods that raise
                owner = getattr(vars(module).get(name), "__module__", "")
                if str(owner).startswith("torch.export."):
                    delattr(module, name)
        return nn.Sequential(base) if isinstance(base, torch.jit.ScriptModule) else base
    if not callable(base):
        raise InputError(
            f"base must be an nn.Module or a function of images, got {type(base).__name__}; a path "
            "is loaded and smoothed by rs.load(path).smooth()"
        )
    return Function(base)


def check_not_meta(module: nn.Module) -> None:
    """Check that no parameter and no buffer lies on the device ``meta``, which stores no data.

    Raises:
        InputError: If one does.
    """
    for name, value in chain(module.named_parameters(), module.named_buffers()):
        if value.is_meta:
            raise InputError(
                f"base must hold its weights, but {name} is on the device meta, which stores no "
                "data; load them, or build the model on another device"
            )


def logits_of(output: Any) -> Tensor:
    """Return the logits in the output of a base classifier: a tensor, or its attribute ``logits``.

    One logit z per input, (N, 1), becomes those of two classes, (0, z).

    Raises:
        InputError: If there are none.
    """
    logits = getattr(output, "logits", output)
    if isinstance(logits, Tensor):
        if logits.is_complex() or logits.layout != torch.strided or logits.is_meta:
            what = f"{logits.dtype}, {logits.layout} on {logits.device}".replace("torch.", "")
            raise InputError(
                f"base must return logits that are real numbers in a dense tensor, got {what}"
            )
        is_binary = logits.ndim == 2 and logits.shape[1] == 1
        return F.pad(logits, (1, 0)) if is_binary else logits
    kind = type(output).__name__
    if isinstance(output, tuple | list):
        raise InputError(
            f"base must return logits (N, K), got a {kind} of {len(output)}; return the logits "
            "alone"
        )
    fields = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    remedy = "use a model for classification, or return the logits alone"
    if isinstance(output, np.ndarray):
        remedy = "convert it with torch.from_numpy"
    raise InputError(
        "base must return logits (N, K), as a tensor or as the attribute logits of its output, "
        f"got {kind}{fields}; {remedy}"
    )


class LogitsOnly(nn.Module):
    """A network whose output may have its logits in the attribute ``logits``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W)."""
        return logits_of(self.network(x))


class TwoLogits(LogitsOnly):
    """A network of one logit (N, 1) as one of two classes, which can be traced."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, 2) of inputs (N, ...), as :func:`logits_of` does."""
        return F.pad(self.network(x), (1, 0))


@contextmanager
def user_code(must: str) -> Iterator[None]:
    """Turn what a user's code raises, ``SystemExit`` too, into an error that begins with ``must``.

    Ctrl-C and too little memory pass unchanged.

    Args:
        must: What the code must do.
    Raises:
        InputError: From what the code raises, or if tensors have no numbers by default after it.
    """
    try:
        yield
        if torch.get_default_device().type == "meta":
            raise InputError(
                f"{must}, but it sets torch's default device to 'meta', which stores no data; "
                "remove that call"
            )
    except BaseException as error:
        if isinstance(error, InputError | KeyboardInterrupt) or is_out_of_memory(error):
            raise
        raise InputError(f"{must}, but it {raised(error)}") from error


_evaluated: dict[nn.Module, tuple[int, bool]] = {}
"""Number of threads evaluating a module now, and its training mode before the first."""
_counting = Lock()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode, then restore the mode of every module.

    If several evaluate a module at once, in threads or one inside the other, the last one to leave
    restores it.
    """
    modules = [*model.modules()]
    with _counting:
        for module in modules:
            users, training = _evaluated.get(module, (0, module.training))
            _evaluated[module] = users + 1, training
    try:
        model.eval()
        yield
    finally:
        with _counting:
            for module in modules:
                users, training = _evaluated.pop(module)
                if users > 1:
                    _evaluated[module] = users - 1, training
                else:
                    module.training = training


def evaluate(base: nn.Module, x: Tensor) -> Tensor:
    """Return the logits of images, one row each.

    Raises:
        InputError: If ``base`` returns something else, or from what it raises.
    Warns:
        InputWarning: If one logit per input seems to be a probability.
    """
    with user_code(f"base must take images of shape {tuple(x.shape)}, {x.dtype} on {x.device}"):
        output = base(x)
    logits = logits_of(output)
    if logits.shape[:1] != x.shape[:1]:
        raise InputError(
            f"base must return logits ({len(x)}, K) of {len(x)} images, K at least 2, got "
            f"{tuple(logits.shape)}; look at its last layer"
        )
    if getattr(output, "logits", output).shape[1:] == (1,):
        warn_of_probabilities(logits)
    return logits


MANY_LOGITS = 50
"""Logits that do not all lie in [0, 1] by chance, unless the model is almost constant."""


SUM_ROUNDING = 1e-3
"""Difference from 1 below which a sum of probabilities is 1."""


def warn_of_probabilities(logits: Tensor) -> None:
    """Warn if logits (N, K) seem to be probabilities: of a softmax, or of a sigmoid, as (0, p).

    After a softmax, votes and certificates are the same, but losses and gradients are not. After a
    sigmoid of one logit, all votes are for class 1.
    """
    count = len(logits)
    if count < 2 or not bool(((logits >= 0) & (logits <= 1)).all()):
        return
    text = ""
    if bool(((logits.sum(dim=1) - 1).abs() < SUM_ROUNDING).all()):
        text = (
            f"the outputs must be logits, but those of all {count} inputs lie in [0, 1] and sum to "
            "1, as probabilities do; leave out the softmax"
        )
    elif count >= MANY_LOGITS and logits.shape[1] == 2 and not logits[:, 0].any():
        text = (
            "one output per input must be a logit, positive for class 1, but all of "
            f"{count} lie in [0, 1], as probabilities do; leave out the sigmoid"
        )
    if text:
        warnings.warn(text, InputWarning, stacklevel=2)
