"""Other inputs are what other first layers would make, and distances are those of torch."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torchvision.transforms import Normalize

from rs.certification.batch_norm_fit import fit_of
from rs.certification.expected_input import alternatives

FIRST_LAYERS = {
    "none": Normalize((0, 0, 0), (1, 1, 1)),
    "mean-std": Normalize((0.3, 0.4, 0.6), (0.3, 0.2, 0.4)),
    "centre": Normalize((0.3, 0.4, 0.6), (1, 1, 1)),
    "-1 to 1": Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet": Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
}
X = torch.rand(6, 3, 4, 5, generator=torch.Generator().manual_seed(1))
NOISY = X + 0.5 * torch.randn(X.shape, generator=torch.Generator().manual_seed(2))


def constants(layer):
    return (torch.tensor(numbers).float().view(3, 1, 1) for numbers in (layer.mean, layer.std))


OTHERS = {other.name: other for other in alternatives(*constants(FIRST_LAYERS["mean-std"]))}


@pytest.mark.parametrize("has", FIRST_LAYERS)
@pytest.mark.parametrize("expects", FIRST_LAYERS)
def test_the_first_layer_that_there_is_makes_of_it_what_the_expected_one_would(has, expects):
    if has == expects:
        assert f"{expects} instead of {has}" not in OTHERS
        return
    other = OTHERS[f"{expects} instead of {has}"]
    torch.testing.assert_close(FIRST_LAYERS[has](other.of(NOISY)), FIRST_LAYERS[expects](NOISY))


@pytest.mark.parametrize("flat", [False, True])
def test_the_distance_is_the_divergence_of_normal_distributions(flat):
    shape = (6, 60) if flat else (6, 3, 4, 5)
    norm = (nn.BatchNorm1d(60) if flat else nn.BatchNorm2d(3)).eval()
    norm.running_mean += 0.25
    norm.running_var *= 2
    norm.eps = 0.0
    network = nn.Sequential(nn.Flatten() if flat else nn.Identity(), norm)
    fit = fit_of(network, norm, X)
    axes = (0,) if flat else (0, 2, 3)
    x = X.reshape(shape).double()
    seen = Normal(x.mean(axes), x.var(axes, unbiased=False).sqrt())
    trained = Normal(norm.running_mean.double(), norm.running_var.double().sqrt())
    assert fit.distance == pytest.approx(kl_divergence(seen, trained).mean().item(), rel=1e-9)
    assert len(fit.of_groups) == 2
