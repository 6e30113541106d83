"""A tiny data set, base classifiers with known answers, and parameters for many tests."""

import csv
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from rs import params, recipes
from rs.command_line.shell import run
from rs.data import prepared
from rs.data.images import PackedImages
from rs.data.meta import Meta
from rs.data.prepared import images_fingerprint
from rs.errors import InputError
from rs.methods import METHODS, method_class
from rs.methods.base import NeedsTargets
from rs.models import architectures
from rs.runtime.arithmetic import PORTABLE
from rs.storage import certificate_rows
from rs.training.recipe import RunOptions, Training
from rs.training.trainer import Trainer

ROOT = Path(__file__).parents[2]

needs_x86 = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"),
    reason="portable arithmetic is that of x86-64 processors",
)

CLASSES = ("left", "right")
SHAPE = (1, 4, 4)

TRAINING = {
    "epochs": 2,
    "batch": 8,
    "learning_rate": 0.05,
    "schedule": "step",
    "milestones": [1],
    "decay": 0.1,
    "ramp": 0.2,
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 0.0005,
    "clip_norm": None,
    "ema_decay": None,
    "crop": 0,
    "flip": False,
    "precision": "float32",
    "engine": "plain",
    "checkpoint_every": 1,
    "eval_every": 0,
    "eval_images": 4,
    "eval_n0": 10,
    "eval_n": 20,
    "eval_alpha": 0.01,
}
DEFAULTS = params.read_params(ROOT / "params.yaml")


def method_parameters(name, **small):
    """Return a method's defaults, with ``small`` values in place of those that are not 0."""
    merged, _ = recipes.merge(DEFAULTS, f"defaults.{name}", sigma=0.25)
    merged.pop("training", None)
    return {key: small[key] if value and key in small else value for key, value in merged.items()}


METHOD_PARAMETERS = {
    name: method_parameters(name, draws=2, steps=1, epsilon=0.2, step_size=0.2, warmup=1, lam=2.0)
    for name in METHODS
}
METHOD_PARAMETERS["cat-rs"]["lam"] = 0.5  # with 2, three steps an epoch learn for twelve epochs
METHOD_PARAMETERS["cat-rs"]["targets"] = {"sigma": 0.25, "epochs": 1, "draws": 5, "seed": 0}
METHOD_PARAMETERS["hard-drop"] |= {"defer": 1, "threshold": 0.3, "discard_draws": 10, "every": 1}
METHOD_PARAMETERS["advmacer"]["epsilon"] = {0.25: 0.1, 0.5: 0.2}
SECTIONS = {
    "weights": {
        "noises": 2,
        "copies": 2,
        "share": 0.3,
        "scale": 0.01,
        "draws": 2,
        "images": 4,
        "seed": 0,
    },
    "pool": {"timed": 0},
}
"""Of a recipe, for the weights of ensembles and for their pool."""
CERTIFY = {
    "n0": 10,
    "n": 50,
    "alpha": 0.01,
    "seed": 0,
    "subset": "all",
    "precision": "float32",
    "engine": "plain",
    "shortcut": False,
}


def arrays(size, seed, classes=2):
    """Return images (size, 1, 4, 4) and labels 0, 1, ...; bright is the left half of class 0, the
    right one of class 1 and the upper one of class 2.
    """
    labels = np.arange(size) % classes
    images = np.random.default_rng(seed).integers(0, 60, (size, *SHAPE), dtype=np.uint8)
    images[labels == 0, :, :, :2] += 180
    images[labels == 1, :, :, 2:] += 180
    images[labels == 2, :, :2] += 180
    return images, labels.astype(np.int64)


def write_tiny(folder, train=24, test=10, validation=0, classes=CLASSES):
    """Write the tiny data set to ``folder``, with a validation split if it has images."""
    splits = {"train": arrays(train, 0, len(classes)), "test": arrays(test, 1, len(classes))}
    splits |= {"validation": arrays(validation, 2, len(classes))} if validation else {}
    prepared.save_images(folder, "tiny", splits, classes, mean=[0.5], std=[0.25])
    return folder


def write_photos(folder, images, labels=None, classes=CLASSES):
    """Write gray images (N, 1, H, W) as files, in a subfolder for each class with labels."""
    for number, image in enumerate(images):
        path = folder / ("" if labels is None else classes[labels[number]]) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0]).save(path)


def tiny_images(size=24, seed=0):
    """One split of the tiny data set, in memory."""
    images, labels = arrays(size, seed)
    meta = Meta(
        name="tiny",
        classes=CLASSES,
        shape=SHAPE,
        mean=(0.5,),
        std=(0.25,),
        source="tests",
        sizes={"train": size},
        sha256={"train": images_fingerprint(images, labels)},
    )
    return PackedImages(meta, images, labels)


