"""The way of a user with a network and pictures of their own: doctor, train, certify, predict; in
Python too.
"""

import importlib
import io
import linecache
import os
import re
import runpy
import shutil
from contextlib import redirect_stdout, suppress
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.transforms.functional import to_pil_image

import rs
from rs.command_line.certify import main as certify
from rs.command_line.doctor import main as doctor
from rs.command_line.fingerprints import cell_fingerprints
from rs.command_line.predict import main as predict
from rs.command_line.show import report_files, show_files
from rs.command_line.train import main as train
from rs.data.image_folder import listed, split_by_content
from rs.data.prepared import save_images
from rs.errors import InputWarning
from rs.storage.files import read_json
from rs.training.history import quick_acr
from tests.support.helpers import (
    CLASSES,
    ROOT,
    SECTIONS,
    arrays,
    exit_code,
    forget_networks,
    generator,
    refuses,
    tiny_params,
    update_json,
    weights,
    write_params,
)
from tests.support.own_networks import MODULE, trained, words

pytestmark = pytest.mark.usefixtures("own_project")

NETWORK = ["--network", "own_networks:network"]
IMAGES, LABELS = arrays(24, 0)


def command(main, *words):
    """Run a command that must succeed."""
    assert exit_code(main, *words) == 0


def refusal(capsys, main, *words):
    """Run a command that must refuse its input, and return its line."""
    assert exit_code(main, *words) == 2
    return capsys.readouterr().err.splitlines()[-1]


def weights_in(folder):
    return load_file(Path(folder, "model.safetensors"))


def locked():
    """A network that cannot be copied."""
    network = nn.Linear(2, 2)
    network.lock = Lock()
    return network


def own(name="network"):
    """A function or class of the user's module."""
    return getattr(importlib.import_module("own_networks"), name)


def test_the_way_from_a_network_to_certificates(capsys):
    images = ["--images", "photos"]
    exit_code(doctor, "own_networks:network", *images, "--sigma", 0.25, "--count", 20)
    folder = trained("--epochs", 12)
    assert f"model of the last epoch in {folder}, log in {folder}-log" in capsys.readouterr().out
    budget = ["--n0", 20, "--n", 100]
    command(certify, folder, *NETWORK, *images, *budget, "--out", "rows.tsv")
    command(predict, "photos/left/0.png", "--model", folder, *NETWORK, "--n", 100)
    command(report_files, "rows.tsv", *images, "--out", "report.html")
    assert all(name in Path("report.html").read_text() for name in CLASSES)
    command(show_files, "rows.tsv", "--picture", "curve.png")
    assert Path("curve.png").is_file()
    accuracy = float(re.search(r"clean accuracy +([\d.]+)%", capsys.readouterr().out)[1]) / 100
    assert accuracy > 0.9  # of 24 images in two classes


def test_a_folder_never_imports_a_network_by_itself(capsys):
    folder = trained()
    forget_networks()
    need = "the network own_networks:network must be given, because a model folder never imports"
    assert need in refusal(capsys, certify, folder, "--images", "photos", "--out", "rows.tsv")
    with refuses(need):
        rs.load(folder)
    x = torch.rand(2, 1, 4, 4)
    by_name = rs.load(folder, network="own_networks:network")
    by_function = rs.load(folder, network=own())
    assert torch.equal(by_name.module(x), by_function.module(x))
    assert (by_name.sigma, by_name.classes) == (0.25, CLASSES)


def load_after_edit(folder, text):
    """Load a model folder in a process whose module has another text."""
    Path("own_networks.py").write_text(text)
    forget_networks("own_networks")
    return rs.load(folder, network="own_networks:network")


