import json
import pickle
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from tests.support import untrained
from tests.support.helpers import SHAPE, refuses, smallnet, weights
from tests.support.networks import images

CARD = replace(untrained.CARD, method="gaussian", training={"epochs": 2}, seed=3, epochs=2)


@pytest.fixture
def trained():
    """A model whose parameters and batch-norm statistics are not those of a fresh one."""
    model = smallnet(3).train()
    for _ in range(2):
        model(images(8, SHAPE, 0))
    return model


@pytest.fixture
def folder(tmp_path, trained):
    checkpoint.save(tmp_path / "model", trained, CARD)
    return tmp_path / "model"


def refused(folder, *words):
    """Expect that the model is refused in one line with these words."""
    with refuses() as caught:
        checkpoint.load_model(folder)
    assert all(word in str(caught.value) for word in words)


def test_a_model_comes_back_with_its_card_and_its_outputs(folder, trained):
    loaded, card = checkpoint.load_model(folder)
    x = images(5, SHAPE)
    assert card == CARD
    assert not loaded.training
    assert torch.equal(loaded(x), trained.eval()(x))
    assert model_fingerprint(loaded) == model_fingerprint(trained)


def test_equal_models_make_equal_bytes(folder, tmp_path):
    loaded, card = checkpoint.load_model(folder)
    checkpoint.save(tmp_path / "again", loaded, card)
    for name in (checkpoint.WEIGHTS, checkpoint.CARD):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    refused(folder, str(folder / name), "there is none")


def test_no_pickle_is_ever_executed(folder, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    for write in (
        lambda path: path.write_bytes(pickle.dumps(Bomb())),
        lambda path: torch.save({"a": Bomb()}, path),
    ):
        write(folder / checkpoint.WEIGHTS)
        refused(folder, "must be a safetensors file")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("key", ["network.fc.weight", "network.features.1.running_var"])
def test_weights_and_statistics_must_be_finite(folder, trained, key, value):
    trained.state_dict()[key].view(-1)[0] = value
    checkpoint.save(folder, trained, CARD)
    refused(folder, key, "NaN or infinity")


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        ("network.fc.weight", lambda tensor: tensor.long(), "int64, strided"),
        ("network.features.1.num_batches_tracked", lambda tensor: tensor.float(), "float32"),
        ("network.fc.weight", lambda tensor: tensor.to_sparse(), "float32, sparse_coo"),
        ("network.fc.weight", lambda tensor: tensor.to("meta"), "float32, strided on meta"),
    ],
)
def test_numbers_of_another_kind_sparse_or_nowhere_are_refused(key, change, said):
    state = smallnet().state_dict()
    with refuses(f"{key} must be a dense tensor of .*got {said}"):
        checkpoint.fill(smallnet(), state | {key: change(state[key])}, "c.pth", "")


def test_weights_of_double_precision_must_be_finite_in_that_of_the_model(folder, trained):
    state = {key: value.contiguous() for key, value in trained.state_dict().items()}
    state["network.fc.weight"] = state["network.fc.weight"].double()
    save_file(state, folder / checkpoint.WEIGHTS)
    assert weights(checkpoint.load_model(folder)[0]) == weights(trained)
    state["network.fc.weight"][0, 0] = 1e300
    save_file(state, folder / checkpoint.WEIGHTS)
    refused(folder, "network.fc.weight", "NaN or infinity in torch.float32")


def test_weights_of_another_architecture_are_refused_by_their_first_misfit(folder):
    checkpoint.save(folder, smallnet(), replace(CARD, architecture="resnet8", shape=[1, 32, 32]))
    refused(folder, "weights of resnet8", "first network.bn1.bias: expected (32,), got none")


def replace_card(folder, **changes):
    """Write other values into the card of a model; those that are None are left out."""
    card = vars(CARD) | changes
    card = {key: value for key, value in card.items() if value is not None}
    (folder / checkpoint.CARD).write_text(json.dumps(card))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sigma": "0.25"}, "sigma: Input should be a valid number"),
        ({"shape": [1, 4, 10**30]}, "shape.2: Input should be less than or equal to 16777216"),
        ({"mean": [0.5] * 2}, "mean and std must have one number for each channel"),
        ({"std": [0.0]}, "std.0: Input should be greater than 0"),
        ({"arithmetic": "exact"}, "arithmetic: Input should be 'portable' or 'native'"),
        ({"classes": [""] * 100_001}, "classes: List should have at most 100000 items"),
        ({"shape": [1, 16384, 16384]}, "an image must have at most 16,777,216 numbers"),
    ],
)
def test_the_values_of_a_card_must_be_of_their_kind(folder, changes, said):
    replace_card(folder, **changes)
    refused(folder, said)


@pytest.mark.parametrize(
    "changes",
    [{"extra": 1}, {"epochs": None}, {"hyperparameters": ["checkpoint"]}],
    ids=["new", "old", "damaged"],
)
def test_a_model_whose_card_is_of_another_version_or_damaged_can_be_made_again_in_its_folder(
    folder, trained, changes
):
    replace_card(folder, **changes)
    refused(folder, "make the model again, into the same folder")
    checkpoint.check_model_folder(folder, CARD)
    checkpoint.save(folder, trained, CARD)
    assert checkpoint.load_model(folder)[1] == CARD


@pytest.mark.parametrize("key", ["method", "dataset", "sigma", "seed", "architecture"])
def test_a_folder_whose_card_does_not_name_its_model_is_not_overwritten(folder, key):
    replace_card(folder, **{key: None})
    with refuses("name another --out"):
        checkpoint.check_model_folder(folder, CARD)


def test_another_model_is_not_overwritten_whatever_the_version_of_its_card(folder):
    replace_card(folder, epochs=None)
    with refuses(r"but holds gaussian of tiny, sigma 0\.25, seed 3; name another --out"):
        checkpoint.check_model_folder(folder, replace(CARD, seed=4))


def test_a_fingerprint_sees_the_smallest_change_of_any_parameter_buffer_or_constant():
    same = model_fingerprint(smallnet())
    assert model_fingerprint(smallnet()) == same
    for name, _ in [*smallnet().named_parameters(), *smallnet().named_buffers()]:
        model = smallnet()
        tensor = dict([*model.named_parameters(), *model.named_buffers()])[name]
        with torch.no_grad():
            last = tensor[(-1,) * tensor.ndim]
            last.copy_(torch.nextafter(last, last + 1) if last.is_floating_point() else last + 1)
        assert model_fingerprint(model) != same, name
