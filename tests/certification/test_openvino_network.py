"""The engine openvino: a network in float32 that OpenVINO runs."""

import copy
import json
import resource
from dataclasses import replace

import pytest
import torch
from torch import nn

from rs.certification.inference import optimize_for_inference
from rs.certification.quantize import SerializedNetwork, convert, quantize, serialize
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.errors import InputError
from rs.smoothing.determinism import rounding
from rs.smoothing.noise import noisy_pair
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from tests.support.cells import certify_folder
from tests.support.helpers import SHAPE, smallnet, tiny_images, write_tiny
from tests.support.networks import COLOUR, images, residual, whole_and_in_parts, with_one_thread_and_two
from tests.support.untrained import save_model

CPU = torch.device("cpu")
SETTINGS = CertificationSettings(
    n0=10, n=60, alpha=0.01, seed=4, subset="all", precision="float32", engine="openvino", shortcut=False,
)  # fmt: skip


def run_by_openvino(model, shape):
    return optimize_for_inference(model, "openvino", "float32", shape, CPU)


@pytest.fixture(scope="module")
def network():
    return residual()


@pytest.fixture(scope="module")
def colour(network):
    return run_by_openvino(network, COLOUR).module


def test_its_logits_are_those_of_the_network_in_float64_but_for_rounding(network, colour):
    x = images(100, COLOUR) * 3 - 1
    with torch.no_grad():
        expected = copy.deepcopy(network).double()(x.double())
    found = colour(x)
    assert found.dtype == torch.float32
    assert float((found - expected).abs().max()) <= rounding(colour, found) * float(expected.abs().max())


@pytest.mark.parametrize("size", [1, 7, 100])
def test_logits_are_equal_bit_for_bit_whatever_the_batch_and_the_place_in_it(colour, size):
    together, in_parts = whole_and_in_parts(colour, size)
    assert torch.equal(in_parts, together)
    assert len(together.unique(dim=0)) == 100  # the images are told apart


def test_logits_are_equal_bit_for_bit_with_one_thread_and_two(network):
    x = images(100, COLOUR)
    assert torch.equal(*with_one_thread_and_two(lambda: run_by_openvino(network, COLOUR).module(x)))


def test_it_keeps_the_weights_that_it_was_made_with():
    model, x = residual(), images(3, COLOUR)
    made = run_by_openvino(model, COLOUR).module
    before = made(x)
    with torch.no_grad():
        for value in model.network.parameters():
            value.zero_()
    assert torch.equal(made(x), before)


def test_members_of_an_ensemble_run_by_themselves():
    members, rule, x = [smallnet(seed).eval() for seed in (0, 1)], SoftmaxAverage([0.25, 0.75]), images(20, SHAPE)
    made = run_by_openvino(Ensemble(members, rule), SHAPE)
    with torch.no_grad():
        expected = Ensemble(members, rule)(x)
    torch.testing.assert_close(made.module(x), expected)
    assert made.engine == "openvino"


def test_certificates_have_the_votes_of_the_plain_network_and_their_sidecar_says_what_ran(tmp_path, monkeypatch):
    monkeypatch.setenv("RS_WORK", str(tmp_path / "work"))
    write_tiny(tmp_path / "data")
    save_model(tmp_path / "model")
    sides, rows = {}, {}
    for engine in ("openvino", "plain"):
        out = tmp_path / f"{engine}.tsv"
        certify_folder(
            str(tmp_path / "model"),
            tmp_path / "data",
            replace(SETTINGS, engine=engine),
            SmoothingOptions(device=CPU),
            out=out,
        )
        sides[engine], rows[engine] = json.loads(out.with_suffix(".json").read_text()), out.read_bytes()
    assert rows["openvino"] == rows["plain"]
    assert sides["openvino"].keys() - sides["plain"].keys() == {"instructions"}
    assert (sides["openvino"]["engine"], sides["openvino"]["precision"]) == ("openvino", "float32")
    assert sides["openvino"]["versions"].keys() - sides["plain"]["versions"].keys() == {"openvino"}


# --------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("precision", "device"), [("bfloat16", CPU), ("float32", torch.device("meta"))])
def test_it_computes_in_float32_on_a_cpu(precision, device):
    with pytest.raises(InputError, match="engine openvino must run on a CPU, with precision left at float32"):
        optimize_for_inference(smallnet(), "openvino", precision, SHAPE, device)


class Branches(nn.Module):
    """Takes its path by the image, which tracing fixes."""

    def forward(self, x):
        logits = x.flatten(1)[:, :3]
        return logits if bool(torch.equal(x, noisy_pair(SHAPE, CPU)[:1])) else -logits


class Dark(Branches):
    """Has another head for dark images, which none of the images that conversion tries is."""

    def forward(self, x):
        dark, logits = x.mean((1, 2, 3)) < 0.2, x.flatten(1)[:, :3]
        return torch.where(dark[:, None], -logits, logits) if dark.any() else logits


class Counts(Branches):
    """Reads the mean of the image as a Python number."""

    def forward(self, x):
        return x.flatten(1)[:, :3] * (2.0 if float(x.mean()) > 0.2 else 1.0)


@pytest.mark.parametrize("network", [Branches, Dark, Counts])
def test_a_network_whose_path_depends_on_the_image_is_refused(network):
    with pytest.raises(InputError, match=r"must take the same path for every image .* use engine folded"):
        run_by_openvino(network().eval(), SHAPE)
    with pytest.raises(InputError, match="must take the same path for every image"):
        quantize(network().eval(), tiny_images(4), 0.25, 4)


class Checks(nn.Module):
    """Looks at the shape of the images, of which torch warns as of their values."""

    def forward(self, x):
        torch._assert(x.shape[1] == SHAPE[0], "channels")
        return x.flatten(1)[:, :3] / int(x.shape[2]) * torch.tensor(2.0)


def test_a_network_whose_path_depends_on_the_shape_is_accepted():
    assert run_by_openvino(Checks().eval(), SHAPE).engine == "openvino"


class Different(nn.Module):
    """Is another function while it is converted."""

    def forward(self, x):
        return -x.flatten(1)[:, :3] if torch.jit.is_tracing() else x.flatten(1)[:, :3]


def test_a_network_that_is_another_one_when_it_is_converted_is_refused():
    with pytest.raises(InputError, match="OpenVINO must compute the network's logits, but they differ"):
        run_by_openvino(Different().eval(), SHAPE)


def test_the_fingerprint_of_a_network_tells_its_graph_from_its_weights():
    assert len({SerializedNetwork(*parts).fingerprint for parts in ((b"ab", b"c"), (b"a", b"bc"), (b"", b"abc"))}) == 3


@pytest.mark.parametrize("most", [0, 3000])
def test_where_a_network_finds_no_room_among_temporary_files_it_is_said(most):
    """Files have so many bytes at most: too few for the graph or for the weights. OpenVINO raises a RuntimeError."""
    model, limits = convert(residual(), images(1, COLOUR)), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(InputError, match=r"must have room for a network, .*; make room there, or .* with TMPDIR"):
            serialize(model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
