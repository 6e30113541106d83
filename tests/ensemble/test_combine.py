"""Ensembles of a user's own models: the command ``combine``."""

import importlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rs.command_line.certify import main as certify
from rs.command_line.combine import main as combine
from rs.command_line.main import app
from rs.data import images as data
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.member_outputs import MemberOutputs, WeightSettings, margins
from rs.ensemble.spec import load_ensemble, read
from rs.models.fingerprint import model_fingerprint
from rs.models.zoo import path_of_model
from rs.params import packaged
from rs.recipes import load_section
from rs.statistics.ensemble_weights import global_weights, moments
from rs.storage import files
from tests.support import tiny_pool
from tests.support.helpers import SHAPE, exit_code, forget_networks, refusal, write_photos
from tests.support.tiny_pool import CLASSES, CPU, SIGMA, pool_members

MODELS = [f"models/{method}/{seed}" for method, seed in tiny_pool.POOL]
PAIR = MODELS[1:]
DATA = ["--data", "data", "--device", "cpu", "--out", "ensemble.json"]
ROWS = (
    "ensemble.json --data data --dataset tiny --params ensembles.yaml "
    "--engine plain --device cpu --out rows.tsv"
)
SETTINGS = load_section(packaged(), "recipes.finetune.weights", WeightSettings)

NETWORKS = """
import torch
from torch import nn

def seeded(seed, classes=3):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, classes))

def first():
    return seeded(1)

def second():
    return seeded(2)

def narrow():
    return seeded(1, classes=2)
"""

pytestmark = pytest.mark.usefixtures("pool_here", "networks_here")


@pytest.fixture
def networks_here(pool_here, monkeypatch):
    """The module ``networks_here`` in the current folder; no network of it stays registered."""
    Path("networks_here.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(Path.cwd())
    yield
    sys.modules.pop("networks_here", None)
    forget_networks()


def combined(*words):
    """The ensemble that the command writes into ensemble.json."""
    assert exit_code(combine, *words, *DATA) == 0
    return read(Path("ensemble.json"))


def global_weights_of(ensemble):
    """Weights of the paper's bound for the perturbed outputs of members on training images."""
    train = data.load_images(Path("data"), "train")
    members = MemberOutputs.load(
        ensemble, Path("ensemble.json"), train.meta, SETTINGS, CPU, batch=None
    )
    probabilities = members.probabilities(train, list(range(len(train))))
    stats = moments(margins(probabilities, train.labels))
    return global_weights(stats, train.labels).weights


def test_weights_are_those_of_margins_on_training_images():
    ensemble = combined(*MODELS)
    weights = ensemble.fitted.weights
    np.testing.assert_allclose(weights, global_weights_of(ensemble), rtol=1e-9)
    assert len({*weights}) == 3  # not the equal weights of a failure
    assert (ensemble.fitted.split, ensemble.fitted.images) == ("train", 24)


def test_equal_weights_of_models_need_no_images(capfd):
    equal = ["--weights", "equal", "--out", "ensemble.json"]
    assert exit_code(combine, *PAIR, *equal) == 0
    without_images = Path("ensemble.json").read_bytes()
    assert combined(*PAIR, *equal, "--force").rule.for_members(2) == (0.5, 0.5)
    assert Path("ensemble.json").read_bytes() == without_images
    capfd.readouterr()
    needs_images = refusal(capfd, combine, PAIR[0], "networks_here:first", *equal, "--force")
    assert "--data or --images must be given" in needs_images


def write_pictures(folder):
    """The test images as files, in folders of their classes."""
    test = data.load_images(Path("data"), "test")
    write_photos(Path(folder), test.images, test.labels, CLASSES)


def test_weights_are_fitted_to_pictures_that_have_labels(capfd):
    write_pictures("pictures")
    words = ["--device", "cpu", "--out", "ensemble.json", "--images"]
    assert exit_code(combine, "networks_here:first", PAIR[1], *words, "pictures") == 0
    assert read(Path("ensemble.json")).fitted.images == 10
    capfd.readouterr()
    write_photos(Path("unlabeled"), data.load_images(Path("data"), "test").images)
    assert "label" in refusal(capfd, combine, *PAIR, *words, "unlabeled", "--force")


def test_weights_that_no_image_determines_are_equal_and_said_to_be(capfd):
    """Each image has the label that its models find least likely."""
    test = data.load_images(Path("data"), "test")
    pixels = torch.as_tensor(test.images) / 255
    with torch.no_grad():
        logits = torch.stack([member(pixels) for member in pool_members()[1:]])
    labels = logits.mean(dim=0).argmin(dim=1).numpy()
    write_photos(Path("pictures"), test.images, labels, CLASSES)
    words = ["--device", "cpu", "--out", "ensemble.json", "--images", "pictures"]
    assert exit_code(combine, *PAIR, *words) == 0
    assert read(Path("ensemble.json")).fitted.weights == [0.5, 0.5]
    assert "no image determines the weights" in capfd.readouterr().err


def test_an_ensemble_is_found_from_other_folders_and_moves_with_its_models(monkeypatch, tmp_path):
    out = "made/here/ensemble.json"
    assert exit_code(combine, *PAIR, *DATA[:-1], out) == 0
    expected = model_fingerprint(load_ensemble(Path(out))[0])
    elsewhere = tmp_path / "elsewhere"
    shutil.move(Path.cwd(), elsewhere)
    # Models of the same names in the current folder are not those of the ensemble.
    shutil.copytree(elsewhere / "models" / "gaussian" / "0", tmp_path / "models" / "macer" / "0")
    monkeypatch.chdir(tmp_path)
    assert model_fingerprint(load_ensemble(Path("elsewhere", out))[0]) == expected
    monkeypatch.chdir((elsewhere / out).parent)
    assert model_fingerprint(load_ensemble(Path("ensemble.json"))[0]) == expected


def test_networks_of_the_zoo_are_named_and_not_where_they_are_installed():
    names = ["zoo:cifar10-advmacer-0.5", "models/other"]
    shutil.copytree(path_of_model(names[0]), names[1])
    words = ["--weights", "equal", "--out", "ensemble.json"]
    assert exit_code(combine, *names, *words) == 0
    assert [member.path for member in read(Path("ensemble.json")).members] == names
    assert len(load_ensemble(Path("ensemble.json"))[0].members) == 2


def test_members_of_one_method_and_seed_are_perturbed_independently():
    members = combined(*PAIR).members
    network = pool_members()[1]
    train = data.load_images(Path("data"), "train")
    twins = [replace(members[0], classifier=name) for name in ("a", "b")]
    loaded = MemberOutputs(twins, [network, network], SIGMA, SETTINGS, CPU, batch=None)
    outputs = loaded.probabilities(train, [0])
    assert not (outputs[:, 0] == outputs[:, 1]).any()


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (PAIR[:1] * 2, "two or more different models"),
        ([PAIR[0], f"./{PAIR[0]}/"], "two or more different models"),
        (["networks_here:first", "networks_here:second"], "give --sigma"),
        ([PAIR[0], "networks_here:first", "--sigma", 0.5], "must have the sigma 0.5"),
        ([PAIR[0], "networks_here:narrow"], "one logit for each of 3 classes"),
        ([PAIR[0], "models/none"], "must be a model folder"),
    ],
)
def test_what_cannot_be_a_member_is_refused(capfd, models, message):
    assert message in refusal(capfd, combine, *models, *DATA)
    assert not Path("ensemble.json").exists()


