"""Untrained models of two methods on the disk, for the tests of everything that loads one."""

from dataclasses import replace

from rs.models import checkpoint
from tests.support.helpers import CLASSES, SHAPE

PLACES = [(method, seed) for method in ("gaussian", "macer") for seed in (0, 1, 2)]


CARD = checkpoint.ModelCard(
    architecture="smallnet",
    shape=list(SHAPE),
    classes=list(CLASSES),
    mean=[0.5],
    std=[0.25],
    dataset="tiny",
    method="macer",
    hyperparameters={},
    training={},
    sigma=0.25,
    seed=0,
    epochs=1,
    device="cpu",
    arithmetic="native",
    versions=checkpoint.library_versions(),
)


def save_model(folder, method="macer", seed=0, **changes):
    """An untrained model, different for every method and seed."""
    card = replace(CARD, **{"method": method, "seed": seed} | changes)
    checkpoint.save(folder, card.build(PLACES.index((method, seed))), card)


def save_models(folder):
    """Untrained models of two methods and three seeds, in the folders METHOD/SEED."""
    for method, seed in PLACES:
        save_model(folder / method / str(seed), method, seed)
