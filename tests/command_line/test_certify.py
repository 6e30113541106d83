"""``rs certify`` on a folder of pictures, without a parameter file or a prepared data set."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from rs.command_line.certify import main as certify
from rs.command_line.exchange import export_rows as export
from rs.command_line.show import compare_files as compare
from rs.command_line.show import report_files as report
from rs.command_line.show import show_files as show
from rs.command_line.train import main as train
from rs.data import prepared
from rs.data.images import load_images
from rs.reporting.summaries import summarize_rows
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics.certificate import UNLABELED, format_counts
from rs.storage import certificate_rows
from rs.storage.certificate_rows import sidecar_of
from rs.storage.files import read_json
from tests.support.helpers import (
    CERTIFY,
    CLASSES,
    Linear,
    arrays,
    ended,
    refusal,
    tiny_params,
    write_photos,
)

LINEAR = "tests.support.helpers:Linear"  # class 1 where the first pixel exceeds 0.5
IMAGES, LABELS = arrays(6, 3)


NAMED = ("--classes", "names.txt")


@pytest.fixture(autouse=True)
def project(own_folder):
    Path("names.txt").write_text("left\nright\n")


def save(folder, number, pixels):
    Path(folder).mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(Path(folder, f"{number}.png"))


@pytest.fixture
def flat():
    write_photos(Path("photos"), IMAGES)


@pytest.fixture
def labeled():
    write_photos(Path("labeled"), IMAGES, LABELS)


def pictures(folder, out, *more):
    """Words of a certification of the pictures in a folder."""
    return LINEAR, "--images", folder, "--sigma", "0.5", "--out", out, "--device", "cpu", *more


def certified(capfd, *words):
    return ended(capfd, certify, *pictures(*words))


def test_the_library_and_the_command_have_one_default_noise(capfd, tiny_project):
    """Noise on the grid, because pixels are 8-bit; the recipe does not say it."""
    assert "noise" not in CERTIFY
    words = f"{LINEAR} --sigma 0.5 --data data --dataset tiny --device cpu --out rows.tsv"
    assert ended(capfd, certify, *words.split())[0] == 0
    budget = (CERTIFY["n0"], CERTIFY["n"], CERTIFY["alpha"])
    x = load_images(Path("data"), "test").pixels(1)
    made = SmoothedClassifier(Linear(), 2, 0.5).certify(x, *budget, index=1)
    row = certificate_rows.read_rows(Path("rows.tsv")).loc[1]
    assert row["counts"] == format_counts(made.counts.tolist())
    assert read_json(Path("rows.json"))["noise"] == made.noise == "grid"


def test_a_prepared_data_set_names_its_recipe(capfd, tiny_project):
    words = f"{LINEAR} --sigma 0.5 --data data --device cpu"
    assert ended(capfd, certify, *words.split(), "--out", "rows.tsv")[0] == 0
    assert ended(capfd, certify, *words.split(), "--dataset", "tiny", "--out", "named.tsv")[0] == 0
    for ending in ("tsv", "json"):
        assert Path(f"rows.{ending}").read_bytes() == Path(f"named.{ending}").read_bytes()
    training = "gaussian --sigma 0.25 --data data --device cpu --out trained"
    assert ended(capfd, train, *training.split())[0] == 0
    assert ended(capfd, train, *training.split(), "--dataset", "tiny")[0] == 0  # complete already
    others = {"recipes": {"others": tiny_params()["recipes"]["tiny"]}}
    Path("params.yaml").write_text(json.dumps(others))
    line = refusal(capfd, certify, *words.split(), "--out", "other.tsv")
    assert "must have the key recipes.tiny" in line


def refused(capfd, folder, *more):
    """The one line in which the command refuses, with no rows."""
    line = refusal(capfd, certify, *pictures(folder, "rows.tsv", *more))
    assert not Path("rows.tsv").exists()
    return line


def test_the_options_of_a_recipe_replace_its_values_and_a_subset_of_few_classes_is_said(
    capfd, labeled
):
    stated = {"precision": "bfloat16", "engine": "folded", "n0": 20, "n": 30, "alpha": 0.05}
    words = ["--subset", "{first: 3}", "--batch", 100]
    words += [f"--{name}={value}" for name, value in stated.items()]
    warning = (
        "warning: the subset has only 1 of 2 classes; if images are sorted by class, use a stride"
    )
    assert warning in certified(capfd, "labeled", "rows.tsv", *NAMED, *words)[2].splitlines()
    sidecar = read_json(sidecar_of(Path("rows.tsv")))
    assert {name: sidecar[name] for name in stated} == stated
    assert sidecar["subset"] == "first-3"
    assert "batch" not in sidecar  # it does not change the rows
    rows = certificate_rows.read_rows(Path("rows.tsv"))
    assert rows["idx"].tolist() == [0, 1, 2]
    for name in ("n0", "n", "alpha"):
        assert set(rows[name]) == {stated[name]}


def test_the_list_of_classes_orders_the_labels(capfd, labeled):
    Path("names.txt").write_text("right\nleft\nmiddle\n")
    certified(capfd, "labeled", "rows.tsv")
    said = (
        "must return 3 logits per image, one per class, got 2; correct the model, or the classes: "
        "--classes"
    )
    assert said in certified(capfd, "labeled", "other.tsv", *NAMED)[2]
    Path("names.txt").write_text("right\nleft\n")
    assert certified(capfd, "labeled", "other.tsv", *NAMED)[0] == 0
    rows, other = (certificate_rows.read_rows(Path(name)) for name in ("rows.tsv", "other.tsv"))
    assert (rows["label"] + other["label"] == 1).all()
    assert rows["predict"].tolist() == other["predict"].tolist()


def test_rows_of_pictures_with_labels_state_the_accuracy_of_the_base_classifier(capfd):
    """The label of every image but one is whether its first pixel exceeds 0.5."""
    labels = (IMAGES[:, 0, 0, 0] > 127).astype(np.int64)
    labels[0] = 1 - labels[0]
    write_photos(Path("photos"), IMAGES, labels)
    assert certified(capfd, "photos", "rows.tsv")[0] == 0
    assert summarize_rows(Path("rows.tsv"))["base_accuracy"] == pytest.approx(5 / 6, abs=1e-12)
    out = ended(capfd, show, "rows.tsv")[1]
    assert "base accuracy       83.3% (without noise)" in out


def test_without_labels_rows_have_no_accuracy_anywhere(capfd, flat):
    assert certified(capfd, "photos", "rows.tsv", *NAMED)[0] == 0
    rows = certificate_rows.read_rows(Path("rows.tsv"))
    assert (rows["label"].unique().tolist(), rows["correct"].sum()) == ([-2], 0)
    about = summarize_rows(Path("rows.tsv"))
    assert (about["acr"], about["standard_error"], about["clean_accuracy"]) == (None, None, None)
    assert about["certified_accuracy"] == {}
    shares = [
        float(((rows["predict"] >= 0) & (rows["radius"] >= float(r))).mean())
        for r in about["certified_share"]
    ]
    assert [*about["certified_share"].values()] == shares
    assert len(shares) > 1
    shown = ended(capfd, show, "rows.tsv")[1]
    assert "accurac" not in shown.replace("so neither accuracies nor an ACR", "")
    assert "must have labels" in refusal(capfd, compare, "rows.tsv", "rows.tsv")
    assert "must have labels" in refusal(capfd, export, "rows.tsv", "--out", "log.tsv")


def test_the_sidecar_names_the_content_of_the_folder(capfd, flat):
    def certified_as(out, *more):
        assert certified(capfd, "photos", out, *NAMED, *more)[0] == 0
        return read_json(sidecar_of(Path(out)))

    first, again = certified_as("a.tsv"), certified_as("b.tsv")
    assert first == again
    assert first["images"] == prepared.images_fingerprint(IMAGES, np.full(len(IMAGES), UNLABELED))
    stated = [first[name] for name in ("dataset", "classes", "rows", "sigma")]
    assert stated == ["photos", 2, 6, 0.5]
    Image.fromarray(255 - IMAGES[0, 0]).save("photos/0.png")
    assert certified_as("c.tsv")["images"] != first["images"]
    assert (
        certified_as("d.tsv", "--resize", "4", "--convert")["dataset"]
        == "photos (shorter side 4, converted)"
    )


def test_a_picture_that_a_conversion_makes_too_large_is_refused(capfd):
    save("photos", 0, np.zeros((1, 60_000), np.uint8))
    save("photos", 1, np.zeros((300, 300), np.uint8))
    line = refused(capfd, "photos", "--resize", "256", "--crop", "224", *NAMED)
    assert (
        "must have at most 67,108,864 pixels after --resize 256, got 15360000 x 256; crop the file"
        in line
    )


def network_of(channels):
    """Return a network of images with that many channels of 4x4 pixels, and of no other."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(channels, 2, 4), nn.BatchNorm2d(2), nn.Flatten())


