"""Networks in int8: ``rs.certification.quantize``, and the commands that make and run them."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms
from torchvision.transforms import v2

from rs import Normalize
from rs.certification import quantize as int8
from rs.certification.inference import optimize_for_inference
from rs.certification.load import Classifier, load
from rs.command_line import main as rs
from rs.data import images as data
from rs.models.fingerprint import model_fingerprint
from rs.runtime.arithmetic import PORTABLE
from rs.runtime.streams import Stream
from rs.smoothing.noise import gaussian_block, noisy_pair
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.storage.files import read_json
from tests.support.cells import certify_folder
from tests.support.helpers import (
    CERTIFY,
    CLASSES,
    SHAPE,
    exit_code,
    generator,
    needs_x86,
    python,
    refuses,
    smallnet,
    tiny_images,
    update_json,
    write_photos,
    write_tiny,
)
from tests.support.networks import COLOR, images, residual
from tests.support.untrained import save_model

CPU = torch.device("cpu")
SIGMA, COUNT = 0.25, 10
SETTINGS = CertificationSettings(**CERTIFY | {"n": 60, "seed": 4, "engine": "quantized"})


def tiny_colors():
    """Random pixels to calibrate on."""
    return replace(
        tiny_images(COUNT),
        images=np.random.default_rng(0).integers(0, 256, (COUNT, *COLOR), np.uint8),
    )


@pytest.fixture(scope="module")
def quantized_residual():
    return int8.quantize(residual(), tiny_colors(), SIGMA, COUNT)


@pytest.fixture(scope="module")
def color(quantized_residual):
    return int8.quantized_classifier(residual(), quantized_residual, COLOR)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model folder with its quantized network, and the tiny data set."""
    root = tmp_path_factory.mktemp("tiny")
    write_tiny(root / "data")
    save_model(root / "model")
    finished("quantize", root / "model", "--data", root / "data", "--count", COUNT)
    return root


def finished(*words):
    assert exit_code(rs.app, *words) == 0


# ------------------------------------------------------------------------------------- one fixed
# function


@pytest.mark.parametrize("size", [1, 7, 100])
def test_logits_are_equal_bit_for_bit_whatever_the_batch_and_the_place_in_it(color, size):
    x, order = images(100, COLOR) * 3 - 1, torch.randperm(100, generator=generator())
    together = color(x)[order]
    assert torch.equal(torch.cat([color(part) for part in x[order].split(size)]), together)
    assert len(together.unique(dim=0)) == 100  # the images are told apart


def test_logits_are_equal_bit_for_bit_with_one_thread_and_two(quantized_residual):
    """If OpenVINO's threads share an evaluation, all networks have other logits in some processes,
    and one network in fifty in others.
    """
    x = images(100, COLOR)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, *[2] * 20):
            torch.set_num_threads(threads)
            found.append(int8.quantized_classifier(residual(), quantized_residual, COLOR)(x))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(logits, found[0]) for logits in found)


def test_weights_have_seven_bits_so_that_no_processor_saturates(quantized_residual):
    """Pairs of products of 8-bit activations and weights are added in 16 bits without VNNI: 2 * 255
    * 64 < 2^15.
    """
    operations = int8.runtime().read_model(*quantized_residual.content).get_ops()
    held = [
        one.data
        for one in operations
        if one.get_type_name() == "Constant" and one.data.dtype == np.int8
    ]
    assert len(held) == sum(isinstance(one, nn.Conv2d | nn.Linear) for one in residual().modules())
    assert 32 < max(int(np.abs(one.astype(int)).max()) for one in held) <= 64


# ------------------------------------------------------------------------------------------- what
# it is


PROCESS = """
import gc, signal, subprocess, sys
from rs.certification.quantize import quantized_identity, quantized_classifier, quantize
from tests.support.helpers import SHAPE, smallnet, tiny_images
made = []
for seed in range(2):
    model = smallnet(seed)
    made.append(quantized_classifier(model, quantize(model, tiny_images(8), 0.25, 8), SHAPE))
print(quantized_identity(made)["instructions"])
while made:
    del made[0]  # the first one first
    gc.collect()
signal.signal(signal.SIGCHLD, lambda *_: print("signalled"))
subprocess.run([sys.executable, "-c", "pass"])
"""


