"""How many draws CAT-RS uses; test_losses.py has its loss and its attack."""

import torch
from scipy import stats

from rs.methods import cat_rs


def test_the_number_of_used_draws_is_binomial_and_1_at_least():
    generator, confidence = torch.Generator().manual_seed(0), torch.full((20_000,), 0.5)
    used = cat_rs.used_draws(confidence, 4, generator)
    expected = stats.binom.pmf([0, 1, 2, 3, 4], 4, 0.5) * 20_000
    observed = used.bincount(minlength=5)[1:].tolist()
    assert stats.chisquare(observed, [expected[0] + expected[1], *expected[2:]]).pvalue > 1e-6
    sure = cat_rs.used_draws(torch.tensor([0.0, 1.0]).repeat(1000), 4, generator)
    assert sure.view(-1, 2).unique(dim=0).tolist() == [[1, 4]]