gray = partial(network_of, 1)
color = partial(network_of, 3)
SHAPES = {"gray": (4, 4), "color": (4, 4, 3)}


@pytest.mark.parametrize(("network", "pixels"), [("gray", "color"), ("color", "gray")])
def test_a_conversion_makes_the_colors_that_a_network_takes(capfd, network, pixels):
    mode = "L" if network == "gray" else "RGB"
    images = np.random.default_rng(0).integers(0, 256, (6, *SHAPES[pixels]), dtype=np.uint8)
    for number, image in enumerate(images):
        save(f"photos/{CLASSES[number % 2]}", number, image)
        save(f"converted/{CLASSES[number % 2]}", number, Image.fromarray(image).convert(mode))
    name = f"{__name__}:{network}"
    certifying = (certify, name, "--n", 100)
    training = (train, "gaussian", "--network", name, "--epochs", 1)
    options = ("--sigma", 0.5, "--device", "cpu", "--images")
    for words, out in ((certifying, "rows.tsv"), (training, "model")):
        code, _, err = ended(capfd, *words, *options, "photos", "--out", out)
        assert (code, "add --convert" in err) == (2, True)
        assert ended(capfd, *words, *options, "photos", "--out", out, "--convert")[0] == 0
    assert ended(capfd, *certifying, *options, "converted", "--out", "expected.tsv")[0] == 0
    assert Path("rows.tsv").read_bytes() == Path("expected.tsv").read_bytes()
    words = ("rows.tsv", "--images", "photos", "--out", "page.html", "--convert")
    assert ended(capfd, report, *words)[0] == 0


