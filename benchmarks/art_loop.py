"""The part of ``benchmarks.forwards`` that runs where adversarial-robustness-toolbox is installed.

Arguments: architecture, n, threads, batch sizes. Prints noisy forwards a second by batch size, as JSON.
"""

import json
import sys
import time
from statistics import median


def main(architecture: str, n: int, threads: int, sizes: list[int]) -> None:
    """Measure ``certify``, which draws n0 = n // 10 and n noisy copies of its own."""
    import numpy as np
    import torch
    from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing

    from benchmarks.forwards import CLASSES, ROUNDS, SIGMA, network
    from benchmarks.pool import Architecture

    torch.set_num_threads(threads)
    model, x = network(Architecture(architecture), torch.device("cpu"))
    model = model.to(memory_format=torch.contiguous_format)
    images = x[None].numpy().astype(np.float32)
    speeds = {}
    for size in sizes:
        smoothed = PyTorchRandomizedSmoothing(
            model,
            torch.nn.CrossEntropyLoss(),
            images.shape[1:],
            CLASSES,
            device_type="cpu",
            sample_size=100,
            scale=SIGMA,
        )
        rounds = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            smoothed.certify(images, n, size)
            rounds.append((100 + n) / (time.perf_counter() - begun))
        speeds[size] = median(rounds)
    print(json.dumps(speeds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(word) for word in sys.argv[4:]])
