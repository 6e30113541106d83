"""The recipe cifar10-cpu: its smallest cell, from class folders of images to rows, on 200 images."""

import numpy as np
import pytest
import torch

from rs import params
from rs.certification.certify_model import certification_settings, certify_model
from rs.data import sources
from rs.models import checkpoint
from rs.storage import certificate_rows
from rs.training.recipe import training_recipe
from rs.training.run import train_model
from rs.training.settings import RunOptions
from stages.tune import changed
from tests.support.helpers import ROOT
from tests.support.raw_images import image_bytes, write_parquet

RECIPE = "cifar10-cpu"
CLASSES = 10

pytestmark = pytest.mark.usefixtures("work")


def images(count, seed):
    """Images 32x32 in the colour of their class, and labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    colours = np.random.default_rng(0).integers(0, 200, (CLASSES, 1, 1, 3))
    return (colours[labels] + rng.integers(0, 56, (count, 32, 32, 3))).astype(np.uint8), labels


@pytest.fixture
def prepared(tmp_path):
    for split, count in (("train", 200), ("test", 20)):
        shown, labels = images(count, len(split))
        cells, names = [image_bytes(image) for image in shown], [str(k) for k in range(CLASSES)]
        write_parquet(tmp_path / "raw" / f"{split}.parquet", cells, labels, names=names)
    values = params.read_params(ROOT / "params.yaml")["datasets"][RECIPE] | {"validation_share": 0.1}
    sources.settings(values, "d", "parquet", tmp_path / "raw").prepare(RECIPE, tmp_path / "data")
    return tmp_path / "data"


def test_the_smallest_cell_trains_and_certifies(tmp_path, prepared):
    values = changed(params.read_params(ROOT / "params.yaml"), RECIPE, "gaussian", {}, 1)
    options = RunOptions(sigma=0.25, seed=0, device=torch.device("cpu"))
    recipe = training_recipe(values, RECIPE, "gaussian", 0.25)
    train_model(recipe, prepared, options, out=tmp_path / "model", log=tmp_path / "log")
    card = checkpoint.read_card(tmp_path / "model")
    assert (card.architecture, card.training["schedule"], card.epochs) == ("resnet8", "linear", 1)
    quick = {"n": 20, "n0": 10, "alpha": 0.01, "subset": "all", "engine": "plain"}  # to compile takes half a minute
    settings = certification_settings(values, RECIPE, quick)
    for split, size in (("test", 20), ("validation", 20)):
        out = tmp_path / f"{split}.tsv"
        certify_model(
            str(tmp_path / "model"),
            prepared,
            settings,
            split=split,
            sigma=None,
            device=options.device,
            batch=None,
            out=out,
        )
        rows = certificate_rows.read_rows(out)
        assert sorted(rows["label"]) == sorted(k % CLASSES for k in range(size))
        assert set(rows["sigma"]) == {0.25}