def test_a_comment_in_the_source_changes_nothing_and_other_code_must_give_the_same_logits():
    folder = trained()
    x = torch.rand(2, 1, 4, 4)
    expected = rs.load(folder).module(x)
    commented = "# two classes\n" + MODULE.replace(
        "def thousand():", "def thousand():\n    'Return the network of the shop.'"
    )
    unchanged = load_after_edit(folder, commented)  # a warning would be an error here
    assert torch.equal(unchanged.module(x), expected)
    sources = unchanged.sources
    with pytest.warns(InputWarning, match="own_networks changed since model was trained"):
        extended = load_after_edit(folder, MODULE + "\nUNUSED = 1\n")
    assert torch.equal(extended.module(x), expected)
    assert extended.sources != sources
    for old, new in (
        ("return self.fc(maps", "return 2 * self.fc(maps"),
        ("nn.Linear(64, classes)", "nn.Linear(64, classes, bias=False)"),
    ):
        assert old in MODULE
        with refuses("but own_networks changed"):
            load_after_edit(folder, MODULE.replace(old, new))
    update_json(Path(folder, "model.json"), probe=[])  # as of logits that are not finite
    assert torch.equal(load_after_edit(folder, commented).module(x), expected)
    with refuses("but own_networks changed"):
        load_after_edit(folder, MODULE + "\nUNUSED = 1\n")


def test_a_training_starts_from_the_weights_of_the_network_or_of_a_file_or_from_scratch():
    small = ["--trainable", "fc.bias"]  # all others stay what they were at the start
    start = weights_in(trained(*small))
    expected = own()().state_dict()
    assert torch.equal(start["network.fc.weight"], expected["fc.weight"])
    assert not torch.equal(start["network.fc.bias"], expected["fc.bias"])
    other = expected | {"fc.weight": expected["fc.weight"] + 0.5}
    save_file(other, "start.safetensors")
    given = weights_in(trained(*small, "--weights", "start.safetensors", out="given"))
    assert torch.equal(given["network.fc.weight"], other["fc.weight"])
    again = weights_in(trained(*small, "--weights", "given", out="again"))
    changed = {name for name in given if not torch.equal(again[name], given[name])}
    assert changed == {"network.fc.bias"}
    first = weights_in(trained(*small, "--from-scratch", out="first"))["network.fc.weight"]
    second = trained(*small, "--from-scratch", "--seed", 1, out="second")
    starts = [start["network.fc.weight"], first, weights_in(second)["network.fc.weight"]]
    assert torch.stack(starts).unique(dim=0).shape[0] == 3


def test_the_head_alone_can_be_trained():
    start = weights(own()())
    state = weights(rs.load(trained("--trainable", "head")).module)
    changed = {name for name, value in start.items() if value != state[f"network.{name}"]}
    assert changed == {"fc.weight", "fc.bias"}  # and no statistics of batch norm


def test_a_training_replaces_neither_its_start_nor_the_model_of_another_network(capsys):
    trained()
    line = refusal(capsys, train, *words(network="Small"))
    assert "but holds gaussian of photos, sigma 0.25, seed 0, network own_networks:net" in line
    line = refusal(capsys, train, *words("--weights", "model"))
    assert "model must be new or a folder without --weights" in line


def test_a_finished_training_is_not_repeated_and_other_settings_need_restart(capsys):
    torch.save(0.0, "bias.pt")
    settings = ["--epochs", 2, "--batch", 10]
    folder = trained(*settings, network="stored")
    weights = Path(folder, "model.safetensors")
    written = weights.stat().st_mtime_ns
    content = weights.read_bytes()
    trained(*settings, network="stored")
    assert f"already complete: {folder}" in capsys.readouterr().out
    assert weights.stat().st_mtime_ns == written
    same = words(*settings, network="stored")
    for changes, difference in (
        ("--epochs 1", "training.epochs 2, not 1"),
        ("--trainable head", "training.trainable None, not head"),
        ("--log elsewhere", "elsewhere must hold the log"),
    ):
        line = refusal(capsys, train, *same, *changes.split())
        assert difference in line
        assert "--restart" in line
    hashes = "[0-9a-f]{12}, not [0-9a-f]{12};"  # the first digits are enough for a reader
    torch.save(1.0, "bias.pt")
    assert re.search(f"with start {hashes}", refusal(capsys, train, *same))
    torch.save(0.0, "bias.pt")
    Path("photos/left/2.png").unlink()
    assert re.search(f"with images {hashes}", refusal(capsys, train, *same))
    assert weights.read_bytes() == content
    trained("--restart", network="stored")
    assert read_json(Path(folder, "model.json"))["epochs"] == 1


