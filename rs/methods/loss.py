"""The loss of a training method, for your own training loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rs import params, recipes
from rs.errors import InputError
from rs.methods import method_class
from rs.methods.base import Method, NeedsTargets, Step, within
from rs.params import PIXELS, Bounds
from rs.smoothing.inputs import (
    SUM_ROUNDING,
    LogitsOnly,
    check_range,
    warn_of_probabilities,
)


@dataclass
class Loss:
    """The loss of one method at one noise level; :func:`loss` makes it.

    Its first call checks images and labels. Later calls do not, because on a GPU each check would
    wait for the device.
    """

    method: Method  # its hyperparameters
    sigma: float  # noise standard deviation, in the unit of the inputs
    bounds: Bounds = PIXELS  # of the inputs
    _is_checked: bool = field(default=False, init=False, repr=False, compare=False)

    def __call__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        epoch: int = 0,
        rng: Generator | None = None,
        targets: Tensor | None = None,
    ) -> Step:
        """Compute the loss of a batch; ``step.loss.backward()`` gives the gradient.

        Args:
            model: In train mode; inputs (N, ...), such as images (N, C, H, W), noisy and not
                clipped -> logits (N, K), one logit (N, 1), or an output with the attribute
                ``logits``, as for :class:`rs.SmoothedClassifier`.
            x: Inputs without noise and within the bounds, shape (B, C, H, W) or another (B, ...).
            y: Labels, shape (B,), whole numbers from 0 to K - 1.
            epoch: Epochs finished so far, for warm-ups.
            rng: Stream of the noise, on the device of ``x``; ``None`` draws its seed from torch's
                global generator.
            targets: Class probabilities of each image, shape (B, K), for methods that need them
                (``cat-rs``).
        Raises:
            InputError: If the model is in eval mode while gradients are recorded or, in the first
                call, images, labels, targets, logits or a parallel wrapper are not what they must
                be.
        Warns:
            InputWarning: If the model seems to return probabilities in the first call.
        """
        if torch.is_grad_enabled() and isinstance(model, nn.Module):  # functions have no mode
            _check_mode(model)
        network = LogitsOnly(model)
        if not self._is_checked:
            _check_averaging(network)
            _check_batch(x, y, self.bounds)
            network.register_forward_hook(partial(_check_logits, y, targets))
        if rng is None:
            rng = torch.Generator(x.device).manual_seed(int(torch.randint(2**63 - 1, ())))
        extra = {"targets": targets} if isinstance(self.method, NeedsTargets) else {}
        step = self.method.loss(
            network, x, y.long(), sigma=self.sigma, rng=rng, epoch=epoch, **extra
        )
        self._is_checked = True
        return step


def _check_batch(x: Tensor, y: Tensor, bounds: Bounds) -> None:
    """Check inputs and the kind of labels; :func:`_check_logits` checks their range.

    Raises:
        InputError: If inputs are not floating-point numbers (B, ...) within the bounds, or labels
            are not B whole numbers.
    """
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise InputError(
            f"images and labels must be tensors, got {type(x).__name__} and {type(y).__name__}; "
            "convert them with torch.as_tensor"
        )
    if x.ndim < 2 or x.numel() == 0:
        raise InputError(
            "images must have the shape (B, C, H, W), or other inputs (B, ...), got "
            f"{tuple(x.shape)}; give a batch, one input as x[None]"
        )
    check_range(x, bounds, "images without noise" if bounds == PIXELS else "inputs without noise")
    is_whole = not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)
    if not is_whole or y.shape != x.shape[:1]:
        raise InputError(
            f"labels must be whole numbers of shape ({len(x)},), one per image, got {y.dtype} of "
            f"shape {tuple(y.shape)}; give the number of each image's class, of one-hot labels "
            "y.argmax(dim=1)"
        )


def _check_averaging(network: nn.Module) -> None:
    """Refuse a wrapper that does not average gradients after an attack has evaluated the network.

    Raises:
        InputError: If it is a ``DistributedDataParallel`` with ``static_graph``.
    """
    for module in network.modules():
        if isinstance(module, DistributedDataParallel) and module.static_graph:
            raise InputError(
                "DistributedDataParallel must have static_graph=False, got True, with which it "
                "does not average gradients after an attack has evaluated the network; leave "
                "static_graph out"
            )


def _check_mode(model: nn.Module) -> None:
    """Refuse a model whose batch norms and dropouts would not train.

    Raises:
        InputError: If all of it is in eval mode.
    """
    if not any(module.training for module in model.modules()):
        raise InputError(
            f"the model must be in train mode, but {type(model).__name__} is in eval mode, in "
            "which batch norms and dropouts do not train; call its .train(), and then .eval() on "
            "the layers that stay frozen. For a validation loss use torch.no_grad()"
        )


def _check_logits(
    y: Tensor, targets: Tensor | None, network: nn.Module, inputs: Any, logits: Tensor
) -> None:
    """Check logits, and labels and targets against them, as a hook after a forward pass.

    Raises:
        InputError: If logits are not finite and of shape (N, K), a label is not one of 0 to K - 1,
            or targets are not probabilities (B, K).
    Warns:
        InputWarning: If logits seem to be probabilities.
    """
    count = len(inputs[0])
    if logits.ndim != 2 or len(logits) != count:
        raise InputError(
            f"the model must return logits of shape ({count}, K), got {tuple(logits.shape)}; look "
            "at its last layer"
        )
    if not bool((logits < torch.inf).all()):  # minus infinity is a class that never wins
        raise InputError(
            "the model must return logits that are finite numbers, got NaN or infinity; look at "
            "its weights and its input"
        )
    warn_of_probabilities(logits)
    classes = logits.shape[1]
    if targets is not None:
        is_distribution = targets.shape == (len(y), classes) and bool((targets >= 0).all())
        if not is_distribution or float((targets.sum(dim=1) - 1).abs().max()) > SUM_ROUNDING:
            raise InputError(
                f"targets must be the probabilities ({len(y)}, {classes}) of each image's classes, "
                f"which sum to 1, got shape {tuple(targets.shape)}, values from "
                f"{float(targets.min()):.3g} to {float(targets.max()):.3g}; correct them"
            )
    least = int(y.min())
    most = int(y.max())
    if least < 0 or most >= classes:
        raise InputError(
            f"labels must lie in 0..{classes - 1}, one for each logit, got {least} to {most}; "
            "correct them, and leave out images without a label"
        )


def loss(method: str, sigma: float, *, bounds: Bounds = PIXELS, **hyperparameters: Any) -> Loss:
    """Return the loss of a training method, by default with its paper's hyperparameters.

    These come from ``defaults.METHOD`` in this project's params.yaml. If one depends on the noise
    level, the value at the nearest level (by ratio) is used.

    Args:
        method: Key of ``rs.methods.METHODS``.
        sigma: Noise standard deviation, in the unit of the inputs, as are the hyperparameters.
        bounds: The least and the largest value of inputs, to which attacks clip, or ``None`` for
            unbounded ones.
        hyperparameters: Fields of the method's class (``rs.methods.advmacer.AdvMacer``) that
            replace these values.
    Raises:
        InputError: If the method or a hyperparameter is unknown, or a value is out of range.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    >>> images, labels = torch.rand(5, 3, 2, 2), torch.tensor([0, 1, 2, 0, 1])
    >>> step = loss("macer", sigma=0.25, draws=4)(model, images, labels)
    >>> step.loss.backward()
    """
    kind = method_class(method)
    bounds = params.check_bounds(bounds)
    params.check_sigma(sigma, bounds=bounds)
    preset = dict(params.section(params.packaged(), f"defaults.{method}"))
    preset.pop("training", None)
    values = recipes.for_sigma(preset, sigma, f"defaults.{method}", nearest=True) | hyperparameters
    return Loss(within(kind(**values), bounds), sigma, bounds)
