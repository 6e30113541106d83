"""Attacks on the soft smoothed classifier, in l2.

Every attack maximizes ``J_i(u) = -log z_hat(x_i + u_i; noise_i)[y_i]`` over one perturbation u_i
per image, shared by its M noisy copies, with the noise drawn once beforehand and the model in eval
mode (Salman et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rs.params import PIXELS, Bounds
from rs.smoothing.inputs import evaluating
from rs.smoothing.noise import add_noise
from rs.smoothing.soft import LOG_CLAMP, gradient_of, soft_probabilities, to_float32


def forward(model: nn.Module, x: Tensor, noise: Tensor) -> Tensor:
    """Compute the logits (B, M, K) of images (B, C, H, W) with noise (B, M, C, H, W)."""
    return model(add_noise(x, noise)).unflatten(0, noise.shape[:2])


class Tempered(nn.Module):
    """A network whose logits are multiplied by the inverse temperature ``beta``, in float32."""

    def __init__(self, network: nn.Module, beta: float) -> None:
        super().__init__()
        self.network = network
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W)."""
        return self.beta * to_float32(self.network(x))


def objective(logits: Tensor, y: Tensor) -> Tensor:
    """Compute J_i = -log max(z_hat_i[y_i], 1e-20) of logits (B, M, K), shape (B,).

    The logarithm is outside the mean over samples. One sample needs no clamp: it is the
    cross-entropy, whose gradient does not vanish however wrong the model is.
    """
    if logits.shape[1] == 1:
        return F.cross_entropy(to_float32(logits).squeeze(1), y, reduction="none")
    p = soft_probabilities(logits).gather(1, y.unsqueeze(1)).squeeze(1)
    return -p.clamp_min(LOG_CLAMP).log()


def gradient(model: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Compute the gradient of sum_i J_i in x, shape (B, C, H, W).

    Images are independent in eval mode, so the sum gives each image its own gradient.
    """
    return gradient_of(lambda point: objective(forward(model, point, noise), y), x)[1]


def noise_gradient(
    model: nn.Module, x: Tensor, noise: Tensor, objective: Callable[[Tensor], Tensor]
) -> Tensor:
    """Compute the gradient in the noise of an objective of the logits of ``x + noise``.

    Images and noise have the shape (N, C, H, W).
    """
    return gradient_of(lambda moved: objective(to_float32(model(x + moved))), noise)[1]


def per_input(values: Tensor, x: Tensor) -> Tensor:
    """Return one value per input, (B,), as (B, 1, ...), which multiplies inputs ``x`` (B, ...)."""
    return values.view(-1, *[1] * (x.ndim - 1))


def norms(u: Tensor) -> Tensor:
    """Return the l2 norm of each input, shape (B, 1, ...)."""
    return per_input(u.flatten(1).norm(dim=1), u)


def clip(x: Tensor, bounds: Bounds) -> Tensor:
    """Clip inputs to their bounds, if they have any."""
    return x if bounds is None else x.clamp(*bounds)


def unit(g: Tensor, rng: torch.Generator) -> Tensor:
    """Scale each gradient to norm 1; an exactly zero one becomes N(0, I), not normalized.

    This is the rule of Salman et al. (2019), in their code. The random numbers are drawn whether or
    not they are needed, so that the stream does not depend on the gradients.
    """
    length = norms(g)
    fallback = torch.randn(g.shape, generator=rng, device=g.device, dtype=g.dtype)
    return torch.where(length == 0, fallback, g / torch.where(length == 0, 1.0, length))


def project(u: Tensor, epsilon: float | Tensor) -> Tensor:
    """Pull each perturbation into the l2 ball of radius epsilon: u * min(1, epsilon / ||u||)."""
    return u * (epsilon / norms(u).clamp_min(torch.finfo(u.dtype).tiny)).clamp_max(1.0)


def ascend(
    slope: Callable[[Tensor], Tensor],
    x: Tensor,
    u: Tensor,
    steps: int,
    epsilon: float | Tensor,
    rng: torch.Generator,
    *,
    bounds: Bounds = PIXELS,
) -> Tensor:
    """Return the perturbation after projected gradient ascent from ``u``; see :func:`pgd`.

    Args:
        slope: Points (B, C, H, W) -> gradients.
        x: Images, shape (B, C, H, W).
        u: Perturbations at the start.
        steps: Number of steps, each of length 2 epsilon / steps.
        epsilon: Radius of the ball, in pixels of [0, 1]; one or one per image, (B, 1, 1, 1).
        rng: Directions of images with a gradient of exactly 0.
        bounds: The box of images; ``None`` for none.
    """
    for _ in range(steps):
        u = u + 2 * epsilon / steps * unit(slope(x + u), rng)
        u = project(clip(x + u, bounds) - x, epsilon)
    return u


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    steps: int,
    epsilon: float,
    *,
    rng: torch.Generator | None = None,
    bounds: Bounds = PIXELS,
) -> Tensor:
    """Attack by projected gradient ascent, as SmoothAdv does (Salman et al. 2019).

        g = grad J(u) / ||grad J(u)||,   u <- u + (2 epsilon / T) g,
        then into the box of the bounds,   then into the ball

    in this order, from u = 0, so the result is in the box and in the ball (a convex combination of
    two box points).

    Args:
        model: Images (N, C, H, W) -> logits (N, K); attacked in eval mode, its mode is restored.
        x: Images, shape (B, C, H, W), or other inputs (B, ...), within the bounds.
        y: Labels, shape (B,).
        noise: The draws, shape (B, M, C, H, W); the same in every step.
        steps: T >= 0; 0 returns ``x``.
        epsilon: Radius of the ball, in the unit of the inputs.
        rng: Where the direction of an image with a gradient of exactly 0 comes from; a fixed stream
            if ``None``.
        bounds: The least and the largest value of inputs.
    Returns:
        x_hat, shape (B, C, H, W), detached.
    """
    rng = rng if rng is not None else torch.Generator(x.device).manual_seed(0)
    x = x.detach()

    def slope(point: Tensor) -> Tensor:
        return gradient(model, point, y, noise)

    with evaluating(model):
        return x + ascend(slope, x, torch.zeros_like(x), steps, epsilon, rng, bounds=bounds)


def mixing_path(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    steps: int,
    step_size: float,
    bounds: Bounds = PIXELS,
) -> list[Tensor]:
    """Attack as SmoothMix does: return the iterates x_0 = x, ..., x_T of an ascent in the box.

    x_{t+1} = clip(x_t + alpha g / (||g|| + 1e-8))                          (Jeong et al. 2021)
    """
    path = [x.detach()]
    with evaluating(model):
        for _ in range(steps):
            g = gradient(model, path[-1], y, noise)
            path.append(clip(path[-1] + step_size * g / (norms(g) + 1e-8), bounds))
    return path


def projected_path_attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    steps: int,
    epsilon: float,
    bounds: Bounds = PIXELS,
) -> Tensor:
    """Attack by Jeong's variant of :func:`pgd`: into the ball first, then into the box.

    So the result may be nearer than the ball allows.
    """
    x = x.detach()
    point = x
    with evaluating(model):
        for _ in range(steps):
            g = gradient(model, point, y, noise)
            u = project(point + 2 * epsilon / steps * g / (norms(g) + 1e-8) - x, epsilon)
            point = clip(x + u, bounds)
    return point
