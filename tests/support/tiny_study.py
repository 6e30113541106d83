"""A made-up study of three methods on the disk, for the tests of everything that reads one."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from scipy.special import ndtr

from rs.params import read_params
from rs.reporting.load import StudyFiles
from rs.reporting.results import Result
from rs.statistics.certificate import ABSTAIN
from rs.statistics.radius import lower_bound, radius
from rs.storage import certificate_rows, files
from tests.support.helpers import write_row_file

N0, N, ALPHA, IMAGES, CLASSES = 10, 200, 0.01, 12, 3
BUDGET = {"n0": N0, "n": N, "alpha": ALPHA}
PARAMS = """\
sigmas: [0.25, 0.5]
methods: [gaussian, advmacer]
seeds: [0]
members: [advmacer]
member_seeds: [1]
tables: {radii: [0.0, 0.25, 0.5], reference: gaussian, combination: average, remarks: []}
combinations:
  average: {rule: softmax, weights: equal, scope: global}
  per-image: {rule: softmax, weights: optimal, scope: per-image, target: label}
ensembles:
  advmacer 0-1:
    members: {advmacer: [0, 1]}
    combinations: [average, per-image]
  gaussian 0 + advmacer 0:
    members: {gaussian: [0], advmacer: [0]}
    combinations: [average]
datasets: {tiny: {source: none}, cifar10-cpu: {dataset: cifar10}}
recipes:
  tiny:
    arithmetic: native
    training: {epochs: 4, batch: 8}
    gaussian: {}
    advmacer: {draws: 2, epsilon: {0.25: 0.1, 0.5: 0.2}, training: {epochs: 2}}
