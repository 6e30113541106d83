"""The sidecar of rows: ``rs.storage.provenance``."""

import json
from dataclasses import fields

import pytest

from rs.reporting import check
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import Provenance
from tests.support.helpers import ROOT, refuses

SIDECARS = [
    path
    for path in sorted(ROOT.glob("reports/rows/**/*.json"))
    if path.with_suffix(".tsv").exists()
]


def test_committed_sidecars_are_written_again_with_the_same_bytes(tmp_path):
    assert SIDECARS
    for path in SIDECARS:
        provenance = Provenance.read(path.with_suffix(".tsv"), "")
        assert provenance.other_keys == {}
        out = tmp_path / "rows.tsv"
        provenance.write(out)
        assert sidecar_of(out).read_bytes() == path.read_bytes()


def test_keys_of_other_programs_come_back(tmp_path):
    values = {"classifier": "a", "stop": None, "author": ["b", {"c": 1}]}
    rows = tmp_path / "rows.tsv"
    sidecar_of(rows).write_text(json.dumps(values))
    assert Provenance.read(rows, "").to_json() == values


def test_a_difference_has_the_first_digits_of_hashes_wherever_they_are():
    member = {"method": "macer", "seed": 0, "classifier": "0123456789ab" + "c" * 52}
    difference = Provenance(members=[member]).difference(Provenance())
    assert "'0123456789ab'" in difference


def test_computation_has_the_minor_series_of_libraries():
    versions = {"python": "3.12", "torch": "2.14.1+cu130", "numpy": "2.3.5"}
    provenance = Provenance(device="cpu", engine="folded", n=5, versions=versions)
    assert provenance.computation() == {
        "device": "cpu",
        "precision": None,
        "engine": "folded",
        "arithmetic": None,
        "torch": "2.14",
        "numpy": "2.3",
        "noise": "gaussian",
        "outputs": "not rounded",
    }
    assert Provenance().computation() == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "rows.tsv must have a sidecar of its rows, but it is a list; make it again"),
        ('{"n": "60"}', "but: n: Input should be a valid integer"),
    ],
)
def test_a_damaged_sidecar_is_refused(tmp_path, text, message):
    rows = tmp_path / "rows.tsv"
    sidecar_of(rows).write_text(text)
    with refuses(message):
        Provenance.read(rows, "make it again")


def test_the_checker_reads_keys_that_are_written():
    names = {field.name for field in fields(Provenance)}
    assert {*check.PROTOCOL, *check.SHARED} <= names


def test_a_difference_in_rows_is_one_of_numbers():
    difference = Provenance(rows=5).difference(Provenance(rows=1))
    assert difference == "the number of images is 5 there and 1 here"
