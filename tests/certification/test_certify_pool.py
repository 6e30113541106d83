"""Certifying a pool from one noise pass: ``rs.certification.certify_pool`` and the command
``certify_ensembles``.
"""

import os
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from rs.certification.certify_pool import PoolSettings, certify_pool
from rs.certification.quantize import quantize, write_quantized
from rs.data import images as data
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.declare import read_weights
from rs.models import checkpoint
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import SmoothingOptions
from rs.storage import certificate_rows, files
from rs.study.layout import model_name
from tests.support.cells import certify_folder
from tests.support.helpers import refuses, write_tiny
from tests.support.tiny_pool import (
    ALL,
    CERTIFICATION,
    CPU,
    PAIR,
    POOL,
    SIGMA,
    TURNED,
    make_ensembles,
    pool_members,
    save_member,
)

IMAGES = 10
MEMBERS = {f"{method}-{seed}": f"models/{method}/{seed}" for method, seed in POOL}
GIVEN = [f"{PAIR}.average", f"{ALL}.average", f"{ALL}.mme", f"{TURNED}.vote"]
CASCADE = f"{ALL}.cascade"
SOLVED = [f"{PAIR}.optimal", f"{PAIR}.turned", f"{TURNED}.optimal", CASCADE]
SOLVED += [f"{ALL}.{name}" for name in ("optimal", "radius")]
FILES = {slug: f"ensembles/{slug}.json" for slug in GIVEN}
FILES |= {slug: f"weights/{slug}.json" for slug in SOLVED}
PER_IMAGE = {f"{PAIR}.label": [1, 2], f"{PAIR}.printed": [1, 2]}
PER_IMAGE |= {f"{ALL}.per-image": [0, 1, 2]}
NAMES = [*MEMBERS, *FILES, *PER_IMAGE]
ON_CPU = SmoothingOptions(device=CPU)


def pool(out="rows", timed=0, ensembles="ensembles", weights="weights", folder="data", **changes):
    certify_pool(
        Path(ensembles), Path(weights), Path(folder), PoolSettings(timed=timed),
        replace(CERTIFICATION, **changes), ON_CPU, out=Path(out), times=Path(f"{out}-times"),
    )  # fmt: skip
    return Path(out)


def table(folder):
    """Bytes of every row file."""
    return {path.stem: path.read_bytes() for path in Path(folder).glob("*.tsv")}


