"""The way of a user with a network and pictures of their own: doctor, train, certify, predict; in
Python too.
"""

import importlib
import io
import json
import linecache
import os
import re
import runpy
import shutil
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.transforms.functional import to_pil_image

import rs
from rs.command_line.certify import main as certify
from rs.command_line.doctor import main as doctor
from rs.command_line.fingerprints import cell_fingerprints
from rs.command_line.predict import main as predict
from rs.command_line.shell import run
from rs.command_line.show import report_files, show_files
from rs.command_line.train import main as train
from rs.data.image_folder import listed, split_by_content
from rs.data.prepared import save_images
from rs.errors import InputWarning
from rs.storage.files import read_json
from rs.training.history import quick_acr
from tests.support.helpers import (
    ROOT,
    SECTIONS,
    exit_code,
    forget_networks,
    refuses,
    tiny_params,
    weights,
    write_params,
)

CLASSES = ("circle", "square", "stripe")
PHOTOS = ["--images", "photos", "--sigma", "0.25", "--out", "model", "--log", "log"]

MODULE = """
from types import SimpleNamespace

import torch
from torch import nn

class Small(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        )
        self.fc = nn.Linear(288, classes)

    def forward(self, x):
        return self.fc(self.features(x))

def build():
    return Small()

def pretrained():
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return Small()

def resnet():
    from torchvision.models.resnet import BasicBlock, ResNet
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)

class Named(Small):
    def forward(self, x):
        return SimpleNamespace(logits=super().forward(x))

def two():
    return Small(2)

def fixed():
    return Small().requires_grad_(False)

class Views(Small):
    def forward(self, x):
        maps = self.features[:-1](x)
        return self.fc(maps.view(len(maps), -1))

class InPlace(Small):
    def forward(self, x):
        return super().forward(x.sub_(0.5))

class Unused(Small):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(2, 2)
"""


