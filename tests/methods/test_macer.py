"""MACER's hinge."""

import math

import torch

from rs.methods.macer import macer_objective


def test_the_share_in_the_hinge_is_of_right_images_whose_margin_is_gamma_at_most():
    """xi = 2 Phi^-1(q1) of two classes is 1, 2.5 and 4; the last image is wrong."""
    q1 = [0.5 * math.erfc(-xi / 2 / math.sqrt(2)) for xi in (1.0, 2.5, 4.0, 1.0)]
    logits = torch.tensor([[[math.log(q), math.log1p(-q)]] for q in q1], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1])
    step = macer_objective(logits, labels, sigma=0.25, lam=12.0, gamma=3.0, beta=1.0)
    assert step.hinge_share == 0.5
