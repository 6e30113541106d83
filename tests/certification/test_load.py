"""Loading a base classifier by its name: ``rs.certification.load``."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import rs
from rs.certification.load import Classifier, load
from rs.data import images
from rs.ensemble.base import Ensemble
from rs.models.fingerprint import model_fingerprint
from rs.smoothing.classifier import SmoothedClassifier
from tests.support.ensemble_specs import MADE, made, network, spec, written
from tests.support.helpers import CLASSES, SHAPE, generator, refuses, write_tiny

pytestmark = pytest.mark.usefixtures("models_here")

FOLDER = "models/macer/0"
OWN = """
import torch
from torch import nn
from {parts} import Scale

def make():
    return nn.Sequential(Scale(), nn.Flatten(), nn.Linear(16, 2))

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))

def sized(width):
    return plain()

def defaults(width=16):
    return plain()

def dropping():
    return nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(16, 2))

def number():
    return 3

def broken():
    return None.weights
"""
PARTS = """
from torch import nn

class Scale(nn.Module):
    def forward(self, x):
        return 2 * x
"""


@pytest.fixture
def meta():
    """The data set that they classify."""
    return images.load_images(write_tiny(Path("data")), "test").meta


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Name of a module of the user's own in the current folder, different in every test."""
    name = f"own_{tmp_path.name}"
    Path(f"{name}.py").write_text(OWN.format(parts=f"{name}_parts"))
    Path(f"{name}_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    return name


# ------------------------------------------------------------------------------------------ what is
# loaded


@pytest.mark.parametrize("spelling", [f"{FOLDER}/", f"./{FOLDER}"])
def test_a_folder_has_one_name_so_that_its_rows_continue(meta, spelling):
    assert load(spelling).name == FOLDER


@pytest.mark.parametrize("known", [True, False])
def test_a_model_folder_is_the_model_in_it(meta, known):
    loaded = load(FOLDER, meta if known else None)
    assert model_fingerprint(loaded.module) == model_fingerprint(network(FOLDER))
    assert not any(module.training for module in loaded.module.modules())
    assert (loaded.name, loaded.dataset, loaded.sigma, loaded.scope) == (
        FOLDER,
        "tiny",
        0.25,
        "model",
    )
    assert (loaded.classes, loaded.shape) == (CLASSES, SHAPE)


@pytest.mark.parametrize("named", MADE)
def test_the_file_of_an_ensemble_is_a_classifier_of_the_scope_of_its_weights(meta, named):
    loaded = load(str(written(made(named))), meta)
    assert isinstance(loaded.module, Ensemble)
    assert (loaded.name, loaded.dataset, loaded.sigma) == ("ensemble.json", "tiny", 0.25)
    assert (loaded.classes, loaded.shape, loaded.scope) == (CLASSES, SHAPE, MADE[named][0]["scope"])


@pytest.mark.parametrize("name", ["macer:sigma", "macer.json"])
def test_a_folder_is_a_folder_whatever_its_name(name):
    Path(FOLDER).rename(name)
    assert load(name).sigma == 0.25


# ------------------------------------------------------------------------------------------ what is
# refused


@pytest.mark.parametrize("name", [FOLDER, "ensemble.json"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"classes": ("right", "left")},
            r"must be a classifier of tiny \(2 classes, .*\), but it is one of tiny",
        ),
        (
            {"shape": (1, 4, 3)},
            r"shape \[1, 4, 3\]\), but it is one of tiny \(2 classes, shape \[1, 4, 4\]\)",
        ),
    ],
)
def test_a_classifier_of_other_images_is_refused(meta, name, change, message):
    written(spec())
    with refuses(message):
        load(name, replace(meta, **change))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}:number", "must return an nn.Module .* got int"),
        ("{}:sized", "must be a function that needs no argument: missing a required argument"),
        ("rs.modls.hub:make", r"No module named 'rs\.modls'; correct its name"),
        ("{}:mke", r"has no function mke; did you mean 'make'\?"),
        (
            "no/such/folder",
            r"got 'no/such/folder', which has no model.json; .* as package\.module:build",
        ),
        ("{}.py:make", r"; leave out \.py: [^.]*:make$"),
        ("./{}:make", r"; write it as package\.module:function$"),
        ("no/such.json", r"no/such\.json must be a file, but there is none"),
    ],
)
def test_a_model_that_is_none_is_refused(meta, own, spec, message):
    with refuses(message):
        load(spec.format(own), meta)


