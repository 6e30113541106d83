"""Published checkpoints, in each of the field's layouts."""

import argparse
import tempfile
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from rs.data.meta import Meta
from rs.errors import InputWarning
from rs.models import architectures, checkpoint
from rs.models.published_checkpoints import import_checkpoint, read_network
from tests.support.helpers import refuses
from tests.support.networks import images

LAYOUTS = {
    "cohen": ("1.", "state_dict", "mean-std"),
    "plain": ("", "", "none"),
    "nested": ("net.", "best.model", "centre"),
}
"""Prefix of the names and key of the weights, and the first layer of the network."""


META = Meta(
    name="tiny",
    classes=tuple("abcdefghij"),
    shape=(3, 32, 32),
    mean=(0.5, 0.4, 0.6),
    std=(0.2, 0.25, 0.3),
    source="",
    sizes={},
    sha256={},
)


def imported(path, normalization="none", key=None):
    """Import a ResNet-20 into the folder ``model`` next to its checkpoint."""
    out = path.parent / "model"
    return import_checkpoint(path, META, "resnet20", normalization, 0.5, out, force=True, key=key)


def network(seed=0):
    """A ResNet-20 whose running statistics are not the initial ones."""
    model = architectures.build("resnet20", (3, 32, 32), 10, [0.0] * 3, [1.0] * 3, seed)
    model(images(8, META.shape, seed))
    return model.eval().network


def save(path, net, prefix, key, old=False):
    """Write a checkpoint; ``old`` files have no batch-norm counters."""
    state = {prefix + name: value for name, value in net.state_dict().items()}
    if old:
        state = {name: value for name, value in state.items() if "num_batches" not in name}
    other = {"epoch": 90, "arch": "cifar_resnet20", "optimizer": {"state": {}}}
    content = state
    for word in reversed(key.split(".") if key else []):
        content = {word: content}
    torch.save(content | other, path)
    return path


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_imported_network_gives_the_outputs_of_the_original(layout, old, tmp_path):
    net = network()
    prefix, key, normalization = LAYOUTS[layout]
    path = save(tmp_path / "checkpoint.pth.tar", net, prefix, key, old=old)
    weights = imported(path, normalization)
    assert weights.key == f"{key}.{prefix}".strip(".")
    assert weights.left == ["epoch", "arch", "optimizer"]
    model, card = checkpoint.load_model(tmp_path / "model")
    x = images(4, META.shape)
    mean, std = (torch.tensor(values)[:, None, None] for values in (META.mean, META.std))
    inputs = {"none": x, "centre": x - mean, "mean-std": (x - mean) / std}
    with torch.no_grad():
        assert torch.equal(model(x), net(inputs[normalization]))
    assert card.sigma == 0.5


def test_weights_in_a_safetensors_file_are_taken(tmp_path):
    net = network()
    state = {f"network.{name}": value.contiguous() for name, value in net.state_dict().items()}
    path = tmp_path / "theirs.safetensors"
    safetensors.torch.save_file(state, path)
    imported(path)
    assert_holds(tmp_path / "model", net)


@pytest.mark.parametrize(
    ("write", "name"),
    [(safetensors.torch.save_file, "c.pth"), (torch.save, "c.safetensors")],
)
def test_the_content_of_a_file_and_not_its_name_says_how_it_is_read(write, name, tmp_path):
    net = network()
    write({name: value.contiguous() for name, value in net.state_dict().items()}, tmp_path / name)
    imported(tmp_path / name)
    assert_holds(tmp_path / "model", net)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_counters_of_batch_norms_may_be_fractions_as_averages_make_them(dtype, tmp_path):
    net = network().to(dtype).float()  # the same numbers in both precisions
    state = {name: value.to(dtype) for name, value in net.state_dict().items()}
    torch.save(state, tmp_path / "c.pth")
    imported(tmp_path / "c.pth")
    assert_holds(tmp_path / "model", net)


def test_a_sparse_tensor_is_refused_without_a_warning_of_torch(tmp_path):
    state = network().state_dict()
    state["fc.weight"] = state["fc.weight"].to_sparse()
    torch.save(state, tmp_path / "c.pth")
    with refuses("fc.weight must be a dense tensor"):
        imported(tmp_path / "c.pth")


def assert_holds(model, net):
    """Assert that a model folder holds the network's weights."""
    state = checkpoint.load_model(model)[0].network.state_dict()
    for name, value in net.state_dict().items():
        assert torch.equal(state[name], value)


WORDS = ["module", "_orig_mod", "model", "1", "network", "net", "fc", "bias"]


@given(st.lists(st.sampled_from(WORDS), max_size=4))
def test_any_prefix_is_found(words):
    """Even one of words that are in the network's own names."""
    state = {"fc.weight": torch.zeros(2, 3), "fc.bias": torch.zeros(2), "0.bn.bias": torch.ones(1)}
    prefix = "".join(f"{word}." for word in words)
    written = {f"{prefix}{name}": value for name, value in state.items()}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "c.pth")
        torch.save({"state_dict": written, "epoch": 1}, path)
        weights = read_network(path, set(state))
    assert weights.key == f"state_dict.{prefix}".strip(".")
    assert weights.network.keys() == state.keys()
    assert weights.left == ["epoch"]


