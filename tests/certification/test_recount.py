"""Votes of a bundle's rows that are cast again: ``rs.certification.recount``."""

import json
import re

import pytest
import torch

from rs.certification.recount import recount
from rs.errors import InputError
from tests.support.cells import certify_tiny
from tests.support.helpers import write_tiny
from tests.support.untrained import save_model

CPU = torch.device("cpu")
ROWS = "results/tiny/0.25/macer-0"
STUDY = {
    "dataset": "tiny",
    "sigmas": ["0.25"],
    "classifiers": [{"name": "macer", "key": None, "members": [["macer", 0]], "folder": ""}],
}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A model, its data and its rows; the content of a bundle of them."""
    monkeypatch.setenv("RS_WORK", str(tmp_path / "work"))
    model = tmp_path / "models" / "tiny" / "0.25" / "macer" / "0"
    save_model(model)
    certify_tiny(model, write_tiny(tmp_path / "data"), tmp_path / "rows.tsv", n0=10, n=60)
    return tmp_path, {f"{ROWS}.{kind}": (tmp_path / f"rows.{kind}").read_bytes() for kind in ("tsv", "json")} | {
        "data/tiny/meta.json": (tmp_path / "data" / "meta.json").read_bytes()
    }


def again(root, content, index=3):
    return list(recount(STUDY, content, root / "models", root / "data", index, CPU))


def test_the_votes_of_an_image_are_those_of_the_rows(study):
    root, content = study
    for index in (0, 3, 9):
        (line,) = again(root, content, index)
        assert line.endswith(f"the 70 votes on image {index} are those of the rows")


def test_a_vote_that_was_not_cast_is_found(study):
    root, content = study
    lines = content[f"{ROWS}.tsv"].decode().split("\n")
    row = lines[4].split("\t")
    assert row[0] == "3"
    row[11] = "0:30,1:30" if row[11] != "0:30,1:30" else "0:29,1:31"
    lines[4] = "\t".join(row)
    with pytest.raises(InputError, match=re.escape(f"counts of image 3 must be {row[11]}, as the rows say")):
        again(root, content | {f"{ROWS}.tsv": "\n".join(lines).encode()})


def test_another_label_than_that_of_the_image_is_found(study):
    root, content = study
    lines = content[f"{ROWS}.tsv"].decode().split("\n")
    row = lines[4].split("\t")
    own, row[1] = row[1], str(int(row[1]) ^ 1)
    lines[4] = "\t".join(row)
    with pytest.raises(InputError, match=rf"the label of image 3 must be {row[1]}, as the rows say, but is {own}"):
        again(root, content | {f"{ROWS}.tsv": "\n".join(lines).encode()})


@pytest.mark.parametrize(("field", "what"), [("images", "images"), ("classifier", "weights")])
def test_other_images_and_weights_are_refused(study, field, what):
    root, content = study
    side = json.loads(content[f"{ROWS}.json"]) | {field: "0" * 64}
    with pytest.raises(InputError, match=f"must have the {what} of the rows"):
        again(root, content | {f"{ROWS}.json": json.dumps(side).encode()})


def test_another_number_of_images_than_the_bundle_says_is_found(study):
    root, content = study
    meta = json.loads(content["data/tiny/meta.json"])
    meta["sizes"]["test"] -= 1
    with pytest.raises(InputError, match=r"must have the [\d,]+ test images that data/tiny/meta.json says, but has"):
        again(root, content | {"data/tiny/meta.json": json.dumps(meta).encode()})


def test_another_kind_of_device_is_refused_because_it_draws_other_noise(study):
    root, content = study
    side = json.loads(content[f"{ROWS}.json"]) | {"device": "cuda"}
    with pytest.raises(InputError, match=r"votes must be counted on cuda, .* got cpu, .* give --device cuda"):
        again(root, content | {f"{ROWS}.json": json.dumps(side).encode()})


def test_an_image_without_a_row_is_refused(study):
    root, content = study
    with pytest.raises(InputError, match="--image must be one of the 10 images of the rows, 0 to 9; got 10"):
        recount(STUDY, content, root / "models", root / "data", 10, CPU)  # before anything is counted


def test_no_model_at_hand_is_an_error_and_no_success(study, tmp_path):
    root, content = study
    with pytest.raises(InputError, match=r"--models must be a folder, but there is no .*empty; correct its name"):
        recount(STUDY, content, tmp_path / "empty", root / "data", 3, CPU)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has none of them"):
        recount(STUDY, content, tmp_path / "empty", root / "data", 3, CPU)
