"""What the statistics of a batch norm tell of the input and the noise of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rs.certification.expected_input import AS_IT_IS, Alternative
from rs.certification.trial import BATCH, Trial, is_larger

OTHER_LEVELS = (0.0, 0.25, 0.354, 0.5, 0.707, 1.414, 2.0, 2.83, 4.0)
"""Other noise levels that a batch norm may fit, relative to that of the certificate."""

MISFIT = 0.04
"""Distance of a batch norm that is worth a finding: its variance is wrong by about half."""

LEVEL_MISFIT = 0.01
"""Distance that is worth a finding if noise of half, of twice, or farther off, fits better."""

CLEAR_FIT = 0.1
"""Largest distance of an alternative that fits clearly better, relative to that as it is."""

GROUP = 5
"""Images whose statistics are compared with those of a batch norm at a time."""


class Misfit(NamedTuple):
    """Input or noise that fits the statistics of the first batch norm clearly better."""

    alternative: Alternative
    sigma: float
    text: str


def misfit_of(trial: Trial) -> Misfit | None:
    """Return what the first batch norm of a classifier fits better than its input, if anything.

    Its statistics are those of the images of the training, under the noise of the training.
    """
    layer = first_batch_norm(trial.module)
    if layer is None or not trial.sigma:
        return None
    present = fit_of(trial.module, layer, trial.noisy(trial.sigma))
    if present is None or present.distance < LEVEL_MISFIT:
        return None
    candidates = [(alternative, trial.sigma) for alternative in trial.alternatives]
    candidates += [(AS_IT_IS, factor * trial.sigma) for factor in OTHER_LEVELS]
    nearest = present
    misfit = None
    for alternative, sigma in candidates:
        fit = fit_of(trial.module, layer, alternative.of(trial.noisy(sigma)))
        if fit is not None and fit.distance < nearest.distance:
            nearest = fit
            text = f"distance {fit.distance:.3f} then, {present.distance:.3f} now"
            misfit = Misfit(alternative, sigma, text)
    # Statistics that fit no noise are those of a network that was made before it, and frozen.
    if misfit is None or misfit.sigma == 0:
        return None
    is_near = 0.5 < misfit.sigma / trial.sigma < 2
    if is_near and present.distance < MISFIT:
        return None
    is_clear = nearest.distance <= CLEAR_FIT * present.distance
    if not is_clear or not is_larger(present.of_groups, nearest.of_groups, len(candidates)):
        return None
    return misfit


class Fit(NamedTuple):
    """How far the statistics of inputs are from those that a batch norm has of its training."""

    distance: float  # of all images together
    of_groups: Tensor  # of each group of GROUP images, (groups, 1)


def first_batch_norm(module: nn.Module) -> Any | None:
    """Return the first batch norm that has statistics of a training run, or ``None``."""
    for layer in module.modules():
        mean = getattr(layer, "running_mean", None)
        if isinstance(mean, Tensor) and mean.any():
            return layer
    return None


class _ReachedError(Exception):
    """The batch norm is reached: the rest of the network is not needed."""


def fit_of(module: nn.Module, layer: Any, x: Tensor) -> Fit | None:
    """Compare the input of a batch norm with that of its training.

    The distance is the Kullback-Leibler divergence of normal distributions with these means and
    variances, averaged over channels.

    Args:
        module: The classifier.
        layer: Its batch norm.
        x: Images.
    Returns:
        The fit; ``None`` if the classifier does not reach the layer.
    """
    moments: list[Tensor] = []

    def keep(_: nn.Module, inputs: Sequence[Tensor]) -> None:
        values = inputs[0].double().unsqueeze(-1).flatten(2)
        moments.append(torch.stack([values.mean(2), values.square().mean(2)], 1))
        raise _ReachedError

    with layer.register_forward_pre_hook(keep):
        for part in x.split(BATCH):
            with suppress(_ReachedError):
                module(part)
                return None
    images = torch.cat(moments)
    groups = torch.stack([group.mean(0) for group in images.split(GROUP)])
    return Fit(float(_distance(images.mean(0), layer)), _distance(groups, layer)[:, None])


def _distance(moments: Tensor, layer: Any) -> Tensor:
    mean = moments[..., 0, :]
    variance = (moments[..., 1, :] - mean.square()).clamp(min=1e-12)
    trained = layer.running_var + layer.eps
    ratio = (variance + layer.eps) / trained
    offset = (mean - layer.running_mean).square() / trained
    return (ratio - 1 - ratio.log() + offset).mean(-1) / 2
