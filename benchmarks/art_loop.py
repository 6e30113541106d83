"""What runs where adversarial-robustness-toolbox is installed: ``python -m benchmarks.art_loop WHAT
ARGUMENTS``.

``certify ARCHITECTURE N THREADS SIZES...`` prints noisy forwards a second by batch size, as JSON;
``step ARCHITECTURE METHOD IMAGES ROUNDS THREADS`` the seconds of a training step on so many noisy
images.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.common import CLASSES, ROUNDS, SIGMA, Architecture, network, side_by_side


def in_art(python: Path, *words: object) -> str:
    """Run this module in another environment; returns the last line it prints."""
    command = [str(python), "-m", "benchmarks.art_loop", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(f"error: {python} must run adversarial-robustness-toolbox, but failed")
    return done.stdout.splitlines()[-1]


def certify(architecture: str, n: str, threads: str, *sizes: str) -> dict[str, float]:
    """Return noisy forwards per second of ``certify``, which draws n0 = 100 and n samples."""
    import numpy as np
    import torch
    from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing

    torch.set_num_threads(int(threads))
    model, x = network(Architecture(architecture), torch.device("cpu"))
    images = x[None].numpy().astype(np.float32)
    smoothed = PyTorchRandomizedSmoothing(
        model.to(memory_format=torch.contiguous_format),
        torch.nn.CrossEntropyLoss(),
        images.shape[1:],
        CLASSES,
        device_type="cpu",
        sample_size=100,
        scale=SIGMA,
    )
    ways = {size: lambda size=size: smoothed.certify(images, int(n), int(size)) for size in sizes}
    return {size: (100 + int(n)) / seconds for size, seconds in side_by_side(ways, ROUNDS).items()}


def step(architecture: str, method: str, noisy: str, rounds: str, threads: str) -> float:
    """Seconds of ``fit`` on one batch, of 256 noisy images or, for MACER, of sixteen copies of each
    image.
    """
    import numpy as np
    import torch
    from art.estimators.certification import randomized_smoothing as of

    torch.set_num_threads(int(threads))
    model, _ = network(Architecture(architecture), torch.device("cpu"))
    model = model.to(memory_format=torch.contiguous_format)
    images = int(noisy) // (16 if method == "macer" else 1)
    x = np.random.default_rng(1).random(
        (images, *Architecture(architecture).shape), dtype=np.float32
    )
    y = np.random.default_rng(2).integers(CLASSES, size=images)
    common = {
        "model": model,
        "loss": torch.nn.CrossEntropyLoss(),
        "input_shape": x.shape[1:],
        "nb_classes": CLASSES,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4),
        "device_type": "cpu",
        "scale": SIGMA,
    }
    made = {
        "gaussian": lambda: of.PyTorchRandomizedSmoothing(**common),
        "smoothadv": lambda: of.PyTorchSmoothAdv(**common, num_noise_vec=1, num_steps=2),
        "macer": lambda: of.PyTorchMACER(**common, gaussian_samples=16),
    }[method]()
    fit = lambda: made.fit(x, y, batch_size=images, nb_epochs=1)  # noqa: E731
    fit()
    return side_by_side({"fit": fit}, int(rounds))["fit"]


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    print(json.dumps({"certify": certify, "step": step}[what](*words)))
