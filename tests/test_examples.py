"""The scripts of ``examples``: they run, and certify most of their inputs."""

import runpy

import pytest
import torch

import rs
from tests.support.helpers import ROOT

NEEDED = {
    "audio": (),
    "tabular": ("sklearn",),
    "embeddings": (),
    "onnx_images": ("sklearn", "onnxruntime", "onnx", "onnxscript"),
}


def run(name):
    """Run a script and return its variables."""
    for module in NEEDED[name]:
        pytest.importorskip(module)
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


@pytest.mark.parametrize("name", NEEDED)
def test_an_example_certifies_most_of_its_inputs(name, capsys):
    script = run(name)
    assert script["certified"] > 0.5
    assert f"{script['certified']:.0%} of {len(script['radii'])} " in capsys.readouterr().out


def test_padding_of_a_text_has_no_part_in_its_certificate():
    script = run("embeddings")
    embeddings, masks, _ = script["texts"](1)
    mask = masks[0] * (torch.arange(masks.shape[1]) < 5)  # five words and padding
    base = script["Masked"](script["network"], mask[None])
    smoothed = rs.SmoothedClassifier(base, sigma=script["SIGMA"], bounds=None)
    words = embeddings[0] * mask[:, None]
    padded = words + 100 * (1 - mask[:, None])
    assert smoothed.certify(words).to_dict() == smoothed.certify(padded).to_dict()


@pytest.mark.parametrize(
    ("name", "package"), [("torchattacks_pgd", "torchattacks"), ("autoattack_rand", "pyautoattack")]
)
def test_an_attack_library_takes_the_smoothed_classifier_and_breaks_no_certificate(name, package):
    pytest.importorskip(package)
    script = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    assert script["certified"] > 0
    assert script["broken"] == 0
    assert (script["attacked"] - script["images"]).abs().max() > 0