def test_a_second_training_into_a_folder_in_use_names_the_process_of_the_first(capsys, monkeypatch):
    """It starts in the middle of the first, with the same settings, and with others."""
    lines = []

    def second(*arguments):
        monkeypatch.setattr("rs.training.trainer.quick_acr", quick_acr)
        for out, log, epochs in (
            ("model", "model-log", 1),
            ("model", "other-log", 2),
            ("other", "model-log", 2),
        ):
            more = ["--log", log, "--epochs", epochs, "--eval-every", 1]
            lines.append(refusal(capsys, train, *words(*more, out=out)))
        return quick_acr(*arguments)

    monkeypatch.setattr("rs.training.trainer.quick_acr", second)
    trained("--eval-every", 1)
    assert len(lines) == 3
    assert all(f"process {os.getpid()} " in line for line in lines)
    assert not Path("other").exists()
    trained("--epochs", 2, "--restart")


def test_a_denoiser_needs_a_trained_classifier(capsys):
    line = refusal(capsys, train, *words("--from-scratch", method="denoiser-mse"))
    assert "for a classifier of random weights; leave it out" in line
    Path("rs").symlink_to(Path(rs.__file__).parent)
    recipe = "--dataset finetune --params rs/params.yaml --images photos --sigma 0.25 --out model"
    line = refusal(capsys, train, "denoiser-mse", *recipe.split())
    assert "must have a classifier that is trained already" in line


@pytest.mark.parametrize(
    ("network", "more", "message"),
    [
        ("fixed", "", "must have parameters to train, but none of its 6 is"),
        ("Small", "--trainable nothing", "none of its 6 is trainable with --trainable nothing"),
        ("Small", "--trainable (", r"must be all, head, or a regular expression .*, got '\('"),
        (
            "Unused",
            "",
            "the loss must depend on every parameter that is trained, but 2 have no gradient, "
            "first network.ex",
        ),
        (
            "Small",
            "--weights other.safetensors",
            "must hold the weights of own_networks:Small, but 9 tensors do not fit; first "
            r"fc.bias: expected .*, got \(1,\), fc.weight: expected .*, got ",
        ),
        ("InPlace", "", "must not change its images, but it writes into them"),
        ("Small", "--weights pipe", "pipe must be a file, but there is none"),
        (
            "Small",
            "--from-scratch --weights other.safetensors",
            "give --from-scratch or --weights, got both",
        ),
        ("absent", "", "own_networks has no function absent"),
    ],
)
def test_what_cannot_be_trained_is_one_line(capsys, network, more, message):
    names = own("Small")().state_dict()
    save_file({name: torch.zeros(1) for name in names}, "other.safetensors")
    os.mkfifo("pipe")  # which has no end
    line = refusal(capsys, train, *words(*more.split(), network=network))
    assert re.search(message, line), line
    assert not Path("model").exists()


def test_copies_of_a_picture_stay_together():
    for path in [*Path("photos/left").iterdir()]:
        shutil.copy(path, path.with_stem(f"copy{path.stem}"))
    larger, smaller = split_by_content(listed(Path("photos")), 0.1)
    contents = [{Path(path).read_bytes() for path, _ in tree.samples} for tree in (larger, smaller)]
    assert not contents[0] & contents[1]
    assert {label for _, label in smaller.samples} == {0, 1}


def test_classes_out_of_balance_are_said(capsys):
    for path in [*Path("photos/right").iterdir()][1:]:
        path.unlink()
    trained()
    warning = "warning: the classes are imbalanced: 12 images of left, 1 of right"
    assert warning in capsys.readouterr().err
    rs.train(own(), IMAGES[LABELS == 1], [1] * 12, sigma=0.25, method="gaussian", epochs=1)
    assert "warning: all images belong to class 1" in capsys.readouterr().err


def write_data(**more):
    """Write a data set that has all pictures for the training."""
    splits = {"train": (IMAGES, LABELS), "test": (255 - IMAGES, LABELS)} | more
    save_images(Path("data"), name="shapes", classes=CLASSES, splits=splits)


