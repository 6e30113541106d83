"""A made-up study of three methods on the disk, for the tests of everything that reads one."""

from pathlib import Path

import numpy as np
import pandas as pd

from rs import files, rows
from rs.radius import lower_bound, radius
from rs.results import Result

N0, N, ALPHA, IMAGES, CLASSES = 10, 200, 0.01, 12, 3
PARAMS = """\
sigmas: [0.25, 0.5]
methods: [gaussian, advmacer]
seeds: [0]
members: [advmacer]
member_seeds: [1]
tables: {radii: [0.0, 0.25, 0.5], reference: gaussian}
datasets: {tiny: {source: none}, cifar10-fast: {dataset: cifar10}}
recipes:
  tiny:
    training: {epochs: 4, batch: 8}
    gaussian: {}
    advmacer: {draws: 2, epsilon: {0.25: 0.1, 0.5: 0.2}, training: {epochs: 2}}
"""
CELLS = [("gaussian", 0), ("advmacer", 0), ("advmacer", 1)]
SIGMAS = (0.25, 0.5)


def make_rows(sigma: float, seed: int, **changes) -> pd.DataFrame:
    """Consistent rows of IMAGES images: votes drawn at random, class 0 chosen, labels 0 or 1."""
    rng = np.random.default_rng([seed, int(1000 * sigma)])
    votes = rng.integers(N // 4, N + 1, IMAGES)
    p_lower = lower_bound(votes, N, ALPHA)
    sure = p_lower >= 0.5
    label = rng.integers(0, 2, IMAGES)
    made = {
        "idx": np.arange(IMAGES),
        "label": label,
        "predict": np.where(sure, 0, rows.ABSTAIN),
        "radius": radius(p_lower, sigma),
        "correct": (sure & (label == 0)).astype(int),
        "p_lower": p_lower,
        "n0": N0,
        "n": N,
        "alpha": ALPHA,
        "sigma": sigma,
        "counts0": rows.format_counts([N0]),
        "counts": [rows.format_counts([v, N - v]) for v in votes],
        "mode": "certify",
        "scope": "model",
    }
    return pd.DataFrame(made | changes)


def labelled(frame: pd.DataFrame, label: np.ndarray) -> pd.DataFrame:
    """The rows with other labels, still consistent."""
    return frame.assign(label=label, correct=(frame["predict"] == label).astype(int))


def cell_rows(method: str, sigma: float, seed: int) -> pd.DataFrame:
    """The rows of a cell; every cell is of the same images, hence of the same labels."""
    key = 10 * [name for name, _ in CELLS].index(method) + seed
    return labelled(make_rows(sigma, key), np.arange(IMAGES) % 2)


def make_study(root: Path) -> Path:
    """Write parameters, rows, sidecars and logs of the study; return ``root``."""
    files.write_text(root / "params.yaml", PARAMS)
    for sigma in SIGMAS:
        for k, (method, seed) in enumerate(CELLS):
            out = root / "results" / str(sigma) / f"{method}-{seed}.tsv"
            rows.write(cell_rows(method, sigma, seed), out)
            side = {"subset": "first-12", "n0": N0, "n": N, "alpha": ALPHA, "sigma": sigma, "classes": CLASSES}
            files.write_json(out.with_suffix(".json"), side)
            log = root / "logs" / str(sigma) / method / str(seed)
            files.write_text(log / "history.csv", "epoch,loss,acr\n1,0.5,\n2,0.4,0.2\n3,0.3,\n4,0.2,0.1\n")
            lines = [f"{epoch},{(k + 1) * epoch * 1.5}\n" for epoch in (1, 2, 3, 4)]
            files.write_text(log / "timing.csv", "epoch,seconds\n" + "".join(lines))
    return root


def result(method, radii, correct=None, sigma=0.5, seed=0, **changes):
    """A result whose rows have these radii; ``changes`` of n, subset and so on."""
    size = len(radii)
    correct = [1] * size if correct is None else correct
    budget = {name: changes.pop(name, value) for name, value in (("n0", N0), ("n", N), ("alpha", ALPHA))}
    frame = pd.DataFrame({"idx": range(size), "label": 0, "radius": radii, "correct": correct} | budget)
    made = {"subset": "all", "training_seconds": 60.0} | changes
    return Result(method, sigma, seed, frame.assign(sigma=sigma), **made)
