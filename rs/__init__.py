"""Certified robustness by randomized smoothing.

>>> import numpy as np, torch, rs
>>> def model(x):  # any nn.Module or function: images (N, C, H, W) in [0, 1] -> logits (N, K)
...     brightness = x.mean(dim=(1, 2, 3))
...     return torch.stack([0.5 - brightness, brightness - 0.5], dim=1)
>>> smoothed = rs.SmoothedClassifier(model, sigma=0.25)  # or rs.load("models/...").smooth()
>>> image = np.full((8, 8, 3), 220, dtype=np.uint8)  # or a tensor (C, H, W), or a Pillow image
>>> print(smoothed.certify(image, n0=100, n=1_000, alpha=0.001))
class 1, l2 radius 0.6158 in input units, p >= 0.9931, n = 1,000, alpha = 0.001, grid noise
>>> [certificate.predict for certificate in smoothed.certify_many([image, 255 - image])]
[1, 0]

The smoothed classifier gives this class to every image within the radius, with probability at least
1 - alpha over the noise that was drawn. The class is ``rs.ABSTAIN`` where none is certified.

One package per concept; docs/architecture.md draws them, and tests/test_imports.py lists which may
import which:

    statistics      bounds, radii and tests, without torch and without files
    study           what params.yaml declares
    runtime         the machine: devices, arithmetic, processes, random streams
    storage         files, and certificate rows
    data            data sets
    models          networks and checkpoints
    smoothing       the smoothed classifier
    methods         one training method per file
    training        the training loop
    ensemble        ensembles before smoothing
    certification   from classifiers to rows
    reporting       from rows to tables, pictures and claims
    command_line    the command rs, and how functions become programs
    errors, params, recipes  what all of them may import
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rs.errors import DISTRIBUTION

MODULES = {
    "ABSTAIN": "rs.statistics.certificate",
    "Certificate": "rs.statistics.certificate",
    "Denoised": "rs.models.denoised",
    "DiffusionDenoiser": "rs.models.denoised",
    "InputError": "rs.errors",
    "Normalize": "rs.models.architectures",
    "SmoothedClassifier": "rs.smoothing.classifier",
    "load": "rs.certification.load",
    "loss": "rs.methods.loss",
    "train": "rs.training.train",
    "uses": "rs.models.fingerprint",
    "write_certificates": "rs.storage.row_writer",
}
__all__ = ["__version__", *MODULES]


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use, because torch takes seconds to load."""
    if name == "__version__":
        return import_module("importlib.metadata").version(DISTRIBUTION)
    if name not in MODULES:
        raise AttributeError(f"module 'rs' has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
