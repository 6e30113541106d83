"""The loss of a training method, for your own training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from rs import params
from rs.methods import method_class
from rs.methods.base import Method, NeedsTargets, Step
from rs.smoothing.inputs import LogitsOnly


@dataclass(frozen=True)
class Loss:
    """The loss of one method at one noise level; :func:`loss` makes it."""

    method: Method  # its hyper-parameters
    sigma: float  # noise standard deviation, in pixels of [0, 1]

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
            model: In train mode; images in [0, 1] (N, C, H, W), noisy and not clipped -> logits (N,
                K), or an output with the attribute ``logits``.
            x: Images without noise, shape (B, C, H, W), in [0, 1].
            y: Labels, shape (B,).
            epoch: Epochs finished so far, for warm-ups.
            rng: Stream of the noise, on the device of ``x``; ``None`` draws its seed from torch's
                global generator.
            targets: Class probabilities of each image, shape (B, K), for methods that need them
                (``cat-rs``).
        """
        if rng is None:
            rng = torch.Generator(x.device).manual_seed(int(torch.randint(2**63 - 1, ())))
        extra = {"targets": targets} if isinstance(self.method, NeedsTargets) else {}
        return self.method.loss(
            LogitsOnly(model), x, y, sigma=self.sigma, rng=rng, epoch=epoch, **extra
        )


def loss(method: str, sigma: float, **hyperparameters: Any) -> Loss:
    """Return the loss of a training method, with the hyper-parameters of its paper unless given.

    They come from ``defaults.METHOD`` in the params.yaml of this project. If one depends on the
    noise level, the value of the nearest level, by ratio, counts.

    Args:
        method: Key of ``rs.methods.METHODS``.
        sigma: Noise standard deviation, in pixels of [0, 1].
        hyperparameters: Fields of the method's class (``rs.methods.advmacer.AdvMacer``) that
            replace these values.
    Raises:
        InputError: If the method or a hyper-parameter is unknown, or a value is out of range.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    >>> images, labels = torch.rand(5, 3, 2, 2), torch.tensor([0, 1, 2, 0, 1])
    >>> step = loss("macer", sigma=0.25, draws=4)(model, images, labels)
    >>> step.loss.backward()
    """
    kind = method_class(method)
    params.check_sigma(sigma)
    preset = dict(params.section(params.packaged(), f"defaults.{method}"))
    preset.pop("training", None)
    values = params.for_sigma(preset, sigma, f"defaults.{method}", nearest=True) | hyperparameters
    return Loss(kind(**values), sigma)
