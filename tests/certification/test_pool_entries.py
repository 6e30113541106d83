"""The classifiers that a pool is certified as: ``rs.certification.certify_pool.pool_entries``."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rs.certification.certify_pool import pool_entries
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.declare import POOL, read_pool, read_weights, write_ensembles
from rs.ensemble.spec import FittedWeights, load_members, read
from rs.errors import InputError
from rs.models.fingerprint import model_fingerprint
from rs.storage import files
from rs.study.ensembles import Combination
from tests.support.helpers import tiny_params
from tests.support.untrained import save_models

GLOBAL = {"rule": "softmax", "scope": "global"}
PER_IMAGE = {"rule": "softmax", "weights": "optimal", "scope": "per-image"}
HOW = {
    "average": GLOBAL | {"weights": "equal"},
    "listed": GLOBAL | {"weights": [0.75, 0.25]},
    "optimal": GLOBAL | {"weights": "optimal"},
    "printed": GLOBAL | {"weights": "printed"},
    "logits": {"rule": "logits", "weights": "equal", "scope": "global"},
    "vote": {"rule": "vote", "scope": "global"},
    "mme": {"rule": "mme", "scope": "noisy-input"},
    "consensus": {"rule": "consensus", "agree": 2, "scope": "noisy-input"},
    "set": {"rule": "softmax", "low": 0.25, "high": 0.75, "scope": "set"},
    "per-image": PER_IMAGE | {"target": "predicted"},
    "per-image-clipped": PER_IMAGE | {"target": "predicted", "low": 0.25, "high": 0.75},
    "per-image-label": PER_IMAGE | {"target": "label"},
}
HOW["choice"] = GLOBAL | {"weights": {"choose": 3}}
PRINTED = Combination(**HOW["printed"])
SOLUTIONS = {"optimal": (0.125, 0.875), "printed": (0.625, 0.375), "choice": (1 / 3, 2 / 3)}
FROZEN = {3: [0.1, 0.9], 7: [0.7, 0.3]}  # weights of the images 3 and 7
FROZEN_KEYS = [key for key, how in HOW.items() if how["scope"] == "per-image"]
TSV = "idx\tclass\tw0\tw1\n3\t1\t0.1\t0.9\n7\t0\t0.7\t0.3\n"
PAIR = ("macer-1", "gaussian-0")  # the members of the ensemble, which stand in another order in the pool
ENSEMBLES, WEIGHTS = Path("ensembles/0.25"), Path("weights/0.25")


def slug(key):
    return f"macer-1+gaussian-0.{key}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Models, the ensembles of a pair of them, and weights of it, as the stages leave them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("made")
        patch.chdir(folder)
        save_models(Path("models"))
        pair = {"members": {"macer": [1], "gaussian": [0]}, "combinations": list(HOW)}
        grid = {"sigmas": [0.25], "methods": ["gaussian"], "seeds": [0], "members": ["macer"], "member_seeds": [0, 1]}
        values = {"recipes": tiny_params()["recipes"], **grid, "combinations": HOW, "ensembles": {"pair": pair}}
        write_ensembles(values, "tiny", 0.25, Path("models"), ENSEMBLES)
        for key, weights in SOLUTIONS.items():
            fitted = FittedWeights(weights=list(weights), split="train", images=20, used_share=1.0, shrinkage=0.0)
            replace(read(ENSEMBLES / f"{slug(key)}.json"), fitted=fitted).write(WEIGHTS / f"{slug(key)}.json")
        for key in FROZEN_KEYS:
            files.write_text(WEIGHTS / f"{slug(key)}.tsv", TSV)
    return folder


@pytest.fixture
def pool(tmp_path, monkeypatch, made):
    """Models by name in a fresh copy of that folder, and what they are certified as."""
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return models_and_entries()


def models_and_entries(indices=tuple(FROZEN)):
    found, specs = read_pool(ENSEMBLES, WEIGHTS)
    models, _ = load_members(found.members, found.dataset, found.sigma, ENSEMBLES / POOL)
    entries = pool_entries(found, specs, models, ENSEMBLES, WEIGHTS, indices)
    return dict(zip(entries, models, strict=False)), entries


def test_a_member_that_was_not_chosen_is_not_evaluated(pool):
    path = WEIGHTS / f"{slug('choice')}.json"
    one = read(path)
    replace(one, fitted=replace(one.fitted, weights=[0.0, 1.0])).write(path)
    models, found = models_and_entries()
    entry = found[slug("choice")]
    assert entry.member_ids == (list(models).index("gaussian-0"),)
    alone = Ensemble([models["gaussian-0"]], SoftmaxAverage([1.0]))
    assert entry.provenance["classifier"] == model_fingerprint(alone)


def test_weights_of_images_are_part_of_what_their_rows_are_of(pool):
    provenance = pool[1][slug("per-image")].provenance
    assert (provenance["model"], provenance["scope"]) == (str(ENSEMBLES / f"{slug('per-image')}.json"), "per-image")
    assert provenance["weights"] == files.sha256(WEIGHTS / f"{slug('per-image')}.tsv")
    path = WEIGHTS / f"{slug('per-image')}.tsv"
    path.write_text(TSV.replace("0.7\t0.3", "0.6\t0.4"))
    assert models_and_entries()[1][slug("per-image")].provenance != provenance


# ------------------------------------------------------------------------------------------ what does not fit


def test_an_image_without_weights_is_named(pool):
    with pytest.raises(
        InputError, match=r"gaussian-0\.per-image\.tsv must have weights for image 4; .*python -m stages\.weights"
    ):
        models_and_entries([3, 4])


@pytest.mark.parametrize("name", [f"{slug('optimal')}.json", f"{slug('per-image')}.tsv"])
def test_weights_that_are_not_solved_are_named(pool, name):
    (WEIGHTS / name).unlink()
    with pytest.raises(InputError, match=rf"{re.escape(name)} must be a file, but there is none; correct its name"):
        models_and_entries()


def turned(spec):
    """The same members in another order."""
    declaration = replace(spec.declaration, members=spec.declaration.members[::-1])
    return replace(spec, declaration=declaration, members=spec.members[::-1])


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, fitted=None),  # as before its weights are solved
        turned,
        lambda spec: replace(spec, members=[replace(spec.members[0], classifier="0" * 64), spec.members[1]]),
        lambda spec: replace(spec, declaration=replace(spec.declaration, combination=PRINTED)),
        lambda spec: replace(spec, declaration=replace(spec.declaration, name="another")),
    ],
)
def test_weights_of_another_ensemble_are_refused(pool, change):
    path = WEIGHTS / f"{slug('optimal')}.json"
    change(read(path)).write(path)
    message = r"optimal\.json must be the ensemble macer 1 \+ gaussian 0 as it is now, with weights that are solved"
    with pytest.raises(InputError, match=message):
        models_and_entries()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must start with a header line"),
        ("idx\tclass\tw0\n3\t1\t1.0\n", "line 1: the columns must be idx class w0 w1, got"),
        ("idx\tclass\tw0\tw1\n", "must hold at least one row"),
        (TSV + "3\t1\t0.1\t0.9\n", "line 4: idx must be unique"),
        (TSV.replace("0.7", "nan"), "line 3: w0 cannot be 'nan'"),
        (TSV.replace("0.7", "0.8"), "line 3: weights must be at least 0 and sum to 1"),
        (TSV.replace("0.1\t0.9", "-0.5\t1.5"), "line 2: weights must be at least 0 and sum to 1"),
        (TSV[:-1], "line 3: must end with a newline"),
    ],
)
def test_weights_of_images_that_are_damaged_are_refused(pool, text, message):
    (WEIGHTS / f"{slug('per-image')}.tsv").write_text(text)
    with pytest.raises(InputError, match=rf"gaussian-0\.per-image\.tsv.*{re.escape(message)}"):
        models_and_entries()


def test_weights_come_back_with_every_digit(tmp_path):
    weights = {0: [0.1 + 0.2, 0.7, 1e-17], 12: [1.0, 0.0, 0.0]}
    lines = ["\t".join([str(index), "1", *map(repr, w)]) for index, w in weights.items()]
    (tmp_path / "w.tsv").write_text("\n".join(["idx\tclass\tw0\tw1\tw2", *lines, ""]))
    assert read_weights(tmp_path / "w.tsv", 3) == weights