@pytest.mark.parametrize(
    ("prefix", "raw", "averaged"),
    [("", "state_dict", "state_dict_ema"), ("state_dict.", "net", "swa_model")],
)
def test_averaged_weights_are_taken_only_by_their_key(prefix, raw, averaged, tmp_path):
    """In a dict of their own, or by the names of tensors in one dict."""
    nets = {averaged: network(1), raw: network(0)}
    content = {name: net.state_dict() for name, net in nets.items()}
    if prefix:
        both = {}
        for name, state in content.items():
            both |= {f"{name}.{tensor}": value for tensor, value in state.items()}
        content = {"state_dict": both}
    torch.save(content, tmp_path / "c.pth")
    for key, name, other in [(None, raw, averaged), (prefix + averaged, averaged, raw)]:
        weights = imported(tmp_path / "c.pth", key=key)
        assert_holds(tmp_path / "model", nets[name])
        assert weights.key == prefix + name
        assert ("averaged" in str(weights)) == (name == averaged)
        assert other in ", ".join([*weights.left, *weights.alternatives])


@pytest.mark.parametrize("key", ["optimizer", "nowhere"])
def test_a_key_without_weights_is_refused(key, tmp_path):
    path = save(tmp_path / "c.pth", network(), "", "state_dict")
    with refuses(f"in {key}; got a dict with state_dict, epoch, arch"):
        imported(path, key=key)


@pytest.mark.parametrize("names", [("0.means", "0.sds"), ("normalize.mean", "normalize.std")])
@pytest.mark.parametrize("shift", [0, 0.01])
def test_a_normalizer_in_the_file_is_dropped_and_must_agree(names, shift, tmp_path):
    net = network()
    prefix = "1." if names[0].startswith("0.") else ""
    state = {prefix + name: value for name, value in net.state_dict().items()}
    state[names[0]] = torch.tensor(META.mean)[None, :, None, None]
    state[names[1]] = torch.tensor(META.std) + shift
    torch.save(state, tmp_path / "c.pth")
    expected = nullcontext()
    if shift:
        expected = pytest.warns(InputWarning, match=f"its own normalizer, {names[1]} = ")
    with expected:
        weights = imported(tmp_path / "c.pth", "mean-std")
    assert_holds(tmp_path / "model", net)
    assert set(weights.left) == set(names)


@pytest.mark.parametrize("place", [None, "hyper_parameters"])
@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_a_normalizer_beside_the_weights_must_agree_too(place, kind, tmp_path):
    constants = {"mean": kind(META.mean), "std": kind([0.9, 0.9, 0.9]), "sigma": 0.25}
    other = {place: constants} if place else constants
    torch.save({"state_dict": network().state_dict()} | other, tmp_path / "c.pth")
    with pytest.warns(InputWarning, match=r"its own normalizer, (\w+\.)?std = 0.9") as caught:
        imported(tmp_path / "c.pth", "mean-std")
    assert len(caught) == 1


@pytest.mark.parametrize("number", [np.float64(93.1), np.int64(3), np.bool_(True)])
def test_numbers_of_numpy_in_a_checkpoint_do_no_harm(number, tmp_path):
    torch.save({"state_dict": {"bias": torch.zeros(1)}, "best": number}, tmp_path / "c.pth")
    assert read_network(tmp_path / "c.pth", {"bias"}).left == ["best"]


class Evil:
    """Unpickling it would call ``print``."""

    def __reduce__(self):
        return print, ("executed",)


CODE = "must be a checkpoint .* but: it needs {}, and code in a file is not run here; save its"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.zeros(3), "must hold a dict"),
        ({"state_dict": torch.zeros(3)}, "must hold a dict"),
        ({"net": [torch.zeros(3)]}, "must hold a dict"),
        (Evil(), CODE.format("print")),
        ({"state_dict": {}, "args": argparse.Namespace(lr=0.1)}, CODE.format("argparse.Namespace")),
        ({"net": {}, "array": np.array([Evil()])}, CODE.format(r"numpy\S+")),
    ],
)
def test_what_is_no_checkpoint_is_refused_and_never_executed(content, message, tmp_path, capsys):
    torch.save(content, tmp_path / "c.pth")
    with refuses(message):
        imported(tmp_path / "c.pth")
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more"])
def test_what_torch_did_not_write_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "c.pth").write_bytes(content)
    with refuses(r"neither torch.save nor safetensors wrote it"):
        read_network(tmp_path / "c.pth", {"weight"})


def test_a_compressed_checkpoint_is_refused_before_it_is_read(tmp_path):
    """A few kilobytes of it could become gigabytes."""
    torch.save({"net": {"weight": torch.zeros(10**6)}}, tmp_path / "plain.pth")
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "c.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with refuses(r"plain/data\.pkl in it is compressed, which torch.save does not do"):
        read_network(tmp_path / "c.pth", {"weight"})