def picture(rng, shape):
    """A circle, a square or stripes, brighter than what is behind it, of 24x24 pixels."""
    pixels = np.full((24, 24, 3), rng.integers(0, 90, 3), np.uint8)
    (y, x), (top, left), size = np.mgrid[:24, :24], rng.integers(8, 16, 2), rng.integers(4, 7)
    inside = {
        "circle": (y - top) ** 2 + (x - left) ** 2 < size**2,
        "square": (abs(y - top) < size) & (abs(x - left) < size),
        "stripe": (x // 3) % 2 == 0,
    }[shape]
    pixels[inside] = rng.integers(150, 255, 3)
    return pixels


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of 90 pictures, 30 of each class."""
    root = tmp_path_factory.mktemp("pictures") / "photos"
    rng = np.random.default_rng(0)
    for shape in CLASSES:
        (root / shape).mkdir(parents=True)
        for number in range(30):
            Image.fromarray(picture(rng, shape)).save(root / shape / f"{number}.png")
    return root


def quick_acr_of_two(model, images, settings, options):
    """The quick ACR of two images, because trainings of one epoch would take most of their time for
    it.
    """
    return quick_acr(model, images, replace(settings, eval_images=2), options)


@pytest.fixture(autouse=True)
def project(tmp_path, work, monkeypatch, photos):
    """A folder with a module of networks and 90 pictures, which are links: none may be written
    into.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_networks()
    monkeypatch.delitem(importlib.sys.modules, "own_networks", raising=False)
    importlib.invalidate_caches()
    monkeypatch.setattr("rs.training.trainer.quick_acr", quick_acr_of_two)
    Path("own_networks.py").write_text(MODULE)
    shutil.copytree(photos, "photos", copy_function=os.link)


def command(main, *words):
    """Run a command that must succeed."""
    assert exit_code(main, *words) == 0


def refusal(capsys, main, *words):
    """Run a command that must refuse its input, and return its line."""
    assert exit_code(main, *words) == 2
    return capsys.readouterr().err.splitlines()[-1]


def trained(*words, network="pretrained", method="gaussian", out="model"):
    """Train on the pictures by command, and return the folder of the model."""
    options = f"--images photos --sigma 0.25 --out {out} --log {out}-log --device cpu".split()
    command(train, method, "--network", f"own_networks:{network}", *options, *words)
    return out


def weights_in(folder):
    return load_file(Path(folder, "model.safetensors"))


@pytest.mark.parametrize(
    ("network", "epochs", "stride"), [("pretrained", 12, 3), ("resnet", 1, 30)]
)
def test_the_way_from_a_network_to_certificates(capsys, network, epochs, stride):
    named = f"own_networks:{network}"
    run_doctor = ["--images", "photos", "--sigma", 0.25, "--count", 20]
    with pytest.raises(SystemExit):
        run(doctor, [named, *map(str, run_doctor)])
    folder = trained("--epochs", epochs, network=network)
    assert f"model of the last epoch in {folder}, log in {folder}-log" in capsys.readouterr().out
    rows = ["--images", "photos", "--n0", "20", "--n", "100", "--out", "rows.tsv", "--subset"]
    command(certify, folder, "--network", named, *rows, f"{{stride: {stride}}}")
    command(predict, "photos/circle/0.png", "--model", folder, "--network", named, "--n", 100)
    assert Path("rows.tsv").read_text().count("\n") == 1 + 90 // stride
    if network == "pretrained":  # which the few steps are enough for
        command(report_files, "rows.tsv", "--images", "photos", "--out", "report.html")
        assert all(name in Path("report.html").read_text() for name in CLASSES)
        command(show_files, "rows.tsv", "--picture", "curve.png")
        assert Path("curve.png").is_file()
        accuracy = float(re.search(r"clean accuracy +([\d.]+)%", capsys.readouterr().out)[1]) / 100
        assert accuracy > 0.6  # three classes: chance is 0.33


def test_a_folder_never_imports_a_network_by_itself(capsys):
    folder = trained("--epochs", 1)
    forget_networks()
    need = "the network own_networks:pretrained must be given, because a model folder never imports"
    assert need in refusal(capsys, certify, folder, "--images", "photos", "--out", "rows.tsv")
    with refuses(need):
        rs.load(folder)
    module = importlib.import_module("own_networks")
    by_name, by_function = (
        rs.load(folder, network=form) for form in ("own_networks:pretrained", module.pretrained)
    )
    x = torch.rand(2, 3, 24, 24)
    assert torch.equal(by_name.module(x), by_function.module(x))
    assert (by_name.sigma, by_name.classes) == (0.25, CLASSES)


def load_after_edit(folder, text):
    """Load a model folder in a process whose module has another text."""
    forget_networks()
    importlib.sys.modules.pop("own_networks", None)
    importlib.invalidate_caches()
    Path("own_networks.py").write_text(text)
    return rs.load(folder, network="own_networks:pretrained")


def test_a_comment_in_the_source_changes_nothing_and_other_code_must_give_the_same_logits():
    folder = trained("--epochs", 1)
    x = torch.rand(2, 3, 24, 24)
    expected = rs.load(folder).module(x)
    commented = "# three classes\n" + MODULE.replace(
        "def build():", "def build():\n    'Return the network of the shop.'"
    )
    unchanged = load_after_edit(folder, commented)  # a warning would be an error here
    assert torch.equal(unchanged.module(x), expected)
    sources = unchanged.sources
    with pytest.warns(InputWarning, match="own_networks changed since model was trained"):
        extended = load_after_edit(folder, MODULE + "\nUNUSED = 1\n")
    assert torch.equal(extended.module(x), expected)
    assert extended.sources != sources
    for old, new in (
        ("return self.fc(self.features(x))", "return 2 * self.fc(self.features(x))"),
        ("nn.Linear(288, classes)", "nn.Linear(288, classes, bias=False)"),
    ):
        assert old in MODULE
        with refuses("but own_networks changed"):
            load_after_edit(folder, MODULE.replace(old, new))
    card = Path(folder, "model.json")
    values = read_json(card)
    del values["probe"]  # as of logits that are not finite
    card.write_text(json.dumps(values))
    assert torch.equal(load_after_edit(folder, commented).module(x), expected)
    with refuses("but own_networks changed"):
        load_after_edit(folder, MODULE + "\nUNUSED = 1\n")


def test_a_training_starts_from_the_weights_of_the_network_or_of_a_file_or_from_scratch():
    small = ["--epochs", 1, "--trainable", "fc.bias"]  # all others stay what they were at the start
    own = weights_in(trained(*small))
    expected = importlib.import_module("own_networks").pretrained().state_dict()
    assert torch.equal(own["network.fc.weight"], expected["fc.weight"])
    assert not torch.equal(own["network.fc.bias"], expected["fc.bias"])
    other = expected | {"fc.weight": expected["fc.weight"] + 0.5}
    save_file(other, "start.safetensors")
    given = weights_in(trained(*small, "--weights", "start.safetensors", out="given"))
    assert torch.equal(given["network.fc.weight"], other["fc.weight"])
    again = weights_in(trained(*small, "--weights", "given", out="again"))
    changed = {name for name in given if not torch.equal(again[name], given[name])}
    assert changed == {"network.fc.bias"}
    first = weights_in(trained(*small, "--from-scratch", out="first"))["network.fc.weight"]
    second = trained(*small, "--from-scratch", "--seed", 1, out="second")
    starts = [own["network.fc.weight"], first, weights_in(second)["network.fc.weight"]]
    assert torch.stack(starts).unique(dim=0).shape[0] == 3


def test_the_head_alone_can_be_trained():
    folder = trained("--epochs", 1, "--trainable", "head")
    start = weights(importlib.import_module("own_networks").pretrained())
    state = weights(rs.load(folder).module)
    changed = {name for name, value in start.items() if value != state[f"network.{name}"]}
    assert changed == {"fc.weight", "fc.bias"}  # and no statistics of batch norm


def test_a_network_may_take_views_of_its_maps():
    assert "network.fc.weight" in weights_in(trained("--epochs", 1, network="Views"))


def test_a_training_replaces_neither_its_start_nor_the_model_of_another_network(capsys):
    trained("--epochs", 1)
    words = [*PHOTOS, "--device", "cpu"]
    line = refusal(capsys, train, "gaussian", "--network", "own_networks:build", *words)
    assert "but holds gaussian of photos, sigma 0.25, seed 0, network own_networks:pret" in line
    words += ["--network", "own_networks:pretrained", "--weights", "model"]
    line = refusal(capsys, train, "gaussian", *words)
    assert "model must be another folder than that of --weights" in line


def test_a_finished_training_is_not_repeated_and_other_settings_need_restart(capsys):
    Path("own_networks.py").write_text(MODULE + READS_WEIGHTS)
    torch.save(0.0, "bias.pt")
    settings = ["--epochs", "2", "--batch", "40"]
    folder = trained(*settings, network="stored")
    weights = Path(folder, "model.safetensors")
    written = weights.stat().st_mtime_ns
    content = weights.read_bytes()
    trained(*settings, network="stored")
    assert f"complete already: {folder}" in capsys.readouterr().out
    assert weights.stat().st_mtime_ns == written
    named = ["gaussian", "--network", "own_networks:stored", *PHOTOS, "--log", "model-log"]
    named += ["--device", "cpu"]
    for words, difference in (
        ("--epochs 1 --batch 40", "training.epochs 2, not 1"),
        ("--epochs 2 --batch 20", "training.batch 40, not 20"),
        ("--epochs 2 --batch 40 --trainable head", "training.trainable None, not head"),
        ("--epochs 2 --batch 40 --log elsewhere", "elsewhere must hold the log"),
        ("--seconds 1 --batch 40", "seconds None, not 1.0"),
    ):
        line = refusal(capsys, train, *named, *words.split())
        assert difference in line
        assert "--restart" in line
    hashes = "[0-9a-f]{12}, not [0-9a-f]{12};"  # the first digits are enough for a reader
    torch.save(1.0, "bias.pt")
    assert re.search(f"with start {hashes}", refusal(capsys, train, *named, *settings))
    torch.save(0.0, "bias.pt")
    Path("photos/stripe/3.png").unlink()
    assert re.search(f"with images {hashes}", refusal(capsys, train, *named, *settings))
    assert weights.read_bytes() == content
    trained("--epochs", 1, "--restart", network="stored")
    assert read_json(Path(folder, "model.json"))["epochs"] == 1


def test_a_second_training_into_a_folder_in_use_names_the_process_of_the_first(capsys, monkeypatch):
    """It starts in the middle of the first, with the same settings, and with others."""
    lines = []

    def second(*arguments):
        monkeypatch.setattr("rs.training.trainer.quick_acr", quick_acr_of_two)
        options = ["--sigma", "0.25", "--images", "photos", "--device", "cpu"]
        named = ["gaussian", "--network", "own_networks:pretrained", *options]
        for out, log, epochs in (
            ("model", "model-log", 1),
            ("model", "other-log", 2),
            ("other", "model-log", 2),
            ("other", "other-log", 1),
        ):
            words = [*named, "--out", out, "--log", log, "--epochs", epochs, "--eval-every", 1]
            lines.append(refusal(capsys, train, *words))
        return quick_acr_of_two(*arguments)

    monkeypatch.setattr("rs.training.trainer.quick_acr", second)
    trained("--epochs", 1, "--eval-every", 1)
    assert len(lines) == 4
    assert all(f"process {os.getpid()} " in line for line in lines)
    assert not Path("other").exists()
    trained("--epochs", 2, "--restart")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--network", "own_networks:build", "--from-scratch"],
            "for a classifier of random weights; leave it out",
        ),
        (
            ["--dataset", "finetune", "--params", "rs/params.yaml"],
            "must have a classifier that is trained already",
        ),
    ],
)
def test_a_denoiser_needs_a_trained_classifier(capsys, words, message):
    Path("rs").symlink_to(Path(rs.__file__).parent)
    line = refusal(capsys, train, "denoiser-mse", *words, *PHOTOS)
    assert message in line


