import pytest

from rs.training.recipe import override, training_recipe
from tests.support.helpers import TRAINING, refuses, tiny_params


def recipe(method="gaussian", sigma=0.25, **sections):
    return training_recipe(tiny_params(**sections), "tiny", method, sigma)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": 0.0}, "sigma must be positive"),
        (
            {"method": "stability", "stability": {"lam": -1.0}},
            r"recipes\.tiny\.stability\.lam: .*got -1\.0",
        ),
        (
            {"training": {**TRAINING, "warm_start": {"sigma": 0.001, "epoch": 5}}},
            r"recipes\.tiny\.training\.warm_start\.epoch is not a known key",
        ),
        ({"model": {}}, r"recipes\.tiny\.model: one of architecture, network must be given"),
    ],
)
def test_a_mistake_is_named_by_its_key_in_one_line(arguments, message):
    with refuses(message):
        recipe(**arguments)


def test_an_unknown_optimizer_is_named_before_its_learning_rate():
    values = override(tiny_params(), "tiny", "gaussian", training={"optimizer": "adam"})
    with refuses("optimizer: Input should be 'sgd', 'adamw' or 'muon', got 'adam'"):
        training_recipe(values, "tiny", "gaussian", 0.25)
