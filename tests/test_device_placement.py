"""Every path of the library runs on a simulated GPU, and leaves nothing on the CPU."""

import shutil
from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from rs.certification.certify_model import certify_model
from rs.certification.certify_pool import PoolSettings, certify_pool
from rs.certification.doctor import diagnose
from rs.certification.inference import optimize_for_inference
from rs.certification.load import Classifier, load
from rs.certification.predict import predict_files
from rs.data import image_folder
from rs.data.pictures import Conversion
from rs.ensemble.base import Ensemble
from rs.errors import InputError
from rs.methods import METHODS
from rs.runtime.device import resolve_device
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.statistics.sequential import Decider
from rs.storage.files import read_json
from rs.training.recipe import RunOptions, training_recipe
from rs.training.run import splits, train_model
from tests.support import helpers
from tests.support.helpers import CERTIFY, CLASSES, SHAPE, refuses, smallnet, tiny_images, trainer
from tests.support.simulated_gpu import DeviceMismatchError, simulated_gpu
from tests.support.small_pool import ALPHA, ENTRIES, N0, SIGMA, image, members
from tests.support.tiny_pool import CERTIFICATION, SETTINGS, make_pool, solve

SLOWER = "warning: this network "
"""How a warning of ``rs.models.backend.warn`` begins, that a network runs in a slower way."""

PATHS = {}
"""What computes, by name: functions of a device and of a folder, the only one that they may write
into.
"""

SMALL = {
    "crop": 1,
    "flip": True,
    "epochs": 1,
    "batch": 8,
    "clip_norm": 1.0,
    "ema_decay": 0.5,
    "eval_every": 1,
    "eval_images": 1,
}


def path(name, *arguments, **settings):
    """Register a function, with what it is called with apart from the device and the folder."""

    def registered(function):
        PATHS[name] = partial(function, *arguments, **settings)
        return function

    return registered


@path("certify, gaussian", noise="gaussian")
@path("certify, grid", noise="grid")
def certify(device, folder, noise):
    classifier = SmoothedClassifier(smallnet().to(device), sigma=SIGMA, noise=noise)
    classifier.certify(image(), N0, 130, ALPHA)
    classifier.predict(image(), N0)
    classifier.certify_until(image(), N0, Decider([0.1], SIGMA, ALPHA, 1000))


def of_rule(device, folder, entry):
    models = members()
    ensemble = Ensemble([models[number] for number in entry.member_ids], entry.rule).to(device)
    classifier = SmoothedClassifier(ensemble, 2, SIGMA)
    classifier.certify(image(), N0, 130, ALPHA)


PATHS |= {f"ensemble, {name}": partial(of_rule, entry=entry) for name, entry in ENTRIES.items()}


@path("pool, from files to files")
def pool_of_files(device, folder):
    with chdir(make_pool(folder)):
        solve(device=device, batch=None, settings=replace(SETTINGS, images=6))
        few = replace(CERTIFICATION, subset={"first": 2})
        certify_pool(
            Path("ensembles"), Path("weights"), Path("data"), PoolSettings(timed=1), few,
            SmoothingOptions(device=device), out=Path("rows"), times=Path("times"),
        )  # fmt: skip


@path("doctor")
def doctor(device, folder):
    classifier = Classifier("a", smallnet().eval(), classes=CLASSES, shape=SHAPE)
    diagnose(classifier, tiny_images(), SIGMA, device)


class Nothing(nn.Module):
    """A classifier without parameters, whose images alone say where it runs."""

    def forward(self, x):
        if not x.is_cuda:
            raise DeviceMismatchError("images were left on the CPU")
        return x.flatten(1)[:, :2]


@path("certification of a split, on the grid", engine="compiled", noise="grid")
@path("certification of a split, of a function", members=0)
@path("certification of a split, forecast", batch=1)
@path("certification of a split, members folded", engine="folded", members=2)
@path("certification of a split, members compiled", engine="compiled", members=2)
def split(device, folder, members=1, batch=None, **settings):
    models = [smallnet(seed) for seed in range(members)] or [Nothing()]
    module = models[0] if len(models) == 1 else Ensemble(models, ENTRIES["average"].rule)
    base = Classifier("a", module.eval(), dataset="tiny", classes=CLASSES, shape=SHAPE, sigma=SIGMA)
    chosen = CertificationSettings(**CERTIFY | settings)
    options = SmoothingOptions(device=device, batch=batch)
    certify_model(base, tiny_images(3, 1), chosen, options, out=folder / "rows.tsv")


def training(device, folder, method, **changes):
    """An optimizer step with everything that goes with it, and a quick ACR."""
    trainer(method, tiny_images(8), device=device, **SMALL | changes).run()


TRAININGS = [(method, {}) for method in METHODS]
TRAININGS += [
    ("advmacer", {"engine": "folded", "precision": "bfloat16"}),
    ("advmacer", {"engine": "compiled", "precision": "bfloat16"}),
    ("consistency", {"parameters": {"steps": 1, "epsilon": 0.2}}),
    ("smoothmix", {"parameters": {"one_step": True}}),
    ("advmacer", {"parameters": {"fresh_draws": True}}),
    ("hard-drop", {"parameters": {"defer": 0}}),
]
for name, changes in TRAININGS:
    PATHS[f"training, {name} {changes}"] = partial(training, method=name, **changes)


@path("training, continued")
def continued(device, folder):
    for epochs in (1, 2):
        changes = SMALL | {"epochs": epochs, "eval_every": 0}
        run = trainer("gaussian", tiny_images(8), device=device, **changes)
        run.run(folder / "checkpoint.pt")