@pytest.mark.parametrize(
    ("network", "words", "message"),
    [
        ("two", "", r"logit for each of 3 classes, got logits of shape \(1, 2\) for one image"),
        ("fixed", "", "must have parameters to train, but none of its 8 is"),
        ("build", "--trainable nothing", "none of its 8 is trainable with --trainable nothing"),
        ("build", "--trainable (", r"must be all, head, or a regular expression .*, got '\('"),
        (
            "Unused",
            "",
            "the loss must depend on every parameter that is trained, but 2 have no gradient, "
            "first network.ex",
        ),
        (
            "build",
            "--weights other.safetensors",
            "must hold the weights of own_networks:build, but 11 tensors do not fit; first "
            "fc.bias: expected .*, got "
            r"\(1,\), fc.weight: expected .*, got \(1,\), features.0.bias: ",
        ),
        ("InPlace", "", "must not change its images, but it writes into them"),
        ("build", "--weights none.safetensors", "none.safetensors"),
        ("build", "--weights pipe", "pipe must be a file, but there is none"),
        (
            "build",
            "--from-scratch --weights other.safetensors",
            "give --from-scratch or --weights, got both",
        ),
        ("absent", "", "own_networks has no function absent"),
        ("build", "--params none.yaml", "none.yaml is for --dataset, .* which is not given"),
    ],
)
def test_what_cannot_be_trained_is_one_line(capsys, network, words, message):
    names = importlib.import_module("own_networks").build().state_dict()
    save_file({name: torch.zeros(1) for name in names}, "other.safetensors")
    os.mkfifo("pipe")  # which has no end
    own = ["--network", f"own_networks:{network}"]
    line = refusal(capsys, train, "gaussian", *own, *PHOTOS, *words.split())
    assert re.search(message, line), line
    assert not Path("model").exists()