def stamps(*folders):
    found = [path for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


@pytest.fixture(scope="module")
def made(tmp_path_factory, solved_pool):
    """The pool with its weights, certified without an interruption."""
    root = shutil.copytree(solved_pool, tmp_path_factory.mktemp("certified") / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("RS_WORK", str(root / "work"))
        pool("unbroken")
        assert os.listdir("work") == []
    return root


@pytest.fixture(autouse=True)
def project(tmp_path, made, monkeypatch):
    """A copy of it, in which the test runs."""
    shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")


# -------------------------------------------------------------------------------------------------
# the rows


def test_every_member_is_watched(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "rs.certification.certify_pool.checking_determinism",
        lambda items, modules, precision: seen.append((len(modules), precision)) or items,
    )
    pool()
    assert seen == [(len(MEMBERS), "float32")]


def check_each_alone(models, together_in, settings):
    """Hold rows and sidecars of a pool against those of each classifier certified by itself."""
    for name, model in models.items():
        out = Path("alone", f"{name}.tsv")
        certify_folder(model, Path("data"), settings, ON_CPU, out=out)
        assert (together_in / f"{name}.tsv").read_bytes() == out.read_bytes(), name
        alone = files.read_json(out.with_suffix(".json"))
        of_pool = files.read_json(together_in / f"{name}.json")
        assert alone.pop("code") != of_pool.pop("code")
        members = of_pool.pop("members", [])
        for member in members:
            member_name = model_name(member["method"], member["seed"])
            sidecar = files.read_json(together_in / f"{member_name}.json")
            assert member["classifier"] == sidecar["classifier"]
        assert bool(members) == (name in FILES)
        assert of_pool == alone


@pytest.mark.parametrize("shortcut", [False, True])
def test_rows_and_sidecars_are_those_of_each_classifier_certified_alone(shortcut):
    together_in = pool(shortcut=shortcut) if shortcut else Path("unbroken")
    check_each_alone(MEMBERS | FILES, together_in, replace(CERTIFICATION, shortcut=shortcut))
    modes = set()
    for name in NAMES:
        modes |= {*certificate_rows.read_rows(together_in / f"{name}.tsv")["mode"]}
    assert modes == ({"certify", "shortcut"} if shortcut else {"certify"})


def test_in_int8_rows_and_sidecars_are_those_of_each_classifier_certified_alone():
    """Those of the networks that lie beside the members."""
    training = data.load_images(Path("data"), "train")
    for path in MEMBERS.values():
        write_quantized(
            Path(path), quantize(checkpoint.load_model(Path(path))[0], training, SIGMA, 10)
        )
    together_in = pool(engine="quantized")
    models = {name: (MEMBERS | FILES)[name] for name in ("macer-1", f"{ALL}.average", CASCADE)}
    check_each_alone(models, together_in, replace(CERTIFICATION, engine="quantized"))
    for name in models:
        assert files.read_json(together_in / f"{name}.json")["precision"] == "int8"


def test_a_subset_has_the_rows_of_the_whole():
    pool(subset={"range": [7, 8]})
    for name, whole in table("unbroken").items():
        lines = whole.splitlines()
        assert table("rows")[name].splitlines() == [lines[0], lines[1 + 7]]


@pytest.mark.parametrize("slug", PER_IMAGE)
def test_rows_of_weights_chosen_by_the_image_are_those_of_a_slow_loop_over_their_averages(slug):
    members = [pool_members()[number] for number in PER_IMAGE[slug]]
    weights = read_weights(Path("weights", f"{slug}.tsv"), len(members))
    images, rows = data.load_images(Path("data"), "test"), []
    for i in range(IMAGES):
        classifier = SmoothedClassifier(Ensemble(members, SoftmaxAverage(weights[i])), 3, SIGMA)
        found = classifier.certify(images.pixels(i), 10, 60, 0.01, seed=4, index=i)
        rows.append(found.row(i, i % 3, "per-image"))
    assert table("unbroken")[slug].decode() == certificate_rows.rows_text(rows)


# -------------------------------------------------------------------------------------------------
# interruptions


def test_a_second_certification_does_nothing(monkeypatch, capsys):
    pool(timed=50)
    before = stamps("rows", "rows-times")
    capsys.readouterr()
    monkeypatch.setattr(SmoothedClassifier, "noisy_copies", None)  # which draws
    monkeypatch.setattr("rs.certification.certify_pool._seconds_alone", None)
    pool(timed=50)
    assert stamps("rows", "rows-times") == before
    assert "are already complete; nothing to do" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------
# wall times


def test_the_seconds_of_a_certificate_alone_are_those_of_its_draws_times_their_number(monkeypatch):
    """Each clock reading is 2 s after the last: 50 draws take 2 s, n0 + n = 70 of them 2.8 s.

    Of a cascade the certificates of all images take 2 s.
    """
    clock = count(0, 2)
    monkeypatch.setattr(
        "rs.certification.certify_pool.time", SimpleNamespace(perf_counter=lambda: next(clock))
    )
    pool(timed=50)
    alone = pd.read_csv("rows-times/alone.csv")
    for name, sidecar in zip(alone["classifier"], alone["sidecar"], strict=True):
        assert sidecar == files.sha256(Path("rows", f"{name}.json"))
    assert sorted(alone["classifier"]) == sorted(NAMES)
    seconds = dict(zip(alone["classifier"], alone["seconds"], strict=True))
    assert seconds.pop(CASCADE) == 2 / IMAGES
    assert [*seconds.values()] == [pytest.approx(2 / 50 * 70, rel=1e-15)] * (len(NAMES) - 1)
    assert table("rows") == table("unbroken")


# -------------------------------------------------------------------------------------------------
# what is refused


def test_without_members_the_folders_are_empty():
    make_ensembles("none", [], members=[], member_seeds=[])
    pool(ensembles="none", weights="nowhere", timed=50)
    assert list(Path("rows").iterdir()) == list(Path("rows-times").iterdir()) == []


def test_ensembles_of_another_member_are_refused():
    save_member("macer", 1, gain=2.0)
    with refuses("models/macer/1 must be the model ensembles/pool.json was made of"):
        pool()
    assert table("rows") == {}


def test_a_data_set_of_other_classes_is_refused():
    with refuses("must be of classifiers of tiny"):
        pool(folder=write_tiny(Path("two")))
