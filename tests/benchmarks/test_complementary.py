"""AdvMacer's loss with the images of CAT-RS."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.complementary import PARENTS, Confident, file_name, table
from rs.methods.advmacer import AdvMacer
from rs.storage.certificate_rows import read_rows
from tests.support.helpers import METHOD_PARAMETERS, ROOT

SETTINGS = METHOD_PARAMETERS["advmacer"] | {"epsilon": 0.5, "cross_entropy": "mean-of-logs", "draws": 4}
ADVMACER = AdvMacer(**SETTINGS)


class Constant(nn.Module):
    """Logits that do not depend on the image: class 1 wins."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.0, 0.1, 0.0]))

    def forward(self, x):
        return self.logits + 0 * x.flatten(1).sum(1, keepdim=True)


def steps(y):
    """AdvMacer's step, and the other's."""
    x, settings = torch.rand(len(y), 1, 2, 2), {"sigma": 0.5, "epoch": 9}
    for method in (ADVMACER, Confident(**SETTINGS)):
        yield method.loss(Constant(), x, y, rng=torch.Generator().manual_seed(0), **settings)


def test_right_images_have_all_of_advmacers_loss_and_wrong_ones_a_draw_of_its_cross_entropy():
    (right, same), (wrong, a_draw) = steps(torch.ones(4, dtype=int)), steps(torch.zeros(4, dtype=int))
    assert same.robustness.item() == pytest.approx(right.robustness.item(), rel=1e-6)
    assert right.robustness > 0
    assert a_draw.robustness == 0
    assert same.cross_entropy.item() == pytest.approx(right.cross_entropy.item(), rel=1e-6)
    assert a_draw.cross_entropy.item() == pytest.approx(wrong.cross_entropy.item() / 4, rel=1e-6)
    _, part = steps(torch.tensor([1, 1, 1, 0]))
    assert part.robustness.item() == pytest.approx(right.robustness.item() * 3 / 4, rel=1e-6)
    assert part.cross_entropy.item() == pytest.approx(
        (3 * right.cross_entropy.item() + a_draw.cross_entropy.item()) / 4, rel=1e-6
    )


def test_new_methods_are_compared_with_both_parents():
    scores = {"advmacer": np.array([0.0, 1.0]), "cat-rs": np.array([0.5, 0.5])}
    line = table(scores | {"advmacer, images of cat-rs": np.array([0.5, 1.5])}).splitlines()[-1]
    assert line.endswith("| 1.0000 ± 0.5000 | +0.5000 ± 0.0000 | +0.5000 ± 0.5000 |")


def test_the_committed_page_is_that_of_the_committed_rows(tmp_path):
    shutil.unpack_archive(ROOT / "reports/rows/complementary/rows.tar.xz", tmp_path, filter="data")
    scores = {}
    for name in ("advmacer", "cat-rs", "hard-drop", *PARENTS):
        rows = read_rows(tmp_path / f"{file_name(name)}-0.tsv")
        scores[name] = (rows["radius"] * rows["correct"]).to_numpy()
    assert table(scores) in (ROOT / "benchmarks/results/complementary.md").read_text()
    assert all((scores[name] - scores["advmacer"]).mean() < 0 for name in PARENTS)