def test_python_trains_arrays_tensors_and_data_sets_alike():
    rows = []
    settings = {"sigma": 0.3, "method": "advmacer", "epochs": 1}
    robust = rs.train(own(), IMAGES, LABELS, **settings, on_epoch=rows.append, classes=CLASSES)
    assert [row["epoch"] for row in rows] == [1]
    assert (robust.sigma, robust.classes) == (0.3, CLASSES)
    assert robust.smooth().certify(IMAGES[0], n0=10, n=50).n == 50
    tensors = torch.from_numpy(IMAGES).float() / 255
    pairs = [(x, int(y)) for x, y in zip(tensors, LABELS, strict=True)]
    pictures = [(to_pil_image(x), y) for x, y in pairs]
    for network, *examples in (
        (own(), pictures),
        (own()(), tensors, torch.from_numpy(LABELS)),
        (own(), pairs),
    ):
        other = rs.train(network, *examples, **settings)
        assert weights(robust.module) == weights(other.module)


class Picky(nn.Linear):
    """A network that takes only small batches."""

    def forward(self, x):
        return super().forward(x.flatten(1).view(len(x), 2, -1).mean(2)) if len(x) < 9 else x[9]


def test_a_network_that_fails_in_the_training_is_one_message():
    with refuses(r"network must take batches of shape \(24, .* raised"):
        rs.train(Picky(2, 2), IMAGES, LABELS, sigma=0.25, method="gaussian", epochs=1)


def test_images_may_carry_a_gradient():
    x = torch.rand(IMAGES.shape, generator=generator(0)).requires_grad_()
    assert rs.train(own(), x, LABELS, sigma=0.25, method="gaussian", epochs=1).sigma == 0.25


def test_a_folder_that_python_made_of_a_network_loads_by_a_function_that_builds_it():
    robust = rs.train(own("Small")(), IMAGES, LABELS, sigma=0.3, epochs=1, out="mine")
    forget_networks()
    loaded = rs.load("mine", network="own_networks:network")
    assert weights(loaded.module) == weights(robust.module)
    forget_networks()
    with refuses("the network own_networks:Small must be given"):
        rs.load("mine", network="own_networks:Unused")


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
    network = own()()
    network.same = network.fc
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # of which one trains on images as small as these
    robust = rs.train(network, IMAGES, LABELS, sigma=0.3, method="gaussian", epochs=1)
    after = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert after == 2
    state = robust.module.state_dict()
    assert torch.equal(state["network.fc.weight"], state["network.same.weight"])


@pytest.mark.parametrize("has_validation", [True, False])
def test_the_quick_acr_of_a_prepared_data_set_is_never_of_test_images(monkeypatch, has_validation):
    """Of its validation split, else of a tenth of each class, which is left out of the training."""
    validation = {"validation": (IMAGES[::-1], LABELS[::-1])}
    write_data(**validation if has_validation else {})
    seen = []
    monkeypatch.setattr(
        "rs.training.run.train_model",
        lambda _, *images, **to: seen.extend([*images[:2], to["log"]]),
    )
    options = "--sigma 0.25 --data data --out model --log log --eval-every 1"
    command(train, "gaussian", *NETWORK, *options.split())
    trained_on, evaluation, _ = seen
    if has_validation:
        assert np.array_equal(evaluation.images, IMAGES[::-1])
        assert np.array_equal(trained_on.images, IMAGES)
    else:
        assert np.bincount(evaluation.labels).tolist() == [1, 1]
        pixels = [image.tobytes() for image in (*trained_on.images, *evaluation.images)]
        assert sorted(pixels) == sorted(image.tobytes() for image in IMAGES)


def test_copies_of_images_stay_together_or_are_counted(capsys):
    settings = {"sigma": 0.3, "method": "gaussian", "epochs": 1}
    rs.train(own(), IMAGES.repeat(2, axis=0), LABELS.repeat(2), **settings)
    warning = "images of the evaluation are also training"
    assert warning not in capsys.readouterr().err
    rs.train(own(), IMAGES, LABELS, **settings, validation=(IMAGES[:5], LABELS[:5]))
    assert f"warning: 5 of 5 {warning}" in capsys.readouterr().err