@needs_x86
@pytest.mark.trust_only
def test_a_process_with_portable_arithmetic_runs_what_all_have_and_survives_a_signal():
    """A runtime of OpenVINO brings back the stack for signals of the one before, which may be gone
    with its memory.
    """
    made = python("-c", PROCESS, **PORTABLE)
    assert (made.returncode, made.stdout) == (0, "Intel AVX2\nsignalled\n"), made.stderr


def test_what_is_not_in_int8_is_in_float32_on_every_processor(color):
    """Some processors would compute in bfloat16, or choose scales by the image."""
    runs = color[1]._compiled
    assert runs.get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"
    assert runs.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE") == 0


def test_calibration_images_are_training_images_with_noise_of_their_own_key():
    split = tiny_images(24)
    noisy = int8.calibration_images(split, 0.5, 7)
    expected = torch.stack([split.pixels(index) for index in (0, 4, 8, 12, 15, 19, 23)])
    noise = gaussian_block(0, torch.Size(SHAPE), 0.5, 0, Stream.CALIBRATE, device="cpu")
    assert torch.equal(noisy, expected + noise[:7])


# -------------------------------------------------------------------------------------------- on
# disk


def test_what_lies_beside_the_model_is_what_runs(tiny):
    card = int8.read_quantized(tiny / "model").card
    loaded = load(str(tiny / "model"))
    training = data.load_images(tiny / "data", "train")
    assert int8.quantize(loaded.module, training, loaded.sigma, COUNT).card == card
    assert card.classifier == model_fingerprint(loaded.module)
    found = int8.quantized_identity([loaded.smooth(engine="quantized").base])
    expected = {"precision": "int8", "quantized": card.network, "calibration": COUNT}
    assert found | expected == found


def test_pictures_calibrate_as_the_same_images_of_a_data_set_do(tmp_path):
    save_model(tmp_path / "model")
    images = tiny_images(COUNT)  # fewer than 11, so that their names have the order of numbers
    write_photos(tmp_path / "photos", images.images)
    finished("quantize", tmp_path / "model", "--images", tmp_path / "photos")
    module = load(str(tmp_path / "model")).module
    expected = int8.quantize(module, images, SIGMA).card.network
    assert int8.read_quantized(tmp_path / "model").card.network == expected


@pytest.mark.parametrize("name", [int8.GRAPH, int8.WEIGHTS])
def test_a_damaged_network_is_refused(tiny, tmp_path, name):
    int8.write_quantized(tmp_path, int8.read_quantized(tiny / "model"))
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    with refuses(r"must be those of quantized\.json, but they changed; run rs quantize"):
        int8.read_quantized(tmp_path)
    (tmp_path / name).unlink()
    with refuses(r"must hold quantized\.xml and quantized\.bin next to quantized\.json"):
        int8.read_quantized(tmp_path)


def test_the_network_of_another_model_is_refused(tiny):
    source = int8.Calibration([str(tiny / "model")], None, SIGMA)
    with refuses("must describe the model next to it"):
        int8.quantized_members([smallnet(5).eval()], source, SHAPE)


def test_a_network_of_other_noise_than_the_training_s_is_refused(tiny, tmp_path):
    """As where the card of an imported model was corrected afterwards, which leaves its weights as
    they are.
    """
    shutil.copytree(tiny / "model", tmp_path / "model")
    update_json(tmp_path / "model" / "model.json", sigma=0.5)
    with refuses(r"must be for noise 0\.5, as in training, but is for 0\.25; run rs quantize"):
        load(tmp_path / "model").smooth(engine="quantized")


