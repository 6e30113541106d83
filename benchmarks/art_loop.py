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
from functools import partial
from pathlib import Path

from benchmarks.common import CLASSES, ROUNDS, SIGMA, Architecture, network, side_by_side

TRAINERS = {
    "gaussian": ("PyTorchRandomizedSmoothing", 1, {}),
    "smoothadv": ("PyTorchSmoothAdv", 1, {"num_noise_vec": 1, "num_steps": 2}),
    "macer": ("PyTorchMACER", 16, {"gaussian_samples": 16}),
}
"""ART's class of each method, noisy copies of an image in a step, and options of the class."""


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
    ways = {size: partial(smoothed.certify, images, int(n), int(size)) for size in sizes}
    seconds = side_by_side(ways, ROUNDS)
    return {size: (100 + int(n)) / seconds[size] for size in sizes}


def step(architecture: str, method: str, noisy: str, rounds: str, threads: str) -> float:
    """Seconds of ``fit`` on one batch, of 256 noisy images or, for MACER, of sixteen copies of each
    image.
    """
    import numpy as np
    import torch
    from art.estimators.certification import randomized_smoothing

    torch.set_num_threads(int(threads))
    model, _ = network(Architecture(architecture), torch.device("cpu"))
    model = model.to(memory_format=torch.contiguous_format)
    name, copies, options = TRAINERS[method]
    images = int(noisy) // copies
    shape = (images, *Architecture(architecture).shape)
    x = np.random.default_rng(1).random(shape, dtype=np.float32)
    y = np.random.default_rng(2).integers(CLASSES, size=images)
    trainer = getattr(randomized_smoothing, name)(
        model=model,
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=x.shape[1:],
        nb_classes=CLASSES,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4),
        device_type="cpu",
        scale=SIGMA,
        **options,
    )
    fit = partial(trainer.fit, x, y, batch_size=images, nb_epochs=1)
    fit()
    return side_by_side({"fit": fit}, int(rounds))["fit"]


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    functions = {"certify": certify, "step": step}
    print(json.dumps(functions[what](*words)))
