"""Images of the user's own: ``rs.certification.predict``, and the command predict as a person runs
it.
"""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from rs.command_line.predict import main as predict
from rs.smoothing.classifier import SmoothedClassifier
from tests.support.helpers import CLASSES, SHAPE, Linear, arrays, ended, refusal, smallnet
from tests.support.untrained import save_model

LINEAR = "tests.support.helpers:Linear"  # class 1, "right", where the first pixel exceeds 0.5


class SeesItsBatch(Linear):
    """One function of images in batches of 1 and 2."""

    def forward(self, x):
        return super().forward(x - x.mean(0) if len(x) > 2 else x)


def picture(path, pixels):
    """Write uint8 pixels, (H, W) or (H, W, C), as a PNG; its name."""
    Image.fromarray(pixels).save(path)
    return str(path)


def first_pixel(path, value):
    """A gray image of the tiny shape whose first pixel is ``value``, all others 0."""
    pixels = np.zeros(SHAPE[1:], np.uint8)
    pixels[0, 0] = value
    return picture(path, pixels)


def words(files, model, **options):
    chosen = {"model": model, "device": "cpu", "seed": 0, **options}
    return [*files, *(str(word) for name, value in chosen.items() for word in (f"--{name}", value))]


def command(capfd, *arguments):
    """Run the command in this process: exit code, and the lines on stdout and on stderr, except the
    next command.
    """
    code, out, err = ended(capfd, predict, *arguments)
    before, *_ = re.split("^next:", err, flags=re.MULTILINE)
    return code, out.splitlines(), before.splitlines()


def asked(capfd, *arguments):
    """The lines the command prints when all is well."""
    code, out, err = command(capfd, *arguments)
    assert (code, err) == (0, [])
    return out


@pytest.fixture
def model(tmp_path):
    """A model folder of the tiny images, trained at 0.25 as its card says."""
    save_model(tmp_path / "model", "gaussian")
    return tmp_path / "model"


@pytest.fixture
def tiny_files(tmp_path):
    return [picture(tmp_path / f"{i}.png", image[0]) for i, image in enumerate(arrays(3, 7)[0])]


@pytest.mark.parametrize(
    "options", [{}, {"n0": 20, "n": 250, "alpha": 0.01, "seed": 3, "sigma": 0.5}]
)
def test_json_says_what_the_smoothed_classifier_says_of_each_image(
    capfd, model, tiny_files, options
):
    lines = asked(capfd, *words(tiny_files, model, **options), "--json")
    numbers = {"n0": 100, "n": 1000, "alpha": 0.001, "seed": 0, **options}
    sigma = numbers.pop("sigma", 0.25)
    classifier = SmoothedClassifier(smallnet(), 2, sigma, noise="grid")
    certificates = classifier.certify_many(arrays(3, 7)[0], **numbers)
    for file, line, certificate in zip(tiny_files, lines, certificates, strict=True):
        assert json.loads(line) == {
            "file": file,
            "predict": certificate.predict,
            "class": CLASSES[certificate.predict],
            "radius": certificate.radius,
            "p_lower": certificate.p_lower,
            "counts0": certificate.counts0.tolist(),
            "counts": certificate.counts.tolist(),
            **numbers,
            "sigma": sigma,
            "scope": "model",
            "device": "cpu",
            "noise": "grid",
            "precision": "float32",
            "engine": "plain",
        }
        assert certificate.predict in (0, 1)  # abstentions have a test of their own


def test_text_names_file_class_radius_and_confidence_of_each_image(capfd, tmp_path, tiny):
    files = [first_pixel(tmp_path / f"{value}.png", value) for value in (90, 255)]
    arguments = words(files, LINEAR, data=tiny, sigma=0.5)
    lines = asked(capfd, *arguments)
    made = [json.loads(line) for line in asked(capfd, *arguments, "--json")]
    for line, name, one in zip(lines, ("0 (left)", "1 (right)"), made, strict=True):
        start, radius, p = line.split(", ")
        assert start == f"{one['file']}: class {name}"
        assert 0 <= one["radius"] - float(radius.split()[-1]) < 1e-4
        assert 0 <= one["p_lower"] - float(p.removeprefix("p >= ")) < 1e-4


def test_without_a_seed_every_run_draws_noise_of_its_own_and_says_how_to_repeat_it(
    capfd, tmp_path, tiny
):
    file = first_pixel(tmp_path / "a.png", 150)
    fresh = [file, file, "--model", LINEAR, "--device", "cpu", "--data", tiny, "--sigma", 1]
    seeds = set()
    for _ in range(2):
        code, out, (said,) = command(capfd, *fresh)
        seed = re.fullmatch(r"seed (\d+) \(.*; --seed \1 repeats this run\)", said)[1]
        assert (code, out) == (0, asked(capfd, *fresh, "--seed", seed))
        seeds.add(seed)
    assert len(seeds) == 2  # except for one time in 2^32


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 4), "must be 8-bit gray of 4x4 .* got 8-bit gray of 5x4 .*; resize it"),
        ((4, 4, 4), "must be an 8-bit gray or RGB image, got mode RGBA; convert it"),
    ],
)
def test_an_image_unlike_the_models_is_passed_over_and_named(capfd, tmp_path, tiny, shape, message):
    good = first_pixel(tmp_path / "good.png", 255)
    bad = picture(tmp_path / "bad.png", np.zeros(shape, np.uint8))
    code, out, (line, last) = command(capfd, *words([bad, good], LINEAR, data=tiny, sigma=1))
    assert (code, out) == (2, asked(capfd, *words([good, good], LINEAR, data=tiny, sigma=1))[1:])
    assert re.match(f"skipped: {bad} {message}", line)
    assert last.startswith("error: 1 of 2 images failed; ")