@path("training, images of a folder")
def folder_images(device, folder):
    helpers.write_photos(folder, *helpers.arrays(2, 0))
    images = image_folder.read_pictures(image_folder.listed(folder), SHAPE, Conversion())
    trainer(images=images, device=device, **SMALL).run()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Hash the code, which sidecars name and which does not change here, but once."""
    monkeypatch.setattr(
        "rs.runtime.code_fingerprint.code_hash", lambda *_, **__: "the code of today"
    )


def on_gpu(name, folder):
    """Run a path on the simulated GPU; return what was placed there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with simulated_gpu() as gpu:
        PATHS[name](resolve_device("cuda"), folder)
    return gpu


@pytest.mark.parametrize("name", PATHS)
def test_every_path_runs_on_a_gpu(name, tmp_path, capfd):
    """No path falls back to a slower way, which it would say on stderr."""
    assert on_gpu(name, tmp_path / "run").operations
    assert SLOWER not in capfd.readouterr().err


def products_now():
    """How torch says that CUDA multiplies float32: matrices, convolutions and recurrent layers."""
    backends = torch.backends
    kinds = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    return tuple(kind.fp32_precision for kind in kinds)


IEEE, TF32 = ("ieee",) * 3, ("tf32",) * 3


NOTED = set()
"""How networks multiplied: the pass, forward or backward, and what torch said."""


class Noting(nn.Module):
    """A layer that changes nothing, and notes how torch multiplies; a fingerprint of it does not
    depend on that.
    """

    def forward(self, x):
        NOTED.add(("forward", products_now()))
        if x.requires_grad:
            x.register_hook(lambda _: NOTED.add(("backward", products_now())))
        return x


@pytest.fixture
def noting():
    """A classifier with such a layer, that has noted nothing."""
    NOTED.clear()
    return nn.Sequential(smallnet(), Noting()).eval()


PRECISIONS = [("float32", IEEE), ("tf32", TF32), ("auto", TF32), ("bfloat16", IEEE)]


@pytest.mark.parametrize(("precision", "products"), PRECISIONS)
@pytest.mark.parametrize("engine", ["plain", "folded", "compiled"])
def test_a_certified_network_multiplies_in_its_precision_and_rows_say_so(
    noting, engine, precision, products, tmp_path
):
    """A network is compiled in it too."""
    base = Classifier("a", noting, dataset="tiny", classes=CLASSES, shape=SHAPE, sigma=SIGMA)
    settings = CertificationSettings(**CERTIFY | {"engine": engine, "precision": precision})
    out = tmp_path / "rows.tsv"
    with simulated_gpu():
        device = resolve_device("cuda")
        smoothed = base.smooth(device=device, engine=engine, precision=precision)
        NOTED.clear()
        smoothed.certify(image(), N0, 130, ALPHA)
        assert {("forward", products)} == NOTED
        certify_model(base, tiny_images(2), settings, SmoothingOptions(device=device), out=out)
        assert products_now() == IEEE
    assert read_json(out.with_suffix(".json"))["precision"] == (
        "tf32" if precision == "auto" else precision
    )


@pytest.mark.parametrize(("precision", "products"), PRECISIONS)
@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_a_trained_network_multiplies_in_its_precision_forwards_and_backwards(
    noting, engine, precision, products
):
    with simulated_gpu():
        device = resolve_device("cuda")
        changes = SMALL | {"engine": engine, "precision": precision}
        run = trainer("advmacer", tiny_images(8), model=noting, device=device, **changes)
        NOTED.clear()  # folding was checked, in float64
        run.run()
        assert run.progress.history[-1]["acr"] is not None
        assert products_now() == IEEE
    assert {("forward", products), ("backward", products)} == NOTED


@pytest.mark.parametrize(("name", "precision"), [("cpu", "float32"), ("cuda", "tf32")])
def test_cards_and_predictions_state_the_precision_that_auto_stands_for(
    name, precision, tmp_path, tiny
):
    values = helpers.tiny_params(training=helpers.TRAINING | {"precision": "auto"})
    recipe = training_recipe(values, "tiny", "gaussian", SIGMA)
    model = tmp_path / "model"
    helpers.write_photos(tmp_path, tiny_images(1).images)
    settings = CertificationSettings(**CERTIFY | {"precision": "auto"})
    with simulated_gpu():
        run = RunOptions(sigma=SIGMA, seed=0, device=resolve_device(name))
        train_model(recipe, *splits(recipe, tiny), run, out=model, log=tmp_path / "log")
        options = SmoothingOptions(device=run.device)
        pictures = [str(tmp_path / "0.png")]
        (prediction,) = predict_files(pictures, load(model), settings, options, Conversion())
    assert read_json(model / "model.json")["training"]["precision"] == precision
    assert prediction.provenance["precision"] == precision


def test_the_setting_is_restored_after_an_error():
    def fails(x):
        assert products_now() == TF32
        raise KeyError("of the network")

    with simulated_gpu():
        classifier = SmoothedClassifier(fails, 2, SIGMA, precision="tf32")
        device = resolve_device("cuda")
        with refuses("KeyError"):
            classifier.votes(image().to(device), N0, 0)
        assert products_now() == IEEE


def test_only_a_cuda_device_rounds_to_tf32():
    refused = pytest.raises(
        InputError,
        match=r"precision tf32 must run on a CUDA device, got cpu; use precision float32",
    )
    with refused:
        load(smallnet()).smooth(SIGMA, precision="tf32")
    with refused:
        SmoothedClassifier(smallnet(), 2, SIGMA, precision="tf32").certify(image(), N0, 130, ALPHA)
    with refused:
        optimize_for_inference(smallnet(), "folded", "tf32", SHAPE, torch.device("cpu"))
    with refused:
        trainer(precision="tf32")
