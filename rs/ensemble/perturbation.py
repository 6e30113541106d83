"""Margins under noise on the image and on the parameters (the paper's Algorithm 2, "PerturbModel" and "Estimation").

The perturbed parameters stand in for other random seeds in training, which would cost a training each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from rs.errors import InputError
from rs.params import Count, NonNegative, validated
from rs.runtime.streams import Stream, stream
from rs.smoothing.attack import evaluating
from rs.smoothing.classifier import default_batch
from rs.smoothing.noise import certification_noise

NOISE, PARAMETERS, CHOICE = 0, 1, 2
"""Second word of the keys in Stream.WEIGHTS: noise is keyed by image, perturbations by member and copy; the last one
is of the choice of the images that weights are fitted on."""


@validated
class Perturbation:
    """Noise on the image and on the parameters: how many draws of each, and how parameters are perturbed."""

    noises: Count  # the paper's n: noisy copies of an image
    copies: Count  # the paper's m: perturbed copies of a member
    share: Annotated[float, Field(ge=0, le=1)]  # the paper's t: of the parameters, that are perturbed
    scale: NonNegative  # the paper's sigma_tilde: std of the perturbation, in units of the parameters

    def without_parameters(self) -> Self:
        """Return the same noise on the image alone."""
        return replace(self, copies=1, share=0.0)


def perturbed_parameters(
    model: nn.Module, share: float, scale: float, seed: int, member: int, copy: int
) -> dict[str, Tensor]:
    """Parameters of a perturbed copy: to each number, with probability ``share``, N(0, scale^2) is added.

    Buffers (the statistics of batch norm) are not among them, and the model is left as it is. The numbers are drawn on
    the CPU, whatever the device, and depend on ``(seed, member, copy)`` alone: a copy is one model for all images.

    Args:
        model: The member; all its parameters can be perturbed, frozen or not.
        share: The paper's t, in [0, 1].
        scale: The paper's sigma_tilde, in units of the parameters; at least 0.
        seed, member, copy: Name the perturbation.
    Returns:
        New tensors by name, for ``torch.func.functional_call``.
    """
    rng = stream(seed, Stream.WEIGHTS, PARAMETERS, member, copy)
    copies = {}
    for name, parameter in model.named_parameters():
        chosen = torch.rand(parameter.shape, generator=rng) < share
        noise = scale * torch.randn(parameter.shape, generator=rng)
        copies[name] = parameter.detach() + torch.where(chosen, noise, 0.0).to(parameter)
    return copies


def noisy_copies(x: Tensor, noises: int, sigma: float, seed: int, index: int, repeat: int = 0) -> Tensor:
    """Noisy copies of image ``index`` to fit weights on, (C, H, W) -> (noises, C, H, W); never those that certify.

    ``repeat`` 1, 2, ... are further copies, independent of the first ones.
    """
    key, end = (seed, Stream.WEIGHTS, NOISE, index), (repeat + 1) * noises
    draws = range(end - noises, end)
    return x + certification_noise(draws, x.shape, sigma, *key, device=x.device)


def perturbed_probabilities(
    members: Sequence[nn.Module],
    xs: Tensor,
    perturbation: Perturbation,
    *,
    sigma: float,
    seed: int,
    indices: Sequence[int],
    names: Sequence[int] | None = None,
    repeat: int = 0,
    batch: int | None = None,
) -> NDArray[np.float64]:
    """Softmax outputs of every member, perturbed copy and noisy image.

    All members and copies see the same noisy images. Copies are evaluated one after the other: on a CPU
    ``torch.func.vmap`` over them is no faster from some hundred noisy images on, and would hold all of them.

    Args:
        members: L classifiers, images (N, C, H, W) -> logits (N, K); in eval mode here, and left as they are.
        xs: Images in [0, 1], shape (B, C, H, W), on the device of the members. All their noisy copies are held.
        perturbation: n noisy copies of an image and m perturbed copies of a member.
        sigma: Noise standard deviation, in pixels of [0, 1].
        seed: Of the noise, which ``indices`` name image by image, and of the perturbations.
        indices: Numbers of the images, shape (B,).
        names: Numbers that name the members' perturbations, at least 0, shape (L,); their positions if ``None``.
        repeat: 0, or 1, 2, ... for other noise and other copies, independent of those of 0.
        batch: Noisy images evaluated at once; chosen by the size of an image if ``None``.
    Returns:
        Probabilities, shape (B, L, m n, K); draw ``j n + i`` is copy j on noisy image i.
    Raises:
        ValueError: If an argument leaves its range, or a member's outputs are not finite.
    """
    if not members:
        raise ValueError("there must be at least one member, got none")
    if xs.ndim != 4 or not len(xs) == len(indices) > 0:
        raise ValueError(f"images (B, C, H, W) must come with B indices, got {tuple(xs.shape)} and {len(indices)}")
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma must be finite and at least 0, got {sigma}")
    if batch is not None and batch < 1:
        raise InputError(f"batch must be at least 1, got {batch}; it is the number of noisy images evaluated at once")
    noises, copies, share, scale = perturbation.noises, perturbation.copies, perturbation.share, perturbation.scale
    noisy = torch.cat([noisy_copies(x, noises, sigma, seed, i, repeat) for x, i in zip(xs, indices, strict=True)])
    at_once = batch or default_batch(xs[0])
    outputs = [
        _probabilities(member, perturbed_parameters(member, share, scale, seed, name, copy), noisy, at_once)
        for name, member in zip(names or range(len(members)), members, strict=True)
        for copy in range(repeat * copies, (repeat + 1) * copies)
    ]
    p = np.stack(outputs).reshape(len(members), copies, len(xs), noises, -1)  # (L, m, B, n, K)
    return np.moveaxis(p, 2, 0).reshape(len(xs), len(members), copies * noises, -1)  # (B, L, m n, K)


def margins(probabilities: NDArray[np.float64], ys: NDArray[np.int64] | Tensor | Sequence[int]) -> NDArray[np.float64]:
    """Margins z_i = p_y - p_i of outputs (B, L, N, K) and classes (B,); those of class y itself are exactly 0.

    Raises:
        ValueError: If there is not one class in [0, K) for each image.
    """
    classes = torch.as_tensor(ys).cpu().numpy()
    if classes.shape != probabilities.shape[:1]:
        raise ValueError(f"there must be one class for each of {len(probabilities)} images, got {classes.shape}")
    if not ((classes >= 0) & (classes < probabilities.shape[-1])).all():
        raise ValueError(f"ys must be classes in [0, {probabilities.shape[-1]}), got {classes.tolist()}")
    return np.take_along_axis(probabilities, classes[:, None, None, None], axis=-1) - probabilities


def _probabilities(member: nn.Module, parameters: dict[str, Tensor], x: Tensor, at_once: int) -> NDArray[np.float64]:
    """Softmax outputs of a member with these parameters; (N, C, H, W) -> (N, K)."""
    with torch.inference_mode(), evaluating(member):
        logits = [functional_call(member, parameters, (part,)) for part in x.split(at_once)]
        p = torch.softmax(torch.cat(logits).double(), dim=-1).cpu().numpy()
    if not np.isfinite(p).all():
        raise ValueError("outputs of a perturbed member must be finite, got NaN; perturb less, or look at its weights")
    return p