def test_a_converted_image_gets_the_radius_of_what_it_was_converted_to(capfd, tmp_path, tiny):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 4), dtype=np.uint8)
    photo = picture(tmp_path / "photo.png", pixels)
    Image.fromarray(pixels).convert("L").save(tmp_path / "gray.png")
    options = {"data": tiny, "sigma": 1}
    (line,) = asked(capfd, *words([photo], LINEAR, **options), "--convert", "--json")
    (plain,) = asked(capfd, *words([tmp_path / "gray.png"], LINEAR, **options), "--json")
    made = json.loads(line)
    conversion = made.pop("conversion")
    assert made.pop("notes") == ["converted from RGBA to L", "alpha dropped"]
    assert made == json.loads(plain) | {"file": photo}
    (text,) = asked(capfd, *words([photo], LINEAR, **options), "--convert")
    assert f"; of the image after conversion: {conversion}; " in text


BRIGHT = Image.new("L", SHAPE[1:], 255)
TURNED = Image.Exif()
TURNED[0x0112] = 6


@pytest.mark.parametrize(
    ("name", "options", "note"),
    [
        ("turned.jpg", {"exif": TURNED}, "EXIF orientation ignored"),
        ("clear.png", {"transparency": 0}, "alpha dropped"),
        ("frames.png", {"save_all": True, "append_images": [BRIGHT]}, "first of several frames"),
    ],
)
def test_an_answer_says_what_of_a_picture_its_pixels_do_not_have(
    capfd, tmp_path, name, options, note
):
    BRIGHT.save(tmp_path / name, **options)
    (text,) = asked(capfd, *words([tmp_path / name], LINEAR, sigma=0.1))
    assert text.split("; ")[1:] == [note]


def test_a_folder_is_no_image(capfd, tmp_path, model):
    line = refusal(capfd, predict, *words([tmp_path], model))
    assert f"it is a folder; give --images {tmp_path}" in line


def test_a_model_that_sees_its_batch_is_refused(capfd, tiny, tiny_files):
    arguments = words(tiny_files, f"{__name__}:SeesItsBatch", data=tiny, sigma=1)
    line = refusal(capfd, predict, *arguments)
    assert "its logits differ between a batch of 100 and its images alone" in line


def test_a_folder_gives_its_pictures_and_their_classes_and_a_bad_file_is_passed_over(
    capfd, tmp_path
):
    for name, value in (("left", 0), ("right", 255)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        first_pixel(tmp_path / "photos" / name / "a.png", value)
    (tmp_path / "photos" / "right" / "b.png").write_text("no image")
    arguments = words([], LINEAR, sigma=0.1, images=tmp_path / "photos")
    code, (left, right), err = command(capfd, *arguments)
    assert code == 2
    assert left.startswith(f"{tmp_path}/photos/left/a.png: class 0 (left)")
    assert right.startswith(f"{tmp_path}/photos/right/a.png: class 1 (right)")
    assert err[0].startswith("classes in the order of the subfolders' names: 0 left, 1 right;")
    assert "1 of 3 images failed" in err[-1]


def test_an_image_on_the_boundary_gets_no_class(capfd, tmp_path, tiny):
    file = first_pixel(tmp_path / "middle.png", 127)
    arguments = words([file], LINEAR, data=tiny, sigma=1)
    assert asked(capfd, *arguments) == [f"{file}: abstains"]
    made = json.loads(asked(capfd, *arguments, "--json")[0])
    assert (made["predict"], made["class"], made["radius"]) == (-1, None, 0.0)
    assert made["p_lower"] < 0.5


def test_a_crop_must_fit_into_the_image(capfd, model, tiny_files):
    code, _, (line, *_) = command(capfd, *words(tiny_files, model, crop=5))
    assert code == 2
    assert "must be at least as large as --crop 5, got 4 x 4; give a smaller --crop" in line


def test_the_size_of_the_first_file_that_can_be_read_is_that_of_a_model_that_states_none(
    capfd, tmp_path
):
    broken = tmp_path / "broken.png"
    broken.write_text("no image")
    good = first_pixel(tmp_path / "good.png", 255)
    odd = picture(tmp_path / "odd.png", np.zeros((9, 7), np.uint8))
    code, out, lines = command(capfd, *words([broken, good, odd], LINEAR, sigma=0.1))
    assert (code, len(out)) == (2, 1)
    assert lines[0].startswith(f"skipped: {broken} must be an image, but: ")
    assert lines[1].startswith(f"skipped: {odd} must be 8-bit gray of 4x4")


def test_the_picture_shows_the_first_samples_of_the_certificate():
    """So many samples alone have the votes that the picture shows."""
    classifier = SmoothedClassifier(Linear(), 2, 0.5)
    x = torch.full(SHAPE, 128 / 255)
    copies, votes = classifier.samples(x, 6, seed=3, index=0)
    counts = classifier.certify(x, n0=1, n=6, alpha=0.4, seed=3).counts
    assert np.bincount(votes, minlength=2).tolist() == counts.tolist()
    assert Linear()(copies).argmax(dim=1).tolist() == votes


def test_a_certificate_is_drawn_with_its_class_votes_and_radius(capfd, tmp_path, tiny_files):
    out = tmp_path / "card.svg"
    more = {"sigma": 0.5, "picture": out}
    code, (line,), err = command(capfd, *words(tiny_files[:1], LINEAR, **more))
    assert (code, err) == (0, [f"picture in {out}"])
    radius = re.search(r"radius ([\d.]+)", line)[1]
    assert f"<!-- {radius} -->" in out.read_text()  # Matplotlib names each text