def test_copies_of_a_picture_stay_together():
    for path in [*Path("photos/circle").iterdir()]:
        shutil.copy(path, path.with_stem(f"copy{path.stem}"))
    larger, smaller = split_by_content(listed(Path("photos")), 0.1)
    contents = [{Path(path).read_bytes() for path, _ in tree.samples} for tree in (larger, smaller)]
    assert not contents[0] & contents[1]
    assert {label for _, label in smaller.samples} == {0, 1, 2}


def test_classes_out_of_balance_are_said(capsys):
    for number in range(2, 30):
        Path("photos/stripe", f"{number}.png").unlink()
    trained("--epochs", 1)
    warning = "warning: the classes are imbalanced: 30 images of circle, 2 of stripe"
    assert warning in capsys.readouterr().err


def data():
    pixels = [
        np.asarray(Image.open(path))
        for shape in CLASSES
        for path in sorted(Path("photos", shape).glob("*.png"))
    ]
    return np.stack(pixels).transpose(0, 3, 1, 2), np.repeat([0, 1, 2], 30)


def write_data():
    """Write a data set whose splits both have all pictures."""
    splits = {"train": data(), "test": data()}
    save_images(Path("data"), name="shapes", classes=CLASSES, splits=splits)


def test_python_trains_arrays_tensors_and_data_sets_alike():
    build, (images, labels) = importlib.import_module("own_networks").pretrained, data()
    rows, settings = [], {"sigma": 0.3, "method": "advmacer", "epochs": 1}
    robust = rs.train(build, images, labels, **settings, on_epoch=rows.append, classes=CLASSES)
    assert [row["epoch"] for row in rows] == [1]
    assert (robust.sigma, robust.classes) == (0.3, CLASSES)
    assert robust.smooth().certify(images[0], n0=10, n=50).n == 50
    tensors = torch.from_numpy(images).float() / 255
    pairs = [(x, int(y)) for x, y in zip(tensors, labels, strict=True)]
    pictures = [(to_pil_image(x), y) for x, y in pairs]
    for network, *examples in (
        (build, pictures),
        (build(), tensors, torch.from_numpy(labels)),
        (build, pairs),
    ):
        other = rs.train(network, *examples, **settings)
        assert weights(robust.module) == weights(other.module)


