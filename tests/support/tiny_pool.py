"""A tiny pool: data, models whose weights are set by hand, and ensembles with their weights."""

import itertools
import json
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from rs.data.images import load_images
from rs.ensemble.declare import read_pool, write_ensembles
from rs.ensemble.fit_weights import fit_weights
from rs.ensemble.member_outputs import MemberOutputs, WeightSettings
from rs.models import checkpoint
from rs.smoothing.settings import CertificationSettings
from tests.support.combinations import GOOD, named
from tests.support.helpers import CERTIFY, write_params, write_tiny
from tests.support.untrained import CARD

CPU = torch.device("cpu")
SIGMA = 0.25
CLASSES = ("left", "right", "top")
POOL = [("gaussian", 0), ("macer", 0), ("macer", 1)]
"""The members, each of which looks at another pixel of every quadrant; all but the last one take
the class top for left.
"""
SETTINGS = WeightSettings(noises=8, copies=2, share=0.3, scale=0.05, draws=12, images=20, seed=5)
CERTIFICATION = CertificationSettings(**CERTIFY | {"n": 60, "seed": 4})
FEW = replace(CERTIFICATION, n0=3)
BATCH = 1
"""Noisy images are evaluated one by one, as slow loops do, so that bytes can be compared."""
GRID = {
    "sigmas": [SIGMA],
    "methods": ["gaussian", "macer"],
    "seeds": [0],
    "members": ["macer"],
    "member_seeds": [1],
}
COMBINATIONS = {name: GOOD[name] for name in ("optimal", "radius", "vote", "mme", "per-image")} | {
    "average": GOOD["equal"],
    "turned": GOOD["printed"],
    "cascade": GOOD["cascade"] | {"share": 0.02},
    "label": GOOD["per-image"] | {"target": "label"},
    "printed": GOOD["per-image, printed"],
}
ENSEMBLES = [
    {
        "members": {"macer": [0, 1]},
        "combinations": ["average", "optimal", "turned", "label", "printed"],
    },
    {
        "members": {"gaussian": [0], "macer": [0, 1]},
        "combinations": ["average", "optimal", "radius", "mme", "cascade", "per-image"],
    },
    {"members": {"macer": [1], "gaussian": [0]}, "combinations": ["optimal", "vote"]},
]
PAIR, ALL, TURNED = "macer-0-1", "gaussian-0+macer-0-1", "macer-1+gaussian-0"
"""Names of the three, in file names; the members of the last one are not in the order of the pool.
"""


def load_split(split, folder="data"):
    """One split of a data set in the current folder."""
    return load_images(Path(folder), split)


def write_three(folder, **sizes):
    """Write images (N, 1, 4, 4) with a bright left, right or upper half; labels 0, 1, 2, 0, ..."""
    write_tiny(folder, **sizes, classes=CLASSES)


SEES = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0]])
"""What each class is to a member: the mean of two of the four pixels, upper left, upper right,
lower left and right.
"""


def save_member(method, seed, gain=1.0):
    """Save a small network whose weights are set by hand.

    It keeps a number and its negative, as rectified numbers; looks at one pixel of each quadrant;
    and takes the four apart. A blind one never says top, and rather left than right.
    """
    card = replace(CARD, classes=list(CLASSES), method=method, sigma=SIGMA, seed=seed)
    model = card.build(0)
    row, column = divmod(POOL.index((method, seed)), 2)
    convolutions = [layer for layer in model.network.features if isinstance(layer, nn.Conv2d)]
    with torch.no_grad():
        for layer in (*convolutions, model.network.fc):
            layer.weight.zero_()
        model.network.fc.bias.zero_()
        for sign, value in enumerate((1.0, -1.0)):
            convolutions[0].weight[sign, 0, 1, 1] = value
            convolutions[1].weight[sign, sign, 1 + row, 1 + column] = 1.0
            for quadrant, (i, j) in enumerate(itertools.product((1, 2), (1, 2))):
                convolutions[2].weight[4 * sign + quadrant, sign, i, j] = 1.0
            model.network.fc.weight[:, 4 * sign : 4 * sign + 4] = value * gain * SEES
        if (method, seed) != POOL[-1]:
            model.network.fc.bias.copy_(torch.tensor([0.8, 0.0, -30.0]))
    checkpoint.save(Path("models", method, str(seed)), model, card)


def make_ensembles(out, ensembles=ENSEMBLES, **grid):
    """The folder ``out`` of ensembles, in the current folder."""
    values = GRID | grid | {"combinations": COMBINATIONS, "ensembles": named(*ensembles)}
    sections = {"weights": vars(SETTINGS), "pool": {"timed": 0}, "certify": vars(CERTIFICATION)}
    made = json.loads(write_params(Path(f"{out}.yaml"), **sections).read_text()) | values
    Path(f"{out}.yaml").write_text(json.dumps(made))
    write_ensembles(made, "tiny", SIGMA, Path("models"), Path(out))


def make_pool(root):
    """Data, models, parameters and ensembles, in ``root``."""
    with chdir(root):
        write_three(Path("data"))
        for method, seed in POOL:
            save_member(method, seed)
        make_ensembles("ensembles")
    return root


def pool_members():
    """The members of the pool, loaded one by one."""
    return [checkpoint.load_model(Path("models", method, str(seed)))[0] for method, seed in POOL]


def load_outputs():
    """Outputs of the members of the pool in the current folder."""
    pool, _ = read_pool(Path("ensembles"))
    meta = load_split("test").meta
    return MemberOutputs.load(pool, Path("ensembles/pool.json"), meta, SETTINGS, CPU, BATCH)


def solve(
    out="weights",
    folder="data",
    settings=SETTINGS,
    certification=FEW,
    batch=BATCH,
    device=CPU,
):
    """Weights of the ensembles, in the current folder."""
    fit_weights(
        Path("ensembles"), Path(folder), settings, certification,
        device=device, batch=batch, out=Path(out), seconds=Path(f"{out}.seconds.csv"),
    )  # fmt: skip
    return Path(out)
