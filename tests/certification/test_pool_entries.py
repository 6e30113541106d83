"""The classifiers that a pool is certified as: ``rs.certification.certify_pool.pool_entries``."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rs.certification.certify_pool import pool_entries
from rs.ensemble.declare import POOL, read_pool
from rs.ensemble.spec import load_members, read
from rs.storage import files
from rs.study.ensembles import Combination
from tests.support.helpers import refuses
from tests.support.tiny_pool import COMBINATIONS, PAIR

ENSEMBLES, WEIGHTS = Path("ensembles"), Path("weights")
OPTIMAL, PER_IMAGE = f"{PAIR}.optimal", f"{PAIR}.label"
TSV = "idx\tclass\tw0\tw1\n3\t1\t0.1\t0.9\n7\t0\t0.7\t0.3\n"
"""Weights of the images 3 and 7."""

pytestmark = pytest.mark.usefixtures("pool_here")


def models_and_entries(indices=(3, 7)):
    """Models by name, and what they are certified as."""
    found, specs = read_pool(ENSEMBLES, WEIGHTS)
    models, _ = load_members(found.members, found.dataset, found.sigma, ENSEMBLES / POOL)
    entries = pool_entries(found, specs, models, ENSEMBLES, WEIGHTS, indices)
    return dict(zip(entries, models, strict=False)), entries


def test_weights_of_images_are_part_of_what_their_rows_are_of():
    path, provenances = WEIGHTS / f"{PER_IMAGE}.tsv", []
    for text in (TSV, TSV.replace("0.7\t0.3", "0.6\t0.4")):
        path.write_text(text)
        provenances.append(models_and_entries()[1][PER_IMAGE].provenance)
        assert provenances[-1].weights == files.sha256(path)
    model = str(ENSEMBLES / f"{PER_IMAGE}.json")
    assert [(one.model, one.scope) for one in provenances] == [(model, "per-image")] * 2


def test_an_image_without_weights_is_named():
    (WEIGHTS / f"{PER_IMAGE}.tsv").write_text(TSV)
    with refuses(
        r"0-1\.label\.tsv must have weights for image 4; .*python -m stages\.weights",
    ):
        models_and_entries([3, 4])


@pytest.mark.parametrize("name", [f"{OPTIMAL}.json", f"{PER_IMAGE}.tsv"])
def test_weights_that_are_not_solved_are_named(name):
    (WEIGHTS / name).unlink()
    with refuses(rf"{re.escape(name)} must be a file, but there is none; correct its name"):
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
        lambda spec: replace(
            spec, members=[replace(spec.members[0], classifier="0" * 64), spec.members[1]]
        ),
        lambda spec: replace(
            spec,
            declaration=replace(
                spec.declaration, combination=Combination(**COMBINATIONS["turned"])
            ),
        ),
    ],
)
def test_weights_of_another_ensemble_are_refused(change):
    path = WEIGHTS / f"{OPTIMAL}.json"
    change(read(path)).write(path)
    message = r"optimal\.json must be the ensemble macer-0-1\.optimal as it is now, with fitted"
    with refuses(message):
        models_and_entries()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("idx\tclass\tw0\n3\t1\t1.0\n", "line 1: the columns must be idx class w0 w1, got"),
        (TSV + "3\t1\t0.1\t0.9\n", "line 4: idx must be unique"),
        (TSV.replace("0.7", "nan"), "line 3: w0 cannot be 'nan'"),
        (TSV.replace("0.7", "0.8"), "line 3: weights must be at least 0 and sum to 1"),
        (TSV.replace("0.1\t0.9", "-0.5\t1.5"), "line 2: weights must be at least 0 and sum to 1"),
        (TSV[:-1], "line 3: must end with a newline"),
    ],
)
def test_weights_of_images_that_are_damaged_are_refused(text, message):
    (WEIGHTS / f"{PER_IMAGE}.tsv").write_text(text)
    with refuses(rf"0-1\.label\.tsv.*{re.escape(message)}"):
        models_and_entries()
