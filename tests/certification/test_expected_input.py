"""Other inputs are what other first layers would make."""

import pytest
import torch
from torchvision.transforms import Normalize

from rs.certification.expected_input import alternatives
from tests.support.helpers import generator
from tests.support.networks import images

FIRST_LAYERS = {
    "none": Normalize((0, 0, 0), (1, 1, 1)),
    "mean-std": Normalize((0.3, 0.4, 0.6), (0.3, 0.2, 0.4)),
    "centre": Normalize((0.3, 0.4, 0.6), (1, 1, 1)),
    "-1 to 1": Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet": Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
}
X = images(6, (3, 4, 5))
NOISY = X + 0.5 * torch.randn(X.shape, generator=generator(2))


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