def test_a_folder_that_python_made_of_a_network_loads_by_a_function_that_builds_it():
    robust = rs.train(
        importlib.import_module("own_networks").Small(), *data(), sigma=0.3, epochs=1, out="mine"
    )
    Path("builders.py").write_text(
        "from own_networks import Small, Unused\n\ndef build():\n    return Small()\n"
    )
    forget_networks()
    loaded = rs.load("mine", network="builders:build")
    assert weights(loaded.module) == weights(robust.module)
    forget_networks()
    with refuses("the network own_networks:Small must be given"):
        rs.load("mine", network="builders:Unused")


READS_WEIGHTS = """
def stored():
    network = pretrained()
    network.fc.bias.data.fill_(torch.load("bias.pt"))
    return network
"""


SCRIPT = """
import sys
import numpy as np
import torch
import rs

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 2)

    def forward(self, x):
        return self.fc(x.flatten(1)) * {scale}

def show(row):
    print(row["epoch"])
    if row["epoch"] == {last}:
        sys.exit()

torch.manual_seed(0)
images = np.random.default_rng(0).integers(0, 256, (40, 1, 8, 8), np.uint8)
rs.train(Net(), images, np.arange(40) % 2, sigma=0.3, method="gaussian", epochs=3, on_epoch=show)
"""


def printed_by_script():
    """The words that the script prints, as in a process of its own."""
    forget_networks()
    linecache.clearcache()
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        runpy.run_path("script.py", run_name="__main__")
    return printed.getvalue().split()


