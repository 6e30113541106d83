"""AdvMacer's loss with the images of CAT-RS."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.complementary import Confident, table
from rs.methods.advmacer import AdvMacer
from tests.support.helpers import METHOD_PARAMETERS

ADVMACER = AdvMacer(**METHOD_PARAMETERS["advmacer"] | {"epsilon": 0.5, "cross_entropy": "mean-of-logs", "draws": 4})


class Constant(nn.Module):
    """Logits that do not depend on the image: class 1 wins."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.0, 2.0, 0.0]))

    def forward(self, x):
        return self.logits + 0 * x.flatten(1).sum(1, keepdim=True)


@pytest.mark.parametrize(("label", "used"), [(1, 4), (0, 1)])
def test_right_images_have_all_of_advmacers_loss_and_wrong_ones_a_draw_of_its_cross_entropy(label, used):
    x, y = torch.rand(6, 1, 2, 2), torch.full((6,), label)
    whole, part = (
        method.loss(Constant(), x, y, sigma=0.5, rng=torch.Generator().manual_seed(0), epoch=9)
        for method in (ADVMACER, Confident(ADVMACER))
    )
    assert part.cross_entropy.item() == pytest.approx(whole.cross_entropy.item() * used / 4, rel=1e-6)
    assert part.robustness.item() == pytest.approx(whole.robustness.item() if used == 4 else 0.0, rel=1e-6)


def test_new_methods_are_compared_with_both_parents():
    scores = {"advmacer": np.array([0.0, 1.0]), "cat-rs": np.array([0.5, 0.5])}
    line = table(scores | {"advmacer, images of cat-rs": np.array([0.5, 1.5])}).splitlines()[-1]
    assert line.endswith("| 1.0000 ± 0.5000 | +0.5000 ± 0.0000 | +0.5000 ± 0.5000 |")