def test_a_network_that_a_function_builds_is_copied_and_needs_its_function(capfd):
    ensemble = combined(PAIR[0], "networks_here:first")
    networks = [pool_members()[1], importlib.import_module("networks_here").first()]
    rule = SoftmaxAverage(ensemble.fitted.weights)
    assert min(ensemble.fitted.weights) > 0
    forget_networks()
    capfd.readouterr()
    assert "--network networks_here:first" in refusal(capfd, certify, *ROWS.split())
    assert exit_code(certify, *ROWS.split(), "--network", "networks_here:first") == 0
    loaded, _, classes, _ = load_ensemble(Path("ensemble.json"))
    x = torch.rand(20, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded(x), Ensemble(networks, rule).eval()(x))
    assert classes == list(CLASSES)


FUNCTIONS = ["networks_here:first", "networks_here:second"]


def test_two_functions_are_of_the_given_noise_and_data_and_the_next_command_names_both(capfd):
    spec = combined(*FUNCTIONS, "--sigma", 0.5)
    assert (spec.sigma, spec.dataset, len(spec.fitted.weights)) == (0.5, "tiny", 2)
    assert f"--network {','.join(FUNCTIONS)} " in capfd.readouterr().err


def test_a_model_folder_of_a_function_is_in_the_next_command(capfd):
    combined(PAIR[0], FUNCTIONS[0])
    capfd.readouterr()
    shutil.move("ensemble/1", "mine")
    combined("mine", FUNCTIONS[1], "--network", FUNCTIONS[0], "--sigma", SIGMA, "--force")
    assert f"--network {','.join(FUNCTIONS)} " in capfd.readouterr().err


def test_all_networks_of_an_ensemble_are_named_at_once(capfd):
    combined(*FUNCTIONS, "--sigma", SIGMA)
    forget_networks()
    capfd.readouterr()
    line = refusal(capfd, certify, *ROWS.split(), "--network", FUNCTIONS[0])
    missing, remedy = line.split("must be given")
    assert FUNCTIONS[0] not in missing
    assert FUNCTIONS[1] in missing
    assert f"--network {','.join(FUNCTIONS)};" in remedy


def test_a_network_given_twice_is_refused(capfd):
    words = ["ensemble.json", "--images", "pictures", "--out", "rows.tsv"]
    words += ["--network", FUNCTIONS[0], f"--network={FUNCTIONS[1]}"]
    line = refusal(capfd, app, "certify", *words)
    assert "name several functions with commas between them" in line


def test_certifying_the_images_of_the_weights_is_warned_of(capfd):
    write_pictures("fit")
    write_pictures("others")
    next(Path("others").glob("*/*.png")).unlink()
    for weights, folder, is_warned in [
        ("optimal", "fit", True),
        ("radius", "fit", True),
        ("optimal", "others", False),
        ("equal", "fit", False),
    ]:
        words = ["--images", "fit", "--weights", weights, "--device", "cpu", "--force"]
        assert exit_code(combine, *PAIR, *words, "--out", "ensemble.json") == 0
        capfd.readouterr()
        out = ["--n0", 10, "--n", 20, "--device", "cpu", "--out", f"{weights}-{folder}.tsv"]
        assert exit_code(certify, "ensemble.json", "--images", folder, *out) == 0
        assert ("fitted to these images" in capfd.readouterr().err) == is_warned


def test_files_that_do_not_say_what_was_fitted_to_keep_their_bytes():
    combined(*PAIR)
    values = json.loads(Path("ensemble.json").read_text())
    del values["fitted"]["fingerprint"]
    files.write_json(Path("old.json"), values)
    read(Path("old.json")).write(Path("again.json"))
    assert Path("again.json").read_bytes() == Path("old.json").read_bytes()


def test_an_ensemble_is_replaced_only_by_force(capfd):
    combined(*PAIR)
    capfd.readouterr()
    assert "--force" in refusal(capfd, combine, *PAIR, *DATA)