BAD = {
    "no such folder": ("nowhere", "nowhere must be a folder that can be read"),
    "no pictures": ("empty", "empty must hold pictures or subfolders of pictures, but has neither"),
    "an empty class": ("hollow", "there is none in left"),
    "both kinds": ("both", "got both"),
    "no classes": ("photos", "--classes FILE"),
    "an unknown class": ("labeled --classes other.txt", "got right"),
    "a class twice": ("photos --classes twice.txt", "must have different names"),
    "one class": ("lonely", "a subfolder for each of two classes or more, got only left"),
    "a list without end": (
        "photos --classes /dev/zero",
        "/dev/zero must be a file, but there is none",
    ),
    "no image": ("broken --classes names.txt", "broken/0.png must be an image"),
    "no radius": ("photos --classes names.txt --at-radius far", "--at-radius must be numbers"),
    "parameters alone": (
        "photos --classes names.txt --params a.yaml",
        "--params a.yaml is for --dataset",
    ),
    "no such subset": ("photos --classes names.txt --subset {first:5}", "a subset must be"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_a_mistake_is_one_line(capfd, flat, labeled, words, message):
    for folder in ("empty", "hollow/left", "broken"):
        Path(folder).mkdir(parents=True)
    for folder in ("both", "both/left", "lonely/left"):
        save(folder, 0, IMAGES[0, 0])
    texts = {
        "broken/0.png": "no image",
        "other.txt": "left\nmiddle\n",
        "twice.txt": "left\nleft\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    assert message in refused(capfd, *words.split())


def test_a_shortcut_needs_labels(capfd, flat):
    Path("params.yaml").write_text(json.dumps(tiny_params(certify=CERTIFY | {"shortcut": True})))
    assert "shortcut must be false" in refused(capfd, "photos", *NAMED, "--dataset", "tiny")
