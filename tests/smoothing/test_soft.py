import math

import pytest
import torch
from scipy import special

from rs.smoothing import soft
from tests.support.helpers import generator

SIGMA, GAMMA, BETA = 0.5, 8.0, 16.0


def test_guard_of_the_soft_cross_entropy_is_added_and_is_1e_10():
    logits = torch.tensor([[[1e4, -1e4]]], dtype=torch.float64)
    assert soft.soft_cross_entropy(logits, torch.tensor([1])).item() == pytest.approx(
        -math.log(1e-10), rel=1e-14
    )
    p = 3e-10  # a clamp at 1e-10 would leave it as it is
    logits = torch.tensor([[[math.log(p), math.log1p(-p)]]], dtype=torch.float64)
    assert soft.soft_cross_entropy(logits, torch.tensor([0])).item() == pytest.approx(
        -math.log(4e-10), rel=1e-12
    )


def test_infinite_margin_leaves_the_hinge_whatever_its_ceiling():
    logits = torch.tensor(
        [[[special.log_ndtr(40.0), special.log_ndtr(-40.0)]]]
    )  # a margin of 80, in float64
    _, share = soft.radius_hinge(logits, torch.tensor([0]), SIGMA, math.inf, 1.0)
    assert share == 0


def losses(logits, y):
    p = soft.soft_probabilities(logits)
    return {
        "soft": soft.soft_cross_entropy(logits, y),
        "mean": soft.mean_cross_entropy(logits, y),
        "hinge": soft.radius_hinge(logits, y, SIGMA, GAMMA, BETA)[0],
        "entropy": soft.entropy(p).mean(),
        "kl": soft.kl_divergence(p.unsqueeze(1), logits).mean(),
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["soft", "mean", "hinge", "entropy", "kl"])
def test_narrow_logits_are_widened_before_any_arithmetic(name, dtype):
    logits = torch.randn((5, 3, 4), generator=generator()).to(dtype)
    y = torch.tensor([0, 1, 2, 3, 0])
    narrow, wide = losses(logits, y)[name], losses(logits.float(), y)[name]
    assert narrow.dtype == torch.float32
    assert torch.equal(narrow, wide)