def test_python_and_the_command_train_to_the_same_bytes(capsys):
    """On one data set, of which both leave the same tenth out, by the default method."""
    write_data()
    places = "--sigma 0.25 --epochs 1 --batch 10 --seed 3 --data data --out model --device cpu"
    command(train, *NETWORK, *places.split())
    settings = {"sigma": 0.25, "epochs": 1, "batch": 10, "seed": 3}
    rs.train(own(), IMAGES, LABELS, **settings, out="python", device="cpu")
    made = [Path(folder, "model.safetensors").read_bytes() for folder in ("model", "python")]
    assert made[0] == made[1]
    card = read_json(Path("model/model.json"))
    assert (card["method"], card["training"]["batch"]) == ("advmacer", 10)
    assert card["training"]["kept"] == "last epoch"


def test_a_recipe_names_a_network():
    write_data()
    model = {"architecture": "resnet110", "network": "own_networks:network"}
    write_params(Path("params.yaml"), model=model)
    recipe = ["--dataset", "tiny", "--data", "data", "--params", "params.yaml"]
    command(train, "gaussian", *recipe, "--sigma", 0.25, "--out", "model", "--log", "log")
    forget_networks()
    command(certify, "model", *recipe, "--out", "rows.tsv")
    assert read_json(Path("model/model.json"))["architecture"] == "own_networks:network"


def test_cells_depend_on_the_code_and_the_weights_of_a_network(monkeypatch):
    """Ensembles too, whose files have no code."""
    monkeypatch.setattr("rs.runtime.code_fingerprint.stage_fingerprints", lambda *_: {})
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
    for bias, end in ((0.0, ""), (0.0, ""), (1.0, ""), (0.0, "# other\n")):
        torch.save(bias, "bias.pt")
        Path("own_networks.py").write_text(MODULE + end)
        found.append(networks())
    assert found[0] == found[1]
    stages = ("train/macer-0.25", "weights", "certify_ensembles")
    for other in found[2:]:
        changed = {name for name in other if found[0][name] != other[name]}
        assert changed == {f"parameters/tiny/{name}" for name in stages}


FLOATS = IMAGES.astype(np.float32)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            np.ma.masked_less(IMAGES, 9),
            LABELS,
            r"images must have pixels without a mask, .*: images.filled\(0\)",
        ),
        (IMAGES[0], LABELS, r"images must have the shape \(N, C, H, W\)"),
        (IMAGES, LABELS[:-1], "labels of shape"),
        (IMAGES, None, "labels must be given"),
        (IMAGES, LABELS + 0.5, "float64"),
        (FLOATS, LABELS, r"pixels in \[0, 1\], got torch.float32 from . to 2"),
        (IMAGES[:3], LABELS[:3], "two different images or more, got one of class '1'"),
        ([(IMAGES[0], 0), (IMAGES[1][:, :3], 1)], None, "must have one shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(images, labels, message):
    with refuses(message):
        rs.train(own(), images, labels, sigma=0.25, validation=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"network": "own_networks:network"},
            r"network must be an nn\.Module or a function that builds one, got str",
        ),
        (
            {"validation": (IMAGES[:, :, 1:], LABELS)},
            r"validation images must have the shape of the others, .*, got",
        ),
        ({"validation": 1}, "or a share between 0 and 1, got 1"),
        ({"validation": [IMAGES, LABELS]}, r"must be \(images, labels\), .*, got list"),
        ({"validation": [(IMAGES[0], 0)]}, r"must be \(images, labels\), .*, got list"),
        ({"network": locked()}, "that can be copied, or a function that builds it, .*lock"),
        ({"classes": ["one"]}, r"labels must lie in 0\.\.0, one for each class, got 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    settings = {"network": own(), "sigma": 0.25} | changes
    with refuses(message):
        rs.train(images=IMAGES, labels=LABELS, **settings)
