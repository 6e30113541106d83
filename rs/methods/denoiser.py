"""Training a denoiser before a frozen classifier (Salman et al. 2020, arXiv:2003.01908)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from rs.errors import InputError
from rs.methods.base import Step, accuracy
from rs.models.denoised import Denoised, DenoiserSize
from rs.params import validated
from rs.smoothing.inputs import logits_of
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import to_float32
from rs.statistics.certificate import UNLABELED


@validated
class DenoiserMse(DenoiserSize):
    """Squared error of the denoised images, 1/(2B) sum_i ||D(x_i + d_i) - x_i||^2.

    Denoised smoothing takes the mean over pixels: the scale does not matter to its optimizer, Adam.
    SGD, here, needs the scale of the sum (Zhang et al. 2017).
    """

    steps_per_batch = 1

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        denoised = _denoised(model)
        images = to_float32(denoised.denoise(x + training_noise(x, 1, sigma, rng)[:, 0], sigma))
        loss = (images - x).square().sum() / (2 * len(x))
        with torch.no_grad():
            logits = logits_of(denoised.network(images))
        return Step(loss, loss, torch.zeros_like(loss), _accuracy_if_labeled(logits, y))


@validated
class DenoiserStability(DenoiserSize):
    """Cross-entropy of denoised images against the prediction of the clean image, without labels.

    1/B sum_i CE(f(D(x_i + d_i)), argmax f(x_i))
    """

    steps_per_batch = 1

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        denoised = _denoised(model)
        with torch.no_grad():
            predicted = logits_of(denoised.network(x)).argmax(dim=-1)
        logits = to_float32(logits_of(denoised(x + training_noise(x, 1, sigma, rng)[:, 0])))
        loss = F.cross_entropy(logits, predicted)
        return Step(loss, loss, torch.zeros_like(loss), _accuracy_if_labeled(logits, y))


def _accuracy_if_labeled(logits: Tensor, y: Tensor) -> Tensor:
    """Return the share of images (B, K) that are classified correctly; NaN of unlabeled ones."""
    correct = accuracy(logits.unsqueeze(1), y)
    return torch.where((y == UNLABELED).any(), torch.full_like(correct, math.nan), correct)


def _denoised(model: nn.Module) -> Denoised:
    for module in model.modules():
        if isinstance(module, Denoised):
            return module
    raise InputError(
        "the model must contain an rs.Denoised, whose denoiser is trained, got "
        f"{type(model).__name__}; put a denoiser before the classifier, and use the engine plain"
    )