def test_a_mistake_inside_the_users_function_is_kept_as_the_cause(meta, own):
    with refuses(r"it raised AttributeError: .*weights.*--debug shows where") as one:
        load(f"{own}:broken", meta)
    assert isinstance(one.value.__cause__, AttributeError)


# ------------------------------------------------------------------------------------------
# smoothed


# ------------------------------------------------------------------------------------------ for
# programs


@pytest.mark.parametrize("form", ["make", "defaults", "MODEL"])
def test_a_model_of_the_users_by_name_needs_sigma_alone(own, form):
    with Path(f"{own}.py").open("a") as file:
        file.write("\nMODEL = plain()\n")
    loaded = rs.load(f"{own}:{form}")
    assert (loaded.classes, loaded.shape, loaded.sigma) == ((), (), None)
    assert loaded.smooth(0.5).certify(np.zeros(SHAPE, np.uint8)).n == 1000


def test_a_model_that_is_an_object_is_itself():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).eval()
    loaded = rs.load(model)
    assert (loaded.name, loaded.module, loaded.sources) == ("Sequential", model, None)
    x = torch.rand(SHAPE, generator=generator())
    expected = SmoothedClassifier(model, 2, 0.5).certify(x).to_dict()
    assert loaded.smooth(0.5).certify(x).to_dict() == expected
    assert rs.load(lambda images: model(images)).smooth(0.5).certify(x).to_dict() == expected


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: rs.load(nn.Flatten()).smooth(),
            "but Flatten does not state it; in Python give sigma, .* --sigma",
        ),
        (
            lambda: rs.load(len).smooth(1.0, device="cpu"),
            "device must be left out for a plain function, .* got cpu; give the nn.Module",
        ),
        (
            lambda: rs.load(nn.Flatten()).smooth(1.0, engine="folded"),
            "engine must be plain .*, got 'folded'",
        ),
        (
            lambda: SmoothedClassifier(rs.load(FOLDER), sigma=0.5),
            r"got Classifier; .*rs\.load\(path\)\.smooth\(\)",
        ),
    ],
)
def test_what_cannot_be_loaded_or_smoothed_is_refused(ask, message):
    with refuses(message):
        ask()


def test_the_sources_of_a_users_model_are_the_files_of_its_function_and_of_what_it_imports(
    meta, own
):
    """In the order of the names of the modules; the function's is the first, as a prefix of the
    other.
    """
    files = [Path(f"{name}.py").read_bytes() for name in (own, f"{own}_parts")]
    for name in ("make", "plain"):
        loaded = load(f"{own}:{name}", meta)
        Path(loaded.name).touch()  # it was imported, whatever lies there now
        assert loaded.sources == hashlib.sha256(b"".join(files)).hexdigest()


def test_the_probe_of_a_users_model_is_of_eval_mode_and_its_own(meta, own):
    first, again, other = (
        load(f"{own}:{name}", meta) for name in ("dropping", "dropping", "plain")
    )
    again.module.load_state_dict(first.module.state_dict())
    device = torch.device("cpu")
    assert first.probe(device) == again.probe(device) != other.probe(device)
    assert first.module.training


def test_classes_are_the_same_in_either_unicode_form():
    model = Classifier("own:model", nn.Identity(), None, ("cafe\u0301", "tea"), SHAPE)
    assert model.for_images(("caf\u00e9", "tea"), SHAPE) is model
    with refuses("class 1 is tee there, and tea of the model"):
        model.for_images(("caf\u00e9", "tee"), SHAPE)