"""
CELLS = [("gaussian", 0), ("advmacer", 0), ("advmacer", 1)]
ENSEMBLES = ["advmacer-0-1.average", "advmacer-0-1.per-image", "gaussian-0+advmacer-0.average"]
FAMILY = ["advmacer-0-1.average", "advmacer-0-2.average", "advmacer-1-2.average"]
"""What the study with families has of two of its three AdvMacers; the first is an ensemble by seeds
as well.
"""

SIGMAS = (0.25, 0.5)
SPREADS = """\
ensemble,members,source,images,alpha,beta,variance,within,across
advmacer x2,advmacer 0-1,perturbed,12,0.4,0.2,0.3,0.2,
advmacer x2,advmacer 0-1,trained,12,0.5,0.2,0.4,0.2,
gaussian x1 + advmacer x1,gaussian 0 + advmacer 0,perturbed,12,0.4,0.1,0.3,,0.1
gaussian x1 + advmacer x1,gaussian 0 + advmacer 0,trained,12,0.5,0.1,0.4,,0.1
"""
BOUNDS = """\
ensemble,members,combination,images,bound,bound_minimum,measured,other_class
advmacer x2,advmacer 0-1,average,12,0.5,0.4,0.9,0.0
advmacer x2,advmacer 0-1,per-image,12,0.6,0.5,0.9,0.0
gaussian x1 + advmacer x1,gaussian 0 + advmacer 0,average,12,0.55,0.5,0.95,0.0
"""


def make_rows(sigma, seed, **changes):
    """Consistent rows of IMAGES images: votes drawn at random, class 0 chosen, labels 0 or 1."""
    rng = np.random.default_rng([seed, int(1000 * sigma)])
    votes = rng.integers(N // 4, N + 1, IMAGES)
    p_lower = lower_bound(votes, N, ALPHA)
    sure = p_lower >= 0.5
    label = rng.integers(0, 2, IMAGES)
    made = {
        "idx": np.arange(IMAGES),
        "label": label,
        "predict": np.where(sure, 0, ABSTAIN),
        "radius": radius(p_lower, sigma),
        "correct": (sure & (label == 0)).astype(int),
        "p_lower": p_lower,
        **BUDGET,
        "sigma": sigma,
        "counts0": certificate_rows.format_counts([N0]),
        "counts": [certificate_rows.format_counts([v, N - v]) for v in votes],
        "mode": "certify",
        "scope": "model",
    }
    return pd.DataFrame(made | changes)


def labeled(frame, label):
    """The rows with other labels, still consistent."""
    return frame.assign(label=label, correct=(frame["predict"] == label).astype(int))


def at_radii(frame, *radii):
    """The rows of runs that ask only which of these increasing radii are certified."""
    place = np.searchsorted(radii, frame["radius"], side="right") - 1
    is_certified = (frame["predict"] != ABSTAIN) & (place >= 0)
    largest = np.where(is_certified, np.array(radii)[place], 0.0)
    return frame.assign(
        mode=f"at-radius:{','.join(map(str, radii))}:{N}",
        predict=frame["predict"].where(is_certified, ABSTAIN),
        correct=frame["correct"].where(is_certified, 0),
        radius=largest,
        p_lower=np.where(is_certified, ndtr(largest / frame["sigma"]), 0.0),
    )


def cell_rows(method, sigma, seed):
    """The rows of a cell; every cell is of the same images, hence of the same labels."""
    key = 10 * [name for name, _ in CELLS].index(method) + seed
    return labeled(make_rows(sigma, key), np.arange(IMAGES) % 2)


def write_rows(frame, out):
    """Write rows and their sidecar."""
    write_row_file(frame, out)
    method, _, seed = out.stem.rpartition("-")
    scope, sigma = frame["scope"][0], frame["sigma"][0]
    folder = f"tiny/{sigma}"
    single = method.isalpha() and seed.isdecimal()
    model = f"models/{folder}/{method}/{seed}" if single else f"ensembles/{folder}/{out.stem}.json"
    side = {
        "model": model,
        "scope": scope,
        "subset": "first-12",
        **BUDGET,
        "sigma": sigma,
        "classes": CLASSES,
    }
    files.write_json(out.with_suffix(".json"), side)


def ensemble_rows(slug, sigma):
    """The rows of an ensemble, of the images of the cells."""
    scope = "per-image" if slug.endswith("per-image") else "global"
    made = make_rows(
        sigma, 100 + list(dict.fromkeys([*ENSEMBLES, *FAMILY])).index(slug), scope=scope
    )
    return labeled(made, np.arange(IMAGES) % 2)


def add_family(root):
    """Add a third AdvMacer and every ensemble of two of them to the study; return ``root``."""
    entry = "  advmacer x2:\n    members: {advmacer: 2}\n    combinations: [average]\ndatasets:"
    more = PARAMS.replace("member_seeds: [1]", "member_seeds: [1, 2]").replace(
        "datasets:", entry, 1
    )
    files.write_text(root / "params.yaml", more)
    for sigma in SIGMAS:
        pool, logs = root / "results" / str(sigma) / "pool", root / "logs" / str(sigma) / "advmacer"
        write_rows(cell_rows("advmacer", sigma, 2), pool / "advmacer-2.tsv")
        shutil.copytree(logs / "1", logs / "2")
        for slug in FAMILY[1:]:
            write_rows(ensemble_rows(slug, sigma), pool / f"{slug}.tsv")
    return root


def make_study(root):
    """Write parameters, rows, sidecars, logs and the theory of the study; return ``root``."""
    for name, content in study_files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def read_study(root, **changes):
    """The study in ``root``; ``changes`` of its folders."""
    folders = {name: root / name for name in ("results", "weights", "logs")}
    return StudyFiles(read_params(root / "params.yaml"), "tiny", **folders | changes)


@cache
def study_files():
    """Return the files of the study, which many tests change a copy of."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        compute_study(root)
        return {
            path.relative_to(root): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


def compute_study(root):
    """Write what :func:`make_study` copies."""
    files.write_text(root / "params.yaml", PARAMS)
    for sigma in SIGMAS:
        results, bounds = (
            root / "results" / str(sigma),
            root / "weights" / str(sigma) / "bounds.csv",
        )
        for slug in ENSEMBLES:
            write_rows(ensemble_rows(slug, sigma), results / "pool" / f"{slug}.tsv")
        files.write_text(bounds.with_name("spreads.csv"), SPREADS)
        files.write_text(bounds, BOUNDS)
        times = root / "logs" / str(sigma)
        files.write_text(times / "weights.csv", f"seconds,bounds\n0.25,{files.sha256(bounds)}\n")
        for k, (method, seed) in enumerate(CELLS):
            for folder in (results / "pool",) if seed else (results, results / "pool"):
                write_rows(cell_rows(method, sigma, seed), folder / f"{method}-{seed}.tsv")
            log = times / method / str(seed)
            files.write_text(
                log / "history.csv", "epoch,loss,acr\n1,0.5,\n2,0.4,0.2\n3,0.3,\n4,0.2,0.1\n"
            )
            lines = [f"{epoch},{(k + 1) * epoch * 1.5}\n" for epoch in (1, 2, 3, 4)]
            files.write_text(log / "timing.csv", "epoch,seconds\n" + "".join(lines))
            files.write_json(log / "provenance.json", {"device": "cpu", "training_seconds": 60.0})
        names = ["advmacer-0", "advmacer-1", "gaussian-0", *ENSEMBLES]
        sidecars = [files.sha256(results / "pool" / f"{name}.json") for name in names]
        alone = [
            f"{name},{1 + k}.5,{sidecar}\n"
            for k, (name, sidecar) in enumerate(zip(names, sidecars, strict=True))
        ]
        files.write_text(times / "alone.csv", "classifier,seconds,sidecar\n" + "".join(alone))


def result(name, radii, correct=None, sigma=0.5, seed=0, **changes):
    """A result whose rows have these radii; ``changes`` of n, subset and so on."""
    size = len(radii)
    correct = [1] * size if correct is None else correct
    budget = {name: changes.pop(name, value) for name, value in BUDGET.items()}
    frame = pd.DataFrame(
        {"idx": range(size), "label": 0, "radius": radii, "correct": correct} | budget
    )
    made = {"subset": "all", "training_seconds": 60.0} | changes
    return Result(name=name, sigma=sigma, seed=seed, rows=frame.assign(sigma=sigma), **made)