def tiny_params(**sections):
    """Parameters of the recipe ``tiny``; ``sections`` replace its own."""
    recipe = {
        "arithmetic": "native",
        "model": {"architecture": "smallnet"},
        "training": TRAINING,
        "certify": CERTIFY,
    }
    recipe |= METHOD_PARAMETERS
    return {"recipes": {"tiny": {**recipe, **sections}}}


def write_params(path, **sections):
    """Write :func:`tiny_params` to ``path`` as JSON, whose keys are texts, and return it."""
    sections.setdefault("advmacer", {**METHOD_PARAMETERS["advmacer"], "epsilon": 0.2})
    path.write_text(json.dumps(tiny_params(**sections)), encoding="utf-8")
    return path


def smallnet(seed=0):
    """An untrained classifier of the tiny images, with its normalization."""
    return architectures.build("smallnet", SHAPE, len(CLASSES), [0.5], [0.25], seed)


def forget_networks(*modules):
    """Forget the networks of users, and modules of theirs, as a new process has."""
    for name in [*architectures.USER_NETWORKS]:
        del architectures.ARCHITECTURES[name], architectures.USER_NETWORKS[name]
    for name in modules:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def trainer(
    method="gaussian",
    images=None,
    model=None,
    seed=0,
    sigma=0.25,
    parameters=None,
    device="cpu",
    seconds=None,
    **changes,
):
    """A Trainer of smallnet on the tiny images."""
    own = {**METHOD_PARAMETERS[method], **(parameters or {})}
    if isinstance(own.get("epsilon"), dict):
        own["epsilon"] = own["epsilon"][sigma]
    images = images if images is not None else tiny_images()
    model = model if model is not None else smallnet(seed)
    settings = Training(**{**TRAINING, **changes})
    options = RunOptions(sigma=sigma, seed=seed, device=torch.device(device), seconds=seconds)
    own_method = method_class(method)(**own)
    targets = soft_targets(images.labels) if isinstance(own_method, NeedsTargets) else None
    return Trainer(
        model.to(options.device), own_method, images, tiny_images(10, 1), settings, options, targets
    )


def generator(seed=0):
    """A generator of the CPU."""
    return torch.Generator().manual_seed(seed)


def soft_targets(labels, classes=2):
    """Targets of images: 0.9 for the label, the rest for the others."""
    labels = torch.as_tensor(labels)
    return torch.full((len(labels), classes), 0.1 / (classes - 1)).scatter(
        1, labels.unsqueeze(1), 0.9
    )


class Constant(nn.Module):
    """Always the same class."""

    def __init__(self, answer, num_classes=2):
        super().__init__()
        self.register_buffer("logits", torch.eye(num_classes)[answer])

    def forward(self, x):
        return self.logits.expand(len(x), -1)


class Linear(nn.Module):
    """Class 1 where the first pixel exceeds ``threshold``, class 0 elsewhere."""

    def __init__(self, threshold=0.5):
        super().__init__()
        self.register_buffer("threshold", torch.tensor(threshold))

    def forward(self, x):
        margin = x[:, 0, 0, 0] - self.threshold
        return torch.stack([-margin, margin], dim=1)


def weights(model):
    """Every parameter and buffer, as bytes."""
    return {key: value.numpy().tobytes() for key, value in model.state_dict().items()}


def python(*arguments, timeout=600, cwd=ROOT, without=(), **environment):
    """Run this interpreter in ``cwd`` for at most ``timeout`` seconds."""
    inherited = {key: value for key, value in os.environ.items() if key not in without}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def wait_until(is_true, seconds=300):
    """Wait until something is true, for so many seconds at most."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stage(*words, cwd=ROOT, **environment):
    """Run a stage, which must succeed, in a process that has not chosen its arithmetic."""
    done = python("-m", *words, timeout=None, cwd=cwd, without=PORTABLE, **environment)
    assert done.returncode == 0, done.stderr


def exit_code(command, *words):
    """Run a command in this process; its exit code."""
    with pytest.raises(SystemExit) as end:
        run(command, arguments=[str(word) for word in words])
    return end.value.code or 0


def ended(capfd, command, *words):
    """Run a command; its exit code, and the text on stdout and on stderr."""
    return exit_code(command, *words), *capfd.readouterr()


def refusal(capfd, command, *words):
    """Run a command that must refuse its input; the line that says why, with nothing on stdout."""
    code, out, err = ended(capfd, command, *words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    return line


@contextmanager
def refuses(message=None):
    """Expect an InputError of one line that matches the pattern ``message``, if there is one."""
    with pytest.raises(InputError, match=message) as caught:
        yield caught
    assert "\n" not in str(caught.value)


def read_csv(path, delimiter=","):
    """The lines of a table with a header, as dicts."""
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter=delimiter))


def update_json(path, **changes):
    """Set keys in a file of JSON."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def write_row_file(rows, path):
    """Write certificate rows, of a frame or dicts, with their header."""
    records = rows.to_dict("records") if hasattr(rows, "to_dict") else list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(certificate_rows.rows_text(records))