def test_what_is_there_is_replaced_by_force_alone(tiny, tmp_path, capfd, monkeypatch):
    folder = shutil.copytree(tiny / "model", tmp_path / "model")
    words = ["quantize", folder, "--data", tiny / "data", "--count", COUNT + 1]
    with monkeypatch.context() as patched:
        patched.setattr(int8, "quantize", None)  # it is refused before any work
        assert exit_code(rs.app, *words) == 2
    assert "a quantized network is there; name another MODEL" in capfd.readouterr().err
    assert int8.read_quantized(folder).card.calibration == COUNT
    finished(*words, "--force")
    assert int8.read_quantized(folder).card.calibration == COUNT + 1


# --------------------------------------------------------------------------------------- what is
# refused


def test_without_images_and_without_a_network_it_says_what_to_do():
    base = Classifier("mine", smallnet().eval(), "tiny", CLASSES, SHAPE, sigma=SIGMA)
    for folders in (("mine",), ()):
        with refuses("rs quantize MODEL"):
            replace(base, folders=folders).smooth(engine="quantized")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    int8.library.cache_clear()
    monkeypatch.setitem(sys.modules, "openvino", None)
    with refuses(r"pip install 'randomized-smoothing\[int8\]'"):
        int8.library("openvino")


def test_it_has_a_precision_of_its_own():
    with refuses("engine quantized must run on a CPU, with precision left at float32"):
        optimize_for_inference(smallnet(), "quantized", "bfloat16", SHAPE, CPU)


class Branches(nn.Module):
    """Takes its path by the image, which tracing fixes."""

    def forward(self, x):
        logits = x.flatten(1)[:, :3]
        return logits if bool(torch.equal(x, noisy_pair(SHAPE, CPU)[:1])) else -logits


def test_a_network_whose_path_depends_on_the_image_is_refused():
    with refuses(r"must take the same path for every image .* use engine folded"):
        int8.quantize(Branches().eval(), tiny_images(4), SIGMA, 4)


@pytest.mark.parametrize("normalize", [transforms.Normalize, v2.Normalize, Normalize])
def test_a_normalization_of_three_channels_is_converted(normalize):
    layers = normalize([0.4, 0.5, 0.6], [0.2, 0.25, 0.3]), nn.Flatten(), nn.Linear(192, 2)
    network = nn.Sequential(*layers).eval()
    x = images(2, COLOR)
    found = int8._compiled(int8.serialize(int8.convert(network, x[:1])))(x.numpy())[0]
    torch.testing.assert_close(torch.from_numpy(found), network(x).detach())


# ------------------------------------------------------------------------------------------
# commands


def test_certificates_in_int8_are_attacked_in_int8(tiny, tmp_path):
    rows = tmp_path / "rows.tsv"
    options = SmoothingOptions(device=CPU)
    certify_folder(str(tiny / "model"), tiny / "data", SETTINGS, options, out=rows)
    words = ["attack", rows, "--model", tiny / "model", "--data", tiny / "data", "--device", "cpu"]
    words += ["--samples", 5, "--restarts", 1, "--n", 200, "--alpha", 0.01, "--limit", 1]
    finished(*words, "--out", tmp_path / "attacks.tsv")
    certified = read_json(tmp_path / "rows.json")
    attacked = read_json(tmp_path / "attacks.json")
    for key in ("engine", "precision", "quantized", "calibration", "instructions"):
        assert attacked[key] == certified[key]


def test_without_a_network_on_disk_predict_and_certify_make_the_same_one_and_say_which(
    tiny_project, monkeypatch, capfd
):
    monkeypatch.setattr(int8, "CALIBRATION_IMAGES", 7)
    certify_folder(
        "model", Path("data"), SETTINGS, SmoothingOptions(device=CPU), out=Path("rows.tsv")
    )
    side = read_json(Path("rows.json"))
    Image.fromarray(np.full(SHAPE[1:], 99, np.uint8)).save("gray.png")
    words = ["--model", "model", "--data", "data", "--device", "cpu", "--engine", "quantized"]
    finished("predict", "gray.png", *words)
    assert f"network {side['quantized']}, 7 calibration images\n" in capfd.readouterr().err
    assert side["calibration"] == 7