def test_a_stopped_training_of_a_script_does_not_go_on_with_another_network_of_it():
    epochs = []
    for scale, last in ((1, 2), (2, 3), (1, 3)):
        Path("script.py").write_text(SCRIPT.format(scale=scale, last=last))
        epochs.append(printed_by_script())
    assert epochs == [["1", "2"], ["1", "2", "3"], ["2", "3"]]


def test_layers_may_share_weights_and_the_threads_of_torch_stay():
    network, (images, labels) = importlib.import_module("own_networks").pretrained(), data()
    network.same = network.fc
    small = images[:, :, ::2, ::2]  # which one thread trains on
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    robust = rs.train(network, small, labels, sigma=0.3, method="gaussian", epochs=1)
    after = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert after == 2
    state = robust.module.state_dict()
    assert torch.equal(state["network.fc.weight"], state["network.same.weight"])


@pytest.mark.parametrize("has_validation", [True, False])
def test_the_quick_acr_of_a_prepared_data_set_is_never_of_test_images(monkeypatch, has_validation):
    """Of its validation split, else of a tenth of each class, which is left out of the training."""
    images, labels = data()
    splits = {"train": (images, labels), "test": (255 - images, labels)}
    if has_validation:
        splits["validation"] = images[::-1], labels[::-1]
    save_images(Path("data"), name="shapes", classes=CLASSES, splits=splits)
    seen = []
    monkeypatch.setattr(
        "rs.training.run.train_on", lambda _, *images, **to: seen.extend([*images[:2], to["log"]])
    )
    words = "--network own_networks:build --sigma 0.25 --data data --out model --log log"
    command(train, "gaussian", *words.split(), "--eval-every", 1)
    trained_on, evaluation, _ = seen
    if has_validation:
        assert np.array_equal(evaluation.images, images[::-1])
        assert np.array_equal(trained_on.images, images)
    else:
        assert np.bincount(evaluation.labels).tolist() == [3, 3, 3]
        pixels = [image.tobytes() for image in (*trained_on.images, *evaluation.images)]
        assert sorted(pixels) == sorted(image.tobytes() for image in images)


def test_copies_of_images_stay_together_or_are_counted(capsys):
    build, (images, labels) = importlib.import_module("own_networks").pretrained, data()
    settings = {"sigma": 0.3, "method": "gaussian", "epochs": 1}
    rs.train(build, images.repeat(2, axis=0), labels.repeat(2), **settings)
    warning = "images of the evaluation are images of the training too"
    assert warning not in capsys.readouterr().err
    rs.train(build, images, labels, **settings, validation=(images[:50], labels[:50]))
    assert f"warning: 50 of 50 {warning}" in capsys.readouterr().err


def test_python_and_the_command_train_to_the_same_bytes(capsys):
    """On one data set, of which both leave the same tenth out, by the default method."""
    write_data()
    words = "--network own_networks:pretrained --epochs 1 --batch 40 --seed 3 --data data"
    places = "--sigma 0.25 --device cpu --out model --log log"
    command(train, *words.split(), *places.split())
    build = importlib.import_module("own_networks").pretrained
    rs.train(build, *data(), sigma=0.25, epochs=1, batch=40, seed=3, out="python", device="cpu")
    assert (
        Path("model/model.safetensors").read_bytes()
        == Path("python/model.safetensors").read_bytes()
    )
    card = read_json(Path("model/model.json"))
    assert (card["method"], card["training"]["batch"], card["training"]["kept"]) == (
        "advmacer",
        40,
        "last epoch",
    )
    assert "model of the last epoch in model" in capsys.readouterr().out


