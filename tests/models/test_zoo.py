"""The trained networks of the package, and their names ``zoo:NAME``."""

import pytest

import rs
from rs.command_line.quantize import main as quantize
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.models.zoo import FOLDER, zoo_names
from rs.storage.certificate_rows import sidecar_of
from rs.storage.files import read_json
from tests.support.helpers import refusal, refuses

NAMES = zoo_names()


def test_every_folder_of_the_zoo_is_a_network():
    assert sorted(path.name for path in FOLDER.iterdir()) == NAMES
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_network_loads_by_its_name_as_from_its_folder(name):
    """Its name, not the place of the installation, identifies it in sidecars."""
    by_name, from_folder = rs.load(f"zoo:{name}"), rs.load(FOLDER / name)
    assert by_name.name == f"zoo:{name}"
    assert by_name.folders == (str(FOLDER / name),)
    assert by_name.sources is None
    assert model_fingerprint(by_name.module) == model_fingerprint(from_folder.module)
    assert by_name.smooth().sigma == checkpoint.read_card(FOLDER / name).sigma


@pytest.mark.parametrize("rows", sorted(FOLDER.glob("*/certified.tsv")), ids=str)
def test_the_rows_of_a_network_are_those_of_its_weights(rows):
    sidecar = read_json(sidecar_of(rows))
    assert sidecar["classifier"] == model_fingerprint(rs.load(rows.parent).module)
    assert sidecar["sigma"] == checkpoint.read_card(rows.parent).sigma


@pytest.mark.parametrize("name", ["cifar10-advmacer-0.6", ".."])
def test_an_unknown_name_is_refused_with_the_names_that_there_are(name):
    with refuses(f"one of {', '.join(NAMES)}, got '{name}'"):
        rs.load(f"zoo:{name}")


def test_a_function_is_not_quantized_because_it_has_no_folder(tiny, capfd):
    assert "a function has no folder" in refusal(capfd, quantize, "zoos:build", "--data", tiny)
    line = refusal(capfd, quantize, f"zoo:{NAMES[0]}", "--data", tiny)
    assert "must be a classifier of tiny" in line
