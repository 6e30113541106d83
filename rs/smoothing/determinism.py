"""Checks that a classifier is one function of each image, as every certificate assumes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from rs.errors import InputError, NotDeterministicError
from rs.models.backend import DTYPES
from rs.runtime import Precision
from rs.smoothing.classifier import autocast
from rs.smoothing.inputs import evaluating, logits_of, user_code

T = TypeVar("T")
LONE_IMAGES = 4
"""Images of a batch that are also evaluated alone."""

MIN_REPEATED = 8
"""Images that are evaluated again at the end, however few evaluations there were."""

MAX_CALLS = 128
"""Calls of a network that the end is compared with: the first ones, by one image of each.

A network that answers differently at every k-th of its calls cannot pass for k up to this number.
"""

EXTRA_SHARE = 0.008
"""Largest share of all evaluations that both checks together may take."""

TF32_STEP = 2.0**-10
"""Distance from 1 to the next number of TF32, whose products have inputs of 10 bits."""


def check_deterministic(
    module: nn.Module, images: Tensor, precision: Precision = "float32"
) -> None:
    """Check that logits depend on the image alone: not on batch, place, or earlier calls.

    The theorem (Cohen, Rosenfeld & Kolter 2019) is about one function f; dropout that stays on,
    batch norm on the statistics of a batch, and a state make f another one at each call. The
    classifier is called four times, with five images in all, in eval mode: one image, both the
    other way round, the one again, the other; more often if logits differ, to tell when.
    Differences up to the square root of the machine epsilon, of the largest logit, count as
    rounding: half of the digits (:func:`rounding`).

    Args:
        module: Images (N, C, H, W) -> logits (N, K).
        images: Two images (2, C, H, W), or other inputs (2, ...), on the device of the module.
        precision: What it runs in; it is not set here.
    Raises:
        NotDeterministicError: If logits differ.
        InputError: If logits are not finite or have another shape, or if the module changes the
            images or the working directory.
    """
    if images.ndim < 2 or len(images) != 2:
        raise InputError(
            "images must be two, of shape (2, C, H, W), or other inputs (2, ...), got shape "
            f"{tuple(images.shape)}; give two"
        )
    before = images.clone()
    reversed_images = images.flip(0)
    folder = Path.cwd()
    with torch.no_grad(), evaluating(module):
        alone = _logits(module, images[:1])
        both = _logits(module, reversed_images)
        if not (torch.equal(images, before) and torch.equal(reversed_images, before.flip(0))):
            raise InputError(
                "the classifier must not change its images, but it writes into them; copy them "
                "first"
            )
        if Path.cwd() != folder:
            os.chdir(folder)
            raise InputError(
                "the classifier must not change the working directory, but it does; remove the "
                "os.chdir"
            )
        again = _logits(module, images[:1])
        other = _logits(module, images[1:])
        largest = float(both.abs().max())
        allowed = rounding(module, both, precision) * largest
        difference = max(
            _difference(again, alone), _difference(alone, both[1:]), _difference(other, both[:1])
        )
        if difference <= allowed:
            return
        repeated = max(
            _difference(_logits(module, images[:1]), alone),
            _difference(_logits(module, reversed_images), both),
        )
        if repeated > allowed:
            when = "from one call to the next"
        elif _difference(_logits(module, images).flip(0), both) > allowed:
            when = "with the place in the batch"
        else:
            when = "with the other images of the batch"
        raise _refusal(when, difference, largest)


def rounding(module: nn.Module, logits: Tensor, precision: Precision = "float32") -> float:
    """Return the relative difference of logits that counts as rounding.

    It is 3e-4 in float32, 0.03 in tf32 and 0.09 in bfloat16. The type is the coarsest of float32,
    the parameters, the logits and the precision.
    """
    types = {torch.float32, DTYPES[precision], logits.dtype}
    types |= {value.dtype for value in module.parameters() if value.is_floating_point()}
    steps = [torch.finfo(dtype).eps for dtype in types]
    if precision == "tf32":
        steps.append(TF32_STEP)
    return math.sqrt(max(steps))


def checking_determinism(
    items: Iterable[T], modules: Sequence[nn.Module], precision: Precision = "float32"
) -> Iterator[T]:
    """Yield what is to be certified, and check meanwhile that networks stay one function.

    - Whenever a batch is larger than all before it, :data:`LONE_IMAGES` of its images are evaluated
      alone.
    - One image of each of the first :data:`MAX_CALLS` calls is kept. After the last item, these
      images are evaluated again in one call, and images of the largest batch in another one, or in
      several calls that are not larger than any before.

    The images at the end are as many as take less than 1 % of the evaluations together with those
    alone, at least :data:`MIN_REPEATED`. Differences count as rounding as in
    :func:`check_deterministic`.

    A network whose calls differ with probability p, each as a whole, passes with probability (1 -
    p)^c + p^c, where c counts the calls that are kept, those with one image and those at the end.

    Args:
        items: Anything, such as images.
        modules: Networks that are called with batches (N, C, H, W) and return logits (N, K).
        precision: What they run in.
    Raises:
        NotDeterministicError: If logits differ; in that case no certificate is valid.
    """
    networks: list[nn.Module] = []
    for module in modules:
        is_cascade = getattr(module, "lazy", False)
        networks += cast(Any, module).members if is_cascade else [module]
    watches = [_Watch(network, precision) for network in networks]
    try:
        yield from items
        for watch in watches:
            watch.repeat()
    finally:
        for watch in watches:
            watch.hook.remove()


class _Watch:
    """A network, an image of each of its first calls, its largest batch, and the logits of both."""

    def __init__(self, module: nn.Module, precision: Precision) -> None:
        self.module = module
        self.precision = precision
        self.batch = torch.empty(0)
        self.logits = torch.empty(0)
        self.kept_images: list[Tensor] = []  # of the shape (1, C, H, W), one of each call
        self.kept_logits: list[Tensor] = []
        self.evaluated = 0
        self.lone = 0
        self.is_comparing = False
        self.hook = module.register_forward_hook(self._see)

    def _see(self, module: nn.Module, inputs: tuple[Tensor], output: Any) -> None:
        """Check a call; the calls that this makes are only counted."""
        images = inputs[0]
        logits = logits_of(output).detach()  # a network may record gradients of its own
        self.evaluated += len(images)
        is_misshapen = logits.shape[:1] != images.shape[:1]  # refused elsewhere
        if self.is_comparing or is_misshapen:
            return
        self._keep(images, logits)
        if len(images) > len(self.batch):
            self.batch = images
            self.logits = logits.clone()
            rows = self._spread(LONE_IMAGES)
            self.lone += len(rows)
            when = f"between a batch of {len(images)} and its images alone"
            self._compare(self.batch[rows], self.logits[rows], 1, when)

    def _keep(self, images: Tensor, logits: Tensor) -> None:
        """Keep an image of this call, at another place than in the call before."""
        count = len(self.kept_images)
        if count == MAX_CALLS or len(images) == 0:
            return
        if count and images.shape[1:] != self.kept_images[0].shape[1:]:
            return  # they could not be one batch
        position = count % len(images)
        image_slice = slice(position, position + 1)
        self.kept_images.append(images[image_slice].clone())  # a view would keep the whole batch
        self.kept_logits.append(logits[image_slice].clone())

    def repeat(self) -> None:
        """Evaluate the images of the first calls again, and then images of the largest batch."""
        if not self.kept_images:
            return
        when = f"between the start and the end of {self.evaluated:,} evaluations"
        count = max(MIN_REPEATED, int(self.evaluated * EXTRA_SHARE) - self.lone)
        images = torch.cat(self.kept_images[:count])
        size = min(len(images), len(self.batch))
        self._compare(images, torch.cat(self.kept_logits[:count]), size, when)
        if rows := self._spread(count - len(images)):
            self._compare(self.batch[rows], self.logits[rows], len(rows), when)

    def _spread(self, count: int) -> list[int]:
        """Return the numbers of images spread over the batch, with the first and the last."""
        count = min(count, len(self.batch))
        return torch.linspace(0, len(self.batch) - 1, count).long().tolist()

    def _compare(self, images: Tensor, expected: Tensor, size: int, when: str) -> None:
        """Evaluate images in batches of this size, and compare their logits."""
        self.is_comparing = True
        try:
            with (
                torch.no_grad(),
                evaluating(self.module),
                autocast(images.device, self.precision),
            ):
                again = torch.cat([_logits(self.module, part) for part in images.split(size)])
        except InputError as error:  # of images that it took before
            raise NotDeterministicError(str(error)) from error
        finally:
            self.is_comparing = False
        difference = _difference(again, expected)
        largest = float(expected.abs().max())
        if difference > rounding(self.module, expected, self.precision) * largest:
            raise _refusal(when, difference, largest)


def _difference(logits: Tensor, others: Tensor) -> float:
    if logits.shape != others.shape:
        return math.inf
    return float((logits - others).abs().max())


def _logits(module: nn.Module, images: Tensor) -> Tensor:
    with user_code(f"the classifier must take images {tuple(images.shape)}, {images.dtype}"):
        logits = logits_of(module(images))
    if logits.ndim != 2 or len(logits) != len(images):
        raise InputError(
            f"logits must have the shape ({len(images)}, classes), got {tuple(logits.shape)}; look "
            "at the last layer (.squeeze() also drops the axis of one image; take .flatten(1))"
        )
    if not logits.is_floating_point():
        raise InputError(
            f"logits must be floating-point numbers, got {logits.dtype}; return the output of the "
            "last layer, without argmax"
        )
    if not bool(logits.isfinite().all()):
        raise InputError(
            "logits must be finite on noisy images, but some are nan or infinite; look at the "
            "weights"
        )
    return logits.clone()


def _refusal(when: str, difference: float, largest: float) -> NotDeterministicError:
    return NotDeterministicError(
        f"the classifier must be one function of each image, but its logits differ {when}, by "
        f"{difference:.2g} of logits up to {largest:.2g}; look for dropout that is always on, "
        "batch norm on the statistics of the batch, a state, or layers that see the whole batch"
    )