def test_a_recipe_names_a_network():
    write_data()
    model = {"architecture": "resnet110", "network": "own_networks:pretrained"}
    write_params(Path("params.yaml"), model=model)
    recipe = ["--dataset", "tiny", "--data", "data", "--params", "params.yaml"]
    command(train, "gaussian", *recipe, "--sigma", 0.25, "--out", "model", "--log", "log")
    forget_networks()
    command(certify, "model", *recipe, "--out", "rows.tsv")
    assert read_json(Path("model/model.json"))["architecture"] == "own_networks:pretrained"


def test_cells_depend_on_the_code_and_the_weights_of_a_network(monkeypatch):
    """Ensembles too, whose files have no code."""
    monkeypatch.setattr("rs.runtime.code_fingerprint.stage_fingerprints", lambda *_: {})
    text = MODULE + READS_WEIGHTS
    values = tiny_params(**SECTIONS, model={"network": "own_networks:stored"}) | {
        "sigmas": [0.25],
        "methods": ["macer"],
        "seeds": [0],
        "datasets": {"tiny": {"source": "folder", "root": "raw"}},
        "tables": {"radii": [0.0], "reference": "macer", "combination": "", "remarks": []},
    }

    def networks():
        found = cell_fingerprints(values, "tiny", Path("data"), Path("out"), ROOT)
        return {name: content.get("network") for name, content in found.items()}

    found = []
    for bias, source in ((0.0, text), (0.0, text), (1.0, text), (0.0, text + "# other\n")):
        torch.save(bias, "bias.pt")
        Path("own_networks.py").write_text(source)
        found.append(networks())
    assert found[0] == found[1]
    stages = ("train/macer-0.25", "weights", "certify_ensembles")
    for other in found[2:]:
        changed = {name for name in other if found[0][name] != other[name]}
        assert changed == {f"parameters/tiny/{name}" for name in stages}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x, y: (np.ma.masked_less(x, 9), y),
            r"images must have pixels without a mask, .*: images.filled\(0\)",
        ),
        (lambda x, y: (x[0], y), r"images must have the shape \(N, C, H, W\)"),
        (lambda x, y: (x, y[:-1]), "labels of shape"),
        (lambda x, y: (x, None), "labels must be given"),
        (lambda x, y: (x, y + 0.5), "float64"),
        (
            lambda x, y: (x.astype(np.float32), y),
            r"pixels in \[0, 1\], got torch.float32 from . to 25",
        ),
        (lambda x, y: (x.astype(np.float32) / 255 - 0.5, y), "give bounds=, such as"),
        (lambda x, y: (x[29:], y[29:]), "two different images or more, got one of class '0'"),
        (lambda x, y: (x, ["circle"] * 90), "images and labels must be arrays of numbers"),
        (lambda x, y: ([(x[0], 0), (x[1][:, :9], 1)], None), "must have one shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    build = importlib.import_module("own_networks").build
    with refuses(message):
        rs.train(build, *change(*data()), sigma=0.25, validation=0.1)


def test_a_share_and_a_function_that_do_not_fit_are_refused():
    module, settings = importlib.import_module("own_networks"), {"sigma": 0.25}
    images, labels = data()
    with refuses("must be a positive number, got 0"):
        rs.train(module.build, images, labels, sigma=0)
    with refuses(r"validation images must have the shape of the others, .*, got"):
        rs.train(module.build, images, labels, **settings, validation=(images[:, :, 1:], labels))
    with refuses(r"labels must lie in 0\.\.1, one for each class, got 2"):
        rs.train(module.build, images, labels, **settings, classes=("circle", "square"))
    with refuses(r"network must be an nn\.Module or a function that builds one, got str"):
        rs.train("own_networks:build", images, labels, **settings)
    with refuses("stability has no hyper-parameter lr; it has lam"):
        rs.train(module.build, images, labels, **settings, method="stability", lr=0.1)
    for share in (0, 1):
        with refuses(f"or a share between 0 and 1, got {share}"):
            rs.train(module.build, images, labels, **settings, validation=share)
    with refuses(r"own_networks:Small\.forward must be a function that needs no argument"):
        rs.train(module.Small.forward, images, labels, **settings)
